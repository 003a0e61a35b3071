"""A store of an earlier format is brought to this one, or read so: logstore/migration.py."""

import errno
from pathlib import Path

import apsw
import pytest

from logstore import (
    FULL,
    LogVerdict,
    PolicyKind,
    Store,
    StoreDamaged,
    StoreError,
    StoreLocked,
    StoreTooNew,
    Subscription,
)
from logstore.database import Database
from logstore.files import load_sums
from logstore.rows import load_log, load_logs_after
from logstore.schema import INDEX_OF_FORMAT_1
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.disk import PowerCutError, SimDisk

LOG = AuthorLog(1)
ENTRIES = LOG.add_all(range(1, 41))
HELD = [1, 2, 3, 4, 13, 14, 15, 40]
WITHOUT_PAYLOAD = {2, 14, 40}
RUNS = [(1, 4), (13, 15), (40, 40)]
FEED = (
    "SELECT ingest FROM entries CROSS JOIN logs ON logs.id = entries.log"
    " WHERE ingest > ? AND seq <= servable ORDER BY ingest LIMIT ?"
)


def fill(store: Store) -> None:
    store.append([b"own"])
    put(store, HELD)
    store.follow(LOG.key)


def make_older(db: apsw.Connection, version: int) -> None:
    """The database as a version that knew this format would have left it."""
    db.execute("ALTER TABLE files DROP COLUMN sums")
    if version < 3:
        for column in ("payload_bytes", "encoded_bytes"):
            db.execute(f"ALTER TABLE logs DROP COLUMN {column}")
    if version == 1:
        for table in ("runs", "missing", "subscriptions", "wants"):
            db.execute(f"DROP TABLE {table}")
        db.execute(INDEX_OF_FORMAT_1)
    db.execute("UPDATE counters SET id = ?", (version,))
    db.execute(f"PRAGMA user_version = {version}")


def make_old(path: Path, version: int = 1) -> Path:
    with Store.create(path, signing_key=signing_key(9)) as store:
        fill(store)
    db = apsw.Connection(str(path / "store.sqlite3"))
    make_older(db, version)
    db.close()
    return path


@pytest.fixture(params=[1, 2, 3])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of each earlier format."""
    return make_old(tmp_path / "store", request.param)


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
    info = store.log(LOG.key)
    assert info is not None
    sizes = {seq: len(ENTRIES[seq - 1].payload) for seq in store_seqs(store)}  # type: ignore[arg-type]
    assert info.payload_bytes_total == sum(sizes.values())
    assert info.payload_bytes_held == sum(sizes[seq] for seq in sizes if seq not in WITHOUT_PAYLOAD)
    assert all(isinstance(found, LogVerdict) for found in store.verify())


def store_seqs(store: Store) -> list[int]:
    return [seq for first, last in store.runs(LOG.key, limit=99) for seq in range(first, last + 1)]


def format_of(path: Path) -> int:
    db = apsw.Connection(str(path / "store.sqlite3"), apsw.SQLITE_OPEN_READONLY)
    found: int = db.execute("PRAGMA user_version").get
    db.close()
    return found


def test_opening_brings_a_store_to_the_new_format(old: Path) -> None:
    path = old
    for _ in range(2):
        with Store.open(path) as store:
            check(store)
            assert format_of(path) == 4
    with Store.open(path) as store:
        put(store, [5, 16])
        assert store.runs(LOG.key, limit=9) == [(1, 5), (13, 16), (40, 40)]
        store.follow(LOG.key, Subscription(PolicyKind.SPARSE))
        assert store.append([b"next"])[0].seq == 2


def test_reading_an_earlier_store_changes_nothing(old: Path) -> None:
    path = old
    before = (path / "store.sqlite3").read_bytes()
    with Store.open(path, readonly=True) as store:
        check(store)
        check(store)
    assert (path / "store.sqlite3").read_bytes() == before


def test_a_reader_looks_logs_up_by_their_indices_as_before(old: Path) -> None:
    """Of a view that is not resolved into the query, each look-up would read all rows."""
    logs = "l" if format_of(old) < 3 else "logs"
    with Store.open(old, readonly=True) as store, store._database.read() as db:
        asked: list[str] = []
        db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: asked.append(event["sql"]))
        load_log(db, LOG.key)
        load_logs_after(db, None, None, 10)
        load_sums(db, b"id")
        db.trace_v2(0)
        asked.append(FEED)
        assert len(asked) == 4
        for query in asked:
            bindings = (b"",) * query.count("?")
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", bindings)]
            found = "main.files" if "FROM files" in query else logs
            assert any(f"SEARCH {found} USING" in step for step in plan), plan
            assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan), plan


def test_a_reader_goes_on_when_the_store_is_brought_to_the_new_format(old: Path) -> None:
    path = old
    with Store.open(path, readonly=True) as reader:
        check(reader)
        with Store.open(path) as writer:
            check(reader)
            put(writer, [5])
            writer.follow(LOG.key, Subscription(PolicyKind.SPARSE))
            assert reader.runs(LOG.key, limit=1) == [(1, 5)]
            assert reader.subscriptions() == writer.subscriptions()


def test_a_node_of_an_earlier_version_is_left_alone(old: Path) -> None:
    """It would find its store's format changed under its hands."""
    path, before = old, format_of(old)
    with Store.open(path, readonly=True) as reader, reader.lock_node():
        with pytest.raises(StoreLocked, match="node of an earlier version"):
            Store.open(path)
        assert format_of(path) == before


