"""The figures of the report page: small, gathered to the driver."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from .chains import FORK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
    forked: list[str] = field(default_factory=list)
    """Logs with a fork, as `author/log_id`."""
    faults: list[tuple[str, int]] = field(default_factory=list)
    fault_lines: list[tuple[str, str, str]] = field(default_factory=list)
    logs: list[dict[str, object]] = field(default_factory=list)


def collect_report(rows: "DataFrame", tables: Mapping[str, "pa.Table"]) -> ReportData:
    """The figures, from rows that `entries` made and the tables `faults`, `logs` and `delay`."""
    from pyspark.sql import functions as f

    [sums] = rows.agg(
        f.count("*").alias("entries"),
        f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
        f.count_if("held").alias("payloads"),
        f.min("received_at").alias("first"),
        f.max("received_at").alias("last"),
    ).collect()
    in_order = [
        ("entries", "descending"),
        *((n, "ascending") for n in ("author", "log_id", "node")),
    ]
    listed = tables["logs"].sort_by(in_order).slice(0, _LOGS_LISTED).to_pylist()
    faults = listed_faults(tables["faults"], _FAULTS_LISTED)
    kinds = fault_counts(tables["faults"])
    data = ReportData(
        totals={
            "entries": sums["entries"],
            "payloads": sums["payloads"],
            "bytes": sums["bytes"],
            "logs": tables["logs"].num_rows,
            "faults": sum(kinds.values()),
        },
        nodes=sorted(row["node"] for row in rows.select("node").distinct().collect()),
        first=sums["first"],
        last=sums["last"],
        forked=forked_logs(tables["faults"]),
        faults=list(kinds.items()),
        fault_lines=[(row["kind"], fault_place(row), row["detail"]) for row in faults],
        logs=listed,
    )
    if data.first is None or data.last is None:
        return data
    return _with_charts(data, rows, listed[:_LOGS_DRAWN], tables.get("delay"))


def fault_counts(faults: "pa.Table") -> dict[str, int]:
    """How many there are of each kind, by name."""
    return dict(sorted(Counter(faults["kind"].to_pylist()).items()))


def listed_faults(faults: "pa.Table", most: int) -> list[dict[str, Any]]:
    """The first faults: forks, since nothing after one counts, then the others log by log."""
    import pyarrow.compute as pc

    first = pc.not_equal(faults["kind"], FORK)
    in_order = [(name, "ascending") for name in ("later", "author", "log_id", "seq", "kind")]
    found: list[dict[str, Any]] = (
        faults.append_column("later", first).sort_by(in_order).slice(0, most).to_pylist()
    )
    return found


def fault_place(row: Mapping[str, Any]) -> str:
    """`author/log_id/seq`, as far as the fault has a place."""
    names = ("author", "log_id", "seq")
    return "/".join(str(row[name]) for name in names if row[name] is not None)


def forked_logs(faults: "pa.Table") -> list[str]:
    """`author/log_id` of each log with a fork, in order."""
    import pyarrow.compute as pc

    rows = faults.filter(pc.equal(faults["kind"], FORK)).select(["author", "log_id"]).to_pylist()
    return sorted({f"{row['author']}/{row['log_id']}" for row in rows})


def _with_charts(
    data: ReportData,
    rows: "DataFrame",
    largest: Sequence[Mapping[str, Any]],
    delay: "pa.Table | None",
) -> ReportData:
    from dataclasses import replace

    assert data.first is not None
    assert data.last is not None
    span_s = (data.last - data.first).total_seconds()
    step = next((step for step in _STEPS_S if span_s / step <= _POINTS), _STEPS_S[-1])
    return replace(
        data,
        step_s=step,
        growth=_growth(rows, largest, step),
        arrivals=_arrivals(rows, step),
        sizes=_sizes(rows),
        delays=[] if delay is None else _delays(delay),
    )


def _growth(
    rows: "DataFrame", largest: Sequence[Mapping[str, Any]], step: int
) -> dict[str, list[Point]]:
    from pyspark.sql import functions as f

    wanted = f.lit(0).cast("BOOLEAN")
    for log in largest:
        wanted = wanted | (
            (f.col("node") == log["node"])
            & (f.col("author") == log["author"])
            & (f.col("log_id") == log["log_id"])
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


def _delays(delay: "pa.Table") -> list[tuple[str, float, float]]:
    in_order = [("entries", "descending"), ("author", "ascending"), ("log_id", "ascending")]
    rows = delay.sort_by(in_order).slice(0, _DELAYS_DRAWN).to_pylist()
    return [
        (
            f"{row['author'][:8]}/{row['log_id']}  {row['from_node'][:8]} to {row['to_node'][:8]}",
            row["median_s"],
            row["most_s"],
        )
        for row in rows
    ]
