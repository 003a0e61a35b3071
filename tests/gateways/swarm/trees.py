"""Trees of chunks by the plainest reading of the rules, as a measure for ours."""

from collections.abc import Callable
from typing import NamedTuple

from gateways.swarm.bmt import Chunk, content_chunk
from gateways.swarm.files import FileReader
from gateways.swarm.keccak import keccak

LEAF = 4096
WAYS = 128


Wraps = Callable[[int, int], bool]


class Tree(NamedTuple):
    chunks: dict[bytes, bytes]
    root: bytes
    places: dict[bytes, tuple[int, int]]
    """The bytes of the file that are below a chunk: from one up to, and without, another."""


def payload(length: int) -> bytes:
    """The bytes of the vectors."""
    return bytes((7 * i + i // 251) % 256 for i in range(length))


def merkle(data: bytes) -> bytes:
    """The root of a chunk's tree, of all its 4096 bytes."""
    if len(data) == 64:
        return keccak(data)
    half = len(data) // 2
    return keccak(merkle(data[:half]), merkle(data[half:]))


def never(_span: int, _row: int) -> bool:
    return False


def always(_span: int, _row: int) -> bool:
    return True


def upstream(span: int, row: int) -> bool:
    """What v1.8.27 wraps: a lone full leaf."""
    return row == 0 and span == LEAF


def tree(data: bytes, wraps: Wraps = never) -> Tree:
    """A file's tree; `wraps` says of a group of one, by its span and row, if it gets a chunk."""
    chunks: dict[bytes, bytes] = {}
    places: dict[bytes, tuple[int, int]] = {}

    def add(span: int, inside: bytes, begin: int) -> tuple[bytes, int, int]:
        made = content_chunk(span, inside)
        chunks[made.address] = made.encoded
        places[made.address] = (begin, begin + span)
        return made.address, span, begin

    row = [
        add(len(data[at : at + LEAF]), data[at : at + LEAF], at) for at in range(0, len(data), LEAF)
    ]
    number = 0
    while len(row) > 1:
        above = []
        for group in (row[at : at + WAYS] for at in range(0, len(row), WAYS)):
            _, span, begin = group[0]
            if len(group) == 1 and not wraps(span, number):
                above.append(group[0])
                continue
            inside = b"".join(each[0] for each in group)
            above.append(add(sum(each[1] for each in group), inside, begin))
        row = above
        number += 1
    return Tree(chunks, row[0][0], places)


def uniform(size: int) -> tuple[dict[bytes, bytes], bytes]:
    """A file of so many times the letter x, from the hash down: its few different chunks."""
    chunks: dict[bytes, bytes] = {}

    def add(span: int, inside: bytes) -> bytes:
        made = content_chunk(span, inside)
        chunks[made.address] = made.encoded
        return made.address

    def below(size: int) -> bytes:
        if size <= LEAF:
            return add(size, b"x" * size)
        step = LEAF
        while step * WAYS < size:
            step *= WAYS
        whole = (size - 1) // step
        return add(size, below(step) * whole + below(size - whole * step))

    return chunks, below(size)


def stored(chunks: list[Chunk]) -> dict[bytes, bytes]:
    return {each.address: each.encoded for each in chunks}


class Read:
    """What reading a file, or a part, has come to; `asked` are the addresses, in their order."""

    def __init__(
        self,
        chunks: dict[bytes, bytes],
        root: bytes,
        first: int = 0,
        last: int | None = None,
        *,
        check_addresses: bool = True,
    ) -> None:
        self.reader = FileReader(root, first, last, check_addresses=check_addresses)
        self.chunks = chunks
        self.asked: list[bytes] = []
        self.data = b""

    def run(self) -> bytes:
        while (address := self.reader.wanted) is not None:
            self.asked.append(address)
            self.data += self.reader.take(self.chunks.get(address))
        return self.data
