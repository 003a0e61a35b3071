"""`datastream serve` and `datastream relay`: beside `serve`, until they are interrupted."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore import Store
from peer import counted
from wire import LogKey

from .asking import Asker
from .errors import DONE, WrongUsage
from .gateway_serving import run_serving, until_signal, warn_beyond_loopback
from .naming import resolved_log
from .online import tcp_address
from .opening import opened_store

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

DEFAULT_LISTEN = "127.0.0.1:6900"


def parsed(kind: Callable[[str], Any], text: str, verb: str) -> Any:  # noqa: ANN401 - of any kind
    try:
        return kind(text)
    except ValueError as error:
        raise WrongUsage(f"datastream {verb}: {error}") from None


def _limits(args: "Namespace") -> dict[str, Any]:
    given = {
        "clients_max": args.max_clients,
        "write_timeout_s": args.write_timeout,
        "inactivity_timeout_s": args.inactivity_timeout,
    }
    return {name: value for name, value in given.items() if value is not None}


def run_serve(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        key = resolved_log(store, args.words[0])
        run_serving(partial(_serve_until_signal, store, key, args, terminal))
    return DONE


async def _serve_until_signal(
    store: Store, key: LogKey, args: "Namespace", terminal: "Terminal"
) -> None:
    import trio

    from gateways.datastream import DataStreamServer

    async with until_signal(terminal, _describe) as events:
        listen = args.listen or DEFAULT_LISTEN
        async with DataStreamServer(
            store, key, listen=listen, observer=events.take, **_limits(args)
        ) as server:
            warn_beyond_loopback(server.address, terminal, "read the stream")
            await trio.Event().wait()


def _describe(event: Mapping[str, object]) -> str | None:
    name = event["event"]
    if name == "listening":
        return f"listening on {event['address']}"
    if name == "waiting":
        return f"waiting: {event['reason']}"
    if name == "position":
        return counted(int(str(event["total_entries"])), "entry")
    if name == "client":
        return None
    if name == "client_gone" and not event["reason"]:
        return None
    if name == "truncated":
        return f"given up: {counted(int(str(event['total_entries'])), 'entry')} left"
    words = str(name).replace("_", " ")
    place, reason = event.get("address"), event.get("reason")
    said = words if place is None else f"{words} {place}"
    return f"{said}: {reason}" if reason else said


def run_relay(args: "Namespace", terminal: "Terminal") -> int:
    where = parsed(tcp_address, args.words[0], args.verb)
    with opened_store(args) as store:
        Asker(store, [args.log_id], terminal, always=None).ask()
        run_serving(partial(_relay_until_signal, store, where, args, terminal))
    return DONE


async def _relay_until_signal(
    store: Store,
    where: Any,  # noqa: ANN401 - an address
    args: "Namespace",
    terminal: "Terminal",
) -> None:
    import trio

    from gateways.datastream import DataStreamServer, relay

    async with until_signal(terminal, _describe) as events:
        declared = trio.Event()

        async def serve() -> None:
            await declared.wait()
            key = LogKey(store.author, args.log_id)
            async with DataStreamServer(
                store, key, listen=args.listen, observer=events.take, **_limits(args)
            ) as server:
                warn_beyond_loopback(server.address, terminal, "read the stream")
                await trio.Event().wait()

        async with trio.open_nursery() as nursery:
            if args.listen is not None:
                nursery.start_soon(serve)
            await relay(
                store,
                where,
                log_id=args.log_id,
                stream_type=1 if args.stream_type is None else args.stream_type,
                once=bool(args.once),
                follow_truncation=bool(args.follow_truncation),
                observer=events.take,
                declared=lambda _: declared.set(),
            )
            nursery.cancel_scope.cancel()
