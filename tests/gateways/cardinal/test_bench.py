"""The benchmark does all of its figures in its quick form; how fast is not said by that."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_quick_form_has_every_figure(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "cardinal.py"), "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    names = [each["name"].partition(",")[0] for each in rows]
    assert names[:3] == ["tail", "put", "put by the command"]
    assert [each.get("at_most") for each in rows[3:7]] == [None, 5, 60, 1]
    assert {each.get("at_most") for each in rows[7:]} == {200}
    assert len(rows) == 19
    for each in rows:
        assert each["value"] > 0
        assert ("yardstick" in each) == ("ratio" in each)
    # Nothing is left of its stores.
    assert list(tmp_path.iterdir()) == []
