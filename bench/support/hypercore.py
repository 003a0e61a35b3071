"""The yardstick: hypercore does the same work beside ours (bench/hypercore/yardstick.js)."""

import json
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "hypercore"


def is_ready() -> bool:
    """Whether there is a yardstick; npm installs it the first time, where there is npm."""
    if shutil.which("node") is None:
        return False
    if not (FOLDER / "node_modules" / "hypercore").is_dir():
        npm = shutil.which("npm")
        if npm is None:
            return False
        command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(command, cwd=FOLDER, check=False).returncode:
            return False
    return True


def measure(
    entries: int, payload_bytes: int, *, batch: int = 1, live: int = 1, pause_s: float = 0.005
) -> dict[str, float]:
    """A new replica, and `live` entries appended one by one, `pause_s` seconds apart."""
    numbers = (entries, payload_bytes, batch, live, pause_s * 1000)
    done = subprocess.run(
        ["node", "yardstick.js", *map(str, numbers)],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))
