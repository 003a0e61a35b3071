"""Payloads: sinks, files, completing, dropping, reading. logstore/sink.py, files.py, reader.py."""

import io
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from logstore import (
    Dropped,
    EntryRejected,
    LogClosed,
    LogVerdict,
    NewEntry,
    PayloadBusy,
    PayloadDropped,
    PayloadFile,
    PayloadMismatch,
    PayloadSink,
    PayloadState,
    PayloadUnavailable,
    Store,
    StoreDamaged,
)
from tests.logstore.authors import AuthorLog
from tests.payload_files import payload_files as files_of
from wire import yamf_hash

LARGE = bytes(range(256)) * 400
SMALL = b"small payload"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.sink.SYNC_BYTES", 30_000)


def payload_files(store: Store) -> list[Path]:
    assert store.path is not None
    return files_of(store.path)


def receive(store: Store, log: AuthorLog, seq: int, payload: bytes, source: str = "a") -> object:
    sink = store.payload_sink(log.key, seq, len(payload), yamf_hash(payload), source=source)
    for at in range(sink.offset, len(payload), 1000):
        sink.write(payload[at : at + 1000])
    return sink.finish()


@pytest.mark.parametrize("payload", [b"", SMALL, LARGE])
def test_a_received_payload_completes_an_entry_that_is_held(store: Store, payload: bytes) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, payload, held=False)], source="peer")
    before = store.position()
    assert store.missing_payloads(log.key, limit=9) == [1]
    whole = receive(store, log, 1, payload)
    assert isinstance(whole, PayloadFile) is (len(payload) > 65536)
    assert store.complete_payload(log.key, 1, whole)  # type: ignore[arg-type]
    assert store.missing_payloads(log.key, limit=9) == []
    entry = store.entry(log.key, 1)
    assert entry is not None
    assert (entry.payload_state, entry.payload_bytes) == (PayloadState.PRESENT, len(payload))
    with store.open_payload(log.key, 1) as reader:
        assert reader.read(0, 1 << 20) == payload
        assert reader.read(len(payload), 10) == b""
    assert [change.ingest for change in store.changes(before, 10)] == [before + 1]
    assert len(list(store.verify())) == 1


@pytest.mark.parametrize("payload", [SMALL, LARGE])
def test_a_payload_may_come_before_its_entry(store: Store, payload: bytes) -> None:
    log = AuthorLog()
    whole = receive(store, log, 1, payload)
    entry = log.add(1, payload)
    new = NewEntry(1, entry.encoded, entry.hash, whole)  # type: ignore[arg-type]
    assert store.put_entries(log.key, [new], source="peer").stored == 1
    assert store.open_payload(log.key, 1).read(0, len(payload)) == payload


@pytest.mark.parametrize("payload", [SMALL, LARGE])
def test_a_suspended_payload_goes_on_where_it_stopped(store: Store, payload: bytes) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, payload, held=False)], source="peer")
    half = len(payload) // 2
    with store.payload_sink(log.key, 1, len(payload), yamf_hash(payload), source="a") as sink:
        sink.write(payload[:half])
    entry = store.entry(log.key, 1)
    assert entry is not None
    assert (entry.payload_state, entry.partial_bytes) == (PayloadState.PARTIAL, half)
    assert store.statistics().partial_bytes == half
    sink = store.payload_sink(log.key, 1, len(payload), yamf_hash(payload), source="b")
    assert (sink.offset, sink.resumed, sink.sources) == (half, True, ("a", "b"))
    sink.write(payload[half:])
    store.complete_payload(log.key, 1, sink.finish())
    assert store.open_payload(log.key, 1).read(0, len(payload)) == payload
    assert store.statistics().partial_payloads == 0


def test_what_a_sink_has_written_is_read_beside_it_whatever_becomes_of_it(store: Store) -> None:
    """The file is the same before and after it is suspended, completed and dropped."""
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, LARGE, held=False)], source="peer")
    wanted = (log.key, 1, len(LARGE), yamf_hash(LARGE))
    sink = store.payload_sink(*wanted, source="a")
    file = sink.file
    assert file is not None
    handle = file.open()
    assert handle is not None
    with handle:
        assert handle.read(10, 0) == b""
        sink.write(LARGE[:1000])
        assert handle.read(10, 5) == LARGE[5:15]
        sink.suspend()
        sink = store.payload_sink(*wanted, source="b")
        assert sink.file == file
        assert not sink.is_right()
        sink.write(LARGE[1000:])
        assert sink.is_right()
        store.complete_payload(log.key, 1, sink.finish())
        store.drop(log.key, 1, 1)
        assert handle.read(len(LARGE), 0) == LARGE
    assert file.open() is None


