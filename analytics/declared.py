"""Logs of which entry 1 declares what they are: what all systems' functions begin with.

Workers load it too: what only the driver has is imported where that is used.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from wire import LogKey

from .schema import record_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LOG: Final = ("node", "author", "log_id")
"""The columns that name a log as one node has it."""
LOG_DDL: Final = "node STRING, author STRING, log_id DECIMAL(20,0)"

Parse = Callable[[bytes], "tuple[object, ...] | None"]
"""What a payload declares, a value for each column; None if it declares nothing."""


def declared(rows: "DataFrame", parse: Parse, ddl: str) -> "DataFrame":
    """One row for each log of which `parse` finds a declaration in entry 1.

    `ddl`: its columns, behind those of `LOG`.
    """
    whole = f"{LOG_DDL}, {ddl}"
    heads = rows.where("seq = 1 AND payload IS NOT NULL").select(*LOG, "payload")
    return heads.mapInArrow(partial(_declarations, parse=parse, ddl=whole), whole)


def named(logs: Sequence[LogKey | str]) -> Any:  # noqa: ANN401 - a Column
    """Whether a row is of one of these logs."""
    from pyspark.sql import functions as f

    found = f.expr("false")
    for each in logs:
        key = LogKey.parse(each) if isinstance(each, str) else each
        number = f.lit(str(key.log_id)).cast("DECIMAL(20,0)")
        found |= (f.col("author") == key.author.hex()) & (f.col("log_id") == number)
    return found


def check_batch(frame: "DataFrame", why: str, instead: str) -> None:
    """Raises BadInput for what is no export, or one that is read as a stream."""
    from .errors import BadInput
    from .reading import check_columns

    check_columns(frame)
    if frame.isStreaming:
        raise BadInput(why, "frame", instead)


def _declarations(
    batches: Iterable["pa.RecordBatch"], *, parse: Parse, ddl: str
) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in (*LOG, "payload"))
        rows = [
            (*log, *found)
            for *log, payload in zip(*columns, strict=True)
            if (found := parse(payload)) is not None
        ]
        yield record_batch(rows, ddl)
