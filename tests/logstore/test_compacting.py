"""What was deleted goes back to the disk, and nothing else: logstore/compacting.py."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from logstore import (
    PAUSE_S,
    CompactProgress,
    Fault,
    KeepRule,
    Store,
    StoreFull,
    StoreLocked,
    System,
    compacting,
)
from logstore.reserve import RESERVE, RESERVE_BYTES
from logstore.schema import PAGE_BYTES
from wire import LogKey

FIXTURE = Path(__file__).parent / "fixtures" / "format-2"
ROWS = 4_000


class NoRoom(System):
    """A disk on which there is little left."""

    def free_bytes(self, path: Path) -> int:
        return 10_000


class Busy(System):
    """Counts how often others are let in."""

    def __init__(self) -> None:
        self.slept = 0

    def sleep(self, seconds: float) -> None:
        assert seconds >= PAUSE_S
        self.slept += 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAMBOO_PEER_STATE", str(tmp_path / "state"))
    return tmp_path / "store"


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that was made when pages could not be given back."""
    monkeypatch.setenv("BAMBOO_PEER_STATE", str(tmp_path / "state"))
    shutil.copytree(FIXTURE, tmp_path / "store")
    (tmp_path / "store" / "author.key").chmod(0o600)
    return tmp_path / "store"


def fill(store: Store, rows: int = ROWS) -> LogKey:
    return store.append([b"%0250d" % n for n in range(rows)])[-1].key


def new_bytes(folder: Path) -> int:
    """What the database of a new store with the same takes."""
    copy = folder.parent / "copy"
    db = apsw.Connection(str(folder / "store.sqlite3"))
    db.execute("VACUUM INTO ?", (str(copy),))
    db.close()
    size = copy.stat().st_size
    copy.unlink()
    return size


def faults(store: Store) -> list[Fault]:
    return [found for found in store.verify() if isinstance(found, Fault)]


def content(store: Store) -> Iterator[object]:
    for info in store.logs():
        yield info
        yield store.read(info.key, 1, entries_max=100_000, bytes_max=1 << 30, with_payload=False)


def test_what_a_rule_has_deleted_goes_back_in_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "STEP_PAGES", 50)
    system = Busy()
    with Store.create(folder, system=system) as store:
        log = fill(store)
        store.keep(log, KeepRule(last=100))
        store.tidy()
        held, slept = list(content(store)), system.slept
        told: list[CompactProgress] = []
        done = store.compact(told.append)
        assert system.slept - slept > 5
        assert len(told) > 5
        [total] = {each.bytes_total for each in told}
        assert [each.bytes_done for each in told] == [n * 50 * PAGE_BYTES for n in range(len(told))]
        assert total > told[-1].bytes_done
        assert not any(each.is_anew for each in told)
        assert done.bytes_after < 0.8 * done.bytes_before
        assert done.bytes_after == system.allocated_bytes(folder)
        database = (folder / "store.sqlite3").stat().st_size
        assert database <= 1.2 * new_bytes(folder)
        assert (folder / "store.sqlite3-wal").stat().st_size == 0
        assert list(content(store)) == held
        assert faults(store) == []
        again = store.compact()
        assert again.bytes_after == again.bytes_before


def test_it_goes_on_beside_a_reader_and_writers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "STEP_PAGES", 100)
    with Store.create(folder) as store, Store.open(folder) as other:
        log = fill(store)
        store.drop(log, 1, ROWS - 10)
        with other._database.read() as db:
            count = "SELECT count(*) FROM entries"
            assert db.execute(count).get == ROWS
            with Store.open(folder) as third:

                def write(_: float) -> None:
                    third.append([b"meanwhile"], log_id=1)

                monkeypatch.setattr(store._system, "sleep", write, raising=False)
                store.compact()
            assert db.execute(count).get == ROWS
        written = other.log(LogKey(log.author, 1))
        assert written is not None
        assert written.entries > 3
        assert faults(other) == []
        done = store.compact()
        assert done.bytes_after <= done.bytes_before


def test_a_store_of_an_earlier_version_is_written_anew_once(before: Path) -> None:
    with Store.open(before) as store:
        held = list(content(store))
        [log, *_] = [info.key for info in store.logs()]
        with store.lock_node(), pytest.raises(StoreLocked, match="of an earlier version"):
            store.compact()
        store.compact()
        assert list(content(store)) == held
        assert faults(store) == []
        assert store.log(log) is not None
        with store.lock_node():
            store.compact()


def test_writing_anew_says_what_room_it_takes(before: Path) -> None:
    with Store.open(before, system=NoRoom()) as store:
        held = list(content(store))
        with pytest.raises(StoreFull, match=r"which takes \d[\d,]+ bytes of room, and there are"):
            store.compact()
        assert list(content(store)) == held


def test_pages_that_are_half_empty_are_joined_where_no_node_serves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "WORTH_BYTES", 0)
    with Store.create(folder) as store:
        log = fill(store, 600)
        for seq in range(1, 601, 2):
            store.drop(log, seq, seq)
        held = list(content(store))
        with store.lock_node():
            assert store.compact().bytes_left > 0
        assert (folder / "store.sqlite3").stat().st_size > 1.2 * new_bytes(folder)
        told: list[CompactProgress] = []
        assert store.compact(told.append).bytes_left == 0
        assert [each.is_anew for each in told] == [True]
        assert (folder / "store.sqlite3").stat().st_size <= 1.2 * new_bytes(folder)
        assert list(content(store)) == held
        assert faults(store) == []


def test_large_rows_are_not_taken_for_half_empty_pages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "WORTH_BYTES", 0)
    with Store.create(folder) as store:
        store.append([bytes(2_000)] * 400)
        with store.lock_node():
            assert store.compact().bytes_left == 0


def test_whoever_has_seen_it_larger_has_room_for_what_it_grows_by(folder: Path) -> None:
    """The reserve has it (reserve.py), or the log could not be copied on a full disk."""
    with Store.create(folder) as store, Store.open(folder) as other:
        log = store.append([bytes(60_000)] * 150)[-1].key
        store.append([b"it knows how long it was"])
        other.drop(log)
        other.compact()
        assert (folder / RESERVE).stat().st_size <= RESERVE_BYTES
        store.append([bytes(60_000)] * 60)
        assert (folder / RESERVE).stat().st_size >= 60 * 60_000


def test_one_in_memory_has_nothing_to_give_back() -> None:
    with Store.memory() as store:
        fill(store, 10)
        assert store.compact() == (0, 0, 0)
