"""The change feed: what was stored, completed or deleted after a place in the ingest sequence."""

from typing import TYPE_CHECKING

from wire import LogKey

from .reading import checked_entry, load_partials
from .records import Change, PayloadState, StoredEntry
from .rows import unpack_u64
from .schema import PAYLOAD_DELETED, PAYLOAD_MISSING

if TYPE_CHECKING:
    import apsw


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


def read_changes(
    db: "apsw.Connection", after: int, entries_max: int, bytes_max: int
) -> list[StoredEntry]:
    """Like `load_changes`, the entries themselves: at least one, if there is one."""
    rows = db.execute(
        "SELECT ingest, author, log_id, seq, received_at, payload_state, hash, encoded, payload"
        " FROM entries CROSS JOIN logs ON logs.id = entries.log"
        " WHERE ingest > ? AND seq <= servable ORDER BY ingest LIMIT ?",
        (after, entries_max),
    )
    entries: list[StoredEntry] = []
    keys: dict[tuple[bytes, bytes], LogKey] = {}
    partials: dict[LogKey, dict[int, int]] = {}
    room = bytes_max
    for ingest, author, log_id, blob, received_at, state, hash_, encoded, payload in rows:
        key = keys.get((author, log_id))
        if key is None:
            key = keys[author, log_id] = LogKey(author, unpack_u64(log_id))
        if state == PAYLOAD_MISSING and key not in partials:
            partials[key] = load_partials(db, key)
        entry = checked_entry(
            key,
            unpack_u64(blob),
            (ingest, received_at, state, hash_, encoded, payload),
            partials.get(key),
        )
        room -= len(encoded) + len(entry.payload or b"")
        if room < 0 and entries:
            break
        entries.append(entry)
    return entries


def _state(stored: int) -> PayloadState:
    if stored == PAYLOAD_MISSING:
        return PayloadState.MISSING
    return PayloadState.DELETED if stored == PAYLOAD_DELETED else PayloadState.PRESENT
