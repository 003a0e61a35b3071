"""From arguments to an exit status: help, versions, wrong usage."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from bamboo_cli.registry import COMMANDS
from tests.cli.harness import CommandLine, parsers_of
from wire import NATIVE_STATE

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_command(cli: CommandLine, flag: str) -> None:
    result = cli(flag)
    assert (result.status, result.err) == (0, "")
    for name, command in COMMANDS.items():
        assert f"  {name} " in result.text
        assert command.summary in result.text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_says_what_it_takes(cli: CommandLine, name: str) -> None:
    result = cli(name, "--help")
    assert (result.status, result.err) == (0, "")
    assert result.text.startswith(f"usage: bamboo-peer {name} ")
    assert "--store DIR" in result.text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_flag_is_wrong_usage_and_one_line(cli: CommandLine, name: str) -> None:
    for parser in parsers_of(COMMANDS[name]):
        result = cli(*parser.prog.split()[1:], "--no-such-flag")
        assert (result.status, result.out) == (2, b"")
        assert result.err.count("\n") == 1
        assert f"{parser.prog} --help" in result.err


def test_a_verb_s_help_shows_what_it_takes_and_nothing_else(cli: CommandLine) -> None:
    shown = cli("ockam", "push", "--help").text
    assert shown.startswith("usage: bamboo-peer ockam push HUB NAME [FILE...] [flags]")
    flags = set(re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE))
    common = {"--store", "--json", "--config"}
    assert flags - common == {"--partition", "--to", "--lines", "--timeout"}
    overview = cli("ockam", "--help").text
    assert "push HUB NAME [FILE...]  send messages" in overview
    assert "--lines" not in overview


def test_what_stands_before_a_verb_is_no_verb(own: CommandLine) -> None:
    # A store of the name of another verb; and a flag whose value is none.
    path = own.store.with_name("trim")
    own.store.rename(path)
    assert own("--store", path, "ockam", "--store", path, "streams").status == 0
    missing = own("ockam", "--store", path)
    assert (missing.status, "it needs one of serve, create" in missing.err) == (2, True)
    result = own("ockam", "--timeout", 5, "lag")
    assert (result.status, "--timeout" in result.err) == (2, True)


def test_the_configuration_of_a_command_goes_for_all_its_verbs(own: CommandLine) -> None:
    config = own.file("c", b"[ockam]\ntimeout = 5\nfirst-log = 7\n")
    assert own("--config", config, "ockam", "streams").status == 0
    wrong = own.file("w", b"[ockam]\ntime = 5\n")
    result = own("--config", wrong, "ockam", "streams")
    assert (result.status, "has no setting 'time'" in result.err) == (2, True)


@pytest.mark.parametrize("argv", [(), ("--json",), ("--store",), ("--store", "x")])
def test_no_command_is_wrong_usage(cli: CommandLine, argv: tuple[str, ...]) -> None:
    result = cli(*argv)
    assert (result.status, result.out) == (2, b"")
    assert result.err == "bamboo-peer: a command is needed (see `bamboo-peer --help`)\n"


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, "h\udcff"])
@pytest.mark.parametrize("argv", [("sync",), ("serve", "--listen"), ("serve", "--connect")])
def test_what_cannot_be_the_name_of_a_host_is_wrong_usage(
    own: CommandLine, argv: tuple[str, ...], host: str
) -> None:
    result = own(*argv, host)
    assert (result.status, result.out, result.err.count("\n")) == (2, b"", 1)
    assert "is no name of a host" in result.err


@pytest.mark.parametrize("argv", [("init",), ("logs",), ("serve",), ("paths",)])
def test_a_store_that_no_database_can_be_in_is_wrong_usage(
    cli: CommandLine, argv: tuple[str, ...]
) -> None:
    result = cli(*argv, "--store", str(cli.folder / "s\udcff"))
    assert (result.status, result.out) == (2, b"")
    assert result.err == (
        "bamboo-peer: the name of a store has to be UTF-8:"
        f" {cli.folder}/s\\udcff; choose another one\n"
    )


def test_an_unknown_flag_without_a_command_is_named(cli: CommandLine) -> None:
    assert cli("--nonsense").err == (
        "bamboo-peer: what is '--nonsense'? (see `bamboo-peer --help`)\n"
    )


def test_a_misspelled_command_is_answered_with_a_guess(cli: CommandLine) -> None:
    result = cli("appendd")
    assert result.status == 2
    assert "'appendd'; did you mean 'append'?" in result.err
    assert "did you mean" not in cli("qqqqqq").err
    # Of other programs these are commands.
    for word in ("help", "version"):
        assert f"did you mean '--{word}'?" in cli(word).err


def test_flags_may_stand_before_and_after_the_command(own: CommandLine) -> None:
    before = own("--json", "--store", own.store, "append", stdin=b"x")
    after = own("append", "--json", "--store", own.store, stdin=b"x")
    assert (before.record["seq"], after.record["seq"]) == (1, 2)


def test_flags_may_stand_between_arguments(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"a\nb\n")
    assert own("cat", own.author, "--store", own.store, "2").out == b"b"


def test_version_names_what_decides_how_it_behaves(cli: CommandLine) -> None:
    lines = dict(line.split(" ", 1) for line in cli("--version").lines)
    declared = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    assert lines["bamboo-peer"] == declared
    assert lines["PyNaCl"] == version("pynacl")
    assert lines["libsodium"].startswith("1.0.")
    assert lines["native-core"] == str(NATIVE_STATE)
    names = {"bamboo-peer", "PyNaCl", "libsodium", "native-core", "SQLite", "apsw", "Python"}
    assert set(lines) == names
    assert lines["apsw"].startswith(lines["SQLite"])


def test_about_prints_what_version_prints(cli: CommandLine) -> None:
    assert cli("about").lines == cli("--version").lines
    assert cli("about", "--json").record == cli("--version", "--json").record


def test_version_as_json(cli: CommandLine) -> None:
    record = cli("--version", "--json").record
    assert record["bamboo_peer"] == version("bamboo-peer")
    assert record["native_core"] == str(NATIVE_STATE)
    assert record["libsodium"].startswith("1.0.")


def test_paths_are_absolute_and_of_this_store(cli: CommandLine) -> None:
    record = cli("paths", "--json").record
    assert record["store"] == str(cli.store)
    assert record["key"] == str(cli.store / "author.key")
    assert record["config"] == str(cli.folder / "home/.config/bamboo-peer/config.toml")
    assert record["state"] == str(cli.folder / "home/.local/state/bamboo-peer")
    lines = dict(line.split() for line in cli("paths").lines)
    assert lines == record
    cli.setenv("BAMBOO_PEER_STATE", str(cli.folder / "elsewhere"))
    assert cli("paths", "--json").record["state"] == str(cli.folder / "elsewhere")


def test_xdg_directories_are_kept_to(cli: CommandLine) -> None:
    cli.setenv("BAMBOO_PEER_STORE", "")
    cli.setenv("XDG_DATA_HOME", "/data")
    cli.setenv("XDG_CONFIG_HOME", "relative/is/ignored")
    record = cli("paths", "--json").record
    assert record["store"] == "/data/bamboo-peer"
    assert record["config"] == str(cli.folder / "home/.config/bamboo-peer/config.toml")


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (("status", "--jsno"), "--json"),
        (("tail", "--folow"), "--follow"),
        # The value behind it is no argument that could be complained of instead.
        (("tail", "--sinse", "2h"), "--since"),
        (("serve", "--lisen=127.0.0.1:0"), "--listen"),
        (("bundle", "export", "x", "--no-payloads"), "--no-payload"),
        (("--jsno",), "--json"),
        (("--versoin",), "--version"),
    ],
)
def test_a_misspelt_flag_has_the_nearest_one_suggested(
    cli: CommandLine, argv: tuple[str, ...], meant: str
) -> None:
    result = cli(*argv)
    assert (result.status, result.out) == (2, b"")
    wrong = next(each for each in argv if each.startswith("--")).partition("=")[0]
    assert wrong in result.err
    assert f"; did you mean {meant!r}?" in result.err
    assert "--help`)" in result.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("init", "a"), "init takes no arguments: 'a'; a store is named with --store a (see"),
        (("serve", "127.0.0.1:7007"), "serve takes no arguments: '127.0.0.1:7007' (see"),
        (("init", "-x"), "there is no flag -x (see"),
        (("serve", "7007"), "serve takes no arguments: '7007' (see"),
        (("status", "0", "./b"), "status takes no more arguments: './b' (see"),
    ],
)
def test_an_argument_too_many_is_named(cli: CommandLine, argv: tuple[str, ...], said: str) -> None:
    result = cli(*argv)
    assert (result.status, result.out) == (2, b"")
    assert said in result.err
    assert f"`bamboo-peer {argv[0]} --help`)" in result.err


def test_a_flag_like_no_other_and_words_that_are_no_flags(cli: CommandLine) -> None:
    assert "there is no flag --qqqqqq (see" in cli("tail", "--qqqqqq").err
    assert "there is no flag" not in cli("cat", "--", "--qqqqqq").err
    assert cli("tail", "--qqqqqq", "--help").status == 0
