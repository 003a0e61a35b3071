"""Requests that are over while not all of what came in them is stored."""

from peer.protocol.request import Request
from wire import LogKey

from .coverage import is_stored


class Settling:
    """They are remembered by log, until all of a log's are stored or never will be."""

    def __init__(self) -> None:
        self._over: dict[LogKey, list[Request]] = {}

    def __contains__(self, log: LogKey) -> bool:
        return log in self._over

    def of(self, log: LogKey) -> list[Request]:
        """The requests of a log, none if all is stored."""
        return self._over.get(log, [])

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
