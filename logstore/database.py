"""Connections to the database: one that writes, some that read, and what happens when they fail.

Theory. Every process has one writing connection under a lock; a write is one BEGIN IMMEDIATE ..
COMMIT, so the writers of all processes stand in one queue, and with `synchronous=FULL` COMMIT
returns after the sync. Reads take a connection of a small pool for one short snapshot, so that they
neither wait for a write nor keep the write-ahead log from being emptied. The pool has a lock of its
own: that of the writer is held while the disk syncs, and a look-up would wait for each of them.

After a failure of the disk nothing that this process believes is worth anything: all connections
are closed, and the next call opens new ones and reads from disk; before, the write-ahead log is
written once more (rewriting.py), as a sync of it may have failed. So it is when a process opens the
store: the one before may have been killed between such a failure and that. Then the log is copied
into the database: what was left behind by a process that was killed between writing a commit and
syncing it is thereby synced before anybody sees it. SQLite itself copies nothing when a connection
is closed, unless all went well.

The log is emptied by copying it, which has to go on working when the disk is full. So there is room
in the reserve for what the database will grow by before anything is committed (reserve.py), and it
is given back when the copying finds none. Whoever frees space may use what is there for that.

A store in memory, or on a VFS without shared memory, has one connection for everything.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import apsw

from .errors import (
    NotAStore,
    StoreClosed,
    StoreExists,
    StoreFailed,
    StoreReadOnly,
    StoreTooNew,
    is_full,
    row_translated,
    translated,
)
from .log_copying import LogCopying, checkpoint
from .migration import migrate, stand_in
from .readers import Inside, Readers, ReadInside
from .reserve import Reserve
from .rewriting import take_back, write_again
from .rows import row_tag
from .schema import (
    FORMAT,
    PAGE_BYTES,
    check_format,
    check_sqlite,
    connect,
    create_tables,
    format_of,
    has_tables,
    prepare,
    wait_for,
)
from .system import System

DATABASE: Final = "store.sqlite3"
_SPENDING_ATTEMPTS: Final = 4
"""Others may take the room that is given back; not all of it is to be lost to them."""

# These say nothing about the disk: the transaction is rolled back and the connection stays.
_HARMLESS = (apsw.BusyError, apsw.LockedError, apsw.InterruptError)


def close_now(db: apsw.Connection) -> None:
    """Closes a connection whatever its cursors are doing."""
    db.close(True)  # noqa: FBT003 (the parameter is positional)


def _use_log(db: apsw.Connection) -> None:
    """Turns the write-ahead log on, for which SQLite goes from reading to writing.

    It waits for nobody there, lest two that do so wait for each other.
    """
    wait_for(lambda: db.execute("PRAGMA journal_mode = WAL"))


def _page_count(db: apsw.Connection) -> int:
    count: int = db.execute("PRAGMA page_count").get
    return count


class Transaction:
    """What a write works with: the connection, the time, and the next ingest numbers."""

    __slots__ = (
        "_authored",
        "_changed",
        "_ingest",
        "changes_wishes",
        "db",
        "now_us",
        "wants_nothing",
    )

    def __init__(self, db: apsw.Connection, now_us: int, ingest: int, authored: int) -> None:
        """`ingest`, `authored`: the counters as they are."""
        self.db = db
        self.now_us = now_us
        self._ingest = ingest
        self._authored = authored
        self._changed = False
        self.changes_wishes = False
        """Whether it changes what is followed, wanted or contested (`wishes_version`)."""
        self.wants_nothing = False
        """Whether it has seen that nothing is wanted (`wants.py`)."""

    @property
    def ingest(self) -> int:
        """The last ingest number that was taken, by whomever."""
        return self._ingest

    @property
    def authored(self) -> int:
        """How many own entries were ever signed, those of this transaction included."""
        return self._authored

    def take_ingest(self, count: int = 1) -> int:
        """The first of `count` new ingest numbers."""
        first = self._ingest + 1
        self._ingest += count
        self._changed = True
        return first

    def count_authored(self, count: int) -> None:
        """Counts own entries that were signed."""
        self._authored += count
        self._changed = True

    def finish(self) -> None:
        """Writes the counters back, right before the commit."""
        if self._changed:
            tag = row_tag(self._ingest, self._authored)
            self.db.execute(
                "UPDATE counters SET ingest = ?, authored = ?, tag = ? WHERE id = ?",
                (self._ingest, self._authored, tag, FORMAT),
            )


class Database:
    """The connections of one process. Every method may be called from any thread."""

    def __init__(self, folder: Path | None, system: System, *, readonly: bool = False) -> None:
        check_sqlite()
        self.where: Final[str | Path] = "memory" if folder is None else folder
        self.readonly: Final = readonly
        self.reserve: Final = Reserve(folder, system)
        self._path = None if folder is None else folder / DATABASE
        self._system = system
        self._single = folder is None or system.single_connection
        self._lock = threading.RLock()
        """Of the writing connection; held for as long as a transaction takes."""
        self._inside = Inside()
        self._writer: apsw.Connection | None = None
        self._readers = Readers()
        self._watcher: apsw.Connection | None = None
        self._commits = 0
        self._wishes = 0
        self._log_copying = LogCopying()
        self._pages = 0
        """The pages for which there is room, in the database or in the reserve."""
        self.look: Callable[[apsw.Connection], None] = lambda _: None
        """Sees the database each time it is opened, before the rest of this process does: at first
        before its files are written to, and again after each failure."""
        self._closed = False
        self._is_old = False
        self._has_failed = not readonly
        """Whether something may have failed since the write-ahead log was last written again: a
        process that was killed says nothing of it.
        """
        self._has_lost = False
        """Whether that may have been a sync, and not only for want of room to write."""

    @property
    def path(self) -> Path | None:
        """The database file, None in memory."""
        return self._path

    def create(self) -> apsw.Connection:
        """The writing connection to a database that may not exist yet, before any table."""
        with self._lock, translated(self.where):
            if self._writer is None:
                self._writer = self._connect(create=True)
                self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
                _use_log(self._writer)
                self._has_failed = False
            return self._writer

    def create_tables(self, rows: list[tuple[str, bytes]]) -> None:
        """Makes the tables with these rows of `meta`, all or nothing. Raises StoreExists."""
        db = self.create()
        with self._lock, translated(self.where):
            db.execute("BEGIN IMMEDIATE")
            try:
                self._fill(db, rows)
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise

    def _fill(self, db: apsw.Connection, rows: list[tuple[str, bytes]]) -> None:
        if has_tables(db):
            # Two may make a store at a time, and neither has seen one when it began.
            raise StoreExists("there is a store already", self.where, "choose another directory")
        create_tables(db)
        for name, value in rows:
            db.execute("INSERT INTO meta VALUES (?, ?, ?)", (name, value, row_tag(name, value)))
        db.execute("INSERT INTO counters VALUES (?, 0, 0, ?)", (FORMAT, row_tag(0, 0)))

    def is_created(self) -> bool:
        """Whether the database has tables."""
        with self._lock, translated(self.where):
            return has_tables(self.create())

    def open(self) -> None:
        """Checks that there is a store to open; raises the error that says what is wrong."""
        if self._path is None or not self._is_there(self._path):
            raise NotAStore("there is no store", self.where, "name another directory, or run init")
        with self.read() as db:
            self._is_old = format_of(db) < FORMAT
            self.look(db)
        if not self.readonly:
            with self._lock, translated(self.where):
                self._open_writer()

    @property
    def is_old(self) -> bool:
        """Whether the store has an earlier format; only `migrate` may write to it."""
        return self._is_old

    def migrate(self) -> None:
        """Brings the store to this version's format."""
        with self._lock, row_translated(self.where):
            migrate(self._open_writer())
            self._is_old = False

    def close(self) -> None:
        """Closes every connection that is not in use; the others close when their call ends."""
        with self._lock:
            self._closed = True
            if self._writer is not None and not self._has_failed:
                self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            is_open = self._writer is not None and self._path is not None
            self._close_all()
            if is_open and not self.readonly and not self._has_log():
                self.reserve.trim()

    @contextmanager
    def write(self, *, frees: bool = False) -> Iterator[Transaction]:
        """One durable transaction: on disk when the block has been left, or without a trace.

        `frees`: it may use the room that is kept for what frees space.
        """
        if self.readonly:
            raise StoreReadOnly("the store was opened for reading", self.where, "open it to write")
        with self._lock, translated(self.where):
            db = self._open_writer()
            try:
                db.execute("BEGIN IMMEDIATE")
                transaction = self._begun(db)
                yield transaction
                transaction.finish()
                pages = _page_count(db)
                if pages > self._pages:
                    self.reserve.cover(self._growth(pages), frees=frees)
                db.execute("COMMIT")
                self._pages, self._commits = pages, self._commits + 1
                self._wishes += transaction.changes_wishes
                self._log_copying.committed(db)
            except BaseException as error:
                self._give_up(db, error)
                raise

    def _begun(self, db: apsw.Connection) -> Transaction:
        # All of it in one statement: each lets go of the interpreter's lock.
        found = db.execute(
            "SELECT ingest, authored, (SELECT page_count FROM pragma_page_count)"
            " FROM counters, pragma_user_version WHERE id = ? AND user_version = ?",
            (FORMAT, FORMAT),
        ).fetchone()
        if found is None:
            self._check_unchanged(db)
            raise apsw.CorruptError("no counters")
        ingest, authored, pages = found
        # Another process may have made it shorter (compacting.py).
        self._pages = min(self._pages, pages)
        return Transaction(db, self._system.now_us(), ingest, authored)

    @property
    def copy_due(self) -> bool:
        """Whether `copy_log` has something to do; a hint, from any thread."""
        # What a failed sync may have lost is written again before anybody looks at it.
        is_of_use = not (self._single or self._closed or self._has_failed)
        return is_of_use and self._log_copying.is_due

    def copy_log(self) -> None:
        """Copies the log beside whoever writes (log_copying.py)."""
        if self.copy_due:
            self._log_copying.copy(self._connect)

    @contextmanager
    def outside(self) -> Iterator[apsw.Connection]:
        """The writing connection, for what SQLite does in no transaction of anybody."""
        with self._lock, translated(self.where):
            db = self._open_writer()
            try:
                self._check_unchanged(db)
                yield db
            except BaseException as error:
                self._give_up(db, error)
                raise

    def read(self) -> AbstractContextManager[apsw.Connection]:
        """A connection that sees one moment of the store until the block is left."""
        if self._inside.db is not None:
            return ReadInside(self.where, self._inside)
        return self._read_anew()

    @contextmanager
    def _read_anew(self) -> Iterator[apsw.Connection]:
        if self._single:
            with self._lock, row_translated(self.where):
                db = self._open_writer()
                if self._is_old:
                    stand_in(db)
                yield db
            return
        with row_translated(self.where):
            db, generation = self._take_reader()
            try:
                db.execute("BEGIN")
                if self._is_old:
                    stand_in(db)
                yield db
                db.execute("COMMIT")
            except BaseException:
                self._inside.has_failed = False
                close_now(db)
                raise
            if self._inside.has_failed:
                # Whoever asked went on without an answer; nobody else gets this connection.
                self._inside.has_failed = False
                close_now(db)
            else:
                self._return_reader(db, generation)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Every `read` of this thread sees the same moment until the block is left.

        One transaction instead of one for each question, which costs as much as the question.
        """
        if self._inside.db is not None:
            yield
            return
        if self._single:
            # There is one connection, and whoever has it keeps the others from writing.
            with self._lock:
                yield
            return
        with self.read() as db:
            self._inside.db = db
            try:
                yield
            finally:
                self._inside.db = None

    @contextmanager
    def read_alone(self) -> Iterator[apsw.Connection]:
        """A connection outside of any transaction, for statements that must not be in one."""
        if self._single:
            with self._lock, row_translated(self.where):
                yield self._open_writer()
            return
        with row_translated(self.where):
            db, generation = self._take_reader()
            try:
                yield db
            except BaseException:
                close_now(db)
                raise
            self._return_reader(db, generation)

    def data_version(self) -> int:
        """A number that changes whenever any process has committed something.

        And after a failure of the disk, which may have left behind what was reported as failed.
        """
        with self._lock, translated(self.where):
            # SQLite counts for each connection, and a failure closes them all.
            before = self._readers.generation << 32
            if self._single:
                self._open_writer()
                return before + self._commits
            if self._watcher is None:
                self._watcher = self._connect()
            # Not Connection.data_version(), which looks at nothing that was not read anyway.
            version: int = self._watcher.execute("PRAGMA data_version").get
            return before + version

    def wishes_version(self) -> tuple[int, int, int]:
        """Another value once what is wanted may have been changed, by whichever process.

        It waits for whoever writes. `data_version` changes with each commit of this process too,
        and then no longer tells that another one has committed beside it.
        """
        with self._lock, translated(self.where):
            # Of a connection's own commits this tells nothing: they are counted.
            version: int = self._open_writer().execute("PRAGMA data_version").get
            return self._readers.generation, version, self._wishes

    def _check_unchanged(self, db: apsw.Connection) -> None:
        """A later version may have changed the format while this process had the store open."""
        version = format_of(db)
        if version != FORMAT:
            raise StoreTooNew(
                f"the store was brought to format {version} meanwhile, this version knows {FORMAT}",
                self.where,
                "end this program, and start its newer version",
            )

    def _is_there(self, path: Path) -> bool:
        with translated(self.where):
            return self._system.file_size(path) is not None

    def _connect(self, *, create: bool = False) -> apsw.Connection:
        if self._closed:
            raise StoreClosed("the store was closed", self.where, "open it again")
        if self._path is None:
            db = connect(":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        elif self.readonly:
            db = self._connect_readonly(self._path)
        else:
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
            db = connect(str(self._path), flags, self._system.vfs)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            prepare(db, exclusive=self._single and self._path is not None, readonly=self.readonly)
            if not create and self._path is not None:
                check_format(db, self._path)
        except BaseException:
            close_now(db)
            raise
        return db

    def _connect_readonly(self, path: Path) -> apsw.Connection:
        take_back(path, self._system)
        try:
            db = connect(str(path), apsw.SQLITE_OPEN_READONLY, self._system.vfs)
            db.execute("SELECT 1 FROM sqlite_schema")
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError) as error:
            if isinstance(error, apsw.IOError) and not is_full(error):
                raise
            # Reading a WAL takes a shared-memory file beside it, which neither a folder that cannot
            # be written to nor a full disk allows. Without a WAL nothing can be going on: no need
            # for it.
            if self._has_log():
                raise
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            db = connect(f"{path.resolve().as_uri()}?immutable=1", flags, self._system.vfs)
        return db

    def _open_writer(self) -> apsw.Connection:
        if self._closed:
            raise StoreClosed("the store was closed", self.where, "open it again")
        if self._writer is None:
            db = self._connect()
            if not self.readonly:
                try:
                    if db.execute("PRAGMA journal_mode").get != "wal":
                        _use_log(db)
                    if self._write_log_again(db):
                        self._empty_log(db)
                    self._pages = _page_count(db)
                    if self._readers.generation:
                        self.look(db)
                except BaseException as error:
                    self._note_failure(error)
                    close_now(db)
                    raise
            self._writer = db
        return self._writer

    def _empty_log(self, db: apsw.Connection) -> None:
        """Copies the write-ahead log, into room of the reserve if there is no other."""
        for _ in range(_SPENDING_ATTEMPTS):
            if checkpoint(db):
                return
            if not self.reserve.spend(self._growth(_page_count(db)) + PAGE_BYTES):
                return

    def _growth(self, pages: int) -> int:
        """How much longer the database file is to become."""
        held = None if self._path is None else self._system.file_size(self._path)
        return max(0, pages * PAGE_BYTES - (held or 0))

    @property
    def log_path(self) -> Path | None:
        """Where the write-ahead log is, or will be; None in memory."""
        return None if self._path is None else self._path.with_name(f"{self._path.name}-wal")

    def _has_log(self) -> bool:
        """Whether anything is in the write-ahead log, or may be."""
        return self.log_path is not None and bool(self._system.file_size(self.log_path))

    def _write_log_again(self, db: apsw.Connection) -> bool:
        """Makes the write-ahead log durable, whatever syncs of it have failed before.

        False if that takes space that there is not: then it stays as it is. Raises OSError if it
        may hold what a sync has lost, which nobody may see, as it may never have happened.
        """
        if self.log_path is None or not self._has_failed:
            return True
        db.execute("BEGIN IMMEDIATE")
        try:
            self._has_failed = not write_again(self._system, self.log_path)
            if self._has_failed and self._has_lost:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._has_lost = False
        finally:
            db.execute("ROLLBACK")
        return not self._has_failed

    def _take_reader(self) -> tuple[apsw.Connection, int]:
        if self._has_lost and not self.readonly:
            with self._lock:
                # It sees that nothing is read that is not durable.
                self._open_writer()
        db, generation = self._readers.take()
        return db or self._connect(), generation

    def _return_reader(self, db: apsw.Connection, generation: int) -> None:
        if not self._readers.give_back(db, generation):
            close_now(db)

    def _give_up(self, db: apsw.Connection, error: BaseException) -> None:
        """Undoes a transaction; after a failure of the disk forgets everything read so far."""
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except apsw.Error:
            pass
        else:
            failed = isinstance(error, (apsw.Error, OSError, StoreFailed))
            if not failed or isinstance(error, _HARMLESS):
                return
        if self._path is not None:
            self._note_failure(error)
            self._close_all()

    def _note_failure(self, error: BaseException) -> None:
        self._has_failed = True
        self._has_lost = self._has_lost or not is_full(error)

    def _close_all(self) -> None:
        for db in (*self._readers.drop(), self._watcher, self._writer):
            if db is not None:
                try:
                    close_now(db)
                except apsw.Error:
                    # Closing writes too (the checkpoint), and may fail like any write. What was
                    # committed stays in the write-ahead log.
                    continue
        self._watcher = self._writer = None
