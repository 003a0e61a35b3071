"""The columns of an export, for Parquet, Arrow and Spark.

One row per entry. Version 1; a later version only adds columns. `date` is no column of the files
but a part of their path.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ROWS_MAX: Final = 4096
_DATA_BYTES_MAX: Final = 16 << 20
SCHEMA_VERSION: Final = 1

# name, type in Spark, whether it may be null
COLUMNS: Final = (
    ("author", "STRING", False),
    ("log_id", "DECIMAL(20,0)", False),
    ("seq", "BIGINT", False),
    ("is_end", "BOOLEAN", False),
    ("entry_hash", "BINARY", False),
    ("backlink", "BINARY", True),
    ("lipmaalink", "BINARY", True),
    ("payload_hash", "BINARY", False),
    ("payload_size", "BIGINT", False),
    ("payload", "BINARY", True),
    ("payload_state", "STRING", False),
    ("signature", "BINARY", False),
    ("received_at", "TIMESTAMP", False),
    ("ingest_seq", "BIGINT", False),
    ("node", "STRING", False),
)
PARTITION: Final = ("date", "DATE", False)
KEY: Final = ("author", "log_id", "seq")

NAMES: Final = tuple(name for name, _, _ in COLUMNS)

PRESENT: Final = "present"
MISSING: Final = "missing"
DELETED: Final = "deleted"
TOO_LARGE: Final = "too_large"

SIGNED_MAX: Final = 2**63 - 1
"""The largest BIGINT; a seq or a size above it has no row."""


def spark_ddl(*, partition: bool = True) -> str:
    """The schema as Spark's DDL, with or without the partition column."""
    columns = (*COLUMNS, PARTITION) if partition else COLUMNS
    return ", ".join(f"{name} {kind}{'' if null else ' NOT NULL'}" for name, kind, null in columns)


def spark_schema() -> "StructType":
    """The schema as `spark.readStream.schema` takes it. Needs no running Spark."""
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "STRING": types.StringType(),
        "DECIMAL(20,0)": types.DecimalType(20, 0),
        "BIGINT": types.LongType(),
        "BOOLEAN": types.BooleanType(),
        "BINARY": types.BinaryType(),
        "TIMESTAMP": types.TimestampType(),
        "DATE": types.DateType(),
    }
    fields = [types.StructField(name, kinds[kind], null) for name, kind, null in COLUMNS]
    name, kind, null = PARTITION
    return types.StructType([*fields, types.StructField(name, kinds[kind], null)])


def arrow_schema(metadata: dict[str, str] | None = None, *, partition: bool = False) -> "pa.Schema":
    """The schema of the files, as Arrow has it; with `partition`, of the data source's batches."""
    import pyarrow as pa

    kinds = _arrow_kinds()
    columns = (*COLUMNS, PARTITION) if partition else COLUMNS
    fields = [pa.field(name, kinds[kind], nullable=null) for name, kind, null in columns]
    return pa.schema(fields, metadata=metadata)


def arrow_of_ddl(ddl: str) -> "pa.Schema":
    """The schema that a text like `author STRING, seq BIGINT` names, of types that we use."""
    import pyarrow as pa

    kinds = _arrow_kinds()
    columns = (column.split() for column in ddl.split(", "))
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns])


def record_batch(rows: Sequence[Sequence[object]], ddl: str) -> "pa.RecordBatch":
    """Rows in the order of the columns that the text names (see `arrow_of_ddl`)."""
    import pyarrow as pa

    schema = arrow_of_ddl(ddl)
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)]
    else:
        # For Python's values Arrow loads pandas, where it is, which takes a third of a second.
        arrays = [pa.nulls(0, kind) for kind in schema.types]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def local_frame(spark: "SparkSession", rows: Sequence[Sequence[object]], ddl: str) -> "DataFrame":
    """A DataFrame of a few rows that are a part of the query's plan.

    From a list of Python's rows Spark would make a job with Python workers of its own, which every
    query over it runs again.
    """
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_batches([record_batch(rows, ddl)]))


def batches_of(rows: Iterable[Sequence[object]], ddl: str) -> "Iterator[pa.RecordBatch]":
    """Rows with these columns, so many together as memory has room for."""
    some: list[Sequence[object]] = []
    size = 0
    for row in rows:
        some.append(row)
        size += sum(len(each) for each in row if isinstance(each, bytes | str))
        if len(some) >= _ROWS_MAX or size >= _DATA_BYTES_MAX:
            yield record_batch(some, ddl)
            some, size = [], 0
    if some:
        yield record_batch(some, ddl)


def _arrow_kinds() -> "dict[str, pa.DataType]":
    import pyarrow as pa

    return {
        "STRING": pa.string(),
        "DECIMAL(20,0)": pa.decimal128(20, 0),
        "DECIMAL(38,0)": pa.decimal128(38, 0),
        "ARRAY<STRING>": pa.list_(pa.string()),
        "TINYINT": pa.int8(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "DATE": pa.date32(),
    }
