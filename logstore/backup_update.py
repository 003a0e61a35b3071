"""Bringing an earlier backup up to date: what is new is written, and nothing else.

Theory. A backup is a store as it was at one arrival, number c of its counter. A change of an entry
gives it a new arrival number, so that what has changed since are the entries above c, and the
places that they had before; a log in which anything changed has another row in `logs`. All other
tables are small, or have a row for each log or payload: they are read whole, on both sides in the
same order, and the rows that differ are written.

What makes it safe:
1. nothing is removed from the store's `payloads` (collect.lock), and one snapshot of its database
   is read from beginning to end;
2. the rows of new payload files are committed as garbage, then the files are copied and synced: as
   in a store there is no file without a row (files.py);
3. one transaction makes the old backup the new one, and names the new files; what it names no more
   it calls garbage;
4. then garbage is removed: first the files, then their rows.
Killed anywhere, the directory is the old backup or the new one, perhaps with garbage that the next
run removes, as does whoever opens it as a store. What fails before the third leaves the old one.

Which store it is of. Its id, drawn when it was made, is in both, and its author. That is not
enough: a store may have been put back from a backup and have gone on from there, and a backup may
have been used as a store. So the backup has to be of this store's past:
- its counters (arrivals, entries that were signed) are not above the store's;
- every entry that the store has below c is there, with the same number;
- every entry there is in the store, with the same number or one above c. Entries can be missing
  only because a log was forgotten. That takes a log whole, and no own one: what is left of it, if
  it is held again, came later. So a log of which the store has anything below c lacks nothing, nor
  does an own one; other logs that it does not have go from the backup too. Else it holds more than
  the store. While a log is being forgotten it has no row in `logs` and some entries are left, under
  a number that no log has: they are compared as well, and are in the backup as in the store;
- the last `COMPARED` entries below c are the same, byte for byte as far as hashes say, and with
  the times at which they came, in microseconds: two stores that have parted differ there, though
  they may have fetched the same entries in the same order.

Entries of logs whose rows are the same on both sides are taken to be the same; that, and the number
of entries compared, is for a store that is where it was. Of one that has been put back, copied, or
confirmed since (identity.py), all entries are compared: that reads both databases once.

What is not seen is damage of the backup's own disk in what is not written. `verify` reads it.

How much is written: SQLite writes pages of 4 KiB, a new one once, a changed one twice. What comes
last in the order of arrival, and payloads in files, are new pages. Beside that, a log in which
anything changed has a row in `logs`, in its indexes and in `runs`, and a page in the index of
entries, which is full at first and shares with both of its neighbours when it is split: 16 to 28 kB
a log, less where logs share pages. So it is more than twice what is new where a few small entries
came to each of many logs, and where payloads were deleted here and there (docs/operations.md has
figures). It could be less only with an index that is not SQLite's.

Not taken: a new database beside the old one, which would be written whole; SQLite's session
extension, which needs the store to be written to; a mark in the store of how far the last backup
came, since a store on a disk that can only be read has to be saved too, and it may have several.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from wire import LogKey

from .backup_copy import Copy
from .errors import StoreDamaged, StoreError, StoreExists, translated
from .files import LET_GO, PayloadFiles
from .identity import LINEAGE, RESTORED
from .meta import load_meta
from .opening import AUTHOR, STORE_ID
from .records import BackedUp
from .rows import unpack_u64
from .schema import FILE_ATTACHED, FILE_GARBAGE, FORMAT

if TYPE_CHECKING:
    from .opening import Opened
    from .system import System

COMPARED: Final = 10_000
"""How many of the last arrivals are compared with what the store has."""
_PAGE_ROWS: Final = 5_000
_NEW: Final = "choose a new directory"

Row = tuple[Any, ...]
Read = Callable[[str, tuple[int | bytes, ...]], Iterator[Row]]


def update_backup(
    opened: "Opened", files: PayloadFiles, target: Path, system: "System"
) -> BackedUp:
    """Makes the backup in `target` one of this moment; `system`: of the disk that it is on.

    Raises StoreExists if it is none of this store's past, StoreLocked if somebody has it open, and
    the errors of a store; then it is what it was.
    """
    with Copy(target, system) as copy:
        meta = copy.look()
        with files.kept(), opened.database.read() as db:
            if opened.database.is_old:
                raise StoreError(
                    f"the store has a format before {FORMAT}, and was opened to read it",
                    opened.database.where,
                    f"open it to write first, or {_NEW}",
                )
            ours = load_meta(db)
            if (ours.get(STORE_ID), ours[AUTHOR]) != (meta.get(STORE_ID), meta.get(AUTHOR)):
                raise StoreExists("there is a backup of another store", target, _NEW)
            copy.take()
            try:
                return _Update(opened, db, files, copy).run(
                    is_certain=_is_certain(opened, ours, meta)
                )
            except (TypeError, ValueError) as error:
                raise StoreDamaged(
                    f"a row of the store or of its backup is damaged ({error})",
                    target,
                    f"run verify on both, and {_NEW}",
                ) from error


def _is_certain(opened: "Opened", ours: dict[str, bytes], theirs: dict[str, bytes]) -> bool:
    """Whether the store has gone on from where the backup was made, as far as it knows itself."""
    if RESTORED in ours or ours.get(LINEAGE) != theirs.get(LINEAGE):
        return False
    return opened.identity is None or opened.identity.why_read_only() is None


class _Update:
    """One run, inside a snapshot of the store."""

    def __init__(
        self, opened: "Opened", db: apsw.Connection, files: PayloadFiles, copy: Copy
    ) -> None:
        self._opened = opened
        self._db = db
        self._files = files
        self._copy = copy
        self._up_to = 0
        """The last arrival that the backup knows."""
        self._changed = array("q")
        """The logs whose rows differ, by their ids on both sides."""
        self._renamed: set[int] = set()
        """Those of them whose id the store has given to another log, or to none."""
        self._remains: set[int] = set()
        """Numbers of logs that the store is forgetting."""
        self._left = array("q")
        """The arrival numbers that entries of the backup have no more."""

    def run(self, *, is_certain: bool) -> BackedUp:
        """All of it."""
        self._check_counters()
        self._check_tables()
        self._compare_logs(everything=not is_certain)
        self._compare_arrivals(COMPARED if is_certain else None)
        for id_ in self._changed:
            self._compare_entries(id_)
        new = self._new_files()
        copy = self._copy
        try:
            copy.announce(new)
            copy.bring(new, self._files, self._opened.system)
            if self._opened.folder is not None:
                copy.bring_keys(self._opened.folder)
            with copy.transaction():
                arrived = self._write()
        finally:
            # Whatever came of it; what cannot be removed now the next run removes.
            self._tidy()
        return BackedUp(incremental=True, bytes_written=copy.bytes_written, entries=arrived)

    def _tidy(self) -> None:
        try:
            self._copy.remove_garbage()
        except StoreError:
            return

    def _read(self, query: str, values: tuple[int | bytes, ...] = ()) -> Iterator[Row]:
        """Rows of the store's snapshot."""
        with translated(self._opened.database.where):
            yield from self._db.execute(query, values)

    # --- whether it is of this store's past -------------------------------------------------------

    def _check_counters(self) -> None:
        query = "SELECT ingest, authored FROM counters"
        [(ours, signed)], [(theirs, signed_there)] = self._read(query), self._copy.rows(query)
        if theirs > ours or signed_there > signed:
            raise self._refusal(
                f"it holds more than this store: {theirs} arrivals of {ours}, {signed_there} own"
                f" entries of {signed}"
            )
        assert isinstance(theirs, int)
        self._up_to = theirs

    def _check_tables(self) -> None:
        query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"
        if set(self._read(query)) != set(self._copy.rows(query)):
            raise self._refusal("it has not the tables that this store has")

    def _compare_logs(self, *, everything: bool) -> None:
        """Finds the logs that differ."""
        query = "SELECT * FROM logs ORDER BY id"
        for ours, theirs in _side_by_side(self._read(query), self._copy.rows(query), 1):
            if theirs is not None and (ours is None or ours[:3] != theirs[:3]):
                if theirs[1] == self._opened.author:
                    raise self._refusal(f"it holds the own log {_number(theirs[2])}, which is gone")
                self._renamed.add(theirs[0])
            if everything or ours != theirs:
                self._changed.append((ours or theirs or (0,))[0])
        self._remains.update(row[0] for row in self._read(_REMAINS))
        remains_there: set[int] = {row[0] for row in self._copy.rows(_REMAINS)}
        # The store may have given such a number to another log since.
        self._renamed |= remains_there
        self._changed.extend((self._remains | remains_there).difference(self._changed))

    def _compare_arrivals(self, count: int | None) -> None:
        """Compares the last arrivals that both have, or all of them."""
        query = "SELECT ingest, tag, hash FROM entries WHERE ingest > ? AND ingest <= ?"
        since = 0 if count is None else max(0, self._up_to - count)
        bounds = since, self._up_to
        both = _side_by_side(
            self._read(f"{query} ORDER BY ingest", bounds),
            self._copy.rows(f"{query} ORDER BY ingest", bounds),
            1,
        )
        for ours, theirs in both:
            if ours is not None and ours != theirs:
                raise self._parted()

    def _compare_entries(self, id_: int) -> None:
        """Finds what one log has no more where it was."""
        query = "SELECT seq, ingest FROM entries WHERE log = ? ORDER BY seq"
        renamed = id_ in self._renamed
        begun_anew, lacking = True, False
        both = _side_by_side(self._read(query, (id_,)), self._copy.rows(query, (id_,)), 1)
        for ours, theirs in both:
            now: int | None = None if ours is None else ours[1]
            before: int | None = None if theirs is None else theirs[1]
            if now is not None and now <= self._up_to:
                begun_anew = False
                if now != before or (renamed and id_ not in self._remains):
                    raise self._parted()
            if before is not None and now != before:
                self._left.append(before)
                lacking = lacking or now is None
                if now is not None and not renamed:
                    self._check_same(id_, now, before)
        if lacking and not renamed and (not begun_anew or self._is_own(id_)):
            raise self._refusal(f"it holds entries of {self._name(id_)} that this store does not")

    def _check_same(self, id_: int, now: int, before: int) -> None:
        """Of an entry that has moved. One of a log that was forgotten may come back as another."""
        query = "SELECT hash FROM entries WHERE ingest = ?"
        if list(self._read(query, (now,))) != list(self._copy.rows(query, (before,))):
            oldest = "SELECT min(ingest) FROM entries WHERE log = ?"
            [(first,)] = self._read(oldest, (id_,))
            if first <= self._up_to or self._is_own(id_):
                raise self._parted()

    def _is_own(self, id_: int) -> bool:
        return self._name(id_).author == self._opened.author

    def _name(self, id_: int) -> LogKey:
        [(author, log_id)] = self._read("SELECT author, log_id FROM logs WHERE id = ?", (id_,))
        assert isinstance(author, bytes)
        return LogKey(author, _number(log_id))

    def _parted(self) -> StoreError:
        return self._refusal("it and this store have gone different ways since one was put back")

    def _refusal(self, what: str) -> StoreError:
        return StoreExists(
            f"this backup cannot be brought up to date: {what}", self._copy.folder, _NEW
        )

    # --- what is written --------------------------------------------------------------------------

    def _new_files(self) -> list[bytes]:
        query = "SELECT id FROM files WHERE state = 3 ORDER BY id"
        both = _side_by_side(self._read(query), self._copy.rows(query), 1)
        return [ours[0] for ours, theirs in both if ours and not theirs]

    def _write(self) -> int:
        """All rows; how many entries are new, or have changed."""
        copy = self._copy
        self._left = array("q", sorted(self._left))
        copy.write("DELETE FROM entries WHERE ingest = ?", ((each,) for each in self._left))
        arrived = 0

        def new_entries() -> Iterator[Row]:
            nonlocal arrived
            query = "SELECT * FROM entries WHERE ingest > ? ORDER BY ingest"
            for row in self._read(query, (self._up_to,)):
                arrived += 1
                yield row

        copy.write("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", new_entries())
        # Two logs may have each other's id now.
        copy.write("DELETE FROM logs WHERE id = ?", ((each,) for each in self._renamed))
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        for name in [str(name) for (name,) in self._read(tables)]:
            if name != "entries":
                self._write_table(_Table(self._read, name))
        # Somebody may have begun to fetch payloads into it.
        others = "SELECT id FROM files WHERE state NOT IN (?, ?)"
        copy.write(LET_GO, list(copy.rows(others, (FILE_ATTACHED, FILE_GARBAGE))))
        return arrived

    def _write_table(self, table: "_Table") -> None:
        gone: list[Row] = []
        new: list[Row] = []

        def flush() -> None:
            self._copy.write(table.remove, gone)
            self._copy.write(table.put, new)
            gone.clear()
            new.clear()

        both = _side_by_side(self._read(table.query), table.pages(self._copy.rows), len(table.key))
        for ours, theirs in both:
            if ours is None:
                assert theirs is not None
                gone.append(theirs[: len(table.key)])
            elif ours != theirs:
                new.append(ours)
            if len(gone) + len(new) >= _PAGE_ROWS:
                flush()
        flush()


