"""What the flags of `serve` and `sync` make of a session's configuration."""

import pytest

from peer.cli.errors import WrongUsage
from peer.cli.session_flags import session_arguments, session_config
from peer.cli.settings import Parser


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


def test_another_word_is_refused() -> None:
    with pytest.raises(WrongUsage):
        parsed("--greedy", "never")
