"""Data packets (point2point.md 4)."""

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import CUTS, ENTRIES, U64, entry_bytes, pieces
from wire import (
    PIECE_BYTES_MAX,
    U64_MAX,
    Apology,
    DataDecoder,
    DataPacket,
    EntryError,
    LZFooEncoder,
    LZFooError,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    RequestCancelled,
    SkipAbove,
    SkipBelow,
    SkipBytes,
    SkipUnavailable,
    Switch,
    Violation,
    decode_entry,
    encode_apology,
    encode_compressed,
    encode_metadata_packet,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
    rebuild_entry,
    tail_offset,
    yamf_hash,
)

MAX = "ff" * 9
ENTRY_8 = entry_bytes(8)
TAIL_8 = ENTRY_8[tail_offset(0, 8) :]
BACK = yamf_hash(b"back")

GOLDEN: list[tuple[bytes, list[DataPacket], str]] = [
    # The examples of section 11.
    (encode_switch(0) + encode_notify(40), [Switch(0), Notify(40)], "00 00 03 28"),
    (
        encode_payload_header(2) + b"hi",
        [PayloadStart(2, False), PayloadBytes(b"hi")],
        "08 02 6869",
    ),
    # One of each kind.
    (encode_switch(U64_MAX), [Switch(U64_MAX)], f"00 {MAX}"),
    (encode_notify(1), [Notify(1)], "02"),
    (encode_notify(U64_MAX), [Notify(U64_MAX)], f"03 {MAX}"),
    (encode_skip_below(), [SkipBelow()], "04"),
    (encode_skip_above(), [SkipAbove()], "05"),
    (encode_skip_unavailable(), [SkipUnavailable()], "06"),
    (encode_skip_bytes(248), [SkipBytes(248)], "07 f8f8"),
    (encode_payload_header(0), [PayloadStart(0, False)], "08 00"),
    (
        encode_compressed(8, bytes.fromhex("03616263 8502")),
        [PayloadStart(8, True), PayloadBytes(b"abcbcbcb")],
        "09 08 06 03616263 8502",
    ),
    (encode_compressed(0, b""), [PayloadStart(0, True)], "09 00 00"),
    (encode_apology(), [Apology()], "10"),
    (encode_request_cancelled(5), [RequestCancelled(5)], "20 05"),
    (
        encode_metadata_packet(ENTRY_8, 0, 8, False),
        [Metadata(0, None, TAIL_8)],
        f"80 03 {yamf_hash(b'payload').hex()} {bytes(range(64)).hex()}",
    ),
    (
        encode_metadata_packet(entry_bytes(7, tag=1), 0, 7, False),
        [Metadata(1, None, TAIL_8)],
        f"81 03 {yamf_hash(b'payload').hex()} {bytes(range(64)).hex()}",
    ),
]


def joined(packets: list[DataPacket]) -> list[DataPacket]:
    """The same packets, neighbouring payload bytes put together."""
    out: list[DataPacket] = []
    for packet in packets:
        if not isinstance(packet, PayloadBytes):
            out.append(packet)
        elif out and isinstance(out[-1], PayloadBytes):
            out[-1] = PayloadBytes(b"".join((out[-1].data, packet.data)))
        else:
            out.append(PayloadBytes(bytes(packet.data)))
    return out


def decoded(
    chunks: list[bytes], window: int = 65536, with_backlink: bool = False
) -> tuple[list[DataPacket], str | None]:
    """All packets in these pieces, and the violation that follows them, if any."""
    found = decoded_of(chunks, window, with_backlink)
    assert decoded_of([memoryview(each) for each in chunks], window, with_backlink) == found
    return found


def decoded_of(
    chunks: Sequence[bytes | memoryview], window: int, with_backlink: bool
) -> tuple[list[DataPacket], str | None]:
    decoder = DataDecoder(window)
    packets, compressed = list[DataPacket](), False
    fed = 0
    for chunk in chunks:
        decoder.feed(chunk)
        fed += len(chunk)
        try:
            while (packet := decoder.next_packet(with_backlink)) is not None:
                packets.append(packet)
                compressed = packet.compressed if isinstance(packet, PayloadStart) else compressed
                if isinstance(packet, PayloadBytes):
                    assert 0 < len(packet.data) <= (PIECE_BYTES_MAX if compressed else len(chunk))
                assert decoder.consumed + decoder.buffered == fed
        except Violation as violation:
            return joined(packets), str(violation)
    return joined(packets), None


