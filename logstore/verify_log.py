"""Rechecking one log: every signature, link, hash, size and payload, then everything counted."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from wire import Entry, EntryError, decode_entry, lipmaa, signature_is_valid, yamf_hash

from .files import load_sums
from .proofs import FORK, SIZE, SIZE_FILE
from .records import Fault, LogVerdict
from .rows import LogRow, entry_tag, pack_u64, row_tag, unpack_u64
from .runs import Run, load_runs
from .schema import PAYLOAD_DELETED, PAYLOAD_FILE, PAYLOAD_INLINE, PAYLOAD_MISSING
from .wants import load_wants_of

if TYPE_CHECKING:
    import apsw

_ROWS: Final = 256


class Readable(Protocol):
    """Where a log is read from."""

    def read(self) -> AbstractContextManager["apsw.Connection"]:
        """A read transaction, or a part of one."""


FileHasher = Callable[[bytes], "Hashed | None"]
"""What is in a payload file; None if there is none."""

_Row = tuple[int, bytes, int, int, int, bytes, bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Hashed:
    """A payload as it was found. `sums`: of its blocks, if it has a file."""

    payload_bytes: int
    hash: bytes
    sums: bytes | None = None


@dataclass(slots=True)
class _Count:
    """The derived columns of a log's row, counted from its entries."""

    height: int = 0
    newest: int = 0
    entries: int = 0
    payloads: int = 0
    missing: int = 0
    bytes: int = 0
    encoded_bytes: int = 0
    payload_bytes: int = 0
    end_seq: int | None = None


