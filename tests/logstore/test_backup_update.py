"""An earlier backup that is brought up to date: logstore/backup_update.py."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import (
    Store,
    StoreError,
    StoreExists,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    backup_copy,
    backup_update,
)
from logstore.backup import write_backup
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.backed_up import LARGE, Work, check, delete_entries, forget, rows_of, same
from tests.logstore.carrying import faults
from tests.logstore.disk import PowerCutError, SimDisk, SimFile
from tests.payload_files import payload_files
from wire import LogKey


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    made = Work(tmp_path / "store")
    with made.store:
        yield made


ROUNDS = st.lists(st.lists(st.sampled_from(Work.ACTIONS), max_size=8), max_size=4)


@settings(max_examples=25, deadline=None)
@given(ROUNDS, st.integers(0, 99))
def test_it_is_what_a_whole_backup_would_be(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[str]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("work")
    work = Work(folder / "store", seed)
    with work.store as store:
        work.do(*Work.ACTIONS)
        assert not store.backup(folder / "backup").incremental
        for number, actions in enumerate(rounds):
            work.do(*actions)
            assert store.backup(folder / "backup").incremental
            store.backup(folder / f"whole{number}")
            assert same(folder / "backup", folder / f"whole{number}")
            check(folder / "backup")
    shutil.rmtree(folder)


def test_what_it_says(store: Store, tmp_path: Path) -> None:
    store.append([b"a", bytes(LARGE)])
    first = store.backup(tmp_path / "backup")
    assert (first.incremental, first.entries) == (False, 2)
    assert first.bytes_written > LARGE
    nothing = store.backup(tmp_path / "backup")
    assert (nothing.incremental, nothing.entries, nothing.bytes_written) == (True, 0, 0)
    store.append([b"b", bytes(LARGE) + b"c"])
    second = store.backup(tmp_path / "backup")
    assert (second.incremental, second.entries) == (True, 2)
    assert LARGE < second.bytes_written < 3 * LARGE


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system counts no writes")
def test_it_counts_what_it_writes_and_keeps_the_limit(tmp_path: Path) -> None:
    program = """if True:
        import random, sys
        from logstore import Store
        def written():
            lines = dict(line.split(": ") for line in open("/proc/self/io"))
            return int(lines["wchar"])
        with Store.create(sys.argv[1]) as store:
            rng = random.Random(1)
            for _ in range(20):
                store.append_many([(n, [rng.randbytes(300)] * 10) for n in range(20)])
            store.backup(sys.argv[2])
            for new in ([300] * 3_000, [300], [500_000], []):
                if new:
                    store.append([rng.randbytes(size) for size in new])
                before = written()
                said = store.backup(sys.argv[2]).bytes_written
                print(sum(new) + 330 * len(new), said, written() - before)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "store"), str(tmp_path / "backup")]
    top = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": top, "BAMBOO_PEER_STATE": str(tmp_path / "state")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        new, said, really = map(int, line.split())
        assert abs(really - said) < 20_000
        assert really <= 2 * new + (1 << 20)


