"""The format of the database, and how a connection is set up.

    store.sqlite3       what this file describes
    payloads/ab/abcd..  payloads above 64 KiB and unfinished ones; every file has a row in `files`
    author.key          the secret key, readable by its owner only
    node.lock, collect.lock   lock files

Sequence numbers, log ids and sizes take all of u64, which SQLite's integers do not: they are 8-byte
big-endian blobs, which sort like the numbers. `ingest` numbers and byte counts of what is really
held fit an integer.

`logs` caches what could be counted from `entries`; every change of `entries` changes it in the same
transaction and `verify` counts again. The same goes for `runs`, which entries are held above the
height of a log, and for `missing`, whose payloads may be asked for. An entry whose payload arrives
later or goes away gets a new `ingest` number, so that `ORDER BY ingest` is a feed of changes with
one row for each entry.

Since format 3 the row of a log has two sums over the entries held, hidden ones and those without
their payload included: `encoded_bytes`, of their encodings, and `payload_bytes`, what they say that
their payloads take. What is held of payloads is then `bytes` less `encoded_bytes`. Both change only
where entries come or go, and never with payloads. Sizes are what an author claims, up to 2^64 - 1
each, so their sum is a blob of 16 bytes.

Since format 4 the row of a file that is whole has sums of its blocks (blocks.py), which vouch for
themselves.

A `tag` is a CRC-32 over those columns of its row that nothing else vouches for (rows.py).
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import apsw

from .errors import NotAStore, SQLiteTooOld, StoreDamaged, StoreTooNew

APPLICATION_ID: Final = 0x42616D62
FORMAT: Final = 4
"""Kept in `user_version`. A later one is refused; tests/logstore/fixtures keeps one of each.

It is also the id of the one row of `counters`, without which nothing can be written: a process of
an earlier version that has the store open while its format is changed writes nothing any more.
"""

SQLITE_MIN: Final = (3, 51, 3)

PAYLOAD_MISSING: Final = 0
PAYLOAD_INLINE: Final = 1
PAYLOAD_FILE: Final = 2
PAYLOAD_DELETED: Final = 3

FILE_STAGING: Final = 0
"""Being written by a process that holds the file's lock; garbage once nobody does."""
FILE_PARTIAL: Final = 1
"""The first `synced` bytes of a payload, unverified."""
FILE_WHOLE: Final = 2
"""A verified payload whose entry is not stored yet."""
FILE_ATTACHED: Final = 3
"""The payload of an entry."""
FILE_GARBAGE: Final = 4
"""To be removed."""

