"""The figures of the report page: small, gathered to the driver."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_LOGS_DRAWN: Final = 6
_LOGS_LISTED: Final = 25
_FAULTS_LISTED: Final = 100
_POINTS: Final = 170
_STEPS_S: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
_DELAYS_DRAWN: Final = 12

Point = tuple[datetime, float]


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the page shows."""

    totals: dict[str, int]
    nodes: list[str]
    first: datetime | None
    last: datetime | None
    step_s: int = 3600
    growth: dict[str, list[Point]] = field(default_factory=dict)
    """Entries so far, of the largest logs."""
    arrivals: list[Point] = field(default_factory=list)
    """Entries in each step of time."""
    sizes: list[tuple[str, int]] = field(default_factory=list)
    """How many payloads are of a size."""
    delays: list[tuple[str, float, float]] = field(default_factory=list)
    """Log and pair of nodes, median and most seconds."""
    faults: list[tuple[str, int]] = field(default_factory=list)
    fault_lines: list[tuple[str, str, str]] = field(default_factory=list)
    logs: list[dict[str, object]] = field(default_factory=list)


def collect_report(spark: "SparkSession", rows: "DataFrame", out: Path) -> ReportData:
    """The figures, from rows that `entries` made and the tables that are written already."""
    from pyspark.sql import functions as f

    def table(name: str) -> "DataFrame":
        return spark.read.parquet(str((out / name).absolute()))

    [sums] = rows.agg(
        f.count("*").alias("entries"),
        f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
        f.count_if("held").alias("payloads"),
        f.min("received_at").alias("first"),
        f.max("received_at").alias("last"),
    ).collect()
    logs = table("logs").orderBy(f.desc("entries"), "author", "log_id", "node")
    listed = logs.limit(_LOGS_LISTED).collect()
    faults = table("faults")
    kinds = faults.groupBy("kind").count().orderBy("kind").collect()
    data = ReportData(
        totals={
            "entries": sums["entries"],
            "payloads": sums["payloads"],
            "bytes": sums["bytes"],
            "logs": logs.count(),
            "faults": sum(row["count"] for row in kinds),
        },
        nodes=sorted(row["node"] for row in rows.select("node").distinct().collect()),
        first=sums["first"],
        last=sums["last"],
        faults=[(row["kind"], row["count"]) for row in kinds],
        fault_lines=[
            (row["kind"], f"{row['author']}/{row['log_id']}/{row['seq']}", row["detail"])
            for row in faults.orderBy("author", "log_id", "seq").limit(_FAULTS_LISTED).collect()
        ],
        logs=[row.asDict() for row in listed],
    )
    if data.first is None or data.last is None:
        return data
    return _with_charts(data, rows, listed[:_LOGS_DRAWN], out, table)


def _with_charts(
    data: ReportData, rows: "DataFrame", largest: "list[Row]", out: Path, table: object
) -> ReportData:
    from dataclasses import replace

    assert data.first is not None
    assert data.last is not None
    assert callable(table)
    span_s = (data.last - data.first).total_seconds()
    step = next((step for step in _STEPS_S if span_s / step <= _POINTS), _STEPS_S[-1])
    return replace(
        data,
        step_s=step,
        growth=_growth(rows, largest, step),
        arrivals=_arrivals(rows, step),
        sizes=_sizes(rows),
        delays=_delays(table("delay")) if len(data.nodes) > 1 and (out / "delay").exists() else [],
    )


def _growth(rows: "DataFrame", largest: "list[Row]", step: int) -> dict[str, list[Point]]:
    from pyspark.sql import functions as f

    wanted = f.lit(0).cast("BOOLEAN")
    for row in largest:
        wanted = wanted | (
            (f.col("node") == row["node"])
            & (f.col("author") == row["author"])
            & (f.col("log_id") == row["log_id"])
        )
    counts = (
        rows.where(wanted)
        .groupBy("node", "author", "log_id", f.window("received_at", f"{step} seconds").alias("w"))
        .count()
        .orderBy("w")
        .collect()
    )
    growth: dict[str, list[Point]] = {}
    for row in counts:
        name = f"{row['author'][:8]}/{row['log_id']}"
        if len({(each["author"], each["log_id"]) for each in largest}) < len(largest):
            name += f" at {row['node'][:8]}"
        points = growth.setdefault(name, [(row["w"]["start"], 0.0)])
        points.append((row["w"]["end"], points[-1][1] + row["count"]))
    return growth


def _arrivals(rows: "DataFrame", step: int) -> list[Point]:
    from pyspark.sql import functions as f

    counts = rows.groupBy(f.window("received_at", f"{step} seconds").alias("w")).count()
    return [(row["w"]["start"], float(row["count"])) for row in counts.orderBy("w").collect()]


def _sizes(rows: "DataFrame") -> list[tuple[str, int]]:
    from pyspark.sql import functions as f

    size = f.col("payload_size")
    bucket = f.when(size == 0, -1).otherwise(f.floor(f.log2(size.cast("DOUBLE"))))
    counts = rows.groupBy(bucket.cast("INT").alias("bucket")).count().collect()
    found = {row["bucket"]: row["count"] for row in counts}
    return [
        (_size_name(bucket), found.get(bucket, 0)) for bucket in range(min(found), max(found) + 1)
    ]


def _size_name(bucket: int) -> str:
    if bucket < 0:
        return "0"
    for unit, shift in (("G", 30), ("M", 20), ("k", 10)):
        if bucket >= shift:
            return f"{1 << (bucket - shift)} {unit}"
    return str(1 << bucket)


def _delays(delay: "DataFrame") -> list[tuple[str, float, float]]:
    from pyspark.sql import functions as f

    rows = delay.orderBy(f.desc("entries"), "author", "log_id").limit(_DELAYS_DRAWN).collect()
    return [
        (
            f"{row['author'][:8]}/{row['log_id']}  {row['from_node'][:8]} to {row['to_node'][:8]}",
            row["median_s"],
            row["most_s"],
        )
        for row in rows
    ]
