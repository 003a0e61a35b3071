"""Files as trees of chunks: split into them, and any part joined again (spec section 2.9).

A file's leaves are its pieces of 4096 bytes. The addresses of 128 chunks are the payload of an
inner chunk, whose span says how many bytes are below it, and so on up to one chunk, whose address
is the file's hash. Where the addresses of a row do not fill groups of 128, the last group is
smaller, and a group of one is none: that address moves up and stands among those of the next row.

So the span of a chunk settles the shape of all below it: every child but the last is the largest
full tree that is smaller than the span, and the last one is the rest. A reader relies on that. It
finds any byte by going down one way, it knows of each child what span is due before it has it, and
it asks for nothing that is not on its way. What does not fit is refused where it shows: a tree is
somebody else's work, and its parts have right addresses however wrong it is.

Upstream's last release puts a full leaf that is alone in its group into an inner chunk of its own.
Such trees have other hashes, and are read as well: a chunk of one address stands for its child.
What is no longer settled is how often, so a limit to the way from the hash to a leaf is what keeps
a chain of such chunks from being endless. A way of nine chunks is what 2^63 bytes need. Nor does an
address say how long a payload is: a leaf of zeros behind its first 32 bytes has the address of such
a chunk, and whoever brings it without the zeros has it read as one.

Nothing here asks for a chunk itself. A splitter gives out chunks, a reader says which it wants.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import count
from typing import Final, NamedTuple

from gateways.swarm.bmt import (
    ADDRESS_BYTES,
    CHUNK_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SPAN_BYTES,
    Chunk,
    content_address,
    content_chunk,
    span_of,
)

LEAF_BYTES: Final = PAYLOAD_BYTES_MAX
BRANCHES: Final = PAYLOAD_BYTES_MAX // ADDRESS_BYTES
"""Addresses in an inner chunk: 128 at most."""
SIZE_MAX: Final = 1 << 63
DEPTH_MAX: Final = 9
"""Chunks on the way from a file's hash to a byte of it, both ends among them."""


class FileError(Exception):
    """A file that cannot be read on: which chunk is why, and what is wrong with it."""

    def __init__(self, address: bytes, why: str) -> None:
        super().__init__(f"chunk {address.hex()}: {why}")
        self.address = address
        self.why = why


class ChunkMissingError(FileError):
    """A chunk of the file that is not to be had."""

    def __init__(self, address: bytes) -> None:
        super().__init__(address, "it is missing")


class FileDamagedError(FileError):
    """A chunk that does not belong where it stands, or is no chunk of its address."""


def full_span(row: int) -> int:
    """Bytes of a full tree whose address is in that row; the leaves' addresses are row 0."""
    span: int = LEAF_BYTES * BRANCHES**row
    return span


# --- splitting ----------------------------------------------------------------------------------


