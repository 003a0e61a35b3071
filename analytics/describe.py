"""What is in an export: logs, activity, replication delay, decoded payloads.

Functions from DataFrames to DataFrames; all but `payloads` need no payload, so Spark does not read
it. Of several rows of one entry (see `latest`) the first arrival and the last state count.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .errors import BadInput
from .inputs import roots_of
from .reading import check_columns, latest, read_log_states
from .schema import PRESENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_LOG: Final = ("node", "author", "log_id")
_STATES: Final = ("forked", "invalid", "ended")
_HOUR: Final = "1 hour"
_CORRUPT: Final = "_corrupt_json"


def varu64_bytes(number: "Column") -> "Column":
    """How many bytes the VarU64 of a non-negative number takes."""
    from pyspark.sql import functions as f

    # By comparing, not by the digits of its text: that made two texts for each number of each row.
    found = f.when(number < 248, 1)
    for count in range(1, 8):
        found = found.when(number < (1 << 8 * count), 1 + count)
    return found.otherwise(9).cast("BIGINT")


def encoded_bytes() -> "Column":
    """The size of an entry's encoding: tag, author, numbers, links, hash and signature."""
    from pyspark.sql import functions as f

    links = f.col("backlink").isNotNull().cast("INT") + f.col("lipmaalink").isNotNull().cast("INT")
    numbers = (varu64_bytes(f.col(name)) for name in ("log_id", "seq", "payload_size"))
    fixed = f.lit(1 + 32 + 66 + 64) + links * 66
    return sum(numbers, fixed)


def entries(frame: "DataFrame") -> "DataFrame":
    """One narrow row for each entry of each node. What the functions below begin with.

    Raises BadInput where columns are missing.
    """
    from pyspark.sql import functions as f

    check_columns(frame)
    narrow = frame.select(
        *_LOG,
        "seq",
        "entry_hash",
        "is_end",
        "payload_size",
        "received_at",
        "ingest_seq",
        (f.col("payload_state") == PRESENT).alias("held"),
        encoded_bytes().alias("encoded_bytes"),
    )
    # All that follows is by log, so one shuffle does. What is aggregated is of fixed length: for a
    # text, as the state itself is, Spark sorts all rows instead of hashing them.
    return (
        narrow.repartition(*_LOG)
        .groupBy(*_LOG, "seq", "entry_hash", "is_end", "payload_size", "encoded_bytes")
        .agg(
            f.min("received_at").alias("received_at"),
            f.max_by("held", "ingest_seq").alias("held"),
        )
        .withColumn(
            "bytes",
            f.col("encoded_bytes") + f.when(f.col("held"), f.col("payload_size")).otherwise(0),
        )
    )


def logs(frame: "DataFrame", states: "DataFrame | None" = None) -> "DataFrame":
    """A row for each log of each node: the figures of `bamboo-peer logs`, from the export.

    `states`: what `read_log_states` gave; by default that of the exports which the rows are read
    from. Both entries of a fork are hardly ever among the rows of one node.
    """
    if states is None:
        states = read_log_states(frame.sparkSession, roots_of(frame))
    return describe_logs(entries(frame), states)