TABLES: Final = (
    """CREATE TABLE meta(
    name TEXT PRIMARY KEY, value BLOB NOT NULL, tag INTEGER NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE counters(
    id INTEGER PRIMARY KEY,
    ingest INTEGER NOT NULL,
    authored INTEGER NOT NULL,
    tag INTEGER NOT NULL
)""",
    """CREATE TABLE logs(
    id INTEGER PRIMARY KEY,
    author BLOB NOT NULL,
    log_id BLOB NOT NULL,
    height BLOB NOT NULL,
    newest BLOB NOT NULL,
    entries INTEGER NOT NULL,
    payloads INTEGER NOT NULL,
    missing INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    end_seq BLOB,
    fork_seq BLOB,
    invalid_seq BLOB,
    servable BLOB NOT NULL,
    newest_at INTEGER,
    newest_from TEXT,
    changed INTEGER NOT NULL,
    tag INTEGER NOT NULL
)""",
    "CREATE UNIQUE INDEX logs_by_key ON logs(author, log_id)",
    "CREATE INDEX logs_by_change ON logs(changed)",
    """CREATE TABLE entries(
    ingest INTEGER PRIMARY KEY,
    log INTEGER NOT NULL,
    seq BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    payload_state INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    hash BLOB NOT NULL,
    encoded BLOB NOT NULL,
    payload BLOB
)""",
    "CREATE UNIQUE INDEX entries_by_seq ON entries(log, seq)",
    """CREATE TABLE files(
    id BLOB PRIMARY KEY,
    state INTEGER NOT NULL,
    author BLOB,
    log_id BLOB,
    seq BLOB,
    payload_hash BLOB,
    payload_bytes BLOB,
    synced INTEGER NOT NULL,
    sources TEXT NOT NULL,
    tag INTEGER NOT NULL
) WITHOUT ROWID""",
    "CREATE INDEX files_unattached ON files(author, log_id, seq) WHERE state <> 3",
    """CREATE TABLE proofs(
    log INTEGER NOT NULL,
    kind TEXT NOT NULL,
    seq BLOB NOT NULL,
    first BLOB NOT NULL,
    second BLOB NOT NULL,
    tag INTEGER NOT NULL,
    PRIMARY KEY (log, kind)
) WITHOUT ROWID""",
    """CREATE TABLE follows(
    author BLOB NOT NULL, log_id BLOB NOT NULL, tag INTEGER NOT NULL, PRIMARY KEY (author, log_id)
) WITHOUT ROWID""",
    """CREATE TABLE memory(
    name TEXT PRIMARY KEY, value BLOB NOT NULL, tag INTEGER NOT NULL
) WITHOUT ROWID""",
)
"""What every format has."""

INDEX_OF_FORMAT_1: Final = (
    "CREATE INDEX entries_missing ON entries(log, seq) WHERE payload_state = 0"
)

TABLES_SINCE_FORMAT_2: Final = (
    """CREATE TABLE runs(
    log INTEGER NOT NULL, last BLOB NOT NULL, first BLOB NOT NULL, PRIMARY KEY (log, last)
) WITHOUT ROWID""",
    """CREATE TABLE missing(
    log INTEGER NOT NULL,
    seq BLOB NOT NULL,
    payload_bytes BLOB NOT NULL,
    again INTEGER NOT NULL,
    PRIMARY KEY (log, seq)
) WITHOUT ROWID""",
    """CREATE TABLE subscriptions(
    author BLOB NOT NULL,
    log_id BLOB NOT NULL,
    policy TEXT NOT NULL,
    min_bytes BLOB NOT NULL,
    max_bytes BLOB NOT NULL,
    eager_bytes BLOB,
    tag INTEGER NOT NULL,
    PRIMARY KEY (author, log_id)
) WITHOUT ROWID""",
    """CREATE TABLE wants(
    author BLOB NOT NULL,
    log_id BLOB NOT NULL,
    first BLOB NOT NULL,
    last BLOB NOT NULL,
    tag INTEGER NOT NULL,
    PRIMARY KEY (author, log_id, first, last)
) WITHOUT ROWID""",
)

INDEX_SINCE_FORMAT_2: Final = (
    "CREATE INDEX missing_by_size ON missing(log, payload_bytes, seq, again)"
)

COLUMNS_SINCE_FORMAT_3: Final = (
    "encoded_bytes INTEGER NOT NULL DEFAULT 0",
    f"payload_bytes BLOB NOT NULL DEFAULT x'{'00' * 16}'",
)
"""Of `logs`, last. ALTER TABLE adds them to a table that has rows, so they have defaults."""

COLUMN_SINCE_FORMAT_4: Final = "sums BLOB"
"""Of `files`, last."""

BUSY_TIMEOUT_MS: Final = 20_000
"""How long opening, reading, writing and copying the log wait for other processes, each."""
_BUSY_PAUSE_S: Final = 0.02
CACHE_KIB: Final = 16_384
PAGE_BYTES: Final = 4_096
"""SQLite's own choice, with which every store was made."""
INCREMENTAL: Final = 2
"""The mode in which SQLite gives back pages when told to (compacting.py). Stores are made with
it; those of earlier versions have none until they are compacted, and work as well."""
WAL_PAGES: Final = 4_000
"""The write-ahead log is copied into the database each 16 MiB or so."""
WAL_BYTES_KEPT: Final = 64 << 20


