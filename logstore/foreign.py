"""Storing entries whose signatures have been checked: the rules of bamboo.md "Verified".

Theory. Entries of a log are taken in ascending order, so that what an entry links to is held or was
taken just before. By induction every entry held has a path of entries held down to entry 1: it is
entry 1, or the target of one of its links is held. A link whose target is held has to be its hash,
and so has the link of a held entry that names the new one.

A different encoding under a number that is held is a fork, whatever its links (and even if they are
wrong): both encodings are the proof. What is at or after the fork is kept, and never served again.
The same number twice in one call counts the same. Of an own log that goes for what others may have
of it; what contradicts the rest contests the log instead (sharing.py).

Nothing here looks at more rows than the entries given have links, however large the store is. New
entries in order, the usual case, need one look-up per lipmaalink that leaves the batch.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from wire import (
    HASH_BYTES,
    SIGNATURE_BYTES,
    U64_MAX,
    LogKey,
    NeedMore,
    decode_varu64,
    encode_varu64,
    has_distinct_lipmaalink,
    lipmaa,
    tail_offset,
    yamf_hash,
)

from .filling import Lacking
from .missing import Missing, add_missing, missing_row
from .payloads import (
    PayloadDeletedError,
    ReadyEntry,
    WrongPayloadError,
    WrongSizeError,
    check_payload,
    fill_payload,
    keep_wrong_size,
)
from .proofs import load_fork, store_fork
from .records import EntryRejectedInfo, ForkProof, NewEntry, PutResult
from .rows import LogRow, create_log, entry_tag, insert_entries, load_log, pack_u64, save_log
from .runs import add_run, limit_log
from .schema import PAYLOAD_INLINE, PAYLOAD_MISSING
from .sharing import contest, load_shared, note_shared
from .usual import EntryRow, Place, rows_to_write
from .wants import settle

if TYPE_CHECKING:
    from .database import Transaction

_POWERS: Final = [3**k for k in range(41)]
_seq_of = attrgetter("seq")


class _RejectedError(Exception):
    """An entry that breaks a rule; its text is the reason."""

    contradicts = False


class _ContradictionError(_RejectedError):
    """An entry that does not go with those that are held, which the author signed too."""

    contradicts = True


def put_log(
    transaction: "Transaction",
    key: LogKey,
    entries: Sequence[NewEntry | ReadyEntry],
    source: str,
    *,
    own: bool = False,
    undeletes: bool = True,
) -> PutResult:
    """Stores the entries of one log up to the first that breaks a rule. `own`: we sign the log.

    `undeletes`: payloads that were deleted here are taken too.
    """
    return _Batch(transaction, key, own=own, undeletes=undeletes).put(entries, source)


class _Batch:
    """The entries of one log that are being put."""

    __slots__ = (
        "_db",
        "_encodings",
        "_hashes",
        "_held_bytes",
        "_held_newest",
        "_known",
        "_lacking",
        "_missing",
        "_own",
        "_prefix",
        "_row",
        "_rows",
        "_runs",
        "_shared",
        "_stored",
        "_transaction",
        "_undeletes",
    )

    def __init__(
        self, transaction: "Transaction", key: LogKey, *, own: bool, undeletes: bool
    ) -> None:
        self._transaction = transaction
        self._undeletes = undeletes
        self._db = transaction.db
        self._own = own
        self._shared = load_shared(self._db, key.log_id) if own else U64_MAX
        """Up to which entry others may have what is held."""
        self._row: LogRow = load_log(self._db, key) or create_log(self._db, key)
        self._held_bytes = self._row.bytes
        self._held_newest = self._row.newest
        self._prefix = key.author + encode_varu64(key.log_id)
        self._hashes: dict[int, bytes] = {}
        self._encodings: dict[int, bytes] = {}
        self._rows: list[EntryRow] = []
        self._missing: list[Missing] = []
        self._lacking: Lacking | None = None
        self._runs: list[list[int]] = []
        """Runs of new entries."""
        self._stored = 0
        self._known = 0

    def put(self, entries: Sequence[NewEntry | ReadyEntry], source: str) -> PutResult:
        if any(after.seq < before.seq for before, after in pairwise(entries)):
            entries = sorted(entries, key=_seq_of)
        row = self._row
        newest = row.newest
        rejected = None
        contested = False
        entries = list(entries)
        taken = 0
        while (taken := taken + self._take_usual(entries, taken)) < len(entries):
            # What stopped the run, and is judged by itself.
            entry = entries[taken]
            taken += 1
            try:
                self._take(entry)
            except _RejectedError as reason:
                rejected = EntryRejectedInfo(entry.seq, str(reason), reason.contradicts)
                contested = reason.contradicts and self._contest(entry, source)
                break
            except WrongPayloadError as reason:
                rejected = EntryRejectedInfo(entry.seq, str(reason))
                break
        self._flush()
        if self._own:
            note_shared(self._db, row.key.log_id, self._shared)
        if row.newest > newest:
            row.newest_at = self._transaction.now_us
            row.newest_from = source
        if row.entries or row.fork_seq is not None or row.invalid_seq is not None:
            settle(self._transaction, row)
            save_log(self._db, row)
        else:
            self._db.execute("DELETE FROM logs WHERE id = ?", (row.id,))
        fork = None if row.fork_seq is None else load_fork(self._db, row)
        return PutResult(
            row.key,
            self._stored,
            self._known,
            fork,
            row.height,
            row.newest,
            rejected,
            contested,
            row.bytes - self._held_bytes,
        )

    def _take_usual(self, entries: list[NewEntry | ReadyEntry], start: int) -> int:
        """Takes the usual entries that come next (usual.py); how many."""
        if start == len(entries):
            return 0
        if entries[start].seq <= self._held_newest:
            return self._take_payloads(entries, start)
        return self._take_run(entries, start)

    def _take_payloads(self, entries: list[NewEntry | ReadyEntry], start: int) -> int:
        """Those that are held, and whose payloads come now (filling.py)."""
        # Behind a fork nothing is taken; and what is too large for a row has a file.
        if self._row.fork_seq is not None or type(entries[start].payload) is not bytes:
            return 0
        if self._lacking is None or entries[start].seq > self._lacking.last:
            self._lacking = Lacking(self._transaction, self._row, entries, start)
        count = self._lacking.fill(entries, start)
        if count:
            self._known += count
            self._note_shared(entries[start + count - 1].seq)
        return count

    def _take_run(self, entries: list[NewEntry | ReadyEntry], start: int) -> int:
        """Those that are new, behind all that is held."""
        row, first = self._row, entries[start].seq
        if first in self._encodings or row.servable != U64_MAX:
            return 0
        transaction = self._transaction
        place = Place(*row.key, row.id, transaction.ingest + 1, transaction.now_us)
        rows, encoded_bytes, payload_bytes = rows_to_write(
            entries, start, place, self._hashes, self._encodings, self._hash_of
        )
        if not rows:
            return 0
        count = len(rows)
        row.changed = transaction.take_ingest(count) + count - 1
        row.entries += count
        row.payloads += count
        row.encoded_bytes += encoded_bytes
        row.payload_bytes += payload_bytes
        row.bytes += encoded_bytes + payload_bytes
        self._rows += rows
        self._count_run(first, first + count - 1)
        self._note_shared(first + count - 1)
        return count

    def _count_run(self, first: int, last: int) -> None:
        if self._runs and self._runs[-1][1] == first - 1:
            self._runs[-1][1] = last
        else:
            self._runs.append([first, last])

    def _contest(self, entry: NewEntry | ReadyEntry, source: str) -> bool:
        """Keeps an entry that contradicts what only this store has; False if others have it too."""
        if not self._shared < min(entry.seq, self._held_newest):
            return False
        self._transaction.changes_wishes = True
        contest(self._db, self._row.key, entry.encoded, source)
        return True

    def _take(self, entry: NewEntry | ReadyEntry) -> None:
        row, seq, encoded = self._row, entry.seq, entry.encoded
        if row.fork_seq is not None and seq >= row.fork_seq:
            return
        if not encoded.startswith(self._prefix + encode_varu64(seq), 1):
            raise _RejectedError("the encoding is of another log or number")
        if yamf_hash(encoded) != entry.hash:
            raise _RejectedError("the hash is not that of the encoding")
        if seq <= self._held_newest or seq in self._encodings:
            held = self._encoding_of(seq)
            if held is not None:
                self._take_held(entry, held)
                return
        if row.invalid_seq is not None and seq >= row.invalid_seq:
            raise _ContradictionError(f"the log is invalid from entry {row.invalid_seq} on")
        if row.end_seq is not None and seq > row.end_seq:
            raise _ContradictionError(f"the log ended with entry {row.end_seq}")
        tail = tail_offset(row.key.log_id, seq)
        self._check_links(seq, encoded, tail)
        if seq < self._held_newest:
            self._check_links_to(seq, entry.hash)
        self._add(entry, tail)
        self._note_shared(seq)

    def _note_shared(self, seq: int) -> None:
        """Whoever brought it has it; and by its links all that is before it is the same there."""
        self._shared = max(self._shared, seq)

    def _take_held(self, entry: NewEntry | ReadyEntry, held: bytes) -> None:
        row, seq = self._row, entry.seq
        if held != entry.encoded:
            if seq > self._shared and seq <= self._held_newest:
                raise _ContradictionError(f"entry {seq} was signed here too, and is another one")
            self._flush()
            store_fork(self._transaction, row, ForkProof(row.key, seq, held, entry.encoded))
            return
        self._known += 1
        self._note_shared(seq)
        if entry.payload is not None:
            self._flush()
            try:
                fill_payload(self._transaction, row, seq, entry.payload, undeletes=self._undeletes)
            except PayloadDeletedError:
                return  # the entry is as it was

    def _check_links(self, seq: int, encoded: bytes, tail: int) -> None:
        if seq == 1:
            return
        # The links end where the size begins.
        back = self._hash_of(seq - 1)
        if back is not None and encoded[tail - HASH_BYTES : tail] != back:
            raise _ContradictionError(f"the backlink is not the hash of entry {seq - 1}")
        target = lipmaa(seq)
        far = None
        if target != seq - 1:
            far = self._hash_of(target)
            if far is not None and encoded[tail - 2 * HASH_BYTES : tail - HASH_BYTES] != far:
                raise _ContradictionError(f"the lipmaalink is not the hash of entry {target}")
        if back is None and far is None:
            raise _RejectedError("there is no path to entry 1")

    def _check_links_to(self, seq: int, hash_: bytes) -> None:
        """Entries held above a new one may name it, and then they have to name its hash."""
        for above in linking_to(seq, self._held_newest):
            encoded = self._encoding_of(above)
            if encoded is None:
                continue
            end = tail_offset(self._row.key.log_id, above)
            if above != seq + 1:
                end -= HASH_BYTES
            if encoded[end - HASH_BYTES : end] != hash_:
                raise _ContradictionError(
                    f"entry {above}, which is held, links to another entry {seq}"
                )

    def _add(self, entry: NewEntry | ReadyEntry, tail: int) -> None:
        row, seq, encoded = self._row, entry.seq, entry.encoded
        try:
            size, end = decode_varu64(encoded, tail)
        except NeedMore:
            size, end = 0, len(encoded)
        if len(encoded) != end + HASH_BYTES + SIGNATURE_BYTES:
            raise _RejectedError("the encoding has bytes too many or too few")
        state, payload = self._column(entry, size, encoded[end : end + HASH_BYTES])
        row.bytes += len(encoded)
        row.encoded_bytes += len(encoded)
        row.payload_bytes += size
        if state == PAYLOAD_MISSING:
            row.missing += 1
            self._missing.append(missing_row(row, seq, size))
        else:
            row.payloads += 1
            row.bytes += size
        row.entries += 1
        self._count_run(seq, seq)
        transaction = self._transaction
        ingest = row.changed = transaction.take_ingest()
        now = transaction.now_us
        tag = entry_tag(ingest, row.id, now, state)
        self._rows.append(
            (ingest, row.id, pack_u64(seq), now, state, tag, entry.hash, encoded, payload)
        )
        self._hashes[seq] = entry.hash
        self._encodings[seq] = encoded
        if encoded[0]:
            row.end_seq = seq
            self._flush()
            limit_log(self._db, row)

    def _column(
        self, entry: NewEntry | ReadyEntry, size: int, payload_hash: bytes
    ) -> tuple[int, bytes | None]:
        payload = entry.payload
        if payload is None:
            return PAYLOAD_MISSING, None
        # The usual case first: a small payload and the right one.
        if type(payload) is bytes and len(payload) == size and yamf_hash(payload) == payload_hash:
            return PAYLOAD_INLINE, payload
        row = self._row
        try:
            column = check_payload(self._db, row.key, entry.seq, payload, size, payload_hash)
        except WrongSizeError as wrong:
            self._flush()
            keep_wrong_size(self._transaction, row, entry.seq, entry.encoded, wrong)
            raise
        return column.state, column.payload

    def _hash_of(self, seq: int) -> bytes | None:
        hash_ = self._hashes.get(seq)
        if hash_ is None and seq <= self._held_newest:
            hash_ = self._db.execute(
                "SELECT hash FROM entries WHERE log = ? AND seq = ?", (self._row.id, pack_u64(seq))
            ).get
            if hash_ is not None:
                self._hashes[seq] = hash_
        return hash_

    def _encoding_of(self, seq: int) -> bytes | None:
        encoded = self._encodings.get(seq)
        if encoded is None:
            encoded = self._db.execute(
                "SELECT encoded FROM entries WHERE log = ? AND seq = ?",
                (self._row.id, pack_u64(seq)),
            ).get
        return encoded

    def _flush(self) -> None:
        if self._rows:
            insert_entries(self._db, self._rows)
            self._stored += len(self._rows)
            self._rows.clear()
            add_missing(self._db, self._missing)
            self._missing.clear()
            for first, last in self._runs:
                add_run(self._db, self._row, first, last)
            self._runs.clear()


def linking_to(seq: int, newest: int) -> Iterator[int]:
    """The numbers up to `newest` whose backlink or lipmaalink names `seq`, ascending.

    A lipmaalink goes down by (3^k - 1) / 2, or by 3^k from a spine number; so few numbers come in
    question, and `lipmaa` tells which of them do.
    """
    if seq < newest:
        yield seq + 1
    for power in _POWERS:
        for above in (seq + (power - 1) // 2, seq + power):
            if above > newest:
                continue
            if above > seq + 1 and has_distinct_lipmaalink(above) and lipmaa(above) == seq:
                yield above
