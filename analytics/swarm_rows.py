"""Swarm chunks in an export: the chunks of each log, and in which order a node has offered them.

Declarations, chunks and lists of addresses are parsed by the workers in Arrow batches. Who reads
chunks needs the extra `swarm`: an address is 128 digests that Python's library lacks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateways.declaration import DeclarationError
from gateways.swarm.declared import (
    ADDRESS_BYTES,
    BinDeclared,
    ChunksDeclared,
    FeedDeclared,
    read_declared,
)
from wire import LogKey

from .declared import LOG, check_batch, declared, named
from .errors import BadInput
from .extras import require
from .reading import check_columns, latest
from .schema import batches_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

DECLARED_DDL: Final = "role STRING, bin INT, overlay BINARY, topic BINARY, user BINARY"
ADDRESSES_MAX: Final = 128
"""In an entry."""
_ENTRY: Final = ("node", "author", "log_id", "seq", "received_at", "ingest_seq")
_ENTRY_DDL: Final = (
    "node STRING, author STRING, log_id DECIMAL(20,0), seq BIGINT, received_at TIMESTAMP,"
    " ingest_seq BIGINT"
)
CHUNKS_DDL: Final = (
    f"{_ENTRY_DDL}, address BINARY, kind STRING, span DECIMAL(20,0), bytes INT, data BINARY"
)
_OF_ITEMS: Final = ("role", "bin", "overlay", "topic", "user")
_ITEMS: Final = (*_ENTRY, *_OF_ITEMS, "first")
ITEMS_DDL: Final = f"{_ENTRY_DDL}, {DECLARED_DDL}, index BIGINT, address BINARY"


def swarm_chunks(frame: "DataFrame", *, logs: Sequence[LogKey | str] | None = None) -> "DataFrame":
    """One row for each payload held in the logs that declare themselves to be of chunks.

    Columns: `node` STRING, `author` STRING, `log_id` DECIMAL(20,0), `seq` BIGINT, `received_at`
    TIMESTAMP, `ingest_seq` BIGINT, `address` BINARY, `kind` STRING (`content`, `feed`, `bad`),
    `span` DECIMAL(20,0), `bytes` INT (of the payload), `data` BINARY (the payload). Of a payload
    that is no chunk only `kind` and `bytes` are given.

    `frame`: of an export, or of one that is read as a stream; then `logs` have to be named. `logs`:
    these alone, whatever they declare. Raises BadInput, MissingExtra.
    """
    require("sha3", "coincurve")
    check_columns(frame)
    if frame.isStreaming and logs is None:
        raise BadInput("on a stream the logs of chunks have to be named", "logs", "name them")
    rows = frame if frame.isStreaming else latest(frame)
    held = rows.where("seq > 1 AND NOT is_end AND payload IS NOT NULL")
    if logs is None:
        held = held.join(_declared_logs(rows, "role = 'chunks'").select(*LOG), list(LOG))
    else:
        held = held.where(named(logs))
    return held.select(*_ENTRY, "payload").mapInArrow(_chunks, CHUNKS_DDL)


def swarm_items(frame: "DataFrame") -> "DataFrame":
    """One row for each address in the logs of bins and feeds.

    Columns: those of an entry as in `swarm_chunks`, `role` STRING (`sync`, `gone`, `feed`), `bin`
    INT, `overlay` BINARY, `topic` BINARY, `user` BINARY (both of a feed), `index` BIGINT (from 1
    on; null behind an entry that is not held), `address` BINARY. What is no list of 1 to 128
    addresses has none. Raises BadInput.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    check_batch(frame, "a stream does not tell of all that came before", "use a batch")
    rows = latest(frame)
    lists = _declared_logs(rows, "role IN ('sync', 'gone', 'feed')")
    entries = rows.where("seq > 1 AND NOT is_end").join(lists, list(LOG))
    count = f.when(_is_list(f.col("payload_size")), f.col("payload_size") / ADDRESS_BYTES)
    before = Window.partitionBy(*LOG).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    place = f.row_number().over(Window.partitionBy(*LOG).orderBy("seq")) + 1
    first = f.coalesce(f.sum(f.coalesce(count, f.lit(0))).over(before), f.lit(0)) + 1
    placed = entries.withColumn("first", f.when(f.col("seq") == place, first).cast("BIGINT")).where(
        "payload IS NOT NULL"
    )
    return placed.select(*_ITEMS, "payload").mapInArrow(_items, ITEMS_DDL)


def _is_list(size: "Column") -> "Column":
    is_whole = (size > 0) & (size % ADDRESS_BYTES == 0)
    return is_whole & (size <= ADDRESSES_MAX * ADDRESS_BYTES)


def _declared_logs(rows: "DataFrame", which: str) -> "DataFrame":
    from pyspark.sql import functions as f

    # Of a log that is forked there may be several; one is read.
    found = declared(rows, _declared, DECLARED_DDL).where(which).dropDuplicates([*LOG])
    return f.broadcast(found)


# In the workers


def _declared(payload: bytes) -> tuple[object, ...] | None:
    try:
        found = read_declared(payload)
    except DeclarationError:
        return None
    match found:
        case ChunksDeclared():
            return "chunks", None, None, None, None
        case BinDeclared(role, bin_, overlay):
            return role, bin_, overlay, None, None
        case FeedDeclared(overlay, topic, user):
            return "feed", None, overlay, topic, user
        case _:
            return "receipts", None, found.overlay, None, None


def _chunks(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        yield from batches_of(_chunks_of(batch), CHUNKS_DDL)


def _chunks_of(batch: "pa.RecordBatch") -> Iterator[tuple[object, ...]]:
    from gateways.swarm.bmt import Kind, read_chunk

    for *entry, payload in _columns(batch, (*_ENTRY, "payload")):
        chunk = read_chunk(payload)
        if chunk.kind is Kind.BAD:
            yield *entry, None, str(chunk.kind), None, len(payload), None
        else:
            data = chunk.payload
            yield *entry, chunk.address, str(chunk.kind), chunk.span, len(data), data


def _items(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        yield from batches_of(_items_of(batch), ITEMS_DDL)


def _items_of(batch: "pa.RecordBatch") -> Iterator[tuple[object, ...]]:
    for *entry, first, payload in _columns(batch, (*_ITEMS, "payload")):
        size = len(payload)
        if size % ADDRESS_BYTES or not 0 < size <= ADDRESSES_MAX * ADDRESS_BYTES:
            continue
        for place in range(size // ADDRESS_BYTES):
            index = None if first is None else first + place
            yield *entry, index, payload[place * ADDRESS_BYTES : (place + 1) * ADDRESS_BYTES]


def _columns(batch: "pa.RecordBatch", names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)
