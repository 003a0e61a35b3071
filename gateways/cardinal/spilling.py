"""A mapping of bytes that leaves memory once it is large: what is in a block of any size.

In a database without a name, which SQLite keeps in its cache as long as it fits there and in a
temporary file otherwise; it is gone with the process, however that ends.
"""

from collections.abc import Iterator, MutableMapping
from typing import Final

import apsw

IN_MEMORY_ITEMS_MAX: Final = 50_000
IN_MEMORY_BYTES_MAX: Final = 8 << 20
_CACHE_KIB: Final = 8_192
_PAGE_ITEMS: Final = 1_000


class Spilling(MutableMapping[bytes, bytes]):
    """In the order in which keys came first, as a dict."""

    def __init__(self) -> None:
        self._memory: dict[bytes, bytes] = {}
        self._bytes = 0
        self._db: apsw.Connection | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether it is small."""
        return self._db is None

    def _spill(self) -> None:
        self._db = db = apsw.Connection("")
        db.execute("PRAGMA journal_mode = OFF")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute("CREATE TABLE items(id INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)")
        # Never committed: there is nothing that would have to outlive it.
        db.execute("BEGIN")
        db.executemany("INSERT INTO items(key, value) VALUES (?, ?)", self._memory.items())
        self._memory.clear()

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if self._db is None:
            before = self._memory.get(key)
            self._bytes += len(value) + (len(key) if before is None else -len(before))
            self._memory[key] = value
            if len(self._memory) > IN_MEMORY_ITEMS_MAX or self._bytes > IN_MEMORY_BYTES_MAX:
                self._spill()
            return
        self._db.execute(
            "INSERT INTO items(key, value) VALUES (?, ?)"
            " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            (key, value),
        )

    def get(self, key: bytes, default: bytes = b"") -> bytes:  # type: ignore[override]
        """What it holds of a key."""
        try:
            return self[key]
        except KeyError:
            return default

    def __getitem__(self, key: bytes) -> bytes:
        if self._db is None:
            return self._memory[key]
        row = self._db.execute("SELECT value FROM items WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        found: bytes = row[0]
        return found

    def __delitem__(self, key: bytes) -> None:
        self[key]
        if self._db is None:
            del self._memory[key]
        else:
            self._db.execute("DELETE FROM items WHERE key = ?", (key,))

    def __contains__(self, key: object) -> bool:
        if self._db is None:
            return key in self._memory
        query = "SELECT 1 FROM items WHERE key = ?"
        return isinstance(key, bytes) and self._db.execute(query, (key,)).fetchone() is not None

    def __iter__(self) -> Iterator[bytes]:
        if self._db is None:
            yield from self._memory
            return
        for key, _ in self.pairs():
            yield key

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values: as `items`, which would look up each."""
        if self._db is None:
            yield from self._memory.items()
            return
        last = 0
        query = "SELECT id, key, value FROM items WHERE id > ? ORDER BY id LIMIT ?"
        # A page at a time: what is put in meanwhile would be met, or not, by one long query.
        while page := [*self._db.execute(query, (last, _PAGE_ITEMS))]:
            last = page[-1][0]
            yield from ((key, value) for _, key, value in page)

    def __len__(self) -> int:
        if self._db is None:
            return len(self._memory)
        found: int = self._db.execute("SELECT count(*) FROM items").get
        return found
