"""The bins of a store's own node, as the side table has them (spec sections 2.10 and 4).

An index goes to the addresses of a bin's log in their order, so the log is taken without a gap:
where an entry is damaged, or its payload is not here, the bin ends before it until that is back.
What came behind would otherwise get other numbers than it had.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import apsw

from gateways import MetLog, pack_u64, sound_entries, unpack_u64
from gateways.swarm.declared import ADDRESS_BYTES
from gateways.swarm.states import State
from logstore import PayloadState, Seldom, Store, StoreDamaged, StoredEntry
from wire import LogKey

log = logging.getLogger(__name__)

ENTRY_ITEMS_MAX: Final = 128
"""Addresses in one entry."""
_BOUND_MAX: Final = 500
STATEMENTS: Final = (
    (
        "CREATE TABLE bins(bin INTEGER PRIMARY KEY, log INTEGER NOT NULL, seq BLOB NOT NULL,"
        " newest INTEGER NOT NULL, rows BLOB NOT NULL)"
    ),
    (
        "CREATE TABLE items(bin INTEGER NOT NULL, number INTEGER NOT NULL, address BLOB NOT NULL,"
        " PRIMARY KEY (bin, number)) WITHOUT ROWID"
    ),
    "CREATE INDEX items_by_address ON items(address)",
    # Their numbers keep the order in which they came, which is that of their log most often.
    "CREATE TABLE unplaced(id INTEGER PRIMARY KEY, address BLOB NOT NULL UNIQUE)",
)
TABLES: Final = ("bins", "items", "unplaced")


class Bin(NamedTuple):
    """A bin as far as it was taken."""

    bin: int
    log: LogKey
    seq: int
    """The last entry of its log that was taken."""
    newest: int
    """Its highest index."""
    rows: bytes
    """Of the state there."""

    @property
    def state(self) -> State:
        """The state at the highest index."""
        return State(self.newest, self.rows)


class Item(NamedTuple):
    """The place of an address."""

    bin: int
    number: int
    """Its index."""


class Unplaced(NamedTuple):
    """A chunk without a place."""

    id: int
    """Ascending, as they came."""
    address: bytes


def load_bins(db: apsw.Connection) -> dict[int, Bin]:
    """All bins whose logs were met."""
    query = (
        "SELECT b.bin, l.author, l.log_id, b.seq, b.newest, b.rows"
        " FROM bins b JOIN logs l ON l.id = b.log"
    )
    return {
        bin_: Bin(bin_, LogKey(author, unpack_u64(log_id)), unpack_u64(seq), newest, rows)
        for bin_, author, log_id, seq, newest, rows in db.execute(query)
    }


def select_among(db: apsw.Connection, table: str, addresses: Sequence[bytes]) -> set[bytes]:
    """Those of some addresses that a table has."""
    found: set[bytes] = set()
    for at in range(0, len(addresses), _BOUND_MAX):
        some = addresses[at : at + _BOUND_MAX]
        marks = ", ".join("?" * len(some))
        query = f"SELECT address FROM {table} WHERE address IN ({marks})"  # noqa: S608 (constants)
        found.update(address for (address,) in db.execute(query, some))
    return found


def take_items(
    db: apsw.Connection,
    store: Store,
    seldom: Seldom,
    met: MetLog,
    bin_: int,
    fresh: Iterator[StoredEntry],
) -> None:
    """Takes what is new in a log of a bin of the store's own node."""
    taken = _taken(db, met, bin_)
    if taken is not None:
        entries = fresh
        if unpack_u64(taken.seq) < met.seq:
            # What kept it may be back.
            _drain(fresh)
            entries = sound_entries(
                store, met.key, unpack_u64(taken.seq) + 1, lambda error: _say(seldom, error)
            )
        _take(db, seldom, met.key, taken, entries)
    _drain(fresh)


class _Taken(NamedTuple):
    bin: int
    seq: bytes
    newest: int
    rows: bytes


def _taken(db: apsw.Connection, met: MetLog, bin_: int) -> _Taken | None:
    """How far a bin has come; None: another log is that bin's, the one with the lowest id.

    Two `init` at once may have made it twice, and one of both is the node's.
    """
    row = db.execute(
        "SELECT b.log, l.log_id, b.seq, b.newest, b.rows FROM bins b JOIN logs l ON l.id = b.log"
        " WHERE b.bin = ?",
        (bin_,),
    ).fetchone()
    if row is not None:
        log_, log_id, seq, newest, rows = row
        if log_ == met.id:
            return _Taken(bin_, seq, newest, rows)
        if unpack_u64(log_id) < met.key.log_id:
            return None
        db.execute(
            "INSERT OR IGNORE INTO unplaced(address) SELECT i.address FROM items i"
            " WHERE i.bin = ? AND EXISTS (SELECT 1 FROM chunks c WHERE c.address = i.address)",
            (bin_,),
        )
        db.execute("DELETE FROM items WHERE bin = ?", (bin_,))
    first = _Taken(bin_, pack_u64(1), 0, b"")
    db.execute("INSERT OR REPLACE INTO bins VALUES (?, ?, ?, ?, ?)", (bin_, met.id, *first[1:]))
    return first


def _take(
    db: apsw.Connection,
    seldom: Seldom,
    key: LogKey,
    taken: _Taken,
    entries: Iterator[StoredEntry],
) -> None:
    seq, state = unpack_u64(taken.seq), State(taken.newest, taken.rows)
    for entry in entries:
        if entry.seq != seq + 1 or entry.payload_state is not PayloadState.PRESENT:
            reason = f"bin {taken.bin} ends before {key}/{seq + 1}, which is not here or damaged"
            seldom.warn(log, reason, reason)
            break
        seq = entry.seq
        _add_items(db, taken.bin, state, entry.payload or b"")
    db.execute(
        "UPDATE bins SET seq = ?, newest = ?, rows = ? WHERE bin = ?",
        (pack_u64(seq), state.count, state.rows(), taken.bin),
    )


def _add_items(db: apsw.Connection, bin_: int, state: State, payload: bytes) -> None:
    if len(payload) % ADDRESS_BYTES or len(payload) > ENTRY_ITEMS_MAX * ADDRESS_BYTES:
        return  # no list of addresses, now and ever
    items = [payload[at : at + ADDRESS_BYTES] for at in range(0, len(payload), ADDRESS_BYTES)]
    db.executemany(
        "INSERT INTO items VALUES (?, ?, ?)",
        [(bin_, number, each) for number, each in enumerate(items, state.count + 1)],
    )
    db.executemany("DELETE FROM unplaced WHERE address = ?", [(each,) for each in items])
    state.append(payload)


def _drain(entries: Iterator[StoredEntry]) -> None:
    """So that they count as taken."""
    for _ in entries:
        pass


def _say(seldom: Seldom, error: StoreDamaged) -> None:
    seldom.warn(log, error.where, f"a bin ends before it: {error}")