@pytest.mark.parametrize(("encoding", "packets", "golden"), GOLDEN)
@pytest.mark.rule("P2P-4.01")
def test_packets_have_the_specified_bytes(
    encoding: bytes, packets: list[DataPacket], golden: str
) -> None:
    data = bytes.fromhex(golden)
    assert encoding == data
    assert decoded([data]) == (packets, None)
    assert decoded([bytes((byte,)) for byte in data]) == (packets, None)
    assert decoded([data + b"\x00"]) == (packets, None)


def test_a_metadata_packet_carries_its_backlink_if_asked_to() -> None:
    data = encode_metadata_packet(ENTRY_8, 0, 8, True)
    assert data == b"\x80" + BACK + TAIL_8
    packets = [Metadata(0, BACK, TAIL_8)]
    assert decoded([data], with_backlink=True) == (packets, None)
    assert decoded([bytes((byte,)) for byte in data], with_backlink=True) == (packets, None)


def test_whether_there_is_a_backlink_is_asked_only_at_metadata() -> None:
    for data, packets, _ in GOLDEN[:14]:
        assert decoded([data], with_backlink=True) == (packets, None)


@pytest.mark.parametrize("seq", [1, 2, 3, 5, 7])
@pytest.mark.rule("P2P-4.04")
def test_a_backlink_that_the_receiver_always_has_is_never_carried(seq: int) -> None:
    with pytest.raises(Violation, match=f"entry {seq} never carries"):
        encode_metadata_packet(entry_bytes(seq), 0, seq, True)


def test_a_notify_of_nothing_is_not_written() -> None:
    with pytest.raises(Violation, match="no piece"):
        encode_notify(0)


def test_lengths_and_counts_of_zero_are_passed_on_for_the_session_to_judge() -> None:
    packets = [Notify(0), SkipBytes(0), PayloadStart(0, False), PayloadStart(0, True)]
    assert decoded([bytes.fromhex("0300 0700 0800 090000")]) == (packets, None)


def test_long_numbers_are_read() -> None:
    data = bytes.fromhex("00 f900f8 03 f801 08 f801 aa 09 f803 f90004 03616263")
    packets, violation = decoded([data])
    assert violation is None
    assert packets == [
        Switch(248),
        Notify(1),
        PayloadStart(1, False),
        PayloadBytes(b"\xaa"),
        PayloadStart(3, True),
        PayloadBytes(b"abc"),
    ]


@given(ENTRIES)
def test_an_entry_is_rebuilt_from_its_packet(encoded: bytes) -> None:
    entry = decode_entry(encoded)
    with_backlink = entry.lipmaalink is not None
    data = encode_metadata_packet(encoded, entry.log_id, entry.seq, with_backlink)
    (packet,), _ = decoded([data], with_backlink=with_backlink)
    assert isinstance(packet, Metadata)
    assert packet.backlink == (entry.backlink if with_backlink else None)
    rebuilt = rebuild_entry(
        entry.key, entry.seq, packet.tag, entry.lipmaalink, entry.backlink, packet.tail
    )
    assert rebuilt == encoded


USED = {0, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 128, 129}


@pytest.mark.parametrize("first", sorted(set(range(256)) - USED))
def test_an_unused_first_byte_is_a_violation_that_names_it(first: int) -> None:
    packets, violation = decoded([b"\x02" + bytes((first,))])
    assert packets == [Notify(1)]
    assert violation == f"unused first byte {first} of a data packet (point2point.md 4)"