class Rows:
    """The addresses that wait for their group to be full: a row of up to 127 for each level.

    That is all that has to be remembered of a tree that grows.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[bytes] = ()) -> None:
        """Goes on with rows that `rows` has returned, which are not looked at again."""
        self._rows = [bytearray(row) for row in rows]

    @property
    def rows(self) -> list[bytes]:
        """The addresses of each row, joined; that of the leaves is the first."""
        return [bytes(row) for row in self._rows]

    def append(self, address: bytes) -> list[Chunk]:
        """Takes the address of a leaf of 4096 bytes; returns the inner chunks that are full now."""
        made: list[Chunk] = []
        for level in count():
            if level == len(self._rows):
                self._rows.append(bytearray())
            row = self._rows[level]
            row += address
            if len(row) < PAYLOAD_BYTES_MAX:
                break
            made.append(content_chunk(full_span(level + 1), bytes(row)))
            row.clear()
            address = made[-1].address
        return made

    def close(self, last: Chunk | None) -> tuple[list[Chunk], bytes]:
        """The tree as it is, with a last leaf that is not full behind it, if there is one.

        Returns the inner chunks that are not full, and the hash of all: no bytes of nothing. It
        changes nothing, more may be appended.
        """
        made: list[Chunk] = []
        carried, span = (last.address, last.span) if last else (b"", 0)
        for level, row in enumerate(self._rows):
            members = bytes(row) + carried
            span += len(row) // ADDRESS_BYTES * full_span(level)
            if len(members) > ADDRESS_BYTES:
                made.append(content_chunk(span, members))
                members = made[-1].address
            # Otherwise a group of one, which moves up unchanged, or of none.
            carried = members
        return made, carried


class FileSplitter:
    """Makes chunks of a file's bytes, which come in any pieces.

    What it remembers is less than a leaf, and `Rows`; the chunks that it returns are the caller's.
    """

    __slots__ = ("_leaf", "_rows", "size")

    def __init__(self) -> None:
        self._leaf = bytearray()
        self._rows = Rows()
        self.size = 0
        """Bytes that were fed."""

    def feed(self, data: bytes) -> list[Chunk]:
        """Takes the next bytes; returns the chunks that are complete now, children first."""
        made: list[Chunk] = []
        self.size += len(data)
        self._leaf += data
        while len(self._leaf) >= LEAF_BYTES:
            leaf = content_chunk(LEAF_BYTES, bytes(self._leaf[:LEAF_BYTES]))
            del self._leaf[:LEAF_BYTES]
            made.append(leaf)
            made += self._rows.append(leaf.address)
        return made

    def finish(self) -> tuple[list[Chunk], bytes]:
        """The chunks that have not been returned, and the file's hash.

        Raises ValueError if nothing was fed: the empty file is not a file (spec section 2.9).
        """
        if not self.size:
            raise ValueError("an empty file has no chunks, and so no hash")
        leaf = content_chunk(len(self._leaf), bytes(self._leaf)) if self._leaf else None
        made, root = self._rows.close(leaf)
        return ([leaf, *made] if leaf else made), root


# --- joining ------------------------------------------------------------------------------------


class Child(NamedTuple):
    """A chunk that is due below another one."""

    address: bytes
    begin: int
    """The first byte of the file that is in it."""
    span: int | None
    """Bytes of the file that are in it; None of the file's hash, whose span is not known before."""
    depth: int
    """Chunks on the way to it, itself and the file's hash among them."""


