"""What is derived from the logs of all Ockam streams: `ockam.sqlite3` in the store (section 4.5).

Streams by name and by address, positions by who saved them, trims, runs that hold no message. All
of it is in the logs too: of new logs entry 1 is read, of ledgers all, and of the others nothing.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

import apsw

from gateways import DeclaredRow, Met, MetLog, Said, SideTable, pack_u64, side_path, unpack_u64
from gateways.declaration import DeclarationError
from gateways.ockam.declared import StreamDeclared, address_of, read_declared
from gateways.ockam.ledger import Place, Position, Subject, Trim, decode_records
from gateways.reading import CodecError
from logstore import Seldom, Store, StoredEntry, StoreFull
from wire import LogKey

log = logging.getLogger(__name__)

FILE_NAME: Final = "ockam.sqlite3"
VERSION: Final = 5
_STREAM, _LEDGER = 1, 2
_COLUMNS: Final = ("name TEXT", "partition INTEGER", "address TEXT")

# Numbers that may take all of u64 are 8 bytes, which sort as the numbers do. `ledgers` has those
# that count, one of an author: few beside an author's streams, so that joins begin with them.
_STATEMENTS: Final = (
    "CREATE INDEX streams_by_name ON logs(author, name, partition, log_id) WHERE kind = 1",
    "CREATE INDEX streams_by_address ON logs(address) WHERE kind = 1",
    "CREATE TABLE ledgers(log INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)",
    (
        "CREATE TABLE positions(author BLOB NOT NULL, name TEXT NOT NULL,"
        " partition INTEGER NOT NULL, client TEXT NOT NULL, saved_by BLOB NOT NULL,"
        " epoch BLOB NOT NULL, place BLOB NOT NULL,"
        " saved_at INTEGER NOT NULL, PRIMARY KEY (author, name, partition, client, saved_by))"
        " WITHOUT ROWID"
    ),
    (
        "CREATE TABLE trims(author BLOB NOT NULL, log_id BLOB NOT NULL, earliest BLOB NOT NULL,"
        " PRIMARY KEY (author, log_id)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE runs(log INTEGER NOT NULL, last BLOB NOT NULL, first BLOB NOT NULL,"
        " lack TEXT NOT NULL, PRIMARY KEY (log, last)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE held(log INTEGER PRIMARY KEY, seq INTEGER NOT NULL, bytes INTEGER NOT NULL,"
        " payloads INTEGER NOT NULL)"
    ),
)
_TABLES: Final = ("ledgers", "positions", "trims", "runs", "held")


class Stream(NamedTuple):
    """One partition of a stream: one log."""

    id: int
    """In the side table."""
    key: LogKey
    name: str
    partition: int
    address: str


class Saved(NamedTuple):
    """A merged position."""

    subject: Subject
    place: Place
    saved_by: bytes
    """The author of the ledger that says so."""
    saved_at: int
    """Microseconds since 1970, when its entry was stored here."""


class Run(NamedTuple):
    """Entries without a message, both ends included, as of a state of their log."""

    first: int
    last: int


class Held(NamedTuple):
    """Payloads that were counted: up to entry `seq`, `bytes` of those behind entry 1."""

    seq: int
    bytes: int
    payloads: int


class Side:
    """The side table of one store. Blocks; for any thread. Raises StoreError throughout."""

    def __init__(self, store: Store) -> None:
        self.seldom: Final = Seldom()
        """Says what goes on being wrong with this store's streams."""
        self._met = Met(
            store,
            self.seldom,
            _COLUMNS,
            declare=_declared,
            news=_take_news,
            forgotten=_forget,
        )
        statements = (*self._met.statements, *_STATEMENTS)
        self._table = SideTable(side_path(store, FILE_NAME), VERSION, statements)

    def close(self) -> None:
        """Closes the file."""
        self._table.close()

    # Bringing it on ------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Applies what is new in the store; whether a stream or a ledger was among it."""
        return self._met.bring_on(self._table)

    # Streams -------------------------------------------------------------------------------------

    def by_address(self, address: str, authors: Iterable[bytes]) -> Stream | None:
        """The stream of the first author in whose order it is found."""
        rows = self._table.look(
            lambda db: list(
                db.execute(f"{_SELECT_STREAM} AND address = ? ORDER BY log_id", (address,))
            )
        )
        found = [_stream(row) for row in rows]
        for author in authors:
            for each in found:
                # One that another log with a lower id declares as well does not count.
                if each.key.author == author and self.stream(author, *each[2:4]) == each:
                    return each
        return None

    def stream(self, author: bytes, name: str, partition: int) -> Stream | None:
        """One partition of an author's stream."""
        row = self._table.look(
            lambda db: db.execute(
                f"{_SELECT_STREAM} AND author = ? AND name = ? AND partition = ?"
                " ORDER BY log_id LIMIT 1",
                (author, name, partition),
            ).fetchone()
        )
        return None if row is None else _stream(row)

    def has_name(self, author: bytes, name: str) -> bool:
        """Whether an author has any partition of a stream."""
        found: int | None = self._table.look(
            lambda db: (
                db.execute(
                    "SELECT 1 FROM logs WHERE kind = 1 AND author = ? AND name = ?", (author, name)
                ).get
            )
        )
        return found is not None

    def streams(self, author: bytes, name: str | None = None) -> list[Stream]:
        """An author's streams by name and partition, or the partitions of one."""

        def load(db: apsw.Connection) -> list[Stream]:
            condition = "author = ?" if name is None else "author = ? AND name = ?"
            order = " ORDER BY name, partition, log_id"
            bound = (author,) if name is None else (author, name)
            found: dict[tuple[str, int], Stream] = {}
            for row in db.execute(f"{_SELECT_STREAM} AND {condition}{order}", bound):
                each = _stream(row)
                found.setdefault((each.name, each.partition), each)
            return list(found.values())

        return self._table.look(load)

    def authors(self) -> list[bytes]:
        """All authors who have streams."""
        query = "SELECT DISTINCT author FROM logs WHERE kind = 1 ORDER BY author"
        return self._table.look(lambda db: [author for (author,) in db.execute(query)])

    def position_authors(self) -> list[bytes]:
        """All authors in whose streams anybody has a position."""
        query = "SELECT DISTINCT author FROM positions ORDER BY author"
        return self._table.look(lambda db: [author for (author,) in db.execute(query)])

    def count_streams(self, author: bytes) -> int:
        """How many logs an author's streams take."""
        count: int = self._table.look(
            lambda db: (
                db.execute("SELECT count(*) FROM logs WHERE kind = 1 AND author = ?", (author,)).get
            )
        )
        return count

    def highest_log(self, author: bytes, first: int, last: int) -> int | None:
        """The largest log id of an author in a range, of any log that says what it is."""
        found: bytes | None = self._table.look(
            lambda db: (
                db.execute(
                    "SELECT max(log_id) FROM logs WHERE author = ? AND log_id BETWEEN ? AND ?",
                    (author, pack_u64(first), pack_u64(last)),
                ).get
            )
        )
        return None if found is None else unpack_u64(found)

    def first_unmet(self, author: bytes, first: int, end: int) -> int | None:
        """The lowest log id of an author in a range, below `end`, that has not said what it is."""
        rows = self._table.look(
            lambda db: list(
                db.execute(
                    "SELECT log_id FROM logs WHERE author = ? AND log_id >= ? AND log_id < ?"
                    " ORDER BY log_id",
                    (author, pack_u64(first), pack_u64(end)),
                )
            )
        )
        met = {unpack_u64(log_id) for (log_id,) in rows}
        return next((id_ for id_ in range(first, end) if id_ not in met), None)

    # Ledgers -------------------------------------------------------------------------------------

    def ledger(self, author: bytes) -> Said | None:
        """An author's ledger that counts: the one with the lowest log id."""
        row = self._table.look(
            lambda db: db.execute(
                "SELECT log_id, seq, bytes FROM ledgers CROSS JOIN logs ON log = id"
                " WHERE author = ?",
                (author,),
            ).fetchone()
        )
        if row is None:
            return None
        log_id, seq, size = row
        return Said(LogKey(author, unpack_u64(log_id)), unpack_u64(seq), size)

    def count_down(self, key: LogKey, dropped_bytes: int) -> None:
        """Payloads of a ledger were dropped."""
        self._table.run(
            lambda db: db.execute(
                "UPDATE ledgers SET bytes = max(0, bytes - ?) WHERE log ="
                " (SELECT id FROM logs WHERE author = ? AND log_id = ?)",
                (dropped_bytes, key.author, pack_u64(key.log_id)),
            )
        )

    def position(self, subject: Subject, ledgers: Iterable[bytes]) -> Saved | None:
        """What the ledgers of some authors say of a position, merged."""
        counted = {*ledgers}
        rows = self._table.look(
            lambda db: list(
                db.execute(
                    f"{_SELECT_POSITION} WHERE author = ? AND name = ? AND partition = ?"
                    " AND client = ?",
                    subject,
                )
            )
        )
        return max(
            (each for each in map(_saved, rows) if each.saved_by in counted),
            key=lambda each: each.place,
            default=None,
        )

    def positions(self, author: bytes, ledgers: Iterable[bytes]) -> list[Saved]:
        """All positions in an author's streams, merged, by stream and client."""
        counted = {*ledgers}
        order = " ORDER BY name, partition, client, saved_by"

        def load(db: apsw.Connection) -> list[Saved]:
            found: dict[Subject, Saved] = {}
            for row in db.execute(f"{_SELECT_POSITION} WHERE author = ?{order}", (author,)):
                each = _saved(row)
                known = found.get(each.subject)
                if each.saved_by in counted and (known is None or known.place < each.place):
                    found[each.subject] = each
            return list(found.values())

        return self._table.look(load)

    def records_of(self, author: bytes) -> list[Position | Trim]:
        """The state that an author's own ledgers say: what a summary holds."""

        def load(db: apsw.Connection) -> list[Position | Trim]:
            records: list[Position | Trim] = []
            for row in db.execute(f"{_SELECT_POSITION} WHERE saved_by = ?", (author,)):
                each = _saved(row)
                records.append(Position(*each.subject, each.place.epoch, each.place.index))
            for log_id, earliest in db.execute(
                "SELECT log_id, earliest FROM trims WHERE author = ?", (author,)
            ):
                records.append(Trim(unpack_u64(log_id), unpack_u64(earliest)))
            return records

        return self._table.look(load)

    def count_positions(self, author: bytes) -> int:
        """How many positions an author's own ledgers know."""
        count: int = self._table.look(
            lambda db: (
                db.execute("SELECT count(*) FROM positions WHERE saved_by = ?", (author,)).get
            )
        )
        return count

    def earliest(self, key: LogKey) -> int:
        """The index below which the author keeps nothing."""
        found: bytes | None = self._table.look(
            lambda db: (
                db.execute(
                    "SELECT earliest FROM trims WHERE author = ? AND log_id = ?",
                    (key.author, pack_u64(key.log_id)),
                ).get
            )
        )
        return 0 if found is None else unpack_u64(found)

    # Runs and sizes ------------------------------------------------------------------------------

    def run_at(self, stream: Stream, seq: int, lack: str) -> Run | None:
        """The run without messages that an entry is in.

        `lack`: what the log lacks, and what is wanted of it. A run that was found when that was
        another may hold what has come since, or what is to come, and is forgotten.
        """
        row = self._table.look(
            lambda db: db.execute(
                "SELECT first, last, lack FROM runs WHERE log = ? AND last >= ?"
                " ORDER BY last LIMIT 1",
                (stream.id, pack_u64(seq)),
            ).fetchone()
        )
        if row is None or unpack_u64(row[0]) > seq:
            return None
        if row[2] != lack:
            # Whoever reads is not kept from it by a disk that is full.
            with suppress(StoreFull):
                self._table.run(
                    lambda db: db.execute("DELETE FROM runs WHERE log = ?", (stream.id,))
                )
            return None
        return Run(unpack_u64(row[0]), unpack_u64(row[1]))

    def add_run(self, stream: Stream, run: Run, lack: str) -> None:
        """Remembers a run, in place of those in it."""

        def save(db: apsw.Connection) -> None:
            db.execute(
                "DELETE FROM runs WHERE log = ? AND last BETWEEN ? AND ?",
                (stream.id, pack_u64(run.first), pack_u64(run.last)),
            )
            db.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?)",
                (stream.id, pack_u64(run.last), pack_u64(run.first), lack),
            )

        self._table.run(save)

    def held(self, stream: Stream) -> Held:
        """What was counted last of the messages that are held of a stream."""
        row = self._table.look(
            lambda db: db.execute(
                "SELECT seq, bytes, payloads FROM held WHERE log = ?", (stream.id,)
            ).fetchone()
        )
        return Held(0, 0, 0) if row is None else Held(*row)

    def set_held(self, stream: Stream, held: Held) -> None:
        """Remembers what `held` returns."""
        self._table.run(
            lambda db: db.execute(
                "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)", (stream.id, *held)
            )
        )


