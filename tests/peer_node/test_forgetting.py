"""A log is forgotten beside a node that gives it to others, and everything else goes on."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio

from logstore import NewEntry, Store
from peer.api import NodeConfig, Peer
from wire import LogKey

from .support import PATIENCE_S, Author

# ruff: noqa: ASYNC110 - threads bring about what is waited for

CONFIG = NodeConfig(workers=0, poll_s=0.001)
COUNT = 3_000
LARGE = bytes(1 << 20)


@asynccontextmanager
async def running(store: Store, told: list[Mapping[str, object]]) -> AsyncIterator[Peer]:
    with trio.fail_after(PATIENCE_S):
        async with Peer(store, config=CONFIG, observer=told.append) as peer:
            yield peer


def fill(store: Store, author: Author, count: int, payload: bytes = b"payload") -> None:
    new = []
    for seq in range(1, count + 1):
        encoded = author.sign(seq, payload)
        new.append(NewEntry(seq, encoded, author.hash(seq), payload))
    store.put_entries(author.log, new, source="a")


def held(store: Store, log: LogKey) -> int:
    info = store.log(log)
    return 0 if info is None else info.height


async def until(store: Store, log: LogKey, height: int) -> None:
    while held(store, log) < height:
        await trio.sleep(0.005)


@pytest.mark.parametrize(("count", "payload"), [(COUNT, b"payload"), (40, LARGE)])
async def test_a_log_is_forgotten_while_it_is_given(count: int, payload: bytes) -> None:
    gone, stays = Author(1), Author(2)
    given: list[Mapping[str, object]] = []
    taken: list[Mapping[str, object]] = []
    with Store.memory() as giver, Store.memory() as taker:
        fill(giver, gone, count, payload)
        fill(giver, stays, 10)
        own = giver.append([b"own"])[-1].key
        for log in (gone.log, stays.log, own):
            taker.follow(log)
        async with running(giver, given) as giving, running(taker, taken) as taking:
            taking.connect(await giving.listen("127.0.0.1:0"))
            await until(taker, gone.log, 1)
            # As another process does it: the node is told nothing.
            await trio.to_thread.run_sync(giver.forget, gone.log)
            assert giver.log(gone.log) is None
            await giving.append([b"more"] * 5)
            await until(taker, own, 6)
            await until(taker, stays.log, 10)
            while not giving.connections():
                await trio.sleep(0.005)
            # What comes again is given again.
            had = held(taker, gone.log)
            await trio.to_thread.run_sync(fill, giver, Author(1), count, payload)
            await until(taker, gone.log, count)
            assert had < count or payload is not LARGE
        for event in (*given, *taken):
            assert event["event"] not in {"violation", "internal_error", "storage_failed"}, event
        assert [found for found in giver.verify() if hasattr(found, "where")] == []
        assert giver.log(gone.log) is not None


async def test_one_that_nobody_is_taking_is_offered_no_more() -> None:
    gone = Author(1)
    with Store.memory() as giver, Store.memory() as taker:
        fill(giver, gone, 5)
        async with running(giver, []) as giving, running(taker, []) as taking:
            taking.connect(await giving.listen("127.0.0.1:0"))
            while not taking.connections():
                await trio.sleep(0.005)
            await trio.to_thread.run_sync(giver.forget, gone.log)
            interests = giving.node._book.current.interests
            assert interests.held is not None
            while gone.log in interests.held:
                await trio.sleep(0.005)
            await taking.follow(gone.log)
            own = giver.append([b"x"])[-1].key
            await taking.follow(own)
            await until(taker, own, 1)
            assert held(taker, gone.log) == 0
