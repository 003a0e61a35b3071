"""docs/cli.md names every command, flag and output field that there is."""

import re
from pathlib import Path

import pytest

from bamboo_cli.registry import COMMANDS
from tests.cli.harness import CommandLine, lines_of, make_log, parsers_of, words

TEXT = (Path(__file__).resolve().parents[2] / "docs/cli.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## (?:.*, )?{title}(?:, .*)?\n((?:(?!## ).*\n)*)", TEXT, re.MULTILINE)
    assert found is not None, f"docs/cli.md has no section {title}"
    return found[0]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_flag_is_documented(name: str) -> None:
    text = section(name)
    for parser in parsers_of(COMMANDS[name]):
        for action in parser.flags:
            assert max(action.option_strings, key=len) in text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_what_is_given_is_called_the_same_in_the_help(name: str) -> None:
    for parser in parsers_of(COMMANDS[name]):
        for word in re.findall(r"\b[A-Z]+\b", parser.format_usage()):
            assert re.search(rf"\b{word}\b", section(name)), word


@pytest.mark.parametrize(
    "argv",
    [
        ("logs",),
        ("entry", "LOG", "1"),
        ("verify",),
        ("drop", "LOG", "1"),
        ("keep",),
        ("tidy", "--dry-run"),
        ("forks",),
        ("follows",),
        ("about",),
        ("paths",),
        ("key", "confirm"),
    ],
    ids=lambda argv: argv[0],
)
def test_every_json_field_is_documented(own: CommandLine, argv: tuple[str, ...]) -> None:
    made, other = make_log(words(2)), make_log([*words(1), b"other"])
    own("import", stdin=lines_of([*made, other[1]]))
    own("follow", str(made[0].key))
    own("keep", "--all", "--last", "0")
    records = own(*(str(made[0].key) if each == "LOG" else each for each in argv), "--json").records
    assert records
    # What a log is called is in all of them, and said once.
    assert "`name`" in section("JSON")
    for name in records[0].keys() - {"name"}:
        assert f"`{name}`" in section(argv[0])