_SELECT_STREAM: Final = (
    "SELECT id, author, log_id, name, partition, address FROM logs WHERE kind = 1"
)
_SELECT_POSITION: Final = (
    "SELECT author, name, partition, client, epoch, place, saved_by, saved_at FROM positions"
)


def _stream(row: tuple[int, bytes, bytes, str, int, str]) -> Stream:
    id_, author, log_id, name, partition, address = row
    return Stream(id_, LogKey(author, unpack_u64(log_id)), name, partition, address)


def _saved(row: tuple[bytes, str, int, str, bytes, bytes, bytes, int]) -> Saved:
    author, name, partition, client, epoch, place, saved_by, saved_at = row
    subject = Subject(author, name, partition, client)
    return Saved(subject, Place(unpack_u64(epoch), unpack_u64(place)), saved_by, saved_at)


def _declared(entry: StoredEntry) -> DeclaredRow | None:
    try:
        declared = read_declared(entry.payload or b"")
    except DeclarationError:
        return None
    if isinstance(declared, StreamDeclared):
        return _STREAM, *declared, address_of(entry.hash)
    return _LEDGER, None, None, None


def _forget(db: apsw.Connection) -> None:
    for table in _TABLES:
        db.execute(f"DELETE FROM {table}")  # noqa: S608 (constants)


