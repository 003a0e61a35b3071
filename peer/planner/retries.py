"""Logs that wait for their turn to be tried again.

A heap with an item for each moment that was ever said, of which only the latest of each log counts:
to move one inside would take a search through thousands.
"""

from heapq import heappop, heappush

from wire import LogKey


def earliest(*times: float | None) -> float | None:
    """The first of some moments, of which there may be none."""
    # A loop: this is asked after every input, and `min` of a generator takes three times as long.
    first = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


class Retries:
    """A log waits until one moment only, the latest that was said."""

    def __init__(self) -> None:
        self._at: dict[LogKey, float] = {}
        self._line: list[tuple[float, LogKey]] = []

    def __contains__(self, log: LogKey) -> bool:
        return log in self._at

    def add(self, log: LogKey, at: float) -> None:
        self._at[log] = at
        heappush(self._line, (at, log))

    def at(self, log: LogKey) -> float | None:
        """Until when a log waits."""
        return self._at.get(log)

    def drop(self, log: LogKey) -> None:
        """A log waits no more."""
        self._at.pop(log, None)

    def due(self, now: float) -> list[LogKey]:
        """The logs whose moment has come; they do not wait any more."""
        found = []
        while self._line and self._line[0][0] <= now:
            at, log = heappop(self._line)
            if self._at.get(log) == at:
                del self._at[log]
                found.append(log)
        return found

    def next_at(self) -> float | None:
        """The first moment that counts: a one-time sync waits for each that is told."""
        while self._line and self._at.get(self._line[0][1]) != self._line[0][0]:
            heappop(self._line)
        return self._line[0][0] if self._line else None