def test_keys_come_too_and_stay(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    assert store.path is not None
    (store.path / "swarm.key").write_text("11" * 32)
    store.backup(target)
    (store.path / "swarm.key").write_text("22" * 32)
    (store.path / "new.key").write_text("33" * 32)
    store.backup(target)
    assert (target / "swarm.key").read_text() == "22" * 32
    assert (target / "new.key").read_text() == "33" * 32
    assert (target / "new.key").stat().st_mode & 0o777 == 0o600
    (store.path / "new.key").unlink()
    store.backup(target)
    assert (target / "new.key").exists()


def test_logs_that_were_forgotten_go_and_may_come_again_as_others(
    work: Work, tmp_path: Path
) -> None:
    work.do("append", "replicate", "replicate", "replicate", "replicate", "append")
    store, target = work.store, tmp_path / "backup"
    for log in work.logs:
        store.put_entries(log.key, log.add_all(range(len(log.entries) + 1, 12)), source="peer")
    store.backup(target)
    forget(store, *(log.key for log in work.logs))
    store.backup(target)
    store.backup(tmp_path / "whole0")
    assert same(target, tmp_path / "whole0")
    for log in reversed(work.logs):
        store.put_entries(log.key, [log.entries[1], log.entries[2]], source="peer")
    store.backup(target)
    store.backup(tmp_path / "whole1")
    assert same(target, tmp_path / "whole1")
    # One that is gone and is back, in part, between two backups.
    last = max(work.logs, key=lambda log: row_id(store, log.key))
    forget(store, last.key)
    store.put_entries(last.key, [last.entries[1]], source="peer")
    store.backup(target)
    store.backup(tmp_path / "whole2")
    assert same(target, tmp_path / "whole2")
    check(target)


def test_a_log_that_is_being_forgotten(work: Work, tmp_path: Path) -> None:
    """Its entries go in steps, and backups are made in between."""
    store, target = work.store, tmp_path / "backup"
    store.append([b"a"])
    for log in work.logs:
        store.put_entries(log.key, log.add_all(range(1, 12)), source="peer")
    store.backup(target)
    ids = [row_id(store, log.key) for log in work.logs[1:]]
    for number, remaining in enumerate((8, 8, 3, 0)):
        if number == 0:
            forget(store, *(log.key for log in work.logs[1:]), remaining=remaining)
        elif number % 2:
            with store._opened.database.write() as transaction:
                delete_entries(transaction.db, ids[0], remaining)
        else:
            store.append([b"b"])
            with store._opened.database.write() as transaction:
                for id_ in ids:
                    delete_entries(transaction.db, id_, remaining)
        store.backup(target)
        store.backup(tmp_path / f"whole{number}")
        assert same(target, tmp_path / f"whole{number}")


def row_id(store: Store, key: LogKey) -> int:
    with store._opened.database.read() as db:
        query = "SELECT id FROM logs WHERE author = ? AND log_id = ?"
        id_: int = db.execute(query, (key.author, key.log_id.to_bytes(8, "big"))).get
        return id_


def test_an_own_log_that_is_gone_is_not_taken_from_the_backup(store: Store, tmp_path: Path) -> None:
    key = store.append([b"a"])[0].key
    store.backup(tmp_path / "backup")
    forget(store, key)
    with pytest.raises(StoreExists, match="holds the own log 0, which is gone"):
        store.backup(tmp_path / "backup")


# --- which backups are refused --------------------------------------------------------------------


def refused(store: Store, target: Path, match: str) -> None:
    before = rows_of(target)
    with pytest.raises(StoreExists, match=match):
        store.backup(target)
    assert rows_of(target) == before


def test_a_backup_of_another_store_is_refused(store: Store, tmp_path: Path) -> None:
    store.append([b"a"])
    # Even of the same author.
    with Store.create(tmp_path / "other", signing_key=signing_key(99)) as other:
        other.backup(tmp_path / "backup")
    refused(store, tmp_path / "backup", "backup of another store")


def test_a_store_is_no_backup_and_least_of_all_the_store_itself(
    store: Store, tmp_path: Path
) -> None:
    assert store.path is not None
    store.append([b"a"])
    store.backup(tmp_path / "backup")
    with Store.open(tmp_path / "backup") as copy:
        copy.confirm_identity()
    refused(store, tmp_path / "backup", "a store which is no backup")
    with pytest.raises(StoreExists, match="the store itself"):
        store.backup(store.path)


def test_one_that_holds_more_is_refused(store: Store, tmp_path: Path) -> None:
    """The store was put back from an older backup than this one."""
    store.append([b"a"])
    store.backup(tmp_path / "older")
    store.append([b"b"])
    store.backup(tmp_path / "newer")
    with Store.open(tmp_path / "older") as restored:
        refused(restored, tmp_path / "newer", "holds more than this store: 2 arrivals of 1")


def restored(tmp_path: Path) -> Store:
    shutil.copytree(tmp_path / "older", tmp_path / "restored")
    return Store.open(tmp_path / "restored")


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_store_that_was_put_back_and_has_gone_on_differently_is_told_apart(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_confirmed: bool
) -> None:
    """The same entries came in the same order, but another one without its payload."""
    log = AuthorLog()
    entries = log.add_all(range(1, 40))
    store.put_entries(log.key, entries[:5], source="peer")
    store.backup(tmp_path / "older")
    store.put_entries(log.key, entries[5:30], source="peer")
    store.backup(tmp_path / "newer")
    with restored(tmp_path) as other:
        if is_confirmed:
            other.confirm_identity()
        assert other.backup(tmp_path / "older").entries == 0
        other.put_entries(log.key, [entries[5]._replace(payload=None)], source="peer")
        other.put_entries(log.key, entries[6:], source="peer")
        # It is put back, so that everything is compared, not the last arrivals alone.
        monkeypatch.setattr(backup_update, "COMPARED", 0)
        refused(other, tmp_path / "newer", "gone different ways")
        assert other.backup(tmp_path / "older").entries == 34
    check(tmp_path / "older")


def test_the_last_arrivals_tell_a_copy_apart_that_nobody_has_noticed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 40))
    store.put_entries(log.key, entries[:5], source="peer")
    store.backup(tmp_path / "older")
    store.put_entries(log.key, entries[5:], source="peer")
    store.backup(tmp_path / "newer")
    monkeypatch.setattr(backup_update, "_is_certain", lambda *_: True)
    monkeypatch.setattr(backup_update, "COMPARED", 1)
    with restored(tmp_path) as other:
        other.put_entries(log.key, entries[5:], source="peer")
        refused(other, tmp_path / "newer", "gone different ways")


