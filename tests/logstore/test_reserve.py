"""Room set aside for what frees space when the disk is full: logstore/reserve.py."""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from logstore import KeepRule, Store, StoreFull
from logstore.database import DATABASE, Database
from logstore.errors import from_apsw_error
from logstore.reserve import (
    FREEING_BYTES,
    OPENING_BYTES,
    RESERVE,
    RESERVE_BYTES,
    ROOM_BYTES_MIN,
    Reserve,
)
from logstore.system import System
from tests.logstore.authors import signing_key
from tests.logstore.disk import SimDisk
from wire import LogKey

SOMEBODY = b"a" * 32
PAYLOAD = b"p" * 100_000
COUNT = 5
SMALL = b"s" * 50_000
GROWING = 100


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    made = SimDisk()
    made.room = 2 * ROOM_BYTES_MIN
    yield made
    made.unregister()


@pytest.fixture
def full(tmp_path: Path, disk: SimDisk) -> Iterator[Store]:
    """A store with large payloads on a disk that something else has filled."""
    with Store.create(tmp_path, signing_key=signing_key(7), system=disk) as store:
        store.append([PAYLOAD] * COUNT)
        store.follow(SOMEBODY)
        fill(disk)
        yield store


def fill(disk: SimDisk) -> None:
    assert disk.room is not None
    disk.room -= disk.free_bytes(Path())


def reserved(disk: SimDisk, folder: Path) -> int:
    return disk.file_size(folder / RESERVE) or 0


def grow(store: Store) -> None:
    """By 5 MB of small payloads, all of them in the write-ahead log and nowhere else."""
    for _ in range(GROWING // 10):
        store.append([SMALL] * 10)


def fill_the_log_too(store: Store) -> None:
    """Until the write-ahead log, which is written over from its beginning, is of no use."""

    def remember_much() -> None:
        for number in range(10_000):
            store.remember(f"{number}", b"v" * 1000)

    with pytest.raises(StoreFull):
        remember_much()


def test_payloads_can_be_dropped_on_a_full_disk(full: Store, disk: SimDisk, tmp_path: Path) -> None:
    fill_the_log_too(full)
    with pytest.raises(StoreFull):
        full.append([PAYLOAD])
    log = LogKey(full.author, 0)
    assert full.drop(log, 2, 4).count == 3
    assert disk.free_bytes(Path()) >= 3 * len(PAYLOAD)
    assert 0 < reserved(disk, tmp_path) < RESERVE_BYTES
    assert full.append([b"again"])[0].seq == COUNT + 1


def test_rules_delete_on_a_full_disk(full: Store, disk: SimDisk, tmp_path: Path) -> None:
    fill_the_log_too(full)
    log = LogKey(full.author, 0)
    assert full.keep(log, KeepRule(last=COUNT - 3))
    assert [each.count for each in full.tidy()] == [3]
    assert disk.free_bytes(Path()) >= 3 * len(PAYLOAD)
    assert 0 < reserved(disk, tmp_path) < RESERVE_BYTES
    assert full.append([b"again"])[0].seq == COUNT + 1


def test_a_log_can_be_unfollowed_on_a_full_disk(full: Store) -> None:
    fill_the_log_too(full)
    assert full.unfollow(SOMEBODY)
    assert not full.subscriptions()


def test_without_a_reserve_it_is_said_that_the_disk_is_full(
    full: Store, disk: SimDisk, tmp_path: Path
) -> None:
    disk.remove_file(tmp_path / RESERVE)
    fill(disk)
    fill_the_log_too(full)
    with pytest.raises(StoreFull):
        full.drop(LogKey(full.author, 0))
    with pytest.raises(StoreFull):
        full.unfollow(SOMEBODY)
    assert full.log(LogKey(full.author, 0)).payloads == COUNT  # type: ignore[union-attr]


def test_a_store_is_opened_at_the_cost_of_a_part_of_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path).close()
    attempts = 0
    really_open = Database.open

    def has_no_room(self: Database) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise StoreFull("the disk is full", tmp_path, "free space")
        really_open(self)

    monkeypatch.setattr("logstore.database.Database.open", has_no_room)
    monkeypatch.setattr(System, "free_bytes", lambda *_: 0)
    Store.open(tmp_path).close()
    assert (tmp_path / RESERVE).stat().st_size == RESERVE_BYTES - OPENING_BYTES
    attempts = 0
    with pytest.raises(StoreFull):
        Store.open(tmp_path, readonly=True)


