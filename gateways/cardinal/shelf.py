"""Blocks that have left an assembly's memory: put on a shelf, and taken from it again.

Without it such a block is counted anew from its messages for each further one, and whoever writes
messages of some thousand blocks in turn has all of them read again and again: 38 bytes that cost a
second. With it a block is counted anew once by a process, and from then on going and coming back
costs little, however much there is of it: whatever is large (keys that were seen, prefixes under
which something is owed, sub-batches and their parts, what waits for the Batch) stays on the shelf,
in rows, and each message looks up its own.

The shelf is a database without a name, as in `spilling`: SQLite keeps it in its cache while it fits
there, and in a temporary file otherwise, which is gone with the process. What lies there is
Python's own form of objects of this process, and is read by nobody else; hashes of keys count in
this process alone, too.
"""

import io
import pickle
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, TypeVar

import apsw

from gateways.cardinal.counted import Counted
from gateways.cardinal.counting import Copy, Owed, PartKey
from logstore import StoreFailed

ITEMS_IN_MEMORY_MAX: Final = 2_048
"""Of one kind, of a block that comes back: of more all stay in rows."""
_BYTES_IN_MEMORY_MAX: Final = 65_536
"""Of their keys."""
_CACHE_KIB: Final = 8_192

K = TypeVar("K", int, bytes)
V = TypeVar("V")