def describe_logs(rows: "DataFrame", states: "DataFrame | None" = None) -> "DataFrame":
    """`logs` of rows that `entries` made."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    in_order = Window.partitionBy(*_LOG).orderBy("seq")
    ranked = rows.withColumn("rank", f.dense_rank().over(in_order))
    ranked = ranked.withColumn("twin", f.lag("seq").over(in_order) == f.col("seq"))
    grouped = ranked.groupBy(*_LOG).agg(
        f.coalesce(f.max(f.when(f.col("rank") == f.col("seq"), f.col("seq"))), f.lit(0)).alias(
            "height"
        ),
        f.max("seq").alias("newest"),
        f.count("*").alias("entries"),
        f.sum(f.col("held").cast("BIGINT")).alias("payloads"),
        f.sum("bytes").alias("bytes"),
        f.min("received_at").alias("first_arrival"),
        f.max("received_at").alias("last_arrival"),
        f.bool_or("is_end").alias("ended"),
        f.coalesce(f.bool_or("twin"), f.lit(0).cast("BOOLEAN")).alias("forked"),
    )
    columns = [name for name in grouped.columns if name not in {"ended", "forked"}]
    forked, ended = f.col("forked"), f.col("ended")
    invalid = f.lit(0).cast("BOOLEAN")
    if states is not None:
        # A proof that one node has goes for all of them.
        told = states.groupBy("author", "log_id").agg(
            *(f.bool_or(f.col("state") == name).alias(f"told_{name}") for name in _STATES)
        )
        grouped = grouped.join(f.broadcast(told), ["author", "log_id"], "left")
        forked, invalid, ended = (
            known | f.coalesce(f.col(f"told_{name}"), f.lit(0).cast("BOOLEAN"))
            for known, name in zip((forked, invalid, ended), _STATES, strict=True)
        )
    state = f.when(forked, "forked").when(invalid, "invalid").when(ended, "ended").otherwise("live")
    return grouped.withColumn("state", state).select(*columns, "state")


def activity(frame: "DataFrame", window: str = _HOUR) -> "DataFrame":
    """Entries and bytes of each author in each window of time, per node. Windows that are empty
    are left out."""
    return describe_activity(entries(frame), window)


def describe_activity(rows: "DataFrame", window: str = _HOUR) -> "DataFrame":
    """`activity` of rows that `entries` made."""
    from pyspark.sql import functions as f

    return (
        rows.groupBy("node", "author", f.window("received_at", window).alias("span"))
        .agg(f.count("*").alias("entries"), f.sum("bytes").alias("bytes"))
        .select(
            "node",
            "author",
            f.col("span.start").alias("start"),
            f.col("span.end").alias("end"),
            "entries",
            "bytes",
        )
    )


def replication_delay(frame: "DataFrame") -> "DataFrame":
    """How long after the first node each other one had the entries of each log.

    A row for each log and pair of nodes: entries, and seconds (least, median, mean, most). The
    clocks are the nodes' own, so a delay is as exact as they agree.
    """
    return describe_delay(entries(frame))


def describe_delay(rows: "DataFrame", *, with_pairs: bool = False) -> "DataFrame":
    """`replication_delay` of rows that `entries` made.

    `with_pairs`: a row more for each pair of nodes, over all logs, whose author and log_id are
    null. In the same job, since the median of all is no figure of the logs' medians.
    """
    from pyspark.sql import functions as f

    arrivals = rows.groupBy("author", "log_id", "seq", "entry_hash").agg(
        f.sort_array(f.collect_list(f.struct("received_at", "node"))).alias("arrivals")
    )
    later = arrivals.where(f.size("arrivals") > 1).select(
        "author",
        "log_id",
        f.col("arrivals")[0].alias("first"),
        f.explode(f.slice("arrivals", f.lit(2), f.size("arrivals") - 1)).alias("then"),
    )
    seconds = later.select(
        "author",
        "log_id",
        f.col("first.node").alias("from_node"),
        f.col("then.node").alias("to_node"),
        (f.unix_micros("then.received_at") - f.unix_micros("first.received_at")).alias("micros"),
    )
    pair = ("from_node", "to_node")
    log = ("author", "log_id", *pair)
    grouped = seconds.groupingSets([log, pair], *log) if with_pairs else seconds.groupBy(*log)
    return grouped.agg(
        f.count("*").alias("entries"),
        (f.min("micros") / 1e6).alias("least_s"),
        (f.percentile_approx("micros", 0.5) / 1e6).alias("median_s"),
        (f.mean("micros") / 1e6).alias("mean_s"),
        (f.max("micros") / 1e6).alias("most_s"),
    )


@dataclass(frozen=True, slots=True)
class Payloads:
    """JSON payloads, decoded and not."""

    decoded: "DataFrame"
    """The key, received_at, node, and a column for each field of the schema."""
    rejected: "DataFrame"
    """The key, received_at, node, reason, payload: what is held and did not parse."""


def payloads(frame: "DataFrame", schema: "StructType | str") -> Payloads:
    """Decodes payloads that are JSON objects in UTF-8; `schema` as for Spark's `from_json`.

    Works on streams too, then on every row that comes.
    """
    from pyspark.errors import ParseException
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    check_columns(frame)
    try:
        wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except ParseException:
        wanted = None
    if not isinstance(wanted, StructType):
        raise BadInput(
            "the schema of payloads is no list of columns",
            str(schema),
            "write it like 'text STRING, likes BIGINT'",
        )
    with_rest = StructType([*wanted.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    rows = frame if frame.isStreaming else latest(frame)
    held = rows.where(f.col("payload").isNotNull())
    text = f.try_validate_utf8(f.col("payload").cast("STRING"))
    parsed = held.withColumn("text", text).withColumn(
        "parsed", f.from_json("text", with_rest, options)
    )
    good = (
        f.col("text").isNotNull()
        & f.col("parsed").isNotNull()
        & f.col(f"parsed.{_CORRUPT}").isNull()
        & f.ltrim("text").startswith("{")
    )
    common = ("author", "log_id", "seq", "received_at", "node")
    decoded = parsed.where(good).select(
        *common, *(f.col("parsed").getField(each.name).alias(each.name) for each in wanted.fields)
    )
    reason = (
        f.when(f.col("text").isNull(), "not UTF-8")
        .when(~f.ltrim("text").startswith("{"), "not a JSON object")
        .otherwise("not JSON of this schema")
    )
    rejected = parsed.where(~good).select(*common, reason.alias("reason"), "payload")
    return Payloads(decoded, rejected)
