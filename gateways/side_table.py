"""What a gateway derives from logs: one SQLite file in the store's directory, and its life.

Nothing in it is not in the logs as well, so it is never repaired: a file that is damaged, of
another version, or no database is removed and filled again, by whoever finds it so. Several
processes may use it; each transaction begins by reading how far the file has come. It is not
synced: after a power cut it may be damaged, and is made anew.

Who only reads the store may bring its table on as well: else each reading command would derive all
of it again. Only as the user whose store it is, though: a file that root has made would be one that
the node cannot write.

A file that is removed while another process has it open lives on for that process alone, which
goes on filling its own copy: both say the same, since both say what the logs say.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import apsw

from logstore import Store, StoreBusy, StoreError, StoreFailed, StoreFull, from_os_error, is_full

log = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_TIMEOUT_MS: Final = 20_000
CACHE_KIB: Final = 4096
_DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SchemaChangeError)
_BUSY: Final = (apsw.BusyError, apsw.LockedError)
_BEGIN_WRITING: Final = "BEGIN IMMEDIATE"


def pack_u64(number: int) -> bytes:
    """A number that may take all of u64, for a column: such columns sort as their numbers do."""
    return number.to_bytes(8, "big")


def unpack_u64(column: bytes) -> int:
    """The number of such a column."""
    return int.from_bytes(column, "big")


def side_path(store: Store, name: str) -> Path | None:
    """Where a side table of a store is kept, None: in memory. `name`: of the file."""
    folder = store.path
    if folder is None or (store.readonly and not _may_write(folder)):
        return None
    return folder / name


def _may_write(folder: Path) -> bool:
    with suppress(OSError):
        return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK)
    return False


class _Unusable(Exception):  # noqa: N818 - what was found
    """The file is to be made anew."""


class SideTable:
    """A derived database. Blocks; may be used from any thread, one call at a time.

    `path`: None is a table in memory. So is, with a line in the log, one whose file cannot be
    opened, or not be written before anything was: a disk that is full keeps nobody from starting.
    Who opens another table tries the file again. `version`: of the tables; a file of any other,
    older or newer, is made anew.
    """

    def __init__(self, path: Path | None, version: int, statements: Sequence[str]) -> None:
        self._path = path
        self._version = version
        self._statements = tuple(statements)
        self._lock = threading.RLock()
        self._db: apsw.Connection | None = None
        self._closed = False
        self._is_proven = path is None
        """Whether a transaction that may write was ever committed where it is kept."""
        self.times_anew = 0
        """How often the file was found unusable here. What is asked next finds an empty one, and
        who has another `SideTable` of it, the file that was removed."""

    @property
    def in_memory(self) -> bool:
        """Whether nobody else sees what is in it."""
        return self._path is None

    def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Does `work` in one transaction that may write; begun anew if the file has to be.

        Raises StoreFull, StoreFailed, StoreBusy, and what `work` raises; then nothing is changed.
        """
        return self._attempt(work, _BEGIN_WRITING)

    def look(self, work: Callable[[apsw.Connection], T]) -> T:
        """Does `work`, which only reads, on one snapshot. Raises as `run` does."""
        return self._attempt(work, "BEGIN")

    def rows(
        self, query: str, bound: "Sequence[apsw.SQLiteValue]"
    ) -> "list[tuple[apsw.SQLiteValue, ...]]":
        """What one statement finds, which has a snapshot of its own. Raises as `run` does.

        For those that are asked by the thousand: to begin and end a transaction around it takes
        three times as long as to find a row.
        """
        return self._attempt(lambda db: db.execute(query, bound).fetchall(), None)

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        with self._lock:
            self._closed = True
            self._drop()

    def reopen(self) -> None:
        """Lets go of the file: what is called next opens the one that is there then."""
        with self._lock:
            if not self.in_memory:
                self._drop()

    def _attempt(self, work: Callable[[apsw.Connection], T], begin: str | None) -> T:
        with self._lock:
            try:
                result = self._transact_anew(work, begin)
            except (apsw.Error, OSError, _Unusable) as error:
                # What this connection believes is worth nothing after a failure.
                self._drop()
                if self._is_proven or isinstance(error, _BUSY):
                    raise self._failure(error) from error
                log.warning("a side table is kept in memory for now: %s", self._failure(error))
                self._path, self._is_proven = None, True
                return self._attempt(work, begin)
            self._is_proven = self._is_proven or begin == _BEGIN_WRITING
            return result

    def _transact_anew(self, work: Callable[[apsw.Connection], T], begin: str | None) -> T:
        """`_transact`, once more with an empty file where it has to be."""
        try:
            return self._transact(work, begin)
        except (*_DAMAGED, _Unusable):
            self._make_anew()
        return self._transact(work, begin)

    def _transact(self, work: Callable[[apsw.Connection], T], begin: str | None) -> T:
        db = self._open()
        if begin is None:
            return work(db)
        db.execute(begin)
        try:
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):
                db.execute("ROLLBACK")
            raise
        return result

    def _open(self) -> apsw.Connection:
        if self._closed:
            raise ValueError("the side table is closed")
        if self._db is None:
            self._db = self._opened()
        return self._db

    def _opened(self) -> apsw.Connection:
        if self._path is None:
            db = apsw.Connection(":memory:")
        else:
            db = apsw.Connection(str(self._path))
            db.set_busy_timeout(BUSY_TIMEOUT_MS)
        try:
            self._prepare(db)
        except BaseException:
            db.close(True)  # noqa: FBT003 (the parameter is positional)
            raise
        return db

    def _prepare(self, db: apsw.Connection) -> None:
        if self._path is not None:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = OFF")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        if db.execute("PRAGMA user_version").get == self._version:
            return
        db.execute("BEGIN IMMEDIATE")
        # Looked at again: two processes may have come to make the tables at once.
        version = db.execute("PRAGMA user_version").get
        if version == self._version:
            db.execute("COMMIT")
            return
        if version or db.execute("SELECT count(*) FROM sqlite_schema").get:
            db.execute("ROLLBACK")
            raise _Unusable
        for statement in self._statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {self._version}")
        db.execute("COMMIT")

    def _make_anew(self) -> None:
        """Removes the file, unless another process has just done it."""
        self.times_anew += 1
        seen = self._identity()
        self._drop()
        if self._path is None:
            return
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if seen is not None and self._identity() == seen:
                # The log first: left behind, it would be taken for that of the next file.
                for suffix in ("-wal", "-shm", ""):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        finally:
            os.close(lock)

    def _identity(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        with suppress(OSError):
            found = self._path.stat()
            return found.st_dev, found.st_ino
        return None

    def _drop(self) -> None:
        if self._db is not None:
            with suppress(apsw.Error):
                self._db.close(True)  # noqa: FBT003 (the parameter is positional)
            self._db = None

    def _failure(self, error: Exception) -> StoreError:
        where = self._path or "memory"
        if is_full(error):
            return StoreFull("the disk is full", where, "free space and try again")
        if isinstance(error, _BUSY):
            return StoreBusy("another process has been writing for too long", where, "end it")
        if isinstance(error, OSError):
            return from_os_error(error, where)
        return StoreFailed(f"the side table failed ({error})", where, "look at the disk")