@dataclass(slots=True)
class LogCheck:
    """The check of one log."""

    database: Readable
    """As of when it is checked."""
    now: Readable
    """As of now: a file that is missing may have been dropped since."""
    row: LogRow
    hash_file: FileHasher
    _count: _Count = field(default_factory=_Count)
    _previous: tuple[int, bytes] = (0, b"")
    _runs: list[Run] = field(default_factory=list)
    _missing: int = 0
    """Rows of `missing` that are right."""
    _faults: int = 0

    def run(self) -> Iterator[Fault | LogVerdict]:
        """Each fault, then the verdict."""
        # Number 0 does not exist, so a row that bears it is found as well.
        after = b""
        while True:
            with self.database.read() as db:
                found = db.execute(
                    "SELECT ingest, seq, received_at, payload_state, tag, hash, encoded, payload"
                    " FROM entries WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (self.row.id, after, _ROWS),
                )
                rows: list[_Row] = list(found)
                faults = [fault for row in rows for fault in self._check_row(db, row)]
                faults += self._check_missing(db, rows)
            yield from self._counted(faults)
            if not rows:
                break
            if any(high <= low for low, high in pairwise((after, *(row[1] for row in rows)))):
                yield from self._counted([self._fault("the index and the rows differ in order")])
                break
            after = rows[-1][1]
        with self.database.read() as db:
            faults = [*self._check_proofs(db), *self._check_columns(db), *self._check_runs(db)]
        yield from self._counted(faults)
        count = self._count
        yield LogVerdict(self.row.info(), count.entries, count.payloads, self._faults)

    def _counted(self, faults: list[Fault]) -> list[Fault]:
        self._faults += len(faults)
        return faults

    def _fault(self, what: str, seq: int | None = None) -> Fault:
        key = self.row.key
        return Fault(str(key) if seq is None else f"{key}/{seq}", what, key, seq)

    def _check_row(self, db: "apsw.Connection", row: _Row) -> Iterator[Fault]:
        ingest, blob, received_at, state, tag, hash_, encoded, payload = row
        seq = unpack_u64(blob)
        count = self._count
        count.entries += 1
        count.bytes += len(encoded)
        count.encoded_bytes += len(encoded)
        if entry_tag(ingest, self.row.id, received_at, state) != tag:
            yield self._fault("the row's numbers are damaged", seq)
        if len(blob) != 8 or not self._is_entry(encoded, seq):
            yield self._fault("the encoding is not this entry's", seq)
            return
        entry = decode_entry(encoded)
        count.payload_bytes += entry.payload_bytes
        if yamf_hash(encoded) != hash_:
            yield self._fault("the hash is wrong", seq)
        if not signature_is_valid(encoded):
            yield self._fault("the signature is wrong", seq)
        if seq <= self.row.servable:
            # What is behind a fork is hidden, and may be of either history.
            yield from self._check_links(db, entry)
        if count.end_seq is None and entry.is_end:
            count.end_seq = seq
        if seq == count.height + 1:
            count.height = seq
        if seq <= self.row.servable:
            count.newest = seq
            if self._runs and self._runs[-1][1] == seq - 1:
                self._runs[-1] = (self._runs[-1][0], seq)
            else:
                self._runs.append((seq, seq))
        self._previous = (seq, hash_)
        yield from self._check_payload(entry, state, payload)

    def _is_entry(self, encoded: bytes, seq: int) -> bool:
        try:
            entry = decode_entry(encoded)
        except EntryError:
            return False
        return entry.key == self.row.key and entry.seq == seq

    def _check_links(self, db: "apsw.Connection", entry: Entry) -> Iterator[Fault]:
        seq = entry.seq
        if seq == 1:
            return
        held = self._previous[1] if self._previous[0] == seq - 1 else None
        if held is not None and held != entry.backlink:
            yield self._fault(f"the backlink is not the hash of entry {seq - 1}", seq)
        far = None
        if entry.lipmaalink is not None:
            target = lipmaa(seq)
            far = db.execute(
                "SELECT hash FROM entries WHERE log = ? AND seq = ?",
                (self.row.id, pack_u64(target)),
            ).get
            if far is not None and far != entry.lipmaalink:
                yield self._fault(f"the lipmaalink is not the hash of entry {target}", seq)
        if held is None and far is None:
            yield self._fault("there is no path to entry 1", seq)

    def _check_payload(self, entry: Entry, state: int, payload: bytes | None) -> Iterator[Fault]:
        seq, count = entry.seq, self._count
        if state in (PAYLOAD_MISSING, PAYLOAD_DELETED):
            count.missing += state == PAYLOAD_MISSING
            if payload is not None:
                yield self._fault("there is a payload where none should be", seq)
            return
        count.payloads += 1
        count.bytes += entry.payload_bytes
        if payload is None or state not in (PAYLOAD_INLINE, PAYLOAD_FILE):
            yield self._fault("the payload's row is damaged", seq)
            return
        found = self._hashed(payload, in_file=state == PAYLOAD_FILE)
        if found is None:
            if self._names_still(seq, payload):
                yield self._fault("the payload's file is missing", seq)
        elif found.hash != entry.payload_hash:
            yield self._fault("the payload is damaged", seq)
        elif found.payload_bytes != entry.payload_bytes:
            yield self._fault("the payload has the wrong size", seq)
        elif found.sums is not None and not self._has_sums(payload, found.sums):
            yield self._fault("the payload is right, and the sums of its blocks are not", seq)

    def _hashed(self, payload: bytes, *, in_file: bool) -> Hashed | None:
        """A payload, or the file with this id."""
        return self.hash_file(payload) if in_file else Hashed(len(payload), yamf_hash(payload))

    def _has_sums(self, file_id: bytes, sums: bytes) -> bool:
        """Whether the row of a file has these, or none."""
        with self.now.read() as db:
            found = load_sums(db, file_id)
        return found is None or found == sums

    def _names_still(self, seq: int, file_id: bytes) -> bool:
        # A file goes only after its entry has let go of it, so what names it now named it then.
        query = (
            "SELECT 1 FROM entries WHERE log = ? AND seq = ? AND payload_state = ? AND payload = ?"
        )
        with self.now.read() as db:
            found = db.execute(query, (self.row.id, pack_u64(seq), PAYLOAD_FILE, file_id)).get
        return found is not None

    def _check_missing(self, db: "apsw.Connection", rows: list[_Row]) -> Iterator[Fault]:
        """The rows of `missing` about these entries."""
        if not rows:
            return
        found = db.execute(
            "SELECT seq, payload_bytes, again FROM missing WHERE log = ? AND seq BETWEEN ? AND ?",
            (self.row.id, rows[0][1], rows[-1][1]),
        )
        said = {blob: (size, again) for blob, size, again in found}
        wanted = load_wants_of(db, self.row.key) if said else []
        for _, blob, _, state, _, _, encoded, _ in rows:
            seq = unpack_u64(blob)
            counted = None
            again = state == PAYLOAD_DELETED and any(a <= seq <= b for a, b in wanted)
            if (state == PAYLOAD_MISSING or again) and self._is_entry(encoded, seq):
                counted = pack_u64(decode_entry(encoded).payload_bytes), int(again)
            if said.get(blob) != counted:
                yield self._fault("what is said of its missing payload is wrong", seq)
            self._missing += blob in said

    def _check_runs(self, db: "apsw.Connection") -> Iterator[Fault]:
        said = load_runs(db, self.row, 1, len(self._runs) + 1)
        if said != self._runs:
            yield self._fault("the runs of held entries are not those counted")
        rows = db.execute("SELECT count(*) FROM missing WHERE log = ?", (self.row.id,)).get
        if rows != self._missing:
            yield self._fault("payloads are said to be missing of entries that are not held")

    def _check_proofs(self, db: "apsw.Connection") -> Iterator[Fault]:
        row, seen = self.row, set()
        for kind, blob, first, second, tag in db.execute(
            "SELECT kind, seq, first, second, tag FROM proofs WHERE log = ?", (row.id,)
        ):
            seq = unpack_u64(blob)
            seen.add("fork" if kind == FORK else "size")
            if row_tag(row.id, kind, blob, first, second) != tag:
                yield self._fault(f"the proof ({kind}) is damaged", seq)
            elif kind == FORK and not (
                seq == row.fork_seq
                and all(self._is_entry(each, seq) for each in (first, second))
                and signature_is_valid(first)
                and signature_is_valid(second)
            ):
                yield self._fault("the fork proof proves nothing", seq)
            elif kind in (SIZE, SIZE_FILE) and not self._proves_size(kind, seq, first, second):
                yield self._fault("the proof of a wrong size proves nothing", seq)
        if ("fork" in seen) != (row.fork_seq is not None):
            yield self._fault("the log's row and its fork proof differ")
        if ("size" in seen) != (row.invalid_seq is not None):
            yield self._fault("the log's row and its proof of a wrong size differ")

    def _proves_size(self, kind: str, seq: int, encoded: bytes, payload: bytes) -> bool:
        if seq != self.row.invalid_seq or not self._is_entry(encoded, seq):
            return False
        entry = decode_entry(encoded)
        found = self._hashed(payload, in_file=kind == SIZE_FILE)
        return (
            found is not None
            and found.hash == entry.payload_hash
            and found.payload_bytes != entry.payload_bytes
            and signature_is_valid(encoded)
        )

    def _check_columns(self, db: "apsw.Connection") -> Iterator[Fault]:
        row, count = self.row, self._count
        count.height = min(count.height, row.servable)
        for column in fields(count):
            said, counted = getattr(row, column.name), getattr(count, column.name)
            if said != counted:
                yield self._fault(f"the log's row says {column.name} {said}, counted: {counted}")
        found = db.execute("SELECT servable, tag FROM logs WHERE id = ?", (row.id,)).fetchone()
        if found != (pack_u64(row.servable), row.tag):
            yield self._fault("the log's row is damaged")
