"""Calls of a program that wait for something inside a block, and are not left behind by its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
import trio.lowlevel

from .node import Node

END_TIMEOUT_S: Final = 5.0


class PendingCalls:
    """What waits in one block, in whatever tasks. `outside` is said to those whom its end meets."""

    def __init__(self, outside: str) -> None:
        self._outside = outside
        self._scopes: set[trio.CancelScope] = set()
        self._left = trio.lowlevel.ParkingLot()
        self._is_over = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is awaited in here ends with the block, with a RuntimeError."""
        if self._is_over:
            raise RuntimeError(self._outside)
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
                self._left.unpark_all()
        if scope.cancelled_caught:
            raise RuntimeError(self._outside)

    async def end(self) -> None:
        """Ends what waits, and returns once it has tidied up behind itself, after 5 s at most."""
        self._is_over = True
        for scope in self._scopes:
            scope.cancel()
        with trio.move_on_after(END_TIMEOUT_S, shield=True):
            while self._scopes:
                await self._left.park()


class News:
    """Wakes one task when anything of any log, or what is wanted, has changed."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def note(self, _: object = None) -> None:
        """Something has changed."""
        self._event.set()

    async def wait(self) -> None:
        """Returns at once if anything changed since the last call, else when it does."""
        await self._event.wait()
        self._event = trio.Event()


@contextmanager
def news_of(node: Node, *, logs: bool = True) -> Iterator[News]:
    """News of a node; without `logs` only of what is wanted."""
    news = News()
    node.want_watchers.add(news.note)
    if logs:
        node.host.watchers.add(news.note)
    try:
        yield news
    finally:
        node.want_watchers.discard(news.note)
        node.host.watchers.discard(news.note)
