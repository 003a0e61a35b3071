"""Packets that cost us work and move nothing are legal, so they are bounded, not forbidden.

A bucket that leaks: each such packet adds one, time takes `idle_work_per_s` out, and verified data
empties it. An endpoint may always end a connection; this is when ours does
(design: what is free for the sender must not be free of limits).
"""

from .config import SessionConfig
from .errors import Violation


class Bucket:
    """A level that everything added raises by one, and that time lowers."""

    def __init__(self, per_s: float, now: float = 0.0) -> None:
        self.level = 0.0
        self._per_s = per_s
        self._at = now

    def add(self, now: float, count: int = 1) -> float:
        """So many more; returns the level."""
        self.level = max(0.0, self.level - (now - self._at) * self._per_s) + count
        self._at = now
        return self.level


class IdleWork:
    """Counts idle work of the other side; raises Violation above the limit."""

    def __init__(self, config: SessionConfig, now: float) -> None:
        self._max = config.idle_work_max
        self._grants_free = config.grants_free
        self._grants = 0
        self.completed = 0
        """Messages and packets that came whole since Writes of a few bytes were counted last."""
        self._bucket = Bucket(config.idle_work_per_s, now)

    def add(self, now: float, count: int = 1) -> None:
        if self._bucket.add(now, count) > self._max:
            raise Violation("too much idle work", f"more than {self._max:.0f} packets of no effect")

    def grant(self, units: int, proposals: int, now: float) -> None:
        """Request credit has come, of a side that was sent so many proposals.

        Each has us look what can be proposed. So it may come with every proposal that it is for,
        and is of no effect more often than that: units one at a time are legal.
        """
        self._grants += 1
        if units == 0 or self._grants > self._grants_free + proposals:
            self.add(now)

    def small_writes(self, count: int, now: float) -> bool:
        """So many Writes of a few bytes have come: of use are those that completed something.

        Returns False: nothing is to be done because of them.
        """
        completed, self.completed = self.completed, 0
        if count > completed:
            self.add(now, count - completed)
        return False

    def forgive(self) -> None:
        """Something useful came."""
        self._bucket.level = 0.0
