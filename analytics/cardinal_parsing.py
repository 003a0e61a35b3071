"""From payloads of a stream's logs to rows, one for each message: in the workers, in Arrow batches.

What is in these modules beside `cardinal_rows` and `cardinal_streams` is loaded by workers, which
have PyNaCl and pyarrow alone.

What breaks a rule is a row of kind `bad`; notes are no messages, and have no row.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gateways.cardinal import codec
from gateways.cardinal.declared import ReorgDeclared, read_declared
from gateways.cardinal.frames import channel_of, frames_of
from gateways.declaration import DeclarationError
from gateways.reading import CodecError

if TYPE_CHECKING:
    import pyarrow as pa

DECLARED_DDL: Final = (
    "chain STRING, settings STRING, topics STRING, main DECIMAL(20,0), threshold BIGINT"
)
"""`settings`, which stands for default topic and patterns, and what is behind it are null of a
channel. `main`: the log of the default topic."""
KEPT: Final = (
    "node",
    "chain",
    "settings",
    "producer",
    "author",
    "log_id",
    "seq",
    "topic",
    "ingest_seq",
    "received_at",
    "view",
    "opened",
    "opened_late",
    "opened_us",
)
"""The columns that each message has of its entry, and of what the log is read as."""
PARSED_DDL: Final = (
    "node STRING, chain STRING, settings STRING, producer INT, author STRING,"
    " log_id DECIMAL(20,0), seq BIGINT, topic STRING, ingest_seq BIGINT, received_at TIMESTAMP,"
    " view STRING, opened BIGINT, opened_late INT, opened_us BIGINT,"
    " index INT, kind STRING, block_hash BINARY, key BINARY, value BINARY, reason STRING,"
    " channel DECIMAL(20,0), number BIGINT"
)
"""`channel` and `number` are of reorganisations."""
BAD: Final = "bad"
KINDS: Final = {
    codec.BATCH: "batch",
    codec.SUB_BATCH_HEADER: "sub_batch_header",
    codec.SUB_BATCH_MSG: "sub_batch_msg",
    codec.BATCH_MSG: "batch_msg",
    codec.BATCH_DELETE_MSG: "batch_delete_msg",
    codec.REORG: "reorg",
    codec.REORG_COMPLETE: "reorg_complete",
    codec.PING: "ping",
}
OF_BLOCKS: Final = frozenset(range(codec.BATCH_DELETE_MSG + 1))
OF_REORGS: Final = frozenset((codec.REORG, codec.REORG_COMPLETE))
_ROWS_MAX: Final = 4096
_DATA_BYTES_MAX: Final = 16 << 20
_SHORT: Final = 32
"""Values up to so many bytes are kept; the digest of a longer one is a byte longer than they."""


class _Row(NamedTuple):
    place: int
    kind: str
    hash: bytes | None
    key: bytes | None
    value: bytes | None
    reason: str | None = None
    channel: int | None = None
    number: int | None = None


def read_stream(payload: bytes) -> tuple[object, ...] | None:
    """What entry 1 of a log declares, as `DECLARED_DDL`; None: no default topic, and no channel."""
    try:
        found = read_declared(payload)
    except DeclarationError:
        return None
    if isinstance(found, ReorgDeclared):
        return found.chain, None, None, None, None
    if found.topic != found.default:
        return None
    settings = hashlib.sha256(json.dumps([found.default, found.patterns]).encode()).hexdigest()
    topics = json.dumps({topic: str(log_id) for topic, log_id in found.log_ids.items()})
    return found.chain, settings, topics, found.log_ids[found.default], found.threshold


def parse_batches(
    batches: Iterable["pa.RecordBatch"],
    *,
    only: frozenset[int] | None = None,
    digests: bool = False,
) -> Iterator["pa.RecordBatch"]:
    """Rows of `PARSED_DDL` from entries with the columns of `KEPT` and `payload`.

    `only`: of these types, and no bad ones. `digests`: in place of long values, of which nothing is
    wanted but whether two are the same.
    """
    for batch in batches:
        rows: list[_Row] = []
        places: list[int] = []
        size = 0
        for place, payload in enumerate(batch.column("payload")):
            for row in _parse(payload.as_py(), only):
                rows.append(_digested(row) if digests else row)
                places.append(place)
                size += len(rows[-1].value or b"") + len(row.key or b"")
                if len(rows) >= _ROWS_MAX or size >= _DATA_BYTES_MAX:
                    yield _batch_of(batch, places, rows)
                    rows, places, size = [], [], 0
        if rows:
            yield _batch_of(batch, places, rows)


def _batch_of(batch: "pa.RecordBatch", places: list[int], rows: list[_Row]) -> "pa.RecordBatch":
    import pyarrow as pa

    kinds = (
        pa.int32(),
        pa.string(),
        pa.binary(),
        pa.binary(),
        pa.binary(),
        pa.string(),
        pa.decimal128(20, 0),
        pa.int64(),
    )
    kept = batch.select(list(KEPT)).take(pa.array(places, pa.int64()))
    columns = zip(*rows, strict=True)
    made = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    names = [*KEPT, "index", "kind", "block_hash", "key", "value", "reason", "channel", "number"]
    return pa.RecordBatch.from_arrays([*kept.columns, *made], names=names)


def _parse(payload: bytes, only: frozenset[int] | None) -> Iterator[_Row]:
    index = 0
    channel: int | None = None
    try:
        for key, value in frames_of(payload):
            if not key:
                channel = channel_of(value)
                index += 1
                continue
            if only is None or key[0] in only:
                row = _row(index, key, value, channel)
                if only is None or row.kind != BAD:
                    yield row
            # A note is about what stands behind it, and nothing further.
            channel = None
            index += 1
    except CodecError as error:
        if only is None:
            yield _Row(index, BAD, None, None, None, str(error))


def _row(index: int, key: bytes, value: bytes, channel: int | None) -> _Row:
    hash_ = key[1 : codec.PREFIX_BYTES] if len(key) >= codec.PREFIX_BYTES else None
    try:
        kind = codec.kind_of(key, value)
        if kind in (codec.BATCH_MSG, codec.BATCH_DELETE_MSG):
            # Nearly all there is, and there is nothing to look into.
            return _Row(index, KINDS[kind], hash_, key, value)
        message = codec.decode_message(key, value)
    except CodecError as error:
        return _Row(index, BAD, hash_, key, value, str(error))
    match message:
        case codec.Reorg(_, number):
            return _Row(index, KINDS[kind], hash_, key, value, None, channel, number)
        case codec.ReorgComplete(_, number):
            return _Row(index, KINDS[kind], hash_, key, value, number=number)
        case _:
            return _Row(index, KINDS[kind], hash_, key, value)


def _digested(row: _Row) -> _Row:
    """With digests in place of values under prefixes and in parts."""
    if row.key is None or row.value is None:
        return row
    if row.kind == KINDS[codec.BATCH_MSG]:
        return row._replace(value=_digest(row.value))
    if row.kind == KINDS[codec.SUB_BATCH_MSG] and len(row.value) > _SHORT:
        part = codec.decode_message(row.key, row.value)
        assert isinstance(part, codec.Part)
        updates = {key: _digest(value) for key, value in part.updates.items()}
        return row._replace(value=codec.encode_message(replace(part, updates=updates))[1])
    return row


def _digest(value: bytes) -> bytes:
    return (
        value if len(value) <= _SHORT else hashlib.blake2b(value, digest_size=_SHORT + 1).digest()
    )
