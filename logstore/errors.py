"""Everything that `logstore` raises. Each message is one line: what happened, where, what to do."""

# ruff: noqa: N818 - names say what happened, and most of them are read in `except` clauses

import errno
import os
import struct
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import apsw

if TYPE_CHECKING:
    from types import TracebackType

    from wire import LogKey

    from .records import Fault, OverQuota


class ExplainedError(Exception):
    """What happened, where, and what to do about it, in one line."""

    what: str
    where: str
    remedy: str
    is_no_answer = False
    """Whether what happened is that nobody answers."""

    def __init__(self, what: str, where: str | Path, remedy: str) -> None:
        # A path may have bytes that are no text, which could not be printed.
        place = str(where).encode(errors="backslashreplace").decode()
        super().__init__(what, place, remedy)
        self.what = what
        self.where = place
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.where}; {self.remedy}"


class StoreError(ExplainedError):
    """A store that cannot do what it was asked to."""

    log: "LogKey | None" = None
    """Of what several logs were asked for together: the one that failed, None if it is the store.
    The others can be asked for again without it."""


class NotAStore(StoreError):
    """The directory holds no store."""


class StoreExists(StoreError):
    """`create` on a directory that holds a store already."""


class StoreTooNew(StoreError):
    """The store was written by a later version than this one."""


class StoreReadOnly(StoreError):
    """A change was asked of a store that can only be read."""


class StoreLocked(StoreError):
    """Another process holds what can be held by one only, or has been writing for too long."""


class StoreBusy(StoreLocked):
    """The second of these: it passes by itself, and whoever goes on by himself may try again."""


class StoreFull(StoreError):
    """The disk, or the quota, is full. What was acknowledged is kept."""


class StoreOverQuota(StoreError):
    """A limit on what others may take of the disk is reached (quotas.py). What is held stays."""

    over: "OverQuota"

    def __init__(self, over: "OverQuota") -> None:
        super().__init__(over.reason, f"{over.log}/{over.seq}", f"raise the limit {over.key}")
        self.over = over


class StoreDamaged(StoreError):
    """Bytes on disk are not those that were written. Other logs can still be read."""

    fault: "Fault | None" = None
    """What is damaged, where that is an entry."""


class StoreFailed(StoreError):
    """The disk failed to read, write or sync. What was acknowledged is kept."""


class StoreClosed(StoreError):
    """The store was closed before."""


class NameTaken(StoreError):
    """Something else in the store has that name."""


class NothingSoCalled(StoreError):
    """Nothing in the store has that name, or an id that begins so."""


class Ambiguous(StoreError):
    """Several ids in the store begin so."""


class CursorBusy(StoreLocked):
    """Somebody else reads by that cursor."""


class CursorMismatch(StoreError):
    """A cursor is for another log than the one that is to be read by it."""


class BundleRefused(StoreError):
    """A file that is not written to or read from as a bundle, and is left as it is."""


class NoSuchPeer(StoreError):
    """Nothing is known of a peer of that id."""


class SQLiteTooOld(StoreError):
    """The SQLite library has a bug that loses committed data when two processes write."""


class KeyFileError(StoreError):
    """The author key cannot be used."""


class KeyFileMissing(KeyFileError):
    """There is no key file."""


class KeyFileWrong(KeyFileError):
    """The key file holds no key, or another author's."""


class KeyFileExposed(KeyFileError):
    """The key file can be read by other users."""


class OwnLogsReadOnly(StoreError):
    """The store is not where it was, or not as new as it was; appending could fork its logs.

    `Store.confirm_identity` lifts it.
    """


class LogClosed(StoreError):
    """An append to a log that has ended, is forked, invalid or damaged; a `want` behind its end."""

    @classmethod
    def behind(cls, servable: int, state: object, log: object, remedy: str) -> Self:
        """For an entry that there will never be, since `servable` is the last valid one."""
        what = f"the log is {state}: there is no valid entry behind {servable}"
        return cls(what, str(log), remedy)


class LogMoved(StoreError):
    """An append that named the number it expects, to a log that others have appended to."""


class PayloadBusy(StoreError):
    """Another connection or process is receiving this payload."""


class PayloadUnavailable(StoreError):
    """The payload is not held whole."""


class PayloadTooLarge(StoreError):
    """A payload is larger than the program takes whole: `Store.open_payload` reads it in pieces."""


class LogFollowed(StoreError):
    """A log that is not to be forgotten: it is followed, or one's own."""


class LogUnknown(StoreError):
    """A log of which nothing is held."""


class PayloadDropped(StoreError):
    """The payload was dropped while it was received. Its bytes are gone from the store."""


class PayloadMismatch(StoreError):
    """The bytes received are not the payload. They are gone from the store (point2point.md 8)."""

    resumed: bool
    """Whether a part of the bytes came earlier: then whoever sent the rest is not to blame."""
    sources: tuple[str, ...]
    """Who the bytes came from, the earliest first."""

    def __init__(self, where: str, *, resumed: bool, sources: tuple[str, ...]) -> None:
        super().__init__("the bytes received are not the payload", where, "ask for it again from 0")
        self.resumed = resumed
        self.sources = sources


