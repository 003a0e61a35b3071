"""Who was seen at the door, gathered, and written down once a second at most.

A stranger who knocks a thousand times a second costs one transaction a second, and no more memory
than the table has rows for those who wait. The first one is written down at once: whoever was told
on the other side that he is not allowed yet looks for him in `peer list` right then.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from logstore import Sighting

EVERY_S: Final = 1.0
GATHERED_MAX: Final = 256
"""As many as may wait in the table: more would push each other out of it."""

Keep = Callable[[Mapping[bytes, Sighting]], Awaitable[None]]


class Sightings:
    """Gathers who was seen. `keep` writes it down, `clock` says when it is, in microseconds."""

    def __init__(self, nursery: trio.Nursery, keep: Keep, clock: Callable[[], int]) -> None:
        self._nursery = nursery
        self._keep = keep
        self._clock = clock
        self._seen: dict[bytes, Sighting] = {}
        self._waiting = False
        self._written_s = -math.inf
        self._writing = trio.Lock()

    def note(self, peer_id: bytes, address: str, place: str) -> None:
        """Somebody has proved an id, let in or not."""
        before = self._seen.pop(peer_id, None)
        if before is None and len(self._seen) >= GATHERED_MAX:
            del self._seen[next(iter(self._seen))]
        now = self._clock()
        count, first_at = (1, now) if before is None else (before.count + 1, before.first_at)
        self._seen[peer_id] = Sighting(count, first_at, now, address, place)
        if not self._waiting:
            self._waiting = True
            self._nursery.start_soon(self._write_soon)

    async def _write_soon(self) -> None:
        await trio.sleep_until(max(self._written_s + EVERY_S, trio.current_time()))
        self._waiting, self._written_s = False, trio.current_time()
        await self.flush()

    async def flush(self) -> None:
        """Returns once all that was noted is written down, and not only what nobody writes yet."""
        async with self._writing:
            seen, self._seen = self._seen, {}
            if seen:
                await self._keep(seen)
