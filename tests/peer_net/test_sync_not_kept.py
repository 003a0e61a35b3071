"""A one-time sync whose disk takes nothing ends soon, and does not say that all is well."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from logstore import ALL, Store, StoreFull, StoreLocked
from peer.api import NodeConfig, Peer, SyncError, memory_link
from peer.net import read_status, serving_state
from peer.net.node import LOCK_ATTEMPTS

CONFIG = NodeConfig(workers=0, poll_s=0.001)


def failing(times: int, then: Callable[..., object]) -> Callable[..., object]:
    """A full disk; after so many attempts there is room again."""
    attempts = 0

    def put_many(*arguments: object, **options: object) -> object:
        nonlocal attempts
        attempts += 1
        if attempts <= times:
            raise StoreFull("the disk is full", "here", "free space")
        return then(*arguments, **options)

    return put_many


async def synced(giver: Store, taker: Store) -> SyncError | None:
    """How a sync failed, None if it did not."""
    failure = None
    here, there = memory_link()
    async with (
        Peer(giver, config=CONFIG) as one,
        Peer(taker, config=CONFIG) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: one.serve_stream(here, proactive=False))
        try:
            await other.sync(there)
        except SyncError as error:
            failure = error
        nursery.cancel_scope.cancel()
    return failure


async def test_a_disk_that_stays_full_ends_a_sync_within_seconds(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    with Store.memory() as giver, Store.memory() as taker:
        giver.append([b"one"])
        taker.follow(ALL)
        monkeypatch.setattr(taker, "put_many", failing(1000, taker.put_many))
        started = trio.current_time()
        failure = await synced(giver, taker)
        assert "not all that came could be kept: the disk is full: here; free" in str(failure)
        assert trio.current_time() - started < 15


async def test_a_disk_that_was_full_for_a_moment_is_told_and_what_came_later_is_kept(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    with Store.memory() as giver, Store.memory() as taker:
        giver.append([b"one"])
        taker.follow(ALL)
        monkeypatch.setattr(taker, "put_many", failing(1, taker.put_many))
        assert "not all that came could be kept" in str(await synced(giver, taker))
        assert [info.height for info in taker.logs()] == [1]
        assert await synced(giver, taker) is None


async def test_who_asks_whether_a_node_runs_keeps_none_from_starting(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    with Store.memory() as store:
        lock_node, refusals = store.lock_node, iter(range(LOCK_ATTEMPTS - 1))

        def locked_for_a_moment() -> object:
            for _ in refusals:
                raise StoreLocked("another node is serving this store", "here", "end it")
            return lock_node()

        monkeypatch.setattr(store, "lock_node", locked_for_a_moment)
        async with Peer(store, config=CONFIG) as peer:
            assert peer.connections() == []
    assert list(refusals) == []


def test_on_a_full_disk_it_can_still_be_asked_whether_a_node_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("full") / "store"
    with Store.create(folder) as store:

        def full() -> object:
            raise StoreFull("the disk is full", "node.lock", "free space")

        monkeypatch.setattr(store, "lock_node", full)
        assert serving_state(store) is None
        assert read_status(folder) is None
