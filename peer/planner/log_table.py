"""A mapping by logs that is small when it has very many of them.

A node has such tables for each of its connections, with an item for each log that the other side
does not want: thousands, nearly all with one of a few values. A dict takes some 60 bytes for an
item, this takes two pointers. Finding one takes a dozen comparisons, and putting one in moves those
behind it; most come in ascending order, as logs are offered, or fill a gap.
"""

from bisect import bisect_left
from collections.abc import Iterator, MutableMapping
from typing import TypeVar

from wire import LogKey

Value = TypeVar("Value")


class LogTable(MutableMapping[LogKey, Value]):
    """The logs in ascending order, and beside them their values."""

    def __init__(self) -> None:
        self._logs: list[LogKey] = []
        self._values: list[Value] = []

    def _find(self, log: LogKey) -> tuple[int, bool]:
        """Where the log stands or would stand, and whether it is there."""
        logs = self._logs
        if not logs or log > logs[-1]:
            return len(logs), False
        place = bisect_left(logs, log)
        return place, logs[place] == log

    def __getitem__(self, log: LogKey) -> Value:
        place, is_there = self._find(log)
        if not is_there:
            raise KeyError(log)
        return self._values[place]

    def __setitem__(self, log: LogKey, value: Value) -> None:
        place, is_there = self._find(log)
        if is_there:
            self._values[place] = value
        else:
            self._logs.insert(place, log)
            self._values.insert(place, value)

    def __delitem__(self, log: LogKey) -> None:
        place, is_there = self._find(log)
        if not is_there:
            raise KeyError(log)
        del self._logs[place]
        del self._values[place]

    def __contains__(self, log: object) -> bool:
        return isinstance(log, LogKey) and self._find(log)[1]

    def take(self, log: LogKey) -> Value | None:
        """Removes the log and returns its value; None if it is not there.

        As of nearly all that are asked for: `pop` finds that out by an exception.
        """
        place, is_there = self._find(log)
        if not is_there:
            return None
        del self._logs[place]
        return self._values.pop(place)

    def __iter__(self) -> Iterator[LogKey]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def pairs(self) -> list[tuple[LogKey, Value]]:
        """All of it, without looking for each."""
        return list(zip(self._logs, self._values, strict=True))
