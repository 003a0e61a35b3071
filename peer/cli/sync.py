"""`sync`: one connection, both sides brought to what both have, and an end."""

import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from logstore import StoreError

from .errors import DONE, Problem
from .online import address, follow_arguments, remember_follows
from .opening import opened_store
from .registry import Definition
from .settings import Parser
from .values import json_number, size

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Store
    from peer.api import Peer, SyncSummary

    from .terminal import Terminal

PROGRESS_S = 0.5


def seconds(text: str) -> float:
    """A positive number of seconds. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{text[:40]!r} is no number of seconds")
    return value


def _arguments(parser: Parser) -> None:
    parser.add_argument("address", metavar="HOST:PORT", type=address, help="the peer to call")
    follow_arguments(parser)
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="give up after S seconds, exit status 1"
    )


def _sync(args: "Namespace", terminal: "Terminal") -> int:
    import trio

    with opened_store(args) as store:
        remember_follows(store, args)
        summary = trio.run(_run, store, args)
    terminal.result(
        {name: json_number(v) if isinstance(v, int) else v for name, v in asdict(summary).items()},
        _sentence(summary),
    )
    return DONE


async def _run(store: "Store", args: "Namespace") -> "SyncSummary":
    import trio

    from peer.api import CannotConnectError, NodeConfig, Peer, SyncError

    deadline = math.inf if args.timeout is None else args.timeout
    try:
        async with (
            trio.open_nursery() as nursery,
            Peer(store, config=NodeConfig(lock=False)) as peer,
        ):
            if sys.stderr is not None and sys.stderr.isatty():
                nursery.start_soon(_progress, peer)
            with trio.fail_after(deadline):
                summary = await peer.sync(args.address)
            nursery.cancel_scope.cancel()
    except* trio.TooSlowError:
        raise Problem(f"{args.address}: not in sync after {args.timeout:g} s") from None
    except* (CannotConnectError, SyncError, StoreError) as group:
        raise Problem(str(group.exceptions[0])) from None
    return summary


async def _progress(peer: "Peer") -> None:
    """One line on the terminal, written over and over."""
    import trio

    while True:
        await trio.sleep(PROGRESS_S)
        for info in peer.connections():
            sys.stderr.write(
                f"\r\x1b[K{info.address}: {info.entries_received} entries in,"
                f" {info.entries_sent} out, {size(info.bytes_received)} in,"
                f" {size(info.bytes_sent)} out"
            )
            sys.stderr.flush()


def _sentence(summary: "SyncSummary") -> str:
    if not summary.entries_received + summary.entries_sent + summary.payload_bytes_received:
        return f"nothing to be had: {summary.logs} logs are in sync"
    return (
        f"{summary.logs} logs: received {summary.entries_received} entries"
        f" ({size(summary.payload_bytes_received)}), sent {summary.entries_sent}"
        f" ({size(summary.payload_bytes_sent)}) in {summary.duration_s:.1f} s"
    )


COMMANDS = {"sync": Definition(arguments=_arguments, run=_sync)}
