"""The bins of a node: each chunk that is held has one place, and keeps it whatever happens."""

import logging
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import apsw
import pytest

from gateways.swarm import Bins, Chunks, Side, declare_chunks, make_node, node_of
from gateways.swarm import bins as bins_module
from gateways.swarm import side as side_module
from gateways.swarm.bmt import Chunk
from gateways.swarm.declared import SYNC, declarations
from gateways.swarm.files import FileSplitter
from gateways.swarm.proximity import proximity
from gateways.swarm.side import FILE_NAME
from logstore import LogClosed, NewEntry, Store, StoreFull
from tests.gateways.failing import damage, fill_disk_once
from wire import LogKey

from .serving import Serving, check_in_log, chunks_of, spoil_middle


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path / "s")
    yield made
    made.close()


def test_what_is_kept_has_its_place_in_the_same_transaction(serving: Serving) -> None:
    signed: list[Sequence[tuple[int, Sequence[bytes]]]] = []

    def sign(batches: Sequence[tuple[int, Sequence[bytes]]], **more: object) -> object:
        signed.append(batches)
        return serving.store.append_many(batches, **more)  # type: ignore[arg-type]

    serving.bins._sign = sign  # type: ignore[assignment]
    chunks = chunks_of(700)
    serving.bins.keep([*chunks, *chunks[:10]])
    assert len(signed) == 1
    placed = serving.placed()
    assert {*placed} == {each.address for each in chunks}
    check_in_log(serving, placed)
    assert serving.bins.count() == 700
    assert serving.bins.read([each.address for each in chunks]) == [each.encoded for each in chunks]
    # Within a bin they have the order in which they came.
    for bin_ in range(17):
        mine = [each.address for each in chunks if placed[each.address][0] == bin_]
        assert serving.bins.addresses(bin_, 1, 2**64 - 1, 2**64 - 1) == mine
    serving.bins.keep(chunks)
    serving.bins.keep([])
    assert not serving.bins.place()
    assert len(signed) == 1


def test_no_address_is_computed_again(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_module, "read_chunk", None)
    serving.bins.keep(chunks_of(300))
    assert serving.bins.count() == 300


def test_a_source_gives_what_a_server_asks_for(serving: Serving) -> None:
    chunks = chunks_of(400)
    serving.bins.keep(chunks)
    source = serving.bins.source(0)
    newest = source.newest
    assert newest == serving.bins.newest(0) > 128
    everything = source.addresses(1, newest, newest)
    assert source.addresses(1, newest, 128) == everything[:128]
    assert source.addresses(100, 2**64 - 1, 128) == everything[99:227]
    assert source.addresses(5, 6, 128) == everything[4:6]
    assert source.addresses(newest + 1, 2**64 - 1, 128) == []
    assert source.addresses(7, 6, 128) == []
    assert all(source.holds(each) for each in everything)
    assert not source.holds(bytes(32))
    serving.bins.keep(chunks_of(50, seed=2))
    assert source.newest > newest


def test_what_was_dropped_or_damaged_is_not_held_until_it_is_kept_again(
    serving: Serving,
) -> None:
    chunks = chunks_of(20)
    serving.bins.keep(chunks)
    placed = serving.placed()
    key = LogKey(serving.store.author, serving.node.chunk_log)
    serving.store.drop(key, 2, 4)
    damage(serving.store, key, 7)
    lost = [chunks[at] for at in (0, 1, 2, 5)]
    assert all(serving.bins.holds(each.address) for each in chunks[3:])
    found = serving.bins.read([each.address for each in chunks])
    assert [each for each, chunk in zip(chunks, found, strict=True) if chunk is None] == lost
    # A damaged one shows when it is read.
    assert [each for each in chunks if not serving.bins.holds(each.address)] == lost
    serving.bins.keep(lost)
    assert serving.placed() == placed
    assert all(serving.bins.holds(each.address) for each in chunks)
    assert None not in serving.bins.read([each.address for each in chunks])
    assert serving.bins.count() == 20
    # A payload that comes again is held again.
    serving.store.drop(key, 9, 9)
    assert not serving.bins.holds(chunks[7].address)
    assert serving.bins.read([chunks[7].address]) == [None]
    serving.store.want(key, 9, 9)
    serving.store.complete_payload(key, 9, chunks[7].encoded)
    assert serving.bins.holds(chunks[7].address)


