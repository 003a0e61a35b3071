"""What the flags of `serve` and `sync` make of a session's configuration."""

import pytest

from bamboo_cli.errors import WrongUsage
from bamboo_cli.session_flags import peer_arguments, session_arguments, session_config
from bamboo_cli.settings import Parser
from peer import SessionConfig


def parsed(*arguments: str) -> tuple[bool, bool]:
    parser = Parser("serve", "a node")
    session_arguments(parser)
    setup = session_config(parser.parse_args(arguments)).setup
    return setup.send_greedily, setup.accept_greedily


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), (True, True)),
        (("--greedy", "both"), (True, True)),
        (("--greedy", "send"), (True, False)),
        (("--greedy", "receive"), (False, True)),
        (("--greedy", "none"), (False, False)),
    ],
)
def test_each_direction_is_greedy_or_safe(
    arguments: tuple[str, ...], expected: tuple[bool, bool]
) -> None:
    assert parsed(*arguments) == expected


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("70000", 70_000), ("16M", 16 << 20)])
def test_a_window_is_as_large_as_said_both_ways(text: str, count: int) -> None:
    setup = allowed("--window", text).setup
    assert (setup.send_window, setup.receive_window) == (count, count)


def test_another_word_is_refused() -> None:
    with pytest.raises(WrongUsage):
        parsed("--greedy", "never")


def allowed(*arguments: str) -> SessionConfig:
    parser = Parser("serve", "a node")
    session_arguments(parser)
    peer_arguments(parser)
    return session_config(parser.parse_args(arguments))


@pytest.mark.parametrize("most", [1, 10, 64, 65, 1000])
def test_a_peer_may_have_so_many_requests_open_and_no_more(most: int) -> None:
    """The credit at the start, and what comes back for the first ones that are confirmed."""
    config = allowed("--max-requests", str(most))
    assert config.request_credit + config.requests_max == most
    assert config.request_credit <= SessionConfig().request_credit


def test_what_a_peer_may_have_in_flight_is_its_data_credit() -> None:
    assert allowed("--max-in-flight", "256k").data_credit_bytes == 256 * 1024
    assert allowed() == SessionConfig()


@pytest.mark.parametrize(
    "arguments", [("--max-requests", "0"), ("--max-in-flight", "1k"), ("--max-in-flight", "much")]
)
def test_limits_that_stop_everything_are_refused(arguments: tuple[str, str]) -> None:
    with pytest.raises(WrongUsage):
        allowed(*arguments)
