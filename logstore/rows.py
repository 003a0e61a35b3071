"""Rows of the database as Python values: u64 blobs, tags, and the row of a log."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final
from zlib import crc32

import apsw

from wire import U64_MAX, LogKey

from .records import LogInfo, LogState

pack_u64: Final = struct.Struct(">Q").pack
"""The 8-byte blob of a u64."""

_ENTRY_TAG: Final = struct.Struct(">qqqB")


def unpack_u64(blob: bytes) -> int:
    """The u64 of an 8-byte blob, or a sum of them of one of 16 bytes."""
    return int.from_bytes(blob, "big")


def pack_optional(number: int | None) -> bytes | None:
    """Like `pack_u64`; NULL for None."""
    return None if number is None else pack_u64(number)


def unpack_optional(blob: bytes | None) -> int | None:
    """The reverse of `pack_optional`."""
    return None if blob is None else unpack_u64(blob)


def pack_sum(number: int) -> bytes:
    """The 16-byte blob of a sum of u64."""
    return number.to_bytes(16, "big")


def row_tag(*values: bytes | str | int | None) -> int:
    """The tag of a row: a CRC-32 of the columns given, in the order of the table."""
    return crc32(repr(values).encode())


def entry_tag(ingest: int, log: int, received_at: int, payload_state: int) -> int:
    """The tag of a row of `entries`. The other columns vouch for each other by hash."""
    return crc32(_ENTRY_TAG.pack(ingest, log, received_at, payload_state))


_LOG_COLUMNS: Final = (
    "id, author, log_id, height, newest, entries, payloads, missing, bytes, end_seq, fork_seq,"
    " invalid_seq, newest_at, newest_from, changed, encoded_bytes, payload_bytes"
)


@dataclass(slots=True)
class LogRow:
    """The row of a log, changed in place and saved in the transaction that changed the log."""

    id: int
    key: LogKey
    height: int = 0
    newest: int = 0
    entries: int = 0
    payloads: int = 0
    missing: int = 0
    bytes: int = 0
    end_seq: int | None = None
    fork_seq: int | None = None
    invalid_seq: int | None = None
    newest_at: int | None = None
    newest_from: str | None = None
    changed: int = 0
    encoded_bytes: int = 0
    payload_bytes: int = 0

    @property
    def servable(self) -> int:
        """The largest sequence number that may be served."""
        limit = U64_MAX if self.end_seq is None else self.end_seq
        if self.fork_seq is not None:
            limit = min(limit, self.fork_seq - 1)
        if self.invalid_seq is not None:
            limit = min(limit, self.invalid_seq - 1)
        return limit

    @property
    def state(self) -> LogState:
        """What may still happen to the log."""
        if self.fork_seq is not None:
            return LogState.FORKED
        if self.invalid_seq is not None:
            return LogState.INVALID
        if self.end_seq is not None:
            return LogState.ENDED
        return LogState.LIVE

    @property
    def tag(self) -> int:
        """Vouches for the columns that cannot be counted again."""
        author, log_id = self.key
        return row_tag(
            self.id, author, log_id, self.newest_at, self.newest_from or None, self.changed
        )

    def info(self) -> LogInfo:
        """What callers get to see."""
        return LogInfo(
            key=self.key,
            height=self.height,
            newest=self.newest,
            entries=self.entries,
            payloads=self.payloads,
            missing_payloads=self.missing,
            bytes=self.bytes,
            state=self.state,
            end_seq=self.end_seq,
            fork_seq=self.fork_seq,
            invalid_seq=self.invalid_seq,
            newest_at=self.newest_at,
            newest_from=self.newest_from,
            payload_bytes_held=self.bytes - self.encoded_bytes,
            payload_bytes_total=self.payload_bytes,
        )


def _log_row(row: "tuple[apsw.SQLiteValue, ...]") -> LogRow:
    # The types are the table's; what a damaged file may hold instead ends in a struct or type
    # error, which `Database` reports as damage.
    (id_, author, log_id, height, newest, entries, payloads, missing, size, *rest) = row
    end_seq, fork_seq, invalid_seq, newest_at, newest_from, changed, encoded, payload = rest
    return LogRow(
        id_,  # type: ignore[arg-type]
        LogKey(author, unpack_u64(log_id)),  # type: ignore[arg-type]
        unpack_u64(height),  # type: ignore[arg-type]
        unpack_u64(newest),  # type: ignore[arg-type]
        entries,  # type: ignore[arg-type]
        payloads,  # type: ignore[arg-type]
        missing,  # type: ignore[arg-type]
        size,  # type: ignore[arg-type]
        unpack_optional(end_seq),  # type: ignore[arg-type]
        unpack_optional(fork_seq),  # type: ignore[arg-type]
        unpack_optional(invalid_seq),  # type: ignore[arg-type]
        newest_at,  # type: ignore[arg-type]
        newest_from,  # type: ignore[arg-type]
        changed,  # type: ignore[arg-type]
        encoded,  # type: ignore[arg-type]
        unpack_u64(payload),  # type: ignore[arg-type]
    )


def load_log(db: apsw.Connection, key: LogKey) -> LogRow | None:
    """The row of a log, None if nothing was ever stored of it."""
    author, log_id = key
    row = db.execute(
        f"SELECT {_LOG_COLUMNS} FROM logs WHERE author = ? AND log_id = ?",  # noqa: S608 (constant)
        (author, pack_u64(log_id)),
    ).fetchone()
    return None if row is None else _log_row(row)


def load_log_and_lacks(db: apsw.Connection, key: LogKey) -> tuple[LogRow, bool] | None:
    """The same, and whether any payload of it may be asked for: also one that was deleted."""
    author, log_id = key
    row = db.execute(
        f"SELECT EXISTS (SELECT 1 FROM missing WHERE log = logs.id), {_LOG_COLUMNS}"  # noqa: S608 (constant)
        " FROM logs WHERE author = ? AND log_id = ?",
        (author, pack_u64(log_id)),
    ).fetchone()
    return None if row is None else (_log_row(row[1:]), bool(row[0]))


def load_tails(
    db: apsw.Connection, author: bytes, log_ids: Sequence[int]
) -> Iterator[tuple[LogRow, int, bytes | None, bytes | None]]:
    """The rows of some logs of an author, each with number, hash and bytes of its newest entry.

    That is looked for among the entries themselves. Those of which nothing was ever stored have
    none.
    """
    columns = ", ".join(f"l.{each.strip()}" for each in _LOG_COLUMNS.split(","))
    rows = db.execute(
        f"SELECT {columns}, e.seq, e.hash, e.encoded FROM logs l LEFT JOIN entries e"  # noqa: S608 (constants)
        " ON e.ingest = (SELECT ingest FROM entries WHERE log = l.id ORDER BY seq DESC LIMIT 1)"
        f" WHERE l.author = ? AND l.log_id IN ({', '.join('?' * len(log_ids))})",
        (author, *map(pack_u64, log_ids)),
    )
    for *row, seq, hash_, encoded in rows:
        yield _log_row(tuple(row)), 0 if seq is None else unpack_u64(seq), hash_, encoded


_ROWS_AT_ONCE: Final = 32
_INSERT: Final = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERTS: Final = [
    _INSERT + ", (?, ?, ?, ?, ?, ?, ?, ?, ?)" * (count - 1) for count in range(1, _ROWS_AT_ONCE + 1)
]


def insert_entries(db: apsw.Connection, rows: Sequence["tuple[apsw.SQLiteValue, ...]"]) -> None:
    """Inserts new entries, up to 32 by one statement: each lets go of the interpreter's lock, and
    has to have it back from an event loop that is busy, for each of a thousand short logs too."""
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[at : at + _ROWS_AT_ONCE]
        db.execute(_INSERTS[len(some) - 1], [*chain.from_iterable(some)])


def check_ascending(keys: Sequence[LogKey], after: LogKey | None) -> None:
    """A damaged index, out of order, could send whoever walks page by page round in circles."""
    if any(high <= low for low, high in pairwise((after or (b"", 0), *keys))):
        raise apsw.CorruptError("the logs are out of order")


def load_logs_after(
    db: apsw.Connection, author: bytes | None, after: LogKey | None, limit: int
) -> list[LogRow]:
    """The next rows in the order of author and log id, of one author or of all."""
    low = (b"", b"") if after is None else (after.author, pack_u64(after.log_id))
    if author is not None:
        low = max(low, (author, b""))
    rows = db.execute(
        f"SELECT {_LOG_COLUMNS} FROM logs WHERE (author, log_id) > (?, ?)"  # noqa: S608 (constant)
        " AND author <= ? ORDER BY author, log_id LIMIT ?",
        (*low, b"\xff" * 32 if author is None else author, limit),
    )
    found = [_log_row(row) for row in rows]
    check_ascending([row.key for row in found], after)
    return found


def load_changed_logs(db: apsw.Connection, after: int) -> list[LogKey]:
    """The logs that changed after an ingest number, the latest last."""
    rows = db.execute(
        "SELECT author, log_id FROM logs WHERE changed > ? ORDER BY changed", (after,)
    )
    return [LogKey(author, unpack_u64(log_id)) for author, log_id in rows]


def load_changed_rows(db: apsw.Connection, after: int) -> list[LogRow]:
    """The same, their rows: one statement, where one for each log took as long as storing it."""
    rows = db.execute(
        f"SELECT {_LOG_COLUMNS} FROM logs WHERE changed > ? ORDER BY changed",  # noqa: S608 (constant)
        (after,),
    )
    return [_log_row(row) for row in rows]


def create_log(db: apsw.Connection, key: LogKey) -> LogRow:
    """A new, empty row for a log that has none.

    Its number is above that of each row of entries, of which some may belong to no log any more
    (forgetting.py): SQLite would give the number of the last one that was deleted again.
    """
    zero = pack_u64(0)
    id_ = db.execute(
        "INSERT INTO logs(id, author, log_id, height, newest, entries, payloads, missing, bytes,"
        " servable, changed, tag) VALUES (1 + max(coalesce((SELECT max(id) FROM logs), 0),"
        " coalesce((SELECT max(log) FROM entries), 0)),"
        " ?, ?, ?, ?, 0, 0, 0, 0, ?, 0, 0) RETURNING id",
        (key.author, pack_u64(key.log_id), zero, zero, pack_u64(U64_MAX)),
    ).get
    return LogRow(id_, key)


def save_log(db: apsw.Connection, row: LogRow) -> None:
    """Writes a changed row back."""
    save_logs(db, [row])


def save_logs(db: apsw.Connection, rows: Sequence[LogRow]) -> None:
    """Writes changed rows back."""
    db.executemany(
        "UPDATE logs SET height = ?, newest = ?, entries = ?, payloads = ?, missing = ?, bytes = ?,"
        " end_seq = ?, fork_seq = ?, invalid_seq = ?, servable = ?, newest_at = ?,"
        " newest_from = ?, changed = ?, tag = ?, encoded_bytes = ?, payload_bytes = ?"
        " WHERE id = ?",
        [
            (
                pack_u64(row.height),
                pack_u64(row.newest),
                row.entries,
                row.payloads,
                row.missing,
                row.bytes,
                pack_optional(row.end_seq),
                pack_optional(row.fork_seq),
                pack_optional(row.invalid_seq),
                pack_u64(row.servable),
                row.newest_at,
                row.newest_from,
                row.changed,
                row.tag,
                row.encoded_bytes,
                pack_sum(row.payload_bytes),
                row.id,
            )
            for row in rows
        ],
    )
