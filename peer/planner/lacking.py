"""When to try again for payloads that were asked for and did not come.

Nothing in the protocol tells that a side has come to hold a payload that it had to skip. So what is
missing is asked for again after a while, each time after twice as long, in every session whose peer
may have it; and soon once the peer says something that makes it likely.
"""

from dataclasses import dataclass

from wire import LogKey

from .retries import Retries

_WAIT_MAX_S = 60.0

Missing = tuple[tuple[int, int], ...]
"""Entries and how much of their payloads is held, or ranges of entries to fetch."""


@dataclass(slots=True)
class _Lack:
    missing: Missing = ()
    tries: int = 0
    is_due: bool = False


class Lacking:
    """The logs of which something was missing when they were last looked at."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._lacks: dict[LogKey, _Lack] = {}
        self._retries = Retries()

    def __contains__(self, log: LogKey) -> bool:
        return log in self._lacks

    def note(self, log: LogKey, missing: Missing, now: float) -> bool:
        """What a log lacks now. Whether that is so for long, so that nobody else brings it."""
        if not missing:
            if self._lacks.pop(log, None) is not None:
                self._retries.drop(log)
            return False
        lack = self._lacks.setdefault(log, _Lack())
        stays = missing == lack.missing
        lack.missing = missing
        due, lack.is_due = lack.is_due, False
        self.wait(log, now)
        return due and stays

    def came(self, log: LogKey) -> None:
        """Something of a log has come: perhaps more does."""
        if log in self._lacks:
            self._lacks[log].tries = 0

    def wait(self, log: LogKey, now: float) -> None:
        """Look at it again later, if nothing is due before."""
        lack = self._lacks.setdefault(log, _Lack())
        if log not in self._retries:
            delay = min(self._first_s * 2.0 ** min(lack.tries, 16), _WAIT_MAX_S)
            self._retries.add(log, now + delay)

    def hurry(self, log: LogKey, at: float) -> None:
        """The other side may have come to hold it: try at that time, if not before."""
        due_at = self._retries.at(log)
        if due_at is not None and due_at > at:
            self._retries.add(log, at)

    def due(self, now: float) -> list[LogKey]:
        """The logs to try again."""
        found = self._retries.due(now)
        for log in found:
            lack = self._lacks[log]
            lack.is_due = True
            lack.tries += 1
        return found

    def next_at(self) -> float | None:
        return self._retries.next_at()
