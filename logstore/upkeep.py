"""What a node remembers beside logs, and dropping payloads."""

from typing import TYPE_CHECKING, Final

from wire import LogKey, decode_varu64, tail_offset

from .files import detach_file, set_file_state
from .records import Statistics
from .rows import LogRow, entry_tag, pack_u64, row_tag, unpack_u64
from .schema import FILE_GARBAGE, FILE_PARTIAL, PAYLOAD_DELETED, PAYLOAD_FILE, PAYLOAD_INLINE

if TYPE_CHECKING:
    import apsw

    from .database import Transaction

DROP_ROWS: Final = 1_000
"""Payloads dropped in one transaction."""
DROP_ROWS_FULL: Final = 32
"""The same where the disk is full: what that writes has to fit into what the reserve gives back."""


def remember(db: "apsw.Connection", name: str, value: bytes | None) -> None:
    """Keeps a value under a name; None forgets it."""
    if value is None:
        db.execute("DELETE FROM memory WHERE name = ?", (name,))
        return
    db.execute(
        "INSERT INTO memory VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " value = excluded.value, tag = excluded.tag",
        (name, value, row_tag(name, value)),
    )


def recall(db: "apsw.Connection", name: str) -> bytes | None:
    """The value under a name."""
    value: bytes | None = db.execute("SELECT value FROM memory WHERE name = ?", (name,)).get
    return value


def recall_all(db: "apsw.Connection", prefix: str) -> dict[str, bytes]:
    """All names that begin with `prefix`, and their values."""
    rows = db.execute(
        "SELECT name, value FROM memory WHERE name >= ? AND substr(name, 1, ?) = ? ORDER BY name",
        (prefix, len(prefix), prefix),
    )
    return dict(list(rows))


def drop_payloads(
    transaction: "Transaction", row: LogRow, first: int, last: int, rows_max: int = DROP_ROWS
) -> tuple[int, int, int | None]:
    """Deletes the next payloads of a range: count, bytes, and where to go on; saves nothing."""
    db = transaction.db
    rows = db.execute(
        "SELECT ingest, seq, received_at, payload_state, encoded,"
        " CASE payload_state WHEN 2 THEN payload END FROM entries"
        " WHERE log = ? AND seq BETWEEN ? AND ? AND payload_state IN (?, ?) ORDER BY seq LIMIT ?",
        (row.id, pack_u64(first), pack_u64(last), PAYLOAD_INLINE, PAYLOAD_FILE, rows_max),
    )
    found = list(rows)
    freed = 0
    ingest = transaction.take_ingest(len(found)) if found else 0
    seq = first
    for new, (old, blob, received_at, _, encoded, file_id) in enumerate(found, ingest):
        seq = unpack_u64(blob)
        freed += decode_varu64(encoded, tail_offset(row.key.log_id, seq))[0]
        if file_id is not None:
            detach_file(db, file_id)
        db.execute(
            "UPDATE entries SET ingest = ?, payload_state = ?, payload = NULL, tag = ?"
            " WHERE ingest = ?",
            (new, PAYLOAD_DELETED, entry_tag(new, row.id, received_at, PAYLOAD_DELETED), old),
        )
        row.changed = new
    row.payloads -= len(found)
    row.bytes -= freed
    more = seq + 1 if len(found) == rows_max and seq < last else None
    return len(found), freed, more


def drop_partials(db: "apsw.Connection", key: LogKey, first: int, last: int) -> None:
    """Makes the unfinished payloads of a range garbage; those being received now are left."""
    rows = db.execute(
        "SELECT id FROM files WHERE author = ? AND log_id = ? AND seq BETWEEN ? AND ?"
        " AND state <> 3 AND state = ?",
        (key.author, pack_u64(key.log_id), pack_u64(first), pack_u64(last), FILE_PARTIAL),
    )
    for (id_,) in list(rows):
        set_file_state(db, id_, FILE_GARBAGE)


def load_statistics(db: "apsw.Connection", database_bytes: int, wal_bytes: int) -> Statistics:
    """Sums over the whole store."""
    ((logs, entries, payloads, missing, size, forked),) = db.execute(
        "SELECT count(*), total(entries), total(payloads), total(missing), total(bytes),"
        " count(fork_seq) FROM logs"
    )
    ((partial, partial_bytes),) = db.execute(
        "SELECT count(*), total(synced) FROM files WHERE state <> 3 AND state = ?", (FILE_PARTIAL,)
    )
    return Statistics(
        logs=logs,
        entries=int(entries),
        payloads=int(payloads),
        missing_payloads=int(missing),
        bytes=int(size),
        partial_payloads=partial,
        partial_bytes=int(partial_bytes),
        forked_logs=forked,
        position=db.execute("SELECT ingest FROM counters").get,
        database_bytes=database_bytes,
        wal_bytes=wal_bytes,
    )