@pytest.mark.parametrize(
    ("position", "by", "with_backlink", "field"),
    [
        (1, "01", True, "backlink"),
        (2, "20", True, "backlink"),
        (67, "f803", True, "size"),
        (1, "f803", False, "size"),
        (1, "f90003", False, "size"),
        (2, "01", False, "payload hash"),
        (3, "41", False, "payload hash"),
    ],
)
@pytest.mark.rule("P2P-4.08")
def test_a_field_of_metadata_that_breaks_a_rule_is_named(
    position: int, by: str, with_backlink: bool, field: str
) -> None:
    data = encode_metadata_packet(ENTRY_8, 0, 8, with_backlink)
    decoder = DataDecoder(0)
    decoder.feed(data[:position] + bytes.fromhex(by))
    for _ in range(2):
        with pytest.raises(EntryError) as caught:
            decoder.next_packet(with_backlink)
        assert caught.value.field == field


def test_compressed_packets_are_a_violation_with_window_0() -> None:
    packets, violation = decoded([bytes.fromhex("02 09")], window=0)
    assert packets == [Notify(1)]
    assert violation is not None
    assert "window 0" in violation


@pytest.mark.parametrize(
    ("packet", "output", "position"),
    [
        ("09 05 06 03616263 8204", b"abc", 4),
        ("09 05 06 03616263 8200", b"abc", 4),
        ("09 05 04 03616263", b"abc", 4),
        ("09 03 06 03616263 0161", b"abc", 4),
        ("09 05 05 03616263 82", b"abc", 4),
        ("09 05 01 00", b"", 0),
        ("09 00 01 01", b"", 0),
    ],
)
def test_bytes_that_do_not_decompress_are_a_violation_with_its_position(
    packet: str, output: bytes, position: int
) -> None:
    data = bytes.fromhex(packet)
    packets, violation = decoded([data])
    assert packets == [PayloadStart(data[1], True), *([PayloadBytes(output)] if output else [])]
    assert violation is not None
    assert f"at byte {position} of the compressed bytes (encodings.md LZFoo)" in violation
    assert decoded([bytes((byte,)) for byte in data]) == (packets, violation)


def test_too_many_compressed_bytes_are_refused_at_the_header() -> None:
    decoder = DataDecoder(65536)
    decoder.feed(bytes.fromhex("09 00 41"))
    with pytest.raises(LZFooError, match="65 compressed bytes for 0"):
        decoder.next_packet(False)


def test_offsets_beyond_the_negotiated_window_are_refused() -> None:
    first = encode_compressed(12, b"\x0c0123456789ab")
    _, violation = decoded([first + bytes.fromhex("09 02 02 82 0b")], window=10)
    assert violation is not None
    assert "offset 11 is beyond the window of 10" in violation


def test_the_window_holds_what_was_decompressed_and_nothing_raw() -> None:
    first = encode_compressed(3, b"\x03abc")
    raw = encode_payload_header(3) + b"xyz"
    packets, violation = decoded([first + raw + bytes.fromhex("09 03 02 83 03")])
    assert violation is None
    assert packets[-1] == PayloadBytes(b"abc")


def test_a_payload_is_handed_on_as_it_arrives() -> None:
    decoder = DataDecoder(0)
    decoder.feed(encode_payload_header(U64_MAX))
    assert decoder.next_packet(False) == PayloadStart(U64_MAX, False)
    assert decoder.next_packet(False) is None
    decoder.feed(bytes(150_000))
    decoder.feed(bytes(70_000))
    sizes = []
    while (packet := decoder.next_packet(False)) is not None:
        assert isinstance(packet, PayloadBytes)
        sizes.append(len(packet.data))
    assert sizes == [150_000, 70_000]
    assert decoder.buffered == 0
    assert decoder.consumed == 10 + 220_000


