"""Everything checked again, distributed: what a store checks when it takes entries in.

Signatures, hashes and payloads are checked row by row in Python workers, piece by piece of the
input; payloads go no further. What needs other rows is judged log by log from what the pieces tell,
after the only shuffle (see chains.py).

A link is right if the entry it names is among the rows and has the hash, and is no fault if that
entry is not among them at all. Several exports are judged together: an entry that one of them has
closes the gap in another, and two nodes that hold different entries under one number show a fork.
So does what an export's `_states.jsonl` tells, whether the entries are among the rows or not.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .chains import AFTER_END, BACKLINK, FAULTS_DDL, FORK, GAP, LIPMAALINK, RECORDS_DDL, ROWS
from .checks import ENCODED_DDL, ENCODED_INPUT, INPUT, check_piece, encode_rows, judge_logs
from .forks import KnownFork, fork_entries, fork_records, known_forks
from .inputs import roots_of
from .reading import check_columns
from .schema import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: Final = (
    "encoding",
    "signature",
    "entry_hash",
    "payload",
    "payload_size",
    BACKLINK,
    LIPMAALINK,
    FORK,
    GAP,
    AFTER_END,
)
_LOG: Final = ("author", "log_id")
_PIECES_PER_CORE: Final = 3
_PIECES: Final = "spark.sql.files.minPartitionNum"


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found."""

    found: "DataFrame"
    """The faults, and rows of kind ROWS, whose `seq` add up to how many were checked; persisted,
    see `close`."""
    faults: "DataFrame"
    """author, log_id, seq, kind (one of KINDS), detail, node, ingest_seq."""
    forks: "DataFrame"
    """author, log_id, seq, node, entry_hash, encoded: a row for each entry of each fork."""

    def close(self) -> None:
        """Lets go of what Spark keeps in memory and on disk for it."""
        self.found.unpersist()


def audit(frame: "DataFrame", roots: Sequence[Path | str] | None = None) -> Audit:
    """Checks every row of an export (or several). Raises BadInput where columns are missing.

    `roots`: the exports whose `_states.jsonl` counts; by default those that the rows are read from,
    which an export without rows is not. Nothing is checked before the frames are used. How many
    cores check then is Spark's choice by the size of the files, unless the session's setting
    `spark.sql.files.minPartitionNum` says how many pieces there shall be.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    known = known_forks(roots_of(frame) if roots is None else roots)
    found = find_faults(frame, known).persist(StorageLevel.MEMORY_AND_DISK)
    faults = found.where(f.col("kind") != ROWS)
    return Audit(found, faults, show_forks(frame, faults, known))


def find_faults(frame: "DataFrame", known: Sequence[KnownFork]) -> "DataFrame":
    """`Audit.found`, not persisted. Raises BadInput where columns are missing."""
    check_columns(frame)
    records = frame.select(*INPUT).mapInArrow(check_piece, RECORDS_DDL)
    if known:
        records = records.unionByName(fork_records(frame.sparkSession, known))
    # Logs are all that is parted here: each is judged by one task, from records of 256 rows.
    in_order = records.repartition(*_LOG).sortWithinPartitions(*_LOG, "at", "tag")
    return in_order.mapInArrow(judge_logs, FAULTS_DDL)


def show_forks(frame: "DataFrame", faults: "DataFrame", known: Sequence[KnownFork]) -> "DataFrame":
    """`Audit.forks`, of the faults that were found in the same rows."""
    from pyspark.sql import functions as f

    # Those that only a node tells of have no row to show.
    shown = faults.where((f.col("kind") == FORK) & f.col("ingest_seq").isNotNull())
    keys = f.broadcast(shown.select(*KEY).distinct())
    rows = frame.select(*ENCODED_INPUT).join(keys, [*KEY], "left_semi")
    encoded = rows.mapInArrow(encode_rows, ENCODED_DDL)
    if known:
        encoded = encoded.unionByName(fork_entries(frame.sparkSession, known))
    return encoded.dropDuplicates([*KEY, "entry_hash"])


@contextmanager
def cut_for_all_cores(spark: "SparkSession") -> Iterator[None]:
    """What is read meanwhile comes in at least three pieces for each core, where row groups allow.

    Three, since they are not of one size, and who is done takes the next. Spark looks at the
    setting when it runs a query, not when the query is made. One that the user has chosen stays.
    """
    if spark.conf.get(_PIECES, None) is not None:
        yield
        return
    spark.conf.set(_PIECES, _PIECES_PER_CORE * spark.sparkContext.defaultParallelism)
    try:
        yield
    finally:
        spark.conf.unset(_PIECES)