def test_what_was_just_written_is_read_without_waiting_where_the_system_can(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (AuthorLog().key, 1, len(LARGE), yamf_hash(LARGE))
    with store.payload_sink(*wanted, source="a") as sink:
        sink.write(LARGE[:1000])
        file = sink.file
        assert file is not None
        handle = file.open()
        assert handle is not None
        with handle:
            assert handle.read_cached(500, 100) in (LARGE[100:600], b"")
            assert handle.read_cached(500, 1000) == b""
            monkeypatch.setattr("logstore.system._READ_NO_WAIT", None)
            assert handle.read_cached(500, 100) == b""


def test_a_discarded_payload_begins_in_another_file(store: Store) -> None:
    wanted = (AuthorLog().key, 1, len(LARGE), yamf_hash(LARGE))
    sink = store.payload_sink(*wanted, source="a")
    file = sink.file
    sink.write(bytes(len(LARGE)))
    assert not sink.is_right()
    sink.discard()
    sink = store.payload_sink(*wanted, source="a")
    assert sink.file != file
    sink.discard()


def test_a_small_payload_has_no_file_while_it_arrives(store: Store) -> None:
    with store.payload_sink(AuthorLog().key, 1, 13, yamf_hash(SMALL), source="a") as sink:
        sink.write(SMALL)
        assert sink.file is None
        assert sink.is_right()


def test_a_sink_that_was_left_behind_keeps_what_was_synced(store: Store) -> None:
    log = AuthorLog()
    assert store.path is not None
    with Store.open(store.path) as other:
        sink = other.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a")
        sink.write(LARGE[:45_000])
        sink.write(LARGE[45_000:50_000])
        sink._handle.close()  # type: ignore[union-attr] # as if the process had died
    (path,) = payload_files(store)
    assert path.stat().st_size == 50_000
    sink = store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a")
    assert sink.offset == 45_000
    assert path.stat().st_size == 45_000


@pytest.mark.rule("P2P-8.24")
def test_only_one_sink_at_a_time_receives_a_payload(store: Store) -> None:
    log = AuthorLog()
    assert store.path is not None
    wanted = (log.key, 1, len(LARGE), yamf_hash(LARGE))
    with Store.open(store.path) as other, store.payload_sink(*wanted, source="a") as sink:
        for each in (store, other):
            with pytest.raises(PayloadBusy):
                each.payload_sink(*wanted, source="b")
        sink.write(LARGE[:10])
    with store.payload_sink(*wanted, source="c") as sink:
        assert sink.offset == 10


def test_a_payload_that_came_whole_and_is_wrong_blames_its_sender(store: Store) -> None:
    log = AuthorLog()
    for payload in (SMALL, LARGE):
        sink = store.payload_sink(log.key, 1, len(payload), yamf_hash(payload), source="liar")
        sink.write(bytes(len(payload)))
        with pytest.raises(PayloadMismatch) as caught:
            sink.finish()
        assert (caught.value.resumed, caught.value.sources) == (False, ("liar",))
    assert payload_files(store) == []
    assert store.statistics().partial_payloads == 0


@pytest.mark.rule("P2P-8.25")
def test_a_wrong_prefix_from_elsewhere_blames_nobody_present(store: Store) -> None:
    """point2point.md 8: the prefix is dropped and who gave it is known."""
    log = AuthorLog()
    wanted = (log.key, 1, len(LARGE), yamf_hash(LARGE))
    with store.payload_sink(*wanted, source="liar") as sink:
        sink.write(bytes(70_000))
    sink = store.payload_sink(*wanted, source="honest")
    sink.write(LARGE[70_000:])
    with pytest.raises(PayloadMismatch) as caught:
        sink.finish()
    assert (caught.value.resumed, caught.value.sources) == (True, ("liar", "honest"))
    assert store.payload_sink(*wanted, source="honest").offset == 0


def test_more_bytes_than_the_payload_has_are_refused(memory: Store) -> None:
    log = AuthorLog()
    sink = memory.payload_sink(log.key, 1, 3, yamf_hash(b"abc"), source="a")
    sink.write(b"ab")
    with pytest.raises(ValueError, match="more than the 3 bytes"):
        sink.write(b"cd")
    with pytest.raises(ValueError, match="2 of 3 bytes"):
        sink.finish()
    sink.write(b"c")
    assert sink.finish() == b"abc"
    with pytest.raises(ValueError, match="finished"):
        sink.write(b"")


def test_a_discarded_payload_leaves_nothing(store: Store) -> None:
    log = AuthorLog()
    sink = store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a")
    sink.write(LARGE)
    sink.discard()
    whole = receive(store, log, 1, LARGE)
    assert isinstance(whole, PayloadFile)
    store.discard_payload(whole)
    assert payload_files(store) == []


def test_a_payload_for_another_entry_is_refused(store: Store) -> None:
    log = AuthorLog()
    store.put_entries(
        log.key, [log.add(1, LARGE, held=False), log.add(2, LARGE, held=False)], source="p"
    )
    whole = receive(store, log, 1, LARGE)
    assert isinstance(whole, PayloadFile)
    with pytest.raises(EntryRejected, match="received for"):
        store.complete_payload(log.key, 2, whole)
    with pytest.raises(EntryRejected, match="not the one"):
        store.complete_payload(log.key, 2, b"another")
    with pytest.raises(PayloadUnavailable, match="not held"):
        store.complete_payload(log.key, 3, b"another")
    assert store.complete_payload(log.key, 1, whole)
    store.drop(log.key, 1, 1)
    with pytest.raises(PayloadDropped, match="gone"):
        store.complete_payload(log.key, 1, whole)


def test_a_second_copy_of_a_payload_changes_nothing(store: Store) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, LARGE)], source="peer")
    whole = receive(store, log, 1, LARGE)
    assert not store.complete_payload(log.key, 1, whole)  # type: ignore[arg-type]
    assert store.drop(log.key).count == 1
    assert payload_files(store) == []


