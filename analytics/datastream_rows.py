"""Data streams in an export: their entries as rows, what of them is visible, one row per stream.

Payloads are parsed by the workers in Arrow batches. What a payload says by itself is a row of
`datastream_entries`; whether it follows on what is before is known to `datastream_current` alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from gateways.datastream.codec import (
    BOOKMARK,
    ENTRY_HEAD,
    HEAD_BYTES,
    Found,
    OperationScanner,
    decode_declaration,
    decode_truncation,
)
from gateways.reading import CodecError
from wire import LogKey

from .declared import LOG, check_batch, declared, named
from .errors import BadInput
from .reading import check_columns, latest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_KEPT: Final = ("author", "log_id", "node", "date", "received_at", "seq")
_KEPT_DDL: Final = (
    "author STRING, log_id DECIMAL(20,0), node STRING, date DATE, received_at TIMESTAMP, seq BIGINT"
)
ENTRIES_DDL: Final = (
    f"{_KEPT_DDL}, position INT, kind STRING, number BIGINT, type BIGINT, data BINARY,"
    " reason STRING"
)
DECLARED_DDL: Final = (
    "stream_type DECIMAL(20,0), system_id DECIMAL(20,0), file_version INT, origin STRING"
)
_ROWS_MAX: Final = 4096
_DATA_BYTES_MAX: Final = 16 << 20


def datastream_entries(
    frame: "DataFrame", *, logs: Sequence[LogKey | str] | None = None
) -> "DataFrame":
    """One row for each entry of each log whose entry 1 declares a data stream.

    `frame`: of an export, of one that is read as a stream, or of the data source. `logs`: these
    alone; on a stream they have to be named, as entry 1 may be in an earlier batch. Raises
    BadInput.
    """
    from pyspark.sql import functions as f

    check_columns(frame)
    if logs is None:
        if frame.isStreaming:
            raise BadInput("on a stream the logs have to be named", "logs", "name them, logs=[...]")
        rows = latest(frame)
        keys = declared(rows, _declared, DECLARED_DDL).select(*LOG)
        rows = rows.join(f.broadcast(keys), list(LOG))
    else:
        rows = frame if frame.isStreaming else latest(frame)
        rows = rows.where(named(logs))
    rows = rows.where("seq > 1 AND payload IS NOT NULL AND payload_size > 0")
    return rows.select(*_KEPT, "payload").mapInArrow(_parse_batches, ENTRIES_DDL)


def datastream_current(frame: "DataFrame") -> "DataFrame":
    """The rows of `datastream_entries` that are visible in the end, one for each number.

    Truncations, and the first log entry of each log that breaks its stream or is not here, are
    taken into account. Batch only. Raises BadInput.
    """
    from pyspark.sql import functions as f

    _check_batch(frame)
    rows = datastream_entries(frame)
    visible = _visible(rows)
    cuts = visible.where("kind = 'truncate'").select(
        *LOG, f.col("seq").alias("cut_seq"), f.col("number").alias("cut_number")
    )
    entries = visible.where("kind IN ('event', 'bookmark')")
    removed = (
        (f.col("cut_seq") > entries["seq"])
        & (f.col("cut_number") <= entries["number"])
        & (cuts["node"] == entries["node"])
        & (cuts["author"] == entries["author"])
        & (cuts["log_id"] == entries["log_id"])
    )
    return entries.join(cuts, removed, "left_anti")


def datastreams(frame: "DataFrame") -> "DataFrame":
    """One row for each stream: its declaration, how many entries it has, and its state.

    States: `live`, `ended`, `broken`, `waiting` where a log entry is missing. Batch only. Raises
    BadInput.
    """
    from pyspark.sql import functions as f

    _check_batch(frame)
    rows = latest(frame)
    heads = declared(rows, _declared, DECLARED_DDL)
    counts = datastream_current(frame).groupBy(*LOG).agg(f.count("*").alias("entries"))
    held = rows.groupBy(*LOG).agg(
        f.max("seq").alias("newest"),
        f.count("*").alias("held"),
        f.max(f.col("is_end").cast("INT")).alias("ended"),
    )
    broken = _stops(datastream_entries(frame)).groupBy(*LOG).agg(f.max("broken").alias("broken"))
    state = (
        f.when(f.coalesce(f.col("broken"), f.expr("false")), "broken")
        .when(f.col("held") < f.col("newest"), "waiting")
        .when(f.col("ended") == 1, "ended")
        .otherwise("live")
    )
    joined = heads.join(counts, list(LOG), "left").join(held, list(LOG), "left")
    return joined.join(broken, list(LOG), "left").select(
        *heads.columns, f.coalesce("entries", f.lit(0)).alias("entries"), state.alias("state")
    )


def _check_batch(frame: "DataFrame") -> None:
    check_batch(frame, "what is visible in the end is not known on a stream", "use batch")


def _visible(rows: "DataFrame") -> "DataFrame":
    """The rows before the place where each stream stops."""
    from pyspark.sql import functions as f

    stops = _stops(rows).groupBy(*LOG).agg(f.min("seq").alias("stop"))
    return (
        rows.join(stops, list(LOG), "left")
        .where("stop IS NULL OR seq < stop")
        .drop("stop")
        .select(rows.columns)
    )


def _stops(rows: "DataFrame") -> "DataFrame":
    """The log entries at which a stream cannot go on, and whether they break it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    payloads = rows.groupBy(*LOG, "seq").agg(
        f.min("number").alias("first"),
        f.max("number").alias("last"),
        f.max(f.col("kind") == "truncate").alias("truncates"),
        f.max(f.col("kind") == "broken").alias("wrong"),
    )
    order = Window.partitionBy(*LOG).orderBy("seq")
    after = f.when(f.col("truncates"), f.col("first")).otherwise(f.col("last") + 1)
    judged = payloads.withColumn("after", after).select(
        *LOG,
        "seq",
        "wrong",
        f.coalesce(f.lag("seq").over(order), f.lit(1)).alias("before"),
        f.coalesce(f.lag("after").over(order), f.lit(0)).alias("due"),
        "first",
        "truncates",
    )
    follows = f.when(f.col("truncates"), f.col("first") < f.col("due")).otherwise(
        f.col("first") == f.col("due")
    )
    gap = f.col("seq") != f.col("before") + 1
    breaks = f.col("wrong") | ~f.coalesce(follows, f.expr("false"))
    return judged.where(gap | breaks).select(*LOG, "seq", (~gap & breaks).alias("broken"))


