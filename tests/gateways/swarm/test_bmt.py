"""Chunks: upstream's addresses, the tree in its plainest form, and what is no chunk."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.swarm.bmt import (
    CHUNK_BYTES_MAX,
    Chunk,
    Kind,
    content_address,
    content_chunk,
    is_valid,
    python_content_address,
    read_chunk,
)
from gateways.swarm.keccak import keccak
from wire import NATIVE, NATIVE_STATE

from .trees import merkle, payload
from .vectors import VECTORS

UPDATE = bytes.fromhex(VECTORS["feeds"][0]["chunk"])


@pytest.mark.parametrize("vector", VECTORS["chunks"], ids=lambda each: str(each["length"]))
def test_addresses_of_upstream(vector: dict[str, Any]) -> None:
    chunk = content_chunk(vector["span"], payload(vector["length"]))
    assert chunk.address.hex() == vector["address"]
    assert chunk.kind is Kind.CONTENT
    assert chunk.span == vector["span"]
    assert chunk.payload == payload(vector["length"])
    assert read_chunk(chunk.encoded) == chunk
    assert is_valid(chunk.address, chunk.encoded)


@given(st.integers(1, (1 << 64) - 1), st.integers(1, 4096), st.binary(min_size=1, max_size=9))
def test_the_rows_are_the_tree(span: int, size: int, pattern: bytes) -> None:
    data = (pattern * size)[:size]
    head = span.to_bytes(8, "little")
    expected = keccak(head, merkle(data.ljust(4096, b"\0")))
    assert python_content_address(head + data) == expected
    assert content_address(head + data) == expected


@pytest.mark.skipif(NATIVE is None, reason=f"native core: {NATIVE_STATE}")
def test_the_native_core_gives_the_addresses_of_all_lengths() -> None:
    assert NATIVE is not None
    data = random.Random(1).randbytes(CHUNK_BYTES_MAX)
    for size in range(9, CHUNK_BYTES_MAX + 1):
        assert NATIVE.content_address(data[:size]) == python_content_address(data[:size])


@pytest.mark.parametrize("size", [0, 7, 8, CHUNK_BYTES_MAX + 1, 100_000])
def test_bytes_that_are_no_chunk_have_no_address(size: int) -> None:
    for function in (content_address, python_content_address):
        with pytest.raises(ValueError, match=f"^a chunk of {size} bytes: it has 9 to 4104$"):
            function(bytes(size))


def test_zeros_of_the_data_are_those_behind_it() -> None:
    assert content_chunk(5000, b"a").address == content_chunk(5000, b"a\0").address


@given(st.sampled_from(VECTORS["chunks"]), st.integers(0), st.integers(0, 7))
def test_no_bit_can_be_another(vector: dict[str, Any], at: int, bit: int) -> None:
    chunk = content_chunk(vector["span"], payload(vector["length"]))
    spoilt = bytearray(chunk.encoded)
    spoilt[at % len(spoilt)] ^= 1 << bit
    assert not is_valid(chunk.address, bytes(spoilt))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(8),
        b"\1" + bytes(7),
        b"\1" + bytes(CHUNK_BYTES_MAX),
        bytes(9),
        bytes(CHUNK_BYTES_MAX),
        UPDATE[:-1],
        UPDATE[:-1] + b"\0",
    ],
    ids=len,
)
def test_what_is_no_chunk_is_bad_and_of_no_address(data: bytes) -> None:
    assert read_chunk(data) == Chunk(b"", data, Kind.BAD)
    assert not is_valid(bytes.fromhex(VECTORS["feeds"][0]["address"]), data)
    assert not is_valid(b"", data)


def test_an_update_of_a_feed_is_valid_at_its_own_address_alone() -> None:
    one, other = (bytes.fromhex(each["address"]) for each in VECTORS["feeds"])
    assert read_chunk(UPDATE) == Chunk(one, UPDATE, Kind.FEED)
    assert read_chunk(UPDATE).span == 0
    assert is_valid(one, UPDATE)
    assert not is_valid(other, UPDATE)
    assert not is_valid(content_address(UPDATE), UPDATE)


@pytest.mark.parametrize(
    ("span", "inside"), [(0, b"a"), (1 << 64, b"a"), (-1, b"a"), (1, b""), (1, bytes(4097))]
)
def test_no_chunk_is_made_that_nobody_takes(span: int, inside: bytes) -> None:
    with pytest.raises(ValueError, match=r"a (span|payload) of"):
        content_chunk(span, inside)


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda data: bytes(8) + data))
def test_any_bytes_are_some_kind(data: bytes) -> None:
    found = read_chunk(data)
    assert found.encoded == data
    assert (found.kind is Kind.BAD) == (found.address == b"")
    assert found.kind is Kind.BAD or is_valid(found.address, data)
