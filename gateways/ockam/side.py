"""What is derived from the logs of all Ockam streams: `ockam.sqlite3` in the store (section 4.5).

Streams by name and by address, positions by who saved them, trims, runs that hold no message. All
of it is in the logs too: the table is brought on by the change feed, reading entry 1 of new logs
and the ledgers alone, and made anew where it is missing, damaged, or of another history.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import apsw

from gateways import SideTable, sound_entries, sound_entry
from gateways.declaration import DeclarationError
from gateways.ockam.bare import CodecError
from gateways.ockam.declared import StreamDeclared, address_of, read_declared
from gateways.ockam.ledger import Place, Position, Subject, Trim, decode_records
from logstore import PayloadState, Seldom, Store, StoreDamaged, StoredEntry, StoreFull
from wire import LogKey

from . import applied

log = logging.getLogger(__name__)

FILE_NAME: Final = "ockam.sqlite3"
VERSION: Final = 3
_NOTHING, _STREAM, _LEDGER = 0, 1, 2
_CHANGES: Final = 10_000

# Numbers that may take all of u64 are 8 bytes, which sort as the numbers do. `ledgers` has those
# that count, one of an author: few beside an author's streams, so that joins begin with them.
_STATEMENTS: Final = (
    applied.STATEMENT,
    (
        "CREATE TABLE logs(id INTEGER PRIMARY KEY, author BLOB NOT NULL, log_id BLOB NOT NULL,"
        " kind INTEGER NOT NULL, name TEXT, partition INTEGER, address TEXT)"
    ),
    "CREATE UNIQUE INDEX logs_by_key ON logs(author, log_id)",
    "CREATE INDEX streams_by_name ON logs(author, name, partition, log_id) WHERE kind = 1",
    "CREATE INDEX streams_by_address ON logs(address) WHERE kind = 1",
    (
        "CREATE TABLE ledgers(log INTEGER PRIMARY KEY, seq INTEGER NOT NULL,"
        " bytes INTEGER NOT NULL, gaps INTEGER NOT NULL)"
    ),
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
        " standing TEXT NOT NULL, PRIMARY KEY (log, last)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE held(log INTEGER PRIMARY KEY, seq INTEGER NOT NULL, bytes INTEGER NOT NULL,"
        " payloads INTEGER NOT NULL)"
    ),
)
_TABLES: Final = ("applied", "logs", "ledgers", "positions", "trims", "runs", "held")


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


class LedgerState(NamedTuple):
    """How far a ledger was applied, and the bytes of its payloads that are held."""

    key: LogKey
    seq: int
    bytes: int


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
    """The side table of one store. Blocks; for any thread. Raises StoreError throughout.

    An entry that is damaged counts as one that is not held, until it or another of its log has come
    anew: it keeps nobody from the other logs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seldom: Final = Seldom()
        """Says what goes on being wrong with this store's streams."""
        path = None if store.path is None or store.readonly else store.path / FILE_NAME
        self._table = SideTable(path, VERSION, _STATEMENTS)
        self._is_ours = False
        """Whether the table was found to be this store's: a number that is the same may be, in a
        file that was there, that of another history."""

    def close(self) -> None:
        """Closes the file."""
        self._table.close()

    # Bringing it on ------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Applies what is new in the store; whether a stream or a ledger was among it."""
        # Asked of the table, not remembered: one that was damaged has been made anew, and is empty.
        position: int | None = self._table.look(
            lambda db: (
                db.execute("SELECT ingest FROM applied").get
                if self._is_ours
                else applied.load(db, self._store)
            )
        )
        has_news = position != self._store.position() and self._table.run(self._advance)
        self._is_ours = True
        return has_news

    def _advance(self, db: apsw.Connection) -> bool:
        before = applied.load(db, self._store)
        if before is None:
            for table in _TABLES:
                db.execute(f"DELETE FROM {table}")  # noqa: S608 (constants)
            before = 0
        position, changed = self._store.changed_logs(before)
        has_news = False
        for key in changed:
            has_news |= self._look_at(db, key, before)
        applied.save(db, self._store, position)
        return has_news

    def _look_at(self, db: apsw.Connection, key: LogKey, before: int) -> bool:
        """Whether the log is a new stream or a ledger."""
        # Which logs were met is asked of the table each time: what a process remembered of them
        # would outlive a transaction that is rolled back, and those logs would never be met.
        row = _load_log(db, key)
        is_new = row is None
        if row is None:
            row = self._meet(db, key)
        if row is None:
            return False
        id_, kind = row
        if kind != _LEDGER:
            return is_new and kind == _STREAM
        self._apply_ledger(db, id_, key, before)
        return True

    def _meet(self, db: apsw.Connection, key: LogKey) -> tuple[int, int] | None:
        """Records what a log says it is; None while entry 1 or its payload is not here."""
        entry = sound_entry(self._store, key, 1, self._say_damaged)
        if entry is None or entry.payload_state is not PayloadState.PRESENT:
            return None
        kind, name, partition, address = _NOTHING, None, None, None
        try:
            declared = read_declared(entry.payload or b"")
        except DeclarationError:
            pass
        else:
            kind = _LEDGER
            if isinstance(declared, StreamDeclared):
                kind, address = _STREAM, address_of(entry.hash)
                name, partition = declared
                self._say_if_twice(db, key, declared)
        db.execute(
            "INSERT INTO logs(author, log_id, kind, name, partition, address)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (key.author, _pack(key.log_id), kind, name, partition, address),
        )
        id_ = db.last_insert_rowid()
        if kind == _LEDGER:
            self._count_ledger(db, id_, key)
        return id_, kind

    def _count_ledger(self, db: apsw.Connection, id_: int, key: LogKey) -> None:
        """Has a new ledger count, unless the author has a lower one: the lowest is the one.

        That is all that two replicas can agree on, whichever of them they have met first.
        """
        other = db.execute(
            "SELECT id, log_id FROM ledgers CROSS JOIN logs ON log = id WHERE author = ?",
            (key.author,),
        ).fetchone()
        if other is not None:
            lower, higher = sorted((_unpack(other[1]), key.log_id))
            log.warning(
                "%s has two ledgers, %d and %d: the lower one counts",
                key.author.hex(),
                lower,
                higher,
            )
            if higher == key.log_id:
                return
            # What the higher one says is forgotten, and the lower one is read from its beginning.
            db.execute("DELETE FROM ledgers WHERE log = ?", (other[0],))
            db.execute("DELETE FROM positions WHERE saved_by = ?", (key.author,))
            db.execute("DELETE FROM trims WHERE author = ?", (key.author,))
        db.execute("INSERT INTO ledgers VALUES (?, 1, 0, 0)", (id_,))

    def _say_if_twice(self, db: apsw.Connection, key: LogKey, declared: StreamDeclared) -> None:
        other = db.execute(
            "SELECT log_id FROM logs WHERE kind = 1 AND author = ? AND name = ? AND partition = ?",
            (key.author, *declared),
        ).fetchone()
        if other is not None:
            log.warning(
                "%s/%d is declared by two logs of %s, %d and %d: the lower one counts",
                *declared,
                key.author.hex(),
                *sorted((_unpack(other[0]), key.log_id)),
            )

    def _apply_ledger(self, db: apsw.Connection, id_: int, key: LogKey, before: int) -> None:
        row = db.execute("SELECT seq, bytes, gaps FROM ledgers WHERE log = ?", (id_,)).fetchone()
        if row is None:  # the author has a lower one
            return
        seq, size, gaps = row
        if gaps:
            for late in self._late(key, before, seq):
                size += _apply_payload(db, key, late)
        for entry in sound_entries(self._store, key, seq + 1, self._say_damaged):
            is_here = entry.payload_state is PayloadState.PRESENT
            gaps = gaps or entry.seq != seq + 1 or not is_here
            seq = entry.seq
            if is_here:
                size += _apply_payload(db, key, entry)
        db.execute(
            "UPDATE ledgers SET seq = ?, bytes = ?, gaps = ? WHERE log = ?",
            (seq, size, int(gaps), id_),
        )

    def _late(self, key: LogKey, before: int, last: int) -> Iterator[StoredEntry]:
        """Entries of a ledger that have come, or whose payloads have, behind later ones."""
        while changes := self._store.changes(before, _CHANGES):
            before = changes[-1].ingest
            for change in changes:
                is_here = change.payload_state is PayloadState.PRESENT
                if change.key == key and 1 < change.seq <= last and is_here:
                    entry = sound_entry(self._store, key, change.seq, self._say_damaged)
                    if entry is not None and entry.payload_state is PayloadState.PRESENT:
                        yield entry

    def _say_damaged(self, error: StoreDamaged) -> None:
        self.seldom.warn(log, error.where, f"it is passed over: {error}")

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
                    (author, _pack(first), _pack(last)),
                ).get
            )
        )
        return None if found is None else _unpack(found)

    def first_unmet(self, author: bytes, first: int, end: int) -> int | None:
        """The lowest log id of an author in a range, below `end`, that has not said what it is."""
        rows = self._table.look(
            lambda db: list(
                db.execute(
                    "SELECT log_id FROM logs WHERE author = ? AND log_id >= ? AND log_id < ?"
                    " ORDER BY log_id",
                    (author, _pack(first), _pack(end)),
                )
            )
        )
        met = {_unpack(log_id) for (log_id,) in rows}
        return next((id_ for id_ in range(first, end) if id_ not in met), None)

    # Ledgers -------------------------------------------------------------------------------------

    def ledger(self, author: bytes) -> LedgerState | None:
        """An author's ledger that counts: the one with the lowest log id."""
        row = self._table.look(
            lambda db: db.execute(
                "SELECT log_id, seq, bytes FROM ledgers CROSS JOIN logs ON log = id"
                " WHERE author = ?",
                (author,),
            ).fetchone()
        )
        return None if row is None else LedgerState(LogKey(author, _unpack(row[0])), *row[1:])

    def count_down(self, key: LogKey, dropped_bytes: int) -> None:
        """Payloads of a ledger were dropped."""
        self._table.run(
            lambda db: db.execute(
                "UPDATE ledgers SET bytes = max(0, bytes - ?) WHERE log ="
                " (SELECT id FROM logs WHERE author = ? AND log_id = ?)",
                (dropped_bytes, key.author, _pack(key.log_id)),
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
                records.append(Trim(_unpack(log_id), _unpack(earliest)))
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
                    (key.author, _pack(key.log_id)),
                ).get
            )
        )
        return 0 if found is None else _unpack(found)

    # Runs and sizes ------------------------------------------------------------------------------

    def run_at(self, stream: Stream, seq: int, standing: str) -> Run | None:
        """The run without messages that an entry is in.

        `standing`: what the log lacks, and what is wanted of it. A run that was found when that was
        another may hold what has come since, or what is to come, and is forgotten.
        """
        row = self._table.look(
            lambda db: db.execute(
                "SELECT first, last, standing FROM runs WHERE log = ? AND last >= ?"
                " ORDER BY last LIMIT 1",
                (stream.id, _pack(seq)),
            ).fetchone()
        )
        if row is None or _unpack(row[0]) > seq:
            return None
        if row[2] != standing:
            # Whoever reads is not kept from it by a disk that is full.
            with suppress(StoreFull):
                self._table.run(
                    lambda db: db.execute("DELETE FROM runs WHERE log = ?", (stream.id,))
                )
            return None
        return Run(_unpack(row[0]), _unpack(row[1]))

    def add_run(self, stream: Stream, run: Run, standing: str) -> None:
        """Remembers a run, in place of those in it."""

        def save(db: apsw.Connection) -> None:
            db.execute(
                "DELETE FROM runs WHERE log = ? AND last BETWEEN ? AND ?",
                (stream.id, _pack(run.first), _pack(run.last)),
            )
            db.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?)",
                (stream.id, _pack(run.last), _pack(run.first), standing),
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