# In the workers


def _declared(payload: bytes) -> tuple[object, ...] | None:
    try:
        found = decode_declaration(payload)
    except CodecError:
        return None
    return found.stream_type, found.system_id, found.file_version, found.origin


_Row = tuple[int, int, str, int | None, int | None, bytes | None, str | None]


def _parse_batches(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        rows: list[_Row] = []
        size = 0
        for at, payload in enumerate(batch.column("payload")):
            for row in _parse(at, payload.as_py()):
                rows.append(row)
                size += len(row[5] or b"")
                if len(rows) >= _ROWS_MAX or size >= _DATA_BYTES_MAX:
                    yield _batch_of(batch, rows)
                    rows, size = [], 0
        yield _batch_of(batch, rows)


def _batch_of(batch: "pa.RecordBatch", rows: list[_Row]) -> "pa.RecordBatch":
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [()] * 7
    kinds = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary(), pa.string())
    kept = batch.select(list(_KEPT)).take(pa.array(columns[0], pa.int64()))
    made = [pa.array(column, kind) for column, kind in zip(columns[1:], kinds, strict=True)]
    names = [*_KEPT, "position", "kind", "number", "type", "data", "reason"]
    return pa.RecordBatch.from_arrays([*kept.columns, *made], names=names)


def _parse(at: int, payload: bytes) -> Iterator[_Row]:
    """The rows of one payload: all of its entries, or one that says why there are none."""
    try:
        if payload[:1] == b"{":
            yield at, 0, "truncate", decode_truncation(payload, 1 << 63), None, None, None
            return
        first, found = _scan(payload)
    except CodecError as error:
        yield at, 0, "broken", None, None, None, str(error)
        return
    for position, (offset, length, type_, _) in enumerate(found):
        data = payload[offset + ENTRY_HEAD.size : offset + length]
        kind = "bookmark" if type_ == BOOKMARK else "event"
        yield at, position, kind, first + position, type_, data, None


def _scan(payload: bytes) -> tuple[int, list[Found]]:
    """The number of the first entry of an operation, and its entries. Raises CodecError."""
    if payload[:1] != b"\x02":
        raise CodecError(f"first byte {payload[0]}, neither an operation nor a truncation")
    first = int.from_bytes(payload[9:HEAD_BYTES], "big")
    if first >= 1 << 62:
        raise CodecError(f"Number {first} is above all that there can be")
    scanner = OperationScanner(first)
    found = scanner.feed(payload)
    scanner.finish()
    return first, found
