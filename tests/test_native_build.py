"""Building and checking the native core says in one line what is missing, and goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "native.py"


def run(tools: Path, *arguments: str, wanted: str = "") -> subprocess.CompletedProcess[str]:
    """The script, with the programs of one folder alone."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ | {"PATH": str(tools), "BAMBOO_NATIVE": wanted},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def fake_cargo(folder: Path, failing: str) -> None:
    """A cargo of which one command, as far as given, fails."""
    cargo = folder / "cargo"
    cargo.write_text(
        f'#!/bin/sh\ncase "$*" in "{failing}"*) echo "error: no such luck" >&2; exit 101;; esac\n'
    )
    cargo.chmod(0o755)


@pytest.mark.parametrize("step", [[], ["--lint"]])
def test_without_cargo_one_line_says_so(tmp_path: Path, step: list[str]) -> None:
    done = run(tmp_path, *step)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "cargo is missing" in done.stderr


def test_a_core_that_is_demanded_has_to_be_built(tmp_path: Path) -> None:
    assert run(tmp_path, wanted="1").returncode == 1


@pytest.mark.parametrize("missing", ["fetch", "fmt --version", "clippy --version"])
def test_what_cannot_be_had_is_no_fault_of_the_sources(tmp_path: Path, missing: str) -> None:
    fake_cargo(tmp_path, missing)
    done = run(tmp_path, "--lint")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "not checked" in done.stderr
    assert "no such luck" in done.stderr


def test_a_fault_of_the_sources_is_one(tmp_path: Path) -> None:
    fake_cargo(tmp_path, "fmt --check")
    done = run(tmp_path, "--lint")
    assert done.returncode == 1
    assert "faulty" in done.stderr