def _take_news(
    db: apsw.Connection, of: MetLog, late: Iterator[StoredEntry], fresh: Iterator[StoredEntry]
) -> bool:
    """Whether the log is a new stream or a ledger; what a ledger says is applied if it counts."""
    if of.kind == _STREAM:
        if of.is_new:
            _say_if_twice(db, of)
        return of.is_new
    if of.is_new:
        _count_ledger(db, of)
    if db.execute("SELECT 1 FROM ledgers WHERE log = ?", (of.id,)).get is not None:
        size = sum(_apply_payload(db, of.key, entry) for entry in chain(late, fresh))
        db.execute("UPDATE ledgers SET bytes = bytes + ? WHERE log = ?", (size, of.id))
    return True


def _count_ledger(db: apsw.Connection, of: MetLog) -> None:
    """Has a new ledger count, unless the author has a lower one: the lowest is the one.

    That is all that two replicas can agree on, whichever of them they have met first.
    """
    author, log_id = of.key.author, of.key.log_id
    other = db.execute(
        "SELECT id, log_id FROM ledgers CROSS JOIN logs ON log = id WHERE author = ?", (author,)
    ).fetchone()
    if other is not None:
        lower, higher = sorted((unpack_u64(other[1]), log_id))
        log.warning(
            "%s has two ledgers, %d and %d: the lower one counts", author.hex(), lower, higher
        )
        if higher == log_id:
            return
        # What the higher one says is forgotten, and the lower one is read from its beginning.
        db.execute("DELETE FROM ledgers WHERE log = ?", (other[0],))
        db.execute("DELETE FROM positions WHERE saved_by = ?", (author,))
        db.execute("DELETE FROM trims WHERE author = ?", (author,))
    db.execute("INSERT INTO ledgers VALUES (?, 0)", (of.id,))


