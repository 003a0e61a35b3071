"""A flag's value comes from the command line, the environment, the configuration, the default."""

import argparse
from pathlib import Path

import pytest

from bamboo_cli.registry import COMMANDS
from bamboo_cli.settings import Parser, environment_name
from tests.cli.harness import CommandLine, parsers_of


@pytest.fixture
def config(cli: CommandLine) -> Path:
    path = cli.folder / "home/.config/bamboo-peer/config.toml"
    path.parent.mkdir(parents=True)
    return path


def appended_to(own: CommandLine, *flags: str) -> int:
    result = own("append", "--json", *flags, stdin=b"x")
    assert result.status == 0, result.err
    log_id: int = result.record["log_id"]
    return log_id


def test_the_nearest_source_wins(config: Path, own: CommandLine) -> None:
    assert appended_to(own) == 0
    config.write_text("[append]\nlog-id = 1\n")
    assert appended_to(own) == 1
    own.setenv("BAMBOO_PEER_LOG_ID", "2")
    assert appended_to(own) == 2
    assert appended_to(own, "--log-id", "3") == 3


def test_a_name_may_be_written_with_underscores(config: Path, own: CommandLine) -> None:
    config.write_text("[append]\nlog_id = 7\n")
    assert appended_to(own) == 7


def test_settings_for_all_commands_stand_at_the_top(config: Path, own: CommandLine) -> None:
    config.write_text("json = true\n")
    assert own("append", stdin=b"x").record["seq"] == 1
    own.setenv("BAMBOO_PEER_JSON", "no")
    assert own("append", stdin=b"x").text == f"{own.author}/0/2"


def test_a_table_of_another_command_is_left_alone(config: Path, own: CommandLine) -> None:
    config.write_text("[cat]\nwhatever = 1\n")
    assert own("logs").status == 0


def test_a_flag_names_another_configuration(own: CommandLine) -> None:
    path = own.file("other.toml", b"[append]\nlog-id = 9\n")
    assert appended_to(own, "--config", str(path)) == 9
    assert appended_to(own, f"--config={path}") == 9
    own.setenv("BAMBOO_PEER_CONFIG", str(path))
    assert appended_to(own) == 9


def test_a_configuration_that_a_flag_names_has_to_be_there(own: CommandLine) -> None:
    path = own.folder / "other.toml"
    result = own("logs", "--config", path)
    assert (result.status, result.out) == (2, b"")
    assert result.err.startswith(f"bamboo-peer: {path}: there is no such configuration")
    own.setenv("BAMBOO_PEER_CONFIG", str(path))
    assert own("logs").status == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stroe = 'x'\n", "'stroe' is neither a setting for all commands nor a table"),
        ("append = 1\n", "'append' is neither"),
        ("[nonsense]\nx = 1\n", "'nonsense' is neither"),
        ("[append]\nlogid = 1\n", "bamboo-peer append has no setting 'logid'"),
        ("[append]\nlog-id = -1\n", "log-id: '-1' is no number"),
        ("[append]\nlog-id = []\n", "log-id: [] is no value for it"),
        ("[append]\nlines = 3\n", "lines: 3 is neither true nor false"),
        ("json = 'perhaps'\n", "json: 'perhaps' is neither true nor false"),
        ("this is no toml", "config.toml: "),
    ],
)
def test_a_mistake_in_the_configuration_is_named(
    config: Path, own: CommandLine, text: str, reason: str
) -> None:
    config.write_text(text)
    result = own("append", stdin=b"x")
    assert (result.status, result.out) == (2, b"")
    assert result.err.count("\n") == 1
    assert str(config) in result.err
    assert reason in result.err


def test_a_configuration_that_is_no_text_is_named(config: Path, own: CommandLine) -> None:
    config.write_bytes(b"\xff\xfe")
    assert own("logs").status == 2
    config.unlink()
    config.mkdir()
    assert f"{config}: cannot be read" in own("logs").err


def test_a_mistake_in_the_environment_is_named(own: CommandLine) -> None:
    own.setenv("BAMBOO_PEER_LOG_ID", "many")
    result = own("append", stdin=b"x")
    assert result.status == 2
    assert "BAMBOO_PEER_LOG_ID: 'many' is no number" in result.err


def test_a_home_directory_is_filled_in(cli: CommandLine) -> None:
    assert cli("init", "--store", "~/deep/store").status == 0
    assert (cli.folder / "home/deep/store/author.key").exists()


@pytest.mark.parametrize("text", ["1", "true", "Yes", "ON"])
def test_yes_has_many_names(own: CommandLine, text: str) -> None:
    own.setenv("BAMBOO_PEER_END_OF_LOG", text)
    assert own("append", stdin=b"x").status == 0
    assert own("logs", "--json").record["state"] == "ended"


@pytest.mark.parametrize("text", ["0", "false", "No", "off", ""])
def test_no_has_many_names(own: CommandLine, text: str) -> None:
    own.setenv("BAMBOO_PEER_END_OF_LOG", text)
    assert own("append", stdin=b"x").status == 0
    assert own("logs", "--json").record["state"] == "live"


def parser() -> Parser:
    made = Parser("serve", "run")
    made.add_argument("--connect", action="append", default=[])
    return made


def preset(environment: dict[str, str], config: dict[str, object]) -> argparse.Namespace:
    made = parser()
    made.preset(environment, config, "config")
    return made.parse_intermixed_args([])


def test_a_flag_that_may_be_repeated_takes_a_list() -> None:
    assert preset({}, {"connect": ["a:1", "b:2"]}).connect == ["a:1", "b:2"]
    assert preset({"BAMBOO_PEER_CONNECT": "a:1 b:2"}, {"connect": "c"}).connect == ["a:1", "b:2"]
    assert preset({}, {}).connect == []


def test_a_repeated_flag_replaces_what_comes_from_outside() -> None:
    made = parser()
    made.preset({"BAMBOO_PEER_CONNECT": "a:1"}, {}, "config")
    assert made.parse_intermixed_args(["--connect", "z:9"]).connect == ["z:9"]


def test_every_flag_has_a_variable() -> None:
    assert environment_name("end-of-log") == "BAMBOO_PEER_END_OF_LOG"


def test_a_variable_means_the_same_to_every_command() -> None:
    meanings: dict[str, dict[str, str]] = {}
    for command in COMMANDS.values():
        for made in parsers_of(command):
            for action in made.flags:
                meaning = str(action.metavar or action.help)
                meanings.setdefault(made.variable(action), {})[made.prog] = meaning
    ambiguous = {name: each for name, each in meanings.items() if len(set(each.values())) > 1}
    assert list(ambiguous) == []
    assert {"BAMBOO_PEER_TRACE_FOLLOW", "BAMBOO_PEER_STATUS_ALL"} <= set(meanings)


def test_an_author_to_follow_does_not_keep_a_trace_from_being_shown(own: CommandLine) -> None:
    trace = own.file("t", b'{"bamboo_peer_trace": 1, "time": "2026-01-01T00:00:00Z"}\n')
    own.setenv("BAMBOO_PEER_FOLLOW", own.author)
    assert own("trace", "show", trace).status == 0
    own.setenv("BAMBOO_PEER_TRACE_FOLLOW", "perhaps")
    result = own("trace", "show", trace)
    assert (result.status, result.out) == (2, b"")
    assert "BAMBOO_PEER_TRACE_FOLLOW: 'perhaps' is neither true nor false" in result.err
