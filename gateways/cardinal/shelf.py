"""Blocks that have left an assembly's memory: put on a shelf, and taken from it again.

Without it such a block is counted anew from its messages for each further one, and whoever writes
messages of some thousand blocks in turn has all of them read again and again: 38 bytes that cost a
second. With it a block is counted anew once by a process, and from then on going and coming back
costs what it holds, and that is little: of a block with many keys these stay on the shelf, in rows,
and each of its messages looks up its own.

The shelf is a database without a name, as in `spilling`: SQLite keeps it in its cache while it fits
there, and in a temporary file otherwise, which is gone with the process. What lies there is
Python's own form of objects of this process, and is read by nobody else; hashes of keys count in
this process alone, too.
"""

import io
import pickle
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import apsw

from gateways.cardinal.assembly import Counted

KEYS_IN_MEMORY_MAX: Final = 2_048
"""Of a block that comes back: those of a larger one stay in rows."""
_CACHE_KIB: Final = 8_192


class Shelf:
    """See the module. Of one assembly, and gone with it."""

    def __init__(self) -> None:
        self._db: apsw.Connection | None = None
        self._sets = 0

    def _open(self) -> apsw.Connection:
        if self._db is None:
            # Most consumers never need it.
            self._db = db = apsw.Connection("")
            db.execute("PRAGMA journal_mode = OFF")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            db.execute("CREATE TABLE blocks(hash BLOB PRIMARY KEY, block BLOB) WITHOUT ROWID")
            db.execute(
                "CREATE TABLE seen(id INTEGER, key INTEGER, said INTEGER, PRIMARY KEY (id, key))"
                " WITHOUT ROWID"
            )
            # Never committed: there is nothing that would have to outlive it.
            db.execute("BEGIN")
        return self._db

    def put(self, block: Counted) -> None:
        """It leaves memory."""
        db = self._open()
        for copy in block.copies.values():
            if isinstance(copy.seen, dict) and len(copy.seen) > KEYS_IN_MEMORY_MAX:
                self._sets += 1
                copy.seen = _Rows(db, self._sets, copy.seen)
        written = io.BytesIO()
        _Pickler(written, protocol=pickle.HIGHEST_PROTOCOL).dump(block)
        db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?)", (block.hash, written.getvalue()))

    def take(self, hash_: bytes) -> Counted | None:
        """It is in memory again; None if it was not here."""
        if self._db is None:
            return None
        row = self._db.execute(
            "DELETE FROM blocks WHERE hash = ? RETURNING block", (hash_,)
        ).fetchone()
        if row is None:
            return None
        block: Counted = _Unpickler(io.BytesIO(row[0]), self._db).load()
        return block


class _Rows(MutableMapping[int, int]):
    """What was seen of a block with many keys."""

    def __init__(
        self, db: apsw.Connection, id_: int, items: dict[int, int], count: int = 0
    ) -> None:
        self._db = db
        self.id: Final = id_
        self._count = count or len(items)
        rows = ((id_, key, said) for key, said in items.items())
        db.executemany("INSERT INTO seen VALUES (?, ?, ?)", rows)

    def __getitem__(self, key: int) -> int:
        found = self._db.execute(
            "SELECT said FROM seen WHERE id = ? AND key = ?", (self.id, key)
        ).fetchone()
        if found is None:
            raise KeyError(key)
        said: int = found[0]
        return said

    def __setitem__(self, key: int, said: int) -> None:
        self._count += key not in self
        self._db.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (self.id, key, said))

    def __delitem__(self, key: int) -> None:
        self[key]
        self._db.execute("DELETE FROM seen WHERE id = ? AND key = ?", (self.id, key))
        self._count -= 1

    def clear(self) -> None:
        """As of a dict, without looking at each."""
        self._db.execute("DELETE FROM seen WHERE id = ?", (self.id,))
        self._count = 0

    def __iter__(self) -> Iterator[int]:
        for (key,) in self._db.execute("SELECT key FROM seen WHERE id = ?", (self.id,)):
            yield key

    def __len__(self) -> int:
        return self._count


class _Pickler(pickle.Pickler):
    """Rows go by their number."""

    def persistent_id(self, obj: object) -> tuple[int, int] | None:
        return (obj.id, len(obj)) if isinstance(obj, _Rows) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, db: apsw.Connection) -> None:
        super().__init__(data)
        self._rows_of = db

    def persistent_load(self, pid: Any) -> _Rows:  # noqa: ANN401 - whatever `persistent_id` made
        id_, count = pid
        return _Rows(self._rows_of, id_, {}, count)
