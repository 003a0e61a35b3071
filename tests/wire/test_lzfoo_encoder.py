"""LZFoo compression, judged by what decoders make of it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.naive_lzfoo import decode_packet
from wire import LZFooDecoder, LZFooEncoder

WINDOWS = st.sampled_from([1, 7, 100, 1000, 65535, 65536, 2**64 - 1])
TEXTS = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from([b"bamboo", b"log ", b"entry", b"\x00" * 40]), max_size=80).map(
        b"".join
    ),
    st.builds(lambda unit, n: unit * n, st.binary(min_size=1, max_size=9), st.integers(1, 900)),
)


def decompressed(decoder: LZFooDecoder, declared: int, packet: bytes) -> bytes:
    decoder.start(declared, len(packet))
    decoder.feed(packet)
    out = bytearray()
    while piece := decoder.read():
        out += piece
    assert decoder.finished
    return bytes(out)


@given(st.lists(TEXTS, max_size=6), WINDOWS)
def test_both_decoders_undo_the_encoder(texts: list[bytes], window: int) -> None:
    encoder, decoder, history = LZFooEncoder(window), LZFooDecoder(window), bytearray()
    for text in texts:
        packet = encoder.encode(text)
        assert decompressed(decoder, len(text), packet) == text
        assert decode_packet(history, len(text), packet, window) == text


@given(st.lists(TEXTS, max_size=6), WINDOWS)
def test_what_was_sent_raw_is_never_referred_to(texts: list[bytes], window: int) -> None:
    encoder, decoder = LZFooEncoder(window), LZFooDecoder(window)
    for text in texts:
        packet = encoder.encode_if_smaller(text)
        if packet is not None:
            assert len(packet) < len(text)
            assert decompressed(decoder, len(text), packet) == text


def test_repetition_is_found_within_and_across_packets() -> None:
    noise = random.Random(1).randbytes(3000)
    encoder = LZFooEncoder(65536)
    assert encoder.encode_if_smaller(noise) is None
    assert len(encoder.encode(noise)) > len(noise)
    packet = encoder.encode_if_smaller(noise)
    assert packet is not None
    assert len(packet) < 50


def test_offsets_never_exceed_the_window() -> None:
    noise = random.Random(2).randbytes(500)
    for window, found in ((500, True), (499, False)):
        encoder = LZFooEncoder(window)
        encoder.encode(noise)
        assert (encoder.encode_if_smaller(noise[:400]) is not None) == found


@pytest.mark.parametrize("bytes_count", [1, 119, 120, 255, 256, 65535, 65536, 200_000])
def test_literals_and_copies_of_every_size_class_are_undone(bytes_count: int) -> None:
    noise = random.Random(3).randbytes(bytes_count)
    encoder, decoder = LZFooEncoder(65536), LZFooDecoder(65536)
    for text in (noise, bytes(bytes_count), noise):
        assert decompressed(decoder, bytes_count, encoder.encode(text)) == text


def test_nothing_is_made_of_nothing() -> None:
    encoder = LZFooEncoder(10)
    assert encoder.encode(b"") == b""
    assert encoder.encode_if_smaller(b"") is None


def test_a_window_of_zero_means_that_nothing_is_compressed() -> None:
    with pytest.raises(ValueError, match="window of 0"):
        LZFooEncoder(0)


def test_looking_longer_finds_more_and_may_change_at_any_time() -> None:
    words = [b"bamboo", b"shoots", b"leaves", b"stalks", b"of green", b"groves"]
    picks = random.Random(4)
    text = b" ".join(picks.choice(words)[: picks.randint(2, 8)] for _ in range(20_000))
    quick, thorough = LZFooEncoder(65536), LZFooEncoder(65536, thorough=True)
    assert len(thorough.encode(text)) < len(quick.encode(text))
    decoder = LZFooDecoder(65536)
    for encoder in (quick, thorough):
        encoder.thorough = not encoder.thorough
    assert len(quick.encode(text)) < len(thorough.encode(text))
    encoder = LZFooEncoder(65536)
    for piece in (text[:30_000], text[30_000:60_000], text[60_000:]):
        packet = encoder.encode(piece)
        assert decompressed(decoder, len(piece), packet) == piece
        encoder.thorough = not encoder.thorough
