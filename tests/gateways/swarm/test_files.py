"""Files: split in any pieces, joined in any range, and every damage is named."""

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import harness, swarm_files
from gateways.swarm.bmt import content_chunk, is_valid
from gateways.swarm.files import (
    DEPTH_MAX,
    SIZE_MAX,
    ChunkMissingError,
    FileDamagedError,
    FileReader,
    FileSplitter,
    full_span,
)

from .trees import LEAF, Read, Tree, Wraps, always, never, payload, stored, tree, uniform, upstream
from .vectors import VECTORS

GROUP = 128 * LEAF
LARGEST = GROUP + 2 * LEAF + 5
# Of some groups, which cost tenths of a second each, these; of a few leaves any.
SIZES = st.integers(1, 5 * LEAF) | st.sampled_from(
    [LEAF, 2 * LEAF, GROUP - 1, GROUP, GROUP + 1, GROUP + LEAF, GROUP + LEAF + 1, LARGEST]
)
NOWHERE = bytes(32)


@cache
def random_bytes() -> bytes:
    """No two leaves of it are equal, and none ends with zeros."""
    return random.Random(1).randbytes(LARGEST)


@cache
def random_tree(size: int) -> Tree:
    return tree(random_bytes()[:size])


def split(data: bytes, cuts: list[int]) -> tuple[dict[bytes, bytes], bytes, int]:
    splitter, chunks, at = FileSplitter(), dict[bytes, bytes](), 0
    for end in [*sorted(cuts), len(data)]:
        chunks |= stored(splitter.feed(data[at:end]))
        at = end
        assert len(splitter._leaf) < LEAF
        assert all(len(row) < LEAF for row in splitter._rows.rows)
    made, root = splitter.finish()
    return chunks | stored(made), root, splitter.size


# --- upstream -----------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["files"], ids=lambda each: str(each["length"]))
def test_files_of_upstream(vector: dict[str, Any]) -> None:
    data = payload(vector["length"])
    chunks, root, size = split(data, [])
    assert root.hex() == vector["root"]
    assert size == len(data)
    assert Read(chunks, root).run() == data


@pytest.mark.parametrize("vector", VECTORS["files_lone_full_leaf"])
def test_a_lone_full_leaf_is_written_as_it_is_and_read_wrapped_too(vector: dict[str, Any]) -> None:
    data = payload(vector["length"])
    chunks, root, _ = split(data, [])
    assert root.hex() == vector["root"]
    wrapped = tree(data, upstream)
    assert wrapped.root.hex() == vector["upstream_root"]
    assert Read(chunks, root).run() == Read(wrapped.chunks, wrapped.root).run() == data


# --- splitting and joining ----------------------------------------------------------------------


@given(SIZES, st.data())
def test_any_pieces_are_the_same_tree(size: int, draw: st.DataObject) -> None:
    data = random_bytes()[:size]
    cuts = draw.draw(st.lists(st.integers(0, size), max_size=6))
    chunks, root, told = split(data, cuts)
    expected = random_tree(size)
    assert (chunks, root, told) == (expected.chunks, expected.root, size)


def test_an_empty_file_is_not_a_file() -> None:
    splitter = FileSplitter()
    assert splitter.feed(b"") == []
    with pytest.raises(ValueError, match="an empty file has no chunks"):
        splitter.finish()


def test_children_come_before_their_parents() -> None:
    splitter = FileSplitter()
    made = splitter.feed(random_bytes())
    made += splitter.finish()[0]
    known = set[bytes]()
    for chunk in made:
        if chunk.span > LEAF:
            assert {chunk.payload[at : at + 32] for at in range(0, len(chunk.payload), 32)} <= known
        known.add(chunk.address)
    assert len(made) == 131 + 3


@given(SIZES, st.sampled_from([never, upstream, always]), st.booleans(), st.data())
def test_any_range_is_read_by_the_chunks_on_its_way_alone(
    size: int, wraps: Wraps, check_addresses: bool, draw: st.DataObject
) -> None:
    data = random_bytes()[:size]
    found = random_tree(size) if wraps is never else tree(data, wraps)
    first = draw.draw(st.integers(0, size - 1))
    last = draw.draw(st.none() | st.integers(first, size + 9))
    read = Read(found.chunks, found.root, first, last, check_addresses=check_addresses)
    assert read.run() == data[first : size if last is None else last + 1]
    assert read.reader.size == size
    assert read.reader.wanted is None
    end = size if last is None else last + 1
    if wraps is never:  # a wrapped chunk and its child have one place
        way = {a for a, (begin, over) in found.places.items() if begin < end and over > first}
        assert set(read.asked) == way
        assert len(read.asked) == len(way)


@pytest.mark.parametrize("wraps", [never, always])
def test_what_begins_behind_the_end_is_nothing(wraps: Wraps) -> None:
    for size in (1, LEAF, GROUP + 1):
        found = tree(random_bytes()[:size], wraps)
        read = Read(found.chunks, found.root, size, size + 5)
        assert read.run() == b""
        assert read.asked == [found.root]
        assert read.reader.size == size


