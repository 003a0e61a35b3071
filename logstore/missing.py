"""Payloads that may be asked for: those of held entries that are neither held nor deleted.

Those that were deleted and are fetched again count too (`again`). The table `missing` knows their
sizes, so that they can be found by size without reading entries, and however many there are that
nobody wants.
"""

from typing import TYPE_CHECKING, Final

from wire import U64_MAX, NeedMore, decode_varu64, lower_pool, tail_offset

from .rows import LogRow, pack_u64, unpack_u64
from .schema import PAYLOAD_DELETED, PAYLOAD_MISSING
from .subscriptions import PolicyKind, Subscription

if TYPE_CHECKING:
    import apsw

Missing = tuple[int, bytes, bytes, int]
"""A row of the table."""

_FEW: Final = 2_000
_STEPS_MAX: Final = 20_000


def missing_row(row: LogRow, seq: int, payload_bytes: int, *, again: bool = False) -> Missing:
    """The row of a payload that is not held."""
    return row.id, pack_u64(seq), pack_u64(payload_bytes), again


def add_missing(db: "apsw.Connection", rows: list[Missing]) -> None:
    """Counts payloads as missing; those that were stay as they are."""
    db.executemany("INSERT INTO missing VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)


def remove_missing(db: "apsw.Connection", row: LogRow, first: int, last: int) -> None:
    """All payloads of a run of entries have come, or are not to come any more."""
    db.execute(
        "DELETE FROM missing WHERE log = ? AND seq BETWEEN ? AND ?",
        (row.id, pack_u64(first), pack_u64(last)),
    )


def load_missing(
    db: "apsw.Connection", row: LogRow, first: int, sizes: tuple[int, int], limit: int
) -> list[int]:
    """The first entries from a number on whose payloads are missing and of a size between two.

    Cheap as long as either few are, or not very many others stand before them: a subscription by
    size leaves payloads missing forever, and this is asked again and again.
    """
    low, high = sizes
    if high < low or first > row.newest:
        return []
    if not row.missing and not _has_any(db, row):
        return []
    ends = (row.id, pack_u64(max(first, 0)), pack_u64(row.newest))
    between = (pack_u64(low), pack_u64(high))
    if sizes == (0, U64_MAX):
        found = db.execute(
            "SELECT seq FROM missing WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?",
            (*ends, limit),
        )
        return [unpack_u64(blob) for (blob,) in found]
    if not _are_few(db, row, between):
        near = db.execute(
            "SELECT seq FROM (SELECT seq, payload_bytes FROM missing"
            " WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?)"
            " WHERE payload_bytes BETWEEN ? AND ? ORDER BY seq LIMIT ?",
            (*ends, _STEPS_MAX, *between, limit),
        )
        seqs = [unpack_u64(blob) for (blob,) in near]
        if len(seqs) == limit or not _has_more(db, ends):
            return seqs
    found = db.execute(
        "SELECT seq FROM missing INDEXED BY missing_by_size"
        " WHERE log = ? AND seq BETWEEN ? AND ? AND payload_bytes BETWEEN ? AND ?"
        " ORDER BY seq LIMIT ?",
        (*ends, *between, limit),
    )
    return [unpack_u64(blob) for (blob,) in found]


def _has_any(db: "apsw.Connection", row: LogRow) -> bool:
    return db.execute("SELECT 1 FROM missing WHERE log = ? LIMIT 1", (row.id,)).get is not None


def _are_few(db: "apsw.Connection", row: LogRow, between: tuple[bytes, bytes]) -> bool:
    count: int = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM missing INDEXED BY missing_by_size"
        " WHERE log = ? AND payload_bytes BETWEEN ? AND ? LIMIT ?)",
        (row.id, *between, _FEW),
    ).get
    return count < _FEW


def _has_more(db: "apsw.Connection", ends: tuple[int, bytes, bytes]) -> bool:
    found = db.execute(
        "SELECT 1 FROM missing WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq LIMIT 1 OFFSET ?",
        (*ends, _STEPS_MAX),
    ).get
    return found is not None


def is_missing(db: "apsw.Connection", row: LogRow, first: int, last: int) -> bool:
    """Whether any payload of a range may be asked for."""
    found = db.execute(
        "SELECT 1 FROM missing WHERE log = ? AND seq BETWEEN ? AND ? LIMIT 1",
        (row.id, pack_u64(first), pack_u64(last)),
    ).get
    return found is not None


def count_askable(db: "apsw.Connection", row: LogRow, first: int, last: int) -> int:
    """How many payloads of a range may be asked for."""
    count: int = db.execute(
        "SELECT count(*) FROM missing WHERE log = ? AND seq BETWEEN ? AND ?",
        (row.id, pack_u64(first), pack_u64(last)),
    ).get
    return count


