"""A peer inside asyncio: the node in its thread, the caller in his loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from logstore import Store, StoredEntry, StoreLocked
from peer.aio import Peer
from peer.api import NodeConfig
from peer.bridge import THREAD_NAME
from wire import LogKey

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=0.001)
NOBODYS = LogKey(bytes(32), 0)
OUTSIDE = r"^a Peer runs inside `with Peer\(\.\.\.\)` or `async with Peer\(\.\.\.\)`$"


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """Runs it in asyncio, with a limit, and sees that no thread is left."""

    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main()

    asyncio.run(limited())
    assert threads() == []


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD_NAME]


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - true of another thread
        await asyncio.sleep(0.001)


async def take(peer: Peer, count: int, after: int = 0) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    stream = peer.entries(after=after)
    async for entry in stream:
        found.append(entry)
        if len(found) == count:
            break
    await stream.aclose()
    return found


def test_entries_reach_a_follower_and_events_come_in_the_loop() -> None:
    where: set[threading.Thread] = set()
    events: list[object] = []

    def observe(event: Mapping[str, object]) -> None:
        where.add(threading.current_thread())
        events.append(event["event"])

    async def main() -> None:
        with Store.memory() as mine, Store.memory() as yours:
            async with (
                Peer(mine, config=CONFIG) as here,
                Peer(yours, config=CONFIG, observer=observe) as there,
            ):
                assert [each.daemon for each in threads()] == [True, True]
                assert await there.follow(mine.author)
                assert there.subscriptions.keys() == {mine.author}
                there.connect(await here.listen())
                await here.append([b"%d" % number for number in range(600)])
                found = await take(there, 600)
                assert [entry.payload for entry in found] == [b"%d" % n for n in range(600)]
                assert len(there.connections()) == 1
                await here.append([b"more"])
                assert [each.seq for each in await take(there, 1, after=found[-1].ingest)] == [601]

    run(main)
    assert where == {threading.current_thread()}
    assert events[0] == "connected"
    assert events[-1] == "disconnected"


def test_a_cancelled_task_cancels_its_call_and_waits_for_its_end() -> None:
    async def main() -> None:
        with Store.memory() as store:
            async with Peer(store, config=CONFIG) as peer:
                fetching = asyncio.create_task(peer.fetch(NOBODYS, 1))
                await until(store.wants)
                fetching.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await fetching
                assert store.wants() == {}
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await peer.wait_for(NOBODYS, 1)
                assert (await peer.statistics()).entries == 0

    run(main)


def test_what_still_waits_where_the_block_ends_raises() -> None:
    async def main() -> None:
        with Store.memory() as store:
            peer = Peer(store, config=CONFIG)
            with pytest.raises(RuntimeError, match=OUTSIDE):
                await peer.status()
            async with peer:
                fetching = asyncio.create_task(peer.fetch(NOBODYS, 1))
                taking = asyncio.create_task(take(peer, 1))
                await until(store.wants)
            for task in (fetching, taking):
                with pytest.raises(RuntimeError, match=OUTSIDE):
                    await task
            assert store.wants() == {}
            with pytest.raises(RuntimeError, match=OUTSIDE):
                peer.connections()
            with pytest.raises(RuntimeError, match="entered once"):
                await peer.__aenter__()

    run(main)


def test_leaving_an_iteration_ends_the_reading() -> None:
    async def main() -> None:
        with Store.memory() as store:
            store.append([b"x"] * 1000)
            async with Peer(store, config=CONFIG) as peer:
                watchers = peer._peer.node.host.watchers
                before = len(watchers)
                stream = peer.entries()
                assert (await anext(stream)).seq == 1
                assert len(watchers) == before + 1
                await stream.aclose()
                assert len(watchers) == before
                async for _ in peer.entries():
                    break
                await until(lambda: len(watchers) == before)

    run(main)


def test_other_tasks_run_beside_an_iteration_that_never_waits() -> None:
    async def main() -> None:
        with Store.memory() as store:
            store.append([b"x"] * 300)
            async with Peer(store, config=CONFIG) as peer:
                turns = 0

                async def count() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0)

                counting = asyncio.create_task(count())
                stream: Any = peer.entries()
                await anext(stream)
                await until(lambda: len(stream.ag_frame.f_locals["ahead"]._items) >= 255)
                turns = 0
                for _ in range(128):
                    await anext(stream)
                assert turns >= 2
                counting.cancel()
                await stream.aclose()

    run(main)


def test_a_peer_belongs_to_its_loop() -> None:
    async def main() -> None:
        with Store.memory() as store:
            async with Peer(store, config=CONFIG) as peer:

                def elsewhere() -> None:
                    with pytest.raises(RuntimeError, match="belongs to the event loop"):
                        asyncio.run(peer.status())

                await asyncio.to_thread(elsewhere)

    run(main)


def test_what_an_observer_raises_ends_the_peer() -> None:
    def refuse(event: Mapping[str, object]) -> None:
        raise ValueError(event["event"])

    async def main() -> None:
        with Store.memory() as store:
            peer = await Peer(store, config=CONFIG, observer=refuse).__aenter__()
            await peer.listen()
            with pytest.raises(RuntimeError, match=OUTSIDE):
                await peer.wait_for(NOBODYS, 1)
            await until(lambda: not peer._bridge.is_running)
            with pytest.raises(RuntimeError, match=OUTSIDE) as caught:
                await peer.status()
            assert isinstance(caught.value.__cause__, ValueError)
            with pytest.raises(ValueError, match=r"^listening$"):
                await peer.__aexit__(None, None, None)

    run(main)


def test_what_entering_raises_comes_out(tmp_path: Path) -> None:
    async def main() -> None:
        with Store.create(tmp_path / "s") as one, Store.open(tmp_path / "s") as other:
            async with Peer(one, config=CONFIG):
                with pytest.raises(StoreLocked):
                    await Peer(other, config=CONFIG).__aenter__()
            async with Peer(other, config=CONFIG) as peer:
                with pytest.raises(ValueError, match="port"):
                    peer.connect("host:99999")
                with pytest.raises(ValueError, match="seq=0"):
                    await peer.wait_for(NOBODYS, 0)

    run(main)


def test_who_is_cancelled_while_entering_leaves_no_thread() -> None:
    async def main() -> None:
        with Store.memory() as store:
            entering = asyncio.create_task(Peer(store, config=CONFIG).__aenter__())
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            assert threads() == []

    run(main)
