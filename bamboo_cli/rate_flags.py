"""How much connections move a second: `--max-rate` and `--max-rate-per-peer`."""

from typing import TYPE_CHECKING

from .settings import Parser
from .values import byte_size

if TYPE_CHECKING:
    from argparse import Namespace

    from peer.node import Limits


def rate_arguments(parser: Parser) -> None:
    """The flags."""
    parser.add_argument(
        "--max-rate",
        metavar="BYTES",
        type=_rate,
        help="a second, that all connections together send, and as many that they receive, like"
        " 500k or 2M (default: no limit)",
    )
    parser.add_argument(
        "--max-rate-per-peer",
        metavar="BYTES",
        type=_rate,
        help="the same for each connection by itself (default: no limit)",
    )


def limits(args: "Namespace") -> "Limits":
    """What the flags make of a node's limits."""
    from peer.node import Limits

    return Limits(bytes_per_s_max=args.max_rate, peer_bytes_per_s_max=args.max_rate_per_peer)


def _rate(text: str) -> int:
    """A number of bytes above 0. Raises ValueError."""
    rate = byte_size(text)
    if rate == 0:
        raise ValueError("a rate of 0 would move nothing; leave the flag out for no limit")
    return rate