class _Table:
    """A table other than `entries`: how it is read in order, and how rows of it are written."""

    def __init__(self, read: "Read", name: str) -> None:
        columns = list(read(f"PRAGMA table_info({name})", ()))
        key = sorted((place, str(column)) for _, column, *_, place in columns if place)
        self.key: Final = [column for _, column in key]
        rest = [str(each[1]) for each in columns if str(each[1]) not in self.key]
        # `meta` says that it is a backup; unfinished payloads are not part of one.
        which = {"meta": f"name <> '{RESTORED}'", "files": f"state = {FILE_ATTACHED}"}
        where = which.get(name, "1")
        keys = ", ".join(self.key)
        self._keys = keys
        # The names are those of the schema.
        columns_read = ", ".join((*self.key, *rest))
        self._select = f"SELECT {columns_read} FROM {name} WHERE {where}"  # noqa: S608
        self.query: Final = f"{self._select} ORDER BY {keys}"
        # SQLite writes the indexes of all columns that are set; these never change.
        fixed = ("author", "log_id") if name == "logs" else ()
        changes = ", ".join(f"{each} = excluded.{each}" for each in rest if each not in fixed)
        self.put: Final = (
            f"INSERT INTO {name}({columns_read})"  # noqa: S608
            f" VALUES ({', '.join('?' * len(columns))})"
            f" ON CONFLICT({keys}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
        )
        those = " AND ".join(f"{each} = ?" for each in self.key)
        remove = f"DELETE FROM {name} WHERE {those}"  # noqa: S608
        self.remove: Final = LET_GO if name == "files" else remove

    def pages(self, read: "Read") -> Iterator[Row]:
        """All rows in order; none is being read while what was given is written to."""
        after: Row | None = None
        places = ", ".join("?" * len(self.key))
        while True:
            clause = "" if after is None else f" AND ({self._keys}) > ({places})"
            query = f"{self._select}{clause} ORDER BY {self._keys} LIMIT {_PAGE_ROWS}"
            rows = list(read(query, after or ()))
            yield from rows
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][: len(self.key)]


_REMAINS: Final = (
    "WITH RECURSIVE ids(id) AS (SELECT min(log) FROM entries UNION ALL"
    " SELECT (SELECT min(log) FROM entries WHERE log > ids.id) FROM ids WHERE id IS NOT NULL)"
    " SELECT id FROM ids WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM logs)"
)
"""The numbers that entries have and no log, each looked for in the index behind the one before."""


def _side_by_side(
    ours: Iterable[Row], theirs: Iterable[Row], width: int
) -> Iterator[tuple[Row | None, Row | None]]:
    """The rows of both, in the order of their first columns, those with the same key together."""
    left, right = iter(ours), iter(theirs)
    our, their = next(left, None), next(right, None)
    while our is not None or their is not None:
        if their is None or (our is not None and our[:width] < their[:width]):
            yield our, None
            our = next(left, None)
        elif our is None or their[:width] < our[:width]:
            yield None, their
            their = next(right, None)
        else:
            yield our, their
            our, their = next(left, None), next(right, None)


def _number(blob: object) -> int:
    assert isinstance(blob, bytes)
    return unpack_u64(blob)
