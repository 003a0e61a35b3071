"""Processes that benchmarks start: the program itself, and roles of a benchmark's own file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BAMBOO_PEER = (sys.executable, "-c", "from bamboo_cli import main; raise SystemExit(main())")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
"""The checkout that the benchmark stands in is what its processes run."""


def play_role(roles: Mapping[str, Callable[..., None]]) -> bool:
    """Whether the command line named a role of this file; it has been played then."""
    if len(sys.argv) < 2 or sys.argv[1] not in roles:
        return False
    roles[sys.argv[1]](*sys.argv[2:])
    return True


def start(*arguments: str | int) -> subprocess.Popen[str]:
    """The benchmark's own file once more, in a role."""
    return subprocess.Popen(
        [sys.executable, sys.argv[0], *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def read_record(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it shows next."""
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def tell(process: subprocess.Popen[str], word: str) -> None:
    """One line to its standard input."""
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
