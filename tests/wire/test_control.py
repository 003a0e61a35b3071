"""Control messages (point2point.md 2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import replace
from tests.wire.strategies import CONTROL_MESSAGES, CUTS, entry_bytes, pieces
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    Eagerness,
    EntryError,
    Grant,
    LogKey,
    Propose,
    Violation,
    encode_control,
    yamf_hash,
)

A = bytes(range(32))
H4 = yamf_hash(b"entry 4")
ENTRY, OTHER = entry_bytes(5), entry_bytes(5, payload_bytes=4)
MAX = "ff" * 9


def everything(
    request: int,
    log_id: int,
    start: int,
    **changes: Any,  # noqa: ANN401 - any fields of a proposal
) -> Propose:
    """A proposal of everything from `start` on, except for `changes`."""
    plain = Propose(request, LogKey(A, log_id), start, start, 0, U64_MAX, None, Eagerness.ALL)
    return replace(plain, **changes)


LIMITED = Eagerness.LIMITED
# The examples of section 11 first, then each remaining field and message.
GOLDEN: list[tuple[ControlMessage, str]] = [
    (Grant(64), "00 40"),
    (everything(0, 0, 1), f"e0 00 {A.hex()} 00 01 01 00 {MAX}"),
    (
        everything(
            2,
            7,
            5,
            starting_hash=H4,
            eagerness=LIMITED,
            eager_bytes=1000,
            end=13,
            upper_info=13,
            sparse=True,
            mandatory=True,
        ),
        f"d3 02 {A.hex()} 07 05 05 00 {MAX} {H4.hex()} f903e8 0d 0d",
    ),
    (Adjust(0, Eagerness.ALL), "60 00"),
    (Adjust(0, Eagerness.NOTIFY, end=20), "28 00 14"),
    (Cancel(5, CancelReason.COMPLETE), "82 05"),
    (Grant(U64_MAX), f"00 {MAX}"),
    (Adjust(3, LIMITED, 248, True, 1, 2, 3, 4), "5f 03 f8f8 01 02 03 04"),
    (Adjust(3, allow_skip=True), "10 03"),
    (Adjust(3, upper_info=7), "04 03 07"),
    (Adjust(3, min_bytes=7), "02 03 07"),
    (Adjust(3, max_bytes=7), "01 03 07"),
    (Cancel(256, CancelReason.NOT_WANTED), "80 f90100"),
    (Cancel(1, CancelReason.NO_RESOURCES), "81 01"),
    (Cancel(1, CancelReason.YOU_CANCELLED), "83 01"),
    (Cancel(1, CancelReason.PAYLOAD_MANDATORY), "84 01"),
    (Cancel(1, CancelReason.HASH_MISMATCH, (ENTRY,)), f"85 01 {ENTRY.hex()}"),
    (Cancel(1, CancelReason.LOG_ENDED, seq=9), "86 01 09"),
    (Cancel(1, CancelReason.FORKED, (ENTRY, OTHER)), f"87 01 {ENTRY.hex()} {OTHER.hex()}"),
    (
        everything(4, 0, 9, lower_info=None, starting_hash=H4, offset=70),
        f"e8 04 {A.hex()} 00 09 00 {MAX} {H4.hex()} 46",
    ),
    (
        everything(4, 0, 9, lower_info=1, payloads_only=True, eagerness=Eagerness.NOTIFY),
        f"a4 04 {A.hex()} 00 09 01 00 {MAX}",
    ),
    (
        everything(
            4,
            0,
            9,
            lower_info=None,
            starting_hash=H4,
            offset=1,
            end=10,
            upper_info=13,
            eagerness=LIMITED,
            eager_bytes=2,
        ),
        f"d8 04 {A.hex()} 00 09 00 {MAX} {H4.hex()} 02 0a 0d 01",
    ),
]


def decoded(chunks: list[bytes]) -> tuple[list[ControlMessage], str | None]:
    """All messages in these pieces, and the violation that follows them, if any."""
    decoder = ControlDecoder()
    messages = []
    for chunk in chunks:
        decoder.feed(chunk)
        try:
            while (message := decoder.next_message()) is not None:
                messages.append(message)
        except Violation as violation:
            return messages, str(violation)
    return messages, None


@pytest.mark.parametrize(("message", "encoding"), GOLDEN)
@pytest.mark.rule("P2P-2.01", "P2P-2.03", "P2P-2.04", "P2P-2.05", "P2P-2.06", "P2P-2.07")
def test_messages_have_the_specified_bytes(message: ControlMessage, encoding: str) -> None:
    data = bytes.fromhex(encoding)
    assert encode_control(message) == data
    assert decoded([data]) == ([message], None)
    assert decoded([bytes((byte,)) for byte in data]) == ([message], None)
    assert decoded([data + b"\x00"]) == ([message], None)


@given(st.lists(CONTROL_MESSAGES, max_size=5), CUTS)
def test_messages_round_trip_in_any_pieces(messages: list[ControlMessage], cuts: list[int]) -> None:
    data = b"".join(map(encode_control, messages))
    assert decoded(pieces(data, cuts)) == (messages, None)


@given(st.binary(max_size=200), CUTS)
def test_hostile_bytes_mean_the_same_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    whole = decoded([data])
    assert decoded(pieces(data, cuts)) == whole
    assert decoded([bytes((byte,)) for byte in data]) == whole


@given(CONTROL_MESSAGES, st.integers(0, 2**13), CUTS)
def test_flipped_bits_mean_the_same_in_any_pieces(
    message: ControlMessage, bit: int, cuts: list[int]
) -> None:
    data = bytearray(encode_control(message) * 2)
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    assert decoded(pieces(bytes(data), cuts)) == decoded([bytes(data)])


@pytest.mark.parametrize("first", range(136, 160))
def test_an_unused_first_byte_is_a_violation_that_names_it(first: int) -> None:
    with pytest.raises(Violation, match=f"first byte {first} .*point2point.md 2"):
        assert decode_one(bytes((first,))) is None, "more bytes are needed"


def decode_one(data: bytes) -> ControlMessage | None:
    decoder = ControlDecoder()
    decoder.feed(data)
    return decoder.next_message()


def test_every_other_first_byte_begins_a_message() -> None:
    for first in (*range(136), *range(160, 256)):
        assert decode_one(bytes((first,))) is None, "more bytes are needed"


def test_messages_before_a_violation_come_first_and_it_stays() -> None:
    decoder = ControlDecoder()
    decoder.feed(bytes.fromhex("0040 8205 8c 0040"))
    assert decoder.next_message() == Grant(64)
    assert decoder.next_message() == Cancel(5, CancelReason.COMPLETE)
    for _ in range(2):
        with pytest.raises(Violation, match="first byte 140"):
            decoder.next_message()
        decoder.feed(b"\x00\x40")


@pytest.mark.parametrize("reason", ["85", "87"])
@pytest.mark.parametrize(
    ("position", "field"), [(0, "tag"), (34, "seqnum"), (35, "backlink"), (101, "size")]
)
def test_an_entry_in_a_cancel_that_does_not_parse_is_a_violation(
    reason: str, position: int, field: str
) -> None:
    bad = bytearray(ENTRY)
    bad[position : position + 1] = {"seqnum": b"\x00"}.get(field, b"\xf8\x01")
    first = ENTRY if reason == "87" else b""
    messages, violation = decoded([bytes.fromhex(reason + "07") + first + bad])
    assert messages == []
    assert violation is not None
    assert violation.startswith(f"{field}: ")
    assert f"cancel {int(reason, 16)} of request 7" in violation


def test_a_starting_hash_of_another_type_is_a_violation() -> None:
    data = encode_control(everything(4, 0, 9, starting_hash=H4))
    with pytest.raises(EntryError, match="yamf type 7") as caught:
        decode_one(data.replace(H4, b"\x07" + H4[1:]))
    assert caught.value.field == "expected starting hash"


def test_long_numbers_are_read_and_never_written() -> None:
    assert decoded([bytes.fromhex("00 f840")]) == ([Grant(64)], None)
    messages = [Adjust(248, Eagerness.NOTIFY, end=20), Cancel(5, CancelReason.COMPLETE)]
    assert decoded([bytes.fromhex("28 f900f8 f814 82 fa000005")]) == (messages, None)
    data = bytes.fromhex(f"e0 f800 {A.hex()} f900f8 f801 f801 f800 {MAX}")
    assert decoded([data]) == ([everything(0, 248, 1)], None)


def test_buffered_bytes_are_those_of_no_message_yet() -> None:
    decoder = ControlDecoder()
    assert decoder.buffered == 0
    decoder.feed(bytes.fromhex("0040 82"))
    assert decoder.buffered == 3
    assert decoder.next_message() == Grant(64)
    assert decoder.next_message() is None
    assert decoder.buffered == 1
    decoder.feed(memoryview(b"\x05"))
    assert decoder.next_message() == Cancel(5, CancelReason.COMPLETE)
    assert decoder.buffered == 0


def test_the_largest_message_has_less_than_1_kib() -> None:
    entry = entry_bytes(U64_MAX - 1, U64_MAX, U64_MAX)
    largest = encode_control(Cancel(U64_MAX, CancelReason.FORKED, (entry, entry)))
    assert len(largest) < 1024
    propose = everything(
        U64_MAX,
        U64_MAX,
        U64_MAX,
        lower_info=U64_MAX,
        starting_hash=H4,
        eagerness=LIMITED,
        eager_bytes=U64_MAX,
        end=U64_MAX,
        upper_info=U64_MAX,
    )
    assert len(encode_control(propose)) < 1024


@pytest.mark.parametrize(
    "message",
    [
        Adjust(0),
        Adjust(0, Eagerness.ALL, eager_bytes=1),
        Adjust(0, LIMITED),
        Adjust(0, eager_bytes=1),
        Cancel(0, CancelReason.COMPLETE, (ENTRY,)),
        Cancel(0, CancelReason.HASH_MISMATCH),
        Cancel(0, CancelReason.FORKED, (ENTRY,)),
        Cancel(0, CancelReason.FORKED, (ENTRY, ENTRY[:-1])),
        Cancel(0, CancelReason.LOG_ENDED),
        Cancel(0, CancelReason.COMPLETE, seq=1),
        everything(0, 0, 1, eager_bytes=1),
        everything(0, 0, 1, eagerness=LIMITED),
        everything(0, 0, 1, end=1),
        everything(0, 0, 1, upper_info=1),
        everything(0, 0, 1, lower_info=None),
        everything(0, 0, 1, offset=1),
        everything(0, 0, 1, starting_hash=H4),
        everything(0, 0, 5),
        everything(0, 0, 5, starting_hash=H4[:-1]),
        everything(0, 0, 5, starting_hash=b"\x01" + H4[1:]),
        everything(0, 0, 1, log=LogKey(A[:-1], 0)),
    ],
)
def test_what_has_no_encoding_is_refused(message: ControlMessage) -> None:
    with pytest.raises(Violation):
        encode_control(message)


@pytest.mark.parametrize("number", [-1, U64_MAX + 1])
def test_numbers_beyond_64_bits_are_refused(number: int) -> None:
    for message in (Grant(number), Adjust(0, end=number), Cancel(number, CancelReason.COMPLETE)):
        with pytest.raises(ValueError, match="not an unsigned 64-bit integer"):
            encode_control(message)
