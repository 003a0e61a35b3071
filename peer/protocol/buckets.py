"""What sessions of a node share, so that whoever opens many of them, or connects anew all the time,
has no more of it: credit for refused proposals (refunds.py), and new logs."""

from msgspec import Struct

from .config import SessionConfig
from .refunds import RefundBucket


class LogBucket:
    """How many logs a peer may still bring that are new here and that nobody has asked for by name.

    Authors cost nothing to make, and each log takes memory and rows that no quota of bytes bounds.
    The burst is large, since a first replica of thousands of logs is honest; with a pace from the
    beginning it took minutes.
    """

    def __init__(self, logs_max: float, logs_per_s: float) -> None:
        self._max = self._level = logs_max
        self._per_s = logs_per_s
        self._at: float | None = None

    @classmethod
    def of(cls, config: SessionConfig) -> "LogBucket":
        """As a session's configuration says."""
        return cls(config.offered_logs_max, config.offered_logs_per_s)

    def take(self, now: float) -> bool:
        """Whether one more may come now; it counts as taken."""
        if self._at is not None:
            self._level = min(self._max, self._level + (now - self._at) * self._per_s)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def change(self, logs_max: float) -> None:
        """So many at once from now on; what is taken stays taken."""
        self._level = max(0.0, self._level + logs_max - self._max)
        self._max = logs_max


class Buckets(Struct, frozen=True):
    """Those of a session: `refunds` is one for the node, `logs` one for a peer or an address."""

    refunds: RefundBucket
    logs: LogBucket

    @classmethod
    def of(cls, config: SessionConfig) -> "Buckets":
        """For a session that is set up like this, and shares them with nobody."""
        return cls(RefundBucket.of(config), LogBucket.of(config))
