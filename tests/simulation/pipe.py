"""One direction of a byte stream in virtual time."""

import random
from collections.abc import Callable

from .clock import Clock, Life
from .plan import Plan

CAPACITY_BYTES = 65_536
"""What a stream takes up before its writer has to wait."""


class Pipe:
    """One direction of a stream: bytes arrive in order, in other chunks than they were sent in."""

    def __init__(
        self, clock: Clock, rng: random.Random, plan: Plan, deliver: Callable[[bytes], None]
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._delay_s = plan.delay_s
        self._chunk_bytes = plan.chunk_bytes
        self._deliver = deliver
        self._bytes = bytearray()
        self._arriving = False
        self.life = Life()
        self.delivered = 0

    @property
    def in_flight(self) -> int:
        return len(self._bytes)

    def send(self, data: bytes) -> None:
        self._bytes += data
        if data and not self._arriving:
            self._arriving = True
            self._clock.after(self._rng.uniform(0, self._delay_s), self._arrive, self.life)

    def flip_bit(self) -> bool:
        """Changes one bit of what is under way, if anything is."""
        if not self._bytes:
            return False
        at = self._rng.randrange(len(self._bytes))
        self._bytes[at] ^= 1 << self._rng.randrange(8)
        return True

    def _arrive(self) -> None:
        size = len(self._bytes)
        if self._rng.random() < 0.7:
            size = min(size, self._rng.randint(1, self._chunk_bytes))
        data = bytes(self._bytes[:size])
        del self._bytes[:size]
        self._arriving = bool(self._bytes)
        if self._arriving:
            self._clock.after(self._rng.uniform(0, self._delay_s / 10), self._arrive, self.life)
        self.delivered += size
        self._deliver(data)
