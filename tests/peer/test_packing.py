"""What goes compressed and what goes raw, and that both arrive (point2point.md 4)."""

import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.data.packing import PACKET_BYTES_MAX, SMALL_BYTES, Packer, gathered
from peer.protocol.config import WINDOW_BYTES_MAX, Compression, SessionConfig
from peer.protocol.request import Trial
from tests.records import replace
from wire import DataDecoder, PayloadBytes, PayloadStart, Setup

TEXT = b"".join(b"line %d of a text that shrinks\n" % n for n in range(8000))
NOISE = random.Random(5).randbytes(1 << 20)
MODES = st.sampled_from(get_args(Compression))


def opened(packets: bytes, window: int) -> tuple[bytes, list[PayloadStart]]:
    """The payload bytes in some packets, and the packets' headers."""
    decoder = DataDecoder(window)
    decoder.feed(packets)
    starts, data = [], bytearray()
    while (packet := decoder.next_packet(with_backlink=False)) is not None:
        if isinstance(packet, PayloadStart):
            starts.append(packet)
        else:
            assert isinstance(packet, PayloadBytes)
            data += packet.data
    assert decoder.buffered == 0
    return bytes(data), starts


def packed(packer: Packer, payload: bytes, piece_bytes: int = PACKET_BYTES_MAX) -> bytes:
    """All packets of a payload that is handed over in pieces."""
    trial = Trial()
    return b"".join(
        piece
        for at in range(0, len(payload), piece_bytes)
        for piece in packer.pack(payload[at : at + piece_bytes], at, len(payload), trial)
    )


@given(
    st.lists(st.tuples(st.integers(0, 200_000), st.booleans()), max_size=8),
    MODES,
    st.sampled_from([0, 1, 2, 17, 65536, WINDOW_BYTES_MAX]),
    st.sampled_from([1000, 65536, 262144]),
)
def test_what_is_packed_is_opened_again(
    pieces: list[tuple[int, bool]], mode: Compression, window: int, piece_bytes: int
) -> None:
    packer = Packer(window, mode)
    payloads = [(TEXT if is_text else NOISE)[:size] for size, is_text in pieces]
    packets = b"".join(packed(packer, payload, piece_bytes) for payload in payloads)
    data, starts = opened(packets, window)
    assert data == b"".join(payloads)
    assert all(start.length <= PACKET_BYTES_MAX for start in starts if start.compressed)


def test_text_shrinks_and_noise_goes_raw() -> None:
    assert 2 * len(packed(Packer(65536, "auto"), TEXT)) < len(TEXT)
    starts = opened(packed(Packer(65536, "auto"), NOISE), 65536)[1]
    assert not any(start.compressed for start in starts)


@pytest.mark.parametrize(("mode", "window"), [("never", 65536), ("always", 0), ("auto", 0)])
def test_never_and_a_window_of_zero_compress_nothing(mode: Compression, window: int) -> None:
    packer = Packer(window, mode)
    assert opened(packed(packer, TEXT), 0)[0] == TEXT
    assert packer.run_payload_bytes_max(Trial()) > len(TEXT)


def test_small_payloads_are_compressed_only_if_all_are() -> None:
    small = TEXT[: SMALL_BYTES - 1]
    modes: list[tuple[Compression, bool]] = [("auto", False), ("always", True)]
    for mode, compressed in modes:
        packer = Packer(65536, mode)
        assert opened(packed(packer, small), 65536)[1][0].compressed == compressed
        assert (packer.run_payload_bytes_max(Trial()) >= len(small)) != compressed


def test_a_payload_that_turns_compressible_is_noticed() -> None:
    packets = packed(Packer(65536, "auto"), NOISE + 20 * TEXT)
    assert len(packets) < len(NOISE) + 10 * len(TEXT)


def test_an_empty_payload_is_one_raw_packet() -> None:
    assert b"".join(Packer(65536, "always").pack(b"", 0, 0, Trial())) == b"\x08\x00"


def test_windows_above_the_limit_are_refused() -> None:
    setup = Setup(True, True, WINDOW_BYTES_MAX, WINDOW_BYTES_MAX)
    assert SessionConfig(setup=setup).setup == setup
    above = WINDOW_BYTES_MAX + 1
    for wrong in (replace(setup, send_window=above), replace(setup, receive_window=above)):
        with pytest.raises(ValueError, match="are allowed at most"):
            SessionConfig(setup=wrong)


def test_small_pieces_go_together_and_large_ones_as_they_are() -> None:
    large = memoryview(bytes(1 << 16))
    pieces: list[bytes | memoryview] = [b"a", memoryview(b"bc"), large, b"d", b"", large, large]
    found = gathered(pieces)
    assert found == [b"abc", large, b"d", large, large]
    assert [piece is large for piece in found] == [False, True, False, True, True]
