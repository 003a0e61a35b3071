"""Exports with planted faults: rows of healthy logs, and rows that no store would have let in."""

from pathlib import Path

import pyarrow as pa

from analytics.parts import RangeWriter
from analytics.rows import RowBuilder
from logstore import NewEntry, PayloadState, StoredEntry
from tests.analytics.makers import NOON
from tests.logstore.authors import AuthorLog
from wire import decode_entry, yamf_hash

NODE = "ab" * 32
PLANTED_KINDS = (
    "signature",
    "backlink",
    "lipmaalink",
    "payload",
    "gap",
    "fork",
    "after_end",
    "payload_size",
    "entry_hash",
    "encoding",
)


def stored(log: AuthorLog, entry: NewEntry, ingest: int, at: int = NOON) -> StoredEntry:
    """An entry as a store would hand it out."""
    payload = entry.payload
    assert payload is None or isinstance(payload, bytes)
    state = PayloadState.MISSING if payload is None else PayloadState.PRESENT
    size = decode_entry(entry.encoded).payload_bytes
    return StoredEntry(
        log.key, entry.seq, ingest, entry.encoded, entry.hash, at, state, payload, size, 0
    )


def write_rows(root: Path, rows: list[StoredEntry], node: str = NODE) -> None:
    """An export of these rows."""
    builder = RowBuilder(node, payload_bytes_max=1 << 30)
    (root / "_manifests").mkdir(parents=True)
    batches: list[pa.RecordBatch] = [builder.batch(rows)]
    RangeWriter(root, node, 1, rows[-1].ingest).write(batches)


def rehashed(entry: NewEntry, encoded: bytes) -> NewEntry:
    """The entry with other bytes, and the hash that they have."""
    return NewEntry(entry.seq, encoded, yamf_hash(encoded), entry.payload)


def plant(entries_in_each: int, logs: int) -> tuple[list[StoredEntry], set[tuple[str, str, int]]]:
    """Logs with a fault of one of PLANTED_KINDS each, the first to the last, and healthy ones.

    The rows, and (kind, author, seq) of the faults.
    """
    rows: list[StoredEntry] = []
    planted: set[tuple[str, str, int]] = set()
    for number in range(1, logs + 1):
        log = AuthorLog(number)
        kind = PLANTED_KINDS[number - 1] if number <= len(PLANTED_KINDS) else "none"
        for seq in range(1, entries_in_each + 1):
            made = _entries(log, seq, kind, entries_in_each)
            rows += [stored(log, each, len(rows) + 1 + n) for n, each in enumerate(made)]
            if seq == _place(kind, entries_in_each):
                rows[-1] = _spoiled(rows[-1], kind)
        if kind != "none":
            planted.add((kind, log.key.author.hex(), _place(kind, entries_in_each)))
    return rows, planted


def _place(kind: str, entries_in_each: int) -> int:
    """Where a fault is planted; 8 is a number with a lipmaalink of its own."""
    if kind == "after_end":
        return entries_in_each
    return 8


def _entries(log: AuthorLog, seq: int, kind: str, entries_in_each: int) -> list[NewEntry]:
    payload = b"payload %d" % seq
    if kind == "after_end" and seq == entries_in_each - 1:
        return [log.add(seq, payload, is_end=True)]
    if seq != _place(kind, entries_in_each):
        return [log.add(seq, payload)]
    entry = log.make(seq, payload)
    if kind == "signature":
        entry = rehashed(entry, entry.encoded[:-1] + bytes([entry.encoded[-1] ^ 1]))
    elif kind == "backlink":
        entry = log.make(seq, payload, backlink=yamf_hash(b"another"))
    elif kind == "lipmaalink":
        entry = log.make(seq, payload, lipmaalink=yamf_hash(b"another"))
    elif kind == "payload":
        entry = NewEntry(entry.seq, entry.encoded, entry.hash, b"pAyload %d" % seq)
    elif kind == "payload_size":
        entry = log.make(seq, payload, payload_bytes=len(payload) + 1)
    log.entries[seq] = entry
    if kind == "gap":
        return []
    if kind == "fork":
        return [entry, log.make(seq, b"another payload")]
    return [entry]


def _spoiled(row: StoredEntry, kind: str) -> StoredEntry:
    """A row that holds another hash than its entry has, or lacks the lipmaalink."""
    if kind == "entry_hash":
        return row._replace(hash=yamf_hash(b"another"))
    if kind == "encoding":
        # Tag, author, log id and seqnum stand before it.
        return row._replace(encoded=row.encoded[:35] + row.encoded[35 + 66 :])
    return row
