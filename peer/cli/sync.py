"""`sync`: one connection, both sides brought to what both have, and an end."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from logstore import StoreError
from peer import json_number
from wire import SignatureLibraryError

from .errors import DONE, Problem
from .online import CALLED, called, counted, describe, follow_arguments, remember_follows, run_trio
from .opening import opened_store
from .rate_flags import limits, rate_arguments
from .registry import Definition
from .session_flags import session_arguments, session_config
from .settings import Parser
from .tracing import trace_argument
from .values import size

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
    parser.add_argument("address", metavar=CALLED, type=called, help="the peer to call")
    follow_arguments(parser)
    session_arguments(parser)
    rate_arguments(parser)
    trace_argument(parser)
    parser.add_argument(
        "--wait",
        action="store_true",
        help="try again until --timeout when the peer cannot be reached or the connection is lost",
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="give up after S seconds, exit status 1"
    )


def _sync(args: "Namespace", terminal: "Terminal") -> int:
    import trio

    from peer.api import CannotConnectError, CannotTraceError, SyncError

    with opened_store(args) as store:
        remember_follows(store, args)
        forks: list[str] = []
        failures: list[str] = []
        try:
            summary = run_trio(partial(_run, store, args, forks, failures, terminal))
        except trio.TooSlowError:
            last = f": {failures[-1]}" if failures else ""
            raise Problem(f"{args.address}: not in sync after {args.timeout:g} s{last}") from None
        except (
            CannotConnectError,
            CannotTraceError,
            SyncError,
            StoreError,
            SignatureLibraryError,
        ) as error:
            raise Problem(str(error)) from None
        sentence = _sentence(summary, store)
    terminal.result(
        {name: json_number(v) if isinstance(v, int) else v for name, v in asdict(summary).items()},
        sentence,
    )
    if forks:
        raise Problem(f"{', '.join(forks)}; what comes before the fork is in sync (see `forks`)")
    return DONE


async def _run(
    store: "Store",
    args: "Namespace",
    forks: list[str],
    failures: list[str],
    terminal: "Terminal",
) -> "SyncSummary":
    import trio

    from peer.api import NodeConfig, Peer

    def observe(event: Mapping[str, object]) -> None:
        if event["event"] == "fork":
            forks.append(f"{event['author']}/{event['log_id']} is forked at {event['seq']}")
        elif event["event"] == "trace_failed":
            terminal.note(describe(event))

    config = NodeConfig(
        session=session_config(args), limits=limits(args), lock=False, trace=args.trace
    )
    deadline = math.inf if args.timeout is None else args.timeout
    async with (
        trio.open_nursery() as nursery,
        Peer(store, config=config, observer=observe) as peer,
    ):
        if sys.stderr is not None and sys.stderr.isatty():
            nursery.start_soon(_progress, peer)
        with trio.fail_after(deadline):
            summary = await _succeed(peer, args, failures, terminal)
        nursery.cancel_scope.cancel()
    return summary


async def _succeed(
    peer: "Peer", args: "Namespace", failures: list[str], terminal: "Terminal"
) -> "SyncSummary":
    """Syncs; with --wait as often as it takes. What went wrong is said once."""
    import trio

    from peer.api import CannotConnectError, SyncError

    backoff = peer.node.new_backoff()
    while True:
        try:
            return await peer.sync(args.address.address, greedy=args.address.greedy)
        except (CannotConnectError, SyncError) as error:
            if not args.wait:
                raise
            reason = str(error).removeprefix(f"{args.address}: ")
            if failures[-1:] != [reason]:
                failures[:] = [reason]
                terminal.note(f"{args.address}: {reason}; trying again")
            await trio.sleep(backoff.next_delay_s())


async def _progress(peer: "Peer") -> None:
    """One line on the terminal, written over and over, and cleared in the end."""
    import trio

    try:
        while True:
            await trio.sleep(PROGRESS_S)
            for info in peer.connections():
                sys.stderr.write(
                    f"\r\x1b[K{info.address}: {counted(info.entries_received, 'entry')} in,"
                    f" {info.entries_sent} out, {size(info.bytes_received)} in,"
                    f" {size(info.bytes_sent)} out"
                )
                sys.stderr.flush()
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _sentence(summary: "SyncSummary", store: "Store") -> str:
    if not store.follows() and not summary.logs:
        return "nothing is followed: --follow names a log or an author, --follow-all takes all"
    logs = counted(summary.logs, "log")
    if not summary.entries_received + summary.entries_sent + summary.payload_bytes_received:
        return f"nothing to be had: neither side has anything new that the other wants ({logs})"
    return (
        f"{logs}: received {counted(summary.entries_received, 'entry')}"
        f" ({size(summary.payload_bytes_received)}), sent {summary.entries_sent}"
        f" ({size(summary.payload_bytes_sent)}) in {summary.duration_s:.1f} s{_saved(summary)}"
    )


def _saved(summary: "SyncSummary") -> str:
    """What compression did, if it did anything."""
    saved = max(summary.saved_bytes_received, 0) + summary.saved_bytes_sent
    moved = summary.bytes_received + summary.bytes_sent
    return f"; {size(moved)} on the wire, compression saved {size(saved)}" if saved else ""


COMMANDS = {"sync": Definition(arguments=_arguments, run=_sync)}
