"""A bound on work that moves nothing (bymux.md Idle work)."""

from .config import Limits
from .errors import Violation
from .half import place

IDLE_WORK = "bymux.md Idle work"


class IdleWork:
    """A leaky bucket: packets without effect fill it, time and useful bytes empty it.

    A byte of data takes one packet's worth out. So whoever mixes idle packets into data costs us
    at most twice what data in the smallest Writes costs, and these are legal.
    """

    __slots__ = ("_at", "_limits", "used")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._at = 0.0
        self.used = 0.0

    def pass_time(self, now: float) -> None:
        """It is `now`, in seconds of any clock that never goes back."""
        if now > self._at:
            self.used = max(0.0, self.used - (now - self._at) * self._limits.idle_work_per_s)
            self._at = now

    def useful(self, count: int) -> None:
        """Bytes of data have come."""
        self.used = max(0.0, self.used - count)

    def spend(self, name: str, stream: int | None) -> None:
        """A packet without effect has come. Raises Violation if it is one too many."""
        if self.used + 1 > self._limits.idle_work_max:
            detail = (
                f"{place(stream)}: too much idle work: this {name} is one more than the"
                f" {self._limits.idle_work_max} packets without effect that are let pass"
            )
            raise Violation(IDLE_WORK, detail, stream=stream)
        self.used += 1
