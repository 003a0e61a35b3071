"""What shells complete, and the manual page: both from the parsers that read the commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from bamboo_cli.registry import COMMANDS
from scripts import man
from tests.cli.harness import CommandLine

COMPLETE = """
source "$1"; shift
complete=$(complete -p bamboo-peer | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
$complete bamboo-peer "${COMP_WORDS[$COMP_CWORD]}" "${COMP_WORDS[$COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script: Path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    argv = ["bash", "-c", COMPLETE, "bash", str(script), "bamboo-peer", *words]
    return {*subprocess.run(argv, capture_output=True, check=True, text=True).stdout.split()}


def test_bash_completes_commands_verbs_and_flags(cli: CommandLine) -> None:
    script = cli.file("completion.bash", cli("completion", "bash").out)
    assert completed(script, "st") == {"status"}
    assert {name for name in COMMANDS if name.startswith("f")} == completed(script, "f")
    assert completed(script, "tail", "--cu") == {"--cursor"}
    assert completed(script, "cursor", "re") == {"reset", "remove"}
    assert completed(script, "cursor", "reset", "--t") == {"--to"}


def test_zsh_gets_every_command(cli: CommandLine) -> None:
    script = cli("completion", "zsh").text
    assert script.startswith("#compdef bamboo-peer")
    assert all(f"{name}:" in script for name in COMMANDS)


def test_completion_is_for_a_shell_and_no_json(cli: CommandLine) -> None:
    assert cli("completion", "fish").status == 2
    assert cli("completion", "bash", "--json").status == 2
    cli.setenv("BAMBOO_PEER_JSON", "1")
    assert cli("completion", "bash").out.startswith(b"#")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse writes otherwise")
def test_the_manual_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert man.PAGE.read_text() == man.rendered(), "python scripts/man.py writes it anew"
