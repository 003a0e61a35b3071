"""Which chunks are held, and where: `swarm.sqlite3` in the store (spec section 4).

Derived from the logs that declare themselves, of whatever author: the address of each chunk in a
log of chunks, the logs of nodes, and what is in which bin of the store's own (`side_bins`). To work
out an address takes 128 digests, so it is done once for each chunk, when it comes; who has just
made a chunk says what its address is.

One thing in it no log has: which items of its peers' streams the node has had. That belongs to this
store as it is now. One that was put back has not what the newer one had, so it goes with all the
rest when the table turns out to be of another store or history; then hashes are offered again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeVar

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

from . import side_bins
from .key_file import known_overlay
from .side_bins import Bin, Item, Unplaced, select_among

log = logging.getLogger(__name__)

T = TypeVar("T")

FILE_NAME: Final = "swarm.sqlite3"
VERSION: Final = 2
TOGETHER_CHUNKS: Final = 1_000
"""Taken with one question for all of them."""
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
    "CREATE TABLE totals(chunks INTEGER NOT NULL)",
    "INSERT INTO totals VALUES (0)",
    # Whose bins are in it.
    "CREATE TABLE node(overlay BLOB NOT NULL)",
    *side_bins.STATEMENTS,
    (
        "CREATE TABLE intervals(overlay BLOB NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL,"
        " text TEXT NOT NULL, PRIMARY KEY (overlay, name, key))"
    ),
)
_TABLES: Final = ("chunks", "bad", "node", *side_bins.TABLES, "intervals")

_Found = tuple[int, bytes, Kind]
"""An entry's number, and which chunk is in it."""


class Place(NamedTuple):
    """Where a chunk lies."""

    address: bytes
    log: LogKey
    seq: int
    kind: Kind


class Interval(NamedTuple):
    """What was had of a stream of a peer, live or history (spec section 3.4)."""

    overlay: bytes
    name: str
    key: str
    text: str


