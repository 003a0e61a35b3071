"""The pipeline as Structured Streaming, over an export's directory or over the data source.

`received_at` is the only time there is, so it is the watermark. An entry whose payload comes or
goes later has another row with the same `received_at`: within the watermark it is recognised and
dropped, after it it is late and dropped. Each entry is counted once either way, and what Spark has
to remember is bounded. A clock that jumped back by more than the watermark loses rows the same way.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .describe import encoded_bytes
from .errors import NotAnExport
from .layout import MANIFESTS
from .reading import check_columns
from .schema import PRESENT, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WATERMARK: Final = "1 hour"
_KEY: Final = ("node", "author", "log_id", "seq", "entry_hash")


def read_export_stream(
    spark: "SparkSession", root: Path | str, *, files_per_trigger_max: int | None = None
) -> "DataFrame":
    """Rows of an export as they come. Raises NotAnExport."""
    if "://" not in str(root) and not (Path(root) / MANIFESTS).is_dir():
        raise NotAnExport("the directory holds no export", root, "run `export` once, then again")
    reader = spark.readStream.schema(spark_schema())
    if files_per_trigger_max is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_trigger_max)
    return reader.parquet(str(root))


def stream_entries(frame: "DataFrame", watermark: str = WATERMARK) -> "DataFrame":
    """Each entry once, narrow: key, hash, times, sizes."""
    check_columns(frame)
    rows = frame.select(
        *_KEY,
        "received_at",
        "ingest_seq",
        "payload_state",
        "payload_size",
        encoded_bytes().alias("encoded_bytes"),
    )
    return rows.withWatermark("received_at", watermark).dropDuplicatesWithinWatermark([*_KEY])


def stream_windows(
    frame: "DataFrame", window: str = "1 hour", watermark: str = WATERMARK
) -> "DataFrame":
    """For each window of time, per node and log: entries, bytes, the newest entry.

    In append mode a window comes out when the watermark has passed its end. `sum_windows` makes
    the tables of the batch pipeline out of what was written.
    """
    from pyspark.sql import functions as f

    held = f.when(f.col("payload_state") == PRESENT, f.col("payload_size")).otherwise(0)
    return (
        stream_entries(frame, watermark)
        .groupBy("node", "author", "log_id", f.window("received_at", window).alias("span"))
        .agg(
            f.count("*").alias("entries"),
            f.sum(f.col("encoded_bytes") + held).alias("bytes"),
            f.max("seq").alias("newest"),
            f.min("received_at").alias("first_arrival"),
            f.max("received_at").alias("last_arrival"),
        )
        .select(
            "node",
            "author",
            "log_id",
            f.col("span.start").alias("start"),
            f.col("span.end").alias("end"),
            "entries",
            "bytes",
            "newest",
            "first_arrival",
            "last_arrival",
        )
    )


def write_stream(
    frame: "DataFrame",
    table: Path | str,
    checkpoint: Path | str,
    *,
    name: str | None = None,
    available_now: bool = False,
    every: str = "10 seconds",
    options: Mapping[str, str] | None = None,
) -> "StreamingQuery":
    """Starts a query that appends to a Parquet table, and goes on where its checkpoint says.

    `available_now` ends it when everything that is there has been read.
    """
    writer = frame.writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**(options or {}))
    if name is not None:
        writer = writer.queryName(name)
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=every)
    return writer.start(str(table))


def sum_windows(windows: "DataFrame") -> tuple["DataFrame", "DataFrame"]:
    """`logs` and `activity` of a table that `stream_windows` was written to."""
    from pyspark.sql import functions as f

    logs = windows.groupBy("node", "author", "log_id").agg(
        f.sum("entries").alias("entries"),
        f.sum("bytes").alias("bytes"),
        f.max("newest").alias("newest"),
        f.min("first_arrival").alias("first_arrival"),
        f.max("last_arrival").alias("last_arrival"),
    )
    activity = windows.groupBy("node", "author", "start", "end").agg(
        f.sum("entries").alias("entries"), f.sum("bytes").alias("bytes")
    )
    return logs, activity
