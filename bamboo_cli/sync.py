"""`sync`: one connection, both sides brought to what both have, and an end."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from local_api import is_held, size, some_seconds, target_name
from logstore import FULL, PolicyKind, StoreError, subscription_of
from peer import counted, json_number
from wire import SignatureLibraryError

from .called_names import name_hint
from .errors import DONE, FORKED, NO_ANSWER, REFUSED, TIMED_OUT, Problem
from .limit_flags import limit_arguments, limits
from .online import (
    CALLED,
    called,
    check_called,
    describe,
    door_arguments,
    doors,
    follow_arguments,
    remember_follows,
    run_trio,
    status_of_end,
    warn_insecure,
)
from .opening import opened_store
from .registry import Definition
from .session_flags import session_arguments, session_config
from .settings import Parser
from .tracing import trace_argument

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Store
    from peer.api import Peer, SyncSummary
    from wire import LogKey

    from .terminal import Terminal

PROGRESS_S = 0.5
NAMED_MAX = 5
"""How many logs a sync names that are forked, or held nowhere; `forks` and `status` list all."""


def _arguments(parser: Parser) -> None:
    parser.add_argument("address", metavar="PEER", type=called, help=f"whom to call: {CALLED}")
    door_arguments(parser, listens=False)
    follow_arguments(parser)
    session_arguments(parser)
    limit_arguments(parser)
    trace_argument(parser)
    parser.add_argument(
        "--wait",
        action="store_true",
        help="try again until --timeout when the peer cannot be reached or the connection is lost",
    )
    parser.add_argument(
        "--timeout", metavar="S", type=some_seconds, help="give up after S seconds, exit status 4"
    )


def _sync(args: "Namespace", terminal: "Terminal") -> int:
    import trio

    from peer.api import CannotConnectError, CannotTraceError, SyncError

    with opened_store(args) as store:
        remember_follows(store, args)
        check_called(store, [args.address], doors(args))
        warn_insecure(args, [args.address], terminal)
        before = _forks(store)
        story = _Story()
        try:
            summary = run_trio(partial(_run, store, args, story, terminal))
        except KeyboardInterrupt:
            if lacking := _lacking(store, story):
                terminal.note(f"interrupted; what came is kept, and the next sync goes on{lacking}")
            raise
        except trio.TooSlowError:
            raise Problem(
                f"{args.address}: not in sync after {args.timeout:g} s"
                f"{': ' if story.failure else ''}{story.failure or ''}{_lacking(store, story)}",
                TIMED_OUT,
            ) from None
        except CannotConnectError as error:
            status, hint = status_of_end(error.kind), ""
            if status == NO_ANSWER:
                advice = name_hint(store, args.address)
                hint = f"; {advice or 'see whether a node listens there, or --wait for it'}"
            raise Problem(f"{error}{hint}", status) from None
        except SyncError as error:
            status = status_of_end(error.kind)
            lacking = "" if status == REFUSED else _lacking(store, story)
            raise Problem(f"{error}{lacking}", status) from None
        except (CannotTraceError, StoreError, SignatureLibraryError) as error:
            raise Problem(str(error)) from None
        sentence, nowhere = _sentence(summary, store), _nowhere(store)
        # From the store, and not from what happened on the way: whether a fork that is known
        # moves at all in this sync depends on which side asks first.
        after, subscriptions = _forks(store), store.subscriptions()
        known = [
            fork
            for log, fork in after.items()
            if log in before
            and (log.author == store.author or subscription_of(subscriptions, log) is not None)
        ]
        found = [fork for log, fork in after.items() if log not in before]
    terminal.result(
        {name: json_number(v) if isinstance(v, int) else v for name, v in asdict(summary).items()},
        sentence,
    )
    if nowhere:
        terminal.note(f"held by neither side, though followed: {_some(nowhere)}")
    # Nothing makes a forked log whole again, so what was known is no news in the next sync.
    if known:
        terminal.note(f"{_some(known)}, as was known before")
    if found:
        sentence = f"{_some(found)}; what comes before the fork is in sync (see `forks`)"
        raise Problem(sentence, FORKED)
    return DONE


def _forks(store: "Store") -> "dict[LogKey, str]":
    return {proof.key: f"{proof.key} is forked at {proof.seq}" for proof in store.forks()}


def _nowhere(store: "Store") -> list[str]:
    """What is followed by name and nothing is held of: an id that was mistyped looks like this."""
    return [target_name(target) for target in store.follows() if not is_held(store, target)]


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


@dataclass(slots=True)
class _Story:
    """What happened on the way, for whoever is told that the end was not reached."""

    failure: str | None = None
    """Why the last attempt failed, or comes no further."""
    newest: "Mapping[LogKey, int]" = field(default_factory=dict)
    """The newest entry of each log that the peer said it holds."""


def _lacking(store: "Store", story: _Story) -> str:
    """What is missing of what the peer holds, as far as it has told."""
    subscriptions = store.subscriptions()
    logs = entries = payloads = 0
    for log, newest in story.newest.items():
        own = log.author == store.author
        wanted = FULL if own else subscription_of(subscriptions, log)
        if wanted is None:
            continue
        first, last = wanted.bounds(newest)
        info, reached, lacks = store.log(log), 0, 0
        if info is not None:
            whole = wanted.kind in {PolicyKind.FULL, PolicyKind.METADATA}
            reached = info.height if whole else info.newest
            lacks = store.shortfall(log, wanted).payloads
        behind = max(0, last - max(reached, first - 1))
        logs += bool(behind or lacks)
        entries += behind
        payloads += lacks
    if not logs:
        return ""
    missing = f"{counted(entries, 'entry')} and {counted(payloads, 'payload')}"
    return f"; still missing: {missing} of {counted(logs, 'log')}"


async def _run(
    store: "Store", args: "Namespace", story: _Story, terminal: "Terminal"
) -> "SyncSummary":
    import trio

    from peer.api import NodeConfig, Peer
    from peer.node import ConnectionState, served_at

    def observe(event: Mapping[str, object]) -> None:
        if event["event"] == "connected":
            for member in peer.node.members:
                story.newest = member.knowledge.newest
        elif event["event"] == "trace_failed":
            terminal.note(describe(event))

    config = NodeConfig(
        session=session_config(args),
        limits=limits(args),
        lock=False,
        trace=args.trace,
        doors=doors(args),
    )
    deadline = math.inf if args.timeout is None else args.timeout
    async with (
        trio.open_nursery() as nursery,
        Peer(store, config=config, observer=observe) as peer,
    ):
        peer.node.entrance.served_at = served_at(store)
        if sys.stderr is not None and sys.stderr.isatty():
            nursery.start_soon(_progress, peer)
        try:
            with trio.fail_after(deadline):
                summary = await _succeed(peer, args, story, terminal)
        except trio.TooSlowError:
            if any(info.state is ConnectionState.SETUP for info in peer.connections()):
                story.failure = "somebody answers, who has not said to be a node"
            raise
        nursery.cancel_scope.cancel()
    return summary


async def _succeed(
    peer: "Peer", args: "Namespace", story: _Story, terminal: "Terminal"
) -> "SyncSummary":
    """Syncs; with --wait as often as it takes. What went wrong is said once."""
    import trio

    from peer.api import CannotConnectError, SyncError

    backoff = peer.node.new_backoff()
    while True:
        try:
            return await peer.sync(args.address)
        except (CannotConnectError, SyncError) as error:
            if not args.wait:
                raise
            reason = str(error).removeprefix(f"{args.address}: ")
            if story.failure != reason:
                story.failure = reason
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
    moved = summary.entries_received + summary.entries_sent
    if not moved + summary.payload_bytes_received + summary.payload_bytes_sent:
        return f"nothing to be had: neither side has anything new that the other wants ({logs})"
    return (
        f"{logs}: received {counted(summary.entries_received, 'entry')}"
        f" and {size(summary.payload_bytes_received)} of payloads, sent {summary.entries_sent}"
        f" and {size(summary.payload_bytes_sent)} in {summary.duration_s:.1f} s{_saved(summary)}"
    )


def _saved(summary: "SyncSummary") -> str:
    """What compression did, if it did anything."""
    saved = max(summary.saved_bytes_received, 0) + summary.saved_bytes_sent
    moved = summary.bytes_received + summary.bytes_sent
    return f"; {size(moved)} on the wire, compression saved {size(saved)}" if saved else ""


COMMANDS = {"sync": Definition(arguments=_arguments, run=_sync)}