@pytest.mark.parametrize(("first", "last"), [(-1, None), (-1, 0), (5, 4)])
def test_what_is_no_range_is_refused(first: int, last: int | None) -> None:
    with pytest.raises(ValueError, match="is no range of bytes"):
        FileReader(NOWHERE, first, last)


def test_what_will_be_wanted_is_told_ahead() -> None:
    found = random_tree(LARGEST)
    reader = FileReader(found.root)
    assert reader.ahead(5) == [found.root]
    reader.take(found.chunks[found.root])
    group, *rest = reader.ahead(99)
    assert group == reader.wanted
    assert len(rest) == 1
    reader.take(found.chunks[group])
    leaves = found.chunks[group][8:]
    assert reader.ahead(3) == [leaves[at : at + 32] for at in (0, 32, 64)]
    assert reader.ahead(128)[-1] == leaves[-32:]
    assert reader.ahead(999)[-1] == rest[0]
    assert reader.ahead(0) == []


@given(st.integers(1, SIZE_MAX), st.integers(0), st.integers(1, 9000), st.booleans())
def test_files_of_any_size_up_to_2_63(
    size: int, first: int, length: int, check_addresses: bool
) -> None:
    first %= size
    chunks, root = uniform(size)
    last = first + length - 1
    read = Read(chunks, root, first, last, check_addresses=check_addresses)
    assert read.run() == b"x" * (min(last + 1, size) - first)
    assert read.reader.size == size
    assert len(read.asked) <= 2 * DEPTH_MAX + 3


def test_the_largest_file() -> None:
    chunks, root = uniform(SIZE_MAX)
    assert Read(chunks, root, SIZE_MAX - 1).run() == b"x"
    chunks, root = uniform(SIZE_MAX + 1)
    with pytest.raises(
        FileDamagedError, match=r"the span 9223372036854775809 is not from 1 to 2\^63"
    ):
        Read(chunks, root, 0, 0).run()


# --- damage -------------------------------------------------------------------------------------


def test_the_error_names_the_chunk_and_why() -> None:
    with pytest.raises(ChunkMissingError, match=f"chunk {'ab' * 32}: it is missing") as caught:
        FileReader(b"\xab" * 32).take(None)
    assert caught.value.address == b"\xab" * 32
    assert caught.value.why == "it is missing"


@given(
    SIZES,
    st.integers(0),
    st.sampled_from(["missing", "bit", "longer", "shorter", "span", "another", "empty"]),
    st.integers(0),
)
def test_a_chunk_that_is_not_as_it_was_is_named(size: int, which: int, how: str, at: int) -> None:
    found = random_tree(size)
    address = [*found.chunks][which % len(found.chunks)]
    chunks = dict(found.chunks)
    spoilt = bytearray(chunks[address])
    match how:
        case "bit":
            spoilt[at % len(spoilt)] ^= 1 << at % 8
        case "longer":
            spoilt += bytes(1 + at % 40)
        case "shorter":
            del spoilt[max(len(spoilt) - 1 - at % 40, 0) :]
        case "span":
            spoilt[:8] = (1 + at % SIZE_MAX).to_bytes(8, "little")
        case "another":
            spoilt = bytearray([*chunks.values()][at % len(chunks)])
        case _:
            spoilt.clear()
    if spoilt == chunks[address] or (len(spoilt) == 40 and is_valid(address, bytes(spoilt))):
        return  # as it was, or what the next test is about
    chunks[address] = bytes(spoilt)
    if how == "missing":
        del chunks[address]
    read = Read(chunks, found.root)
    with pytest.raises((ChunkMissingError, FileDamagedError)) as caught:
        read.run()
    assert isinstance(caught.value, ChunkMissingError) == (how == "missing")
    assert caught.value.address == address == read.reader.wanted
    assert read.data == random_bytes()[: found.places[address][0]]
    # Somebody else has a better one, and reading goes on.
    read.chunks = found.chunks
    assert read.run() == random_bytes()[:size]


def test_zeros_can_make_a_leaf_look_like_one_address() -> None:
    """A chunk's address does not say how long its payload is, and upstream wraps leaves."""
    for data in (b"a", b"a" * 32 + bytes(LEAF - 32)):
        chunks, root, _ = split(data, [])
        inside = data[:32].ljust(32, b"\0")
        chunks[root] = chunks[root][:8] + inside
        assert is_valid(root, chunks[root])
        read = Read(chunks, root)
        with pytest.raises(ChunkMissingError) as caught:
            read.run()
        assert caught.value.address == inside
        assert read.data == b""


def row(*addresses: bytes) -> bytes:
    return b"".join(addresses)


LEAVES = [content_chunk(LEAF, bytes([number]) * LEAF) for number in range(3)]
SHORT = content_chunk(5, b"short")
FULL, OTHER, THIRD = (each.address for each in LEAVES)
PAIR = content_chunk(2 * LEAF, row(FULL, OTHER))
GROUP_OF_FULL = content_chunk(GROUP, FULL * 128)
KNOWN = [*LEAVES, SHORT, PAIR, GROUP_OF_FULL]


