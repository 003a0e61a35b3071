"""What many save, gathered, and written by one task within a second: the state of a log.

Sooner where somebody waits for it, or where much has come together. Whoever asks whether it is on
disk waits here, in the event loop, and so does who saves more than is written. Where there is a
peer, what is written is asked of other peers first, and that needs threads: a thread that waited
for its turn to write would be one that whoever has the turn waits for.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import trio

from logstore import StoreError

from .hosting import LogHost
from .newest_state import NewestState

SAVED_AFTER_S: Final = 1.0
GATHERED_MAX: Final = 1_000
"""Values after which they are written at once."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Round:
    """One writing of all that was saved before it began."""

    def __init__(self) -> None:
        self.due = trio.Event()
        """It is not waited for what else may come."""
        self.over = trio.Event()
        self.error: StoreError | None = None


class Saver(Generic[K, V]):
    """Has a state written at most a second after anything was saved. `run` has to be running."""

    def __init__(self, host: LogHost, state: NewestState[K, V]) -> None:
        self._host = host
        self._state = state
        self._some = trio.Event()
        """Something waits to be written."""
        self._next = _Round()

    async def run(self) -> None:
        """Writes until cancelled. A store that fails is said, and asked again a second later."""
        while True:
            await self._some.wait()
            with trio.move_on_after(SAVED_AFTER_S):
                await self._next.due.wait()
            # What is saved from here on may be too late for this one.
            this, self._next, self._some = self._next, _Round(), trio.Event()
            try:
                await self._host.call(self._state.flush)
            except StoreError as error:
                self._host.storage_failed(error)
                this.error = error
            this.over.set()
            if self._state.waiting:
                self._some.set()
            if this.error is not None:
                # Whoever waits for room would have it written again at once, and for ever.
                await trio.sleep(SAVED_AFTER_S)

    def save(self, key: K, value: V) -> bool:
        """Remembers a value; False if too many wait to be written (`written`)."""
        has_room = self._state.save(key, value)
        self._some.set()
        if not has_room or self._state.waiting >= GATHERED_MAX:
            self._next.due.set()
        return has_room

    async def written(self) -> None:
        """Returns once the next writing is over, however it went."""
        await self._next.over.wait()

    async def flush(self) -> None:
        """Returns once all that was saved is on disk. Raises StoreError, which is said."""
        this = self._next
        this.due.set()
        self._some.set()
        await this.over.wait()
        if this.error is not None:
            raise this.error

    async def settled(self, key: K) -> None:
        """Returns once what was saved of a key is on disk. Raises StoreError, which is said."""
        if self._state.is_waiting(key):
            await self.flush()
