"""Small payloads that come behind their entries, many in one go.

Theory. Who follows a log by its metadata and then wants all of it gets thousands of payloads of
entries that are held. One by one each took seven statements and as many comparisons
(payloads.py, `fill_payload`), three times what an entry takes that comes with its payload. So the
rows that lack one are read once for a batch, those that go on without a gap are compared in one
loop (usual.py), and are changed by two statements.

What is otherwise in any way, as a payload that is there already, was deleted, or is not the one
that its entry names, ends the run and is left to `fill_payload`, which knows what follows from it.
"""

from itertools import islice
from typing import TYPE_CHECKING

from .missing import remove_missing
from .payloads import FILL_ROW
from .rows import LogRow, pack_u64, unpack_u64
from .schema import PAYLOAD_MISSING
from .usual import LackingRow, Place, rows_to_fill

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .database import Transaction
    from .payloads import ReadyEntry
    from .records import NewEntry


class Lacking:
    """Rows of a log that lack their payloads, as a batch of ascending entries meets them."""

    def __init__(
        self,
        transaction: "Transaction",
        row: LogRow,
        entries: "Sequence[NewEntry | ReadyEntry]",
        start: int,
    ) -> None:
        """Of the entry at `start` and those that follow it without a gap."""
        self._transaction = transaction
        self._row = row
        first = self.last = entries[start].seq
        """The last entry of which the rows are known."""
        for entry in islice(entries, start, None):
            # Across a gap of a million entries all their rows would be looked at.
            if entry.seq > self.last + 1:
                break
            self.last = entry.seq
        rows: Iterable[LackingRow] = transaction.db.execute(
            "SELECT ingest, seq, received_at, encoded FROM entries"
            " WHERE log = ? AND seq BETWEEN ? AND ? AND payload_state = ? ORDER BY seq",
            (row.id, pack_u64(first), pack_u64(self.last), PAYLOAD_MISSING),
        )
        self._rows = list(rows)
        self._at = 0

    def fill(self, entries: "list[NewEntry | ReadyEntry]", start: int) -> int:
        """Gives the rows of entries from `start` on their payloads; of how many. None has come
        before."""
        blob = pack_u64(entries[start].seq)
        while self._at < len(self._rows) and self._rows[self._at][1] < blob:
            self._at += 1
        if self._at == len(self._rows) or self._rows[self._at][1] != blob:
            return 0
        transaction, row = self._transaction, self._row
        place = Place(*row.key, row.id, transaction.ingest + 1, 0)
        filled, payload_bytes = rows_to_fill(entries, start, place, self._rows, self._at)
        # Whatever becomes of the first one, its row is not what was read any more.
        first, self._at = self._at, self._at + max(len(filled), 1)
        if not filled:
            return 0
        count = len(filled)
        row.changed = transaction.take_ingest(count) + count - 1
        transaction.db.executemany(FILL_ROW, filled)
        last = unpack_u64(self._rows[first + count - 1][1])
        remove_missing(transaction.db, row, last - count + 1, last)
        row.missing -= count
        row.payloads += count
        row.bytes += payload_bytes
        return count
