"""Ockam streams in an export: messages, positions, and how far clients are behind.

Declarations and ledgers are parsed by the workers in Arrow batches. A message is its log entry's
payload, so that its row needs no parsing, only the declaration of its log.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateways.declaration import DeclarationError
from gateways.ockam.declared import INDEX_OF_SEQ, StreamDeclared, read_declared
from gateways.ockam.ledger import Position, decode_records
from gateways.reading import CodecError

from .declared import LOG, check_batch, declared
from .reading import latest, read_export
from .schema import PRESENT
from .streaming import read_export_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PARTITION_OF: Final = ("author", "stream", "partition")
_MESSAGE: Final = ("node", "author", "log_id", "index")
DECLARED_DDL: Final = "stream STRING, partition BIGINT"
"""`stream` is null of a ledger."""
POSITIONS_DDL: Final = (
    "node STRING, saved_by STRING, author STRING, stream STRING, partition BIGINT, client STRING,"
    " epoch BIGINT, index DECIMAL(20,0), saved_at TIMESTAMP, ingest_seq BIGINT"
)


def ockam_messages(frame: "DataFrame") -> "DataFrame":
    """One row for each message of each log whose entry 1 declares a partition of a stream.

    `frame`: of an export. Of a stream that an author has declared twice the lower log counts.
    `data` is null unless `state`, the export's `payload_state`, is `present`. Raises BadInput.
    """
    return _messages(_checked(frame), _streams(_checked(frame)))


def ockam_positions(frame: "DataFrame") -> "DataFrame":
    """One row for each position that was ever written to a ledger. Raises BadInput."""
    from pyspark.sql import functions as f

    rows = _checked(frame)
    ledgers = (
        declared(rows, _declared, DECLARED_DDL).where("stream IS NULL").groupBy("node", "author")
    )
    keys = ledgers.agg(f.min("log_id").alias("log_id"))
    records = rows.where("seq > 1 AND NOT is_end AND payload IS NOT NULL")
    records = records.join(f.broadcast(keys), list(LOG))
    kept = records.select("node", "author", "payload", "received_at", "ingest_seq")
    return kept.mapInArrow(_positions, POSITIONS_DDL)


def ockam_lag(frame: "DataFrame") -> "DataFrame":
    """Where each client is, merged over all ledgers, and how far behind.

    `next` is the index that the next message of its stream gets; that and `lag` are null without a
    stream, and `lag` is 0 where a position is ahead. Raises BadInput.
    """
    from pyspark.sql import functions as f

    rows = _checked(frame)
    place = f.struct("epoch", "index")
    merged = (
        ockam_positions(rows)
        .groupBy(*_PARTITION_OF, "client")
        .agg(f.max(place).alias("place"), f.max_by("saved_at", place).alias("saved_at"))
    )
    newest = f.max(f.when(~f.col("is_end"), f.col("seq")))
    heights = rows.join(f.broadcast(_streams(rows)), list(LOG)).groupBy(*_PARTITION_OF)
    # The cast is last: anybody may save an index that is 2^64 ahead.
    behind = f.greatest(f.lit(0), f.col("next") - f.col("index")).cast("BIGINT")
    return (
        merged.join(heights.agg((newest - 1).alias("next")), list(_PARTITION_OF), "left")
        .select(*_PARTITION_OF, "client", "place.epoch", "place.index", "next", "saved_at")
        .withColumn("lag", f.when(f.col("next").isNotNull(), behind))
        .select(*_PARTITION_OF, "client", "epoch", "index", "next", "lag", "saved_at")
    )


def write_ockam_messages(
    spark: "SparkSession",
    root: Path | str,
    table: Path | str,
    checkpoint: Path | str,
    *,
    available_now: bool = False,
) -> "StreamingQuery":
    """Starts a query that writes the messages of an export to a Parquet table as they come.

    Each batch reads declarations anew, so that a stream that is made later is in it. A message is
    written once its payload is there, and once: what the table has is left out, also where a batch
    is done again after a crash. `available_now` ends the query when all that is there was read.
    Raises NotAnExport.
    """
    write = partial(_write_batch, root=root, table=table)
    writer = read_export_stream(spark, root).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _write_batch(batch: "DataFrame", _: int, *, root: Path | str, table: Path | str) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    spark = batch.sparkSession
    everything = latest(read_export(spark, [Path(root)]))
    # Of a log whose declaration has come now, the messages may have come before.
    declared_now = batch.where("seq = 1 AND payload IS NOT NULL").select(*LOG).distinct()
    earlier = everything.join(f.broadcast(declared_now), list(LOG), "left_semi")
    rows = batch.unionByName(earlier.select(batch.columns)).where(f"payload_state = '{PRESENT}'")
    found = _messages(rows, _streams(everything)).dropDuplicates([*_MESSAGE])
    try:
        written = spark.read.parquet(str(table)).select(*_MESSAGE)
    except AnalysisException:
        # The first batch makes the table.
        written = None
    if written is not None:
        found = found.join(written, list(_MESSAGE), "left_anti")
    found.write.mode("append").parquet(str(table))


def _checked(frame: "DataFrame") -> "DataFrame":
    check_batch(frame, "a stream does not tell of all logs", "use write_ockam_messages")
    return latest(frame)


def _messages(rows: "DataFrame", streams: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    data = f.when(f.col("payload_state") == PRESENT, f.col("payload"))
    found = rows.where("seq > 1 AND NOT is_end").join(f.broadcast(streams), list(LOG))
    return found.select(
        *LOG,
        "stream",
        "partition",
        (f.col("seq") - INDEX_OF_SEQ).alias("index"),
        data.alias("data"),
        f.col("payload_size").alias("size"),
        f.col("payload_state").alias("state"),
        "received_at",
        "ingest_seq",
    )


def _streams(rows: "DataFrame") -> "DataFrame":
    """The log of each partition, as each node knows it."""
    from pyspark.sql import functions as f

    streams = declared(rows, _declared, DECLARED_DDL).where("stream IS NOT NULL")
    return streams.groupBy("node", *_PARTITION_OF).agg(f.min("log_id").alias("log_id"))


# In the workers


def _declared(payload: bytes) -> tuple[str | None, int | None] | None:
    try:
        found = read_declared(payload)
    except DeclarationError:
        return None
    return (found.name, found.partition) if isinstance(found, StreamDeclared) else (None, None)


def _positions(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    for batch in batches:
        kept: list[int] = []
        found: list[Position] = []
        for at, payload in enumerate(batch.column("payload").to_pylist()):
            try:
                records = decode_records(payload)
            except CodecError:
                # Its records count nowhere: a hub leaves it out as well.
                continue
            for record in records:
                # What counts nowhere may not fit the columns either.
                if isinstance(record, Position) and record.counts:
                    kept.append(at)
                    found.append(record)
        rows = batch.take(pa.array(kept, pa.int64()))
        yield pa.RecordBatch.from_arrays(
            [
                rows.column("node"),
                rows.column("author"),
                pa.array([each.author.hex() for each in found], pa.string()),
                pa.array([each.name for each in found], pa.string()),
                pa.array([each.partition for each in found], pa.int64()),
                pa.array([each.client for each in found], pa.string()),
                pa.array([each.epoch for each in found], pa.int64()),
                pa.array([each.index for each in found], pa.decimal128(20, 0)),
                rows.column("received_at"),
                rows.column("ingest_seq"),
            ],
            names=[
                "node",
                "saved_by",
                "author",
                "stream",
                "partition",
                "client",
                "epoch",
                "index",
                "saved_at",
                "ingest_seq",
            ],
        )