class EntryRejected(StoreError):
    """An entry that breaks a rule of bamboo.md. It was not stored; what came before it was."""

    key: "LogKey"
    seq: int
    reason: str

    def __init__(self, key: "LogKey", seq: int, reason: str) -> None:
        super().__init__(reason, f"{key}/{seq}", "nothing of it was stored")
        self.key = key
        self.seq = seq
        self.reason = reason


class NotAFork(StoreError):
    """Two entries that are said to prove a fork, and do not."""


_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
READ_ONLY: Final = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
"""Nothing may be written there, by anybody or by this account."""
_WRONG_PATH: Final = {
    errno.ENOENT: ("the file or its directory does not exist", "see whether the path is right"),
    errno.ENOTDIR: ("a part of the path is no directory", "see whether the path is right"),
    errno.EISDIR: ("it is a directory", "name a file"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
}


_TOO_MANY = frozenset((errno.EMFILE, errno.ENFILE))


def from_os_error(error: OSError, where: str | Path) -> StoreError:
    """The store's own error for a failed call of the operating system."""
    if is_full(error):
        return StoreFull("the disk is full", where, "free space and try again")
    if error.errno == errno.EROFS:
        return StoreReadOnly(
            "the file system can only be read", where, "mount it for writing, or use another"
        )
    if error.errno in READ_ONLY:
        return StoreReadOnly("no permission", where, "use an account that has it")
    if error.errno in _TOO_MANY:
        # It says nothing of the disk, and to look there would find nothing.
        return StoreFailed(
            "too many files are open", where, "raise the limit of open files (ulimit -n)"
        )
    if error.errno in _WRONG_PATH:
        what, remedy = _WRONG_PATH[error.errno]
        return StoreFailed(what, where, remedy)
    reason = error.strerror or type(error).__name__
    return StoreFailed(f"the disk failed ({reason})", where, "look at the disk, then start again")


def is_full(error: BaseException) -> bool:
    """Whether somebody found no room on the disk: SQLite, the operating system, or this package.

    SQLite's shared memory is a file, for which it has no error that says so.
    """
    if isinstance(error, OSError):
        return error.errno in _FULL
    extended = getattr(error, "extendedresult", None)
    full = isinstance(error, (apsw.FullError, StoreFull))
    return full or extended == apsw.SQLITE_IOERR_SHMSIZE


def _is_not_writable(error: apsw.Error, where: str | Path) -> bool:
    if isinstance(error, apsw.CantOpenError):
        return not os.access(where, os.W_OK)
    return isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError)


def from_apsw_error(error: apsw.Error, where: str | Path) -> StoreError:
    """The store's own error for an error of SQLite."""
    detail = str(error) or type(error).__name__
    match error:
        case _ if is_full(error):
            return StoreFull("the disk is full", where, "free space and try again")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                "another process has been writing for too long", where, "wait for it or end it"
            )
        case _ if _is_not_writable(error, where):
            return StoreReadOnly(
                "nothing can be written there",
                where,
                "use an account that may, or mount it for writing",
            )
        case apsw.CantOpenError():
            return StoreFailed(
                "the database cannot be opened", where, "see whether this account may, and the disk"
            )
        case apsw.NotADBError():
            return NotAStore("not a store", where, "name another directory, or restore a backup")
        # Our statements are right, so what SQLite does not understand is a damaged schema.
        case apsw.CorruptError() | apsw.FormatError() | apsw.ConstraintError() | apsw.SQLError():
            return StoreDamaged(
                f"the database is damaged ({detail})", where, "run verify, then restore a backup"
            )
        case _:
            return StoreFailed(
                f"the database failed ({detail})", where, "look at the disk, then start again"
            )


class _Translated:
    """Classes, and no generators: a look-up of a log is inside of ten, which cost as much as it."""

    __slots__ = ("_where",)

    def __init__(self, where: str | Path) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: "TracebackType | None"
    ) -> None:
        if isinstance(error, apsw.Error):
            raise from_apsw_error(error, self._where) from error
        if isinstance(error, OSError):
            raise from_os_error(error, self._where) from error


class _RowTranslated(_Translated):
    __slots__ = ()

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: "TracebackType | None"
    ) -> None:
        # A flipped bit in a record header turns a blob into a number or NULL.
        if isinstance(error, (TypeError, ValueError, OverflowError, struct.error)):
            raise StoreDamaged(
                f"a row of the database is damaged ({error})", self._where, "run verify"
            ) from error
        super().__exit__(kind, error, traceback)


def translated(where: str | Path) -> AbstractContextManager[None]:
    """Lets neither an OSError nor an error of SQLite out as such."""
    return _Translated(where)


def row_translated(where: str | Path) -> AbstractContextManager[None]:
    """The same where rows are read, which may hold what they should not: StoreDamaged."""
    return _RowTranslated(where)
