"""What is taken off the front of bytes is theirs, whole and in its one encoding, or one error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.reading import CodecError, Reader
from wire import U64_MAX


class _Refused(Exception):  # noqa: N818 - a stand-in
    """What a system of its own calls bytes that it cannot read."""


def leb128(number: int) -> bytes:
    """By the definition: groups of seven bits, all but the last one marked."""
    groups = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


@given(st.lists(st.integers(0, U64_MAX) | st.binary(max_size=20), max_size=20))
def test_what_is_taken_is_what_was_put_there(values: list[int | bytes]) -> None:
    reader = Reader(b"".join(leb128(v) if isinstance(v, int) else v for v in values))
    for value in values:
        found = reader.leb128() if isinstance(value, int) else reader.take(len(value))
        assert found == value
    assert reader.left == 0
    reader.end()


@given(st.binary(max_size=12))
def test_any_bytes_are_a_number_in_its_one_encoding_or_an_error(data: bytes) -> None:
    reader = Reader(data)
    try:
        number = reader.leb128()
    except CodecError:
        assert reader.at == 0
    else:
        assert leb128(number) == data[: reader.at]


def test_an_error_says_what_and_where_and_why() -> None:
    reader = Reader(b"ab\x05\x80", _Refused)
    assert reader.take(2) == b"ab"
    with pytest.raises(_Refused, match=r"^a value of 3 bytes at byte 2: .* 2 are left$"):
        reader.take(3)
    with pytest.raises(_Refused, match=r"^the end at byte 2: 2 bytes are left over$"):
        reader.end()
    assert reader.leb128() == 5
    with pytest.raises(_Refused, match=r"^a number at byte 3: it is cut off$"):
        reader.leb128()
    assert (reader.at, reader.left) == (3, 1)
