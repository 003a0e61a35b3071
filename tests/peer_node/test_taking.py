"""What arrives, as a program takes it: with payloads by type, to an end, and by cursors."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from logstore import CursorBusy, CursorMismatch, EntryWithPayload, PayloadTooLarge, Store
from peer import aio, blocking
from peer.api import NodeConfig, Peer
from wire import LogKey

CONFIG = NodeConfig(workers=0, poll_s=0.001)
PATIENCE_S = 30
LARGE = bytes(range(256)) * 1024
TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.memory() as made:
        yield made


# Payloads


async def test_a_payload_is_at_hand_wherever_it_is_stored(store: Store) -> None:
    store.append([b"small", LARGE, b""])
    async with Peer(store, config=CONFIG) as peer:
        found = [entry async for entry in peer.entries(idle_s=0)]
    assert [entry.payload for entry in found] == [b"small", LARGE, b""]
    assert all(type(entry) is EntryWithPayload for entry in found)


async def test_a_payload_above_the_limit_raises_where_it_is_taken_and_not_before(
    store: Store,
) -> None:
    store.append([b"wxyz", LARGE, b"123"])
    async with Peer(store, config=CONFIG) as peer:
        found = [entry async for entry in peer.entries(idle_s=0, payload_bytes_max=3)]
        assert [entry.seq for entry in found] == [1, 2, 3]
        for entry in found[:2]:
            with pytest.raises(PayloadTooLarge, match=r"payload_bytes_max: .*Store\.open_payload"):
                _ = entry.payload
        assert found[2].payload == b"123"
        assert "wxyz" not in repr(found[0])
        [one, *_] = [entry async for entry in peer.entries(idle_s=0, payload_bytes_max=4)]
        assert one.payload == b"wxyz"


async def test_a_payload_that_is_deleted_is_passed_over(store: Store) -> None:
    store.append([b"one", LARGE, b"three"])
    store.drop(LogKey(store.author, 0), 2, 2)
    async with Peer(store, config=CONFIG) as peer:
        assert [entry.seq async for entry in peer.entries(idle_s=0)] == [1, 3]
        without = [entry async for entry in peer.entries(idle_s=0, with_payload=False)]
    # What was deleted arrives once more, as that.
    assert [(entry.seq, entry.payload) for entry in without] == [
        (1, b"one"),
        (3, b"three"),
        (2, None),
    ]


def test_a_store_reads_the_same(store: Store) -> None:
    [first, *_] = store.append([b"1", LARGE, b"3", b"4", LARGE])
    store.drop(first.key, 3, 4)

    def read(start: int, entries: int, size: int, end: int | None = None) -> list[int]:
        found = store.read(first.key, start, entries_max=entries, bytes_max=size, end=end)
        assert all(entry.payload == (LARGE if entry.seq in (2, 5) else b"1") for entry in found)
        return [entry.seq for entry in found]

    assert read(1, 10, 1 << 20) == [1, 2, 5]
    assert read(1, 2, 1 << 20) == [1, 2]
    assert read(3, 10, 1 << 20) == [5]
    assert read(3, 10, 1 << 20, end=4) == []
    assert read(6, 10, 1 << 20) == []
    # A payload counts wherever it is, and one comes whatever its size.
    assert read(1, 10, len(LARGE)) == [1]
    assert read(2, 10, 0) == [2]
    large = store.read(first.key, 2, entries_max=1, bytes_max=1, payload_bytes_max=len(LARGE) - 1)
    with pytest.raises(PayloadTooLarge):
        _ = large[0].payload


def test_the_types_are_what_a_program_needs(tmp_path: Path) -> None:
    """Bytes without asking first, and in a notebook as well."""
    program = tmp_path / "program.py"
    program.write_text(
        "from typing import assert_type\n"
        "from logstore import EntryWithPayload, Store, StoredEntry\n"
        "from peer import aio, api, blocking\n"
        "from wire import LogKey\n"
        "async def main(store: Store, key: LogKey, one: api.Peer, two: aio.Peer) -> None:\n"
        "    async for entry in one.entries(key, cursor='x', idle_s=1):\n"
        "        assert_type(entry, EntryWithPayload)\n"
        "        assert_type(entry.payload, bytes)\n"
        "    async for other in two.entries(with_payload=True):\n"
        "        assert_type(other.payload, bytes)\n"
        "    async for bare in two.entries(with_payload=False):\n"
        "        assert_type(bare, StoredEntry)\n"
        "        assert_type(bare.payload, bytes | None)\n"
        "    async for plain in one.entries('ben', with_payload=False):\n"
        "        assert_type(plain, StoredEntry)\n"
        "def blocks(store: Store, peer: blocking.Peer) -> None:\n"
        "    for entry in peer.entries():\n"
        "        assert_type(entry.payload, bytes)\n"
        "    for bare in peer.entries(with_payload=False):\n"
        "        assert_type(bare.payload, bytes | None)\n"
        "    found = store.read('ben', 1, entries_max=1, bytes_max=1)\n"
        "    assert_type(found, list[EntryWithPayload])\n"
        "    rows = store.read('0', 1, entries_max=1, bytes_max=1, with_payload=False)\n"
        "    assert_type(rows, list[StoredEntry])\n"
        "    assert_type(store.resolve('ben'), LogKey | bytes)\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(program)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# Ends


async def test_what_is_held_ends_at_once_with_what_another_process_has_just_written(
    store: Store,
) -> None:
    async with Peer(store, config=CONFIG) as peer:
        assert [entry async for entry in peer.entries(idle_s=0)] == []
        store.append([b"one"] * 300)
        assert len([entry async for entry in peer.entries(idle_s=0)]) == 300
        assert [entry async for entry in peer.entries(bytes(32), idle_s=0)] == []


async def test_entries_end_when_nothing_came_for_so_long(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    """Whatever the program does with one, and whatever comes that it has not asked for."""
    store.append([b"one"])
    taken: list[int] = []
    async with Peer(store, config=CONFIG) as peer, trio.open_nursery() as nursery:

        async def take() -> None:
            async for entry in peer.entries("0", idle_s=2):
                taken.append(entry.seq)
                await trio.sleep(10)

        nursery.start_soon(take)
        await trio.sleep(11)
        await peer.append([b"two"])
        await peer.append([b"of another log"], log_id=1)
        await trio.sleep(10)
        before = trio.current_time()
    assert taken == [1, 2]
    # A second or so less: the node looks for what comes several times a second.
    assert 1 <= trio.current_time() - before <= 3


# Cursors


async def test_a_cursor_goes_on_behind_what_was_acknowledged(store: Store) -> None:
    store.append([b"%d" % number for number in range(1, 6)])
    for due in (1, 3, 5):
        async with Peer(store, config=CONFIG) as peer:
            found = []
            async for entry in peer.entries(cursor="mine", idle_s=0):
                found.append(entry.seq)
                if entry.seq == due + 1:
                    await peer.ack(entry)
            assert found == list(range(due, 6))
    [info] = store.cursors.all()
    assert (info.name, info.target, info.position) == ("mine", None, 4)


async def test_the_last_one_is_acknowledged_behind_the_loop(store: Store) -> None:
    store.append([b"one", b"two"])
    async with Peer(store, config=CONFIG) as peer:
        found = [entry async for entry in peer.entries("0", cursor="mine", idle_s=0)]
        await peer.ack(found[-1])
        # Never back.
        await peer.ack(found[0])
        assert [each.position for each in store.cursors.all()] == [found[-1].ingest]
        with (
            store.cursors.reading("mine", LogKey(store.author, 0)),
            pytest.raises(CursorBusy),
        ):
            await peer.ack(found[-1])


async def test_a_cursor_has_one_reader_at_a_time_and_reads_one_thing(store: Store) -> None:
    store.append([b"one"])
    async with Peer(store, config=CONFIG) as peer:
        reading = peer.entries(cursor="mine")
        entry = await anext(reading)
        with pytest.raises(CursorBusy):
            await anext(peer.entries(cursor="mine"))
        other = peer.entries("0", cursor="other")
        await anext(other)
        with pytest.raises(ValueError, match="say which one"):
            await peer.ack(entry)
        await peer.ack(entry, cursor="other")
        assert [each.position for each in store.cursors.all()] == [0, entry.ingest]
        await other.aclose()
        await peer.ack(entry)
        assert [each.position for each in store.cursors.all()] == [entry.ingest] * 2
        await reading.aclose()
        with pytest.raises(CursorMismatch):
            await anext(peer.entries(cursor="other"))
        again = peer.entries(cursor="mine", idle_s=0)
        assert [each async for each in again] == []


async def test_what_is_no_reading_is_not_acknowledged(store: Store) -> None:
    store.append([b"one"])
    async with Peer(store, config=CONFIG) as peer:
        [entry] = [each async for each in peer.entries(idle_s=0)]
        with pytest.raises(ValueError, match="nothing is read by a cursor"):
            await peer.ack(entry)
        with pytest.raises(ValueError, match="cursor='mine': nothing was read"):
            await peer.ack(entry, cursor="mine")
        with pytest.raises(TypeError, match="entry=1 is an int"):
            await peer.ack(1)  # type: ignore[arg-type]
        _ = [each async for each in peer.entries("/5", cursor="five", idle_s=0)]
        with pytest.raises(ValueError, match=r"is of .*/0, and five reads .*/5"):
            await peer.ack(entry)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cursor": "x", "after": 0}, ValueError, "after=0: the cursor says where to begin"),
        ({"cursor": "x", "after": None}, ValueError, "after=None: the cursor says"),
        ({"cursor": 5}, TypeError, "cursor=5 is an int"),
        ({"cursor": "a b"}, ValueError, "a b"),
        ({"cursor": "x", "target": bytes(32)}, ValueError, "one log or all, not an author's"),
        ({"idle_s": -1}, ValueError, "idle_s=-1: "),
        ({"idle_s": "1"}, TypeError, "idle_s='1' is a str"),
        ({"payload_bytes_max": None}, TypeError, "payload_bytes_max=None"),
    ],
)
async def test_what_makes_no_sense_is_named_in_all_three(
    store: Store, options: dict[str, object], error: type[Exception], words: str
) -> None:
    async with Peer(store, config=CONFIG) as peer:
        with pytest.raises(error, match=words):
            await anext(peer.entries(**options))  # type: ignore[call-overload]

    def block() -> None:
        with Store.memory() as other, blocking.Peer(other, config=CONFIG) as there:
            next(there.entries(**options))  # type: ignore[call-overload]

    with pytest.raises(error, match=words):
        await trio.to_thread.run_sync(block)


# Facades


def test_without_a_loop_a_cursor_is_held_until_all_is_handed_out(store: Store) -> None:
    store.append([b"one", b"two", LARGE])
    with blocking.Peer(store, config=CONFIG) as peer:
        found = []
        for entry in peer.entries(cursor="mine", idle_s=0):
            found.append(entry.payload)
            with pytest.raises(CursorBusy), store.cursors.reading("mine", None):
                pass
            peer.ack(entry)
        assert found == [b"one", b"two", LARGE]
        with store.cursors.reading("mine", None) as cursor:
            assert cursor.position == store.position()
        assert list(peer.entries(cursor="mine", idle_s=0)) == []


def test_in_asyncio_a_cursor_is_held_until_all_is_handed_out(store: Store) -> None:
    async def main() -> None:
        store.append([b"one", b"two", LARGE])
        async with aio.Peer(store, config=CONFIG) as peer:
            found = []
            async for entry in peer.entries(cursor="mine", idle_s=0.01):
                found.append(entry.payload)
                with pytest.raises(CursorBusy), store.cursors.reading("mine", None):
                    pass
                await peer.ack(entry)
            assert found == [b"one", b"two", LARGE]
            with store.cursors.reading("mine", None) as cursor:
                assert cursor.position == store.position()

    asyncio.run(main())


def test_much_is_not_read_ahead() -> None:
    """What is handed out later is not all in memory, however many and large payloads are."""
    with Store.memory() as store:
        store.append([bytes([number]) * (1 << 20) for number in range(40)])
        with blocking.Peer(store, config=CONFIG) as peer:
            sizes = [len(entry.payload) for entry in peer.entries(idle_s=0)]
    assert sizes == [1 << 20] * 40
