"""Logs that wait for their turn to be looked at: first those to which something has happened.

A node offers each peer thousands of logs, and most of them wait for request credit. So they are not
put in line one by one: the line keeps its place among them.

The order is that of who has waited for what: something has happened to a log, and somebody may be
waiting for what follows; a log is asked for by being offered, since it is followed here by name; it
is only offered, and perhaps nobody over there wants it; its request has just made room for others
(room.py). A peer that makes things happen to many of its logs holds up its own session only.
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from wire import LogKey

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        what it does: its turn had come, and there was no credit left."""
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
            return self._pushed.popitem(last=False)[0]
        for rank in (self._asks, self._offers):
            if rank:
                return rank.pop()
        return self._last.popitem(last=False)[0]
