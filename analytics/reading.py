"""Exports as DataFrames: checked before Spark gets to see them, the latest row of each entry."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadInput
from .inputs import check_files, check_names
from .schema import KEY, local_frame, spark_schema
from .states import NUMBERS, STATES_DDL, read_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_export(spark: "SparkSession", roots: Sequence[Path | str]) -> "DataFrame":
    """The rows of one or more exports, of one node each.

    Directories on this machine are checked first: raises what `check_exports` does.
    """
    if not roots:
        raise BadInput("no export is named", "read_export", "name at least one directory")
    frame: DataFrame | None = None
    for root in roots:
        rows = _read_one(spark, str(root))
        frame = rows if frame is None else frame.unionByName(rows)
    assert frame is not None
    return frame


def _read_one(spark: "SparkSession", root: str) -> "DataFrame":
    if "://" not in root:
        path = Path(root)
        if not check_files(path):
            return spark.createDataFrame([], spark_schema())
        root = str(path.absolute())
    return spark.read.schema(spark_schema()).parquet(root)


def check_columns(frame: "DataFrame") -> None:
    """Raises BadInput, naming them, where columns of an export are missing."""
    check_names(frame.columns, "the DataFrame")


def latest(frame: "DataFrame") -> "DataFrame":
    """One row for each entry of each node: the one with its payload's present state.

    An entry whose payload came or went after it was exported has several rows. The few that are
    out of date are looked for among the keys and then left out, so payloads are not shuffled.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    window = Window.partitionBy("node", *KEY, "entry_hash").orderBy(f.desc("ingest_seq"))
    outdated = (
        frame.select("node", *KEY, "entry_hash", "ingest_seq")
        .withColumn("age", f.row_number().over(window))
        .where("age > 1")
        .select("node", "ingest_seq")
    )
    return frame.join(f.broadcast(outdated), ["node", "ingest_seq"], "left_anti").select(
        *frame.columns
    )


def read_log_states(spark: "SparkSession", roots: Sequence[Path | str]) -> "DataFrame":
    """Logs that ended, forked or are invalid, as each export's node knows, with fork proofs."""
    names = [column.split()[0] for column in STATES_DDL.split(", ")]
    rows = [
        [int(fields[n]) if n in NUMBERS and fields[n] is not None else fields[n] for n in names]
        for root in roots
        for fields in read_states(root)
    ]
    return local_frame(spark, rows, STATES_DDL)


def register_views(spark: "SparkSession", roots: Sequence[Path | str]) -> None:
    """The SQL views `entries` (every row) and `entries_latest` (see `latest`)."""
    frame = read_export(spark, roots)
    frame.createOrReplaceTempView("entries")
    latest(frame).createOrReplaceTempView("entries_latest")
