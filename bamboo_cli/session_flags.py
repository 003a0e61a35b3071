"""How sessions transmit, for commands that connect, and what a node allows each peer."""

from typing import TYPE_CHECKING, Final, cast

from local_api import byte_size, size, u64

from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from peer import Compression, SessionConfig
    from peer.node import Greedy


IN_FLIGHT_BYTES_MIN: Final = 16 * 1024


def session_arguments(parser: Parser) -> None:
    """The flags."""
    parser.add_argument(
        "--greedy",
        metavar="WAY",
        type=_greedy,
        default="both",
        help="pass payloads on while they arrive, before they are verified: `both` (the default),"
        " only `send`, only `receive`, or `none`; nothing unverified is ever kept; for one peer"
        " alone: HOST:PORT,greedy=WAY",
    )
    parser.add_argument(
        "--compression",
        metavar="WHEN",
        type=_when,
        default="auto",
        help="compress what is sent: `auto` (the default) where it shrinks and the link is slower"
        " than compression, `always` where it shrinks, or `never`",
    )
    parser.add_argument(
        "--window",
        metavar="BYTES",
        type=_window,
        help="how far back compression looks, in both directions, at most 16M (default: 64k);"
        " 0: nothing is compressed in either direction",
    )


def peer_arguments(parser: Parser) -> None:
    """What one peer may ask of a node: `--max-requests` and `--max-in-flight`."""
    parser.add_argument(
        "--max-requests",
        metavar="N",
        type=_requests,
        help="requests that each peer may have open (default: 66048); a log takes one",
    )
    parser.add_argument(
        "--max-in-flight",
        metavar="BYTES",
        type=_in_flight,
        help="what each peer may have on its way here, not verified or not stored yet (default: 1M;"
        " 64M for all together)",
    )


def session_config(args: "Namespace") -> "SessionConfig":
    """What the flags make of the configuration."""
    from dataclasses import replace

    from peer import SessionConfig, default_setup
    from peer.node import with_greedy

    setup = with_greedy(default_setup(), args.greedy)
    if args.window is not None:
        setup = replace(setup, send_window=args.window, receive_window=args.window)
    config = SessionConfig(setup=setup, compression=args.compression)
    if getattr(args, "max_requests", None) is not None:
        credit = min(config.request_credit, args.max_requests)
        config = replace(
            config,
            requests_max=args.max_requests - credit,
            request_credit=credit,
            request_credit_max=credit,
        )
    if getattr(args, "max_in_flight", None) is not None:
        config = replace(config, data_credit_bytes=args.max_in_flight)
    return config


def _requests(text: str) -> int:
    """A number from 1 on. Raises ValueError."""
    number = u64(text)
    if number == 0:
        raise ValueError("a peer that may ask for nothing needs no connection")
    return number


def _in_flight(text: str) -> int:
    """A number of bytes that a connection can work with. Raises ValueError."""
    count = byte_size(text)
    if count < IN_FLIGHT_BYTES_MIN:
        raise ValueError(f"less than {size(IN_FLIGHT_BYTES_MIN)} would stop a connection")
    return count


def _greedy(text: str) -> "Greedy":
    """One of the words. Raises ValueError."""
    from peer.node import parse_greedy  # loads Trio, which `--help` can do without

    return parse_greedy(text)


def _when(text: str) -> str:
    """`auto`, `always` or `never`. Raises ValueError."""
    from peer import SessionConfig

    return SessionConfig(compression=cast("Compression", text)).compression


def _window(text: str) -> int:
    """A number of bytes that may be asked for. Raises ValueError."""
    from peer import SessionConfig
    from wire import Setup

    count = byte_size(text)
    setup = Setup(send_greedily=True, accept_greedily=True, send_window=count, receive_window=0)
    return SessionConfig(setup=setup).setup.send_window
