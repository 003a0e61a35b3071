"""Cursors: how far somebody has read what arrives, kept in the store (everyday.md 2).

A cursor is a name, what is read by it (a log, or everything), and the last number of the ingest
sequence that was acknowledged. What it promises is *at least once*: it is moved behind what its
reader has passed on, and never before, so that whoever is killed in between reads some of it again
and misses none. To promise exactly once is not for a store: it cannot know what became of a line.

Two readers by one cursor would each miss what the other one got. So there is one at a time, by a
lock that the system takes back when its process ends, in whatever way; a mark in the database would
outlive it. The lock is a file of its own: a range of one file would do with fewer files, but locks
of ranges belong to processes and not to who opened them, and two readers may well be in one.

A position counts arrivals of this store alone. A backup that is put back has had fewer, and gives
their numbers out anew: a cursor that is ahead of it is set to the last arrival, or it would pass
over what comes until then.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wire import LogKey

from .errors import CursorBusy, CursorMismatch, NothingSoCalled, translated
from .feed import Selection, count_selected, load_position
from .names import check_name
from .rows import load_log
from .upkeep import recall, recall_all, remember

if TYPE_CHECKING:
    import apsw

    from .database import Database
    from .system import PayloadHandle, System

CURSOR_FOLDER: Final = "cursors"
"""Of the locks: empty files."""
_CURSOR: Final = "cursor/"


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """A cursor as it was last stored."""

    name: str
    target: LogKey | None
    """What is read; None: all logs."""
    position: int
    """The last number of the ingest sequence that was acknowledged."""
    updated_at: int
    """Microseconds since 1970."""


class CursorTable:
    """The cursors of a store. Raises StoreError as `Store` does."""

    def __init__(self, database: "Database", system: "System", folder: Path | None) -> None:
        self._database = database
        self._system = system
        self._folder = folder
        self._taken: set[str] = set()
        """The locks of a store in memory, which has no other processes."""
        self._lock = threading.Lock()

    def all(self) -> list[CursorInfo]:
        """Every cursor, in the order of their names."""
        with self._database.read() as db:
            rows = recall_all(db, _CURSOR)
        return [_info(name[len(_CURSOR) :], value) for name, value in rows.items()]

    def behind(self, info: CursorInfo) -> int:
        """How many entries with payloads its reader has still before him."""
        with self._database.read() as db:
            row = None if info.target is None else load_log(db, info.target)
            if info.target is not None and row is None:
                return 0
            return count_selected(db, Selection(row, has_payload=True), info.position)

    @contextmanager
    def reading(
        self, name: str, target: LogKey | None, start: int | None = None
    ) -> "Iterator[OpenCursor]":
        """Reads by a cursor, alone. One that is new is made, behind arrival `start` (None: 0).

        Raises ValueError for no name, CursorMismatch if it is for something else, CursorBusy.
        """
        check_name(name)
        with self._alone(name):
            with self._database.write() as transaction:
                db = transaction.db
                value = recall(db, _CURSOR + name)
                info = None if value is None else _info(name, value)
                if info is not None and info.target != target:
                    raise CursorMismatch(
                        f"the cursor {name} reads {_read(info.target)}, not {_read(target)}",
                        self._where,
                        "use a cursor for each",
                    )
                last = load_position(db)
                position = min(last, (start or 0) if info is None else info.position)
                if info is None or position != info.position:
                    self._save(db, name, target, position)
            yield OpenCursor(self, name, target, position)

    def store(self, name: str, target: LogKey | None, position: int) -> None:
        """Moves a cursor that the caller reads by."""
        with self._database.write() as transaction:
            self._save(transaction.db, name, target, position)

    def reset(self, name: str, to: int | None) -> CursorInfo:
        """Sets a cursor behind an arrival, at most the last one; None: that one.

        Raises NothingSoCalled, CursorBusy.
        """
        with self._alone(name), self._database.write() as transaction:
            info = self._known(transaction.db, name)
            last = load_position(transaction.db)
            self._save(transaction.db, name, info.target, last if to is None else min(to, last))
            return self._known(transaction.db, name)

    def remove(self, name: str) -> None:
        """Forgets a cursor. Raises NothingSoCalled, CursorBusy."""
        with self._alone(name), self._database.write() as transaction:
            self._known(transaction.db, name)
            remember(transaction.db, _CURSOR + name, None)

    @property
    def _where(self) -> Path | str:
        return self._folder or "memory"

    def _known(self, db: "apsw.Connection", name: str) -> CursorInfo:
        value = recall(db, _CURSOR + name)
        if value is None:
            raise NothingSoCalled("there is no such cursor", name, "`cursor list` lists them")
        return _info(name, value)

    def _save(self, db: "apsw.Connection", name: str, target: LogKey | None, position: int) -> None:
        row = {
            "log": None if target is None else str(target),
            "position": position,
            "updated_at": self._system.now_us(),
        }
        remember(db, _CURSOR + name, json.dumps(row).encode())

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        if self._folder is None:
            with self._lock:
                if name in self._taken:
                    raise self._busy(name)
                self._taken.add(name)
            try:
                yield
            finally:
                self._taken.discard(name)
            return
        handle = self._open(self._folder / CURSOR_FOLDER, name)
        try:
            if not handle.try_lock():
                raise self._busy(name)
            yield
        finally:
            handle.close()

    def _open(self, folder: Path, name: str) -> "PayloadHandle":
        # Case counts in names of cursors, and not in those of files everywhere.
        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        path = folder / f"{digest}.lock"
        with translated(path):
            self._system.make_folder(folder)
            # Never removed: whoever had it open would hold the lock of a file that has no name.
            return self._system.open_file(path, create=True)

    def _busy(self, name: str) -> CursorBusy:
        return CursorBusy(
            f"somebody else is reading by the cursor {name}",
            self._where,
            "end that one, or use another cursor",
        )


class OpenCursor:
    """A cursor that the caller alone reads by."""

    def __init__(self, table: CursorTable, name: str, target: LogKey | None, position: int) -> None:
        self._table = table
        self._name = name
        self._target = target
        self.position = position
        """The last arrival that is stored as acknowledged."""

    def acknowledge(self, position: int) -> None:
        """Everything up to an arrival was passed on; it is on disk when this returns."""
        if position > self.position:
            self._table.store(self._name, self._target, position)
            self.position = position


def forget_cursors_of(db: "apsw.Connection", targets: "set[LogKey]") -> None:
    """Forgets the cursors of logs that the store has no more."""
    for name, value in recall_all(db, _CURSOR).items():
        if _info(name, value).target in targets:
            remember(db, name, None)


def _info(name: str, value: bytes) -> CursorInfo:
    row: dict[str, Any] = json.loads(value)
    target = None if row["log"] is None else LogKey.parse(row["log"])
    return CursorInfo(name, target, row["position"], row["updated_at"])


def _read(target: LogKey | None) -> str:
    return "all logs" if target is None else str(target)
