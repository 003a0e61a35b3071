"""A command line whose store, configuration and environment are the test's own."""

import os
from pathlib import Path

import pytest

from tests.cli.harness import CommandLine


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Runs commands in this process; the store does not exist yet."""
    for name in list(os.environ):
        if name.startswith(("BAMBOO_PEER_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BAMBOO_PEER_STORE", str(tmp_path / "store"))
    return CommandLine(tmp_path, monkeypatch)


@pytest.fixture
def own(cli: CommandLine) -> CommandLine:
    """The same, with a store."""
    cli.author = cli("init").text
    return cli
