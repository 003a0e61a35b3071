"""`swarm VERB`: files and chunks by their hashes, over our logs (docs/swarm.md)."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from peer import counted, json_number, log_fields
from wire import U64_MAX

from .asking import Asker
from .errors import DONE, FAILED, Problem, WrongUsage
from .opening import opened_store
from .settings import Parser
from .values import u64
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.swarm import Chunks, Side
    from gateways.swarm.files import FileError
    from logstore import Store

    from .terminal import Terminal

READ_BYTES: Final = 1 << 18
NETWORK: Final = 3
_NETWORK_NAME: Final = "swarm/network"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_RANGE: Final = re.compile(r"(\d{1,19})\.\.(\d{1,19})?")
_EXTRA: Final = "chunks of Swarm need more: pip install 'bamboo-peer[swarm]'"


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


def _get_flags(parser: Parser) -> None:
    parser.add_argument(
        "--range",
        metavar="A..B",
        type=_range,
        own_variable="swarm-range",
        help="bytes A to B, counted from 0, both among them; A.. to the end",
    )
    parser.add_argument(
        "--to", metavar="FILE", own_variable="swarm-to", help="writes there (default: to output)"
    )


def _range(text: str) -> tuple[int, int | None]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError("A..B is wanted, bytes counted from 0, or A..")
    first, last = int(found[1]), None if found[2] is None else int(found[2])
    if last is not None and last < first:
        raise ValueError(f"it ends before it begins: {text}")
    return first, last


def _hash(text: str) -> bytes:
    if _HASH.fullmatch(text) is None:
        raise WrongUsage(f"swarm: {text[:80]!r} is no hash: 64 hexadecimal digits")
    return bytes.fromhex(text)


def _check_extra() -> None:
    """Raises Problem where what Swarm needs is not installed."""
    try:
        import coincurve  # noqa: F401 - whether it is there
        import sha3  # noqa: F401
    except ImportError:
        raise Problem(_EXTRA) from None


@contextmanager
def _sided(args: "Namespace", *, readonly: bool = False) -> "Iterator[tuple[Store, Side, Chunks]]":
    """The store, its side table brought up to date, and its chunks."""
    _check_extra()
    from gateways.swarm import Chunks, Side

    with ExitStack() as stack:
        store = stack.enter_context(opened_store(args, readonly=readonly))
        side = Side(store)
        stack.callback(side.close)
        side.refresh()
        yield store, side, Chunks(store, side)


def run_init(args: "Namespace", terminal: "Terminal") -> int:
    """Makes a node in the store."""
    from gateways.swarm import make_node
    from gateways.swarm.declared import FIRST_LOG, LOGS

    with _sided(args) as (store, side, _):
        first = FIRST_LOG if args.log_id is None else args.log_id
        if first + LOGS - 1 > U64_MAX:
            raise WrongUsage(f"swarm init: there is no room for {LOGS} logs from {first} on")
        Asker(store, range(first, first + LOGS), terminal, always=None).ask()
        node = make_node(store, side, store.append_many, args.log_id)
        kept = store.recall(_NETWORK_NAME)
        network = args.network
        if network is None:
            network = NETWORK if kept is None else int(kept)
        store.remember(_NETWORK_NAME, str(network).encode())
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
    with _sided(args) as (store, side, chunks):
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


def run_get(args: "Namespace", terminal: "Terminal") -> int:
    """Writes a file, or a part of it."""
    from gateways.swarm.files import FileError

    if len(args.words) != 1:
        raise WrongUsage("swarm get: it needs HASH")
    root = _hash(args.words[0])
    first, last = args.range or (0, None)
    with _sided(args, readonly=True) as (_, _, chunks):
        parts = chunks.read(root, first, last)
        try:
            if args.to is None:
                for part in parts:
                    terminal.data(part)
                terminal.flush()
            else:
                _write_file(parts, Path(args.to))
        except FileError as error:
            raise _lacking(error) from None
    return DONE


def _write_file(parts: Iterator[bytes], path: Path) -> None:
    """A file that is there whole, or as it was before."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.writelines(parts)
        temporary.replace(path)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _lacking(error: "FileError") -> Problem:
    from gateways.swarm.files import ChunkMissingError

    if isinstance(error, ChunkMissingError):
        return Problem(f"chunk {error.address.hex()} is not held")
    return Problem(str(error))


def run_chunks(args: "Namespace", terminal: "Terminal") -> int:
    """Lists chunks, or those with one address."""
    from gateways.swarm import in_pages
    from gateways.swarm.bmt import Chunk

    if len(args.words) > 1:
        raise WrongUsage("swarm chunks: one HASH, or none")
    wanted = _hash(args.words[0]) if args.words else None
    is_there = wanted is None
    with _sided(args, readonly=True) as (_, side, chunks):
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
    """How it stands with the node."""
    from gateways.swarm import node_of

    with _sided(args, readonly=True) as (store, side, _):
        node = node_of(store, side)
        held, bad = side.counts()
        bins, _ = side.bins()
    fields: dict[str, Any] = {"overlay": node.overlay.hex(), "chunks": held, "bad": bad}
    fields["bins"] = [
        {"bin": each.bin, "items": each.newest, "gone": 0, "root": each.state.root().hex()}
        for _, each in sorted(bins.items())
    ]
    if terminal.as_json:
        terminal.record(fields)
        return DONE
    filled = [each for each in fields["bins"] if each["items"]]
    terminal.listing(
        [
            *(("overlay", node.overlay.hex()), ("chunks", held), ("no chunks", bad)),
            *((f"bin {each['bin']}", f"{each['items']}  {each['root']}") for each in filled),
        ]
    )
    return DONE


def run_intervals(args: "Namespace", terminal: "Terminal") -> int:
    """What was had of the streams of peers."""
    with _sided(args, readonly=True) as (_, side, _):
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
            "init": Verb("", "make the node: its key and its logs", run_init, _init_flags),
            "put": Verb("FILE...", "put files into the store", run_put, _put_flags),
            "get": Verb("HASH", "write a file, or a part of it", run_get, _get_flags),
            "chunks": Verb("[HASH]", "list the chunks that are held", run_chunks),
            "intervals": Verb("", "what was had of the streams of peers", run_intervals),
            "status": Verb("", "how it stands with the node", run_status),
        },
    )
}