def test_large_payloads_are_files_and_small_ones_are_rows(store: Store, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(LARGE)
    appended = store.append([SMALL, big, io.BytesIO(LARGE), io.BytesIO(SMALL), LARGE[:65536]])
    assert len(payload_files(store)) == 2
    key = appended[0].key
    payloads = [store.open_payload(key, each.seq).read(0, 1 << 20) for each in appended]
    assert payloads == [SMALL, LARGE, LARGE, SMALL, LARGE[:65536]]
    inline = [
        e.payload is not None
        for e in store.read(key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False)
    ]
    assert inline == [True, False, False, True, True]


def test_dropped_payloads_are_gone_and_their_entries_stay(store: Store) -> None:
    key = store.append([SMALL, LARGE, b"", SMALL])[0].key
    reader = store.open_payload(key, 2)
    before = store.position()
    dropped = store.drop(key, 2, 3)
    assert (dropped.count, dropped.bytes) == (2, len(LARGE))
    assert payload_files(store) == []
    assert reader.read(0, len(LARGE)) == LARGE
    info = store.log(key)
    assert info is not None
    assert (info.height, info.payloads, info.missing_payloads) == (4, 2, 0)
    assert [(c.seq, c.payload_state) for c in store.changes(before, 9)] == [
        (2, PayloadState.DELETED),
        (3, PayloadState.DELETED),
    ]
    with pytest.raises(PayloadUnavailable, match="deleted"):
        store.open_payload(key, 2)
    assert store.drop(key, 2, 3).count == 0
    assert store.complete_payload(key, 2, LARGE)
    assert store.open_payload(key, 2).read(0, len(LARGE)) == LARGE


def test_more_payloads_than_one_transaction_takes_are_dropped(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.dropping.DROP_ROWS", 3)
    key = memory.append([b"x"] * 10)[0].key
    assert memory.drop(key, 2).count == 9


def test_a_payload_of_which_a_part_is_held_is_dropped_like_any_other(store: Store) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, LARGE, held=False)], source="peer")
    with store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a") as sink:
        sink.write(LARGE[:100])
    before = store.position()
    assert store.drop(log.key) == Dropped(1, 100, 100)
    assert payload_files(store) == []
    assert [(c.seq, c.payload_state) for c in store.changes(before, 9)] == [
        (1, PayloadState.DELETED)
    ]
    info = store.log(log.key)
    assert info is not None
    assert (info.payloads, info.missing_payloads) == (0, 0)
    assert store.drop(log.key) == Dropped(0, 0)
    assert not [each for each in store.verify() if not isinstance(each, LogVerdict)]


def test_a_part_of_a_payload_that_is_fetched_again_is_dropped_too(store: Store) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, LARGE, held=False)], source="peer")
    store.complete_payload(log.key, 1, LARGE)
    store.drop(log.key)
    assert store.want(log.key, 1, 1)
    with store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a") as sink:
        sink.write(LARGE[:100])
    assert store.drop(log.key) == Dropped(1, 100, 100)
    assert not store.wants()
    assert not [each for each in store.verify() if not isinstance(each, LogVerdict)]


