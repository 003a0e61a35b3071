"""Reading entries. Whatever leaves is hashed first, since a disk hands out flipped bits in silence.

Only what may be served as verified is read: below a fork or an invalid entry, up to an end.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from wire import LogKey, decode_varu64, encode_varu64, tail_offset, yamf_hash

from .errors import PayloadUnavailable, StoreDamaged
from .records import Fault, PayloadState, StoredEntry
from .rows import LogRow, load_log, pack_u64, unpack_u64
from .schema import FILE_PARTIAL, PAYLOAD_DELETED, PAYLOAD_FILE, PAYLOAD_INLINE, PAYLOAD_MISSING
from .usual import PAYLOAD_HASH, ReadRow, rows_read

if TYPE_CHECKING:
    import apsw

_STATES: Final = {
    PAYLOAD_MISSING: PayloadState.MISSING,
    PAYLOAD_INLINE: PayloadState.PRESENT,
    PAYLOAD_FILE: PayloadState.PRESENT,
    PAYLOAD_DELETED: PayloadState.DELETED,
}
_SINCE: Final = "SELECT seq FROM entries WHERE log = ? AND seq BETWEEN ? AND ? AND received_at >= ?"
_COLUMNS: Final = "ingest, seq, received_at, payload_state, hash, encoded, payload"
_AT_ONCE: Final = 64
"""Rows that are looked at together, if they have no more bytes than may be read."""
_HASHES_AT_ONCE: Final = 16
"""Entries of which one statement asks: each lets go of the interpreter's lock, and has to have it
back from the event loop."""
Partials = dict[LogKey, dict[int, int]]
"""How much is held of unfinished payloads, by log and number."""


def damaged(key: LogKey, seq: int, what: str) -> StoreDamaged:
    """The error for an entry whose bytes are not those that were stored."""
    return _damaged(key, seq, what, "run verify, then restore a backup")


def payload_damaged(key: LogKey, seq: int, what: str) -> StoreDamaged:
    """The error for a payload that is not what the entry names."""
    hint = "drop it, then fetch it from a peer that holds it, or restore a backup; run verify"
    return _damaged(key, seq, what, f"{hint} to see what else is damaged")


def _damaged(key: LogKey, seq: int, what: str, remedy: str) -> StoreDamaged:
    where = f"{key}/{seq}"
    error = StoreDamaged(what, where, remedy)
    error.fault = Fault(where, what, key, seq)
    return error


def names_entry(encoded: bytes, key: LogKey, seq: int) -> bool:
    """Whether an encoding begins as that of this entry does."""
    return encoded.startswith(key.author + encode_varu64(key.log_id) + encode_varu64(seq), 1)


def load_servable(db: "apsw.Connection", key: LogKey) -> LogRow | None:
    """The row of a log of which something is held."""
    row = load_log(db, key)
    return None if row is None or row.newest == 0 else row


def first_since(
    db: "apsw.Connection", row: LogRow, first: int, last: int, since: int, count: int | None
) -> int | None:
    """The first entry of a range received then or later; `count`: of the last so many of them."""
    if count == 0:
        return None
    values = (row.id, pack_u64(first), pack_u64(min(last, row.servable)), since)
    if count is None:
        found = db.execute(f"{_SINCE} ORDER BY seq LIMIT 1", values).fetchone()
    else:
        limited = f"SELECT min(seq) FROM ({_SINCE} ORDER BY seq DESC LIMIT ?)"  # noqa: S608 (constants)
        found = db.execute(limited, (*values, count)).fetchone()
    return None if found is None or found[0] is None else unpack_u64(found[0])


def read_entries(
    db: "apsw.Connection",
    key: LogKey,
    start: int,
    end: int | None,
    entries_max: int,
    bytes_max: int,
) -> list[StoredEntry]:
    """Entries from `start` on, ascending: at least one, if there is one, whatever its size."""
    row = load_servable(db, key)
    return [] if row is None else read_entries_of(db, row, start, end, entries_max, bytes_max)


def read_entries_of(
    db: "apsw.Connection",
    row: LogRow,
    start: int,
    end: int | None,
    entries_max: int,
    bytes_max: int,
) -> list[StoredEntry]:
    """`read_entries` of the log that has this row."""
    key = row.key
    if start > row.newest:
        return []
    last = row.servable if end is None else min(end, row.servable)
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608 (constant)
        " LIMIT ?",
        (row.id, pack_u64(max(start, 0)), pack_u64(last), entries_max),
    )
    entries: list[StoredEntry] = []
    room = bytes_max
    partials: Partials = {}
    while some := some_rows(rows, room):
        for entry in checked_entries(db, key, some, partials, start):
            room -= len(entry.encoded) + len(entry.payload or b"")
            if room < 0 and entries:
                return entries
            entries.append(entry)
        start = entries[-1].seq + 1
    return entries


def some_rows(rows: Iterable[ReadRow], room: int) -> list[ReadRow]:
    """The next rows, up to the one for which there is no room any more, and not very many."""
    some: list[ReadRow] = []
    for row in rows:
        some.append(row)
        room -= len(row[5]) + len(row[6] or b"")
        if room < 0 or len(some) == _AT_ONCE:
            break
    return some


def checked_entries(
    db: "apsw.Connection",
    key: LogKey,
    rows: list[ReadRow],
    partials: Partials,
    start: int | None = None,
) -> list[StoredEntry]:
    """The entries of rows of one log; raises StoreDamaged.

    `start`: they have to ascend, from there on. `partials` learns what is held of unfinished
    payloads, of logs where that is needed.
    """
    if key not in partials and any(row[3] == PAYLOAD_MISSING for row in rows):
        partials[key] = load_partials(db, key)
    found = rows_read(rows, key, start or 0, with_lacking=partials.get(key) == {})
    for ingest, blob, received_at, state, hash_, encoded, payload in rows[len(found) :]:
        seq = unpack_u64(blob)
        # An index and its table that disagree could send a caller round in circles.
        if start is not None and seq < (found[-1].seq + 1 if found else start):
            raise damaged(key, seq, "the entry's row is out of order")
        row = (ingest, received_at, state, hash_, encoded, payload)
        found.append(_checked_entry(key, seq, row, partials.get(key)))
    return found


def _checked_entry(
    key: LogKey,
    seq: int,
    row: tuple[int, int, int, bytes, bytes, bytes | None],
    partials: dict[int, int] | None,
) -> StoredEntry:
    """A row of `entries` after its hashes were found to be right; raises StoreDamaged."""
    ingest, received_at, stored_state, hash_, encoded, payload = row
    if yamf_hash(encoded) != hash_ or not names_entry(encoded, key, seq):
        raise damaged(key, seq, "the entry is damaged")
    state = _STATES.get(stored_state)
    partial = 0
    if stored_state == PAYLOAD_INLINE:
        if payload is None or yamf_hash(payload) != encoded[PAYLOAD_HASH]:
            raise payload_damaged(key, seq, "the entry's payload is damaged")
        size = len(payload)
    else:
        payload = None
        size = decode_varu64(encoded, tail_offset(key.log_id, seq))[0]
        if partials and stored_state == PAYLOAD_MISSING:
            partial = partials.get(seq, 0)
            if partial:
                state = PayloadState.PARTIAL
    if state is None:
        raise damaged(key, seq, "the entry's row is damaged")
    return StoredEntry(key, seq, ingest, encoded, hash_, received_at, state, payload, size, partial)


def load_partials(db: "apsw.Connection", key: LogKey) -> dict[int, int]:
    """How much is held of the log's unfinished payloads. There are as many as were interrupted."""
    rows = db.execute(
        "SELECT seq, synced FROM files WHERE author = ? AND log_id = ? AND state <> 3"
        " AND state = ? AND synced > 0",
        (key.author, pack_u64(key.log_id), FILE_PARTIAL),
    )
    return {unpack_u64(seq): synced for seq, synced in rows}