def children(parent: Child, chunk: bytes, first: int, last: int) -> list[Child]:
    """The children of an inner chunk that have some of the bytes `first` to `last` of the file.

    Raises FileDamagedError if it has not as many addresses as its span needs, or stands so deep
    that it has to be a leaf.
    """
    span, size = span_of(chunk), len(chunk) - SPAN_BYTES
    depth = parent.depth + 1
    if depth > DEPTH_MAX:
        raise FileDamagedError(parent.address, f"no leaf after {DEPTH_MAX} chunks from the hash")
    if size == ADDRESS_BYTES:
        # As upstream wraps a leaf: the child is due as if it stood here itself.
        members, step = 1, span
    elif span <= LEAF_BYTES:
        raise FileDamagedError(
            parent.address, f"{size} bytes where a leaf of {span}, or one address, is due"
        )
    else:
        members, step = _shape(span)
    if size != members * ADDRESS_BYTES:
        raise FileDamagedError(
            parent.address, f"{size} bytes of addresses: the span {span} needs {members} addresses"
        )
    if first > last:
        return []
    low = max(first - parent.begin, 0) // step
    high = min((last - parent.begin) // step, members - 1)
    found: list[Child] = []
    for member in range(low, high + 1):
        at = SPAN_BYTES + member * ADDRESS_BYTES
        below = min(step, span - member * step)
        address = chunk[at : at + ADDRESS_BYTES]
        found.append(Child(address, parent.begin + member * step, below, depth))
    return found


def _shape(span: int) -> tuple[int, int]:
    """How many addresses an inner chunk of a span has, and of how many bytes all but the last."""
    step = LEAF_BYTES
    while step * BRANCHES < span:
        step *= BRANCHES
    return -(-span // step), step


class Fit(IntEnum):
    """Whether a chunk can be part of a file, the likelier the smaller."""

    LEAF = 0
    INNER = 1
    NONE = 2
    """Its length is not what its span needs: zeros were put behind it, or cut off."""


def fit_of(chunk: bytes) -> Fit:
    """How a content chunk's length fits its span.

    Its address does not say: a tree is worked out with zeros behind the payload, so whoever adds
    some, or cuts them off, has another chunk of the same address. Both are valid (spec section
    2.7), and peers pass both on; but only one of them is of a file.
    """
    span, size = span_of(chunk), len(chunk) - SPAN_BYTES
    if size == span:
        return Fit.LEAF
    if span < LEAF_BYTES or (span == LEAF_BYTES and size != ADDRESS_BYTES):
        return Fit.NONE
    is_inner = size in (ADDRESS_BYTES, _shape(span)[0] * ADDRESS_BYTES)
    return Fit.INNER if is_inner else Fit.NONE


class FileReader:
    """Joins the bytes of a file, or of a part of it, from chunks that somebody else gets.

    While `wanted` is an address, give that chunk to `take`, which returns bytes of the file, in
    their order. It asks only for chunks on the way to the bytes that are read, and remembers up to
    128 addresses a level.
    """

    __slots__ = ("_check_addresses", "_due", "_first", "_last", "size")

    def __init__(
        self, root: bytes, first: int = 0, last: int | None = None, *, check_addresses: bool = True
    ) -> None:
        """Reads the bytes `first` to `last`, both among them, of the file with this hash.

        What of them is behind the end of the file is left out; None is the end. Chunks whose
        addresses were compared with their content before need no `check_addresses`, which is most
        of the work. Raises ValueError for a range that ends before it begins.
        """
        if first < 0 or (last is not None and last < first):
            raise ValueError(f"{first} to {last} is no range of bytes")
        self._first = first
        self._last = SIZE_MAX if last is None else last
        self._check_addresses = check_addresses
        # What is wanted next is last.
        self._due = [Child(root, 0, None, 1)]
        self.size: int | None = None
        """Bytes of the whole file; None until its first chunk has been taken."""

    @property
    def wanted(self) -> bytes | None:
        """The address of the chunk to be taken next; None if all has been read."""
        return self._due[-1].address if self._due else None

    def ahead(self, most: int) -> list[bytes]:
        """What will be wanted, as far as it is known: `most` addresses at most, in their order.

        Chunks below them, which are not known yet, come between.
        """
        return [child.address for child in reversed(self._due[max(len(self._due) - most, 0) :])]

    def take(self, chunk: bytes | None) -> bytes:
        """Takes the chunk that is wanted, None if it is missing; returns the next bytes, if any.

        Raises ChunkMissingError and FileDamagedError, which name its address. Then nothing has
        changed: the same chunk is wanted, in case that somebody else has a better one.
        """
        child = self._due[-1]
        if chunk is None:
            raise ChunkMissingError(child.address)
        span = self._checked(child, chunk)
        last = min(self._last, child.begin + span - 1)
        if len(chunk) - SPAN_BYTES == span:
            begin = max(self._first - child.begin, 0)
            found, data = [], chunk[SPAN_BYTES + begin : SPAN_BYTES + last - child.begin + 1]
        else:
            found, data = children(child, chunk, self._first, last), b""
        if child.span is None:
            self.size = span
        self._due[-1:] = reversed(found)
        return data

    def _checked(self, child: Child, chunk: bytes) -> int:
        """The span of a chunk that may stand there."""
        if not SPAN_BYTES < len(chunk) <= CHUNK_BYTES_MAX:
            raise FileDamagedError(child.address, f"{len(chunk)} bytes are no chunk")
        if self._check_addresses and content_address(chunk) != child.address:
            raise FileDamagedError(child.address, "its content has another address")
        span = span_of(chunk)
        if child.span is None:
            if not 1 <= span <= SIZE_MAX:
                raise FileDamagedError(child.address, f"the span {span} is not from 1 to 2^63")
        elif span != child.span:
            raise FileDamagedError(child.address, f"the span {span} where {child.span} is due")
        return span
