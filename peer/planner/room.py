"""Room for logs that wait, where the other side takes few requests at a time (point2point.md 2, 6).

A log that is followed keeps its request open, so that a peer that takes fewer requests than there
are logs would never be asked for the others. What is at rest ends for a while then, and the logs
take turns.

How many requests a peer takes nobody says: all that shows is whether credit comes back. So one
request is ended first, and only if credit has come of that more, twice as many each time. A peer
that gives none back loses one, and nothing is won by ending more. For the same reason nothing is
ended while credit comes at all, or while nothing waits.

Three rules keep a log from standing still for ever, while others take turns; without each of them
worlds of logs that need two requests at a time did. Who has made room stands behind all others,
wherever it stood in line (waiting_line.py). Whose turn it is and who finds no credit left keeps its
place. And of what a log needs, what ends by itself is asked for before what goes on: the latter is
what is ended here, and would be all that the log ever gets (turns.py).

It is not for the turns of logs while there is credit (turns.py, waiting_line.py).
"""

from collections.abc import Iterable

from peer.protocol.config import SessionConfig
from peer.protocol.request import Request
from wire import Cancel, CancelReason

from .actions import Actions
from .coverage import covers, is_stored

_AT_ONCE_MAX = 64
"""So many requests are ended at one turn, at most: as many as a peer gives credit for at first."""
_TURNS_UNTIL_LOOKED_AT = 12
"""After so many turns room is made for logs, too, of which nobody knows what they wait for. That is
a minute: all of them have a request, and perhaps another one for payloads or a gap is due."""


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
        """Whether logs take turns, so that credit is never plenty."""
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
        idle = [request for request in ours if _is_at_rest(request, now - self._patience_s)]
        # Who has been quiet for longest: a log that grows keeps its request.
        idle.sort(key=lambda request: request.progress_at)
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


def _is_at_rest(request: Request, since: float) -> bool:
    """Whether an open request of ours has moved nothing `since` then, and nothing is to be sent.

    What is read ahead may wait for long: for a payload that is held nowhere, for instance.
    """
    incoming, outgoing = request.incoming, request.outgoing
    inside = incoming.in_piece or outgoing.in_piece or incoming.sink is not None
    sends = outgoing.queued or outgoing.reading
    quiet = request.active and request.progress_at <= since
    return quiet and covers(request) and is_stored(request) and not (inside or sends)
