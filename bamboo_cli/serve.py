"""`serve`: the node, until SIGINT or SIGTERM ends it in good order."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import StoreError
from wire import SignatureLibraryError

from .called_names import name_hint
from .errors import DONE, Problem, WrongUsage
from .interrupting import IDLE_SIGNALS, let_signals_in
from .levels import level_argument
from .limit_flags import limit_arguments, limits
from .naming import resolve_arguments
from .online import (
    CALLED,
    address,
    allow_open_files,
    called,
    check_called,
    collect_seldom,
    door_arguments,
    doors,
    follow_arguments,
    follows_named,
    remember_follows,
    run_trio,
    warn_insecure,
)
from .opening import opened_store
from .page_serving import PageEvents, check_page, page_arguments, serving_page, shares_metrics
from .registry import Definition
from .session_flags import peer_arguments, session_arguments, session_config
from .settings import Parser, store_path
from .tracing import trace_argument

if TYPE_CHECKING:
    from argparse import Namespace
    from datetime import timedelta

    import trio

    from logstore import Store
    from peer.api import Address, Peer, PeerAddress
    from peer.node import Observer

    from .notifying import Manager
    from .reloading import Reloading
    from .terminal import Terminal


def _arguments(parser: Parser) -> None:
    listen = parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        default="127.0.0.1:7007",
        help="where to take connections (default: 127.0.0.1:7007; port 0: a free one;"
        " unix:PATH: a socket of this machine, for its owner alone)",
    )
    no_listen = parser.add_argument(
        "--no-listen",
        action="store_true",
        help="take no connections, whatever the configuration says of --listen",
    )
    parser.exclude(listen, no_listen)
    parser.add_argument(
        "--connect",
        metavar="PEER",
        action="append",
        type=called,
        default=[],
        help=f"call this peer, {CALLED}, and again whenever the connection is lost: by its id or"
        " name nobody else may answer, and TLS is spoken; repeatable",
    )
    parser.add_argument(
        "--discover",
        action="store_true",
        help="announce this node in the local network, and call whom it finds there and you have"
        " allowed (needs the extra `discover`)",
    )
    door_arguments(parser, listens=True)
    follow_arguments(parser)
    session_arguments(parser)
    peer_arguments(parser)
    limit_arguments(parser)
    trace_argument(parser)
    level_argument(parser)
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        type=_metrics,
        help="where to serve /metrics for Prometheus, /healthz and /readyz over HTTP, to whoever"
        " reaches it (HOST: 127.0.0.1 unless given; default: nowhere)",
    )
    page_arguments(parser)
    parser.add_argument(
        "--export", metavar="DIR", type=Path, help="keep a Parquet export in DIR up to date"
    )
    parser.add_argument(
        "--max-file-age",
        metavar="S",
        type=_file_age,
        help="with --export: seconds that an entry waits for its file at most (default: 60)",
    )


def _file_age(text: str) -> "timedelta":
    """A number of seconds above 0. Raises ValueError."""
    from .exporting import seconds  # only who exports needs what it loads

    return seconds(text)


def _metrics(text: str) -> "Address":
    """Where metrics are served. Raises ValueError."""
    from peer.node import metrics_address  # loads Trio, which `--help` can do without

    return metrics_address(text)


def _serve(args: "Namespace", terminal: "Terminal") -> int:
    from analytics import AnalyticsError
    from peer.api import CannotListenError, CannotTraceError
    from peer.node import MissingZeroconfError

    collect_seldom()
    allow_open_files()
    _check(args)
    with opened_store(args) as store:
        remember_follows(store, args)
        check_called(store, args.connect, doors(args))
        for target in args.connect:
            if (hint := name_hint(store, target)) is not None:
                terminal.note(f"--connect {target.address.host} calls a host of that name; {hint}")
        try:
            run_trio(partial(_run, store, args, terminal))
        except CannotListenError as error:
            flags = " or ".join(
                ["--listen", *(f"--{each}" for each in ("metrics", "page") if getattr(args, each))]
            )
            raise Problem(f"{error}; {flags} names another address, port 0 a free port") from None
        except (
            CannotTraceError,
            MissingZeroconfError,
            StoreError,
            SignatureLibraryError,
            AnalyticsError,
        ) as error:
            raise Problem(str(error)) from None
    return DONE


def _check(args: "Namespace") -> None:
    """Raises WrongUsage for settings that contradict each other."""
    if args.discover and args.insecure:
        raise WrongUsage("--discover finds peers by their ids, which --insecure does not ask for")
    if args.max_file_age is not None and args.export is None:
        raise WrongUsage("--max-file-age is about --export: name a directory")
    check_page(args)
    # A peer is called once.
    ways: dict[Address, PeerAddress] = {}
    for target in args.connect:
        if ways.setdefault(target.address, target) != target:
            raise WrongUsage(
                f"argument --connect: {target.address} is named twice, with different options"
            )


def _check_again(store: "Store", args: "Namespace") -> None:
    """Raises WrongUsage, Problem or StoreError for what a start would not begin with."""
    _check(args)
    resolve_arguments(store, args, None)
    session_config(args)
    follows_named(args)
    check_called(store, args.connect, doors(args))


async def _run(store: "Store", args: "Namespace", terminal: "Terminal") -> None:
    import trio

    from analytics import ContinuousExport
    from peer.api import NodeConfig, Peer
    from peer.node import Discovery, Meter, StatusFile, run_export

    from .events import Events
    from .notifying import Manager
    from .reloading import Applied, Reloading, applied_to

    # Before anything is started that could inherit it.
    manager = Manager.of(os.environ, os.getpid())
    ending = trio.Event()
    allowed = sum(rule.allowed for rule in store.peers.rules().values())
    events = Events(terminal, ending, allowed, args.log_level)
    numbers = (signal.SIGINT, signal.SIGTERM, *IDLE_SIGNALS)
    with manager, events.logging(), trio.open_signal_receiver(*numbers) as signals:
        let_signals_in()
        async with trio.open_nursery() as nursery:
            config = NodeConfig(
                session=session_config(args),
                limits=limits(args),
                trace=args.trace,
                doors=doors(args),
            )
            at_page = PageEvents()
            tell = partial(_tell_each, events.take, manager.take)
            observer: Observer = partial(_tell_each, tell, at_page.take)
            meter, metrics = None, args.metrics
            if shares_metrics(args):
                meter, metrics = Meter(), None
                observer = meter.observing(observer)
            async with (
                Peer(store, config=config, observer=observer, metrics=metrics) as peer,
                serving_page(peer, args, terminal, at_page, meter, tell),
            ):
                if meter is not None:
                    meter.watch(peer.node)
                # One that waits is enough for whatever was said before it is read.
                hangups, to_reload = trio.open_memory_channel[None](1)
                nursery.start_soon(_watch, signals, ending, peer, hangups)
                nursery.start_soon(events.run)
                await _start(peer, args, terminal)
                log_level = Applied(frozenset(("log_level",)), events.apply_level)
                applied = [*applied_to(peer, args), log_level]
                reloading = Reloading(args, applied, partial(_check_again, store))
                nursery.start_soon(_reload, to_reload, reloading, events.take, manager)
                if args.export is not None:
                    age = {} if args.max_file_age is None else {"file_age_max": args.max_file_age}
                    export = ContinuousExport(store, args.export, **age)
                    nursery.start_soon(run_export, export, events.take)
                overview = await peer.overview()
                if args.discover:
                    nursery.start_soon(Discovery(peer.node).run)
                nursery.start_soon(StatusFile(store_path(args), overview.state).run)
                await manager.ready()
                nursery.start_soon(manager.run, peer)
                await ending.wait()
                await manager.stopping()
            nursery.cancel_scope.cancel()
    if events.failure is not None:
        raise events.failure


def _tell_each(first: "Observer", second: "Observer", event: Mapping[str, object]) -> None:
    first(event)
    second(event)


async def _start(peer: "Peer", args: "Namespace", terminal: "Terminal") -> None:
    if not args.no_listen:
        found = await peer.listen(args.listen)
        if args.insecure and not found.is_loopback:
            terminal.note(
                f"warning: listening on {found} without encryption: everybody who can reach this"
                " address can connect, and everybody on the way can read what is replicated"
            )
    else:
        called = ", ".join(target.written for target in args.connect)
        terminal.note(f"not listening; calling {called or 'nobody'}")
    warn_insecure(args, args.connect, terminal)
    await peer.node.entrance.check_calls(args.connect)
    for target in args.connect:
        peer.connect(target)
    peer.node.call_known()


async def _watch(
    signals: AsyncIterator[int],
    ending: "trio.Event",
    peer: "Peer",
    hangups: "trio.MemorySendChannel[None]",
) -> None:
    """The first SIGINT or SIGTERM ends the node in good order, the second at once.

    SIGHUP has it reload; SIGUSR1 and SIGUSR2, which would end other programs, do nothing.
    """
    import trio

    async for number in signals:
        if number == signal.SIGHUP:
            with suppress(trio.WouldBlock):
                hangups.send_nowait(None)
        elif number not in IDLE_SIGNALS:
            if ending.is_set():
                peer.node.hurry()
            ending.set()


async def _reload(
    wanted: "trio.MemoryReceiveChannel[None]",
    reloading: "Reloading",
    tell: "Observer",
    manager: "Manager",
) -> None:
    """Reads the configuration again whenever that is wanted."""
    async for _ in wanted:
        await manager.reloading()
        tell(await reloading.reload())
        await manager.ready()


COMMANDS = {"serve": Definition(arguments=_arguments, run=_serve)}
