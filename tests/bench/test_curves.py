"""Rates are measured for every series; how high they are is not said by that."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.curves import SERIES, SPARE_BYTES, in_time, keep, least_spots, spots_of
from bench.page import PLOTS, plot

ROOT = Path(__file__).resolve().parents[2]


def test_each_series_gets_its_points_and_nothing_is_left_behind(tmp_path: Path) -> None:
    temporary, out = tmp_path / "tmp", tmp_path / "curves.json"
    temporary.mkdir()
    subprocess.run(
        [sys.executable, str(ROOT / "bench/curves.py"), "--least", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        capture_output=True,
        check=True,
    )
    assert list(temporary.iterdir()) == []
    points = json.loads(out.read_text())
    assert [(each["series"], each["x"]) for each in points] == [
        (spot.series, spot.x) for spot in least_spots()
    ]
    for each in points:
        assert each["entries_per_s"] > 0
        assert each["rss_mb"] > 0
        assert each["value"] > 0 or each["x"] == 0
        assert each["quick"]
    for series in SERIES:
        assert "</svg>" in plot(series, points)


def test_every_series_has_a_plot() -> None:
    assert tuple(PLOTS) == SERIES


@pytest.mark.parametrize("quick", [True, False])
def test_the_points_of_a_run_are_bounded(quick: bool) -> None:
    spots = list(spots_of(quick=quick))
    assert {spot.series for spot in spots} == {*SERIES}
    assert len({(spot.series, spot.x) for spot in spots}) == len(spots)
    assert max(spot.disk_bytes for spot in spots) < SPARE_BYTES
    for spot in spots:
        assert spot.delivered <= (20_000 if quick else 1_000_000)


def test_the_full_run_goes_from_end_to_end() -> None:
    ends = {series: [s.x for s in spots_of(quick=False) if s.series == series] for series in SERIES}
    assert {series: (min(xs), max(xs)) for series, xs in ends.items()} == {
        "length": (1000, 1_000_000),
        "logs": (1, 10_000),
        "payload": (0, 1 << 30),
        "connections": (1, 100),
    }


def test_a_series_that_is_measured_again_takes_the_place_of_its_points(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    keep(path, "payload", [{"series": "payload", "x": 1}, {"series": "payload", "x": 2}])
    keep(path, "length", [{"series": "length", "x": 3}])
    keep(path, "payload", [{"series": "payload", "x": 4}])
    assert [each["x"] for each in json.loads(path.read_text())] == [3, 4]


def test_a_round_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError, match="more than 1 s"), in_time(1):
        time.sleep(10)