class Side:
    """The side table of one store. Blocks; for any thread. Raises StoreError throughout.

    Who reads does not wait for what is being applied.
    """

    def __init__(self, store: Store) -> None:
        self.seldom: Final = Seldom()
        """Says what goes on being wrong with this store's chunks."""
        self.overlay = known_overlay(store.path)
        """Of the node in the store, whose bins are derived; None: it is not known."""
        self._store = store
        self._expected: dict[tuple[LogKey, int], tuple[bytes, Kind]] = {}
        self._met = Met(
            store,
            self.seldom,
            _COLUMNS,
            declare=_declared,
            news=self._take_news,
            forgotten=self._forget,
        )
        statements = (*self._met.statements, *_STATEMENTS)
        path = side_path(store, FILE_NAME)
        self._table = SideTable(path, VERSION, statements)
        self._readers = SideTable(path, VERSION, statements)
        self._anew = self._times_anew()

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        self._table.close()
        self._readers.close()

    def _reads(self) -> SideTable:
        """Readers of a file have a connection of their own; memory has one."""
        is_shared = not (self._table.in_memory or self._readers.in_memory)
        return self._readers if is_shared else self._table

    def _ask(self, ask: Callable[[SideTable], T]) -> T:
        """Reads, of a table that is not empty because it was just found to be damaged."""
        table = self._reads()
        found = ask(table)
        if self._is_anew() or table is not self._reads():
            self.refresh()
            found = ask(self._reads())
        return found

    def _rows(self, query: str, *bound: "apsw.SQLiteValue") -> list[tuple[Any, ...]]:
        return self._ask(lambda table: table.rows(query, bound))

    def _look(self, work: Callable[[apsw.Connection], T]) -> T:
        return self._ask(lambda table: table.look(work))

    # Bringing it on ------------------------------------------------------------------------------

    def expect(self, log: LogKey, seq: int, address: bytes, kind: Kind) -> None:
        """What the chunk of an entry is that was just made: the next `refresh` need not read it."""
        self._expected[log, seq] = address, kind

    def refresh(self) -> None:
        """Applies what is new in the store."""
        self._check_overlay()
        try:
            self._met.bring_on(self._table)
        finally:
            self._expected.clear()
        if self._is_anew():
            # The other connection has the file that was removed.
            self._table.reopen()
            self._readers.reopen()
            self._anew = self._times_anew()
            self._met.bring_on(self._table)

    def _is_anew(self) -> bool:
        return self._times_anew() != self._anew

    def _times_anew(self) -> tuple[int, int]:
        return self._table.times_anew, self._readers.times_anew

    def _check_overlay(self) -> None:
        """Has all made anew where it is of another node: with another key, another bin is each's.

        A key that cannot be read is no other one.
        """
        if self.overlay is None or _overlay(self._table) == self.overlay:
            return
        self._table.run(lambda db: db.execute("DELETE FROM applied"))

    def _forget(self, db: apsw.Connection) -> None:
        for table in _TABLES:
            db.execute(f"DELETE FROM {table}")  # noqa: S608 (constants)
        db.execute("UPDATE totals SET chunks = 0")
        if self.overlay is not None:
            db.execute("INSERT INTO node VALUES (?)", (self.overlay,))

    def _take_news(
        self,
        db: apsw.Connection,
        met: MetLog,
        late: Iterator[StoredEntry],
        fresh: Iterator[StoredEntry],
    ) -> bool:
        if met.kind == _SYNC:
            query = "SELECT bin FROM logs WHERE id = ? AND author = ? AND overlay = ?"
            bin_ = db.execute(query, (met.id, self._store.author, _node(db))).get
            if bin_ is not None:
                side_bins.take_items(db, self._store, self.seldom, met, bin_, fresh)
                return False
        if met.kind == _CHUNKS:
            made = self._made(met)
            if made:
                fresh = self._met.fresh(db, met._replace(seq=made[-1][0]))
            found = chain(made, map(_read, chain(late, fresh)))
            while some := [*islice(found, TOGETHER_CHUNKS)]:
                _take_chunks(db, met, some)
        return False

    def _made(self, met: MetLog) -> list[_Found]:
        """The next entries of a log, as far as it was said what they are."""
        made: list[_Found] = []
        seq = met.seq + 1
        while (expected := self._expected.get((met.key, seq))) is not None:
            made.append((seq, *expected))
            seq += 1
        return made

    # What it says --------------------------------------------------------------------------------

    def places(self, address: bytes, own: bytes = b"", limit: int = -1) -> list[Place]:
        """Where a chunk lies: in logs of the author `own` first, then as they were met."""
        where = "c.address = ? ORDER BY l.author <> ?, c.log, c.seq LIMIT ?"
        return self._places(where, address, own, limit)

    def places_of(
        self, addresses: Sequence[bytes], own: bytes, limit: int
    ) -> dict[bytes, list[Place]]:
        """`places` of some, 500 at most, which costs a tenth for each; none if there are more."""
        marks = ", ".join("?" * len(addresses))
        found: dict[bytes, list[Place]] = {each: [] for each in addresses}
        places = self._places(f"c.address IN ({marks}) LIMIT ?", *addresses, limit + 1)
        if len(places) > limit:
            return {}
        for place in sorted(places, key=lambda each: each.log.author != own):
            found[place.address].append(place)
        return found

    def page(self, behind: bytes, limit: int) -> list[Place]:
        """The next places in the order of addresses, those of one address together."""
        return self._places("c.address > ? ORDER BY c.address, c.log, c.seq LIMIT ?", behind, limit)

    def _places(self, where: str, *bound: bytes | int) -> list[Place]:
        query = (
            "SELECT c.address, l.author, l.log_id, c.seq, c.kind FROM chunks c"  # noqa: S608
            f" JOIN logs l ON l.id = c.log WHERE {where}"
        )
        rows = self._rows(query, *bound)
        return [_place(row) for row in rows]

    def first_logs(self, author: bytes, overlay: bytes) -> list[int]:
        """Where the logs of a node of this author begin, if it has any."""
        query = "SELECT log_id FROM logs WHERE kind = ? AND author = ? AND overlay = ?"
        rows = self._rows(query, _RECEIPTS, author, overlay)
        return sorted(unpack_u64(log_id) - 1 for (log_id,) in rows)

    def counts(self) -> tuple[int, int]:
        """How many chunks are held, and how many payloads where one should be are none."""
        query = "SELECT chunks, (SELECT count(*) FROM bad) FROM totals"
        [(chunks, bad)] = self._rows(query)
        return self.held(chunks), bad

    def held(self, chunks: int) -> int:
        """How many of so many chunks in the table are held.

        No feed tells of payloads that are deleted, so those of the logs are counted, each time:
        there are few logs of chunks. Of a chunk that lies in two of them, one of which is deleted,
        this says no less than is true.
        """
        rows = self._rows("SELECT author, log_id FROM logs WHERE kind = ?", _CHUNKS)
        infos = [self._store.log(LogKey(author, unpack_u64(log_id))) for author, log_id in rows]
        # All but the declaration.
        return min(chunks, sum(each.payloads - 1 for each in infos if each is not None))

    # The bins of the node ------------------------------------------------------------------------

    def bins(self) -> tuple[dict[int, Bin], int]:
        """The bins whose logs are here, and how many chunks are in the table."""
        return self._look(
            lambda db: (side_bins.load_bins(db), db.execute("SELECT chunks FROM totals").get)
        )

    def items(self, bin_: int, first: int, last: int) -> list[bytes]:
        """The addresses of a bin from one index to another, as far as there are."""
        query = "SELECT address FROM items WHERE bin = ? AND number BETWEEN ? AND ? ORDER BY number"
        return [address for (address,) in self._rows(query, bin_, first, last)]

    def item(self, address: bytes) -> Item | None:
        """Which place an address has."""
        query = "SELECT bin, number FROM items WHERE address = ? ORDER BY bin, number LIMIT 1"
        rows = self._rows(query, address)
        return Item(*rows[0]) if rows else None

    def known(self, addresses: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Those of some addresses that are of chunks in a log, and those that have a place."""
        return self._look(
            lambda db: (select_among(db, "chunks", addresses), select_among(db, "items", addresses))
        )

    def unplaced(self, behind: int, limit: int) -> list[Unplaced]:
        """The next chunks that are in a log and have no place."""
        query = "SELECT id, address FROM unplaced WHERE id > ? ORDER BY id LIMIT ?"
        return [Unplaced(*row) for row in self._rows(query, behind, limit)]

    # Peers ---------------------------------------------------------------------------------------

    def intervals(self, overlay: bytes | None = None) -> list[Interval]:
        """What was had of a peer's streams, or of those of all peers."""
        query = (
            "SELECT overlay, name, key, text FROM intervals WHERE ?1 IS NULL OR overlay = ?1"
            " ORDER BY overlay, name, key"
        )
        return [Interval(*row) for row in self._rows(query, overlay)]

    def save_intervals(self, intervals: Iterable[Interval]) -> None:
        """Replaces the record of each of these streams, in one transaction."""
        rows = [*intervals]
        self._table.run(
            lambda db: db.executemany("INSERT OR REPLACE INTO intervals VALUES (?, ?, ?, ?)", rows)
        )

    def forget_intervals(self, most: int) -> None:
        """Keeps the records of so many peers, those that were written last."""
        query = (
            "DELETE FROM intervals WHERE overlay IN (SELECT overlay FROM intervals GROUP BY overlay"
            " ORDER BY max(rowid) DESC LIMIT -1 OFFSET ?)"
        )
        self._table.run(lambda db: db.execute(query, (most,)))


def _read(entry: StoredEntry) -> _Found:
    # A payload that lies in a file is larger than any chunk.
    chunk = read_chunk(entry.payload or b"")
    return entry.seq, chunk.address, chunk.kind


def _take_chunks(db: apsw.Connection, met: MetLog, found: Sequence[_Found]) -> None:
    bad = [(met.id, pack_u64(seq)) for seq, _, kind in found if kind is Kind.BAD]
    db.executemany("INSERT OR IGNORE INTO bad VALUES (?, ?)", bad)
    new = [*dict.fromkeys(address for _, address, kind in found if kind is not Kind.BAD)]
    known = select_among(db, "chunks", new)
    new = [each for each in new if each not in known]
    db.execute("UPDATE totals SET chunks = chunks + ?", (len(new),))
    placed = select_among(db, "items", new)
    db.executemany(
        "INSERT INTO unplaced(address) VALUES (?)",
        [(each,) for each in new if each not in placed],
    )
    db.executemany(
        "INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?)",
        [
            (address, met.id, pack_u64(seq), _KINDS.index(kind))
            for seq, address, kind in found
            if kind is not Kind.BAD
        ],
    )


def _overlay(table: SideTable) -> object:
    return table.look(_node)


def _node(db: apsw.Connection) -> object:
    return db.execute("SELECT overlay FROM node").get


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


def in_pages(side: Side, limit: int = 1_000) -> Iterable[Place]:
    """All places, in the order of addresses."""
    behind = b""
    while page := side.page(behind, limit):
        behind = page[-1].address
        yield from page
