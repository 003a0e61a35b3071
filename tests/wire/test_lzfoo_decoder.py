"""LZFoo decompression (encodings.md), against golden bytes and a naive decoder."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.naive_lzfoo import NaiveError, decode_packet
from tests.wire.strategies import CUTS, pieces
from wire import LZFooDecoder, LZFooError, encode_varu64


def length_bytes(kind: int, n: int, extra: int | None) -> bytes:
    """The head of an element; `extra` bytes of length, or as few as will do."""
    if extra is None:
        extra = 0 if n < 120 else (n.bit_length() + 7) // 8
    if extra == 0:
        return bytes((kind | n,))
    return bytes((kind | 119 + extra,)) + n.to_bytes(extra, "big")


def literal(data: bytes, extra: int | None = None) -> bytes:
    return length_bytes(0, len(data), extra) + data


def copy(n: int, offset: int, extra: int | None = None) -> bytes:
    return length_bytes(128, n, extra) + encode_varu64(offset)


def decompress(decoder: LZFooDecoder, declared: int, chunks: list[bytes]) -> tuple[bytes, object]:
    """The output of one packet, and the position and text of the error that ended it, if any."""
    out = bytearray()
    try:
        decoder.start(declared, sum(map(len, chunks)))
        for chunk in [*chunks, b""]:
            decoder.feed(chunk)
            while piece := decoder.read():
                assert len(piece) <= 65536
                out += piece
    except LZFooError as error:
        assert not decoder.finished
        return bytes(out), (error.position, str(error))
    assert decoder.finished
    return bytes(out), None


@pytest.mark.parametrize(
    ("packet", "output"),
    [
        ("", b""),
        ("03 616263", b"abc"),
        ("03 616263 85 02", b"abcbcbcb"),  # the example of encodings.md
        ("01 61 f8ff 01", b"a" * 256),
        ("01 61 f7 01", b"a" * 120),
        ("7801 61 f801 f801", b"aa"),  # lengths and offsets longer than needed
        ("78 78" + "62" * 120, b"b" * 120),
    ],
)
def test_elements_mean_what_is_specified(packet: str, output: bytes) -> None:
    data = bytes.fromhex(packet)
    for chunks in ([data], [bytes((byte,)) for byte in data]):
        assert decompress(LZFooDecoder(65536), len(output), chunks) == (output, None)


@pytest.mark.parametrize(
    ("declared", "packet", "position", "said"),
    [
        (5, literal(b"abc") + b"\x00", 4, "length zero"),
        (5, literal(b"abc") + b"\x80\x01", 4, "length zero"),
        (5, literal(b"abc") + b"\x79\x00\x00", 4, "length zero"),
        (5, literal(b"abc") + copy(2, 0), 4, "offset of zero"),
        (5, literal(b"abc") + copy(2, 4), 4, "offset 4 is beyond the output of 3"),
        (40, literal(b"a" * 20) + copy(20, 17), 21, "offset 17 is beyond the window of 16"),
        (5, literal(b"abc") + copy(3, 1), 4, "an element of 3 bytes, 2 are left"),
        (2, literal(b"abc"), 0, "an element of 3 bytes, 2 are left"),
        (3, literal(b"abc") + literal(b"d"), 4, "an element of 1 bytes, 0 are left"),
        (0, literal(b"d"), 0, "an element of 1 bytes, 0 are left"),
        (9, copy(2**60, 1), 0, f"an element of {2**60} bytes"),
        (5, literal(b"abc"), 4, "2 bytes short"),
        (5, b"", 0, "5 bytes short"),
        (5, literal(b"abc") + b"\x82", 4, "truncated element"),
        (5, literal(b"abc") + b"\x82\xf9\x00", 4, "truncated element"),
        (5, literal(b"abc") + b"\xf8", 4, "truncated element"),
        (5, literal(b"abc") + b"\x02d", 4, "truncated literal of 2 bytes"),
        (0, bytes(65), 0, "65 compressed bytes for 0 are refused"),
        (2, bytes(73), 0, "73 compressed bytes for 2 are refused"),
    ],
)
def test_each_error_names_its_position(
    declared: int, packet: bytes, position: int, said: str
) -> None:
    whole = decompress(LZFooDecoder(16), declared, [packet])
    output, error = whole
    assert isinstance(error, tuple)
    assert error[0] == position
    assert said in error[1]
    assert output == (b"abc" if position == 4 else b"a" * 20 if position == 21 else b"")
    assert decompress(LZFooDecoder(16), declared, [bytes((byte,)) for byte in packet]) == whole


@pytest.mark.parametrize(
    ("element", "said"),
    [
        (copy(2, 4), "offset 4 is beyond the output of 3"),
        (copy(2, 1000), "offset 1000 is beyond the output of 3"),
        (copy(2, 70000), "offset 70000 is beyond the window"),
        (copy(2, 0), "offset of zero"),
        (b"\x00", "length zero"),
        (b"\x80\x01", "length zero"),
    ],
)
def test_errors_far_from_any_end_are_found_too(element: bytes, said: str) -> None:
    packet = literal(b"abc") + element + literal(b"d" * 100) * 10
    output, error = decompress(LZFooDecoder(65536), 1005, [packet])
    assert output == b"abc"
    assert isinstance(error, tuple)
    assert error[0] == 4
    assert said in error[1]


def test_an_error_stays() -> None:
    decoder = LZFooDecoder(16)
    decoder.start(5, 2)
    decoder.feed(b"\x00\x00")
    for _ in range(2):
        with pytest.raises(LZFooError, match="length zero"):
            decoder.read()


def test_up_to_4_times_the_length_and_64_bytes_are_taken() -> None:
    decoder = LZFooDecoder(16)
    decoder.start(0, 64)
    assert decoder.wanted == 64
    assert not decoder.finished


def test_a_huge_copy_comes_in_bounded_pieces_and_bounded_memory() -> None:
    decoder = LZFooDecoder(65536)
    packet = literal(b"abc") + copy(2**60, 3)
    decoder.start(2**60 + 3, len(packet))
    decoder.feed(packet)
    tracemalloc.start()
    taken = b"".join(decoder.read()[:3] for _ in range(40))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A piece of 65,536 bytes ends one byte after a multiple of three.
    assert taken == b"".join(b"abcabc"[start : start + 3] for start in (0, 1, 2)) * 13 + b"abc"
    assert peak < 1_000_000
    assert not decoder.finished


def test_the_window_spans_packets_and_ends_where_it_was_negotiated() -> None:
    decoder = LZFooDecoder(10)
    assert decompress(decoder, 12, [literal(b"0123456789ab")]) == (b"0123456789ab", None)
    assert decompress(decoder, 2, [copy(2, 10)]) == (b"23", None)
    output, error = decompress(decoder, 2, [copy(2, 11)])
    assert output == b""
    assert isinstance(error, tuple)
    assert "beyond the window of 10" in error[1]


def test_history_is_kept_exactly_while_old_output_is_dropped() -> None:
    decoder, history = LZFooDecoder(1000), bytearray()
    for number in range(40):
        fresh = bytes((number, number ^ 255)) * 5
        packet = literal(fresh) + copy(20_000, 1000 if history else 10) + copy(7, 999)
        declared = len(fresh) + 20_007
        expected = decode_packet(history, declared, packet, 1000)
        assert decompress(decoder, declared, [packet]) == (expected, None)


def test_elements_larger_than_a_step_go_on_in_the_next() -> None:
    decoder, history = LZFooDecoder(200_000), bytearray()
    noise = random.Random(1).randbytes(150_000)
    packet = literal(noise) + copy(140_000, 149_999) + copy(100_000, 70_000) + copy(1, 150_000)
    expected = decode_packet(history, 390_001, packet, 200_000)
    chunks = pieces(packet, [1, 2, 3, 70_000, 149_990, 150_003, 150_009])
    assert decompress(decoder, 390_001, chunks) == (expected, None)


def test_more_bytes_than_declared_are_not_taken() -> None:
    decoder = LZFooDecoder(10)
    decoder.start(1, 2)
    with pytest.raises(ValueError, match="3 bytes fed, 2 are left"):
        decoder.feed(b"abc")


SMALL = st.integers(1, 12)
ELEMENTS = st.one_of(
    st.builds(literal, st.binary(min_size=1, max_size=130)),
    st.builds(literal, st.binary(min_size=1, max_size=5), st.integers(1, 8)),
    st.builds(copy, st.integers(1, 300), st.integers(1, 400)),
    st.builds(copy, SMALL, SMALL, st.integers(1, 8)),
    st.builds(copy, st.integers(65000, 140000), SMALL),
)
PACKETS = st.lists(
    st.tuples(st.lists(ELEMENTS, max_size=20).map(b"".join), st.integers(-2, 2), st.booleans()),
    min_size=1,
    max_size=4,
)


def naive_output_bytes(history: bytearray, packet: bytes, window: int) -> int:
    """How much a packet decompresses to, up to its first error, whatever it declares."""
    scratch = bytearray(history)
    try:
        decode_packet(scratch, 2**40, packet, window)
    except NaiveError:
        return len(scratch) - len(history)
    raise AssertionError("2^40 bytes cannot come out")


@given(PACKETS, st.integers(1, 300), CUTS)
def test_the_naive_decoder_agrees_on_output_and_errors(
    packets: list[tuple[bytes, int, bool]], window: int, cuts: list[int]
) -> None:
    decoder, history = LZFooDecoder(window), bytearray()
    for packet, difference, exact in packets:
        declared = naive_output_bytes(history, packet, window)
        declared = max(0, declared + (0 if exact else difference))
        before = len(history)
        position = None
        try:
            decode_packet(history, declared, packet, window)
        except NaiveError as bad:
            position = bad.position
        output, error = decompress(decoder, declared, pieces(packet, cuts))
        assert output == bytes(history[before:])
        assert (error[0] if isinstance(error, tuple) else None) == position
        if error is not None:
            return


@given(st.binary(max_size=60), st.integers(0, 200), CUTS)
def test_hostile_bytes_raise_lzfoo_errors_only_and_the_same_in_any_pieces(
    packet: bytes, declared: int, cuts: list[int]
) -> None:
    whole = decompress(LZFooDecoder(50), declared, [packet])
    assert decompress(LZFooDecoder(50), declared, pieces(packet, cuts)) == whole
    output, error = whole
    assert len(output) == declared if error is None else len(output) <= declared
