"""What Spark's Python workers do with each row: the checks that need no other row.

Runs in processes of their own, on other machines perhaps, so it imports little.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from wire import (
    U64_MAX,
    Entry,
    EntryError,
    encode_entry,
    lipmaa,
    signature_is_valid,
    signature_self_test,
    yamf_from_digest,
)

if TYPE_CHECKING:
    import pyarrow as pa

CHECKED_DDL: Final = (
    "node STRING, author STRING, log_id DECIMAL(20,0), seq BIGINT, is_end BOOLEAN, "
    "ingest_seq BIGINT, entry_hash BINARY, backlink BINARY, lipmaalink BINARY, "
    "lipmaa_seq BIGINT, fault STRING, payload_fault STRING"
)
ENCODED_DDL: Final = (
    "author STRING, log_id DECIMAL(20,0), seq BIGINT, node STRING, entry_hash BINARY, "
    "encoded BINARY"
)

_KEPT: Final = (
    "node",
    "author",
    "log_id",
    "seq",
    "is_end",
    "ingest_seq",
    "entry_hash",
    "backlink",
    "lipmaalink",
)
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


def entry_fault(row: Row, entry_hash: bytes) -> str | None:
    """What is wrong with an entry by itself: the first of encoding, signature and hash."""
    try:
        encoded = encode_row(row)
    except (EntryError, ValueError, TypeError, AttributeError):
        return "encoding"
    if not signature_is_valid(encoded):
        return "signature"
    return None if blake2b(encoded).digest() == entry_hash else "entry_hash"


def payload_fault(payload: bytes | None, size: int, payload_hash: bytes) -> str | None:
    """What is wrong with a payload that is there."""
    if payload is None:
        return None
    if blake2b(payload).digest() != payload_hash:
        return "payload"
    return None if len(payload) == size else "payload_size"


def _lipmaa_seq(seq: int) -> int | None:
    return lipmaa(seq) if seq > 1 else None


def check_rows(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """For `mapInArrow`: rows of an export -> rows of CHECKED_DDL."""
    import pyarrow as pa

    signature_self_test()
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in _FIELDS), strict=True)
        hashes = batch.column("entry_hash").to_pylist()
        faults = [entry_fault(row, hash_) for row, hash_ in zip(rows, hashes, strict=True)]
        payloads = [
            payload_fault(payload, size, hash_)
            for payload, size, hash_ in zip(
                (each.as_py() for each in batch.column("payload")),
                batch.column("payload_size").to_pylist(),
                batch.column("payload_hash").to_pylist(),
                strict=True,
            )
        ]
        seqs = batch.column("seq").to_pylist()
        yield pa.RecordBatch.from_arrays(
            [
                *(batch.column(name) for name in _KEPT),
                pa.array([_lipmaa_seq(seq) for seq in seqs], pa.int64()),
                pa.array(faults, pa.string()),
                pa.array(payloads, pa.string()),
            ],
            names=[*_KEPT, "lipmaa_seq", "fault", "payload_fault"],
        )


def encode_rows(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """For `mapInArrow`: rows of an export -> rows of ENCODED_DDL."""
    import pyarrow as pa

    kept = ("author", "log_id", "seq", "node", "entry_hash")
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in _FIELDS), strict=True)
        encoded = pa.array([encode_row(row) for row in rows], pa.binary())
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in kept), encoded], names=[*kept, "encoded"]
        )