@pytest.mark.parametrize(
    ("span", "inside", "named", "why"),
    [
        # Too few, too many, or pieces of addresses.
        (LEAF + 5, row(FULL, SHORT.address, SHORT.address), None, "the span 4101 needs 2"),
        (2 * LEAF + 5, row(FULL, SHORT.address), None, "the span 8197 needs 3"),
        (LEAF + 5, row(FULL, SHORT.address)[:-1], None, "63 bytes of addresses"),
        (LEAF + 5, row(FULL, SHORT.address) + b"\0", None, "65 bytes of addresses"),
        (GROUP + 5, FULL * 128, None, "the span 524293 needs 2"),
        (GROUP, row(GROUP_OF_FULL.address, GROUP_OF_FULL.address), None, "needs 128"),
        (SIZE_MAX, FULL * 128, None, "needs 4"),
        # Spans that do not add up.
        (2 * LEAF, row(FULL, SHORT.address), SHORT.address, "the span 5 where 4096 is due"),
        (LEAF + 5, row(SHORT.address, FULL), SHORT.address, "the span 5 where 4096 is due"),
        (LEAF + 5, row(FULL, OTHER), OTHER, "the span 4096 where 5 is due"),
        (GROUP + LEAF, row(PAIR.address, FULL), PAIR.address, "the span 8192 where 524288 is due"),
        (2 * GROUP, row(GROUP_OF_FULL.address, PAIR.address), PAIR.address, "where 524288 is due"),
        (5, FULL, FULL, "the span 4096 where 5 is due"),
        # An inner chunk where a leaf is due, and a leaf where an inner one is.
        (LEAF + 2 * LEAF, row(FULL, PAIR.address, FULL), PAIR.address, "the span 8192 where 4096"),
        (GROUP + LEAF, row(FULL, FULL), FULL, "the span 4096 where 524288 is due"),
        (64, FULL + OTHER[:-1], None, "63 bytes where a leaf of 64, or one address, is due"),
        (LEAF, row(FULL, OTHER), None, "64 bytes where a leaf of 4096, or one address, is due"),
        # Nothing that is a file.
        (SIZE_MAX + 1, FULL * 128, None, "is not from 1 to 2"),
        ((1 << 64) - 1, b"a", None, "is not from 1 to 2"),
    ],
)
def test_trees_of_right_addresses_that_are_no_files(
    span: int, inside: bytes, named: bytes | None, why: str
) -> None:
    made = content_chunk(span, inside)
    read = Read(stored([*KNOWN, made]), made.address)
    with pytest.raises(FileDamagedError, match=why) as caught:
        read.run()
    assert caught.value.address == (named or made.address) == read.reader.wanted
    assert len(read.asked) <= 131


def test_an_update_of_a_feed_is_no_file() -> None:
    vector = VECTORS["feeds"][0]
    chunk = bytes.fromhex(vector["chunk"])
    with pytest.raises(FileDamagedError, match="its content has another address"):
        FileReader(bytes.fromhex(vector["address"])).take(chunk)
    with pytest.raises(FileDamagedError, match="the span 0 is not from 1"):
        FileReader(bytes.fromhex(vector["address"]), check_addresses=False).take(chunk)


@pytest.mark.parametrize(("wraps", "good"), [(DEPTH_MAX - 1, True), (DEPTH_MAX, False)])
def test_a_chain_of_wraps_ends(wraps: int, good: bool) -> None:
    chain = [SHORT]
    for _ in range(wraps):
        chain.append(content_chunk(5, chain[-1].address))
    read = Read(stored(chain), chain[-1].address)
    if good:
        assert read.run() == b"short"
        return
    with pytest.raises(FileDamagedError, match="no leaf after 9 chunks from the hash") as caught:
        read.run()
    assert caught.value.address == chain[1].address
    assert len(read.asked) == DEPTH_MAX


@pytest.mark.parametrize("span", [5, LEAF, GROUP, SIZE_MAX])
def test_a_circle_ends(span: int) -> None:
    """Nobody finds one whose addresses are right; unchecked ones end all the same."""
    chunks = {NOWHERE: span.to_bytes(8, "little") + NOWHERE}
    read = Read(chunks, NOWHERE, check_addresses=False)
    with pytest.raises(FileDamagedError, match="no leaf after 9 chunks"):
        read.run()
    assert len(read.asked) == DEPTH_MAX


def test_a_reader_remembers_a_row_a_level() -> None:
    step = full_span(7)
    chunks, root = uniform(3 * step)
    reader, most = FileReader(root), 0
    for _ in range(50):
        assert reader.wanted is not None
        reader.take(chunks[reader.wanted])
        most = max(most, len(reader.ahead(10_000)))
    assert 128 < most <= 128 * (DEPTH_MAX - 1)


# --- any bytes ----------------------------------------------------------------------------------


def test_the_fuzz_target() -> None:
    harness.run_seeded(swarm_files.check, swarm_files.CORPUS, runs=300, seed=1)


@pytest.mark.long
def test_the_fuzz_target_at_length() -> None:
    harness.run_seeded(swarm_files.check, swarm_files.CORPUS, runs=50_000, seed=2)
