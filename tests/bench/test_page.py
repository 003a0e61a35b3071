"""The page of figures takes the table of `make bench` and the plots of `make curves`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench.page import PAGE, PLOTS, ROOT, curves, file_name, filled, levels, plot, table, x_label

ABOUT = {"quick": False, "date": "2026-01-02", "load": 0.4}
PARTS = """# Figures

<!-- bench: written by bench/page.py -->
old
<!-- end of bench -->

between

<!-- curves: written by bench/page.py -->
<!-- end of curves -->
after
"""


def record(workload: str, *, native: bool, **more: object) -> dict[str, Any]:
    figures = {"value": 39_200, "unit": "entries/s", "spread": [38_000, 40_000]}
    return {"workload": workload, "native": native, **figures, "rss_mb": 70.1, **ABOUT, **more}


RECORDS = [
    record(
        "20,000 entries of 256 bytes",
        native=True,
        yardstick="hypercore",
        yardstick_value=8000,
        ratio=4.9,
        limit="signatures",
        limit_value=120_000,
        of_limit=0.33,
        goal="5 x hypercore",
        met=False,
    ),
    record("20,000 entries of 256 bytes", native=False, value=20_000),
    record("a payload", native=True, spread=[39_200, 39_200]),
    record("a payload", native=False),
]


def point(series: str, x: int, value: float, **more: object) -> dict[str, Any]:
    figures = {"unit": "entries/s", "spread": [value * 0.9, value], "entries_per_s": 1234}
    cost = {"cpu_us": 40.5, "rss_mb": 60, "rounds": 3, "native": True}
    return {"series": series, "x": x, "value": value, **figures, **cost, **ABOUT, **more}


POINTS = [
    *(point("length", x, 30_000) for x in (1000, 10_000, 100_000, 1_000_000)),
    *(point("logs", x, 20_000) for x in (1, 100)),
    *(point("payload", x, x / 1e6, unit="MB/s") for x in (0, 256, 65_536, 1 << 30)),
    *(point("connections", x, 50_000, served_cpu_us=11) for x in (1, 100)),
]


def test_a_part_is_filled_and_nothing_else_changes() -> None:
    text = filled(PARTS, "bench", ["new", "lines"])
    assert "old" not in text
    assert text.replace("\nnew\nlines\n\n", "old\n") == PARTS
    assert filled(text, "bench", ["new", "lines"]) == text


@pytest.mark.parametrize("text", ["", PARTS + PARTS, PARTS.replace("<!-- end of bench -->", "")])
def test_a_page_without_one_such_part_is_left_alone(text: str) -> None:
    with pytest.raises(ValueError, match="bench"):
        filled(text, "bench", [])


def test_the_page_in_the_repository_has_both_parts() -> None:
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    for name in ("bench", "curves"):
        assert "a line of its own" in filled(text, name, ["a line of its own"])


def test_the_table_has_a_line_for_each_measure() -> None:
    date, _, head, rule, *lines = table(RECORDS)
    assert date == "2026-01-02:"
    assert len({line.count("|") for line in (head, rule, *lines)}) == 1
    assert [line.split(" | ")[0] for line in lines] == [
        "| 20,000 entries of 256 bytes",
        "| a payload",
    ]
    for cell in ("39,200 (38,000 to 40,000)", "20,000", "8,000", "4.9", "33 %", "70.1"):
        assert f"| {cell} |" in lines[0]
    assert "| 5 x hypercore: not met |" in lines[0]
    assert "(" not in lines[1], "one round has no range"


def test_a_quick_run_is_called_one() -> None:
    quick = [each | {"quick": True} for each in RECORDS]
    assert "quick" in table(quick)[0]
    assert "quick" in plot("length", [each | {"quick": True} for each in POINTS])


def test_a_run_beside_other_work_is_called_that() -> None:
    assert table([each | {"load": 3.14} for each in RECORDS])[0] == (
        "2026-01-02; beside other work, 3.1 programs for each core:"
    )


@pytest.mark.parametrize("series", PLOTS)
def test_a_plot_has_all_points_of_its_series(series: str) -> None:
    text = plot(series, POINTS, RECORDS)
    root = ET.fromstring(text)
    wanted = [each for each in POINTS if each["series"] == series]
    assert len([each for each in root.iter() if each.get("class") == "mark"]) == len(wanted)
    told = [each.text for each in root.iter() if each.tag.endswith("text")]
    for word in (PLOTS[series].x_name, PLOTS[series].y_name, *map(x_label, wanted)):
        assert word in told
    beside = [word for word in told if word and word.startswith("hypercore")]
    assert bool(beside) == (series in ("length", "logs")), "the table has nothing for the others"


def test_limit_and_yardstick_are_those_of_the_like() -> None:
    assert [(each.name, each.value) for each in levels(PLOTS["length"], RECORDS)] == [
        ("signatures alone", 120_000),
        ("hypercore", 8000),
    ]
    assert levels(PLOTS["payload"], RECORDS) == []


def test_the_points_are_told_as_text_too() -> None:
    lines = curves(list(PLOTS), POINTS)
    assert [line for line in lines if line.startswith("![")] == [
        f"![{shown.title}]({file_name(series)})" for series, shown in PLOTS.items()
    ]
    assert len([line for line in lines if line.startswith("| ")]) == len(POINTS) + 1
    assert "11 of it the node that serves" in lines[-3]


def test_the_program_writes_page_and_plots(tmp_path: Path) -> None:
    (tmp_path / PAGE).write_text(PARTS)
    (tmp_path / "results.json").write_text(json.dumps(RECORDS))
    (tmp_path / "curves.json").write_text(json.dumps(POINTS))
    places = {"results": "results.json", "curves": "curves.json", "docs": "."}
    options = [part for name, at in places.items() for part in (f"--{name}", str(tmp_path / at))]
    subprocess.run([sys.executable, "-m", "bench.page", *options], cwd=ROOT, check=True)
    text = (tmp_path / PAGE).read_text()
    assert "39,200" in text
    assert "between" in text
    assert {path.name for path in tmp_path.glob("*.svg")} == {file_name(each) for each in PLOTS}
