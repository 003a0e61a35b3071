"""What `serve` and `sync` have in common: whom to follow, and events as lines."""

import gc
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from logstore import ALL, Follow, Store, Subscription
from peer import counted

from .errors import FAILED, INCOMPLETE, NO_ANSWER, REFUSED, Problem, WrongUsage
from .naming import follow_target
from .settings import Parser
from .wanting import subscription, subscription_arguments

if TYPE_CHECKING:
    from argparse import Namespace

    import trio

    from peer.node import Address, Doors, EndKind, PeerAddress

    from .terminal import Terminal

Result = TypeVar("Result")

LOOK_S: Final = 0.5
"""How often it is seen whether somebody reads what is printed."""
COLLECTOR_THRESHOLDS = (20_000, 10, 10)
"""When Python's garbage collector looks for cycles. A server makes many objects and few cycles;
with the thresholds that Python begins with, it spends a tenth of its time looking
(docs/performance.md).
"""


def status_of_end(kind: "EndKind | None") -> int:
    """The exit status where a connection ended, or did not come about, before all was here."""
    from peer.node import EndKind

    refused = (EndKind.DENIED, EndKind.CERTIFICATE, EndKind.WRONG_PEER, EndKind.BLOCKED)
    if kind in refused:
        # By a line, or by TLS's alert: whoever is blocked gets no line.
        return REFUSED
    if kind is EndKind.UNREACHABLE:
        return NO_ANSWER
    never_began = (
        EndKind.NOT_A_PEER,
        EndKind.NO_TLS,
        EndKind.WANTS_TLS,
        EndKind.TLS,
        EndKind.PAUSED,
    )
    return FAILED if kind in never_began else INCOMPLETE


OPEN_FILES_MAX = 1 << 16
"""More than a node of 256 connections ever has."""


def collect_seldom() -> None:
    """Has Python's garbage collector look for cycles as seldom as suits a server."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def allow_open_files() -> None:
    """Takes as many open files as this process may have.

    The usual limit is 1,024 for the sake of programs that use `select`, which this one does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_trio(main: Callable[[], Awaitable[Result]]) -> Result:
    """Runs Trio until `main` is done or SIGTERM comes, which raises KeyboardInterrupt.

    What failed alone comes out as itself and not in a group of one.
    """
    import trio

    async def run() -> Result:
        # An exception from a signal handler might come in the middle of Trio's own doings.
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
                result = await main()
                nursery.cancel_scope.cancel()
                return result
        raise KeyboardInterrupt

    try:
        return trio.run(run)
    except BaseExceptionGroup as group:
        from peer.node import alone

        raise alone(group) from None


