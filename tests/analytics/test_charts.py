"""The report page is one file that needs nothing else, and shows the figures it was given."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from analytics.charts import (
    HEIGHT,
    TEXT_PX,
    WIDTH,
    Cell,
    columns,
    line_chart,
    nice_max,
    rows,
    seconds,
    short,
    time_bars,
)
from analytics.report import write_report
from analytics.report_data import ReportData

START = datetime(2026, 1, 1, tzinfo=UTC)
POINTS = [(START + timedelta(hours=n), float(n * n)) for n in range(5)]


class Checker(HTMLParser):
    """Notices what a browser would load, and tags that do not match."""

    VOID = frozenset(("meta", "br"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert tag not in {"script", "link", "img", "iframe"}
        assert not {name for name, _ in attrs} & {"src", "href"}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert "http" not in page
    return checker


def full_report() -> ReportData:
    return ReportData(
        totals={"entries": 12_345, "payloads": 5, "bytes": 10**9, "logs": 40, "faults": 2},
        nodes=["ab" * 32, "cd" * 32],
        first=START,
        last=START + timedelta(hours=4),
        growth={"abcdef01/0": POINTS, "<b>evil</b>/1": POINTS[:2]},
        arrivals=POINTS,
        sizes=[("0", 3), ("256", 100)],
        delays={
            ("ab" * 32, "cd" * 32): Cell(0.5, 2.0, 12),
            ("cd" * 32, "ab" * 32): Cell(90, 1e5, 3),
        },
        faults=[("gap", 1), ("signature", 1)],
        fault_lines=[("gap", "ab/0/1", "<script>entries 1 to 2 are not here")],
        logs=[
            {
                "author": "ab" * 32,
                "log_id": 0,
                "node": "cd" * 32,
                "state": "live",
                "height": 12_345,
                "newest": 12_345,
                "entries": 12_345,
                "payloads": 5,
                "bytes": 10**9,
                "last_arrival": START,
            }
        ],
    )


def test_the_page_stands_alone_and_is_well_formed() -> None:
    page = write_report(full_report())
    checker = check(page)
    assert checker.tags.count("svg") == 4
    assert "12,345" in page
    assert "&lt;b&gt;evil&lt;/b&gt;" in page
    assert "and 39 more" in page


def test_a_page_about_nothing_says_so() -> None:
    totals = dict.fromkeys(("entries", "payloads", "bytes", "logs", "faults"), 0)
    page = write_report(ReportData(totals, [], None, None))
    assert check(page).tags.count("svg") == 0
    assert "No entries" in page
    assert "no faults" in page


def numbers(attribute: str, svg: str) -> list[float]:
    return [float(each) for each in re.findall(rf'<rect[^>]* {attribute}="([-0-9.]+)"', svg)]


def test_bars_are_as_high_as_their_numbers() -> None:
    heights = numbers("height", columns([("a", 50.0), ("b", 100.0), ("c", 0.0)], "label"))
    assert heights == [pytest.approx(heights[1] / 2, abs=0.1), heights[1], 0.0]
    heights = numbers("height", time_bars(POINTS, 3600, "label"))
    assert heights[4] == pytest.approx(heights[2] * 4, abs=0.2)
    widths = numbers("width", rows([("a", 1.0), ("b", 2.0)], "label"))
    assert widths == [pytest.approx(widths[1] / 2, abs=0.1), widths[1]]


def test_charts_stay_inside_their_frame() -> None:
    chart = line_chart({"one": POINTS, "two": [POINTS[0]]}, "label")
    for pair in re.findall(r'points="([^"]*)"', chart):
        for point in pair.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


KINDS = ["payload_size", "lipmaalink", "entry_hash", "after_end", "signature", "encoding", "gap"]
CHARTS = {
    "a line": line_chart({"one": POINTS}, "label"),
    "years": line_chart({"one": [(START.replace(year=2001), 0.0), (START, 1.25e6)]}, "label"),
    "seconds": line_chart({"one": [(START, 0.0), (START + timedelta(seconds=9), 9.0)]}, "label"),
    "bars": time_bars(POINTS, 3600, "label"),
    "sizes": columns([(f"{1 << n} k", 10.0**n) for n in range(10)], "label"),
    "many sizes": columns([(str(n), 1.0) for n in range(31)], "label"),
    "rows": rows([(kind, 12_345.0) for kind in KINDS], "label"),
}


def spans(svg: str) -> dict[float, list[tuple[float, float]]]:
    """By their height in the chart where texts begin and end, if each character is wide."""
    found: dict[float, list[tuple[float, float]]] = {}
    for x, y, anchor, text in re.findall(
        r'<text class="tick" x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="(\w+)">([^<]*)<', svg
    ):
        wide = len(text) * TEXT_PX * 0.6
        start = float(x) - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        found.setdefault(float(y), []).append((start, start + wide))
    return found


@pytest.mark.parametrize("name", sorted(CHARTS))
def test_texts_are_legible_and_lie_beside_each_other(name: str) -> None:
    lines = spans(CHARTS[name])
    assert lines
    for line in lines.values():
        in_order = sorted(line)
        assert in_order[0][0] >= 0
        assert in_order[-1][1] <= WIDTH
        for (_, end), (start, _) in pairwise(in_order):
            assert start > end


def test_the_page_fits_into_480_pixels() -> None:
    """No layout is done here: the widths that the style sheet asks for are added up."""
    page = write_report(full_report())
    style = page.partition("<style>")[2].partition("</style>")[0]
    narrow = re.search(
        r"@media \(max-width: (\d+)px\) \{ body \{ padding: \d+px (\d+)px[^}]*\} "
        r"section \{ padding: \d+px (\d+)px",
        style,
    )
    assert narrow is not None
    assert int(narrow[1]) >= 480
    border = 1
    room = 480 - 2 * (int(narrow[2]) + int(narrow[3]) + border)
    # A chart is scaled into what there is, and its texts are as large as they are drawn.
    assert room >= WIDTH * 0.98
    assert "svg { width: 100%" in style
    [size] = re.findall(r"\.tick \{[^}]*font-size: (\d+)px", style)
    assert int(size) == TEXT_PX
    assert min(int(each) for each in re.findall(r"font(?:-size)?: (\d+)px", style)) >= 12
    # No column of the grids is wider than the window, and what is wide scrolls inside its section.
    for least in re.findall(r"minmax\(([^;]*?), 1fr\)", style):
        assert re.fullmatch(r"min\(\d+px, 100%\)|1[0-4]\dpx", least), least
    assert re.search(r"^section \{[^}]*overflow-x: auto", style, re.MULTILINE)
    assert 'content="width=device-width' in page


def test_delays_are_a_matrix_of_nodes() -> None:
    page = write_report(full_report())
    [table] = re.findall(r'<table class="matrix">.*?</table>', page)
    assert re.findall(r"<th[^>]*>([^<]*)</th>", table) == [
        "from, to",
        "1",
        "2",
        "1 abababab",
        "2 cdcdcdcd",
    ]
    cells = re.findall(r"<td(?: class=\"(\w+)\" title=\"([^\"]*)\")?>(.*?)</td>", table)
    assert [(shade, text) for shade, _, text in cells] == [
        ("", "-"),
        ("shade1", "500ms<br><small>2.0s</small>"),
        ("shade4", "1.5m<br><small>1.2d</small>"),
        ("", "-"),
    ]
    assert cells[1][1] == "abababab to cdcdcdcd: median 0.5 s, longest 2 s, 12 entries"


def test_of_many_nodes_those_with_most_entries_are_drawn() -> None:
    nodes = [f"{number:02x}" * 32 for number in range(12)]
    delays = {
        (first, then): Cell(1.0, 1.0, 1 + nodes.index(then))
        for first in nodes
        for then in nodes
        if first != then
    }
    page = write_report(replace(full_report(), delays=delays))
    [table] = re.findall(r'<table class="matrix">.*?</table>', page)
    named = re.findall(r'<th class="key left">\d+ (\w+)</th>', table)
    assert named == [node[:8] for node in nodes[4:]]
    assert "The 8 nodes with most entries" in page


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0ms"),
        (0.0004, "0ms"),
        (0.9994, "999ms"),
        (0.9996, "1.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "60s"),
        (60, "1.0m"),
        (5400, "1.5h"),
        (86400 * 400, "400d"),
    ],
)
def test_times_are_short(count: float, text: str) -> None:
    assert seconds(count) == text


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (3, 5), (11, 20), (240, 250), (0.7, 1), (1e6, 1e6)]
)
def test_axes_end_with_round_numbers(value: float, top: float) -> None:
    assert nice_max(value) == pytest.approx(top)


def test_numbers_are_short() -> None:
    assert [short(n) for n in (0, 1.5, 999, 1000, 1_250_000, 3e9)] == [
        "0",
        "1.5",
        "999",
        "1k",
        "1.25M",
        "3G",
    ]
