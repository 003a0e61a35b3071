"""A node deletes what rules say, tells of it, and does not ask for what would go at once."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from logstore import (
    ALL,
    FULL,
    Follow,
    KeepRule,
    PolicyKind,
    Store,
    StoreFull,
    Subscription,
    System,
    Tidied,
    tidying,
)
from peer.api import NodeConfig, Peer, memory_link
from wire import LogKey

from .support import PATIENCE_S, synced

CONFIG = NodeConfig(workers=0, poll_s=0.01)
WITHIN_S = 5.0


class Clock(System):
    """A wall clock that a test sets."""

    now = 1_000_000_000

    def now_us(self) -> int:
        return self.now


@asynccontextmanager
async def running(store: Store, told: list[Mapping[str, object]]) -> AsyncIterator[Peer]:
    with trio.fail_after(10 * 60):
        async with Peer(store, config=CONFIG, observer=told.append) as peer:
            yield peer


def kept(told: list[Mapping[str, object]]) -> int:
    return sum(int(str(event["count"])) for event in told if event["event"] == "kept")


def states(store: Store, log: LogKey) -> list[str]:
    read = store.read(log, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False)
    return [str(entry.payload_state) for entry in read]


async def test_a_node_deletes_soon_after_a_rule_and_after_an_arrival(
    autojump_clock: MockClock,
) -> None:
    told: list[Mapping[str, object]] = []
    with Store.memory() as store:
        log = store.append([b"four"] * 10)[-1].key
        async with running(store, told) as peer:
            assert await peer.keep(log, KeepRule(last=4))
            assert peer.keeps == {log: KeepRule(last=4)}
            await trio.sleep(WITHIN_S)
            place = {"author": log.author.hex(), "log_id": 0}
            assert [event for event in told if event["event"] == "kept"] == [
                {"event": "kept", **place, "count": 6, "bytes": 24}
            ]
            await peer.append([b"more"] * 3)
            await trio.sleep(WITHIN_S)
            assert kept(told) == 9
            assert states(store, log) == ["deleted"] * 9 + ["present"] * 4


async def test_it_obeys_what_another_process_says(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    told: list[Mapping[str, object]] = []
    with Store.create(tmp_path / "store") as store, Store.open(tmp_path / "store") as other:
        log = store.append([b"own"] * 5)[-1].key
        async with running(store, told):
            await trio.to_thread.run_sync(other.keep, log, KeepRule(last=1))
            await trio.sleep(WITHIN_S)
            assert kept(told) == 4
            await trio.to_thread.run_sync(other.append, [b"own"] * 2)
            await trio.sleep(WITHIN_S)
            assert kept(told) == 6


async def test_ages_are_looked_at_once_a_minute(autojump_clock: MockClock) -> None:
    told: list[Mapping[str, object]] = []
    clock = Clock()
    with Store.memory(system=clock) as store:
        log = store.append([b"own"] * 5)[-1].key
        async with running(store, told) as peer:
            await peer.keep(log, KeepRule(age_s=3600))
            await trio.sleep(WITHIN_S)
            clock.now += 3601 * 1_000_000
            await trio.sleep(WITHIN_S)
            assert kept(told) == 0
            await trio.sleep(60)
            assert kept(told) == 5


async def test_it_tries_again_where_the_disk_fails(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Mapping[str, object]] = []
    act = tidying.Keeper.act
    failures = 2

    def fail(keeper: tidying.Keeper) -> list[Tidied]:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreFull("the disk is full", "here", "make room")
        return act(keeper)

    monkeypatch.setattr(tidying.Keeper, "act", fail)
    with Store.memory() as store:
        log = store.append([b"own"] * 5)[-1].key
        async with running(store, told) as peer:
            await peer.keep(log, KeepRule(last=1))
            await trio.sleep(20)
            assert (kept(told), failures) == (4, 0)


async def test_without_rules_nothing_is_looked_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying.Keeper, "look", None)
    with Store.memory() as store:
        async with running(store, []) as peer:
            await peer.append([b"own"] * 5)
            await peer.follow(ALL)
            await trio.sleep(120)


async def test_a_peer_tidies_when_it_is_told_to(autojump_clock: MockClock) -> None:
    with Store.memory() as store:
        logs = [store.append([b"own"] * 5, log_id=number)[-1].key for number in (0, 1)]
        for log in logs:
            store.keep(log, KeepRule(last=2))
        async with running(store, []) as peer:
            planned = await peer.tidy(dry_run=True)
            assert [(each.key, each.count) for each in planned] == [(log, 3) for log in logs]
            assert await peer.tidy(logs[1]) == planned[1:]
            assert await peer.tidy() == planned[:1]
            assert await peer.keep(logs[0], None)
            assert not await peer.keep(logs[0], None)
            with pytest.raises(ValueError, match="32 bytes"):
                await peer.keep(b"short", KeepRule(last=1))
            with pytest.raises(ValueError, match="a rule has a limit"):
                await peer.keep(logs[0], KeepRule())


@pytest.mark.parametrize("by", ["log", "author", "all"])
async def test_what_a_rule_would_delete_at_once_is_not_asked_for(by: str) -> None:
    with Store.memory() as giver, Store.memory() as taker:
        log = giver.append([b"payload"] * 200)[-1].key
        targets: dict[str, Follow] = {"log": log, "author": log.author, "all": ALL}
        taker.follow(log)
        taker.keep(targets[by], KeepRule(last=5))
        for count in (200, 300):
            with trio.fail_after(PATIENCE_S):
                assert await synced(giver, taker) is None
            found = states(taker, log)
            assert len(found) == count
            assert found[-5:] == ["present"] * 5
            assert found[:195] == ["missing"] * 195
            assert "present" not in found[:-5]
            assert taker.shortfall(log, FULL) == (0, 0)
            giver.append([b"payload"] * 100)


async def test_too_large_a_payload_is_not_asked_for() -> None:
    with Store.memory() as giver, Store.memory() as taker:
        log = giver.append([b"small", b"much too large", b"small"])[-1].key
        taker.follow(log)
        taker.keep(log, KeepRule(bytes=10))
        with trio.fail_after(PATIENCE_S):
            assert await synced(giver, taker) is None
        assert states(taker, log) == ["present", "missing", "present"]


async def test_the_latest_are_all_that_is_kept_of_each_sync() -> None:
    with Store.memory() as giver, Store.memory() as taker:
        log = giver.append([b"payload"] * 20)[-1].key
        taker.follow(log, Subscription(PolicyKind.LATEST, count=5))
        for _ in range(3):
            with trio.fail_after(PATIENCE_S):
                assert await synced(giver, taker) is None
            assert states(taker, log).count("present") == 5
            giver.append([b"payload"] * 30)


async def test_the_latest_are_all_that_is_kept_of_a_log_that_goes_on(
    autojump_clock: MockClock,
) -> None:
    told: list[Mapping[str, object]] = []
    with Store.memory() as giver, Store.memory() as taker:
        async with running(giver, []) as one, running(taker, told) as other:
            here, there = memory_link()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(one.serve_stream, here, proactive=False))
                nursery.start_soon(partial(other.serve_stream, there, proactive=True))
                await other.follow(one.store.author, Subscription(PolicyKind.LATEST, count=5))
                for _ in range(5):
                    appended = await one.append([b"payload"] * 10)
                    await other.wait_for(appended[-1].key, appended[-1].seq)
                    await trio.sleep(WITHIN_S)
                    assert states(taker, appended[-1].key).count("present") == 5
                nursery.cancel_scope.cancel()
    assert kept(told) > 0


async def test_what_was_deleted_is_fetched_and_goes_again(autojump_clock: MockClock) -> None:
    told: list[Mapping[str, object]] = []
    with Store.memory() as giver, Store.memory() as taker:
        log = giver.append([b"payload"] * 9)[-1].key
        taker.follow(log)
        async with running(giver, []) as one, running(taker, told) as other:
            here, there = memory_link()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(one.serve_stream, here, proactive=False))
                nursery.start_soon(partial(other.serve_stream, there, proactive=True))
                await other.wait_for(log, 9)
                await other.keep(log, KeepRule(last=2))
                await trio.sleep(WITHIN_S)
                assert kept(told) == 7
                await other.fetch(log, 3, 4)
                assert states(taker, log)[2:4] == ["present"] * 2
                await trio.sleep(WITHIN_S)
                assert kept(told) == 9
                await trio.sleep(120)
                assert states(taker, log) == ["deleted"] * 7 + ["present"] * 2
                nursery.cancel_scope.cancel()


async def test_who_only_fetches_deletes_nothing() -> None:
    with Store.memory() as store:
        log = store.append([b"own"] * 5)[-1].key
        store.keep(log, KeepRule(last=1))
        config = NodeConfig(workers=0, lock=False, fetches_only=True)
        async with Peer(store, config=config):
            pass
        assert states(store, log) == ["present"] * 5
