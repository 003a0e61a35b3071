"""The bytes of a bundle, against what is written by hand; the decoder, whatever it is fed."""

import tracemalloc
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.bundle_records import (
    END,
    ENTRY,
    HEADER,
    LOG,
    PAYLOAD,
    PIECE_BYTES,
    PROOF,
    BundleDecoder,
    BundleError,
    LogRange,
    Record,
    decode_log,
    decode_proof,
    encode_end,
    encode_log,
    encode_record,
)
from tests.logstore.authors import AuthorLog
from wire import ENTRY_BYTES_MAX, EntryError, LogKey, encode_varu64, yamf_hash

KEY = LogKey(bytes(range(32)), 300)
LOG_HEX = "00 27 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f f9012c 01 f9ffff"


def told(data: bytes, step: int = 1 << 20) -> tuple[list[Record], str]:
    """The records, and how it ended."""
    decoder, records = BundleDecoder(), []
    try:
        for at in range(0, len(data), step):
            decoder.feed(data[at : at + step])
            while (record := decoder.next_record()) is not None:
                records.append(record)
    except BundleError as error:
        return records, f"{error.offset}: {error}"
    return records, "complete" if decoder.is_complete else "cut short"


def whole(*records: bytes) -> bytes:
    body = HEADER + b"".join(records)
    return body + encode_end(blake2b(body))


def test_the_header_is_the_name_a_line_feed_and_the_version() -> None:
    assert bytes.fromhex("62 61 6d 62 6f 6f 2d 62 75 6e 64 6c 65 0a 01") == HEADER


def test_a_log_record_is_the_author_and_three_numbers() -> None:
    encoded = encode_log(LogRange(KEY, 1, 65535))
    assert encoded == bytes.fromhex(LOG_HEX)
    ([record], ended) = told(HEADER + encoded)
    assert (record.offset, record.end, record.type) == (15, 15 + len(encoded), LOG)
    assert (decode_log(record), ended) == (LogRange(KEY, 1, 65535), "cut short")


def test_entries_and_payloads_are_records_of_their_bytes() -> None:
    entry = AuthorLog().add(1, b"hi")
    length = len(entry.encoded)
    assert length < 248
    expected = bytes((0x01, length)) + entry.encoded + bytes.fromhex("02 02") + b"hi"
    assert encode_record(ENTRY, entry.encoded) + encode_record(PAYLOAD, b"hi") == expected
    piece = encode_record(PAYLOAD, b"x" * 65536)
    assert piece[:5] == bytes.fromhex("02 fa 01 00 00")


def test_a_proof_is_both_encodings_one_behind_the_other() -> None:
    log = AuthorLog()
    first, second = log.make(1, b"one").encoded, log.make(1, b"two").encoded
    body = first + second
    assert encode_record(PROOF, body)[:2] == bytes((0x03, 0xF9))
    assert decode_proof(body) == (log.key, first, second)
    for wrong in (first, body + b"\0", body[:-1], b""):
        with pytest.raises(EntryError):
            decode_proof(wrong)


def test_the_end_is_the_hash_of_all_that_is_before_it() -> None:
    data = whole(bytes.fromhex(LOG_HEX))
    before = data[: -2 - 66]
    assert data[len(before) :] == bytes.fromhex("7f 42") + yamf_hash(before)
    records, ended = told(data)
    assert [each.type for each in records] == [LOG, END]
    assert ended == "complete"


@pytest.mark.parametrize("type_", [0x40, 0x55, 0x7E])
def test_what_a_later_version_may_write_is_skipped(type_: int) -> None:
    later = encode_record(type_, b"x" * 300_000)
    data = whole(later, bytes.fromhex(LOG_HEX), later)
    for step in (1 << 20, 1000):
        records, ended = told(data, step)
        assert ([each.type for each in records], ended) == ([LOG, END], "complete")


@pytest.mark.parametrize("type_", [0x04, 0x3F, 0x80, 0xFF])
def test_other_types_are_refused(type_: int) -> None:
    records, ended = told(HEADER + bytes.fromhex(LOG_HEX) + bytes((type_, 0)))
    assert len(records) == 1
    assert (
        ended
        == f"{15 + len(bytes.fromhex(LOG_HEX))}: a record of type {type_:02x}, which is not known"
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"something", "0: this is no bundle"),
        (HEADER[:-1] + b"\x02", "14: version 2 of bundles is not known, only 1 is"),
        (HEADER + b"\x7f\x42" + bytes(66), "15: the hash at the end is not that of the bundle"),
        (whole() + b"x", f"{15 + 68}: something follows the end of the bundle"),
        (HEADER + b"\x02\xfa\x01\x00\x01", "15: a record of type 02 and 65537 bytes"),
        (HEADER + b"\x01\xf9\xff\xff", "15: a record of type 01 and 65535 bytes"),
    ],
)
def test_broken_framing_is_told_by_its_offset(data: bytes, reason: str) -> None:
    for step in (1, 1 << 20):
        assert told(data, step)[1].startswith(reason)


@pytest.mark.parametrize("type_", [LOG, ENTRY, PAYLOAD, PROOF, END, 0x40])
def test_what_a_length_claims_is_not_allocated(type_: int) -> None:
    decoder = BundleDecoder()
    decoder.feed(HEADER)
    assert decoder.next_record() is None
    tracemalloc.start()
    try:
        decoder.feed(bytes((type_,)) + encode_varu64(2**64 - 1))
        try:
            assert decoder.next_record() is None
        except BundleError:
            assert type_ != 0x40
        # Of a record that is skipped nothing is kept.
        for _ in range(200 if type_ == 0x40 else 0):
            decoder.feed(bytes(PIECE_BYTES))
            assert decoder.next_record() is None
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


@st.composite
def _bytes(draw: st.DrawFn) -> bytes:
    bodies = st.binary(max_size=400)
    types = st.sampled_from([LOG, ENTRY, PAYLOAD, PROOF, 0x40, 0x7E, 0x04, END])
    records = draw(st.lists(st.builds(encode_record, types, bodies), max_size=5))
    data = whole(*records) if draw(st.booleans()) else HEADER + b"".join(records)
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]


@given(data=_bytes() | st.binary(), step=st.integers(1, 40))
def test_the_split_of_the_bytes_makes_no_difference(data: bytes, step: int) -> None:
    assert told(data, step) == told(data) == told(data, 1)
    for record in told(data)[0]:
        assert len(record.body) <= max(PIECE_BYTES, ENTRY_BYTES_MAX)
        assert data[record.end - len(record.body) : record.end] == record.body