def test_a_backup_that_was_used_as_a_store_is_refused(store: Store, tmp_path: Path) -> None:
    log, other = AuthorLog(), AuthorLog(2)
    store.put_entries(log.key, log.add_all(range(1, 9)), source="peer")
    store.backup(tmp_path / "backup")
    with Store.open(tmp_path / "backup") as copy:
        copy.put_entries(other.key, other.add_all(range(1, 4)), source="peer")
    refused(store, tmp_path / "backup", "holds more than this store: 11 arrivals of 8")
    store.put_entries(log.key, log.add_all(range(9, 40)), source="peer")
    refused(store, tmp_path / "backup", "gone different ways")


def test_a_backup_that_is_open_is_left_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([b"a"])
    store.backup(tmp_path / "backup")
    store.append([b"b"])
    monkeypatch.setattr("logstore.schema.BUSY_TIMEOUT_MS", 1)
    with Store.open(tmp_path / "backup"), pytest.raises(StoreLocked, match="has this backup open"):
        store.backup(tmp_path / "backup")
    assert store.backup(tmp_path / "backup").entries == 1


def test_a_backup_of_an_earlier_format_is_brought_to_this_one(tmp_path: Path) -> None:
    fixture = Path(__file__).parent / "fixtures"
    shutil.copytree(fixture / "format-1", tmp_path / "store")
    (tmp_path / "store/author.key").chmod(0o600)
    with Store.open(tmp_path / "store", readonly=True) as old:
        old.backup(tmp_path / "backup")
        with pytest.raises(StoreError, match="a format before 4"):
            old.backup(tmp_path / "backup")
    with Store.open(tmp_path / "store") as store:
        assert store.backup(tmp_path / "backup").entries == 0
        store.backup(tmp_path / "whole")
    assert same(tmp_path / "backup", tmp_path / "whole")
    check(tmp_path / "backup")


def test_a_store_in_memory_too(memory: Store, tmp_path: Path) -> None:
    memory.append([b"a"])
    memory.backup(tmp_path / "backup")
    memory.append([b"b", bytes(LARGE)])
    assert memory.backup(tmp_path / "backup").entries == 2
    memory.backup(tmp_path / "whole")
    assert same(tmp_path / "backup", tmp_path / "whole")


# --- what ends it ---------------------------------------------------------------------------------


class Interrupted:
    """An earlier backup on a simulated disk, while the store has gone on."""

    def __init__(self, work: Work, tmp_path: Path) -> None:
        self.store = work.store
        self.target = tmp_path / "backup"
        self.after = tmp_path / "after"
        work.do(*Work.ACTIONS, "append", "replicate", "append")
        self.store.backup(self.target)
        self.old = rows_of(self.target)
        paths = [self.target / "store.sqlite3", *payload_files(self.target)]
        self.files = {str(path): path.read_bytes() for path in paths}
        for path in paths:
            path.unlink()
        work.do("append", "drop", "replicate", "keep", "append", "append", "fork")
        self.store.append([bytes(LARGE)])
        self.store.backup(tmp_path / "whole")
        self.new = rows_of(tmp_path / "whole")

    def disk(self, seed: int) -> SimDisk:
        made = SimDisk(seed)
        for name, data in self.files.items():
            made.files[name] = SimFile(bytearray(data), bytearray(data))
        return made

    def run(self, disk: SimDisk) -> None:
        write_backup(self.store._opened, self.store._files, self.target, disk)

    def outcome(self, disk: SimDisk) -> str:
        """What a look at the disk finds; everything there is right."""
        shutil.rmtree(self.after, ignore_errors=True)
        shutil.copytree(self.target, self.after)
        for name, file in disk.files.items():
            path = self.after / Path(name).relative_to(self.target)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.seen)
        check(self.after)
        found = rows_of(self.after)
        # What is garbage is not part of it.
        found["files"] = [row for row in found["files"] if row[1] != 4]
        assert found in (self.old, self.new)
        return "new" if found == self.new else "old"