class Shelf:
    """See the module. Of one assembly, and gone with it. Every method raises StoreFailed."""

    def __init__(self) -> None:
        self._db: apsw.Connection | None = None
        self._blocks = 0
        self._parts = 0

    def _open(self) -> apsw.Connection:
        if self._db is None:
            # Most consumers never need it.
            self._db = db = apsw.Connection("")
            db.execute("PRAGMA journal_mode = OFF")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            db.execute("CREATE TABLE blocks(hash BLOB PRIMARY KEY, block BLOB) WITHOUT ROWID")
            db.execute(
                "CREATE TABLE rows(block INTEGER, part INTEGER, key, value,"
                " PRIMARY KEY (block, part, key)) WITHOUT ROWID"
            )
            # Never committed: there is nothing that would have to outlive it.
            db.execute("BEGIN")
        return self._db

    def put(self, block: Counted) -> None:
        """It leaves memory."""
        with _translated():
            db = self._open()
            if not block.on_shelf:
                self._blocks += 1
                block.on_shelf = self._blocks
            for copy in block.copies.values():
                self._put_away(copy, block.on_shelf)
            db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?)", (block.hash, _dumped(block)))

    def _put_away(self, copy: Copy, block: int) -> None:
        if isinstance(copy.seen, dict) and _is_large(copy.seen):
            copy.seen = _Rows(self, self.new_part(block), copy.seen)
        if isinstance(copy.counts, dict) and _is_large(copy.counts):
            copy.counts = _Rows(self, self.new_part(block), copy.counts)
        if isinstance(copy.tracked, dict) and _is_large(copy.tracked):
            copy.tracked = _Rows(self, self.new_part(block), copy.tracked)
        if isinstance(copy.waiting, list) and _is_large(map(_key_of, copy.waiting)):
            copy.waiting = _WaitingRows(self, self.new_part(block), copy.waiting)
        parts = chain.from_iterable(each.came for each in copy.owed.values())
        if isinstance(copy.owed, dict) and _is_large(chain(copy.owed, parts)):
            copy.owed = _OwedRows(self, self.new_part(block), copy.owed)

    def take(self, hash_: bytes) -> Counted | None:
        """It is in memory again; None if it was not here."""
        if self._db is None:
            return None
        with _translated():
            row = self._db.execute(
                "DELETE FROM blocks WHERE hash = ? RETURNING block", (hash_,)
            ).fetchone()
        if row is None:
            return None
        block: Counted = self.loaded(row[0])
        return block

    def forget(self, block: Counted) -> None:
        """What of it lies here is needed no more."""
        if block.on_shelf and self._db is not None:
            with _translated():
                self._db.execute("DELETE FROM rows WHERE block = ?", (block.on_shelf,))
        block.on_shelf = 0

    def execute(self, query: str, bound: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """What rows are read and written by."""
        with _translated():
            return self._open().execute(query, bound).fetchall()

    def iterate(self, query: str, bound: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
        """Rows one after another, of which there may be more than fit into memory."""
        with _translated():
            yield from self._open().execute(query, bound)

    def insert(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Many rows."""
        with _translated():
            self._open().executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)

    def loaded(self, data: bytes) -> Any:  # noqa: ANN401 - what was dumped
        """What `_dumped` has made; rows in it are those here."""
        return _Unpickler(io.BytesIO(data), self).load()

    def new_part(self, block: int) -> "_Place":
        """Where further rows of a block lie."""
        self._parts += 1
        return block, self._parts


_Place = tuple[int, int]
"""The number of a block, and of a part of it."""


@contextmanager
def _translated() -> Iterator[None]:
    """It is not the side table that fails, which would be made anew."""
    try:
        yield
    except apsw.Error as error:
        raise StoreFailed(
            f"blocks that leave memory cannot be kept ({error})",
            "the folder for temporary files",
            "free space there, or let SQLITE_TMPDIR name another",
        ) from error


def _is_large(keys: Iterable[int | bytes]) -> bool:
    """Whether there is too much to go and come back with each message."""
    size = 0
    for count, key in enumerate(keys, 1):
        size += len(key) if isinstance(key, bytes) else 0
        if count > ITEMS_IN_MEMORY_MAX or size > _BYTES_IN_MEMORY_MAX:
            return True
    return False


def _key_of(what: bytes | PartKey) -> bytes:
    return what if isinstance(what, bytes) else what.batch


class _Mapping(MutableMapping[K, V]):
    """A mapping whose rows are on the shelf."""

    def __init__(
        self, shelf: Shelf, place: _Place, items: MutableMapping[K, V], count: int = 0
    ) -> None:
        self._shelf = shelf
        self.place: Final = place
        self._count = count or len(items)
        # Made first: what is kept of one may need rows of its own.
        rows = [(*place, key, self._kept(value)) for key, value in items.items()]
        shelf.insert(rows)

    def _kept(self, value: V) -> object:
        """A value as it lies in its row."""
        raise NotImplementedError

    def _given(self, kept: Any) -> V:  # noqa: ANN401 - whatever `_kept` made
        raise NotImplementedError

    def __getitem__(self, key: K) -> V:
        query = "SELECT value FROM rows WHERE block = ? AND part = ? AND key = ?"
        found = self._shelf.execute(query, (*self.place, key))
        if not found:
            raise KeyError(key)
        return self._given(found[0][0])

    def __contains__(self, key: object) -> bool:
        query = "SELECT 1 FROM rows WHERE block = ? AND part = ? AND key = ?"
        return bool(self._shelf.execute(query, (*self.place, key)))

    def __setitem__(self, key: K, value: V) -> None:
        self._count += key not in self
        query = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)"
        self._shelf.execute(query, (*self.place, key, self._kept(value)))

    def __delitem__(self, key: K) -> None:
        self[key]
        query = "DELETE FROM rows WHERE block = ? AND part = ? AND key = ?"
        self._shelf.execute(query, (*self.place, key))
        self._count -= 1

    def clear(self) -> None:
        """As of a dict, without looking at each."""
        self._shelf.execute("DELETE FROM rows WHERE block = ? AND part = ?", self.place)
        self._count = 0

    def __iter__(self) -> Iterator[K]:
        query = "SELECT key FROM rows WHERE block = ? AND part = ?"
        for (key,) in self._shelf.iterate(query, self.place):
            yield key

    def __len__(self) -> int:
        return self._count


class _Rows(_Mapping[K, int]):
    """A mapping to numbers."""

    def _kept(self, value: int) -> object:
        return value

    def _given(self, kept: int) -> int:
        return kept


class _OwedRows(_Mapping[bytes, Owed]):
    """What sub-batches owe: who changes one that was looked up puts it back."""

    def _kept(self, value: Owed) -> object:
        if isinstance(value.came, dict) and _is_large(value.came):
            value.came = _Rows(self._shelf, self._shelf.new_part(self.place[0]), value.came)
        return _dumped(value)

    def _given(self, kept: bytes) -> Owed:
        owed: Owed = self._shelf.loaded(kept)
        return owed


class _WaitingRows:
    """What came before a Batch, in its order."""

    def __init__(
        self, shelf: Shelf, place: _Place, items: Iterable[bytes | PartKey], count: int = 0
    ) -> None:
        self._shelf = shelf
        self.place: Final = place
        self._count = count
        for what in items:
            self.append(what)

    def append(self, what: bytes | PartKey) -> None:
        """It waits, too."""
        # A part is told from a key by its type in the row.
        value = what if isinstance(what, bytes) else f"{what.batch.hex()} {what.part} {what.parts}"
        self._shelf.insert([(*self.place, self._count, value)])
        self._count += 1

    def clear(self) -> None:
        """Nothing waits."""
        self._shelf.execute("DELETE FROM rows WHERE block = ? AND part = ?", self.place)
        self._count = 0

    def __iter__(self) -> Iterator[bytes | PartKey]:
        query = "SELECT value FROM rows WHERE block = ? AND part = ? ORDER BY key"
        for (value,) in self._shelf.iterate(query, self.place):
            if isinstance(value, bytes):
                yield value
            else:
                batch, part, parts = value.split()
                yield PartKey(
                    bytes.fromhex(batch), int(part), None if parts == "None" else int(parts)
                )

    def __len__(self) -> int:
        return self._count


_ROWS: Final = (_Rows, _OwedRows, _WaitingRows)


def _dumped(what: Counted | Owed) -> bytes:
    written = io.BytesIO()
    _Pickler(written, protocol=pickle.HIGHEST_PROTOCOL).dump(what)
    return written.getvalue()


class _Pickler(pickle.Pickler):
    """Rows go by their place."""

    def persistent_id(self, obj: object) -> tuple[int, _Place, int] | None:
        if isinstance(obj, _Rows | _OwedRows | _WaitingRows):
            return _ROWS.index(type(obj)), obj.place, len(obj)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, shelf: Shelf) -> None:
        super().__init__(data)
        self._shelf = shelf

    def persistent_load(self, pid: Any) -> object:  # noqa: ANN401 - whatever `persistent_id` made
        kind, place, count = pid
        return _ROWS[kind](self._shelf, place, {}, count)
