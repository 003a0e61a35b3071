"""The benchmark does all of its figures in its quick form; how fast is not said by that."""

from pathlib import Path

from tests.gateways.benched import quick_rows


def test_the_quick_form_has_every_figure(tmp_path: Path) -> None:
    rows = quick_rows("cardinal", tmp_path)
    names = [each["name"].partition(",")[0] for each in rows]
    assert names[:3] == ["tail", "put", "put by the command"]
    assert [each.get("at_most") for each in rows[3:7]] == [None, 5, 60, 1]
    assert {each.get("at_most") for each in rows[7:]} == {200}
    assert len(rows) == 19
    for each in rows:
        assert each["value"] > 0
        assert ("yardstick" in each) == ("ratio" in each)
