"""A one-time sync whose disk takes nothing ends soon, and does not say that all is well."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from logstore import ALL, Store, StoreFull, StoreLocked
from logstore.seldom import REASONS_MAX
from peer.api import NodeConfig, Peer, SyncError, memory_link
from peer.node import StatusFile, read_status, serving_state
from peer.node.node import LOCK_ATTEMPTS

from .support import synced

CONFIG = NodeConfig(workers=0, poll_s=1.0)


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


@pytest.mark.parametrize("who", ["giver", "taker"])
async def test_a_sync_of_what_is_damaged_does_not_say_that_all_is_well(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, who: str
) -> None:
    """Whichever side it is that syncs; the other one, a node, says what it could not read.

    Nothing of the damaged block leaves, nor when the payload is gone on with from its middle.
    """
    reasons: list[str] = []

    def observe(event: Mapping[str, object]) -> None:
        if event["event"] == "storage_failed":
            reasons.append(str(event["reason"]))

    with Store.create(tmp_path / "giver") as giver, Store.memory() as taker:
        giver.append([b"z" * 3_000_000])
        [payload] = [each for each in (tmp_path / "giver/payloads").rglob("*") if each.is_file()]
        payload.write_bytes(b"z" * 2_999_999 + b"y")
        taker.follow(ALL)
        here, there = memory_link()
        async with (
            Peer(giver, config=CONFIG, observer=observe) as one,
            Peer(taker, config=CONFIG) as other,
            trio.open_nursery() as nursery,
        ):
            node, syncing = (other, one) if who == "giver" else (one, other)
            nursery.start_soon(partial(node.serve_stream, here, proactive=False))
            with pytest.raises(SyncError) as caught:
                await syncing.sync(there)
            nursery.cancel_scope.cancel()
        [part] = [each for each in taker._files.root.rglob("*") if each.is_file()]
        assert set(part.read_bytes()) == {ord("z")}
        assert part.stat().st_size >= 1 << 20
    what = "the payload is damaged" if who == "giver" else "the other side broke off what it sent"
    assert what in str(caught.value)
    assert "the payload is damaged" in reasons[0]


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


def test_to_ask_whether_a_node_runs_takes_no_right_to_write(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("full") / "store"
    Store.create(folder).close()
    with Store.open(folder, readonly=True) as store:
        assert serving_state(store) is None
        assert read_status(folder) is None
    assert not (folder / "node.lock").exists()


async def test_a_node_says_that_its_disk_is_full_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    events: list[object] = []
    with Store.memory() as giver, Store.memory() as taker:
        giver.append([b"one"])
        taker.follow(ALL)
        monkeypatch.setattr(taker, "put_many", failing(1000, taker.put_many))
        here, there = memory_link()

        def observe(event: Mapping[str, object]) -> None:
            if event["event"] == "storage_failed":
                events.append(event["reason"])

        async with (
            Peer(giver, config=CONFIG) as one,
            Peer(taker, config=CONFIG, observer=observe) as other,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(partial(one.serve_stream, here, proactive=False))
            nursery.start_soon(partial(other.serve_stream, there, proactive=True, name="giver"))
            await trio.sleep(30)
            assert events == ["the disk is full: here; free space"]
            said = [each.text for each in await other.why("giver") if each.wrong]
            assert "not all that came could be kept: the disk is full: here; free space" in said
            await trio.sleep(100)
            assert 2 <= len(events) <= 3
            nursery.cancel_scope.cancel()


async def test_reasons_that_take_turns_are_told_once_a_minute_each_and_only_some_of_many(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[object] = []

    def observe(event: Mapping[str, object]) -> None:
        told.append(event["reason"])

    with Store.memory() as store:
        async with Peer(store, config=CONFIG, observer=observe) as peer:
            failed = peer.node._roster._storage_failed
            for _ in range(50):
                for reason in ("one", "two", "three"):
                    failed(reason)
                await trio.sleep(1)
            assert told == ["one", "two", "three"]
            await trio.sleep(10)
            failed("two")
            assert told[3:] == ["two"]
            for number in range(100):
                failed(f"entry {number}")
            assert len(told) == 3 + REASONS_MAX


def test_the_state_is_written_where_it_stands_if_there_is_room_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = StatusFile(tmp_path, None)  # type: ignore[arg-type]
    written._write({"pid": 1, "since": "long ago"})
    write_text = Path.write_text

    def full(path: Path, text: str, encoding: str) -> int:
        if path.suffix == ".tmp":
            raise OSError(28, "No space left on device")
        return write_text(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", full)
    written._write({"pid": 2})
    assert read_status(tmp_path) == {"pid": 2}