def test_two_processes_may_come_to_bring_it_to_this_format(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old
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


def test_a_process_of_another_version_writes_nothing(old: Path) -> None:
    """Neither an earlier one, which finds no counters, nor this one when a later one came."""
    path, before = old, format_of(old)
    with Store.open(path) as store:
        db = apsw.Connection(str(path / "store.sqlite3"))
        assert db.execute("SELECT 1 FROM counters WHERE id = ?", (before,)).get is None
        db.execute("PRAGMA user_version = 5")
        db.close()
        with pytest.raises(StoreTooNew, match="format 5"):
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


def test_sums_are_written_in_parts_where_there_are_many_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of several logs in turns, of which one alone is summed up in memory at a time."""
    path = tmp_path / "store"
    with Store.create(path, signing_key=signing_key(9)) as store:
        for payload in (b"a", b"bcd"):
            store.append_many([(log_id, [payload * log_id]) for log_id in range(1, 6)])
        expected = {info.key: (info.bytes, info.payload_bytes_total) for info in store.logs()}
    db = apsw.Connection(str(path / "store.sqlite3"))
    make_older(db, 2)
    db.close()
    monkeypatch.setattr("logstore.migration._SUMS_MAX", 1)
    for readonly in (True, False):
        with Store.open(path, readonly=readonly) as store:
            found = {info.key: (info.bytes, info.payload_bytes_total) for info in store.logs()}
            assert found == expected
            assert all(isinstance(each, LogVerdict) for each in store.verify())


def test_what_authors_claim_may_be_more_than_any_integer(tmp_path: Path) -> None:
    log = AuthorLog(5)
    claims = [log.add(seq, b"", payload_bytes=2**64 - 1, held=False) for seq in range(1, 4)]
    path = tmp_path / "store"
    with Store.create(path, signing_key=signing_key(9)) as store:
        store.put_entries(log.key, claims, source="peer")
    db = apsw.Connection(str(path / "store.sqlite3"))
    make_older(db, 2)
    db.close()
    for readonly in (True, False):
        with Store.open(path, readonly=readonly) as store:
            info = store.log(log.key)
            assert info is not None
            assert (info.payload_bytes_held, info.payload_bytes_total) == (0, 3 * (2**64 - 1))
            assert all(isinstance(found, LogVerdict) for found in store.verify())


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_power_may_go_at_each_step_of_it(tmp_path: Path, version: int) -> None:
    """The store has the one format or the other, whole."""
    outcomes = set()
    finished = False
    for steps in range(1, 200):
        disk = SimDisk(steps)
        folder = tmp_path / str(steps)
        with Store.create(folder, signing_key=signing_key(9), system=disk) as store:
            fill(store)
        db = apsw.Connection(str(folder / "store.sqlite3"), vfs=disk.vfs)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        make_older(db, version)
        db.close()
        last = disk.operations + steps

        def fault(kind: str, number: int, last: int = last) -> None:
            if number >= last:
                raise PowerCutError(errno.EIO, "no power")

        disk.fault = fault
        try:
            Store.open(folder, system=disk).close()
            finished = disk.operations < last
        except StoreError:
            finished = False
        disk.cut_power()
        db = apsw.Connection(str(folder / "store.sqlite3"), vfs=disk.vfs)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        outcomes.add(db.execute("PRAGMA user_version").get)
        db.close()
        with Store.open(folder, system=disk) as store:
            check(store)
        disk.unregister()
        if finished:
            break
    assert finished
    assert outcomes == {version, 4}
