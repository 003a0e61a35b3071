"""How long to wait before calling again: longer each time, and never the same as others do."""

import random
from typing import Final

FIRST_S: Final = 0.5
MAX_S: Final = 60.0
GOOD_AFTER_S: Final = 10.0
"""A connection that was up for so long counts as a success."""

GOOD_AFTER_BYTES: Final = 64 * 1024
"""So does one that was lost after it had moved so much: on a bad network each brings us on."""


class Backoff:
    """Delays from half a second to `max_s`; each is drawn from the upper half of its step.

    The jitter keeps peers that lost the same server from coming back in step.
    """

    def __init__(self, rng: random.Random, max_s: float = MAX_S) -> None:
        self._rng = rng
        self._max_s = max_s
        self._step_s = FIRST_S

    def next_delay_s(self) -> float:
        """The delay before the next attempt, in seconds."""
        step_s = self._step_s
        self._step_s = min(self._max_s, step_s * 2)
        return step_s * self._rng.uniform(0.5, 1.0)

    def connected_for(self, duration_s: float, moved_bytes: int = 0) -> None:
        """A connection has ended that was established for so long.

        `moved_bytes`: what it moved in both directions before it was lost; 0 if it ended because
        of what one side did, which a call at once would only repeat.
        """
        if duration_s >= GOOD_AFTER_S or moved_bytes >= GOOD_AFTER_BYTES:
            self.begin_anew()

    def begin_anew(self) -> None:
        """The next delay is one of the shortest again."""
        self._step_s = FIRST_S
