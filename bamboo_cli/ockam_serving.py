"""`ockam serve`: a hub beside `serve`, until it is interrupted."""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from logstore import Store
from peer import counted
from wire import LogKey

from .asking import Asker
from .errors import DONE, WrongUsage
from .gateway_serving import run_serving, until_signal, warn_beyond_loopback
from .online import tcp_address
from .opening import opened_store

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.ockam import Side

    from .terminal import Terminal

DEFAULT_LISTEN: Final = "127.0.0.1:4000"
NEXT_ASKED: Final = 16
"""Logs that are not there and asked about at first, in the same call as those that are."""
_RIGHTS: Final = {"": "ALL", "no-create": "NO_CREATE", "read-only": "READ_ONLY"}


def listener(text: str) -> tuple[Any, str]:
    """`HOST:PORT`, and behind a comma what its clients may not do. Raises ValueError."""
    where, comma, rights = text.partition(",")
    if rights not in _RIGHTS or bool(comma) != bool(rights):
        raise ValueError(f"{rights[:40]!r} is neither no-create nor read-only")
    return tcp_address(where), _RIGHTS[rights]


def server_options(args: "Namespace") -> dict[str, Any]:
    """What the flags say of an `OckamServer`. Raises WrongUsage."""
    from gateways.ockam import Rule

    given = {
        "of": args.of,
        "share": args.share,
        "hold_s": args.hold,
        "streams_max": args.max_streams,
        "first_log": args.first_log,
    }
    options = {name: value for name, value in given.items() if value is not None}
    try:
        options["keep"] = [Rule.parse(each) for each in args.keep or ()]
    except ValueError as error:
        raise WrongUsage(f"ockam serve --keep: {error}") from None
    if not 0 <= options.get("hold_s", 0) <= 5:
        raise WrongUsage("ockam serve --hold: 5 s at most")
    return options


def run_serve(args: "Namespace", terminal: "Terminal") -> int:
    options = server_options(args)
    with opened_store(args) as store:
        ask_of_all(store, args.first_log, terminal)
        run_serving(partial(_serve_until_signal, store, args, options, terminal))
    return DONE


def ask_of_all(store: Store, first_log: int | None, terminal: "Terminal") -> None:
    """Asks peers whether this store has the newest of its ledger and its streams. Raises Problem.

    And about those that it would make next: they may have been made after a backup, and before that
    was put back. While somebody holds one of them, it is asked about twice as many that follow.
    """
    from gateways import free_ids
    from gateways.ockam import FIRST_LOG, Side

    side = Side(store)
    try:
        side.refresh()
        streams = [stream.key.log_id for stream in side.streams(store.author)]
        ledger = ledger_id(store, side, first_log)
    finally:
        side.close()
    known, count = [ledger, *streams], NEXT_ASKED
    while True:
        free = free_ids(store, FIRST_LOG if first_log is None else first_log)
        following = [*islice(free, count)]
        Asker(store, known, terminal, always=None, following=following).ask()
        if not any(store.log(LogKey(store.author, each)) for each in following):
            return
        known, count = following, 2 * count


def ledger_id(store: Store, side: "Side", first_log: int | None) -> int:
    """The log of the ledger: where it is, or where it would be made."""
    from gateways.ockam import FIRST_LOG

    found = side.ledger(store.author)
    if found is not None:
        return found.key.log_id
    return FIRST_LOG if first_log is None else first_log


async def _serve_until_signal(
    store: Store, args: "Namespace", options: Mapping[str, Any], terminal: "Terminal"
) -> None:
    import trio

    from gateways.ockam import OckamServer, Rights

    async with (
        until_signal(terminal, _describe) as events,
        OckamServer(store, observer=events.take, **options) as server,
    ):
        for where, rights in args.listen or [listener(DEFAULT_LISTEN)]:
            found = await server.listen(where, rights=Rights[rights])
            warn_beyond_loopback(found, terminal, "use it")
        await trio.Event().wait()


def _describe(event: Mapping[str, object]) -> str | None:
    match event["event"]:
        case "listening":
            return f"listening on {event['address']}"
        case "stream":
            return f"stream {event['stream']}/{event['partition']}"
        case "trimmed":
            count = counted(int(str(event["count"])), "message")
            where = f"{event['stream']}/{event['partition']}"
            return f"trimmed {where} to {event['earliest']}: {count} dropped"
        case "closed" | "unknown_address":
            return f"{event['address']}: {event['reason']}"
        case _:
            return f"{str(event['event']).replace('_', ' ')}: {event['reason']}"
