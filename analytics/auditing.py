"""Everything checked again, distributed: what a store checks when it takes entries in.

Signatures, hashes and payloads are checked row by row in Python workers; payloads go no further.
What needs other rows is done by Spark on what is left. One pass over each log in order finds gaps,
forks and nearly all backlinks; only the links that this cannot settle, and lipmaalinks, are joined.

A link is right if the entry it names is among the rows and has the hash, and is no fault if that
entry is not among them at all. Several exports are judged together: an entry that one of them has
closes the gap in another, and two nodes that hold different entries under one number show a fork.
So does what an export's `_states.jsonl` tells, whether the entries are among the rows or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .checks import CHECKED_DDL, ENCODED_DDL, check_rows, encode_rows
from .forks import FORK, KnownFork, fork_entries, fork_faults, known_forks
from .inputs import roots_of
from .reading import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS: Final = (
    "encoding",
    "signature",
    "entry_hash",
    "payload",
    "payload_size",
    "backlink",
    "lipmaalink",
    FORK,
    "gap",
    "after_end",
)
ROWS: Final = "rows"
"""The kind of a fault that is none of a log's: not as many rows came as the export says."""
_LOG: Final = ("author", "log_id")


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found."""

    checked: "DataFrame"
    """One row for each row that was checked; persisted, see `close`."""
    faults: "DataFrame"
    """author, log_id, seq, kind (one of KINDS), detail, node, ingest_seq."""
    forks: "DataFrame"
    """author, log_id, seq, node, entry_hash, encoded: a row for each entry of each fork."""

    def close(self) -> None:
        """Lets go of what Spark keeps in memory and on disk for it."""
        self.checked.unpersist()


def audit(frame: "DataFrame", roots: Sequence[Path | str] | None = None) -> Audit:
    """Checks every row of an export (or several). Raises BadInput where columns are missing.

    `roots`: the exports whose `_states.jsonl` counts; by default those that the rows are read from,
    which an export without rows is not.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    check_columns(frame)
    checked = frame.drop("date").mapInArrow(check_rows, CHECKED_DDL)
    checked = checked.persist(StorageLevel.MEMORY_AND_DISK)
    sound = checked.where(f.col("fault").isNull())
    in_order = _in_order(sound)
    faults = _row_faults(checked)
    known = known_forks(roots_of(frame) if roots is None else roots)
    forks = _forks(in_order, known)
    for part in (_link_faults(sound, in_order), _gaps(checked), forks, _after_end(sound)):
        faults = faults.unionByName(part)
    return Audit(checked, faults, _fork_entries(frame, in_order, known))


def with_row_count(found: Audit) -> "DataFrame":
    """The faults, and a row of kind ROWS whose `seq` is how many rows were checked.

    In one query, so that what is counted is what was looked at.
    """
    from pyspark.sql import functions as f

    count = found.checked.agg(f.count("*").alias("seq"))
    columns = {name: f.lit(None).cast("STRING") for name in ("author", "detail", "node")}
    columns |= {
        "log_id": f.lit(None).cast("DECIMAL(20,0)"),
        "seq": f.col("seq"),
        "kind": f.lit(ROWS),
        "ingest_seq": f.lit(None).cast("BIGINT"),
    }
    counted = count.select(*(columns[name].alias(name) for name in found.faults.columns))
    return found.faults.unionByName(counted)


