"""What others may have of own logs, gathered in memory and remembered in the store."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from logstore import StoreError
from peer.node.host.store_host import StoreHost
from wire import LogKey

log = logging.getLogger(__name__)

REMEMBER_S: Final = 1.0
"""How long it is gathered before it is remembered."""


class Spread:
    """`is_news` takes an own log and an entry of it, and says whether that was not known yet."""

    def __init__(
        self, host: StoreHost, nursery: trio.Nursery, is_news: Callable[[LogKey, int], bool]
    ) -> None:
        self._host = host
        self._nursery = nursery
        self._is_news = is_news
        self._gathered: dict[LogKey, int] = {}
        self._waiting = False
        self._ended = False

    def note(self, key: LogKey, seq: int) -> None:
        """An entry of a log has left, or has come."""
        if self._is_news(key, seq):
            self._gathered[key] = seq
            if not (self._waiting or self._ended):
                self._waiting = True
                self._nursery.start_soon(self._remember_soon)

    def end(self) -> None:
        """No task is begun any more; `remember` takes what still comes."""
        self._ended = True

    async def _remember_soon(self) -> None:
        # One write for all that leaves in a while: what is lost of it costs a question.
        await trio.sleep(REMEMBER_S)
        self._waiting = False
        await self.remember()

    async def remember(self) -> None:
        """Writes down what was gathered."""
        gathered, self._gathered = self._gathered, {}
        if gathered:
            try:
                await self._host.call(partial(self._host.store.note_shared, gathered))
            except StoreError as error:
                log.warning("what others have of own logs cannot be kept: %s", error)
