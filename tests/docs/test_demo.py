"""`make demo` shows what it claims, says so if it does not, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import demo
from tests.docs.pages import ROOT

PATIENCE_S = demo.LIMIT_S + demo.SPARK_LIMIT_S


def test_the_demo_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "BAMBOO_PEER_STORE": str(tmp_path / "mine")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "In ben's store" in done.stdout
    assert "1003 entries, 1003 payloads" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def fake_program(folder: Path, script: str) -> Path:
    program = folder / "bamboo-peer"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    return program


def test_a_command_that_fails_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = fake_program(tmp_path, "echo no room; exit 1")
    monkeypatch.setattr(demo, "PROGRAM", program)
    assert demo.main() == 1
    shown = capsys.readouterr()
    assert "no room" in shown.out
    assert "--store amy init: exit status 1" in shown.err


def test_a_claim_that_does_not_come_true_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(running: demo.Demo) -> None:
        """Nothing happens"""
        running.serve("amy")

    monkeypatch.setattr(demo, "PROGRAM", fake_program(tmp_path, "echo hello; exec sleep 60"))
    monkeypatch.setattr(demo, "STEPS", (never,))
    monkeypatch.setattr(demo, "LIMIT_S", 0.2)
    assert demo.main() == 1
    shown = capsys.readouterr()
    assert "amy | hello" in shown.out
    assert "waited in vain: amy's node listens" in shown.err


def test_a_node_that_ends_by_itself_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(running: demo.Demo) -> None:
        """A node that does not stay"""
        running.serve("ben")

    monkeypatch.setattr(demo, "PROGRAM", fake_program(tmp_path, "exit 3"))
    monkeypatch.setattr(demo, "STEPS", (broken,))
    assert demo.main() == 1
    assert "ben's node ended with 3" in capsys.readouterr().err
