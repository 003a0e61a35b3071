"""Dropping payloads: those that are held, and those of which a part is.

Payloads are dropped in transactions of many, or of few where the disk is full: what such a
transaction writes has to fit into what the reserve gives back. Files are removed after each, so
that the next one finds the room of those before it.

A payload that is being received by somebody is dropped like any other. Its file goes away when its
sink ends, which nothing can be written to any more (sink.py).
"""

from typing import TYPE_CHECKING, Final

from wire import LogKey, decode_varu64, tail_offset

from .errors import StoreFull
from .files import PayloadFiles, detach_file, set_file_state
from .missing import remove_missing
from .records import Dropped
from .rows import LogRow, entry_tag, load_log, pack_u64, save_log, unpack_u64
from .schema import (
    FILE_GARBAGE,
    FILE_PARTIAL,
    PAYLOAD_DELETED,
    PAYLOAD_FILE,
    PAYLOAD_INLINE,
    PAYLOAD_MISSING,
)
from .wants import unwant_overlapping

if TYPE_CHECKING:
    from .database import Transaction
    from .opening import Opened

DROP_ROWS: Final = 1_000
"""Payloads dropped in one transaction."""
DROP_ROWS_FULL: Final = 32
"""The same where the disk is full."""


class Dropping:
    """One range of a log whose payloads go away."""

    def __init__(
        self, opened: "Opened", files: PayloadFiles, key: LogKey, first: int, last: int
    ) -> None:
        self._opened = opened
        self._files = files
        self._key = key
        self._first, self._last = first, last
        self._rows_max = DROP_ROWS
        self._next: int | None = first

    def run(self) -> Dropped:
        """Drops all of it."""
        found = Dropped(0, 0)
        while self._next is not None:
            dropped, self._next = self._opened.reserve.free(self._step)
            found = _sum(found, dropped)
            if self._rows_max < DROP_ROWS:
                self._files.tidy()
        self._files.tidy()
        self._opened.reserve.set_aside()
        return found

    def _step(self) -> tuple[Dropped, int | None]:
        """What one transaction drops, and where the next one goes on."""
        assert self._next is not None
        try:
            with self._opened.database.write(frees=True) as transaction:
                row = load_log(transaction.db, self._key)
                if row is None:
                    return Dropped(0, 0), None
                transaction.changes_wishes = True
                unwant_overlapping(transaction.db, self._key, self._next, self._last)
                parts = Dropped(0, 0)
                if self._next == self._first:
                    parts = self._drop_parts(transaction, row)
                whole, after = self._drop_whole(transaction, row, self._next)
                save_log(transaction.db, row)
        except StoreFull:
            self._rows_max = DROP_ROWS_FULL
            raise
        return _sum(parts, whole), after

    def _drop_whole(
        self, transaction: "Transaction", row: LogRow, first: int
    ) -> tuple[Dropped, int | None]:
        """Deletes the next payloads that are held; saves nothing."""
        db = transaction.db
        rows = db.execute(
            "SELECT ingest, seq, received_at, encoded,"
            " CASE payload_state WHEN 2 THEN payload END FROM entries"
            " WHERE log = ? AND seq BETWEEN ? AND ? AND payload_state IN (?, ?)"
            " ORDER BY seq LIMIT ?",
            (
                row.id,
                pack_u64(first),
                pack_u64(self._last),
                PAYLOAD_INLINE,
                PAYLOAD_FILE,
                self._rows_max,
            ),
        )
        found = list(rows)
        held = freed = 0
        seq = first
        for ingest, blob, received_at, encoded, file_id in found:
            seq = unpack_u64(blob)
            size = decode_varu64(encoded, tail_offset(row.key.log_id, seq))[0]
            held += size
            if file_id is not None:
                detach_file(db, file_id)
                freed += size
            _mark(transaction, row, ingest, received_at)
        row.payloads -= len(found)
        row.bytes -= held
        more = len(found) == self._rows_max and seq < self._last
        return Dropped(len(found), held, freed), seq + 1 if more else None

    def _drop_parts(self, transaction: "Transaction", row: LogRow) -> Dropped:
        """Deletes what has come of unfinished payloads; saves nothing."""
        db, key = transaction.db, self._key
        rows = db.execute(
            "SELECT id, seq FROM files WHERE author = ? AND log_id = ? AND seq BETWEEN ? AND ?"
            " AND state <> 3 AND state = ?",
            (
                key.author,
                pack_u64(key.log_id),
                pack_u64(self._first),
                pack_u64(self._last),
                FILE_PARTIAL,
            ),
        )
        count = freed = 0
        for id_, seq in list(rows):
            set_file_state(db, id_, FILE_GARBAGE)
            freed += self._opened.system.file_size(self._files.path_of(id_)) or 0
            entry = db.execute(
                "SELECT ingest, received_at, payload_state FROM entries WHERE log = ? AND seq = ?"
                " AND payload_state IN (?, ?)",
                (row.id, seq, PAYLOAD_MISSING, PAYLOAD_DELETED),
            ).fetchone()
            if entry is None:
                continue
            count += 1
            ingest, received_at, state = entry
            _mark(transaction, row, ingest, received_at)
            if state == PAYLOAD_MISSING:
                row.missing -= 1
                dropped = unpack_u64(seq)
                remove_missing(db, row, dropped, dropped)
        return Dropped(count, freed, freed)


def _sum(one: Dropped, other: Dropped) -> Dropped:
    return Dropped(one.count + other.count, one.bytes + other.bytes, one.freed + other.freed)


def _mark(transaction: "Transaction", row: LogRow, ingest: int, received_at: int) -> None:
    """Says of an entry that its payload was deleted."""
    new = row.changed = transaction.take_ingest()
    transaction.db.execute(
        "UPDATE entries SET ingest = ?, payload_state = ?, payload = NULL, tag = ?"
        " WHERE ingest = ?",
        (new, PAYLOAD_DELETED, entry_tag(new, row.id, received_at, PAYLOAD_DELETED), ingest),
    )
