"""Copies made while the store is written to: logstore/backup.py."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from logstore import LogVerdict, OwnLogsReadOnly, Store, StoreExists, StoreLocked, backup
from tests.logstore.authors import AuthorLog
from tests.payload_files import payload_files
from wire import yamf_hash

TOP = Path(__file__).resolve().parents[2]
LARGE = bytes(range(256)) * 300


def test_a_backup_is_a_store_whose_own_logs_are_read_only(store: Store, tmp_path: Path) -> None:
    key = store.append([b"a", LARGE])[0].key
    log = AuthorLog()
    store.put_entries(log.key, log.add_all(range(1, 9)), source="peer")
    with store.payload_sink(log.key, 9, len(LARGE), yamf_hash(LARGE), source="peer") as sink:
        sink.write(LARGE[:1000])
    store.follow(log.key)
    store.backup(tmp_path / "backup")
    with Store.open(tmp_path / "backup") as copy:
        assert list(copy.logs()) == list(store.logs())
        assert copy.open_payload(key, 2).read(0, len(LARGE)) == LARGE
        assert copy.changes(0, 100) == store.changes(0, 100)
        assert copy.follows() == store.follows()
        assert all(isinstance(found, LogVerdict) for found in copy.verify())
        with pytest.raises(OwnLogsReadOnly, match="is a backup"):
            copy.append([b"b"])
        copy.confirm_identity()
        assert copy.append([b"b"])[0].seq == 3
    with pytest.raises(OwnLogsReadOnly, match="another store"):
        store.append([b"c"])


def test_keys_of_gateways_are_in_a_backup(store: Store, tmp_path: Path) -> None:
    assert store.path is not None
    (store.path / "swarm.key").write_text("11" * 32 + "\n")
    (store.path / "torn.key").write_text("none")
    store.backup(tmp_path / "backup")
    for name, text in (("swarm.key", "11" * 32 + "\n"), ("torn.key", "none")):
        copy = tmp_path / "backup" / name
        assert copy.read_text() == text
        assert copy.stat().st_mode & 0o777 == 0o600


def test_a_backup_goes_into_an_empty_directory_only(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreExists):
        store.backup(tmp_path)


def killed_backup(store: Store, target: Path) -> None:
    """A backup that a signal ends when all is copied and nothing has its name."""
    program = """if True:
        import os, signal, sys
        from logstore import Store, backup
        backup._mark = lambda _: os.kill(os.getpid(), signal.SIGTERM)
        with Store.open(sys.argv[1]) as store:
            store.backup(sys.argv[2])
    """
    command = [sys.executable, "-c", program, str(store.path), str(target)]
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGTERM


def test_a_backup_that_was_killed_is_replaced_by_the_next(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    store.append([b"a", LARGE])
    killed_backup(store, target)
    left = {each.name for each in target.iterdir()}
    assert {"store.sqlite3.unfinished", "payloads"} <= left
    store.drop(next(store.logs()).key, 2)
    store.append([b"b"])
    store.backup(target)
    assert {each.name for each in target.iterdir()} == {"store.sqlite3", "payloads", "author.key"}
    with Store.open(target, readonly=True) as copy:
        assert next(copy.logs()).height == 3
    assert [path for path in (target / "payloads").rglob("*") if path.is_file()] == []


def test_what_stands_beside_a_backup_that_was_killed_is_left_alone(
    store: Store, tmp_path: Path
) -> None:
    target = tmp_path / "backup"
    killed_backup(store, target)
    (target / "precious").touch()
    before = sorted(target.rglob("*"))
    with pytest.raises(StoreExists):
        store.backup(target)
    assert sorted(target.rglob("*")) == before


def test_a_backup_that_is_being_written_is_not_taken_for_one_that_was_killed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"
    mark = backup._mark
    refused = []

    def meanwhile(copy: apsw.Connection) -> None:
        with pytest.raises(StoreLocked, match="another backup is being written there") as caught:
            store.backup(target)
        refused.append(caught.value)
        mark(copy)

    store.append([b"a", LARGE])
    monkeypatch.setattr(backup, "_mark", meanwhile)
    store.backup(target)
    assert len(refused) == 1
    with Store.open(target, readonly=True) as copy:
        assert all(isinstance(found, LogVerdict) for found in copy.verify())


def test_a_store_opened_for_reading_and_one_in_memory_can_be_backed_up(
    store: Store, memory: Store, tmp_path: Path
) -> None:
    store.append([b"a", LARGE])
    memory.append([b"b", LARGE])
    assert store.path is not None
    with Store.open(store.path, readonly=True) as reader:
        reader.backup(tmp_path / "one")
    memory.backup(tmp_path / "two")
    for name in ("one", "two"):
        with Store.open(tmp_path / name, readonly=True) as copy:
            assert next(copy.logs()).payloads == 2


def test_a_backup_beside_a_writer_is_consistent(store: Store, tmp_path: Path) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                key = store.append([b"x" * 100] * 20 + [LARGE])[0].key
                store.drop(key, store.log(key).newest - 30)  # type: ignore[union-attr]
        except BaseException as error:  # noqa: BLE001 (reported by the test itself)
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            store.backup(tmp_path / f"backup{number}")
    finally:
        stop.set()
        writer.join()
    assert failures == []
    for number in range(5):
        with Store.open(tmp_path / f"backup{number}") as copy:
            assert [str(f) for f in copy.verify() if not isinstance(f, LogVerdict)] == []
    # What was dropped while a backup kept it is collected later.
    store.drop(next(store.logs()).key)
    assert store.path is not None
    with Store.open(store.path):
        assert payload_files(store.path) == []
