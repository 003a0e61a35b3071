"""What is made of the rounds of a workload: records, and the table of them."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

Figures = Mapping[str, float]
"""Of one round, by their names."""


@dataclass(frozen=True)
class Measure:
    """One line of the table. `key`: the figure of a round that it is about."""

    workload: str
    key: str
    unit: str
    yardstick: str | None = None
    """The figure of the yardstick that it stands beside."""
    limit: str | None = None
    goal_ratio: float | None = None
    """To the yardstick."""
    goal_of_limit: float | None = None
    goal: float | None = None
    """In the unit itself; for times, at most."""

    @property
    def less_is_better(self) -> bool:
        """Whether it is a time."""
        return self.unit in ("ms", "s", "us")


def record_of(
    measure: Measure,
    figures: list[Figures],
    theirs: list[Figures],
    at_best: Mapping[str, tuple[float, str]],
    *,
    native: bool,
) -> dict[str, object]:
    """One measure as it is told."""
    values = sorted(each[measure.key] for each in figures)
    value = statistics.median(values)
    record: dict[str, object] = {
        "workload": measure.workload,
        "native": native,
        "value": rounded(value),
        "unit": measure.unit,
        "spread": [rounded(values[0]), rounded(values[-1])],
    }
    met: list[bool] = []
    goals: list[str] = []
    if measure.yardstick is not None and theirs:
        beside = statistics.median(each[measure.yardstick] for each in theirs)
        record |= {
            "yardstick": "hypercore",
            "yardstick_value": rounded(beside),
            "ratio": rounded(value / beside),
        }
        if measure.goal_ratio is not None:
            goals.append(f"{measure.goal_ratio:g} x hypercore")
            met.append(value / beside >= measure.goal_ratio)
    if measure.limit is not None:
        best, what = at_best[measure.limit]
        share = best / value if measure.less_is_better else value / best
        record |= {"limit": what, "limit_value": rounded(best), "of_limit": rounded(share)}
        if measure.goal_of_limit is not None:
            goals.append(f"{measure.goal_of_limit:.0%} of the limit")
            met.append(share >= measure.goal_of_limit)
    if measure.goal is not None:
        goals.append(f"{measure.goal:g} {measure.unit}")
        met.append(value <= measure.goal)
    if goals:
        record |= {"goal": ", ".join(goals), "met": all(met)}
    for name in ("cpu_us", "rss_mb"):
        record[name] = rounded(statistics.median(each[name] for each in figures))
    return record


def table(records: list[dict[str, object]]) -> list[str]:
    """What people look at: a line for each measure, with the native core and without."""
    lines = [("workload", "", "native", "without", "hypercore", "ratio", "of limit", "goal", "met")]
    pairs = {(record["workload"], record["native"]): record for record in records}
    for (workload, native), record in pairs.items():
        if not native:
            continue
        without = pairs[workload, False]
        share = record.get("of_limit")
        lines.append(
            (
                str(workload),
                str(record["unit"]),
                f"{record['value']:,}",
                f"{without['value']:,}",
                f"{record.get('yardstick_value', '')}",
                f"{record.get('ratio', '')}",
                "" if not isinstance(share, float) else f"{share:.0%}",
                str(record.get("goal", "")),
                "" if "met" not in record else "yes" if record["met"] else "no",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def rounded(value: float) -> float:
    """Three digits that count."""
    return float(f"{value:.3g}") if abs(value) < 1000 else round(value)