async def while_read(terminal: "Terminal", work: Callable[[], Awaitable[Result]]) -> Result:
    """Runs `work`, which prints what comes, as long as somebody reads it.

    Raises OutputClosed once nobody does: `--follow | head` ends with `head`, though nothing comes.
    """
    import trio

    async def look() -> None:
        while True:
            terminal.check_read()
            await trio.sleep(LOOK_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        result = await work()
        nursery.cancel_scope.cancel()
    return result


async def _cancel_at_signal(signals: AsyncIterator[int], scope: "trio.CancelScope") -> None:
    async for _ in signals:
        scope.cancel()


def address(text: str) -> "Address":
    """`HOST:PORT` or `unix:PATH`. Raises ValueError."""
    from peer.node import Address  # loads Trio, which `--help` can do without

    return Address.parse(text, unix=True)


def tcp_address(text: str) -> "Address":
    """`HOST:PORT` alone. Raises ValueError."""
    from peer.node import Address  # as above

    return Address.parse(text)


CALLED = "[ID@]HOST:PORT[,greedy=WAY][,tls=yes|no]"
"""What PEER stands for."""


def called(text: str) -> "PeerAddress":
    """Whom to call, and behind a comma what goes for that connection. Raises ValueError."""
    from peer.node import PeerAddress  # as above

    return PeerAddress.parse(text)


def door_arguments(parser: Parser, *, listens: bool) -> None:
    """`--tls`, `--insecure`, and of who `listens` whom else to let in."""
    parser.add_argument(
        "--tls",
        action="store_true",
        help="TLS with both sides' keys on loopback, too; it is on every other address",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="no TLS on any address: whoever is on the way can read and change all, and whoever "
        "reaches this node is let in",
    )
    if not listens:
        return
    parser.add_argument(
        "--allow-any",
        action="store_true",
        help="let in every peer that is not blocked, as a public archive does",
    )
    parser.add_argument(
        "--any-read",
        metavar="WHAT",
        action="append",
        default=[],
        help="with --allow-any: what they may read: all (the default), none, AUTHOR, AUTHOR/LOGID",
    )
    parser.add_argument(
        "--any-write",
        metavar="WHAT",
        help="with --allow-any: what is taken from them: none (the default), own or followed",
    )


def doors(args: "Namespace") -> "Doors":
    """What the flags say of who is let in, and how. Raises WrongUsage."""
    from logstore import WriteScope, read_scope
    from peer.node import Doors

    if args.tls and args.insecure:
        raise WrongUsage("--tls and --insecure contradict each other")
    any_read, any_write = getattr(args, "any_read", []), getattr(args, "any_write", None)
    allow_any = getattr(args, "allow_any", False)
    if not allow_any and (any_read or any_write is not None):
        raise WrongUsage("--any-read and --any-write are about --allow-any")
    try:
        read = read_scope(any_read or "all")
        write = WriteScope(any_write or WriteScope.NONE)
    except ValueError as error:
        raise WrongUsage(f"--allow-any: {error}") from None
    return Doors(args.tls, args.insecure, allow_any, read, write)


def check_called(store: Store, targets: "Iterable[PeerAddress]", doors: "Doors") -> None:
    """Raises Problem for a name that no peer has, WrongUsage for who is called by an id and
    without TLS."""
    from peer.node import UnknownNameError, expected_peer

    for target in targets:
        if target.peer is not None and doors.insecure:
            raise WrongUsage(f"{target.written}: who is called by an id is called with TLS")
        try:
            expected_peer(store, target)
        except UnknownNameError as error:
            raise Problem(f"{target.written}: {error}") from None


def warn_insecure(
    args: "Namespace", targets: "Iterable[PeerAddress]", terminal: "Terminal"
) -> None:
    """Says who is called without encryption because of `--insecure`."""
    called = [target.written for target in targets if not target.address.is_loopback]
    if args.insecure and called:
        terminal.note(
            f"warning: calling {', '.join(called)} without encryption: everybody on the way can"
            " read and change what is replicated, or answer in its place"
        )


def follow_arguments(parser: Parser) -> None:
    """`--follow` and `--follow-all`, and what of that is wanted."""
    parser.add_argument(
        "--follow",
        metavar="LOG or AUTHOR",
        action="append",
        type=follow_target,
        default=[],
        help="take in this log, or this author's; remembered in the store; repeatable",
    )
    parser.add_argument(
        "--follow-all", action="store_true", help="take in every log that the other side offers"
    )
    subscription_arguments(parser)


def follows_named(args: "Namespace") -> tuple[list[Follow], Subscription | None]:
    """What the flags name to be followed, and what of it is wanted. Raises WrongUsage."""
    targets: list[Follow] = [*args.follow, *([ALL] if args.follow_all else [])]
    wanted = subscription(args)
    if wanted is not None and not targets:
        raise WrongUsage(
            "--policy, --min-payload, --max-payload and --eager are about what --follow or"
            " --follow-all name: name something (`follow` changes what is followed already)"
        )
    return targets, wanted


def remember_follows(store: Store, args: "Namespace") -> None:
    """Adds what the flags name to what is followed. Raises WrongUsage."""
    targets, wanted = follows_named(args)
    for target in targets:
        store.follow(target, wanted)


_WHERE = {"page": "page at {}", "metrics_listening": "metrics at http://{}/metrics"}


def describe(event: Mapping[str, object]) -> str:
    """An event of the node as a line for people."""
    name = event["event"]
    if name == "listening":
        return f"listening on {event['address']}{' with TLS' if event.get('tls') else ''}"
    if (where := _WHERE.get(str(name))) is not None:
        return where.format(event["address"])
    if name == "refused":
        who = event["peer_id"] or "a caller"
        return f"refused {who} from {event['address']}: {event['reason']}"
    if name == "connect_failed" and event.get("kind") == "denied" and event.get("peer_id"):
        reason = event["reason"]
        return f"refused by {event['address']}: {reason} (tried again with back-off)"
    if name in {"log_advanced", "fork"}:
        log = f"{event['author']}/{event['log_id']}"
        if name == "fork":
            return f"FORK: {log} was signed twice at entry {event['seq']}; see `forks`"
        return f"{log}: {counted(int(str(event['height'])), 'entry')}"
    if name == "contested":
        log = f"{event['author']}/{event['log_id']}"
        return f"SIGNED ELSEWHERE: {log}: {event['reason']}; see `status`"
    if name == "exported":
        left_out = event.get("left_out")
        missing = f", {len(left_out)} left out" if isinstance(left_out, list) and left_out else ""
        rows = counted(int(str(event["rows"])), "row")
        return f"exported {rows} in {counted(int(str(event['files'])), 'file')}{missing}"
    if name == "limit":
        said = f"no room for logs of {event['author']}: {event['reason']}"
        return f"{said}; `--limit {event['key']}=N` sets another limit"
    if name in {"kept", "in_step"}:
        return _order(event)
    if name in {"export_failed", "storage_failed", "trace_failed"}:
        return f"{name.removesuffix('_failed')} failed: {event['reason']}"
    if name == "config_reloaded":
        return _reloaded(event)
    if "address" in event:
        reason = str(event.get("reason") or "").removeprefix(f"{event['address']}: ")
        said = f"{str(name).replace('_', ' ')} {event['address']}"
        return f"{said}: {reason}" if reason else said
    return str(name)


def _order(event: Mapping[str, object]) -> str:
    """Something is as it should be."""
    if event["event"] == "in_step":
        peers = event["peers"]
        return f"in step with {counted(len(peers) if isinstance(peers, list) else 0, 'peer')}"
    log = f"{event['author']}/{event['log_id']}"
    return f"{log}: {counted(int(str(event['count'])), 'payload')} deleted, as `keep` says"


def _reloaded(event: Mapping[str, object]) -> str:
    changed, left = (
        ", ".join(map(str, names)) if isinstance(names := event[field], list) else ""
        for field in ("changed", "needs_restart")
    )
    parts = [f"{changed} changed" if changed else "nothing changed"]
    if left:
        parts.append(f"needs a restart: {left}")
    if event["error"] is not None:
        parts.append(f"error: {event['error']}")
    return f"configuration read again: {'; '.join(parts)}"
