"""The figures of the report page: small, gathered to the driver."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from .charts import Cell
from .summaries import DelaySummary, FaultSummary, LogSummary, fault_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOGS_DRAWN: Final = 6
_POINTS: Final = 170
_STEPS_S: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)

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
    delays: dict[tuple[str, str], Cell] = field(default_factory=dict)
    """Of each pair of nodes: who had entries first, and who had them later."""
    forked: list[str] = field(default_factory=list)
    """Logs with a fork, as `author/log_id`."""
    faults: list[tuple[str, int]] = field(default_factory=list)
    fault_lines: list[tuple[str, str, str]] = field(default_factory=list)
    logs: list[dict[str, object]] = field(default_factory=list)


def collect_report(
    rows: "DataFrame",
    faults: FaultSummary,
    logs: LogSummary,
    delay: DelaySummary | None = None,
) -> ReportData:
    """The figures, from rows that `entries` made and what was kept of the tables.

    One job at most: whatever was kept is added up here.
    """
    largest = logs.largest
    data = ReportData(
        totals=logs.figures | {"logs": logs.logs, "faults": faults.by_kind.total()},
        nodes=sorted(logs.nodes),
        first=_utc(logs.first),
        last=_utc(logs.last),
        forked=sorted(faults.forked),
        faults=list(faults.counts.items()),
        fault_lines=[(row["kind"], fault_place(row), row["detail"]) for row in faults.first],
        logs=largest,
    )
    if data.first is None or data.last is None:
        return data
    return _with_charts(data, rows, largest[:_LOGS_DRAWN], delay)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


def _with_charts(
    data: ReportData,
    rows: "DataFrame",
    largest: Sequence[Mapping[str, Any]],
    delay: DelaySummary | None,
) -> ReportData:
    assert data.first is not None
    assert data.last is not None
    span_s = (data.last - data.first).total_seconds()
    step = next((step for step in _STEPS_S if span_s / step <= _POINTS), _STEPS_S[-1])
    counts = _count_entries(rows, largest, step)
    return replace(
        data,
        step_s=step,
        growth=_growth(counts, largest, step),
        arrivals=_arrivals(counts, step),
        sizes=_sizes(counts),
        delays={} if delay is None else _delays(delay),
    )


# Place among the largest logs (-1: another), step of time, power of two of the size (-1: empty).
Counts = list[tuple[int, int, int, int]]


def _count_entries(rows: "DataFrame", largest: Sequence[Mapping[str, Any]], step: int) -> Counts:
    """How many entries there are of each of these, in one job for all charts.

    At most 7 logs, 171 steps and 64 sizes, whatever the number of rows.
    """
    from pyspark.sql import functions as f

    place = f.lit(-1)
    for number, log in enumerate(largest):
        is_log = f.lit(1).cast("BOOLEAN")
        for name in ("node", "author", "log_id"):
            is_log = is_log & (f.col(name) == log[name])
        place = f.when(is_log, number).otherwise(place)
    size = f.col("payload_size")
    power = f.when(size == 0, -1).otherwise(f.floor(f.log2(size.cast("DOUBLE"))).cast("INT"))
    steps = f.floor(f.unix_seconds("received_at") / step)
    keys = (place.alias("place"), steps.alias("step"), power.alias("power"))
    counted = rows.groupBy(*keys).count()
    return [(row["place"], row["step"], row["power"], row["count"]) for row in counted.collect()]


def _moment(step: int, number: int) -> datetime:
    return datetime.fromtimestamp(step * number, UTC)


def _growth(
    counts: Counts, largest: Sequence[Mapping[str, Any]], step: int
) -> dict[str, list[Point]]:
    one_node = len({(log["author"], log["log_id"]) for log in largest}) == len(largest)
    growth: dict[str, list[Point]] = {}
    for number, log in enumerate(largest):
        came: Counter[int] = Counter()
        for place, at, _, count in counts:
            if place == number:
                came[at] += count
        name = f"{log['author'][:8]}/{log['log_id']}"
        if not one_node:
            name += f" at {log['node'][:8]}"
        points = growth.setdefault(name, [(_moment(step, min(came)), 0.0)])
        for at in sorted(came):
            points.append((_moment(step, at + 1), points[-1][1] + came[at]))
    return growth


def _arrivals(counts: Counts, step: int) -> list[Point]:
    came: Counter[int] = Counter()
    for _, at, _, count in counts:
        came[at] += count
    return [(_moment(step, at), float(came[at])) for at in sorted(came)]


def _sizes(counts: Counts) -> list[tuple[str, int]]:
    found: Counter[int] = Counter()
    for _, _, power, count in counts:
        found[power] += count
    return [(_size_name(power), found[power]) for power in range(min(found), max(found) + 1)]


def _size_name(power: int) -> str:
    if power < 0:
        return "0"
    for unit, shift in (("G", 30), ("M", 20), ("k", 10)):
        if power >= shift:
            return f"{1 << (power - shift)} {unit}"
    return str(1 << power)


def _delays(delay: DelaySummary) -> dict[tuple[str, str], Cell]:
    return {
        pair: Cell(row["median_s"], row["most_s"], row["entries"])
        for pair, row in delay.pairs.items()
    }