def load_fresh_missing(
    db: "apsw.Connection",
    row: LogRow,
    seqs: tuple[int, int],
    sizes: tuple[int, int],
    since_us: int,
    limit: int,
) -> list[int]:
    """Like `load_missing`, of a range, those alone whose entries were received since a time."""
    found = db.execute(
        "SELECT m.seq FROM missing m CROSS JOIN entries e ON e.log = m.log AND e.seq = m.seq"
        " WHERE m.log = ? AND m.seq BETWEEN ? AND ? AND +m.payload_bytes BETWEEN ? AND ?"
        " AND +e.received_at >= ? ORDER BY m.seq LIMIT ?",
        (row.id, *map(pack_u64, (*seqs, *sizes)), since_us, limit),
    )
    return [unpack_u64(blob) for (blob,) in found]


def count_missing(
    db: "apsw.Connection", row: LogRow, wanted: Subscription, since_us: int | None = None
) -> int:
    """How many payloads of held entries are missing that a subscription wants.

    `since_us`: of entries alone that were received since then.
    """
    low, high = wanted.payload_limits
    first, last = wanted.payload_bounds(row.newest)
    if not row.missing or high < low or last < first:
        return 0
    if wanted.kind is PolicyKind.SPARSE:
        path = [seq for seq in lower_pool(row.newest) if first <= seq]
        return sum(_count(db, row, (seq, seq), (low, high), since_us) for seq in path)
    if wanted.kind is PolicyKind.FULL and first <= 1 and since_us is None:
        if (low, high) == (0, U64_MAX):
            return row.missing
        count: int = db.execute(
            "SELECT count(*) FROM missing INDEXED BY missing_by_size"
            " WHERE log = ? AND payload_bytes BETWEEN ? AND ? AND NOT again",
            (row.id, pack_u64(low), pack_u64(high)),
        ).get
        return count
    return _count(db, row, (first, last), (low, high), since_us)


def _count(
    db: "apsw.Connection",
    row: LogRow,
    seqs: tuple[int, int],
    sizes: tuple[int, int],
    since_us: int | None,
) -> int:
    if since_us is not None:
        fresh: int = db.execute(
            "SELECT count(*) FROM missing m CROSS JOIN entries e ON e.log = m.log AND e.seq = m.seq"
            " WHERE m.log = ? AND m.seq BETWEEN ? AND ? AND +m.payload_bytes BETWEEN ? AND ?"
            " AND NOT m.again AND +e.received_at >= ?",
            (row.id, *map(pack_u64, (*seqs, *sizes)), since_us),
        ).get
        return fresh
    count: int = db.execute(
        "SELECT count(*) FROM missing WHERE log = ? AND seq BETWEEN ? AND ?"
        # The plus keeps SQLite from looking through all of a size.
        " AND +payload_bytes BETWEEN ? AND ? AND NOT again",
        (row.id, *map(pack_u64, (*seqs, *sizes))),
    ).get
    return count


def ask_again(db: "apsw.Connection", row: LogRow, first: int, last: int) -> None:
    """Counts the deleted payloads of a range as missing."""
    deleted = db.execute(
        "SELECT seq, encoded FROM entries WHERE log = ? AND seq BETWEEN ? AND ?"
        " AND payload_state = ?",
        (row.id, pack_u64(first), pack_u64(last), PAYLOAD_DELETED),
    )
    add_missing(
        db,
        [
            missing_row(row, unpack_u64(blob), _payload_bytes(row, blob, encoded), again=True)
            for blob, encoded in list(deleted)
        ],
    )


def ask_no_more(db: "apsw.Connection", row: LogRow, first: int, last: int) -> None:
    """The reverse of `ask_again`."""
    db.execute(
        "DELETE FROM missing WHERE log = ? AND seq BETWEEN ? AND ? AND again",
        (row.id, pack_u64(first), pack_u64(last)),
    )


def count_all_missing(db: "apsw.Connection", row: LogRow) -> None:
    """Makes the rows of a log that has none yet."""
    found = db.execute(
        "SELECT seq, encoded FROM entries WHERE log = ? AND payload_state = ?",
        (row.id, PAYLOAD_MISSING),
    )
    add_missing(
        db,
        [
            missing_row(row, unpack_u64(blob), _payload_bytes(row, blob, encoded))
            for blob, encoded in list(found)
        ],
    )


def _payload_bytes(row: LogRow, blob: bytes, encoded: bytes) -> int:
    return payload_bytes_of(row.key.log_id, unpack_u64(blob), encoded)


def payload_bytes_of(log_id: int, seq: int, encoded: bytes) -> int:
    """What an entry that is held says of its payload's size, without decoding all of it."""
    try:
        return decode_varu64(encoded, tail_offset(log_id, seq))[0]
    except NeedMore:
        # The entry is damaged, which is found out when it is read; its log is not lost for that.
        return 0
