"""A node's logs, and chunks and files in them (spec section 4). Blocks."""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gateways import Sign, create_logs, sound_entry
from gateways.swarm.bmt import Chunk
from gateways.swarm.declared import CHUNKS, FIRST_LOG, LOGS, ChunksDeclared, declarations, declare
from gateways.swarm.files import FileReader, FileSplitter, Fit, fit_of
from gateways.swarm.keys import Key, overlay_of
from logstore import LogMoved, Store, StoreDamaged
from wire import U64_MAX, LogKey

from .key_file import NotANode, make_key, read_key
from .side import Place, Side

_log = logging.getLogger(__name__)

TOGETHER_CHUNKS: Final = 1_000
"""Signed in one transaction."""
_VARIANTS_MAX: Final = 64
"""Chunks of one address that are looked at."""


class Node(NamedTuple):
    """A Swarm node in a store."""

    key: Key
    overlay: bytes
    first_log: int

    @property
    def chunk_log(self) -> int:
        """Where its chunks go."""
        return self.first_log + CHUNKS


def node_of(store: Store, side: Side) -> Node:
    """The node in a store. Raises NotANode, StoreError."""
    assert store.path is not None
    key = read_key(store.path)
    overlay = overlay_of(key.public)
    found = side.first_logs(store.author, overlay)
    if not found:
        raise NotANode("the node's logs are not here", str(store.path), "`swarm init`")
    return Node(key, overlay, found[0])


def make_node(store: Store, side: Side, sign: Sign, first_log: int | None = None) -> Node:
    """Makes the key and the logs of a node, or finds them.

    `first_log`: where its logs begin, 7000 unless given. All first entries are signed in one
    transaction. Raises NotANode where an id has an entry, StoreError.
    """
    assert store.path is not None
    key = make_key(store.path)
    overlay = overlay_of(key.public)
    # There may have been no key when the table was opened.
    side.overlay = overlay
    side.refresh()
    found = side.first_logs(store.author, overlay)
    if found:
        return Node(key, overlay, found[0])
    first = FIRST_LOG if first_log is None else first_log
    if first + LOGS - 1 > U64_MAX:
        raise NotANode(f"no room for {LOGS} logs", str(first), "give another --log-id")
    try:
        create_logs(sign, declarations(overlay), first)
    except LogMoved as error:
        raise NotANode(
            "the log has entries already", error.where, "give another --log-id"
        ) from None
    side.refresh()
    return Node(key, overlay, first)


class Stored(NamedTuple):
    """What came of a file."""

    hash: bytes
    bytes: int
    chunks: int
    new: int
    """Chunks that were in no log."""


class Chunks:
    """The chunks of a store. `side` is brought on by who makes this."""

    def __init__(self, store: Store, side: Side) -> None:
        self._store = store
        self._side = side

    def places(self, address: bytes) -> list[Place]:
        """Where a chunk lies, own logs first: others may have written thousands of one address."""
        return self._side.places(address, self._store.author, _VARIANTS_MAX)

    def get(self, address: bytes, places: Iterable[Place] | None = None) -> bytes | None:
        """A chunk, as it is stored; None: it is not held. `places`: where it lies, if known.

        Of several with one address that which can be part of a file (`fit_of`), own ones first.
        """
        best: tuple[Fit, bytes] | None = None
        for chunk in self._held(self.places(address) if places is None else places):
            fit = fit_of(chunk)
            if best is None or fit < best[0]:
                best = fit, chunk
            if fit is Fit.LEAF:
                break
        return None if best is None else best[1]

    def holds(self, chunk: Chunk) -> bool:
        """Whether a chunk is held, byte for byte, and not deleted."""
        return any(each == chunk.encoded for each in self._held(self.places(chunk.address)))

    def _held(self, places: Iterable[Place]) -> Iterator[bytes]:
        for place in places:
            chunk = self.at(place)
            if chunk is not None:
                yield chunk

    def at(self, place: Place) -> bytes | None:
        """The chunk of an entry; None where it was deleted, or is damaged."""
        entry = sound_entry(self._store, place.log, place.seq, self._say_damaged)
        return None if entry is None else entry.payload

    def _say_damaged(self, error: StoreDamaged) -> None:
        self._side.seldom.warn(_log, error.where, f"it counts as missing: {error}")

    def read(self, root: bytes, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """The bytes of a file, or of a part of it. Raises FileError, ValueError, StoreError."""
        # What is in a table was compared with its address when it came.
        reader = FileReader(root, first, last, check_addresses=False)
        while (wanted := reader.wanted) is not None:
            data = reader.take(self.get(wanted))
            if data:
                yield data

    def put(self, sign: Sign, log_id: int, parts: Iterable[bytes]) -> Stored:
        """Splits a file, whose bytes come in any parts, into a log of chunks.

        What is in any log already is not written again. Raises ValueError for an empty file,
        StoreError; what was signed until then stays.
        """
        splitter = FileSplitter()
        writing = _Writing(self, self._side, sign, log_id)
        for part in parts:
            writing.add(splitter.feed(part))
        rest, root = splitter.finish()
        writing.add(rest)
        writing.write()
        return Stored(root, splitter.size, writing.chunks, writing.new)


class _Writing:
    """Chunks on their way into a log, as many together as are signed at once."""

    def __init__(self, chunks: Chunks, side: Side, sign: Sign, log_id: int) -> None:
        self._chunks = chunks
        self._side = side
        self._sign = sign
        self._log_id = log_id
        self._waiting: dict[bytes, Chunk] = {}
        self.chunks = 0
        self.new = 0

    def add(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.chunks += 1
            if chunk.address not in self._waiting and not self._chunks.holds(chunk):
                self._waiting[chunk.address] = chunk
                if len(self._waiting) >= TOGETHER_CHUNKS:
                    self.write()

    def write(self) -> None:
        waiting = [*self._waiting.values()]
        if not waiting:
            return
        [appended] = self._sign([(self._log_id, [chunk.encoded for chunk in waiting])])
        self._waiting.clear()
        self.new += len(waiting)
        for entry, chunk in zip(appended, waiting, strict=True):
            self._side.expect(entry.key, entry.seq, chunk.address, chunk.kind)
        self._side.refresh()


def declare_chunks(store: Store, sign: Sign, log_id: int) -> None:
    """Makes a further log for chunks, or finds that it is one. Raises NotANode, StoreError."""
    key = LogKey(store.author, log_id)
    declaration = declare(ChunksDeclared())
    first = store.entry(key, 1)
    if first is None:
        create_logs(sign, [declaration], log_id)
    elif first.payload != declaration:
        raise NotANode("the log is not one of chunks", str(key), "give another --log-id")
