"""A store of format 1 is brought to format 2, or read as it is: logstore/migration.py."""

from pathlib import Path

import apsw
import pytest

from logstore import (
    FULL,
    LogVerdict,
    PolicyKind,
    Store,
    StoreDamaged,
    StoreLocked,
    StoreTooNew,
    Subscription,
)
from logstore.database import Database
from logstore.schema import INDEX_OF_FORMAT_1
from tests.logstore.authors import AuthorLog, signing_key

LOG = AuthorLog(1)
ENTRIES = LOG.add_all(range(1, 41))
HELD = [1, 2, 3, 4, 13, 14, 15, 40]
WITHOUT_PAYLOAD = {2, 14, 40}
RUNS = [(1, 4), (13, 15), (40, 40)]


def make_old(path: Path) -> Path:
    """What a version that knew format 1 would have left."""
    with Store.create(path, signing_key=signing_key(9)) as store:
        store.append([b"own"])
        put(store, HELD)
        store.follow(LOG.key)
    db = apsw.Connection(str(path / "store.sqlite3"))
    for table in ("runs", "missing", "subscriptions", "wants"):
        db.execute(f"DROP TABLE {table}")
    db.execute(INDEX_OF_FORMAT_1)
    db.execute("UPDATE counters SET id = 1")
    db.execute("PRAGMA user_version = 1")
    db.close()
    return path


def put(store: Store, seqs: list[int]) -> None:
    entries = [ENTRIES[seq - 1] for seq in seqs]
    store.put_entries(
        LOG.key,
        [
            LOG.make(e.seq, e.payload, held=False) if e.seq in WITHOUT_PAYLOAD else e  # type: ignore[arg-type]
            for e in entries
        ],
        source="peer",
    )


def check(store: Store) -> None:
    assert store.runs(LOG.key, limit=9) == RUNS
    assert store.missing_payloads(LOG.key, limit=9) == sorted(WITHOUT_PAYLOAD)
    assert store.subscriptions() == {LOG.key: FULL}
    assert store.wants() == {}
    assert store.position() > 0
    assert all(isinstance(found, LogVerdict) for found in store.verify())


def format_of(path: Path) -> int:
    db = apsw.Connection(str(path / "store.sqlite3"), apsw.SQLITE_OPEN_READONLY)
    found: int = db.execute("PRAGMA user_version").get
    db.close()
    return found


def test_opening_brings_a_store_to_the_new_format(tmp_path: Path) -> None:
    path = make_old(tmp_path / "store")
    for _ in range(2):
        with Store.open(path) as store:
            check(store)
            assert format_of(path) == 2
    with Store.open(path) as store:
        put(store, [5, 16])
        assert store.runs(LOG.key, limit=9) == [(1, 5), (13, 16), (40, 40)]
        store.follow(LOG.key, Subscription(PolicyKind.SPARSE))
        assert store.append([b"next"])[0].seq == 2


def test_reading_an_earlier_store_changes_nothing(tmp_path: Path) -> None:
    path = make_old(tmp_path / "store")
    before = (path / "store.sqlite3").read_bytes()
    with Store.open(path, readonly=True) as store:
        check(store)
        check(store)
    assert (path / "store.sqlite3").read_bytes() == before


def test_a_reader_goes_on_when_the_store_is_brought_to_the_new_format(tmp_path: Path) -> None:
    path = make_old(tmp_path / "store")
    with Store.open(path, readonly=True) as reader:
        check(reader)
        with Store.open(path) as writer:
            check(reader)
            put(writer, [5])
            writer.follow(LOG.key, Subscription(PolicyKind.SPARSE))
            assert reader.runs(LOG.key, limit=1) == [(1, 5)]
            assert reader.subscriptions() == writer.subscriptions()


def test_a_node_of_an_earlier_version_is_left_alone(tmp_path: Path) -> None:
    """It would find its store's format changed under its hands."""
    path = make_old(tmp_path / "store")
    with Store.open(path, readonly=True) as reader, reader.lock_node():
        with pytest.raises(StoreLocked, match="node of an earlier version"):
            Store.open(path)
        assert format_of(path) == 1


def test_two_processes_may_come_to_bring_it_to_this_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_old(tmp_path / "store")
    migrate = Database.migrate
    others: list[Store] = []

    def both(database: Database) -> None:
        if not others:
            others.append(Store.memory())
            others.append(Store.open(path))
        migrate(database)

    monkeypatch.setattr(Database, "migrate", both)
    with Store.open(path) as store:
        check(store)
        check(others[1])
    for other in others:
        other.close()


def test_a_process_of_another_version_writes_nothing(tmp_path: Path) -> None:
    """Neither an earlier one, which finds no counters, nor this one when a later one came."""
    path = make_old(tmp_path / "store")
    with Store.open(path) as store:
        db = apsw.Connection(str(path / "store.sqlite3"))
        assert db.execute("SELECT 1 FROM counters WHERE id = 1").get is None
        db.execute("PRAGMA user_version = 3")
        db.close()
        with pytest.raises(StoreTooNew, match="format 3"):
            store.append([b"x"])


def test_a_damaged_entry_does_not_keep_its_store_from_being_opened(tmp_path: Path) -> None:
    path = make_old(tmp_path / "store")
    db = apsw.Connection(str(path / "store.sqlite3"))
    db.execute("UPDATE entries SET encoded = x'00' WHERE hash = ?", (ENTRIES[13].hash,))
    db.close()
    with Store.open(path) as store:
        assert store.missing_payloads(LOG.key, limit=9) == sorted(WITHOUT_PAYLOAD)
        assert not all(isinstance(found, LogVerdict) for found in store.verify())


def test_a_failed_migration_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = make_old(tmp_path / "store")
    db = apsw.Connection(str(path / "store.sqlite3"))
    db.execute("UPDATE logs SET height = 'text' WHERE author = ?", (LOG.key.author,))
    db.close()
    with pytest.raises(StoreDamaged):
        Store.open(path)
    assert format_of(path) == 1
    db = apsw.Connection(str(path / "store.sqlite3"))
    db.execute("UPDATE logs SET height = ? WHERE height = 'text'", (bytes(7) + b"\x04",))
    db.close()
    with Store.open(path) as store:
        check(store)
