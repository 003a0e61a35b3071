"""The change feed: what was stored, completed or deleted after a place in the ingest sequence."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from wire import LogKey

from .missing import is_missing
from .reading import Partials, checked_entries, some_rows
from .records import Arrived, Change, PayloadState, StoredEntry
from .rows import LogRow, unpack_u64
from .runs import Run
from .schema import PAYLOAD_DELETED, PAYLOAD_FILE, PAYLOAD_INLINE, PAYLOAD_MISSING

if TYPE_CHECKING:
    import apsw


_STEPS_MAX: Final = 20_000
"""Rows of the feed that one look for arrivals passes."""


def load_position(db: "apsw.Connection") -> int:
    """The newest ingest number that was given out, 0 in an empty store."""
    position: int = db.execute("SELECT ingest FROM counters").get
    return position


def load_changes(db: "apsw.Connection", after: int, limit: int) -> list[Change]:
    """The next entries of the feed, of those that may be served."""
    rows = db.execute(
        "SELECT ingest, author, log_id, seq, payload_state FROM entries"
        " CROSS JOIN logs ON logs.id = entries.log"
        " WHERE ingest > ? AND seq <= servable ORDER BY ingest LIMIT ?",
        (after, limit),
    )
    changes = []
    keys: dict[tuple[bytes, bytes], LogKey] = {}
    for ingest, author, log_id, seq, state in rows:
        key = keys.get((author, log_id))
        if key is None:
            key = keys[author, log_id] = LogKey(author, unpack_u64(log_id))
        changes.append(Change(ingest, key, unpack_u64(seq), _state(state)))
    return changes


def load_arrived(db: "apsw.Connection", row: LogRow, after: int, among: Sequence[Run]) -> Arrived:
    """Which payloads of a log are held that came after a place, of the entries that are asked for.

    The feed is passed, not the log: what is asked for may be a million entries, of which one has
    come. Neighbours are one run, as are those between which no payload is missing.
    """
    if row.changed <= after:
        return Arrived((), load_position(db))
    passed = "SELECT ingest, log, seq, payload_state FROM entries WHERE ingest > ? ORDER BY ingest"
    last = db.execute(f"{passed} LIMIT 1 OFFSET ?", (after, _STEPS_MAX - 1)).fetchone()
    up_to = load_position(db) if last is None else last[0]
    found = db.execute(
        f"SELECT seq FROM ({passed} LIMIT ?) WHERE log = ? AND payload_state IN (?, ?)"  # noqa: S608 (constants)
        " ORDER BY seq",
        (after, _STEPS_MAX, row.id, PAYLOAD_INLINE, PAYLOAD_FILE),
    )
    firsts = [first for first, _ in among]
    runs: list[Run] = []
    for seq in [unpack_u64(blob) for (blob,) in found]:
        at = bisect_right(firsts, seq) - 1
        if at < 0 or seq > min(among[at][1], row.servable):
            continue
        between = (runs[-1][1] + 1, seq - 1) if runs else (1, 0)
        if runs and (between[0] > between[1] or not is_missing(db, row, *between)):
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return Arrived(tuple(runs), up_to, complete=last is None)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries of the feed are wanted."""

    row: LogRow | None = None
    """Of this log alone; None: of all."""
    has_payload: bool = False
    """Only those whose payload is held whole."""
    since: int | None = None
    """Only those that were received at that moment or later, in microseconds since 1970."""

    def clause(self) -> tuple[str, tuple[int, ...]]:
        """What of it is SQL, and its values."""
        parts: list[str] = []
        values: list[int] = []
        if self.row is not None:
            # A plus sign keeps SQLite from going by the log's index: it would have to sort.
            parts.append(" AND +entries.log = ?")
            values.append(self.row.id)
        if self.has_payload:
            parts.append(" AND payload_state IN (?, ?)")
            values += (PAYLOAD_INLINE, PAYLOAD_FILE)
        if self.since is not None:
            parts.append(" AND received_at >= ?")
            values.append(self.since)
        return "".join(parts), tuple(values)


EVERYTHING: Final = Selection()
_FEED: Final = (
    "FROM entries CROSS JOIN logs ON logs.id = entries.log WHERE ingest > ? AND seq <= servable"
)


def count_selected(db: "apsw.Connection", selection: Selection, after: int) -> int:
    """How many entries of a selection come after a place."""
    clause, values = selection.clause()
    count: int = db.execute(f"SELECT count(*) {_FEED}{clause}", (after, *values)).get
    return count


def place_before(db: "apsw.Connection", selection: Selection, count: int | None) -> int:
    """The place behind which come the last `count` of a selection, or all of it."""
    clause, values = selection.clause()
    if count is None:
        row = db.execute(f"SELECT ingest {_FEED}{clause} ORDER BY ingest LIMIT 1", (0, *values))
        first = row.fetchone()
        return load_position(db) if first is None else int(first[0]) - 1
    if count == 0:
        return load_position(db)
    last = db.execute(
        f"SELECT ingest {_FEED}{clause} ORDER BY ingest DESC LIMIT 1 OFFSET ?",
        (0, *values, count - 1),
    ).fetchone()
    return 0 if last is None else int(last[0]) - 1


def read_changes(
    db: "apsw.Connection",
    after: int,
    entries_max: int,
    bytes_max: int,
    selection: Selection = EVERYTHING,
) -> list[StoredEntry]:
    """Like `load_changes`, the entries themselves: at least one, if there is one."""
    clause, values = selection.clause()
    rows = db.execute(
        "SELECT author, log_id, ingest, seq, received_at, payload_state, hash, encoded, payload"
        f" {_FEED}{clause} ORDER BY ingest LIMIT ?",
        (after, *values, entries_max),
    )
    entries: list[StoredEntry] = []
    partials: Partials = {}
    room = bytes_max
    # What came together is of one log, and in order.
    for (author, log_id), of_log in groupby(rows, itemgetter(0, 1)):
        key = LogKey(author, unpack_u64(log_id))
        of_it = map(itemgetter(slice(2, None)), of_log)
        while some := some_rows(of_it, room):
            for entry in checked_entries(db, key, some, partials):
                room -= len(entry.encoded) + len(entry.payload or b"")
                if room < 0 and entries:
                    return entries
                entries.append(entry)
    return entries


def _state(stored: int) -> PayloadState:
    if stored == PAYLOAD_MISSING:
        return PayloadState.MISSING
    return PayloadState.DELETED if stored == PAYLOAD_DELETED else PayloadState.PRESENT
