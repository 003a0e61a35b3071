"""`swarm VERB`: files and chunks by their hashes, over our logs (docs/swarm.md)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from local_api import u64
from peer import counted, json_number, log_fields
from wire import U64_MAX

from .asking import Asker
from .errors import DONE, FAILED, Problem, WrongUsage
from .settings import Parser
from .swarm_getting import get_flags, run_get
from .swarm_serving import run_serve, serve_flags
from .swarm_store import NETWORK_NAME, hash_of, needing_extra, network_of, served_state, sided
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from .terminal import Terminal

READ_BYTES: Final = 1 << 18


def _init_flags(parser: Parser) -> None:
    parser.add_argument(
        "--log-id",
        metavar="BASE",
        type=u64,
        own_variable="swarm-log-id",
        help="where the node's 36 logs begin (default: 7000)",
    )
    parser.add_argument(
        "--network", metavar="N", type=u64, help="which network its peers are of (default: 3)"
    )


def _put_flags(parser: Parser) -> None:
    parser.add_argument(
        "--log-id",
        metavar="N",
        type=u64,
        own_variable="swarm-put-log-id",
        help="into another log of chunks, made if need be (default: the node's)",
    )


def run_init(args: "Namespace", terminal: "Terminal") -> int:
    """Makes a node in the store."""
    from gateways.swarm import make_node
    from gateways.swarm.declared import FIRST_LOG, LOGS

    with sided(args) as (store, side, _):
        first = FIRST_LOG if args.log_id is None else args.log_id
        if first + LOGS - 1 > U64_MAX:
            raise WrongUsage(f"swarm init: there is no room for {LOGS} logs from {first} on")
        Asker(store, range(first, first + LOGS), terminal, always=None).ask()
        node = make_node(store, side, store.append_many, args.log_id)
        network = network_of(store) if args.network is None else args.network
        store.remember(NETWORK_NAME, str(network).encode())
    fields = {
        "overlay": node.overlay.hex(),
        "public_key": node.key.public.hex(),
        "log_id": json_number(node.first_log),
        "network": json_number(network),
    }
    terminal.result(fields, f"overlay {node.overlay.hex()}")
    return DONE


def run_put(args: "Namespace", terminal: "Terminal") -> int:
    """Puts files into a log of chunks."""
    from gateways.swarm import declare_chunks, node_of

    if not args.words:
        raise WrongUsage("swarm put: it needs FILE..., `-` is standard input")
    has_failed = False
    with sided(args) as (store, side, chunks):
        log_id = node_of(store, side).chunk_log if args.log_id is None else args.log_id
        Asker(store, [log_id], terminal, always=None).ask()
        if args.log_id is not None:
            declare_chunks(store, store.append_many, log_id)
        for name in args.words:
            try:
                with _opened(name, terminal) as source:
                    stored = chunks.put(store.append_many, log_id, _parts(source, name))
            except (Problem, ValueError) as error:
                # What is wrong with one keeps nobody from the others.
                has_failed = True
                text = str(error) if isinstance(error, Problem) else f"{name}: {error}"
                terminal.note(text)
                continue
            fields = {
                "hash": stored.hash.hex(),
                "file": name,
                "bytes": json_number(stored.bytes),
                "chunks": stored.chunks,
                "new": stored.new,
            }
            said = f"{counted(stored.chunks, 'chunk')}, {stored.new} new"
            terminal.result(fields, f"{stored.hash.hex()}  {name}  {said}")
            terminal.flush()
    return FAILED if has_failed else DONE


@contextmanager
def _opened(name: str, terminal: "Terminal") -> Iterator[BinaryIO]:
    if name == "-":
        yield terminal.input
        return
    try:
        file = open(name, "rb")  # noqa: PTH123, SIM115 - as it was given
    except OSError as error:
        raise Problem(f"{name}: {error.strerror}") from None
    with file:
        yield file


def _parts(source: BinaryIO, name: str) -> Iterator[bytes]:
    while True:
        try:
            part = source.read(READ_BYTES)
        except OSError as error:
            raise Problem(f"{name}: {error.strerror}") from None
        if not part:
            return
        yield part


def run_chunks(args: "Namespace", terminal: "Terminal") -> int:
    """Lists chunks, or those with one address."""
    from gateways.swarm import in_pages
    from gateways.swarm.bmt import Chunk

    if len(args.words) > 1:
        raise WrongUsage("swarm chunks: one HASH, or none")
    wanted = hash_of(args.words[0]) if args.words else None
    is_there = wanted is None
    with sided(args, readonly=True) as (_, side, chunks):
        for place in in_pages(side) if wanted is None else side.places(wanted):
            is_there = True
            encoded = chunks.at(place)
            fields: dict[str, Any] = {"address": place.address.hex(), "kind": str(place.kind)}
            if encoded is not None:
                chunk = Chunk(place.address, encoded, place.kind)
                fields |= {"span": json_number(chunk.span), "bytes": len(chunk.payload)}
            fields |= {**log_fields(place.log), "seq": json_number(place.seq)}
            item = side.item(place.address)
            fields["bin"], fields["index"] = (None, None) if item is None else item
            fields["held"] = encoded is not None
            size = "deleted" if encoded is None else counted(fields["bytes"], "byte")
            terminal.result(
                fields, f"{place.address.hex()}  {place.kind}  {size}  {place.log}/{place.seq}"
            )
    if not is_there:
        raise Problem(f"chunk {args.words[0]} is not held")
    return DONE


def run_status(args: "Namespace", terminal: "Terminal") -> int:
    """How it stands with the node, and, where one serves, with its peers."""
    from gateways.swarm import node_of

    with sided(args, readonly=True) as (store, side, _):
        node = node_of(store, side)
        held, bad = side.counts()
        bins, _ = side.bins()
        state = served_state(store)
    fields: dict[str, Any] = {
        "overlay": node.overlay.hex(),
        "depth": None,
        "serving": state is not None,
        "chunks": held,
        "bad": bad,
        "bins": [
            {"bin": each.bin, "items": each.newest, "gone": 0, "root": each.state.root().hex()}
            for _, each in sorted(bins.items())
        ],
        "peers": [],
        "fully_synced": False,
        **(state or {}),
    }
    if terminal.as_json:
        terminal.record(fields)
        return DONE
    filled = [each for each in fields["bins"] if each["items"]]
    terminal.listing(
        [
            *(("overlay", fields["overlay"]), ("chunks", held), ("no chunks", bad)),
            *((f"bin {each['bin']}", f"{each['items']}  {each['root']}") for each in filled),
            ("serving", "yes" if fields["serving"] else "no"),
            *((f"peer {each['overlay'][:8]}", _peer_words(each)) for each in fields["peers"]),
        ]
    )
    return DONE


def _peer_words(peer: "Mapping[str, Any]") -> str:
    if peer["light"]:
        standing = "light"
    elif peer["synced"]:
        standing = "synced"
    else:
        standing = f"syncing for {peer['lag_s']:g} s"
    moved = f"{peer['received']} received, {peer['sent']} sent, {peer['duplicates']} duplicates"
    return f"{standing}, {moved}, {peer['enode']}"


def run_intervals(args: "Namespace", terminal: "Terminal") -> int:
    """What was had of the streams of peers."""
    with sided(args, readonly=True) as (_, side, _):
        for each in side.intervals():
            stream = f"{each.name}|{each.key}"
            fields = {"overlay": each.overlay.hex(), "stream": stream, "text": each.text}
            terminal.result(
                {**fields, "verified": None}, f"{fields['overlay']}  {stream}  {each.text}"
            )
    return DONE


COMMANDS: Final = {
    "swarm": Verbs(
        "swarm",
        "keep files as chunks in logs, each by its hash",
        {
            "init": Verb(
                "", "make the node: its key and its logs", needing_extra(run_init), _init_flags
            ),
            "put": Verb("FILE...", "put files into the store", needing_extra(run_put), _put_flags),
            "get": Verb("HASH", "write a file, or a part of it", needing_extra(run_get), get_flags),
            "serve": Verb(
                "", "serve the node, and sync with peers", needing_extra(run_serve), serve_flags
            ),
            "chunks": Verb("[HASH]", "list the chunks that are held", needing_extra(run_chunks)),
            "intervals": Verb(
                "", "what was had of the streams of peers", needing_extra(run_intervals)
            ),
            "status": Verb("", "how it stands with the node", needing_extra(run_status)),
        },
    )
}
