"""The report page is one file that needs nothing else, and shows the figures it was given."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from analytics.charts import columns, line_chart, nice_max, rows, short, time_bars
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
        delays=[("abcdef01/0  ab to cd", 0.5, 2.0)],
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
    assert checker.tags.count("svg") == 5
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
    assert numbers("width", rows([("a", 1.0, 4.0), ("b", 2.0, 4.0)], "s", "label"))[1] > 0


def test_charts_stay_inside_their_frame() -> None:
    chart = line_chart({"one": POINTS, "two": [POINTS[0]]}, "label")
    for pair in re.findall(r'points="([^"]*)"', chart):
        for point in pair.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 720
            assert 0 <= y <= 240


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
