"""The tables of the index (4.3): what is derived from the logs that are streams, and nothing else.

`anchors` are the visible stream: from each one on, `bytes` bytes of the payload of log entry `seq`
are the Data packets of the entries up to the next anchor. So serving is slicing. A truncation
removes what is behind it and shortens the last one. `cuts` says to which number a stream went back,
and when, for the connections that were sent more.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import apsw

from gateways import pack_u64
from wire import LogKey

FILE_NAME: Final = "datastream.sqlite3"
VERSION: Final = 1
SPAN_ENTRIES: Final = 256
SPAN_BYTES: Final = 1 << 18
CUTS_KEPT: Final = 1024

STATEMENTS: Final = (
    """CREATE TABLE streams(
    id INTEGER PRIMARY KEY,
    author BLOB NOT NULL,
    log_id BLOB NOT NULL,
    declaration BLOB NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    entries INTEGER NOT NULL,
    length INTEGER NOT NULL,
    broken TEXT NOT NULL,
    cuts INTEGER NOT NULL,
    UNIQUE (author, log_id)
)""",
    """CREATE TABLE anchors(
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    length INTEGER NOT NULL,
    PRIMARY KEY (stream, number)
) WITHOUT ROWID""",
    """CREATE TABLE bookmarks(
    stream INTEGER NOT NULL,
    bookmark BLOB NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (stream, bookmark, number)
) WITHOUT ROWID""",
    "CREATE INDEX bookmarks_by_number ON bookmarks(stream, number)",
    """CREATE TABLE truncations(
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID""",
    """CREATE TABLE cuts(
    stream INTEGER NOT NULL, cut INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (stream, cut)
) WITHOUT ROWID""",
)


class StreamRow(NamedTuple):
    """How far a stream was applied."""

    id: int
    declaration: bytes
    """The payload of entry 1; empty before it was applied."""
    seq: int
    """The last log entry that was applied."""
    hash: bytes
    entries: int
    length: int
    broken: str
    """Why log entry `seq` + 1 can never be applied; empty if nothing is known against it."""
    cuts: int
    """How often the stream went back."""


class Anchor(NamedTuple):
    """Where entry `number` and some that follow it lie."""

    number: int
    seq: int
    offset: int
    bytes: int
    length: int
    """TotalLength before the entry was placed."""


def load_stream(db: apsw.Connection, key: LogKey) -> StreamRow | None:
    """The row of a stream."""
    found = db.execute(
        "SELECT id, declaration, seq, hash, entries, length, broken, cuts FROM streams"
        " WHERE author = ? AND log_id = ?",
        (key.author, pack_u64(key.log_id)),
    ).fetchone()
    return None if found is None else StreamRow(*found)


def create_stream(db: apsw.Connection, key: LogKey, length: int) -> StreamRow:
    """A row of which nothing was applied yet."""
    db.execute(
        "INSERT INTO streams(author, log_id, declaration, seq, hash, entries, length, broken, cuts)"
        " VALUES (?, ?, x'', 0, x'', 0, ?, '', 0)",
        (key.author, pack_u64(key.log_id), length),
    )
    row = load_stream(db, key)
    assert row is not None
    return row


def save_stream(db: apsw.Connection, row: StreamRow) -> None:
    """Writes a row back."""
    db.execute(
        "UPDATE streams SET declaration = ?, seq = ?, hash = ?, entries = ?, length = ?,"
        " broken = ?, cuts = ? WHERE id = ?",
        (*row[1:], row.id),
    )


def clear_stream(db: apsw.Connection, row: StreamRow, length: int) -> StreamRow:
    """Forgets all that was applied, but not how often the stream went back."""
    for table in ("anchors", "bookmarks", "truncations"):
        db.execute(f"DELETE FROM {table} WHERE stream = ?", (row.id,))  # noqa: S608 (constants)
    return StreamRow(row.id, b"", 0, b"", 0, length, "", row.cuts)


def add_anchors(db: apsw.Connection, stream: int, anchors: Iterable[Anchor]) -> None:
    """Adds to the end of the stream."""
    db.executemany(
        "INSERT INTO anchors VALUES (?, ?, ?, ?, ?, ?)", [(stream, *anchor) for anchor in anchors]
    )


def add_bookmarks(db: apsw.Connection, stream: int, bookmarks: Iterable[tuple[bytes, int]]) -> None:
    """Adds bookmarks with their numbers."""
    db.executemany(
        "INSERT INTO bookmarks VALUES (?, ?, ?)", [(stream, *each) for each in bookmarks]
    )


def anchors_from(db: apsw.Connection, stream: int, number: int, limit: int) -> list[Anchor]:
    """The anchors from the one at or before an entry."""
    rows = db.execute(
        "SELECT number, seq, offset, bytes, length FROM anchors WHERE stream = ?1 AND number >="
        " coalesce((SELECT max(number) FROM anchors WHERE stream = ?1 AND number <= ?2), 0)"
        " ORDER BY number LIMIT ?3",
        (stream, number, limit),
    )
    return [Anchor(*row) for row in rows]


def anchor_of(db: apsw.Connection, stream: int, number: int) -> Anchor | None:
    """The anchor at or before an entry."""
    found = anchors_from(db, stream, number, 1)
    return found[0] if found else None


def bookmark_number(db: apsw.Connection, stream: int, bookmark: bytes) -> int | None:
    """The largest number of a bookmark."""
    found: int | None = db.execute(
        "SELECT max(number) FROM bookmarks WHERE stream = ? AND bookmark = ?", (stream, bookmark)
    ).get
    return found


def truncate(
    db: apsw.Connection, row: StreamRow, seq: int, number: int, kept: tuple[Anchor, int] | None
) -> None:
    """Removes entry `number` and later. `kept`: the anchor before it, and the bytes it keeps."""
    db.execute("DELETE FROM anchors WHERE stream = ? AND number >= ?", (row.id, number))
    db.execute("DELETE FROM bookmarks WHERE stream = ? AND number >= ?", (row.id, number))
    if kept is not None:
        db.execute(
            "UPDATE anchors SET bytes = ? WHERE stream = ? AND number = ?",
            (kept[1], row.id, kept[0].number),
        )
    db.execute("INSERT INTO truncations VALUES (?, ?, ?)", (row.id, seq, number))


def add_cut(db: apsw.Connection, row: StreamRow, number: int) -> StreamRow:
    """Notes that the stream went back to `number` entries."""
    cut = row.cuts + 1
    db.execute("INSERT INTO cuts VALUES (?, ?, ?)", (row.id, cut, number))
    db.execute("DELETE FROM cuts WHERE stream = ? AND cut <= ?", (row.id, cut - CUTS_KEPT))
    return row._replace(cuts=cut)


def lowest_cut(db: apsw.Connection, stream: int, after: int, now: int) -> int | None:
    """How far the stream went back since cut `after`; 0 if that is not known any more."""
    if after == now:
        return None
    rows = db.execute("SELECT number FROM cuts WHERE stream = ? AND cut > ?", (stream, after))
    numbers: list[int] = [number for (number,) in rows]
    # Fewer than there were: they are forgotten, or the file was made anew.
    return min(numbers) if numbers and len(numbers) >= now - after > 0 else 0


def lowest_truncation(db: apsw.Connection, stream: int, after_seq: int) -> int | None:
    """The smallest number of all truncations behind a log entry."""
    found: int | None = db.execute(
        "SELECT min(number) FROM truncations WHERE stream = ? AND seq > ?", (stream, after_seq)
    ).get
    return found
