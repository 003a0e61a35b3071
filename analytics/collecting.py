"""Results of Spark's jobs, brought to the driver in parts that are small whatever the whole is.

`DataFrame.toArrow` brings all at once, which is the quickest way for what is small. Of more rows
there may be as many faults, or logs, as rows, and then the driver would hold them in Java and in
Python, or end with `spark.driver.maxResultSize`. So these are dealt out over partitions of a
bounded size, and the partitions fetched one after another. Spark's own iterator gives rows as
objects of Python; here each comes as some bytes that hold thousands, so it costs little more than
all at once.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .checks import PACKED_DDL, pack_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_AT_ONCE: Final = 200_000
"""Of exports with no more rows a result comes at once: some 100 MB if each row is a fault."""
PARTITION_ROWS: Final = 20_000
"""Java has one partition several times: as rows, pickled, serialized, fetched, and being sent."""
PART_ROWS: Final = 100_000


def collected(frame: "DataFrame", rows: int) -> Iterator["pa.Table"]:
    """The rows of a result, in one part or several: at least one, which may be empty.

    `rows`: how many the exports have; a few for each of them are expected in the result at most. A
    part has PART_ROWS rows, and of one batch of Arrow's more, but for the last. Raises what Spark
    does.
    """
    if rows <= ROWS_AT_ONCE:
        yield frame.toArrow()
        return
    import pyarrow as pa

    nothing = frame.limit(0).toArrow()
    dealt = frame.repartition(-(-rows // PARTITION_ROWS))
    packed = dealt.mapInArrow(pack_batches, PACKED_DDL)
    waiting = [nothing]
    # Not the iterator of `packed` itself: its jobs begin after the query that they belong to has
    # ended for Spark, which then never forgets them, nor what they have brought.
    for row in packed.rdd.toLocalIterator():
        waiting.append(pa.ipc.open_stream(row["packed"]).read_all().cast(nothing.schema))
        if sum(map(len, waiting)) >= PART_ROWS:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)
