"""How fast credit for refused proposals goes back (point2point.md 2): one bucket for a node.

Refusing costs us little, and a peer with ten thousand logs of no interest is honest. What has to be
bounded is what all peers together can make a node refuse: were the bucket each session's, whoever
opens twenty connections, or connects anew all the time, would have twenty of them.
"""

from typing import Final

from .config import SessionConfig

TICK_S: Final = 0.05
"""Credit goes back so often: one message for many units."""


class RefundBucket:
    """The bucket of a node, and the sessions that wait for what is in it, in turn."""

    def __init__(self, units_max: float, units_per_s: float) -> None:
        self._max = units_max
        self._per_s = units_per_s
        self._level = units_max
        self._at: float | None = None
        self._waiting: dict[Refunds, None] = {}

    @classmethod
    def of(cls, config: SessionConfig) -> "RefundBucket":
        """The bucket of a node whose sessions are set up like this."""
        return cls(config.refused_credit_max, config.refused_credit_per_s)

    def take(self, refunds: "Refunds", owed: int, now: float) -> int:
        """How much of what a session owes may go back now; at most its share if others wait."""
        self._waiting.setdefault(refunds)
        if self._at is not None:
            self._level = min(self._max, self._level + (now - self._at) * self._per_s)
        self._at = now
        # A rate whose product with a tick should be whole may fall short of it by rounding.
        whole = int(self._level + 1e-6)
        share = whole // len(self._waiting)
        if not share and whole and next(iter(self._waiting)) is refunds:
            share = 1
        units = min(owed, share)
        self._level -= units
        if units:
            del self._waiting[refunds]
        if units < owed:
            # To the end of the line, if it got anything.
            self._waiting.setdefault(refunds)
        return units

    def leave(self, refunds: "Refunds") -> None:
        """A session has ended, and nobody waits there any more."""
        self._waiting.pop(refunds, None)


class Refunds:
    """What one session gives back, tick by tick."""

    def __init__(self, bucket: RefundBucket, now: float) -> None:
        self._bucket = bucket
        self._tick_at = now + TICK_S

    def next_at(self, owed: int) -> float | None:
        """When something may go back, None if nothing is owed."""
        return self._tick_at if owed else None

    def due(self, owed: int, now: float) -> int:
        """How much goes back now."""
        if not owed or now < self._tick_at:
            return 0
        self._tick_at = now + TICK_S
        return self._bucket.take(self, owed, now)

    def over(self) -> None:
        """The session has ended."""
        self._bucket.leave(self)