def _pack(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _unpack(blob: bytes) -> int:
    return int.from_bytes(blob, "big")


def _stream(row: tuple[int, bytes, bytes, str, int, str]) -> Stream:
    id_, author, log_id, name, partition, address = row
    return Stream(id_, LogKey(author, _unpack(log_id)), name, partition, address)


def _saved(row: tuple[bytes, str, int, str, bytes, bytes, bytes, int]) -> Saved:
    author, name, partition, client, epoch, place, saved_by, saved_at = row
    subject = Subject(author, name, partition, client)
    return Saved(subject, Place(_unpack(epoch), _unpack(place)), saved_by, saved_at)


def _load_log(db: apsw.Connection, key: LogKey) -> tuple[int, int] | None:
    row: tuple[int, int] | None = db.execute(
        "SELECT id, kind FROM logs WHERE author = ? AND log_id = ?", (key.author, _pack(key.log_id))
    ).fetchone()
    return row


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
                (key.author, _pack(record.log), _pack(record.earliest)),
            )
        elif record.counts:
            db.execute(
                "INSERT INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " epoch = excluded.epoch, place = excluded.place, saved_at = excluded.saved_at"
                " WHERE (excluded.epoch, excluded.place) > (epoch, place)",
                (
                    *record.subject,
                    key.author,
                    _pack(record.epoch),
                    _pack(record.index),
                    entry.received_at,
                ),
            )
    return entry.payload_bytes
