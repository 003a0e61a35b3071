"""How sessions transmit: `--greedy`, `--compression` and `--window`, for commands that connect."""

from typing import TYPE_CHECKING, Final, cast

from .settings import Parser
from .values import u64

if TYPE_CHECKING:
    from argparse import Namespace

    from peer import Compression, SessionConfig


GREEDY: Final = {"both": (True, True), "send": (True, False), "receive": (False, True)}
"""Whether to send greedily, and whether to take what is sent greedily; `none`: neither."""


def session_arguments(parser: Parser) -> None:
    """The flags."""
    parser.add_argument(
        "--greedy",
        metavar="WAY",
        type=_greedy,
        default="both",
        help="pass payloads on while they arrive, before they are verified: `both` (the default),"
        " only `send`, only `receive`, or `none`; nothing unverified is ever kept",
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
        help="how far back compression looks, in both directions, at most 16777216 (default:"
        " 65536); 0: nothing is compressed in either direction",
    )


def session_config(args: "Namespace") -> "SessionConfig":
    """What the flags make of the configuration."""
    from dataclasses import replace

    from peer import SessionConfig, default_setup

    send, accept = GREEDY.get(args.greedy, (False, False))
    setup = replace(default_setup(), send_greedily=send, accept_greedily=accept)
    if args.window is not None:
        setup = replace(setup, send_window=args.window, receive_window=args.window)
    return SessionConfig(setup=setup, compression=args.compression)


def _greedy(text: str) -> str:
    """One of the words. Raises ValueError."""
    if text not in (*GREEDY, "none"):
        raise ValueError(f"{text!r:.40} is none of both, send, receive and none")
    return text


def _when(text: str) -> str:
    """`auto`, `always` or `never`. Raises ValueError."""
    from peer import SessionConfig

    return SessionConfig(compression=cast("Compression", text)).compression


def _window(text: str) -> int:
    """A number of bytes that may be asked for. Raises ValueError."""
    from peer import SessionConfig
    from wire import Setup

    number = u64(text)
    setup = Setup(send_greedily=True, accept_greedily=True, send_window=number, receive_window=0)
    return SessionConfig(setup=setup).setup.send_window
