"""Positions of all connections, gathered, and written by one task.

Whoever asks for one waits here, in the event loop, until it is written. Where there is a peer,
what is written is asked of other peers first, and that needs threads: a thread that waited for its
turn to write would be one that whoever has the turn waits for.
"""

from functools import partial
from typing import Final

import trio

from gateways import LogHost
from logstore import StoreError

from .book import Asked, Book

SAVED_AFTER_S: Final = 1.0
GATHERED_MAX: Final = 1_000
"""Positions after which they are written at once."""


class _Round:
    """One writing of all that was saved before it began."""

    def __init__(self) -> None:
        self.due = trio.Event()
        """It is not waited for what else may come."""
        self.over = trio.Event()
        self.error: StoreError | None = None


class Saver:
    """Writes what is saved at most a second later. `run` has to be running."""

    def __init__(self, host: LogHost, book: Book) -> None:
        self._host = host
        self._book = book
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
                await self._host.call(self._book.flush)
            except StoreError as error:
                self._host.storage_failed(error)
                this.error = error
            this.over.set()
            if self._book.waiting:
                self._some.set()
            if this.error is not None:
                # Whoever waits for room would have it written again at once, and for ever.
                await trio.sleep(SAVED_AFTER_S)

    def save(self, asked: Asked, index: int) -> bool:
        """Remembers a position; False if too many wait to be written (`written`)."""
        has_room = self._book.save(asked, index)
        self._some.set()
        if not has_room or self._book.waiting >= GATHERED_MAX:
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

    async def get(self, asked: Asked) -> int | None:
        """A position; what was saved of it is on disk. Raises StoreError, which is said."""
        if self._book.is_waiting(asked):
            await self.flush()
        try:
            return await self._host.call(partial(self._book.get, asked))
        except StoreError as error:
            self._host.storage_failed(error)
            raise
