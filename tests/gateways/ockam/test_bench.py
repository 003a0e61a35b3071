"""The benchmark does all of its figures in its quick form; how fast is not said by that."""

from pathlib import Path

from tests.gateways.benched import quick_rows


def test_the_quick_form_has_every_figure(tmp_path: Path) -> None:
    rows = quick_rows("ockam", tmp_path)
    # Nodes in Rust are there where somebody has built them.
    rows = [each for each in rows if "ceiling" not in each]
    assert [each.get("floor") for each in rows] == [0.25, 0.6, 0.4, 0.2, *[None] * 6]
    assert [each.get("at_most") for each in rows] == [None] * 4 + [
        150,
        None,
        None,
        None,
        0.15,
        None,
    ]
    for each in rows:
        assert each["value"] >= 0
        assert ("yardstick" in each) == ("ratio" in each) == ("floor" in each)
