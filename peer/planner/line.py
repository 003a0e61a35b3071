"""Logs that wait for their turn to be looked at, and room for them where credit does not suffice.

**In line** (`WaitingLine`). A node offers each peer thousands of logs, and most of them wait for
request credit. So they are not put in line one by one: the line keeps its place among them. The
order is that of who has waited for what: something has happened to a log, and somebody may be
waiting for what follows; a log is asked for by being offered, since it is followed here by name; it
is only offered, and perhaps nobody over there wants it; its last request has made room for others.
A peer that makes things happen to many of its logs holds up its own session only.

**Room** (point2point.md 2, 6). A log that is followed keeps its request open, so that a peer that
takes fewer requests than there are logs would never be asked for the others. What is at rest ends
for a while then, and the logs take turns. How many requests a peer takes nobody says: all that
shows is whether credit comes back. So one request is ended first, and only if credit has come of
that more, twice as many each time. A peer that gives none back loses one, and nothing is won by
ending more. For the same reason nothing is ended while credit comes at all, or while nothing waits.

Three rules keep a log from standing still for ever while others take turns; without each of them
worlds of logs that need two requests at a time did. Who has made room stands behind all others,
wherever it stood: it would wait for its second request at the head of the line, and be granted both
in turn, by room that is made for others. Whose turn it is and who finds no credit left keeps its
place. And once room was made, of what a log needs what ends by itself is asked for before what goes
on: the latter is what is ended here, and would be all that the log ever gets (turns.py).
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator

from peer.protocol.config import SessionConfig
from peer.protocol.request import Request
from wire import Cancel, CancelReason, LogKey

from .actions import Actions
from .coverage import covers, is_stored

_AT_ONCE_MAX = 64
"""So many requests are ended at one turn, at most: as many as a peer gives credit for at first."""
_TURNS_UNTIL_LOOKED_AT = 12
"""After so many turns in vain, a minute, room is made for logs, too, of which nobody knows what
they wait for: all of them have a request, and perhaps another one for payloads or a gap is due. And
so long those keep theirs that are never at rest."""


class _Rank:
    """Logs that wait for the first time, of which only the place among them is kept."""

    def __init__(self) -> None:
        self._runs: deque[Iterator[LogKey]] = deque()
        self._left = 0

    def __len__(self) -> int:
        return self._left

    def add(self, logs: list[LogKey], *, backwards: bool) -> None:
        self._runs.append(reversed(logs) if backwards else iter(logs))
        self._left += len(logs)

    def pop(self) -> LogKey:
        self._left -= 1
        while (log := next(self._runs[0], None)) is None:
            self._runs.popleft()
        return log


class WaitingLine:
    """Each log stands in it once among those that are not only offered.

    Those to which something has happened come first, then those that are asked for, then those
    that are only offered.
    """

    def __init__(self) -> None:
        self._pushed: OrderedDict[LogKey, None] = OrderedDict()
        self._asks = _Rank()
        self._offers = _Rank()
        self._offered: tuple[LogKey, ...] = ()
        self._last: OrderedDict[LogKey, None] = OrderedDict()
        self._behind: set[LogKey] = set()
        """Those whose last request made room for others, whether they are in line or not."""
        self._preferred: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self._pushed or self._asks or self._offers or self._last)

    @property
    def next_is_offer(self) -> bool:
        """Whether the next one is only offered."""
        return bool(self._offers) and not (self._pushed or self._asks)

    def __contains__(self, log: LogKey) -> bool:
        return log in self._pushed or log in self._last

    def count(self, condition: Callable[[LogKey], bool]) -> int:
        """How many wait for which a condition holds; those that are offered count all."""
        return (
            len(self._asks) + len(self._offers) + sum(map(condition, (*self._pushed, *self._last)))
        )

    def push(self, log: LogKey, *, first: bool = False) -> None:
        """Something happened to a log. `first`: it goes ahead of all others that stand in line for
        what it does: its turn had come, and credit or a newer view was lacking; or somebody waits
        for just this, since it is ours to ask for or may be forked."""
        if log not in self._behind:
            self._last.pop(log, None)
        line = self._last if log in self._behind else self._pushed
        line[log] = None
        if first:
            # Else it would lose its place to those behind it, and might do so each time.
            line.move_to_end(log, last=False)

    def step_behind(self, log: LogKey) -> None:
        """A log stands behind all others from now on, those that are offered included."""
        self._behind.add(log)
        if log in self._pushed:
            del self._pushed[log]
            self._last[log] = None

    def step_forward(self, log: LogKey) -> None:
        """A log that had its turn again stands like any other, the next time that it is in line."""
        self._behind.discard(log)

    def offer(
        self,
        logs: tuple[LogKey, ...],
        asks: Callable[[LogKey], bool] = lambda _: False,
        *,
        backwards: bool = False,
    ) -> None:
        """All logs that are offered now; those that were not before get a turn each.

        `asks`: whether a log is wanted by name, so that to offer it is to ask for it.
        """
        new = logs
        if self._offered:
            before = frozenset(self._offered)
            new = tuple(log for log in logs if log not in before)
        self._offered = logs
        wanted: list[LogKey] = []
        others: list[LogKey] = []
        for log in new:
            (wanted if asks(log) else others).append(log)
        self._asks.add(wanted, backwards=backwards)
        self._offers.add(others, backwards=backwards)

    def asked_for(self, log: LogKey) -> None:
        """The other side has proposed a log.

        Who follows an author proposes log 0, and cannot name the others: those that are offered go
        ahead of all else that is only offered, once.
        """
        author = log.author
        if log.log_id != 0:
            return
        # Once for each author: who names log 0 again and again would have us go through all his
        # logs.
        place = bisect_left(self._offered, LogKey(author, 0))
        if author in self._preferred or place == len(self._offered):
            return
        if self._offered[place].author == author:
            self._preferred.add(author)
        while place < len(self._offered) and self._offered[place].author == author:
            self.push(self._offered[place])
            place += 1

    def pop(self) -> LogKey:
        """The next one; the line must not be empty."""
        if self._pushed:
            log = self._pushed.popitem(last=False)[0]
            if not self._pushed:
                # What thousands of logs took that changed at once is never given back otherwise.
                self._pushed.clear()
            return log
        for rank in (self._asks, self._offers):
            if rank:
                return rank.pop()
        return self._last.popitem(last=False)[0]


class Room:
    """Ends requests of ours that are at rest while others wait for credit."""

    def __init__(self, actions: Actions, config: SessionConfig) -> None:
        self._actions = actions
        self._patience_s = config.stalled_after_s
        self._short_since: float | None = None
        """Since when something has waited without any credit, or since the last turn."""
        self._turns_passed = 0
        """Turns at which all logs that waited had a request, and perhaps needed no other."""
        self._at_once = 1
        """So many are ended at the next turn: one until it is seen that credit comes of it."""
        self._in_vain = False
        """Requests were ended, and no credit has come since."""
        self._ended: set[Request] = set()

    @property
    def is_short(self) -> bool:
        """Whether room was ever made in this session, however long ago: logs take turns from then
        on, so that credit is never plenty."""
        return self._at_once > 1

    def next_deadline(self) -> float | None:
        """When it is time for a turn unless credit comes before, or None."""
        if self._short_since is None or self._in_vain:
            return None
        return self._short_since + self._patience_s

    def is_due(self, *, waits: bool) -> bool:
        """Whether it is time for a turn; to be asked after whatever happens.

        `waits`: whether anything has no request, perhaps for lack of credit.
        """
        # While it is in vain no other request is ended: with each one a log would lose its own.
        if self._actions.request_credit > 0:
            self._in_vain = False
        if self._actions.request_credit > 0 or not waits:
            self._short_since, self._turns_passed = None, 0
            return False
        if self._short_since is None:
            self._short_since = self._actions.now
        due = self.next_deadline()
        return due is not None and due <= self._actions.now

    def make(self, waiting: int, ours: Iterable[Request]) -> None:
        """End as many of our requests as are at rest and have others waiting for their place.

        `waiting`: how many logs or pieces of logs certainly need a request.
        """
        now = self._actions.now
        self._short_since = now
        self._turns_passed += 1
        if not waiting and self._turns_passed < _TURNS_UNTIL_LOOKED_AT:
            return
        able = [request for request in ours if _may_end(request)]
        # Who has been quiet for longest: a log that grows keeps its request...
        since = now - self._patience_s
        idle = [request for request in able if request.progress_at <= since]
        idle.sort(key=lambda request: request.progress_at)
        if not idle and self._turns_passed >= _TURNS_UNTIL_LOOKED_AT:
            # ... but not for ever: as many as there is credit for would keep all others out.
            idle = sorted(able, key=lambda request: request.created_at)[:1]
        for request in idle[: min(max(waiting, 1), self._at_once)]:
            self._ended.add(request)
            self._in_vain = True
            # Not 128: the other side may ask for this log, which takes none of our credit.
            self._actions.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
        if idle:
            self._turns_passed = 0
            self._at_once = min(2 * self._at_once, _AT_ONCE_MAX)

    def released(self, request: Request) -> bool:
        """Whether a request that is over had to make room for others."""
        if request not in self._ended:
            return False
        self._ended.discard(request)
        return True


def _may_end(request: Request) -> bool:
    """Whether nothing of an open request of ours is on its way, in either direction.

    What is read ahead may wait for long: for a payload that is held nowhere, for instance.
    """
    incoming, outgoing = request.incoming, request.outgoing
    inside = incoming.in_piece or outgoing.in_piece or incoming.sink is not None
    sends = outgoing.queued or outgoing.reading
    moves = inside or sends or not is_stored(request)
    return request.active and covers(request) and not moves
