"""The database and the files of an earlier backup while it is brought up to date.

backup_update.py says what is done, and in which order; here is how each step of it is written, and
how many bytes that took.

The database is written with SQLite's rollback journal, not with a write-ahead log: a page that is
new is written once, a changed one twice (what it was goes to the journal first). With a log both
would be written twice, and most of what a backup adds are new pages. With `synchronous = EXTRA` the
end of the journal is on disk before anything that only the old state needs is removed. The
connection has the database for itself until it is closed: nobody reads one half.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import apsw

from .database import DATABASE, close_now
from .errors import StoreExists, StoreLocked, translated
from .files import ADD_UNNAMED, PAYLOADS, PayloadFiles, unnamed_tag, write_all
from .identity import BACKUP, RESTORED
from .keyfile import KEY_FILE, other_keys, read_key_file, replace_key_file
from .meta import load_meta
from .migration import migrate
from .rewriting import write_again
from .schema import FILE_GARBAGE, FORMAT, PAGE_BYTES, check_format, connect, format_of, prepare
from .system import READ_BYTES_MAX

if TYPE_CHECKING:
    from types import TracebackType

    from .system import System

_UNFINISHED: Final = ".unfinished"


def copy_payload(reading: "System", source: Path, writing: "System", root: Path, name: str) -> int:
    """Copies a payload file into a folder of payloads, synced but for its name; how many bytes."""
    target = root / name[:2] / name
    writing.make_folder(target.parent)
    with (
        reading.open_file(source, write=False) as reader,
        writing.open_file(target, create=True) as writer,
    ):
        # One that was begun by a backup that was killed is written anew: nobody knows how much of
        # it is on disk.
        writer.truncate(0)
        offset = 0
        while data := reader.read(READ_BYTES_MAX, offset):
            write_all(writer, data, offset)
            offset += len(data)
        writer.sync()
    return offset


def copy_keys(source: Path, target: Path) -> int:
    """Brings the keys of a store to its backup, those of gateways too; how many bytes.

    What is the same stays untouched, and a key that the store has no more is left: it may be the
    last copy.
    """
    # Without the others, a store that is put back would be somebody else to a gateway's peers.
    paths = other_keys(source)
    if (source / KEY_FILE).exists():
        read_key_file(source / KEY_FILE)
        paths.insert(0, source / KEY_FILE)
    written = 0
    for path in paths:
        with translated(path):
            text = path.read_bytes()
        copy = target / path.name
        with translated(copy):
            same = copy.exists() and copy.read_bytes() == text
        if not same:
            replace_key_file(copy, text, copy.with_name(copy.name + _UNFINISHED))
            written += len(text)
    return written


class Copy:
    """An earlier backup, open for this process alone. A context manager.

    Every method raises the errors of a store, named by the backup's directory.
    """

    def __init__(self, folder: Path, system: "System") -> None:
        self.folder: Final = folder
        self._path = folder / DATABASE
        self._log_path = folder / f"{DATABASE}-wal"
        self._system = system
        self._db: apsw.Connection | None = None
        self._bytes = 0
        self._has_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        if self._db is None:
            return
        if not self._has_failed:
            # Without this an empty journal would be left behind. One that is not empty is what
            # takes back half a transaction, and must not be touched by anybody else.
            with suppress(apsw.Error):
                self._db.execute("PRAGMA locking_mode = NORMAL")
                self._db.execute("PRAGMA journal_mode = DELETE")
        with translated(self.folder):
            close_now(self._db)

    @property
    def db(self) -> apsw.Connection:
        """The connection, once `take` was called."""
        assert self._db is not None
        return self._db

    @property
    def bytes_written(self) -> int:
        """What was written to the directory until now, as far as this process can know.

        All of the database, its journal, payloads and keys; not what a file system makes of it.
        """
        pages: int = self.db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
        return self._bytes + pages * PAGE_BYTES

    def look(self) -> dict[str, bytes]:
        """What it says of itself (`meta`), read beside others; nothing of it is changed.

        Raises StoreExists if it is no backup, NotAStore, StoreTooNew and others.
        """
        with translated(self.folder):
            # To write, so that what a backup that was killed has begun is taken back.
            db = connect(str(self._path), apsw.SQLITE_OPEN_READWRITE, self._system.vfs)
            try:
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                check_format(db, self.folder)
                meta = load_meta(db)
                if not self._system.file_size(self._log_path):
                    # Nothing is to be copied, and the last one to close it takes its files away.
                    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            finally:
                close_now(db)
        if meta.get(RESTORED) != BACKUP:
            raise StoreExists(
                "there is a store which is no backup", self.folder, "choose a new one"
            )
        return meta

    def take(self) -> None:
        """Opens it for this process alone, in this version's format. Raises StoreLocked."""
        with translated(self.folder):
            db = self._db = connect(str(self._path), apsw.SQLITE_OPEN_READWRITE, self._system.vfs)
            try:
                prepare(db, exclusive=True, readonly=False)
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("BEGIN EXCLUSIVE")
                self._write_log_again()
                db.execute("COMMIT")
                db.execute("PRAGMA journal_mode = TRUNCATE")
            except apsw.BusyError:
                raise StoreLocked(
                    "another process has this backup open", self.folder, "end it, then try again"
                ) from None
            db.set_commit_hook(self._count_journal)
            if format_of(db) < FORMAT:
                migrate(db)

    def _write_log_again(self) -> None:
        # Somebody had it open as a store, and was killed (database.py).
        if size := self._system.file_size(self._log_path):
            write_again(self._system, self._log_path)
            self._bytes += size

    def _count_journal(self) -> bool:
        """Called right before each commit; the journal grows no more, but for the first page."""
        self._bytes += self._system.file_size(self.folder / f"{DATABASE}-journal") or 0
        return False

    # --- reading and writing rows -----------------------------------------------------------------

    def rows(self, query: str, values: tuple[int | bytes, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query."""
        with translated(self.folder):
            yield from self.db.execute(query, values)

    def write(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        """A statement for each of the rows."""
        with translated(self.folder):
            self.db.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """On disk when the block has been left, or without a trace."""
        with translated(self.folder):
            self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            with translated(self.folder):
                self.db.execute("COMMIT")
        except BaseException:
            self._has_failed = True
            if self.db.in_transaction:
                with translated(self.folder):
                    self.db.execute("ROLLBACK")
            raise

    # --- files ------------------------------------------------------------------------------------

    def announce(self, ids: Collection[bytes]) -> None:
        """Says, durably, that files are about to come which nothing needs yet."""
        if not ids:
            return
        with self.transaction():
            tag = unnamed_tag(FILE_GARBAGE)
            self.write(
                f"{ADD_UNNAMED} ON CONFLICT DO NOTHING", [(id_, FILE_GARBAGE, tag) for id_ in ids]
            )

    def bring(self, ids: Collection[bytes], files: PayloadFiles, reading: "System") -> None:
        """Copies files of the store, which nothing removes meanwhile; all of it is on disk then."""
        if not ids:
            return
        system, root = self._system, self.folder / PAYLOADS
        with translated(self.folder):
            system.make_folder(root)
            for id_ in ids:
                self._bytes += copy_payload(reading, files.path_of(id_), system, root, id_.hex())
            for folder in sorted({root / id_.hex()[:2] for id_ in ids}):
                system.sync_folder(folder)
            system.sync_folder(root)
            system.sync_folder(self.folder)

    def remove_garbage(self) -> None:
        """Removes the files that nothing names, then their rows."""
        query = "SELECT id FROM files WHERE state <> 3 AND state = ?"
        root = self.folder / PAYLOADS
        ids = [id_ for (id_,) in self.rows(query, (FILE_GARBAGE,)) if isinstance(id_, bytes)]
        if not ids:
            return
        with translated(self.folder):
            for id_ in ids:
                self._system.remove_file(root / id_.hex()[:2] / id_.hex())
            for folder in sorted({root / id_.hex()[:2] for id_ in ids}):
                if folder.is_dir():
                    self._system.sync_folder(folder)
        with self.transaction():
            self.write("DELETE FROM files WHERE id = ?", [(id_,) for id_ in ids])

    def bring_keys(self, source: Path) -> None:
        """The store's keys."""
        self._bytes += copy_keys(source, self.folder)
