"""Making and opening stores, and the errors on the way: logstore/opening.py, database.py."""

import errno
import os
import sqlite3
from pathlib import Path

import apsw
import pytest

import logstore
from logstore import (
    KeyFileWrong,
    NotAStore,
    SQLiteTooOld,
    Store,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreFailed,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
)
from logstore.database import Database
from logstore.errors import from_apsw_error, from_os_error
from tests.logstore.authors import AuthorLog, signing_key
from wire import LogKey


def pragma(path: Path, statement: str) -> None:
    db = apsw.Connection(str(path / "store.sqlite3"))
    db.execute(statement)
    db.close()


def closed(store: Store) -> Path:
    store.close()
    assert store.path is not None
    return store.path


def test_what_is_created_can_be_opened(tmp_path: Path) -> None:
    with Store.create(tmp_path / "a" / "b") as store:
        author = store.author
    with Store.open(tmp_path / "a" / "b") as store:
        assert store.author == author
        assert store.path == tmp_path / "a" / "b"


def test_a_store_is_never_overwritten(store: Store) -> None:
    path = closed(store)
    with pytest.raises(StoreExists):
        Store.create(path)
    with Store.open(path) as again:
        assert again.author == store.author


def test_of_two_that_make_a_store_at_a_time_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one had seen that there is none."""
    key = signing_key(1)
    made = Store.create(tmp_path / "store", signing_key=key)
    made.append([b"kept"])
    monkeypatch.setattr(Database, "is_created", lambda _: False)
    with pytest.raises(StoreExists, match="there is a store already"):
        Store.create(tmp_path / "store", signing_key=key)
    assert [
        each.payload
        for each in made.read(
            LogKey(made.author, 0), 1, entries_max=9, bytes_max=99, with_payload=False
        )
    ] == [b"kept"]
    made.close()


def test_an_interrupted_create_goes_on_with_the_key_it_wrote(tmp_path: Path) -> None:
    logstore.write_key_file(tmp_path / "author.key", signing_key(3))
    (tmp_path / "store.sqlite3").touch()
    with pytest.raises(KeyFileWrong, match="another author's"):
        Store.create(tmp_path, signing_key=signing_key(4))
    with Store.create(tmp_path) as store:
        assert store.author == bytes(signing_key(3).verify_key)


@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_no_store_is_said_to_be_none(tmp_path: Path, readonly: bool) -> None:
    for make in (lambda: None, lambda: (tmp_path / "store.sqlite3").write_bytes(b"text" * 500)):
        make()
        with pytest.raises(NotAStore):
            Store.open(tmp_path, readonly=readonly)
    (tmp_path / "store.sqlite3").unlink()
    db = sqlite3.connect(tmp_path / "store.sqlite3")
    db.execute("CREATE TABLE t(a)")
    db.commit()
    db.close()
    with pytest.raises(NotAStore):
        Store.open(tmp_path, readonly=readonly)
    with pytest.raises(NotAStore):
        Store.open(tmp_path / "nothing", readonly=readonly)


def test_a_later_format_is_refused(store: Store) -> None:
    path = closed(store)
    pragma(path, "PRAGMA user_version = 5")
    with pytest.raises(StoreTooNew, match="format 5"):
        Store.open(path)
    pragma(path, "PRAGMA user_version = 0")
    with pytest.raises(StoreDamaged, match="never existed"):
        Store.open(path)


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(SQLiteTooOld, match="install apsw"):
        Store.create(tmp_path)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    Store.create(tmp_path).close()


def test_a_store_opened_for_reading_refuses_changes(store: Store) -> None:
    key = store.append([b"a"])[0].key
    log = AuthorLog()
    assert store.path is not None
    with Store.open(store.path, readonly=True) as reader:
        assert reader.readonly
        assert reader.entry(key, 1) is not None
        assert len(list(reader.verify())) == 1
        for change in (
            lambda: reader.append([b"b"]),
            lambda: reader.put_entries(log.key, [log.add(1)], source="p"),
            lambda: reader.drop(key),
            reader.confirm_identity,
        ):
            with pytest.raises(StoreReadOnly):
                change()
        before = reader.data_version()
        store.append([b"b"])
        assert reader.data_version() != before
        assert reader.log(key).newest == 2  # type: ignore[union-attr]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_read_only(store: Store) -> None:
    path = closed(store)
    path.chmod(0o555)
    try:
        with Store.open(path, readonly=True) as reader:
            assert list(reader.logs()) == []
        with pytest.raises(StoreReadOnly):
            Store.open(path)
    finally:
        path.chmod(0o755)


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    for call in (lambda: store.append([b"a"]), lambda: list(store.logs()), store.data_version):
        with pytest.raises(StoreClosed):
            call()


def test_a_second_node_is_told_which_process_serves(store: Store) -> None:
    assert store.path is not None
    with Store.open(store.path) as other:
        with store.lock_node():
            with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
                other.lock_node()
            other.append([b"a"])
        other.lock_node().close()


def test_a_store_in_memory_is_served_without_a_lock(memory: Store) -> None:
    with memory.lock_node(), memory.lock_node():
        assert memory.path is None


def test_errors_are_one_line_that_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("there is no store: ")
    assert str(tmp_path) in text
    assert text.endswith("; name another directory, or run init")


@pytest.mark.parametrize(
    ("code", "name", "line"),
    [
        (errno.ENOSPC, "StoreFull", "the disk is full: x; free space and try again"),
        (
            errno.EROFS,
            "StoreReadOnly",
            "the file system can only be read: x; mount it for writing, or use another",
        ),
        (errno.EACCES, "StoreReadOnly", "no permission: x; use an account that has it"),
        (
            errno.ENOENT,
            "StoreFailed",
            "the file or its directory does not exist: x; see whether the path is right",
        ),
        (
            errno.EIO,
            "StoreFailed",
            "the disk failed (Input/output error): x; look at the disk, then start again",
        ),
    ],
)
def test_errors_of_the_operating_system_get_names(code: int, name: str, line: str) -> None:
    error = from_os_error(OSError(code, os.strerror(code)), "x")
    assert (type(error).__name__, str(error)) == (name, line)


def test_a_payload_file_that_does_not_exist_is_no_fault_of_the_disk(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=r"does not exist: .*/nothing; see whether"):
        store.append([tmp_path / "nothing"])
    assert store.append([b"one"])[0].seq == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [("s\udcff", "UTF-8: "), ("s\0", "zero byte: ")],
)
def test_a_path_that_no_database_can_have_is_named(
    store: Store, tmp_path: Path, name: str, reason: str
) -> None:
    path = tmp_path / name
    for attempt in (Store.create, Store.open, store.backup):
        with pytest.raises(StoreError, match=reason) as caught:
            attempt(path)
        assert not isinstance(caught.value, NotAStore)
        # Whoever reads it may have a terminal that takes nothing but UTF-8.
        assert str(tmp_path / "s").encode() in str(caught.value).encode()
    assert [each.name for each in tmp_path.iterdir()] == [Path(store.path or "").name]


def test_the_folder_of_a_store_may_not_be_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        Store.create(tmp_path / "file" / "store")


def test_a_transaction_that_fails_leaves_no_trace(store: Store) -> None:
    def fail() -> None:
        with store._database.write() as transaction:
            transaction.take_ingest(5)
            transaction.db.execute("INSERT INTO memory VALUES ('a', x'00', 0)")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.position() == 0
    assert store.recall("a") is None


def test_another_writer_that_never_ends_is_an_error_with_a_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.schema.BUSY_TIMEOUT_MS", 1)
    assert store.path is not None
    with Store.open(store.path) as other, store._database.write():
        with pytest.raises(StoreLocked, match="writing for too long"):
            other.append([b"a"])
        assert list(other.logs()) == []
    assert store.append([b"b"])[0].seq == 1


def test_a_database_in_a_place_that_cannot_be_written_to_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = apsw.exception_for(apsw.SQLITE_CANTOPEN)
    assert isinstance(error, apsw.Error)
    assert isinstance(from_apsw_error(error, tmp_path), StoreFailed)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert isinstance(from_apsw_error(error, tmp_path), StoreReadOnly)
