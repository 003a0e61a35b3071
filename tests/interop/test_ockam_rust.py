"""Nodes of the crate `ockam`, with bidirectional streams, through our hub.

They are built by `make interop`, where Rust is at hand; without them nothing here runs.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateways.hubs import hub
from tests.processes.node import init, records, wait_until

NODE = Path(__file__).parent / "ockam-rust" / "target" / "release" / "ockam-rust"
MESSAGES = 40
PATIENCE_S = 120
pytestmark = pytest.mark.skipif(not NODE.exists(), reason="not built: `make interop`")


@contextmanager
def node(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """One that is ended, if it has not by itself."""
    argv = [str(NODE), *map(str, arguments)]
    silent = {**os.environ, "OCKAM_LOG": "off"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=silent) as process:
        try:
            yield process
        finally:
            process.kill()


def talk(where: str, first: int) -> tuple[list[str], list[str]]:
    """Two nodes, the same clients each time: what the one is answered, and the other was sent."""
    with (
        node("echo", where, "beta", "back", "forth") as echoing,
        node("talk", where, "alpha", "forth", "back", first, MESSAGES) as talking,
    ):
        answered = talking.communicate(timeout=PATIENCE_S)[0].splitlines()
        assert talking.returncode == 0
        assert echoing.stdout is not None
        sent = [echoing.stdout.readline().rstrip("\n") for _ in range(1 + MESSAGES)]
        echoing.kill()
        sent += echoing.stdout.read().splitlines()
    return answered, sent


def test_two_nodes_go_on_from_their_positions_when_the_hub_was_killed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    init(store)
    for first in (0, MESSAGES):
        expected = ["ready", *(f"message {number}" for number in range(first, first + MESSAGES))]
        with hub(store) as (where, process):
            assert talk(where, first) == (expected, expected)

            def are_saved(index: int = first + MESSAGES) -> bool:
                return [each["index"] for each in records(store, "ockam", "lag")] == [index] * 2

            # A save is never answered; it is on disk a second later at most.
            wait_until(are_saved, "positions of both")
            process.kill()
            assert process.wait() == -signal.SIGKILL
