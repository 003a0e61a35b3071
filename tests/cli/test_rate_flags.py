"""`--max-rate` and `--max-rate-per-peer` say how much a node moves in a second."""

import pytest

from bamboo_cli.rate_flags import limits, rate_arguments
from bamboo_cli.settings import Parser
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
    parser = Parser("serve", "")
    rate_arguments(parser)
    assert limits(parser.parse_args(arguments)) == expected


@pytest.mark.parametrize("command", ["serve", "sync"])
@pytest.mark.parametrize("rate", ["0", "fast", "-1", ""])
def test_what_is_no_rate_is_wrong_usage(cli: CommandLine, command: str, rate: str) -> None:
    done = cli(command, "10.0.0.1" if command == "sync" else "--no-listen", f"--max-rate={rate}")
    assert done.status == 2
    assert len(done.err.splitlines()) == 1