@pytest.fixture
def interrupted(work: Work, tmp_path: Path) -> Interrupted:
    return Interrupted(work, tmp_path)


def test_a_power_cut_anywhere_leaves_the_old_backup_or_the_new_one(
    interrupted: Interrupted,
) -> None:
    found: list[str] = []
    for last in count(1):
        disk = interrupted.disk(last)

        def fault(kind: str, number: int, last: int = last) -> None:
            if number >= last:
                raise PowerCutError(errno.EIO, "no power")

        disk.fault = fault
        has_failed = False
        try:
            interrupted.run(disk)
        except StoreError:
            has_failed = True
        reached = disk.operations < last
        disk.cut_power()
        found.append(interrupted.outcome(disk))
        assert has_failed or found[-1] == "new"
        # The next one finds what was left, and leaves nothing of it.
        interrupted.run(disk)
        assert interrupted.outcome(disk) == "new"
        names = {Path(row[0].hex()).name for row in interrupted.new["files"]}  # type: ignore[attr-defined]
        payloads = {Path(name).name for name in disk.files if "payloads" in name}
        assert payloads == names
        disk.unregister()
        if reached:
            break
    assert found.count("old") > 20
    assert found[-1] == "new"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_fails_once_leaves_the_old_backup(interrupted: Interrupted, code: int) -> None:
    """But for a sync behind the end of the transaction, of which nobody knows what came."""
    errors: set[type[StoreError]] = set()
    found: list[tuple[str, str, bool]] = []
    for last in count(1):
        disk = interrupted.disk(0)
        failed: list[str] = []

        def fault(kind: str, number: int, last: int = last, failed: list[str] = failed) -> None:
            if number == last:
                failed.append(kind)
                raise OSError(code, "simulated")

        disk.fault = fault
        message = ""
        try:
            interrupted.run(disk)
        except StoreError as error:
            errors.add(type(error))
            message = str(error)
        assert not message or str(interrupted.target) in message
        outcome = interrupted.outcome(disk)
        disk.unregister()
        if not failed:
            break
        assert outcome == ("old" if message else "new") or failed == ["sync"]
        found.append((failed[0], outcome, bool(message)))
    assert sum(outcome == "new" and told for _, outcome, told in found) <= 1
    assert (StoreFull if code == errno.ENOSPC else StoreFailed) in errors


def test_a_directory_that_can_only_be_read_stays_as_it_is(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"
    store.append([b"a"])
    store.backup(target)
    store.append([b"b"])
    before = rows_of(target)

    def connect(path: str, flags: int, vfs: str | None = None) -> apsw.Connection:
        return apsw.Connection(f"file:{path}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | 0x40)

    with monkeypatch.context() as patch:
        patch.setattr(backup_copy, "connect", connect)
        with pytest.raises(StoreReadOnly, match="nothing can be written there"):
            store.backup(target)
    assert rows_of(target) == before
    assert store.backup(target).entries == 1


def test_what_the_store_deletes_meanwhile_is_copied_all_the_same(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"
    store.append([b"a"])
    store.backup(target)
    key = store.append([bytes(LARGE)])[0].key
    announce = backup_copy.Copy.announce

    def meanwhile(self: backup_copy.Copy, ids: list[bytes]) -> None:
        announce(self, ids)
        store.drop(key)
        store.append([b"later"])

    monkeypatch.setattr(backup_copy.Copy, "announce", meanwhile)
    assert store.backup(target).entries == 1
    monkeypatch.undo()
    with Store.open(target, readonly=True) as copy:
        assert faults(copy) == []
        assert copy.log(key).payloads == 2  # type: ignore[union-attr]
    store.backup(target)
    store.backup(tmp_path / "whole")
    assert same(target, tmp_path / "whole")