def _say_if_twice(db: apsw.Connection, of: MetLog) -> None:
    other = db.execute(
        "SELECT other.name, other.partition, other.log_id FROM logs AS own JOIN logs AS other"
        " ON other.kind = 1 AND other.author = own.author AND other.name = own.name"
        " AND other.partition = own.partition WHERE own.id = ? AND other.id < own.id",
        (of.id,),
    ).fetchone()
    if other is not None:
        name, partition, log_id = other
        log.warning(
            "%s/%d is declared by two logs of %s, %d and %d: the lower one counts",
            name,
            partition,
            of.key.author.hex(),
            *sorted((unpack_u64(log_id), of.key.log_id)),
        )


def _apply_payload(db: apsw.Connection, key: LogKey, entry: StoredEntry) -> int:
    """Merges the records of an entry of a ledger; returns the payload's size."""
    if entry.payload_bytes == 0:  # the end of the ledger
        return 0
    try:
        # One that is too large for its row is too large for records as well.
        records = decode_records(entry.payload or b"")
    except CodecError as error:
        log.warning("%s/%d holds no records of a ledger: %s", key, entry.seq, error)
        return entry.payload_bytes
    for record in records:
        if isinstance(record, Trim):
            db.execute(
                "INSERT INTO trims VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
                " SET earliest = max(earliest, excluded.earliest)",
                (key.author, pack_u64(record.log), pack_u64(record.earliest)),
            )
        elif record.counts:
            db.execute(
                "INSERT INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " epoch = excluded.epoch, place = excluded.place, saved_at = excluded.saved_at"
                " WHERE (excluded.epoch, excluded.place) > (epoch, place)",
                (
                    *record.subject,
                    key.author,
                    pack_u64(record.epoch),
                    pack_u64(record.index),
                    entry.received_at,
                ),
            )
    return entry.payload_bytes