def check_sqlite() -> None:
    """Raises SQLiteTooOld where SQLite has the bug of writing processes that reset the WAL."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < SQLITE_MIN:
        raise SQLiteTooOld(
            "this SQLite can lose data when two processes write",
            f"SQLite {version}",
            "install apsw 3.51.3 or newer",
        )


def connect(path: str, flags: int, vfs: str | None = None) -> apsw.Connection:
    """A connection whose every statement waits for other processes: the only way to get one.

    SQLite waits for nobody unless it is told to, and the very first read may meet a process that
    recovers the log of one that was killed, or that is just closing the database as the last one.
    """
    db = apsw.Connection(path, flags=flags, vfs=vfs)
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    return db


def wait_for(act: Callable[[], object]) -> None:
    """Does what SQLite does not wait for itself, as often as that fails because of others.

    Raises apsw.BusyError after BUSY_TIMEOUT_MS.
    """
    end = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            act()
        except apsw.BusyError:
            if time.monotonic() >= end:
                raise
            time.sleep(_BUSY_PAUSE_S)
        else:
            return


def prepare(db: apsw.Connection, *, exclusive: bool, readonly: bool) -> None:
    """Settings that every connection needs."""
    if exclusive:
        # Without shared memory the WAL works as long as one connection keeps the file locked.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA mmap_size = 0")
    if not readonly:
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")


def create_tables(db: apsw.Connection) -> None:
    """Makes an empty database into a store's, inside the caller's transaction."""
    for statement in statements_of(FORMAT):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {FORMAT}")


def statements_of(version: int) -> tuple[str, ...]:
    """What makes the tables of a format."""
    if version == 1:
        return (*TABLES, INDEX_OF_FORMAT_1)
    statements: tuple[str, ...] = (*TABLES, *TABLES_SINCE_FORMAT_2, INDEX_SINCE_FORMAT_2)
    if version > 2:
        statements = _with_columns(statements, "logs", COLUMNS_SINCE_FORMAT_3)
    if version > 3:
        statements = _with_columns(statements, "files", (COLUMN_SINCE_FORMAT_4,))
    return statements


def _with_columns(statements: Iterable[str], table: str, columns: Iterable[str]) -> tuple[str, ...]:
    """What ALTER TABLE makes of a table: `verify` compares schemas by their text."""
    made = f"CREATE TABLE {table}("
    added = "".join(f", {column}" for column in columns)
    return tuple(_inserted(each, added) if each.startswith(made) else each for each in statements)


def _inserted(statement: str, added: str) -> str:
    """Behind the last column, which ends with the last parenthesis."""
    columns, end = statement.rsplit(")", 1)
    return f"{columns}{added}){end}"


def format_of(db: apsw.Connection) -> int:
    """The format that the database says it has."""
    version: int = db.execute("PRAGMA user_version").get
    return version


def has_tables(db: apsw.Connection) -> bool:
    """Whether anything was ever created in the database."""
    count: int = db.execute("SELECT count(*) FROM sqlite_schema").get
    return count != 0


def check_format(db: apsw.Connection, path: Path) -> int:
    """The format, 1 to FORMAT; raises NotAStore, StoreTooNew or StoreDamaged for any other."""
    application_id = db.execute("PRAGMA application_id").get
    version = format_of(db)
    if application_id != APPLICATION_ID:
        raise NotAStore("not a store", path, "name another directory, or run init")
    if version > FORMAT:
        raise StoreTooNew(
            f"the store has format {version}, this version knows {FORMAT}",
            path,
            "install a newer version",
        )
    if version < 1:
        raise StoreDamaged(
            f"the store says format {version}, which never existed", path, "restore a backup"
        )
    return version
