"""The benchmark does all of its figures in its quick form; how fast is not said by that."""

from pathlib import Path

from tests.gateways.benched import quick_rows
from tests.interop.swarm_go import PROGRAM


def test_the_quick_form_has_every_figure(tmp_path: Path) -> None:
    rows = quick_rows("swarm", tmp_path)
    is_beside = PROGRAM.exists()
    speed, size = rows[:-5], rows[-5:]
    names = [each["name"] for each in speed]
    syncing = ["sync, upstream to ours"] if is_beside else []
    assert names == ["put, by the command", "put, by the API", *syncing, "sync, ours to ours"]
    for each in speed:
        assert each["value"] > 0
        assert ("yardstick" in each) == ("ratio" in each) == is_beside
    assert [each["at_most"] for each in size] == [120, 150, 160, 170, 10]
