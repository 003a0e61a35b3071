"""Brings docs/performance.md up to date: the table of `make bench`, the plots of `make curves`.

    python bench/page.py [--results bench/results.json] [--curves bench/curves.json] [--docs docs]

The page has a part for each, between two comments; what stands there is replaced, nothing else is.
A part whose file is not there stays as it is. There is one plot for each series, docs/rate-*.svg.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.support.chart import Chart, Level, Mark, drawn, number

Record = Mapping[str, Any]

ROOT = Path(__file__).resolve().parents[1]
PAGE: Final = "performance.md"
NOTED_BYTES_MAX: Final = 4096
"""Of payloads up to this size it is the entries that take the time: their rate is told too."""
LOAD_MAX: Final = 1.0
"""Of each core, before a run: more than one benchmark after the other comes to is told."""


@dataclass(frozen=True)
class Plot:
    """How a series is shown, and the line of the table whose limit and yardstick it is beside."""

    title: str
    x_name: str
    y_name: str
    beside: str
    limit_name: str
    yardstick_name: str | None
    """What it did there; None where it does nothing of the kind."""


SMALL: Final = "entries of 256 bytes"
PLOTS: Final[Mapping[str, Plot]] = {
    "length": Plot(
        "A new replica of one log, by its length",
        "entries of 256 bytes in the log",
        "entries/s",
        SMALL,
        "signatures alone",
        "hypercore",
    ),
    "logs": Plot(
        "A new replica of the same entries, by the number of logs they are in",
        "logs",
        "entries/s",
        SMALL,
        "signatures alone",
        "hypercore, one log",
    ),
    "payload": Plot(
        "A new replica, by the size of payloads",
        "bytes of each payload",
        "MB/s of payloads",
        "payloads of 1 MiB",
        "hash, send, write",
        "hypercore, 1 MiB",
    ),
    "connections": Plot(
        "New replicas at once, by the number of followers of one node",
        "followers",
        "entries/s, all followers together",
        SMALL,
        "signatures alone",
        None,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results.json")
    parser.add_argument("--curves", type=Path, default=ROOT / "bench/curves.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the page")
    args = parser.parse_args()
    page = args.docs / PAGE
    text = page.read_text("utf-8")
    records = json.loads(args.results.read_text()) if args.results.exists() else []
    points = json.loads(args.curves.read_text()) if args.curves.exists() else []
    if records:
        text = filled(text, "bench", table(records))
    if points:
        shown = [series for series in PLOTS if any(each["series"] == series for each in points)]
        for series in shown:
            file = args.docs / file_name(series)
            file.write_text(plot(series, points, records), "utf-8")
        text = filled(text, "curves", curves(shown, points))
    page.write_text(text, "utf-8")


def filled(text: str, name: str, lines: Iterable[str]) -> str:
    """The page with these lines in a part of it. ValueError if there is not one such part."""
    begin, end = f"<!-- {name}: written by bench/page.py -->\n", f"<!-- end of {name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page has not one part {name!r}")
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the part {name!r} ends before it begins")
    return f"{before}{begin}\n" + "\n".join(lines) + f"\n\n{end}{after}"


def file_name(series: str) -> str:
    return f"rate-{series}.svg"


# The table


def table(records: Sequence[Record]) -> list[str]:
    """What `make bench` has measured, a line for each measure."""
    head = ("", "", "native core", "without", "hypercore", "ratio", "of the limit", "memory, MB")
    lines = [
        when(records) + ":",
        "",
        row([*head, "to reach"]),
        "|---|---|" + "---:|" * 6 + "---|",
    ]
    pairs = {(record["workload"], record["native"]): record for record in records}
    for (workload, native), record in pairs.items():
        if not native:
            continue
        without = pairs.get((workload, False))
        share = record.get("of_limit")
        met = {True: ": met", False: ": not met"}.get(record.get("met", ""), "")
        cells = [
            workload,
            record["unit"],
            with_range(record),
            "" if without is None else number(without["value"]),
            number_or_not(record.get("yardstick_value")),
            number_or_not(record.get("ratio")),
            "" if share is None else f"{100 * share:.0f} %",
            number(record["rss_mb"]),
            f"{record.get('goal', '')}{met}",
        ]
        lines.append(row(cells))
    return lines


def when(records: Sequence[Record]) -> str:
    """The dates of a run, and what is to be known before its figures are believed."""
    dates = sorted({record["date"] for record in records})
    date = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    quick = "; quick: small sizes" if any(each["quick"] for each in records) else ""
    load = max(record["load"] for record in records)
    beside = f"; beside other work, {load:.1f} programs for each core" if load > LOAD_MAX else ""
    return date + quick + beside


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def with_range(record: Record) -> str:
    """The median, and what the rounds came to where there were several."""
    low, high = record["spread"]
    between = f" ({number(low)} to {number(high)})" if low < high else ""
    return number(record["value"]) + between


def number_or_not(value: float | None) -> str:
    return "" if value is None else number(value)


# The plots


def plot(series: str, points: Sequence[Record], records: Sequence[Record] = ()) -> str:
    """The SVG of a series; `records` of `make bench` give it the lines to compare with."""
    shown, of_series = PLOTS[series], [each for each in points if each["series"] == series]
    core = "native core" if all(each["native"] for each in of_series) else "without the native core"
    rounds = max(each["rounds"] for each in of_series)
    how = "one round" if rounds == 1 else f"medians and ranges of {rounds} rounds"
    notes = "; in small print entries/s" if series == "payload" else ""
    about = f"{when(of_series)}; {core}, {how}{notes}"
    chart = Chart(shown.title, about, shown.x_name, shown.y_name)
    return drawn(chart, [mark(each) for each in of_series], levels(shown, records))


def mark(point: Record) -> Mark:
    """A point as it is drawn."""
    low, high = point["spread"]
    is_noted = point["series"] == "payload" and point["x"] <= NOTED_BYTES_MAX
    note = f"{number(point['entries_per_s'])}/s" if is_noted else ""
    return Mark(point["x"], x_label(point), point["value"], low, high, note)


def x_label(point: Record) -> str:
    """Bytes in units that fit, and everything else as a number."""
    size = int(point["x"])
    if point["series"] == "payload" and size:
        for unit, unit_bytes in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)):
            if size >= unit_bytes:
                return f"{size / unit_bytes:g} {unit}"
    return f"{size:,}"


def levels(shown: Plot, records: Sequence[Record]) -> list[Level]:
    """The limit and the yardstick that `make bench` has measured for the like."""
    found = []
    for record in records:
        if record["native"] and record["workload"].endswith(shown.beside):
            if "limit_value" in record:
                found.append(Level(shown.limit_name, record["limit_value"]))
            if shown.yardstick_name is not None and "yardstick_value" in record:
                found.append(Level(shown.yardstick_name, record["yardstick_value"]))
    return found


def curves(shown: Sequence[str], points: Sequence[Record]) -> list[str]:
    """The plots as the page has them, and their points with what each has cost."""
    lines = []
    for series in shown:
        lines += [f"![{PLOTS[series].title}]({file_name(series)})", ""]
    lines += ["<details><summary>All points, and what each cost</summary>", ""]
    lines += [row(["", "", "", "", "processor time an entry, us", "memory, MB"])]
    lines += ["|---|---:|---:|---|---:|---:|"]
    for point in points:
        served = point.get("served_cpu_us")
        of_node = "" if served is None else f", {number(served)} of it the node that serves"
        cells = [
            PLOTS[point["series"]].x_name,
            x_label(point),
            with_range(point),
            point["unit"],
            f"{number(point['cpu_us'])}{of_node}",
            number(point["rss_mb"]),
        ]
        lines.append(row(cells))
    return [*lines, "", "</details>"]


if __name__ == "__main__":
    main()
