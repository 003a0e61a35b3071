"""`swarm serve`: a node among others, beside `serve`, until it is interrupted."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from local_api import u64
from peer import counted

from .asking import Asker
from .errors import DONE, WrongUsage
from .gateway_serving import run_serving, until_signal
from .online import tcp_address
from .settings import Parser
from .swarm_store import network_of, sided

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Store

    from .terminal import Terminal

DEFAULT_LISTEN: Final = "127.0.0.1:7017"
_SHORT: Final = 8


def serve_flags(parser: Parser) -> None:
    """The flags of `swarm serve`."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=tcp_address,
        own_variable="swarm-listen",
        help=f"where peers reach the node, port 0 picks one (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--no-listen",
        action="store_true",
        default=None,
        own_variable="swarm-no-listen",
        help="only calls others",
    )
    parser.add_argument(
        "--connect",
        metavar="ENODE",
        action="append",
        default=None,
        own_variable="swarm-connect",
        help="calls this peer, enode://PUBLIC_KEY@HOST:PORT, again and again; repeatable",
    )
    parser.add_argument(
        "--light",
        action="store_true",
        default=None,
        own_variable="swarm-light",
        help="looks chunks up, and takes part in no syncing",
    )
    parser.add_argument(
        "--max-chunks",
        metavar="N",
        type=u64,
        own_variable="swarm-max-chunks",
        help="beyond so many nothing more is synced to here (default: 1000000)",
    )


def run_serve(args: "Namespace", terminal: "Terminal") -> int:
    """Serves the node, and syncs with its peers."""
    from gateways.swarm import node_of, parse_enode
    from gateways.swarm.declared import LOGS

    if args.listen and args.no_listen:
        raise WrongUsage("swarm serve: --listen and --no-listen contradict each other")
    with sided(args) as (store, side, _):
        node = node_of(store, side)
        for each in args.connect or ():
            try:
                enode = parse_enode(each)
            except ValueError as error:
                raise WrongUsage(f"swarm serve --connect: {error}") from None
            if enode.public == node.key.public:
                raise WrongUsage(f"swarm serve --connect: {each[:40]}... is this node itself")
        logs = range(node.first_log, node.first_log + LOGS)
        Asker(store, logs, terminal, always=None).ask()
        run_serving(partial(_serve_until_signal, store, args, terminal))
    return DONE


async def _serve_until_signal(store: "Store", args: "Namespace", terminal: "Terminal") -> None:
    import trio

    from gateways.swarm import CHUNKS_MAX, SwarmServer

    async with (
        until_signal(terminal, _describe) as events,
        SwarmServer(
            store,
            network=network_of(store),
            light=bool(args.light),
            chunks_max=CHUNKS_MAX if args.max_chunks is None else args.max_chunks,
            observer=events.take,
        ) as server,
    ):
        if not args.no_listen:
            listening = args.listen or tcp_address(DEFAULT_LISTEN)
            await server.listen(listening)
            if not listening.is_loopback:
                terminal.note(
                    f"warning: listening on {listening}: everybody who can reach this address and"
                    " knows the node's enode can take its chunks and bring some"
                )
        for each in args.connect or ():
            server.connect(each)
        await trio.Event().wait()


def _describe(event: Mapping[str, object]) -> str | None:
    match event["event"]:
        case "listening":
            return f"listening on {event['enode']}"
        case "connected":
            return f"connected with {_short(event['overlay'])}, {event['enode']}"
        case "disconnected":
            return f"{event.get('enode') or event['address']}: {event['reason']}"
        case "synced":
            chunks, bins = event["chunks"], event["bins"]
            assert isinstance(chunks, int)
            assert isinstance(bins, int)
            what = f"{counted(chunks, 'chunk')} in {counted(bins, 'bin')}"
            return f"synced with {_short(event['overlay'])}: {what}"
        case "fully_synced":
            return None
        case "full":
            return f"full: {event['chunks']} chunks are held, nothing more is synced to here"
        case _:
            return f"{str(event['event']).replace('_', ' ')}: {event['reason']}"


def _short(overlay: object) -> str:
    return str(overlay)[:_SHORT]
