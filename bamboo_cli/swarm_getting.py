"""`swarm get`: a file or a part of it, from the store, and from peers what is lacking there.

Where a node serves this store, it fetches what is lacking: it is left a wish, and the chunks come
into the store. Where none does, the command is the node itself for as long as it takes.
"""

import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local_api import seconds
from peer import json_number

from .errors import DONE, TIMED_OUT, Problem, WrongUsage
from .opening import opened_store
from .settings import Parser
from .swarm_store import hash_of, is_served, network_of, sided

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.swarm import Chunks, Side, Wish
    from logstore import Store

    from .terminal import Terminal

TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.01
_RANGE: Final = re.compile(r"(\d{1,19})\.\.(\d{1,19})?")

Sink = Callable[[bytes], object]


def get_flags(parser: Parser) -> None:
    """The flags of `swarm get`."""
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
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="ENODE",
        own_variable="swarm-from",
        help="looks there for what is not held",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        own_variable="swarm-timeout",
        help="gives up when nothing has come for so long (default: 60)",
    )


def _range(text: str) -> tuple[int, int | None]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError("A..B is wanted, bytes counted from 0, or A..")
    first, last = int(found[1]), None if found[2] is None else int(found[2])
    if last is not None and last < first:
        raise ValueError(f"it ends before it begins: {text}")
    return first, last


def run_get(args: "Namespace", terminal: "Terminal") -> int:
    """Writes a file, or a part of it."""
    from gateways.swarm import parse_enode
    from gateways.swarm.files import ChunkMissingError, FileError

    if len(args.words) != 1:
        raise WrongUsage("swarm get: it needs HASH")
    root = hash_of(args.words[0])
    if args.from_ is not None:
        try:
            parse_enode(args.from_)
        except ValueError as error:
            raise WrongUsage(f"swarm get --from: {error}") from None
    try:
        if args.to is None:
            lines = _Lines(root, args.range, terminal)
            _Getting(args, root, lines.take if terminal.as_json else terminal.data).run()
            terminal.flush()
        else:
            with _file_written(Path(args.to)) as sink:
                count = _Getting(args, root, sink).run()
            if terminal.as_json:
                path = str(Path(args.to).absolute())
                terminal.record({"hash": root.hex(), "file": path, "bytes": json_number(count)})
    except ChunkMissingError as error:
        raise Problem(f"chunk {error.address.hex()} is not held") from None
    except FileError as error:
        raise Problem(str(error)) from None
    return DONE


class _Lines:
    """A file as lines of JSON: where each piece is in it, and its bytes."""

    def __init__(
        self, root: bytes, range_: tuple[int, int | None] | None, terminal: "Terminal"
    ) -> None:
        self._root = root
        self._offset = 0 if range_ is None else range_[0]
        self._terminal = terminal

    def take(self, part: bytes) -> None:
        """Prints a piece."""
        where = {"hash": self._root.hex(), "offset": json_number(self._offset)}
        self._terminal.record(where | {"base64": b64encode(part).decode()})
        self._offset += len(part)


@contextmanager
def _file_written(path: Path) -> Iterator[Sink]:
    """A file that is there whole, or as it was before."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        with temporary.open("wb") as file:
            yield file.write
        temporary.replace(path)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


class _Getting:
    """One file on its way into a sink. Raises FileError, Problem, StoreError."""

    def __init__(self, args: "Namespace", root: bytes, sink: Sink) -> None:
        self._args = args
        self._root = root
        self._sink = sink
        wanted: tuple[int, int | None] = args.range or (0, None)
        self._first, self._last = wanted
        self._timeout_s = TIMEOUT_S if args.timeout is None else args.timeout

    def _take(self, part: bytes) -> None:
        self._sink(part)
        # What is fetched, if something is lacking, begins where the store has ended.
        self._first += len(part)

    def run(self) -> int:
        """Gets it; returns how many bytes that were."""
        begun = self._first
        self._run()
        return self._first - begun

    def _run(self) -> None:
        from gateways.swarm.files import ChunkMissingError

        lacking: ChunkMissingError
        with sided(self._args, readonly=True) as (store, side, chunks):
            try:
                for part in chunks.read(self._root, self._first, self._last):
                    self._take(part)
            except ChunkMissingError as error:
                lacking = error
            else:
                return
            if is_served(store):
                self._wish(side, chunks)
                return
        if self._args.from_ is None:
            raise lacking
        self._fetch()

    # By the node that serves ---------------------------------------------------------------------

    def _wish(self, side: "Side", chunks: "Chunks") -> None:
        from gateways.swarm import Wish, wish_name

        name = wish_name()
        wish = Wish(self._root, self._first, self._last, self._args.from_)
        with opened_store(self._args) as store:
            store.remember(name, wish.encode())
            try:
                self._read_on(store, name, wish, side, chunks)
            finally:
                store.remember(name, None)

    def _read_on(
        self, store: "Store", name: str, wish: "Wish", side: "Side", chunks: "Chunks"
    ) -> None:
        """Reads what comes into the store, until the wish is taken out."""
        from gateways.swarm.files import FileReader

        reader = FileReader(self._root, wish.first, wish.last, check_addresses=False)
        give_up = time.monotonic() + self._timeout_s
        version: int | None = None
        while (wanted := reader.wanted) is not None:
            chunk = chunks.get(wanted)
            if chunk is None and time.monotonic() < give_up:
                current = store.data_version()
                if current == version and is_served(store):
                    time.sleep(LOOK_S)
                    continue
                # Taken out before it is looked for once more: what was fetched is there by then.
                is_over = store.recall(name) is None or not is_served(store)
                version = current
                side.refresh()
                chunk = chunks.get(wanted)
                if chunk is None and not is_over:
                    continue
            part = reader.take(chunk)
            give_up = time.monotonic() + self._timeout_s
            if part:
                self._take(part)

    # By ourselves --------------------------------------------------------------------------------

    def _fetch(self) -> None:
        from .online import run_trio

        with sided(self._args) as (store, _, _):
            run_trio(partial(self._fetch_into, store))

    async def _fetch_into(self, store: "Store") -> None:
        import trio

        from gateways.swarm import SwarmServer

        async with SwarmServer(store, network=network_of(store), light=True) as node:
            node.connect(self._args.from_)
            parts = node.get(self._root, first=self._first, last=self._last)
            while True:
                with trio.move_on_after(self._timeout_s):
                    part = await anext(parts, None)
                    if part is None:
                        return
                    self._take(part)
                    continue
                raise Problem(f"nothing has come for {self._timeout_s:g} s", TIMED_OUT)
