"""What a node remembers beside logs, and sums over the store."""

import sys
from typing import TYPE_CHECKING

from .records import Statistics
from .rows import row_tag
from .schema import FILE_PARTIAL

if TYPE_CHECKING:
    import apsw


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
    """All names that begin with `prefix`, which is ASCII, and their values."""
    behind = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else chr(sys.maxunicode)
    rows = db.execute(
        "SELECT name, value FROM memory WHERE name >= ? AND name < ? ORDER BY name",
        (prefix, behind),
    )
    return dict(list(rows))


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
