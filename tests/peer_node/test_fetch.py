"""`Peer.fetch` waits for what the store wants, and takes it back; peers are not needed for that."""

from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import trio
import trio.lowlevel

from logstore import LogClosed, NewEntry, PolicyKind, Store, Subscription
from peer.api import NodeConfig, Peer

from .support import PATIENCE_S, Author

CONFIG = NodeConfig(workers=0, poll_s=0.001)


def author_of(count: int) -> Author:
    author = Author(1)
    for seq in range(1, count + 1):
        author.sign(seq, b"%d" % seq)
    return author


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    with Store.memory() as store, trio.fail_after(PATIENCE_S):
        async with Peer(store, config=CONFIG) as running:
            yield running


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


async def put(peer: Peer, author: Author, first: int, last: int, *, payloads: bool = True) -> None:
    entries = [
        NewEntry(seq, author.encoded[seq], author.hash(seq), b"%d" % seq if payloads else None)
        for seq in range(first, last + 1)
    ]
    work = partial(peer.store.put_entries, author.log, entries, source="test")
    await peer.node.host.call(work)


async def test_a_fetch_returns_once_entries_and_payloads_are_held(peer: Peer) -> None:
    author, returned = author_of(5), []

    async def fetch(first: int, last: int | None) -> None:
        await peer.fetch(author.log, first, last)
        returned.append((first, last))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch, 2, 3)
        nursery.start_soon(fetch, 4, None)
        await until(lambda: peer.store.wants() == {author.log: [(2, 3), (4, 4)]})
        await put(peer, author, 1, 2)
        await put(peer, author, 3, 5, payloads=False)
        assert peer.store.wants() == {author.log: [(2, 3), (4, 4)]}
        await put(peer, author, 4, 4)
        await until(lambda: returned == [(4, None)])
        await put(peer, author, 3, 3)
    assert returned == [(4, None), (2, 3)]
    assert peer.store.wants() == {}
    await peer.fetch(author.log, 1, 4)


async def test_a_fetch_that_is_cancelled_asks_no_more(peer: Peer) -> None:
    author = author_of(1)
    with trio.move_on_after(0.05) as scope:
        await peer.fetch(author.log, 1)
    assert scope.cancelled_caught
    assert peer.store.wants() == {}
    assert peer.node.interests.fetches == {}


async def test_two_that_fetch_the_same_do_not_end_each_other(peer: Peer) -> None:
    author = author_of(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.fetch, author.log, 1)
        await until(lambda: peer.node.is_wanted(author.log, 1, 1))
        with trio.move_on_after(0.05):
            await peer.fetch(author.log, 1)
        await until(lambda: peer.node.is_wanted(author.log, 1, 1))
        assert peer.store.wants() == {author.log: [(1, 1)]}
        await put(peer, author, 1, 1)
    assert peer.store.wants() == {}


async def test_what_was_deleted_is_fetched_again(peer: Peer) -> None:
    author = author_of(2)
    await put(peer, author, 1, 2)
    await peer.node.host.call(lambda: peer.store.drop(author.log, 2, 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.fetch, author.log, 1, 2)
        await until(lambda: peer.store.missing_payloads(author.log, limit=9) == [2])
        await put(peer, author, 2, 2)
    assert peer.store.wants() == {}


async def test_nothing_is_fetched_behind_an_end_and_no_range_that_is_none(peer: Peer) -> None:
    peer.store.append([b"one"], end_of_log=True)
    [own] = [info.key for info in peer.store.logs()]
    with pytest.raises(LogClosed):
        await peer.fetch(own, 2)
    with pytest.raises(ValueError, match="no range"):
        await peer.fetch(own, 3, 2)
    await peer.fetch(own, 1, 9)


async def test_what_is_wanted_of_what_is_followed(peer: Peer) -> None:
    log, latest = author_of(1).log, Subscription(PolicyKind.LATEST, count=3)
    assert await peer.follow(log, latest)
    assert not await peer.follow(log)
    assert peer.subscriptions == {log: latest}
    assert await peer.follow(log, Subscription(max_bytes=10))
    assert peer.store.subscriptions() == {log: Subscription(max_bytes=10)}
