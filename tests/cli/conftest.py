"""A command line whose store, configuration and environment are the test's own."""

from pathlib import Path

import pytest

from tests.cli.harness import CommandLine


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Runs commands in this process; the store does not exist yet."""
    return CommandLine.isolated(tmp_path, monkeypatch)


@pytest.fixture
def own(cli: CommandLine) -> CommandLine:
    """The same, with a store."""
    cli.author = cli("init").text
    return cli
