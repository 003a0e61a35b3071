"""What is held and what is coming of a log, from a look-up whose answer is older than what came.

A look-up is answered in another thread, and entries are stored all the time. So with each one is
noted how far every request of the log was when it was asked; what a request has passed between then
and now is held, what it is still to bring is coming. Requests that are over count until all that
came in them is stored, or never will be.

So much for what is asked for. A log to which something happens while it is looked up is looked up
once more, and a view that comes while it settles is thrown away (turns.py). What was heard of in
the meantime is sent in the new request all the same (`Planned.heard`). What came while rows were
read is found by its place in the change feed (late.py).
"""

from collections.abc import Callable, Mapping

from peer.protocol.request import Request
from wire import LogKey

from .coverage import bodies, coming, entries, is_stored, payloads, takes
from .ranges import Ranges, union

Mark = Mapping[Request, int]
"""The requests of a log at one moment, and up to which position what came in them was stored."""


class Progress:
    """Notes how far requests are; those that are over too, while something is not stored."""

    def __init__(self, requests_of: Callable[[LogKey], list[Request]]) -> None:
        self._requests_of = requests_of
        self._over: dict[LogKey, list[Request]] = {}

    def now(self, log: LogKey) -> Mark:
        """The requests in which something may come that a look-up does not tell of."""
        return {request: request.incoming.verified for request in self.alive(log)}

    def alive(self, log: LogKey) -> list[Request]:
        """The requests that bring something, or have brought what is not stored yet."""
        return [*self._requests_of(log), *self._over.get(log, ())]

    def is_settling(self, log: LogKey) -> bool:
        """Whether something came in a request that is over, and is not stored."""
        return log in self._over

    @property
    def any_settling(self) -> bool:
        """The same of any log."""
        return bool(self._over)

    def add(self, request: Request) -> None:
        """A request is over: what came in it counts once it is stored."""
        if not is_stored(request):
            self._over.setdefault(request.log, []).append(request)

    def drop(self, log: LogKey) -> None:
        """What came last will never be stored."""
        self._over.pop(log, None)

    def take_stored(self) -> list[LogKey]:
        """The logs of which all is stored by now; each is told once."""
        stored = [log for log, over in self._over.items() if all(map(is_stored, over))]
        for log in stored:
            del self._over[log]
        return stored

    # What a look-up of an earlier moment does not tell

    def coming(self, log: LogKey, since: Mark) -> Ranges:
        """The entries that are coming, or have come since a moment."""
        alive = self._requests_of(log)
        over = [request for request in (*since, *self._over.get(log, ())) if request not in alive]
        came = coming(alive)
        return union(came, *map(_entries_passed, over)) if over else came

    def payloads_coming(self, log: LogKey, since: Mark) -> Ranges:
        """The entries whose payloads are coming, or may have come since a moment."""
        alive = self._requests_of(log)
        passed = (_payloads_passed(request, at) for request, at in since.items())
        over = (_payloads_passed(each, 0) for each in self._over.get(log, ()) if each not in since)
        return union(bodies(alive), *passed, *over)


def _reach(request: Request) -> int:
    """The position behind the last piece that is stored, or may be."""
    # What is thrown away moves the cursor too, and is not held.
    incoming = request.incoming
    return incoming.verified if incoming.discarding else incoming.position


def _entries_passed(request: Request) -> Ranges:
    """The entries that have come to us in a request."""
    base, reach = request.base, _reach(request)
    if base is None or not reach or not takes(request) or request.proposal.payloads_only:
        return ()
    return entries(base, base.end, base.piece(min(reach, base.reach) - 1).seq)


def _payloads_passed(request: Request, since: int) -> Ranges:
    """The entries whose payloads the other side's cursor has passed since a position."""
    base, reach = request.base, _reach(request)
    if base is None or reach <= since or not takes(request):
        return ()
    return payloads(base, base.piece(since).seq, base.piece(min(reach, base.reach) - 1).seq)