def _row_faults(checked: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    kinds = f.array_compact(f.array("fault", "payload_fault"))
    bad = checked.where(f.col("fault").isNotNull() | f.col("payload_fault").isNotNull())
    return _faults(bad.withColumn("kind", f.explode(kinds)), f.lit("the row by itself is wrong"))


def _in_order(sound: "DataFrame") -> "DataFrame":
    """Each row with the one before it in its log."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    window = Window.partitionBy(*_LOG).orderBy("seq", "entry_hash")
    return sound.select(
        *_LOG,
        "seq",
        "node",
        "ingest_seq",
        "entry_hash",
        "backlink",
        f.lag("seq").over(window).alias("seq_before"),
        f.lag("entry_hash").over(window).alias("hash_before"),
    )


def _gaps(checked: "DataFrame") -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Of all rows: an entry whose signature is wrong is there.
    window = Window.partitionBy(*_LOG).orderBy("seq")
    before = f.coalesce(f.lag("seq").over(window), f.lit(0))
    steps = checked.select(*_LOG, "seq", before.alias("seq_before"))
    return steps.where("seq > seq_before + 1").select(
        *_LOG,
        (f.col("seq_before") + 1).alias("seq"),
        f.lit("gap").alias("kind"),
        f.format_string(
            "entries %d to %d are not here", f.col("seq_before") + 1, f.col("seq") - 1
        ).alias("detail"),
        f.lit(None).cast("STRING").alias("node"),
        f.lit(None).cast("BIGINT").alias("ingest_seq"),
    )


def _forks(in_order: "DataFrame", known: Sequence[KnownFork]) -> "DataFrame":
    from pyspark.sql import functions as f

    twins = in_order.where("seq = seq_before AND entry_hash <> hash_before")
    forks = twins.groupBy(*_LOG, "seq").agg(
        f.first("node").alias("node"), f.min("ingest_seq").alias("ingest_seq")
    )
    found = _faults(
        forks.withColumn("kind", f.lit(FORK)), f.lit("there are two entries of this number")
    )
    if not known:
        return found
    told = fork_faults(in_order.sparkSession, known)
    return found.unionByName(told).dropDuplicates([*_LOG, "seq"])


def _after_end(sound: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    ends = sound.where("is_end").groupBy(*_LOG).agg(f.min("seq").alias("end_seq"))
    late = sound.join(f.broadcast(ends), [*_LOG]).where("seq > end_seq")
    once = late.dropDuplicates([*_LOG, "seq", "entry_hash"])
    return _faults(
        once.withColumn("kind", f.lit("after_end")),
        f.format_string("the log ended with entry %d", "end_seq"),
    )


def _link_faults(sound: "DataFrame", in_order: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    held = sound.select(*_LOG, f.col("seq").alias("target"), "entry_hash").distinct()
    common = (*_LOG, "seq", "node", "ingest_seq")
    # Settled: the entry before is there and is the one named, or is not there at all.
    settled = (f.col("seq_before") == f.col("seq") - 1) & (
        f.col("hash_before") == f.col("backlink")
    )
    absent = f.col("seq_before").isNull() | (f.col("seq_before") < f.col("seq") - 1)
    doubtful = in_order.where(f.col("backlink").isNotNull() & ~(settled | absent))
    back = doubtful.select(
        *common,
        (f.col("seq") - 1).alias("target"),
        f.col("backlink").alias("link"),
        f.lit("backlink").alias("kind"),
    )
    lipmaalinks = sound.where(f.col("lipmaalink").isNotNull()).select(
        *common,
        f.col("lipmaa_seq").alias("target"),
        f.col("lipmaalink").alias("link"),
        f.lit("lipmaalink").alias("kind"),
    )
    named = held.withColumnRenamed("entry_hash", "link")
    unmatched = lipmaalinks.join(named, [*_LOG, "target", "link"], "left_anti")
    judged = (
        back.unionByName(unmatched)
        .join(held, [*_LOG, "target"])
        .groupBy(*common, "kind", "target")
        .agg(f.max(f.col("entry_hash") == f.col("link")).alias("matches"))
        .where("NOT matches")
    )
    once = judged.dropDuplicates([*_LOG, "seq", "kind"])
    return _faults(once, f.format_string("it names another entry %d than there is", "target"))


def _fork_entries(
    frame: "DataFrame", in_order: "DataFrame", known: Sequence[KnownFork]
) -> "DataFrame":
    from pyspark.sql import functions as f

    keys = in_order.where("seq = seq_before AND entry_hash <> hash_before")
    keys = keys.select(*_LOG, "seq").distinct()
    rows = frame.drop("date").join(f.broadcast(keys), [*_LOG, "seq"])
    encoded = rows.mapInArrow(encode_rows, ENCODED_DDL)
    if known:
        encoded = encoded.unionByName(fork_entries(frame.sparkSession, known))
    return encoded.dropDuplicates([*_LOG, "seq", "entry_hash"])


def _faults(rows: "DataFrame", detail: object) -> "DataFrame":
    return rows.withColumn("detail", detail).select(  # type: ignore[arg-type]
        *_LOG, "seq", "kind", "detail", "node", "ingest_seq"
    )
