"""Two stores: one with a log that is served, and one that may take it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import run, serving


@pytest.fixture
def author(tmp_path: Path) -> str:
    """The author of three entries in the store `giver`."""
    name = run(tmp_path / "giver", "init").stdout.strip()
    run(tmp_path / "giver", "append", "--lines", stdin=b"1\n2\n3\n")
    return name


@pytest.fixture
def giver(tmp_path: Path, author: str) -> Iterator[str]:
    """The address of a node that serves it."""
    assert author
    with serving(tmp_path / "giver", "--listen", "127.0.0.1:0", "--json") as node:
        yield node.event()["address"]
        node.end()


@pytest.fixture
def taker(tmp_path: Path) -> Path:
    """An empty store."""
    run(tmp_path / "taker", "init")
    return tmp_path / "taker"
