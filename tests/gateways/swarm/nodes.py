"""Nodes in stores, and what connects with them over sockets."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from gateways.swarm import Side, SwarmServer, in_pages, make_node, node_of
from gateways.swarm.logs import Chunks
from logstore import Store
from wire import LogKey

PATIENCE_S = 120
"""How long anything may take; it takes this long only if it never comes."""


def made_node(folder: Path) -> Store:
    """A store with the logs of a node."""
    store = Store.create(folder)
    side = Side(store)
    make_node(store, side, store.append_many)
    side.close()
    return store


def data_of(chunks: int, seed: int = 0) -> bytes:
    """A file of so many leaves, all of them different."""
    return random.Random(f"{seed}").randbytes(4096 * chunks)


def put(store: Store, data: bytes) -> bytes:
    """Puts a file into a store without a node that serves; its hash."""
    side = Side(store)
    side.refresh()
    try:
        node = node_of(store, side)
        return Chunks(store, side).put(store.append_many, node.chunk_log, [data]).hash
    finally:
        side.close()


def held(store: Store) -> set[bytes]:
    """The addresses of all chunks."""
    side = Side(store)
    side.refresh()
    try:
        return {each.address for each in in_pages(side)}
    finally:
        side.close()


def chunk_entries(store: Store) -> int:
    """How many chunks are in the node's own log."""
    info = store.log(LogKey(store.author, 7_000))
    assert info is not None
    return int(info.entries) - 1


class Watched:
    """A server's events as they come."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self._came = trio.Event()

    def take(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        self._came.set()
        self._came = trio.Event()

    def of(self, name: str) -> list[Mapping[str, Any]]:
        return [each for each in self.events if each["event"] == name]

    async def wait(self, name: str, count: int = 1) -> Mapping[str, Any]:
        """The so-manyth event of a name."""
        with trio.fail_after(PATIENCE_S):
            while len(found := self.of(name)) < count:
                await self._came.wait()
        return found[count - 1]


async def until_held(server: SwarmServer, count: int) -> None:
    """Returns once a node holds so many chunks."""
    with trio.fail_after(PATIENCE_S):
        while server.chunks < count:
            await server.moved()


@asynccontextmanager
async def served(
    store: Store, *, light: bool = False, chunks_max: int = 1_000_000
) -> AsyncIterator[tuple[SwarmServer, str, Watched]]:
    """A node in this process: its server, where it listens, and its events."""
    watched = Watched()
    with trio.fail_after(PATIENCE_S):
        server = SwarmServer(store, light=light, chunks_max=chunks_max, observer=watched.take)
        async with server:
            yield server, await server.listen("127.0.0.1:0"), watched
