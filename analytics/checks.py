"""What Spark's Python workers do: the checks of each row by itself, those of `chains`, and packing.

Runs in processes of their own, on other machines perhaps, so it imports little.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final

from wire import (
    U64_MAX,
    Entry,
    EntryError,
    encode_entry,
    signature_self_test,
    signatures_are_valid,
    yamf_from_digest,
)

from .chains import FAULTS_DDL, FOUND, RECORDS_DDL, ROWS, Piece, Record, SoundRow, judge
from .schema import record_batch

if TYPE_CHECKING:
    import pyarrow as pa

ENCODED_DDL: Final = (
    "author STRING, log_id DECIMAL(20,0), seq BIGINT, node STRING, entry_hash BINARY, "
    "encoded BINARY"
)
PACKED_DDL: Final = "packed BINARY"

_FIELDS: Final = (
    "author",
    "log_id",
    "seq",
    "is_end",
    "lipmaalink",
    "backlink",
    "payload_size",
    "payload_hash",
    "signature",
)
ENCODED_INPUT: Final = (*_FIELDS, "entry_hash", "node")
"""The columns of an export that `encode_rows` needs: no payloads, so Spark reads none."""
INPUT: Final = (*ENCODED_INPUT, "ingest_seq", "payload")
"""The columns of an export that `check_piece` needs."""
_FAULTS_BATCH: Final = 5_000

Row = tuple[str, int, int, bool, bytes | None, bytes | None, int, bytes, bytes]


def encode_row(row: Row) -> bytes:
    """The entry's canonical encoding. Raises EntryError and ValueError where there is none."""
    author, log_id, seq, is_end, lipmaalink, backlink, payload_size, payload_hash, signature = row
    if not 0 < seq <= U64_MAX or payload_size < 0:
        raise ValueError("a number is out of range")
    return encode_entry(
        Entry(
            bytes.fromhex(author),
            int(log_id),
            seq,
            is_end,
            None if lipmaalink is None else yamf_from_digest(lipmaalink),
            None if backlink is None else yamf_from_digest(backlink),
            payload_size,
            yamf_from_digest(payload_hash),
            signature,
        )
    )


def encoded_or_none(row: Row) -> bytes | None:
    """`encode_row`, None where there is no encoding."""
    try:
        return encode_row(row)
    except (EntryError, ValueError, TypeError, AttributeError):
        return None


def entry_faults(encoded: Sequence[bytes | None], hashes: Sequence[bytes]) -> list[str | None]:
    """What is wrong with each entry by itself: the first of encoding, signature and hash.

    All signatures in one call, which is a quarter cheaper than one by one. Its verdict is each
    one's own, so there is nothing to look for where one of them is wrong.
    """
    verdicts = iter(signatures_are_valid([each for each in encoded if each is not None]))
    return [
        "encoding"
        if each is None
        else "signature"
        if not next(verdicts)
        else None
        if blake2b(each).digest() == entry_hash
        else "entry_hash"
        for each, entry_hash in zip(encoded, hashes, strict=True)
    ]


def payload_fault(payload: bytes | None, size: int, payload_hash: bytes) -> str | None:
    """What is wrong with a payload that is there."""
    if payload is None:
        return None
    if blake2b(payload).digest() != payload_hash:
        return "payload"
    return None if len(payload) == size else "payload_size"


def check_piece(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """For `mapInArrow`: rows of an export (INPUT) -> what they tell of their logs (RECORDS_DDL).

    The last record counts the rows.
    """
    signature_self_test()
    piece = Piece()
    count = 0
    for batch in batches:
        count += batch.num_rows
        _check_batch(piece, batch)
        yield record_batch(piece.records, RECORDS_DDL)
        piece.records.clear()
    piece.end_run()
    piece.records.append(Record(None, None, 0, FOUND, count, ROWS))
    yield record_batch(piece.records, RECORDS_DDL)


def _check_batch(piece: Piece, batch: "pa.RecordBatch") -> None:
    columns = {name: batch.column(name).to_pylist() for name in INPUT if name != "payload"}
    if batch.column("ingest_seq").null_count:
        # No export of ours has such rows, and no check needs the number: it only shows the row.
        columns["ingest_seq"] = [each or 0 for each in columns["ingest_seq"]]
    encoded = [*map(encoded_or_none, zip(*(columns[name] for name in _FIELDS), strict=True))]
    faults = entry_faults(encoded, columns["entry_hash"])
    # One after the other: all payloads of a batch at once would be there twice.
    payloads = (each.as_py() for each in batch.column("payload"))
    rows = zip(*(columns[name] for name in SoundRow._fields), strict=True)
    sizes = zip(payloads, columns["payload_size"], columns["payload_hash"], strict=True)
    for fault, row, held in zip(faults, map(SoundRow._make, rows), sizes, strict=True):
        if fault is None:
            piece.add(row)
        else:
            piece.records.append(_found(row, fault))
            if None not in row[:3] and row.seq > 0:
                piece.add_unsound(*row[:3])
        wrong = payload_fault(*held)
        if wrong is not None:
            piece.records.append(_found(row, wrong))


def _found(row: SoundRow, kind: str) -> Record:
    detail = "the row by itself is wrong"
    place = (row.author, row.log_id, 0, FOUND, row.seq, kind, detail)
    return Record(*place, row.node, row.ingest_seq)


def judge_logs(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """For `mapInArrow`: what all pieces told (RECORDS_DDL), in order -> faults (FAULTS_DDL)."""
    records = (
        Record(*values)
        for batch in batches
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    faults = judge(records)
    while some := [*islice(faults, _FAULTS_BATCH)]:
        yield record_batch(some, FAULTS_DDL)


def encode_rows(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """For `mapInArrow`: rows of an export -> those that are right by themselves, of ENCODED_DDL."""
    import pyarrow as pa

    kept = ("author", "log_id", "seq", "node", "entry_hash")
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in _FIELDS), strict=True)
        encoded = [*map(encoded_or_none, rows)]
        faults = entry_faults(encoded, batch.column("entry_hash").to_pylist())
        named = [*(batch.column(name) for name in kept), pa.array(encoded, pa.binary())]
        sound = pa.array([fault is None for fault in faults], pa.bool_())
        yield pa.RecordBatch.from_arrays(named, names=[*kept, "encoded"]).filter(sound)


def pack_batches(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """For `mapInArrow`: rows of any columns -> a row for each batch, its Arrow stream, of
    PACKED_DDL."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield record_batch([(sink.getvalue().to_pybytes(),)], PACKED_DDL)
