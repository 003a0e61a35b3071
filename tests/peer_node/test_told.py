"""What a call of a peer has returned, every later call of it knows of."""

from collections.abc import Callable

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from logstore import LogClosed, Store
from peer import Ingest, Ingested
from peer.api import NodeConfig, Peer
from peer.node.host.lane import Settle
from wire import LogKey

from .support import PATIENCE_S, Author, Client

CONFIG = NodeConfig(workers=0, poll_s=1e9)


class LateWriter:
    """The writing thread of a peer, whose work is told of only when a test lets it."""

    def __init__(self, peer: Peer) -> None:
        lane = peer.node.host._writer
        self._run_sync = lane._run_sync
        self.let = trio.Event()
        lane._run_sync = self._run

    async def _run(self, work: Callable[[], list[Settle]]) -> list[Settle]:
        outcomes = await self._run_sync(work)
        await self.let.wait()
        return outcomes


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
            writer.let.set()
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
            writer.let.set()
