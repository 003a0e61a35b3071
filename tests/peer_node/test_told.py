"""What a call of a peer has returned, every later call of it knows of."""

from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.lowlevel
from outcome import Outcome
from trio.testing import wait_all_tasks_blocked

from logstore import LogClosed, Store
from peer import Ingest, Ingested
from peer.api import NodeConfig, Peer
from peer.node.host.lane import Came, Settle
from wire import LogKey

from .support import PATIENCE_S, Author, Client

CONFIG = NodeConfig(workers=0, poll_s=1e9)


class LateWriter:
    """The writing thread of a peer, whose work is told of only when a test lets it."""

    def __init__(self, peer: Peer) -> None:
        lane = peer.node.host._writer
        self._start = lane._start
        self._late: list[Callable[[], object]] = []
        self._lets = False
        lane._start = self._start_late

    def let(self) -> None:
        """From now on outcomes are told of when they come; those that have come are."""
        self._lets = True
        for tell in self._late:
            tell()

    def _start_late(self, work: Callable[[], list[Settle]], came: Came) -> None:
        def came_late(result: Outcome[list[Settle]]) -> None:
            if self._lets:
                came(result)
            else:
                self._late.append(partial(came, result))

        self._start(work, came_late)


async def heights(peer: Peer) -> list[object]:
    state = await peer.status()
    assert isinstance(state["logs"], list)
    return [each["height"] for each in state["logs"]]


async def waited_for(peer: Peer, log: LogKey) -> None:
    assert (await peer.wait_for(log, 1)).height == 1


async def closed(peer: Peer, log: LogKey) -> None:
    with pytest.raises(LogClosed):
        await peer.wait_for(log, 2)


async def yielded(peer: Peer, log: LogKey) -> None:
    entries = peer.entries()
    assert (await anext(entries)).key == log
    await entries.aclose()


@pytest.mark.parametrize("call", [waited_for, closed, yielded])
async def test_a_call_returns_what_the_status_knows_of(
    call: Callable[[Peer, LogKey], object],
) -> None:
    author = Author()
    author.sign(1, b"the last one", is_end=True)
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer, trio.open_nursery() as nursery:
            await peer.follow(author.log)
            assert await heights(peer) == [0]
            writer, client, known = LateWriter(peer), Client(peer.node.host), list[object]()
            client.submit(Ingest(author.items(1, 1)))
            with trio.fail_after(PATIENCE_S):
                while store.log(author.log) is None:
                    await trio.lowlevel.checkpoint()

            async def ask() -> None:
                await call(peer, author.log)  # type: ignore[misc]
                known.append(await heights(peer))

            nursery.start_soon(ask)
            # It may read the store already, and nobody else was told of what is there.
            await wait_all_tasks_blocked(0.05)
            too_early = list(known)
            writer.let()
            await client.wait_for(Ingested)
        assert too_early == []
        assert known == [[]]


async def test_what_was_told_of_is_not_waited_for() -> None:
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer:
            await peer.append([b"one", b"two"])
            writer = LateWriter(peer)
            with trio.fail_after(PATIENCE_S):
                await yielded(peer, LogKey(store.author, 0))
            writer.let()