def ways_to_end_a_sink() -> dict[str, Callable[[PayloadSink], object]]:
    """What a sink may be asked next, and does not do for a payload that was dropped."""
    rest = LARGE[50_000:]
    return {
        "write": lambda sink: sink.write(rest),
        "finish": lambda sink: (sink.write(rest[:20_000]), sink.write(rest[20_000:])),
        "suspend": lambda sink: sink.suspend(),
        "discard": lambda sink: sink.discard(),
    }


@pytest.mark.parametrize("way", ["write", "finish", "suspend", "discard"])
def test_nothing_comes_back_of_a_payload_that_is_dropped_while_it_comes(
    store: Store, way: str
) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, LARGE, held=False)], source="peer")
    sink = store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a")
    sink.write(LARGE[:50_000])
    assert not sink.is_dropped()
    assert store.drop(log.key) == Dropped(1, 50_000, 50_000)
    assert sink.is_dropped()
    raises = pytest.raises(PayloadDropped) if way in {"write", "finish"} else nullcontext()
    with raises:
        ways_to_end_a_sink()[way](sink)
    assert payload_files(store) == []
    assert store.entry(log.key, 1).payload_state is PayloadState.DELETED  # type: ignore[union-attr]
    # Whoever wants it after all gets it from its first byte.
    assert isinstance(receive(store, log, 1, LARGE), PayloadFile)


def test_of_many_payloads_that_come_one_is_seen_to_be_dropped(store: Store) -> None:
    """More than one statement asks for, and some twice."""
    log = AuthorLog()
    count = 70
    entries = [log.add(seq, LARGE, held=False) for seq in range(1, count + 1)]
    store.put_entries(log.key, entries, source="peer")
    sinks = [
        store.payload_sink(log.key, seq, len(LARGE), yamf_hash(LARGE), source="a")
        for seq in range(1, count + 1)
    ]
    files = [sink.file for sink in sinks if sink.file is not None]
    assert len(files) == count
    assert not store.any_dropped([])
    assert not store.any_dropped([*files, *files[:5]])
    store.drop(log.key, count, count)
    assert store.any_dropped(files)
    assert not store.any_dropped(files[:-1])
    for sink in sinks:
        sink.discard()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_in_memory_may_be_anything_that_has_bytes(
    store: Store,
    kind: Callable[[bytes], bytes | bytearray | memoryview],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logstore.files.READ_BYTES_MAX", 30_000)
    for payload in (LARGE, LARGE[:65_537], SMALL):
        entry = store.append([kind(payload)])[0]  # type: ignore[list-item]
        with store.open_payload(entry.key, entry.seq) as reader:
            assert reader.read(0, len(payload) + 1) == payload


def test_a_damaged_or_missing_payload_file_without_sums_is_damage(store: Store) -> None:
    """As an earlier version wrote it; all others: test_blocks.py."""
    key = store.append([LARGE])[0].key
    with store._database.write() as transaction:
        transaction.db.execute("UPDATE files SET sums = NULL")
    (path,) = payload_files(store)
    changed = bytearray(LARGE)
    changed[-1] ^= 1
    path.write_bytes(changed)
    reader = store.open_payload(key, 1)
    assert reader.read(0, 60_000) == LARGE[:60_000]
    with pytest.raises(StoreDamaged, match="/0/1"):
        reader.read(60_000, 60_000)
    path.write_bytes(LARGE[:100])
    with store.open_payload(key, 1) as short:
        short.read(0, 1000)
        with pytest.raises(StoreDamaged, match="short"):
            short.read(100, 1000)
    path.unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        store.open_payload(key, 1)


def test_files_of_writers_that_died_are_collected_at_the_next_opening(store: Store) -> None:
    assert store.path is not None
    staged = store._files.stage(LARGE)
    with Store.open(store.path):
        assert len(payload_files(store)) == 1
    assert staged.handle is not None
    staged.handle.close()
    with Store.open(store.path):
        assert payload_files(store) == []


def test_a_failed_append_leaves_no_file(store: Store) -> None:
    store.append([b"end"], end_of_log=True)
    with pytest.raises(LogClosed, match="the log ended"):
        store.append([LARGE])
    assert payload_files(store) == []


def test_large_payloads_of_a_store_in_memory_live_in_a_folder_that_goes_away(memory: Store) -> None:
    key = memory.append([LARGE])[0].key
    assert memory.open_payload(key, 1).read(0, len(LARGE)) == LARGE
    root = memory._files.root
    assert root.exists()
    memory.close()
    assert not root.exists()
