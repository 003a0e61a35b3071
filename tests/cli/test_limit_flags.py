"""Rates and limits, from the command line and from a configuration file."""

from argparse import Namespace
from pathlib import Path

import pytest

from bamboo_cli.limit_flags import limit_arguments, limits
from bamboo_cli.online import describe
from bamboo_cli.settings import Parser, read_config
from peer.node import Limits
from tests.cli.harness import CommandLine


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), Limits()),
        (("--max-rate", "500k"), Limits(bytes_per_s_max=500 * 1024)),
        (("--max-rate-per-peer", "2M"), Limits(peer_bytes_per_s_max=2 << 20)),
    ],
)
def test_rates_are_numbers_of_bytes_a_second(arguments: tuple[str, ...], expected: Limits) -> None:
    assert limits(parsed(*arguments)) == expected


def parsed(*arguments: str, defaults: dict[str, list[object]] | None = None) -> Namespace:
    parser = Parser("serve", "")
    limit_arguments(parser)
    parser.set_defaults(**(defaults or {}))
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("author-bytes=8M", Limits(author_bytes=8 << 20)),
        ("author-bytes = 8M", Limits(author_bytes=8 << 20)),
        ("author-bytes=none", Limits(author_bytes=None)),
        ("store-bytes=0", Limits(store_bytes=0)),
        ("connections=12", Limits(connections_max=12)),
        ("accepts=0.5", Limits(accepts_per_s=0.5)),
        ("partial-seconds=3600", Limits(partial_seconds=3600.0)),
    ],
)
def test_a_limit_is_set_by_its_name(said: str, expected: Limits) -> None:
    assert limits(parsed("--limit", said)) == expected


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("author-byte=8M", "'author-byte' is no limit: there are connections, "),
        ("author-bytes", "author-bytes lacks its value: write author-bytes=8M"),
        ("author-bytes=lots", "'lots'"),
        ("free-bytes=none", "'none' is no number of bytes"),
        ("connections=1.5", "'1.5' is no connections, like 256"),
        ("connections=-1", "'-1' is no connections"),
        ("connections=nan", "'nan' is no connections"),
        ("accepts=nan", "'nan' is no accepts, like 10"),
        ("accepts=inf", "'inf' is no accepts"),
        ("connections=inf", "'inf' is no connections"),
        ("turn-packets=0", "'0' is no turn-packets, like 1000"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "sync"])
def test_what_is_no_limit_is_wrong_usage(
    cli: CommandLine, command: str, said: str, why: str
) -> None:
    done = cli(command, "10.0.0.1" if command == "sync" else "--no-listen", "--limit", said)
    assert done.status == 2
    assert why in done.err
    assert len(done.err.splitlines()) == 1


def test_limits_stand_in_a_table_and_what_is_said_goes_before_them(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('store = "x"\n[limits]\nauthor-bytes = "8M"\nconnections = 12\n[serve]\n')
    commands = ("serve", "sync", "logs")
    read = read_config(path, "serve", commands)
    assert read == {"store": "x", "limit": ["author-bytes=8M", "connections=12"]}
    assert read_config(path, "sync", commands) == read
    assert read_config(path, "logs", commands) == {"store": "x"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("limits = 3", "'limits' is a table: write KEY = VALUE below [limits]"),
        ("[limits]\nauthor-byte = 3", "'author-byte' is no limit"),
        ("[limits]\nconnections = [3]", "'[3]' is no connections"),
    ],
)
def test_a_wrong_table_of_limits_is_wrong_usage(
    cli: CommandLine, tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    done = cli("serve", "--no-listen", "--config", str(path))
    assert (done.status, len(done.err.splitlines())) == (2, 1)
    assert why in done.err


def test_of_a_limit_that_is_said_twice_the_later_goes() -> None:
    found = limits(parsed("--limit", "connections=3", "--limit", "connections=4"))
    assert found == Limits(connections_max=4)
    from_a_file: dict[str, list[object]] = {"limit": [("connections_max", 5), ("store_bytes", 6)]}
    found = limits(parsed("--limit", "connections=3", defaults=from_a_file))
    assert found == Limits(connections_max=3, store_bytes=6)


@pytest.mark.parametrize("command", ["serve", "sync"])
@pytest.mark.parametrize("rate", ["0", "fast", "-1", ""])
def test_what_is_no_rate_is_wrong_usage(cli: CommandLine, command: str, rate: str) -> None:
    done = cli(command, "10.0.0.1" if command == "sync" else "--no-listen", f"--max-rate={rate}")
    assert done.status == 2
    assert len(done.err.splitlines()) == 1


def test_people_read_what_there_was_no_room_for_and_which_limit_it_was() -> None:
    told = {"event": "limit", "key": "author-bytes", "author": "aa", "reason": "too much"}
    line = "no room for logs of aa: too much; `--limit author-bytes=N` sets another limit"
    assert describe(told) == line
