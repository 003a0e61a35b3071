"""Chunks, and the address of a content chunk by its binary Merkle tree (spec section 2.7).

What is hashed are not the 4096 bytes as they stand but a tree of 64-byte pieces, so that one piece
of a chunk could be proved without the others. That makes 128 digests of a chunk, which is nearly
all that a node computes. The native core does it where there is one. Here a tree is worked out row
by row, each row joined into one value, and only as far as there is data: behind its end are
subtrees of nothing but zeros, which are the same for all chunks.

The address says nothing of how long the data is, since zeros are put behind it: span and payload
are what a reader of files compares with each other.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from sha3 import keccak_256

from gateways.reading import CodecError
from gateways.swarm.feeds import read_update
from wire import NATIVE

ADDRESS_BYTES: Final = 32
SPAN_BYTES: Final = 8
SPAN_MAX: Final = (1 << 8 * SPAN_BYTES) - 1
PAYLOAD_BYTES_MAX: Final = 4096
CHUNK_BYTES_MAX: Final = SPAN_BYTES + PAYLOAD_BYTES_MAX
_PIECE_BYTES: Final = 2 * ADDRESS_BYTES
_ROWS: Final = (PAYLOAD_BYTES_MAX // _PIECE_BYTES).bit_length() - 1
"""Above that of the pieces' hashes, each of half as many."""


class Kind(StrEnum):
    """What some bytes are, where a chunk should be."""

    CONTENT = "content"
    FEED = "feed"
    """An update of a feed."""
    BAD = "bad"
    """No valid chunk, whatever the address."""


class Chunk(NamedTuple):
    """A chunk and what it is."""

    address: bytes
    """32 bytes; none of a bad one."""
    encoded: bytes
    """As it is stored and sent: the span, 8 bytes, and the payload."""
    kind: Kind = Kind.CONTENT

    @property
    def span(self) -> int:
        """How many bytes of a file are in it or below it; 0 of an update."""
        return span_of(self.encoded)

    @property
    def payload(self) -> bytes:
        """What is behind the span: up to 4096 bytes."""
        return self.encoded[SPAN_BYTES:]


def _zero_nodes() -> tuple[bytes, ...]:
    """The hash of a subtree of zeros, from the row of the pieces' hashes up."""
    nodes = [keccak_256(bytes(_PIECE_BYTES)).digest()]
    while len(nodes) < _ROWS:
        nodes.append(keccak_256(nodes[-1] * 2).digest())
    return tuple(nodes)


_ZERO_NODES: Final = _zero_nodes()


def span_of(chunk: bytes) -> int:
    """The span that a chunk begins with."""
    return int.from_bytes(chunk[:SPAN_BYTES], "little")


def content_address(chunk: bytes) -> bytes:
    """The address of a chunk whose kind is content: 32 bytes (spec section 2.7).

    Takes the whole chunk, its span in front. Raises ValueError if it has not 9 to 4104 bytes.
    """
    return python_content_address(chunk) if NATIVE is None else NATIVE.content_address(chunk)


def python_content_address(chunk: bytes) -> bytes:
    """`content_address` without the native core."""
    if not SPAN_BYTES < len(chunk) <= CHUNK_BYTES_MAX:
        raise ValueError(f"a chunk of {len(chunk)} bytes: it has 9 to 4104")
    row = chunk[SPAN_BYTES:]
    row += bytes(-len(row) % _PIECE_BYTES)
    # Plain slices and a list of digests: what is shorter here is slower, 128 times a chunk.
    row = b"".join([keccak_256(row[at : at + 64]).digest() for at in range(0, len(row), 64)])
    for zero_node in _ZERO_NODES:
        if len(row) % _PIECE_BYTES:
            row += zero_node
        row = b"".join([keccak_256(row[at : at + 64]).digest() for at in range(0, len(row), 64)])
    address: bytes = keccak_256(chunk[:SPAN_BYTES] + row).digest()
    return address


def content_chunk(span: int, payload: bytes) -> Chunk:
    """A content chunk of a span (1 to 2^64 - 1) and a payload (1 to 4096 bytes).

    Raises ValueError for another span or payload.
    """
    if not 1 <= span <= SPAN_MAX:
        raise ValueError(f"a span of {span}: it is 1 to 2^64 - 1")
    if not 1 <= len(payload) <= PAYLOAD_BYTES_MAX:
        raise ValueError(f"a payload of {len(payload)} bytes: it has 1 to {PAYLOAD_BYTES_MAX}")
    encoded = span.to_bytes(SPAN_BYTES, "little") + payload
    return Chunk(content_address(encoded), encoded)


def read_chunk(data: bytes) -> Chunk:
    """What some bytes are as a chunk, of whatever address; bad ones too, so that it never fails."""
    if SPAN_BYTES < len(data) <= CHUNK_BYTES_MAX:
        if span_of(data):
            return Chunk(content_address(data), data)
        try:
            return Chunk(read_update(data).address, data, Kind.FEED)
        except CodecError:
            pass  # `read_update` tells who wants to know why
    return Chunk(b"", data, Kind.BAD)


def is_valid(address: bytes, chunk: bytes) -> bool:
    """Whether some bytes are a valid chunk of this address, of either kind (spec section 2.7)."""
    return len(address) == ADDRESS_BYTES and read_chunk(chunk).address == address