def test_chunks_that_come_otherwise_get_their_places(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.bins.keep(chunks_of(10))
    before = serving.placed()
    data = random.Random(3).randbytes(300_000)
    put = serving.put(data)
    assert serving.bins.place()
    assert not serving.bins.place()
    placed = serving.placed()
    assert {*placed} == {*before, *(each.address for each in put)}
    assert placed.items() >= before.items()
    # They are placed in bites.
    monkeypatch.setattr(bins_module, "TOGETHER_ITEMS", 16)
    more = serving.put(random.Random(4).randbytes(300_000))
    assert serving.bins.place()
    assert {*serving.placed()} == {*placed, *(each.address for each in more)}
    check_in_log(serving, serving.placed())


def entries_of(data: bytes) -> tuple[LogKey, list[NewEntry]]:
    """A log of chunks of another author."""
    with Store.memory() as elsewhere:
        declare_chunks(elsewhere, elsewhere.append_many, 3)
        side = Side(elsewhere)
        Chunks(elsewhere, side).put(elsewhere.append_many, 3, [data])
        side.close()
        key = LogKey(elsewhere.author, 3)
        entries = elsewhere.read(key, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False)
        return key, [NewEntry(each.seq, each.encoded, each.hash, each.payload) for each in entries]


def test_chunks_of_other_authors_get_places_without_a_copy(serving: Serving) -> None:
    data = random.Random(5).randbytes(200_000)
    key, entries = entries_of(data)
    # One payload comes late.
    each = entries[30]
    entries[30] = NewEntry(each.seq, each.encoded, each.hash, None)
    serving.store.put_entries(key, entries, source="a friend")
    own = serving.store.log(LogKey(serving.store.author, serving.node.chunk_log))
    assert serving.bins.place()
    placed = serving.placed()
    splitter = FileSplitter()
    made = [*splitter.feed(data), *splitter.finish()[0]]
    assert len(placed) == len(made) - 1
    [late] = [each for each in made if each.address not in placed]
    serving.store.complete_payload(key, entries[30].seq, late.encoded)
    assert serving.bins.place()
    assert {*serving.placed()} == {each.address for each in made}
    assert None not in serving.bins.read([each.address for each in made])
    serving.bins.keep(made)
    assert serving.store.log(LogKey(serving.store.author, serving.node.chunk_log)) == own


def test_places_without_chunks_are_no_chunks(serving: Serving) -> None:
    """In a store that has the node's logs, and not yet the chunks."""
    chunks = chunks_of(30)
    serving.store.append([each.address for each in chunks], log_id=serving.bin_log(0).log_id)
    assert serving.bins.place()
    assert serving.bins.newest(0) == 30
    assert serving.bins.count() == 0
    assert not serving.bins.holds(chunks[0].address)
    serving.bins.keep(chunks)
    assert serving.bins.count() == 30
    assert [serving.bins.newest(bin_) for bin_ in range(17)] == [30, *[0] * 16]


def spoil_half(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size // 2)


def spoil_bytes(path: Path) -> None:
    path.write_bytes(random.Random(9).randbytes(path.stat().st_size))


@pytest.mark.parametrize("spoil", [Path.unlink, spoil_half, spoil_bytes, spoil_middle])
@pytest.mark.parametrize("closed", [True, False])
def test_a_table_that_is_lost_or_damaged_says_the_same_again(
    serving: Serving, spoil: Callable[[Path], None], closed: bool
) -> None:
    serving.bins.keep(chunks_of(600))
    serving.put(random.Random(3).randbytes(300_000))
    serving.bins.place()
    placed, count = serving.placed(), serving.bins.count()
    if closed:
        serving.side.close()
        spoil(serving.table)
        serving.open()
    else:
        # In a process that has it open, what is read until it is looked at may be nothing.
        with apsw.Connection(str(serving.table)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        spoil(serving.table)
        serving.store.append([b"\1" + bytes(8)], log_id=serving.node.chunk_log)
        serving.bins.place()
        serving.bins.place()
        placed |= {
            address: place for address, place in serving.placed().items() if address not in placed
        }
        count += 1
    assert serving.bins.count() == count
    assert serving.placed() == placed
    serving.bins.keep(chunks_of(600))
    assert not serving.bins.place()
    serving.lose_table()
    assert serving.placed() == placed
    check_in_log(serving, placed)


def test_the_table_of_another_store_is_forgotten_with_its_intervals(
    serving: Serving, tmp_path: Path
) -> None:
    other = Serving(tmp_path / "other")
    other.bins.keep(chunks_of(300, seed=8))
    other.bins.save(bytes(32), [("SYNC", "0", "1;1,9")])
    other.close()
    serving.bins.keep(chunks_of(300))
    placed = serving.placed()
    serving.side.close()
    serving.table.write_bytes(other.table.read_bytes())
    serving.open()
    assert serving.placed() == placed
    assert serving.bins.intervals(bytes(32)) == {}


def test_a_store_at_another_place_has_the_same_places(serving: Serving, tmp_path: Path) -> None:
    serving.bins.keep(chunks_of(300))
    serving.put(random.Random(3).randbytes(100_000))
    serving.bins.place()
    placed = serving.placed()
    serving.bins.save(bytes(32), [("SYNC", "0", "1;1,9")])
    serving.close()
    shutil.move(serving.path, tmp_path / "moved")
    serving.path = tmp_path / "moved"
    serving.store = Store.open(serving.path)
    serving.open()
    assert serving.placed() == placed
    assert serving.bins.intervals(bytes(32)) == {("SYNC", "0"): "1;1,9"}


def test_intervals_are_replaced_one_by_one_and_survive_a_restart(serving: Serving) -> None:
    one, other = b"\1" * 32, b"\2" * 32
    serving.bins.save(one, [("SYNC", "0", "1;1,9"), ("SYNC", "g", "1")])
    serving.bins.save(other, [("SYNC", "0", "0;0,5")])
    serving.bins.save(one, [("SYNC", "0", "1;1,10")])
    serving.reopen()
    assert serving.bins.intervals(one) == {("SYNC", "0"): "1;1,10", ("SYNC", "g"): "1"}
    assert serving.bins.intervals(other) == {("SYNC", "0"): "0;0,5"}
    assert len(serving.side.intervals()) == 3


def test_a_store_that_was_put_back_does_not_believe_to_have_what_the_newer_one_had(
    serving: Serving, tmp_path: Path
) -> None:
    serving.bins.keep(chunks_of(20))
    older = tmp_path / "older"
    serving.store.backup(older)
    serving.bins.keep(chunks_of(20, seed=2))
    serving.bins.save(bytes(32), [("SYNC", "0", "1;1,9")])
    serving.side.close()
    with Store.open(older) as back:
        (older / FILE_NAME).write_bytes(serving.table.read_bytes())
        shutil.copy(serving.path / "swarm.key", older)
        side = Side(back)
        side.refresh()
        assert side.intervals() == []
        assert side.counts() == (20, 0)
        side.close()


def test_another_key_has_other_bins(serving: Serving) -> None:
    chunks = chunks_of(100)
    serving.bins.keep(chunks)
    placed = serving.placed()
    serving.bins.save(bytes(32), [("SYNC", "0", "1;1,9")])
    key = serving.path / "swarm.key"
    kept = key.read_bytes()
    serving.side.close()
    # One that is not here is no other one: what the table says stays.
    key.unlink()
    side = Side(serving.store)
    side.refresh()
    assert side.item(chunks[0].address) == placed[chunks[0].address]
    assert len(side.intervals()) == 1
    side.close()
    key.write_bytes(b"1f" * 32)
    key.chmod(0o600)
    side = Side(serving.store)
    make_node(serving.store, side, serving.store.append_many, 8000)
    assert side.item(chunks[0].address) is None
    assert side.intervals() == []
    bins = Bins(serving.store, side, node_of(serving.store, side), serving.store.append_many)
    assert bins.place()
    assert bins.count() == sum(map(bins.newest, range(17))) == 100
    side.close()
    key.write_bytes(kept)
    serving.open()
    assert serving.placed() == placed


def test_what_was_signed_before_a_crash_keeps_its_place(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = chunks_of(100)
    fill_disk_once(monkeypatch)
    with pytest.raises(StoreFull):
        serving.bins.keep(chunks[:50])
    # The same process goes on, or another begins.
    serving.bins.keep(chunks[:50])
    placed = serving.placed()
    assert len(placed) == 50
    fill_disk_once(monkeypatch)
    with pytest.raises(StoreFull):
        serving.bins.keep(chunks[50:])
    serving.reopen()
    serving.bins.keep(chunks[50:])
    assert not serving.bins.place()
    after = serving.placed()
    assert len(after) == 100
    assert after.items() >= placed.items()
    check_in_log(serving, after)
    # Between `put` and the place.
    put = serving.put(random.Random(3).randbytes(50_000))
    fill_disk_once(monkeypatch)
    with pytest.raises(StoreFull):
        serving.bins.place()
    serving.reopen()
    assert not serving.bins.place()
    assert len(serving.placed()) == 100 + len(put)
    check_in_log(serving, serving.placed())


def test_a_bin_ends_before_a_damaged_entry_and_nothing_is_signed_past_it(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(5):
        serving.bins.keep(chunks_of(40, seed))
    placed = serving.placed()
    key = serving.bin_log(0)
    entry = serving.store.entry(key, 4)
    assert entry is not None
    assert entry.payload is not None
    before = serving.store.read(key, 2, entries_max=2, bytes_max=1 << 20, with_payload=False)
    ends_at = sum(len(each.payload or b"") // 32 for each in before)
    for spoil in (
        lambda: damage(serving.store, key, 4),
        lambda: serving.store.drop(key, 4, 4),
    ):
        spoil()
        with caplog.at_level(logging.WARNING):
            serving.lose_table()
            assert serving.bins.newest(0) == ends_at
            assert f"bin 0 ends before {key}/4" in caplog.text
        rest = {address: at for address, at in placed.items() if at[0] or at[1] <= ends_at}
        assert serving.placed() == rest
        # Other bins go on; what belongs into this one is kept, and waits for its place.
        log = serving.store.log(key)
        more = chunks_of(60, seed=77)
        serving.bins.keep(more)
        serving.bins.place()
        assert serving.store.log(key) == log
        assert {*serving.placed()} == {*rest} | {
            each.address for each in more if proximity(serving.node.overlay, each.address)
        }
        assert all(serving.bins.holds(each.address) for each in more)
        serving.store.drop(key, 4, 4)
        serving.store.want(key, 4, 4)
        serving.store.complete_payload(key, 4, entry.payload)
        serving.bins.place()
        after = serving.placed()
        assert after.items() >= placed.items()
        assert {*after} >= {each.address for each in more}
        placed = after
        caplog.clear()
    check_in_log(serving, placed)


def test_the_newest_entry_of_a_bin_is_not_signed_past_either(serving: Serving) -> None:
    serving.bins.keep(chunks_of(40))
    placed = serving.placed()
    key = serving.bin_log(0)
    entry = serving.store.entry(key, 2)
    assert entry is not None
    assert entry.payload is not None
    damage(serving.store, key, 2)
    serving.lose_table()
    assert serving.bins.newest(0) == 0
    serving.bins.place()
    serving.bins.keep(chunks_of(40, seed=2))
    info = serving.store.log(key)
    assert info is not None
    assert info.newest == 2
    serving.store.drop(key, 2, 2)
    serving.store.want(key, 2, 2)
    serving.store.complete_payload(key, 2, entry.payload)
    serving.bins.place()
    assert serving.placed().items() >= placed.items()
    assert len(serving.placed()) == 80


def test_a_bin_whose_log_cannot_go_on_keeps_no_chunk_out(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    serving.bins.keep(chunks_of(40))
    # One has ended, the newest entry of another is damaged as a whole.
    serving.store.append([bytes(32)], log_id=serving.bin_log(0).log_id, end_of_log=True)
    last = serving.store.log(serving.bin_log(1))
    assert last is not None
    entry = serving.store.entry(last.key, last.newest)
    assert entry is not None
    with serving.store._database.write() as transaction:
        transaction.db.execute(
            "UPDATE entries SET encoded = CAST('x' AS BLOB) WHERE ingest = ?", (entry.ingest,)
        )
    serving.bins.begin()
    before = {address: at for address, at in serving.placed().items() if at[0] < 2}
    more = chunks_of(100, seed=2)
    with caplog.at_level(logging.WARNING):
        serving.bins.keep(more)
        serving.bins.place()
        serving.bins.place()
    assert caplog.text.count("does not grow") == 2
    assert all(serving.bins.holds(each.address) for each in more)
    placed = serving.placed()
    assert {address: at for address, at in placed.items() if at[0] < 2} == before
    assert {*placed} >= {
        each.address for each in more if proximity(serving.node.overlay, each.address) > 1
    }
    # Of the log of chunks itself that is an error: nothing was kept.
    serving.store.append([more[0].encoded], log_id=serving.node.chunk_log, end_of_log=True)
    with pytest.raises(LogClosed):
        serving.bins.keep(chunks_of(5, seed=3))
    assert serving.placed() == placed


def test_what_was_kept_while_placing_waited_is_no_news_of_it(serving: Serving) -> None:
    begun, is_free = threading.Event(), threading.Event()

    def sign(*args: object, **more: object) -> object:
        begun.set()
        assert is_free.wait(30)
        return serving.store.append_many(*args, **more)  # type: ignore[arg-type]

    serving.bins._sign = sign  # type: ignore[assignment]
    keeping = threading.Thread(target=serving.bins.keep, args=(chunks_of(20),))
    keeping.start()
    assert begun.wait(30)
    grown: list[bool] = []
    placing = threading.Thread(target=lambda: grown.append(serving.bins.place()))
    placing.start()
    placing.join(0.05)
    assert not grown
    is_free.set()
    keeping.join()
    placing.join()
    assert grown == [False]
    assert len(serving.placed()) == 20


def test_many_threads_keep_place_and_read(serving: Serving) -> None:
    chunks = chunks_of(600)
    addresses = [each.address for each in chunks]
    failed: list[BaseException] = []
    is_over = threading.Event()

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    def look() -> None:
        while not is_over.is_set():
            serving.bins.place()
            source = serving.bins.source(0)
            newest = source.newest
            found = source.addresses(1, newest, newest)
            assert len(found) == newest
            assert all(map(source.holds, found))
            assert None not in serving.bins.read(found)

    def keep(some: Sequence[Chunk]) -> None:
        for at in range(0, len(some), 20):
            serving.bins.keep(some[at : at + 20])

    keepers = [
        threading.Thread(target=run, args=(partial(keep, chunks[at : at + 300]),))
        for at in (0, 150, 300)
    ]
    looker = threading.Thread(target=run, args=(look,))
    for thread in (*keepers, looker):
        thread.start()
    serving.put(random.Random(3).randbytes(100_000))
    for thread in keepers:
        thread.join()
    is_over.set()
    looker.join()
    assert not failed
    serving.bins.place()
    placed = serving.placed()
    assert {*placed} >= {*addresses}
    assert serving.bins.count() == len(placed) == 626
    check_in_log(serving, placed)


def test_what_is_no_list_of_addresses_has_no_index(serving: Serving) -> None:
    chunks = chunks_of(3)
    wrong = [b"", b"short", bytes(32 * 129), bytes(100_000)]
    payloads = [chunks[0].address, *wrong, chunks[1].address + chunks[2].address]
    serving.store.append(payloads, log_id=serving.bin_log(3).log_id)
    serving.bins.begin()
    assert serving.bins.addresses(3, 1, 9, 9) == [each.address for each in chunks]
    serving.lose_table()
    assert serving.bins.addresses(3, 1, 9, 9) == [each.address for each in chunks]


def test_of_two_logs_for_a_bin_the_one_with_the_lower_id_counts(serving: Serving) -> None:
    chunks = chunks_of(4)
    declaration = declarations(serving.node.overlay)[SYNC]
    serving.store.append([declaration, chunks[0].address], log_id=9000)
    serving.bins.keep(chunks[1:])
    placed = serving.placed()
    assert {*placed} == {each.address for each in chunks[1:]}
    serving.store.append([declaration, *(each.address for each in chunks)], log_id=6000)
    serving.bins.begin()
    mine = [each.address for each in chunks]
    assert serving.bins.addresses(0, 1, 9, 9) == mine
    serving.lose_table()
    assert serving.bins.addresses(0, 1, 9, 9) == mine


def test_readers_do_not_wait_for_who_writes(serving: Serving) -> None:
    chunks = chunks_of(20)
    serving.bins.keep(chunks)
    expected = serving.placed()

    def look(_: apsw.Connection) -> None:
        # Another thread would wait for the connection that has begun this transaction.
        assert serving.side._reads() is not serving.side._table
        assert serving.placed() == expected

    serving.side._table.run(look)


def test_a_table_in_memory_does_all_of_it(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.bins.keep(chunks_of(30))
    placed = serving.placed()
    serving.side.close()
    monkeypatch.setattr(side_module, "side_path", lambda *_: None)
    serving.open()
    assert serving.side._reads() is serving.side._table
    assert serving.placed() == placed
    serving.bins.keep(chunks_of(30, seed=2))
    assert len(serving.placed()) == 60
