"""The suite against a node of another process, as other implementations are tested with it."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.processes.node import PATIENCE_S, Node, init

from .offences import OFFENCES
from .page import ROOT


def suite(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.conformance", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_node_that_listens_passes(tmp_path: Path) -> None:
    init(tmp_path / "store")
    with Node(tmp_path / "store", "--listen", "127.0.0.1:0", "--follow-all") as node:
        with suite("--target", node.address, "--case", "apology") as running:
            out, _ = running.communicate(timeout=PATIENCE_S)
        violations = [event for event in node.seen() if event["event"] == "violation"]
    assert running.returncode == 0, out
    assert "\nok     a second apology inside a payload\n" in out
    assert "\npassed  P2P-8.15 An apology in a safe direction is a violation. (1)\n" in out
    assert "\nleft out P2P-1.18: no case over a socket" in out
    assert len(violations) == sum("apology" in each.name for each in OFFENCES)


def test_a_node_that_connects_passes(tmp_path: Path) -> None:
    init(tmp_path / "store")
    with suite("--listen", "127.0.0.1:0", "--ports", "6", "--case", "second apology") as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(6)]
        calls = [f"--connect={line.rpartition(' ')[2].strip()}" for line in lines]
        with Node(tmp_path / "store", "--no-listen", "--follow-all", *calls):
            out, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, out
    assert "passed  P2P-8.14" in out


def test_what_is_no_endpoint_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with suite("--target", f"127.0.0.1:{port}", "--case", "apology") as running:
            listener.accept()[0].close()
            out, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1
    assert out.startswith("this does not even begin: ")
