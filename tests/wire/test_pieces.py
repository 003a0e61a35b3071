"""Payloads that come raw, taken in pieces: the same bytes as packet by packet, and no further."""

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from wire import (
    DataDecoder,
    DataPacket,
    PayloadBytes,
    PayloadStart,
    encode_compressed,
    encode_payload_header,
    encode_skip_below,
)

PIECES_MAX = 64


def packet(payload: bytes) -> bytes:
    return encode_payload_header(len(payload)) + payload


def fed(stream: bytes, cuts: Iterable[int], *, views: bool) -> DataDecoder:
    """A decoder that was fed a stream in pieces that end at these places."""
    decoder = DataDecoder(0)
    start = 0
    for end in [*sorted(cuts), len(stream)]:
        piece = stream[start:end]
        decoder.feed(memoryview(piece) if views else piece)
        start = end
    return decoder


def packets(decoder: DataDecoder) -> list[DataPacket]:
    """All that `next_packet` gives."""
    found: list[DataPacket] = []
    while (one := decoder.next_packet(with_backlink=False)) is not None:
        found.append(one)
    return found


def payload_of(found: Iterable[DataPacket]) -> bytes:
    return b"".join(bytes(one.data) for one in found if isinstance(one, PayloadBytes))


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes], list[int]]:
    """What the packets of one payload hold, and where the stream of them is cut."""
    sizes = draw(st.lists(st.integers(1, 9000), min_size=1, max_size=5))
    parts = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    length = sum(len(packet(part)) for part in parts)
    return parts, draw(st.lists(st.integers(0, length), max_size=6))


@given(streams(), st.booleans(), st.integers(1, 4))
@example(([b"a" * 5000, b"b" * 5000], [2, 5003, 5004]), True, PIECES_MAX)
def test_pieces_are_what_the_packets_hold(
    stream: tuple[list[bytes], list[int]], views: bool, pieces_max: int
) -> None:
    parts, cuts = stream
    whole = b"".join(map(packet, parts)) + encode_skip_below()
    decoder = fed(whole, cuts, views=views)
    payload = b"".join(parts)
    taken = b""
    begun = 0
    while len(taken) < len(payload):
        pieces, packets_begun = decoder.next_pieces(len(payload) - len(taken), pieces_max)
        assert len(pieces) <= pieces_max
        begun += packets_begun
        if not pieces and not packets_begun:
            # A header that is cut in two is for `next_packet`.
            start = decoder.next_packet(with_backlink=False)
            assert isinstance(start, PayloadStart)
            begun += 1
        taken += b"".join(pieces)
    assert (taken, begun) == (payload, len(parts))
    # What is behind the payload is where it was.
    assert decoder.next_pieces(1 << 20, PIECES_MAX) == ([], 0)
    assert decoder.next_byte == encode_skip_below()[0]


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_packet_longer_than_the_rest_of_the_payload_is_left_to_be_judged(
    size: int, too_many: int
) -> None:
    decoder = fed(packet(b"x" * size) + packet(b"y" * too_many), [], views=True)
    pieces, begun = decoder.next_pieces(size + too_many - 1, PIECES_MAX)
    assert (b"".join(pieces), begun) == (b"x" * size, 1)
    assert packets(decoder)[0] == PayloadStart(too_many, compressed=False)


def test_what_is_no_raw_packet_is_left() -> None:
    for other in (encode_payload_header(0), encode_compressed(1000, b"\x00"), encode_skip_below()):
        decoder = fed(other, [], views=True)
        assert decoder.next_pieces(1000, PIECES_MAX) == ([], 0)
        assert decoder.buffered == len(other)


def test_half_a_payload_packet_may_be_taken_either_way() -> None:
    stream = packet(b"z" * 10_000)
    decoder = fed(stream[:4000], [], views=True)
    came = payload_of(packets(decoder))
    decoder.feed(memoryview(stream[4000:]))
    pieces, begun = decoder.next_pieces(10_000, PIECES_MAX)
    assert (came + b"".join(pieces), begun) == (b"z" * 10_000, 0)


def test_small_pieces_before_a_large_one_are_not_copied_into_it() -> None:
    """A header that came for itself: the payload behind it is handed on as it came."""
    decoder = DataDecoder(0)
    body = b"w" * 100_000
    decoder.feed(encode_payload_header(len(body)))
    decoder.feed(memoryview(body))
    start, data = packets(decoder)
    assert start == PayloadStart(len(body), compressed=False)
    assert isinstance(data, PayloadBytes)
    assert isinstance(data.data, memoryview)
    assert data.data.obj is body
