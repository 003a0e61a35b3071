"""Exports as DataFrames: checked before Spark gets to see them, the latest row of each entry."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadInput, NotAnExport
from .inputs import check_files
from .layout import MANIFESTS
from .manifest import load_latest
from .schema import KEY, NAMES, local_frame, spark_schema
from .states import NUMBERS, STATES_DDL, read_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_export(spark: "SparkSession", roots: Sequence[Path | str]) -> "DataFrame":
    """The rows of one or more exports, of one node each.

    Directories on this machine are checked first: NotAnExport for what is none or has foreign
    files in it, ExportTooNew for a newer schema, BadInput where a column is missing, ExportDamaged
    for a file that is gone or cut, OtherExport for one of another export.
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
        if not path.is_dir():
            raise NotAnExport("there is no export", path, "name a directory that `export` made")
        parts = check_files(path)
        if not parts and not (path / MANIFESTS).is_dir():
            raise NotAnExport(
                "the directory holds no export", path, "name one that `export` has made"
            )
        load_latest(path)
        if not parts:
            return spark.createDataFrame([], spark_schema())
        root = str(path.absolute())
        _check_footer(path / parts[-1].name)
    return spark.read.schema(spark_schema()).parquet(root)


def _check_footer(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(
            "a file of the export is no Parquet file", path, "remove it and export again"
        ) from error
    check_names(names, str(path))


def check_columns(frame: "DataFrame") -> None:
    """Raises BadInput, naming them, where columns of an export are missing."""
    check_names(frame.columns, "the DataFrame")


def check_names(names: Sequence[str], where: str) -> None:
    """Raises BadInput unless all columns of an export, the partition aside, are among them."""
    missing = [name for name in NAMES if name not in names]
    if missing:
        raise BadInput(
            f"columns are missing ({', '.join(missing)})",
            where,
            'use what `export` wrote, or format("bamboo") reads',
        )


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