def test_of_a_raw_payload_nothing_is_copied() -> None:
    """Not what stands in a view of what came, where the packet begins in it too."""
    came = bytes(5) + encode_payload_header(150_000) + bytes(100_000)
    more = bytes(50_000) + encode_payload_header(3) + b"abc"
    decoder = DataDecoder(0)
    decoder.feed(memoryview(came)[5:])
    decoder.feed(memoryview(more))
    packets = list(iter(partial(decoder.next_packet, False), None))
    starts = [packet for packet in packets if isinstance(packet, PayloadStart)]
    views = [packet.data for packet in packets if isinstance(packet, PayloadBytes)]
    assert starts == [PayloadStart(150_000, False), PayloadStart(3, False)]
    assert [view.obj for view in views if isinstance(view, memoryview)] == [came, more, more]
    assert all(view.obj is came or view.obj is more for view in views if type(view) is memoryview)
    assert bytes(views[-1]) == b"abc"


def test_what_is_not_asked_for_stays_buffered() -> None:
    decoder = DataDecoder(0)
    for byte in bytes.fromhex("0005 02 02"):
        decoder.feed(bytes((byte,)))
    assert (decoder.buffered, decoder.consumed) == (4, 0)
    assert decoder.next_packet(False) == Switch(5)
    decoder.feed(memoryview(b"\x10"))
    assert (decoder.buffered, decoder.consumed) == (3, 2)
    assert decoder.next_packet(False) == Notify(1)
    assert decoder.next_packet(False) == Notify(1)
    assert decoder.next_packet(False) == Apology()
    assert (decoder.buffered, decoder.consumed) == (0, 5)


Packets = tuple[bytes, list[DataPacket]]
COMPRESSIBLE = st.lists(st.sampled_from([b"bamboo", b"log ", bytes(50)]), max_size=20).map(b"".join)


def raw_payload(data: bytes) -> Packets:
    body: list[DataPacket] = [PayloadBytes(data)] if data else []
    return encode_payload_header(len(data)) + data, [PayloadStart(len(data), False), *body]


def simple_packets() -> st.SearchStrategy[Packets]:
    return st.one_of(
        U64.map(lambda n: (encode_switch(n), [Switch(n)])),
        U64.filter(bool).map(lambda n: (encode_notify(n), [Notify(n)])),
        U64.map(lambda n: (encode_skip_bytes(n), [SkipBytes(n)])),
        U64.map(lambda n: (encode_request_cancelled(n), [RequestCancelled(n)])),
        st.sampled_from([(data, packets) for data, packets, _ in GOLDEN[5:8] + GOLDEN[12:13]]),
        st.binary(max_size=300).map(raw_payload),
        ENTRIES.map(metadata),
    )


def metadata(encoded: bytes) -> Packets:
    entry = decode_entry(encoded)
    tail = encoded[tail_offset(entry.log_id, entry.seq) :]
    data = encode_metadata_packet(encoded, entry.log_id, entry.seq, False)
    return data, [Metadata(int(entry.is_end), None, tail)]


@given(st.lists(simple_packets() | COMPRESSIBLE, max_size=8), CUTS)
def test_packets_round_trip_in_any_pieces(drawn: list[Packets | bytes], cuts: list[int]) -> None:
    encoder = LZFooEncoder(65536)
    data, expected = b"", list[DataPacket]()
    for item in drawn:
        if isinstance(item, bytes):
            data += encode_compressed(len(item), encoder.encode(item))
            body = [PayloadBytes(item)] if item else []
            expected += [PayloadStart(len(item), True), *body]
        else:
            data += item[0]
            expected += item[1]
    assert decoded(pieces(data, cuts)) == (expected, None)


@given(st.binary(max_size=200), st.booleans(), CUTS)
def test_hostile_bytes_mean_the_same_in_any_pieces(
    data: bytes, with_backlink: bool, cuts: list[int]
) -> None:
    whole = decoded([data], with_backlink=with_backlink)
    assert decoded(pieces(data, cuts), with_backlink=with_backlink) == whole
    assert decoded([bytes((byte,)) for byte in data], with_backlink=with_backlink) == whole


@given(st.lists(simple_packets(), min_size=1, max_size=4), st.integers(0, 2**13), CUTS)
def test_flipped_bits_mean_the_same_in_any_pieces(
    drawn: list[Packets], bit: int, cuts: list[int]
) -> None:
    data = bytearray(b"".join(item[0] for item in drawn))
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    assert decoded(pieces(bytes(data), cuts)) == decoded([bytes(data)])
