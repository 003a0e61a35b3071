"""Trees of chunks of any shape are read to the end of the range or refused, in a few steps.

An input is a range and a recipe for chunks. Each is given a tag, by which later ones name it, and
the last one is the file. It is read with the addresses that the chunks have, and with tags for
addresses, which nobody compares with the content: then chunks can name each other in circles.
"""

from contextlib import suppress

from fuzz.harness import main
from gateways.reading import CodecError, Reader
from gateways.swarm.bmt import PAYLOAD_BYTES_MAX, SPAN_BYTES, Kind, is_valid, read_chunk
from gateways.swarm.files import (
    DEPTH_MAX,
    LEAF_BYTES,
    SIZE_MAX,
    FileDamagedError,
    FileError,
    FileReader,
    FileSplitter,
)

CHUNKS_MAX = 12
LEAF, INNER = 0, 1


def head(first: int, length: int) -> bytes:
    """The range that is read: `length` bytes, and one more."""
    return first.to_bytes(8, "little") + length.to_bytes(2, "little")


def leaf(tag: int, span: int, size: int) -> bytes:
    """`size` times the tag."""
    return bytes((LEAF, tag)) + span.to_bytes(8, "little") + size.to_bytes(2, "little")


def inner(tag: int, span: int, *runs: tuple[int, int]) -> bytes:
    """Addresses: so many times that of a tag, and so on."""
    told = bytes(value for run in runs for value in run)
    return bytes((INNER, tag)) + span.to_bytes(8, "little") + bytes((len(runs),)) + told


_FULL = leaf(1, LEAF_BYTES, LEAF_BYTES)
_GROUP = inner(2, 128 * LEAF_BYTES, (128, 1))
_LARGE = b"".join(inner(3 + row, 128 ** (2 + row) * LEAF_BYTES, (128, 2 + row)) for row in range(6))
CORPUS = [
    head(0, 100) + leaf(1, 5, 5),
    head(4000, 8000) + _FULL + leaf(2, 7, 7) + inner(3, 2 * LEAF_BYTES + 7, (2, 1), (1, 2)),
    head(3 << 59, 65_535) + _FULL + _GROUP + _LARGE + inner(9, SIZE_MAX, (4, 8)),
    head(128 * LEAF_BYTES - 10, 100)
    + _FULL
    + _GROUP
    + inner(3, LEAF_BYTES, (1, 1))
    + inner(4, 129 * LEAF_BYTES, (1, 2), (1, 3)),
    # A circle.
    head(0, 1) + inner(1, LEAF_BYTES, (1, 1)),
    head(0, 1) + inner(2, 300 * LEAF_BYTES, (3, 1)) + inner(1, 128 * LEAF_BYTES, (128, 2)),
]


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    _check_splitting(data)
    first = int.from_bytes(data[:8], "little")
    last = first + int.from_bytes(data[8:10], "little")
    for real in (True, False):
        chunks, root = _made(data[10:], real=real)
        _check_reading(chunks, root, first, last, real=real)


def _made(recipe: bytes, *, real: bool) -> tuple[dict[bytes, bytes], bytes]:
    """The chunks by address, and the last one's address."""
    reader = Reader(recipe)
    addresses = {tag: bytes((tag,)) * 32 for tag in range(256)}
    chunks: dict[bytes, bytes] = {}
    tag = 0
    with suppress(CodecError):
        while len(chunks) < CHUNKS_MAX:
            kind, tag = reader.take(2)
            span = reader.take(SPAN_BYTES)
            if kind == INNER:
                runs = reader.take(2 * reader.take(1)[0])
                payload = b"".join(
                    addresses[runs[at + 1]] * runs[at] for at in range(0, len(runs), 2)
                )
            else:
                payload = bytes((tag,)) * int.from_bytes(reader.take(2), "little")
            chunk = span + payload[: PAYLOAD_BYTES_MAX + 1]
            found = read_chunk(chunk)
            if real and found.kind is Kind.CONTENT:
                addresses[tag] = found.address
            chunks[addresses[tag]] = chunk
    return chunks, addresses[tag]


def _check_reading(
    chunks: dict[bytes, bytes], root: bytes, first: int, last: int, *, real: bool
) -> None:
    reader = FileReader(root, first, last, check_addresses=real)
    found = b""
    refusal: FileError | None = None
    # Below each leaf of the range, and one at either end of it.
    steps_max = DEPTH_MAX * ((last - first) // LEAF_BYTES + 3)
    for _ in range(steps_max):
        wanted = reader.wanted
        if wanted is None:
            break
        try:
            found += reader.take(chunks.get(wanted))
        except FileError as error:
            refusal = error
            break
        assert len(reader.ahead(10_000)) <= DEPTH_MAX * 128
    assert len(found) <= last - first + 1
    if refusal is not None:
        assert refusal.address == reader.wanted
        assert isinstance(refusal, FileDamagedError) == (refusal.address in chunks)
        return
    assert reader.wanted is None
    assert reader.size is not None
    assert len(found) == max(min(last + 1, reader.size) - first, 0)


def _check_splitting(data: bytes) -> None:
    whole = data * 3
    splitter, chunks, at = FileSplitter(), {}, 0
    for step in [*data[:20], len(whole)]:
        for chunk in splitter.feed(whole[at : at + 40 * step]):
            chunks[chunk.address] = chunk.encoded
        at += 40 * step
    if not whole:
        return
    made, root = splitter.finish()
    chunks.update((chunk.address, chunk.encoded) for chunk in made)
    reader, found = FileReader(root), b""
    while reader.wanted is not None:
        encoded = chunks[reader.wanted]
        assert is_valid(reader.wanted, encoded)
        found += reader.take(encoded)
    assert found == whole
    assert read_chunk(data).encoded == data


if __name__ == "__main__":
    main(check, CORPUS)
