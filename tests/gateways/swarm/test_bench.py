"""The benchmark does all of its figures in its quick form; how fast is not said by that."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.interop.swarm_go import PROGRAM

ROOT = Path(__file__).resolve().parents[3]


def test_the_quick_form_has_every_figure(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "swarm.py"), "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    is_beside = PROGRAM.exists()
    speed, size = rows[:-5], rows[-5:]
    names = [each["name"] for each in speed]
    syncing = ["sync, upstream to ours"] if is_beside else []
    assert names == ["put, by the command", "put, by the API", *syncing, "sync, ours to ours"]
    for each in speed:
        assert each["value"] > 0
        assert ("yardstick" in each) == ("ratio" in each) == is_beside
    assert [each["at_most"] for each in size] == [120, 150, 160, 170, 10]
    # Nothing is left of its stores.
    assert list(tmp_path.iterdir()) == []
