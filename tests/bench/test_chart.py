"""A chart holds every mark where it belongs, says what its axes are, and is well-formed."""

import re
from xml.etree import ElementTree as ET

import pytest

from bench.support.chart import BEYOND, HEIGHT, WIDTH, Chart, Level, Mark, drawn, number

CHART = Chart("Rates <of> logs", "2026-01-02 & alone", "entries", "entries/s")
MARKS = [
    Mark(1000, "1,000", 40_000, 38_000, 41_000),
    Mark(10, "10", 900, 900, 900, note="few"),
    Mark(100, "100", 9000, 8000, 9500),
]
SVG = "{http://www.w3.org/2000/svg}"


def circles(text: str) -> list[tuple[float, float]]:
    found = ET.fromstring(text).iter(f"{SVG}circle")
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in found]


def words(text: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(text).iter(f"{SVG}text")]


def test_every_mark_is_there_in_the_order_of_the_axis() -> None:
    places = circles(drawn(CHART, MARKS))
    assert len(places) == 3
    (x1, y1), (x2, y2), (x3, y3) = places
    assert 0 < x1 < x2 < x3 < WIDTH
    assert HEIGHT > y1 > y2 > y3 > 0
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2), "powers of ten are as far from each other"


def test_it_tells_what_is_shown() -> None:
    told = words(drawn(CHART, MARKS, [Level("the limit", 50_000)]))
    for word in ("Rates <of> logs", "2026-01-02 & alone", "entries", "entries/s", "few"):
        assert word in told
    for word in ("1,000", "10", "100", "40,000", "9,000", "900", "the limit", "50,000"):
        assert word in told


def test_a_range_is_drawn_where_there_is_one() -> None:
    root = ET.fromstring(drawn(CHART, MARKS))
    assert len([each for each in root.iter() if each.get("class") == "range"]) == 2


def test_nothing_has_a_place_before_everything_and_no_line_leads_there() -> None:
    text = drawn(CHART, [*MARKS, Mark(0, "0", 0, 0, 0)])
    places = circles(text)
    assert len(places) == 4
    assert places[0][0] < places[1][0] - 20
    root = ET.fromstring(text)
    assert len([each for each in root.iter() if each.get("class") == "curve"]) == 2


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (1.2345, "1.23"), (99.96, "100"), (468.4, "468"), (10_258, "10,300")],
)
def test_numbers_have_three_digits_that_count(value: float, told: str) -> None:
    assert number(value) == told


@pytest.mark.parametrize("x", [0, 5])
def test_one_mark_alone_makes_a_chart_too(x: int) -> None:
    assert len(circles(drawn(CHART, [Mark(x, "x", 0, 0, 0)]))) == 1


def test_a_level_far_above_is_told_and_squeezes_nothing() -> None:
    near, far = 1.2 * 41_000, 1.1 * BEYOND * 41_000
    with_far = drawn(CHART, MARKS, [Level("near", near), Level("far", far)])
    assert circles(with_far) == circles(drawn(CHART, MARKS, [Level("near", near)]))
    assert f"↑ {number(far)}" in words(with_far)


def test_both_schemes_have_a_colour_for_every_kind() -> None:
    text = drawn(CHART, MARKS, [Level("a", 1)])
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    coloured = re.findall(r"\.(\w+)[^{]*\{[^}]*(?:fill|stroke): #", light)
    assert {"card", "grid", "curve", "mark", "level", "name"} <= set(coloured)
    for kind in coloured:
        assert f".{kind}" in dark


def test_labels_that_would_cover_each_other_are_left_out() -> None:
    close = [Mark(x, f"label {x}", x, x, x) for x in (1000, 1001, 1_000_000)]
    told = words(drawn(CHART, close))
    assert "label 1000" in told
    assert "label 1001" not in told
    assert "label 1000000" in told