def test_the_reserve_is_set_aside_again_once_there_is_room(tmp_path: Path, disk: SimDisk) -> None:
    disk.room = ROOM_BYTES_MIN
    with Store.create(tmp_path, signing_key=signing_key(7), system=disk) as store:
        store.append([b"something"])
    assert 0 < reserved(disk, tmp_path) < RESERVE_BYTES
    disk.room *= 2
    with Store.open(tmp_path, system=disk) as store:
        assert reserved(disk, tmp_path) == RESERVE_BYTES
        disk.remove_file(tmp_path / RESERVE)
        store.drop(LogKey(store.author, 0))
    assert reserved(disk, tmp_path) == RESERVE_BYTES


def test_the_reserve_is_refilled_from_what_was_dropped(disk: SimDisk, tmp_path: Path) -> None:
    with Store.create(tmp_path, signing_key=signing_key(7), system=disk) as store:
        store.append([bytes(3 * RESERVE_BYTES)])
        fill(disk)
        Reserve(tmp_path, disk).spend()
        disk.room -= FREEING_BYTES  # type: ignore[operator]
        store.drop(LogKey(store.author, 0))
        assert reserved(disk, tmp_path) == RESERVE_BYTES


def test_what_is_in_the_log_only_has_its_room_in_the_reserve(disk: SimDisk, tmp_path: Path) -> None:
    with Store.create(tmp_path, signing_key=signing_key(7), system=disk) as store:
        grow(store)
        growth = len(disk.files[f"{tmp_path / DATABASE}-wal"].seen)
        assert reserved(disk, tmp_path) > growth - RESERVE_BYTES // 4
    assert reserved(disk, tmp_path) == RESERVE_BYTES


def test_what_has_no_room_in_the_database_is_not_committed(disk: SimDisk, tmp_path: Path) -> None:
    with Store.create(tmp_path, signing_key=signing_key(7), system=disk) as store:
        grow(store)
        # The log could be written over from its beginning, where there is room enough.
        with store._database.read() as db:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        fill(disk)
        disk.files[str(tmp_path / RESERVE)].truncate(0)
        fill(disk)
        with pytest.raises(StoreFull):
            store.append([SMALL] * 10)


@pytest.mark.parametrize("opened_again", [False, True])
def test_a_disk_that_is_full_while_much_is_in_the_log_only_wedges_nothing(
    disk: SimDisk, tmp_path: Path, *, opened_again: bool
) -> None:
    store = Store.create(tmp_path, signing_key=signing_key(7), system=disk)
    store.append([PAYLOAD] * COUNT)
    store.follow(SOMEBODY)
    grow(store)
    fill(disk)
    if opened_again:
        # Nobody closed it: the process was killed.
        store = Store.open(tmp_path, system=disk)
    log = LogKey(store.author, 0)
    for _ in range(4):
        with pytest.raises(StoreFull):
            store.append([PAYLOAD])
    assert store.unfollow(SOMEBODY)
    for seq in range(1, COUNT + 1):
        assert store.drop(log, seq, seq).count == 1
        fill(disk)
    assert store.drop(log).count == GROWING
    assert reserved(disk, tmp_path) > 0
    disk.room += ROOM_BYTES_MIN  # type: ignore[operator]
    store.append([PAYLOAD])
    store.close()


def test_the_reserve_takes_real_room(tmp_path: Path) -> None:
    Store.create(tmp_path).close()
    found = (tmp_path / RESERVE).stat()
    assert found.st_size == RESERVE_BYTES
    assert found.st_blocks * 512 >= RESERVE_BYTES


def test_no_room_for_shared_memory_means_that_the_disk_is_full() -> None:
    error = apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE)
    assert isinstance(error, apsw.Error)
    assert isinstance(from_apsw_error(error, os.curdir), StoreFull)
    other = apsw.exception_for(apsw.SQLITE_IOERR_READ)
    assert isinstance(other, apsw.Error)
    assert not isinstance(from_apsw_error(other, os.curdir), StoreFull)
