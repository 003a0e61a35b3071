"""VarU64 (encodings.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import (
    U64_MAX,
    EntryError,
    NeedMore,
    decode_varu64,
    decode_varu64_canonical,
    encode_varu64,
)

# The table of encodings.md.
TABLE = [
    (0, "00"),
    (247, "f7"),
    (248, "f8f8"),
    (255, "f8ff"),
    (256, "f90100"),
    (65535, "f9ffff"),
    (65536, "fa010000"),
    (2**64 - 1, "ffffffffffffffffff"),
]
NUMBERS = st.one_of(
    st.integers(0, U64_MAX),
    st.integers(0, 64).map(lambda bits: 2**bits - 1),
    st.integers(0, 63).map(lambda bits: 2**bits),
    st.integers(240, 260),
)


@pytest.mark.parametrize(("number", "encoding"), TABLE)
def test_numbers_have_the_specified_canonical_bytes(number: int, encoding: str) -> None:
    data = bytes.fromhex(encoding)
    assert encode_varu64(number) == data
    assert decode_varu64(data) == (number, len(data))
    assert decode_varu64_canonical(data, 0, "size") == (number, len(data))


@given(NUMBERS, st.binary(max_size=3), st.binary(max_size=3))
def test_encodings_round_trip_wherever_they_stand(n: int, before: bytes, after: bytes) -> None:
    data = before + encode_varu64(n) + after
    end = len(data) - len(after)
    assert decode_varu64(data, len(before)) == (n, end)
    assert decode_varu64_canonical(data, len(before), "size") == (n, end)


@given(NUMBERS)
def test_every_prefix_asks_for_more(n: int) -> None:
    data = encode_varu64(n)
    for length in range(len(data)):
        with pytest.raises(NeedMore):
            decode_varu64(data[:length])
        with pytest.raises(NeedMore) as caught:
            decode_varu64_canonical(data[:length], 0, "size")
        assert caught.value.field == "size"


@given(NUMBERS, st.integers(1, 8))
def test_longer_encodings_are_read_except_where_canonical_is_asked_for(n: int, k: int) -> None:
    if n >= 256**k:
        k = 8
    data = bytes((247 + k,)) + n.to_bytes(k, "big")
    assert decode_varu64(data) == (n, k + 1)
    if data == encode_varu64(n):
        assert decode_varu64_canonical(data, 0, "log id") == (n, k + 1)
        return
    for length in range(2, k + 2):  # two bytes are enough to tell
        with pytest.raises(EntryError, match="not canonical") as caught:
            decode_varu64_canonical(data[:length], 0, "log id")
        assert caught.value.field == "log id"


def test_a_long_zero_is_zero() -> None:
    assert decode_varu64(bytes.fromhex("f800")) == (0, 2)


@pytest.mark.parametrize("number", [-1, U64_MAX + 1])
def test_numbers_beyond_64_bits_have_no_encoding(number: int) -> None:
    with pytest.raises(ValueError, match="not an unsigned 64-bit integer"):
        encode_varu64(number)
