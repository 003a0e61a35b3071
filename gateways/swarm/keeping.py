"""Chunks that have come, on their way to the disk, and what is done when it takes no more.

Chunks of all peers are written together, as many as have come while the last ones were being
written: a transaction costs the same for one and for a thousand. Only what is on disk is told to
the state machines, so a disk that is slow makes peers wait, and one that fails stops the syncing
until it goes on. What peers send meanwhile was asked for before, and is bounded here: they are not
listened to while much waits, and while nothing can be written what is too much is thrown away.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from gateways import LogHost
from gateways.swarm.bmt import Chunk
from logstore import StoreError

from .bins import Bins

WAITING_BYTES_MAX: Final = 8 << 20
"""While so much waits to be written no peer is listened to."""
TOGETHER_MAX: Final = 1_000
AGAIN_S: Final = 1.0

Kept = Callable[[list[bytes], list[bytes]], Awaitable[None]]
"""Told which addresses are on disk, and which will not be."""


class Keeper:
    """Writes chunks. `chunks_max`: more are not synced; what is wanted here is kept all the same.

    `paused` is called with whether syncing is to stop, whenever that changes.
    """

    def __init__(
        self,
        host: LogHost,
        bins: Bins,
        chunks_max: int,
        kept: Kept,
        paused: Callable[[bool], Awaitable[None]],
        is_full: Callable[[int], object],
    ) -> None:
        self._host = host
        self._bins = bins
        self._chunks_max = chunks_max
        self._kept = kept
        self._paused = paused
        self._tell_full = is_full
        self._waiting: dict[bytes, tuple[Chunk, bool]] = {}
        self._size = 0
        self._some = trio.Event()
        self._change = trio.Event()
        self._is_failing = False
        self._is_full = False
        self._is_paused = False

    @property
    def has_room(self) -> bool:
        """Whether peers may be listened to: they are too while nothing is written for long."""
        return self._size < WAITING_BYTES_MAX or self._is_failing

    async def room(self) -> None:
        """Returns once there is room."""
        while not self.has_room:
            await self._change.wait()

    def put(self, chunk: Chunk, *, is_own: bool) -> bool:
        """Takes a chunk that is not held; False if it is not to be kept.

        `is_own`: somebody here wants it, so that it is kept whatever else is.
        """
        before = self._waiting.get(chunk.address)
        if before is None:
            if self._is_failing and self._size >= WAITING_BYTES_MAX:
                return False
            self._size += len(chunk.encoded)
            self._waiting[chunk.address] = (chunk, is_own)
        elif is_own:
            # The first of one address, whose size is counted.
            self._waiting[chunk.address] = (before[0], True)
        self._some.set()
        return True

    async def flush(self) -> None:
        """Returns once all that was put is on disk, or will not be."""
        waiting = [*self._waiting]
        while any(each in self._waiting for each in waiting):
            await self._change.wait()

    async def look(self) -> None:
        """Sees whether there is room for more chunks: some may have left, or come otherwise."""
        held = self._bins.count()
        if held >= self._chunks_max and not self._is_full:
            self._tell_full(held)
        self._is_full = held >= self._chunks_max
        await self._pause_if_need_be()

    async def _pause_if_need_be(self) -> None:
        is_paused = self._is_full or self._is_failing
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            await self._paused(is_paused)

    async def run(self) -> None:
        """Writes until cancelled."""
        await self.look()
        while True:
            await self._some.wait()
            self._some = trio.Event()
            while self._waiting:
                await self._write_some()

    async def _write_some(self) -> None:
        taken = [*self._waiting.values()][:TOGETHER_MAX]
        room = max(0, self._chunks_max - self._bins.count())
        kept: list[Chunk] = []
        lost: list[bytes] = []
        for chunk, is_own in taken:
            if is_own or room > 0:
                kept.append(chunk)
                room -= 1
            else:
                lost.append(chunk.address)
        try:
            await self._host.call(partial(self._bins.keep, kept))
        except StoreError as error:
            self._host.storage_failed(error)
            self._is_failing = True
            self._tell_changed()
            await self._pause_if_need_be()
            await trio.sleep(AGAIN_S)
            return
        self._is_failing = False
        for each in taken:
            chunk, _ = each
            # Unless somebody here has come to want it: then it is to be kept after all.
            if self._waiting[chunk.address] is each:
                del self._waiting[chunk.address]
                self._size -= len(chunk.encoded)
        await self._kept([each.address for each in kept], lost)
        self._tell_changed()
        await self.look()

    def _tell_changed(self) -> None:
        self._change.set()
        self._change = trio.Event()
