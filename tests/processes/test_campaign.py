"""Many processes on one store, killed at random: a short campaign, and a long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def campaign(seconds: float, seed: int) -> str:
    """Runs one to its end; what it printed."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.processes.campaign",
            "--seconds",
            str(seconds),
            "--seed",
            str(seed),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_a_short_campaign_loses_nothing() -> None:
    assert campaign(5, seed=3).endswith(" 0 lost, 0 faults")


@pytest.mark.long
def test_a_long_campaign_loses_nothing() -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "20"))
    assert campaign(60 * minutes, seed=7).endswith(" 0 lost, 0 faults")
