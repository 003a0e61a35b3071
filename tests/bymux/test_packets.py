"""Headers have the bytes that bymux.md gives them."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bymux.packets import LAYOUTS, Kind, WriteHeaders, encode_create, encode_credit, encode_signal

from .factory import U64_MAX, packet

SIGNALS = [Kind.PING, Kind.PONG, Kind.CLOSE, Kind.STOP_READ]
ids = st.integers(0, U64_MAX) | st.sampled_from(
    [n + d for n in (2**8, 2**16, 2**32) for d in (-1, 0)]
)


@pytest.mark.parametrize(
    ("made", "golden"),
    [
        # The examples of point2point.md 11.
        (encode_credit(1, 1 << 20), "02 01 00100000"),
        (WriteHeaders(1).encode(3), "20 01 03"),
        (encode_signal(Kind.PING, None), "50"),
        (encode_signal(Kind.PONG, None), "70"),
        (encode_signal(Kind.CLOSE, 1), "80 01"),
        (encode_signal(Kind.STOP_READ, 1), "a0 01"),
        # One of each width, and the other global forms.
        (encode_credit(0, 0), "00 00 00"),
        (encode_credit(256, 65535), "05 0100 ffff"),
        (encode_credit(2**32, 2**64 - 2), "0f 0000000100000000 fffffffffffffffe"),
        (encode_credit(None, 64), "10 40"),
        (encode_create(2), "30 02"),
        (encode_create(65536), "32 00010000"),
        (encode_signal(Kind.CLOSE, None), "90"),
        (encode_signal(Kind.STOP_READ, None), "b0"),
        (WriteHeaders(65535).encode(16384), "25 ffff 4000"),
    ],
)
@pytest.mark.rule("BYMUX-1.01")
def test_golden_bytes(made: bytes, golden: str) -> None:
    assert made == bytes.fromhex(golden)


@given(ids, ids)
@pytest.mark.rule("BYMUX-1.02")
def test_headers_are_the_smallest_that_fit(stream: int, amount: int) -> None:
    assert encode_credit(stream, amount) == packet(0, stream, amount)
    assert encode_credit(None, amount) == packet(0, None, amount)
    assert WriteHeaders(stream).encode(amount) == packet(1, stream, amount)
    assert encode_create(stream) == packet(1, None, stream)
    for kind in SIGNALS:
        assert encode_signal(kind, stream) == packet(kind, stream)


def test_types_that_do_not_exist_have_no_layout() -> None:
    assert [first for first in range(256) if LAYOUTS[first] is None] == list(range(0xC0, 0x100))


@pytest.mark.parametrize(
    ("kind", "id_code", "amount_code"), list(product(Kind, range(4), range(4)))
)
def test_a_first_byte_tells_the_length_of_the_header(
    kind: Kind, id_code: int, amount_code: int
) -> None:
    numbers = kind in {Kind.CREDIT, Kind.WRITE}
    amount_bytes = 2**amount_code if numbers else 0
    of_stream = LAYOUTS[kind << 5 | id_code << 2 | amount_code]
    assert of_stream is not None
    assert not of_stream.is_global
    assert of_stream.amount_at == 1 + 2**id_code
    assert of_stream.header_bytes == 1 + 2**id_code + amount_bytes
    of_all = LAYOUTS[kind << 5 | 1 << 4 | id_code << 2 | amount_code]
    assert of_all is not None
    assert of_all.is_global
    assert of_all.header_bytes == 1 + amount_bytes
