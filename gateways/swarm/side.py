"""Which chunks are held, and where: `swarm.sqlite3` in the store (spec section 4).

Derived from the logs that declare themselves, of whatever author: the address of each chunk in a
log of chunks, and the logs of nodes. To work out an address takes 128 digests, so it is done once
for each chunk, when it comes; who has just made a chunk says what its address is.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import apsw

from gateways import DeclaredRow, Met, MetLog, SideTable, pack_u64, side_path, unpack_u64
from gateways.declaration import DeclarationError
from gateways.swarm.bmt import Kind, read_chunk
from gateways.swarm.declared import (
    BinDeclared,
    ChunksDeclared,
    FeedDeclared,
    ReceiptsDeclared,
    read_declared,
)
from logstore import Seldom, Store, StoredEntry
from wire import LogKey

log = logging.getLogger(__name__)

FILE_NAME: Final = "swarm.sqlite3"
VERSION: Final = 1
_CHUNKS, _RECEIPTS, _SYNC, _GONE, _FEED = range(1, 6)
_COLUMNS: Final = ("bin INTEGER", "overlay BLOB")
_KINDS: Final = (Kind.CONTENT, Kind.FEED)
"""As the table has them: by their places here."""
# Of a chunk that lies in several logs one may be dropped, and is had from another then.
_STATEMENTS: Final = (
    (
        "CREATE TABLE chunks(address BLOB NOT NULL, log INTEGER NOT NULL, seq BLOB NOT NULL,"
        " kind INTEGER NOT NULL, PRIMARY KEY (address, log, seq)) WITHOUT ROWID"
    ),
    "CREATE TABLE bad(log INTEGER NOT NULL, seq BLOB NOT NULL, PRIMARY KEY (log, seq))",
)


class Place(NamedTuple):
    """Where a chunk lies."""

    address: bytes
    log: LogKey
    seq: int
    kind: Kind


class Side:
    """The side table of one store. Blocks; for any thread. Raises StoreError throughout."""

    def __init__(self, store: Store) -> None:
        self.seldom: Final = Seldom()
        """Says what goes on being wrong with this store's chunks."""
        self._expected: dict[tuple[LogKey, int], tuple[bytes, Kind]] = {}
        self._met = Met(
            store,
            self.seldom,
            _COLUMNS,
            declare=_declared,
            news=self._take_news,
            forgotten=_forget,
        )
        statements = (*self._met.statements, *_STATEMENTS)
        self._table = SideTable(side_path(store, FILE_NAME), VERSION, statements)

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        self._table.close()

    # Bringing it on ------------------------------------------------------------------------------

    def expect(self, log: LogKey, seq: int, address: bytes, kind: Kind) -> None:
        """What the chunk of an entry is, that was just made: the next `refresh` need not ask."""
        self._expected[log, seq] = address, kind

    def refresh(self) -> None:
        """Applies what is new in the store."""
        try:
            self._met.bring_on(self._table)
        finally:
            self._expected.clear()

    def _take_news(
        self,
        db: apsw.Connection,
        met: MetLog,
        late: Iterator[StoredEntry],
        fresh: Iterator[StoredEntry],
    ) -> bool:
        for entry in chain(late, fresh):
            if met.kind == _CHUNKS:
                self._take_chunk(db, met, entry)
        return False

    def _take_chunk(self, db: apsw.Connection, met: MetLog, entry: StoredEntry) -> None:
        seq = pack_u64(entry.seq)
        expected = self._expected.get((entry.key, entry.seq))
        if expected is not None:
            address, kind = expected
        else:
            # A payload that lies in a file is larger than any chunk.
            chunk = read_chunk(entry.payload or b"")
            address, kind = chunk.address, chunk.kind
        if kind is Kind.BAD:
            db.execute("INSERT OR IGNORE INTO bad VALUES (?, ?)", (met.id, seq))
            return
        db.execute(
            "INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?)",
            (address, met.id, seq, _KINDS.index(kind)),
        )

    # What it says --------------------------------------------------------------------------------

    def places(self, address: bytes, own: bytes = b"", limit: int = -1) -> list[Place]:
        """Where a chunk lies: in logs of the author `own` first, then as they were met."""
        where = "c.address = ? ORDER BY l.author <> ?, c.log, c.seq LIMIT ?"
        return self._places(where, address, own, limit)

    def page(self, behind: bytes, limit: int) -> list[Place]:
        """The next places in the order of addresses, those of one address together."""
        return self._places("c.address > ? ORDER BY c.address, c.log, c.seq LIMIT ?", behind, limit)

    def _places(self, where: str, *bound: bytes | int) -> list[Place]:
        query = (
            "SELECT c.address, l.author, l.log_id, c.seq, c.kind FROM chunks c"  # noqa: S608
            f" JOIN logs l ON l.id = c.log WHERE {where}"
        )
        rows = self._table.rows(query, bound)
        return [_place(row) for row in rows]

    def first_logs(self, author: bytes, overlay: bytes) -> list[int]:
        """Where the logs of a node of this author begin, if it has any."""
        query = "SELECT log_id FROM logs WHERE kind = ? AND author = ? AND overlay = ?"
        rows = self._table.rows(query, (_RECEIPTS, author, overlay))
        return sorted(unpack_u64(log_id) - 1 for (log_id,) in rows)  # type: ignore[arg-type]

    def counts(self) -> tuple[int, int]:
        """How many chunks there are, and how many payloads where one should be are none."""
        query = "SELECT (SELECT count(DISTINCT address) FROM chunks), (SELECT count(*) FROM bad)"
        [(chunks, bad)] = self._table.rows(query, ())
        assert isinstance(chunks, int)
        assert isinstance(bad, int)
        return chunks, bad


def _place(row: tuple) -> Place:  # type: ignore[type-arg]
    address, author, log_id, seq, kind = row
    return Place(address, LogKey(author, unpack_u64(log_id)), unpack_u64(seq), _KINDS[kind])


def _declared(entry: StoredEntry) -> DeclaredRow | None:
    try:
        found = read_declared(entry.payload or b"")
    except DeclarationError:
        return None
    match found:
        case ChunksDeclared():
            return _CHUNKS, None, None
        case ReceiptsDeclared(overlay):
            return _RECEIPTS, None, overlay
        case BinDeclared(role, bin_, overlay):
            return _SYNC if role == "sync" else _GONE, bin_, overlay
        case FeedDeclared(overlay):
            return _FEED, None, overlay


def _forget(db: apsw.Connection) -> None:
    for table in ("chunks", "bad"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 (constants)


def in_pages(side: Side, limit: int = 1_000) -> Iterable[Place]:
    """All places, in the order of addresses."""
    behind = b""
    while page := side.page(behind, limit):
        behind = page[-1].address
        yield from page