def load_hashes(db: "apsw.Connection", row: LogRow, seqs: Iterable[int]) -> dict[int, bytes]:
    """The hashes of those entries that are held and may be served, each computed anew."""
    key, servable = row.key, row.servable
    wanted = [pack_u64(seq) for seq in seqs if 0 < seq <= servable]
    hashes = {}
    for at in range(0, len(wanted), _HASHES_AT_ONCE):
        some = wanted[at : at + _HASHES_AT_ONCE]
        rows = db.execute(
            "SELECT seq, hash, encoded FROM entries"  # noqa: S608 (marks)
            f" WHERE log = ? AND seq IN ({', '.join('?' * len(some))})",
            (row.id, *some),
        )
        for blob, hash_, encoded in rows:
            seq = unpack_u64(blob)
            if yamf_hash(encoded) != hash_ or not names_entry(encoded, key, seq):
                raise damaged(key, seq, "the entry is damaged")
            hashes[seq] = hash_
    return hashes


def next_payload(db: "apsw.Connection", key: LogKey, start: int) -> int | None:
    """The first entry from `start` on whose payload is held whole."""
    row = load_servable(db, key)
    if row is None or start > row.newest:
        return None
    found: bytes | None = db.execute(
        "SELECT seq FROM entries WHERE log = ? AND seq BETWEEN ? AND ? AND payload_state IN (?, ?)"
        " ORDER BY seq LIMIT 1",
        (row.id, pack_u64(max(start, 0)), pack_u64(row.servable), PAYLOAD_INLINE, PAYLOAD_FILE),
    ).get
    return None if found is None else unpack_u64(found)


def locate_payload(
    db: "apsw.Connection", key: LogKey, seq: int
) -> tuple[StoredEntry, tuple[bytes, bytes | None] | None]:
    """An entry whose payload is present, and unless it is inline the id and the sums of its file.

    Raises PayloadUnavailable.
    """
    found = read_entries(db, key, seq, seq, 1, 0)
    if not found:
        raise PayloadUnavailable("the entry is not held", f"{key}/{seq}", "get it from a peer")
    entry = found[0]
    if entry.payload_state is not PayloadState.PRESENT:
        raise PayloadUnavailable(
            f"the payload is {entry.payload_state}", f"{key}/{seq}", "get it from a peer"
        )
    if entry.payload is not None:
        return entry, None
    file: tuple[bytes, bytes | None] = db.execute(
        "SELECT payload, (SELECT sums FROM files WHERE id = payload) FROM entries WHERE ingest = ?",
        (entry.ingest,),
    ).get
    return entry, file


def load_begun(db: "apsw.Connection") -> dict[LogKey, list[int]]:
    """The entries of whose payloads a part is on disk, in order."""
    found: dict[LogKey, list[int]] = {}
    rows = db.execute(
        "SELECT author, log_id, seq FROM files WHERE state <> 3 AND state = ? AND synced > 0"
        " ORDER BY author, log_id, seq",
        (FILE_PARTIAL,),
    )
    for author, log_id, seq in rows:
        found.setdefault(LogKey(author, unpack_u64(log_id)), []).append(unpack_u64(seq))
    return found
