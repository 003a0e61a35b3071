"""`check` beside nodes that run."""

import json
from pathlib import Path

from .running import run, serving, until


def test_a_node_is_checked_from_beside_it(taker: Path, giver: str, author: str) -> None:
    assert run(taker, "check").returncode == 3
    with serving(taker, "--no-listen", "--connect", giver, "--follow", author, "--json") as node:
        until(lambda: run(taker, "check", "--min-peers", "1", "--max-behind", "0").returncode == 0)
        told = run(taker, "check", "--min-peers", "2", "--json")
        assert told.returncode == 1
        assert json.loads(told.stdout) == {
            "ok": False,
            "reasons": ["1 peer connected, 2 are wanted"],
        }
        node.end()
    assert run(taker, "check").returncode == 3
