"""Benchmarks of gateways in their quick form."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def quick_rows(name: str, folder: Path) -> list[dict[str, Any]]:
    """What `bench/name.py --quick` prints. It leaves nothing of its stores in `folder`."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--quick"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        capture_output=True,
        check=True,
    )
    assert list(folder.iterdir()) == []
    return [json.loads(line) for line in found.stdout.splitlines()]
