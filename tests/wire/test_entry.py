"""Entries (bamboo.md): the published vectors, round trips, and one error for each broken rule."""

import json
import pickle
from copy import copy
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from wire import (
    ENTRY_BYTES_MAX,
    U64_MAX,
    Entry,
    EntryError,
    LogKey,
    NeedMore,
    decode_entry,
    decode_entry_prefix,
    encode_entry,
    encode_varu64,
    has_distinct_lipmaalink,
    lipmaa,
    rebuild_entry,
    sign_entry,
    signature_is_valid,
    tail_fields,
    tail_offset,
    verify_links,
    yamf_hash,
)

VECTORS = json.loads((Path(__file__).parent / "data" / "bamboo-rs.json").read_text())
PUBLISHED: list[dict[str, Any]] = [
    VECTORS["validFirstEntry"],
    *VECTORS["fiveValidEntries"]["entries"],
]
SECRET = bytes.fromhex(VECTORS["validFirstEntry"]["author"]["secret"])
HASH_A, HASH_B, HASH_C = (yamf_hash(bytes((n,))) for n in range(3))


def linked(seq: int, log_id: int = 0, payload_bytes: int = 3, is_end: bool = False) -> Entry:
    """An entry with the links that its seqnum needs; its signature is not valid."""
    return Entry(
        bytes(range(32)),
        log_id,
        seq,
        is_end,
        HASH_A if has_distinct_lipmaalink(seq) else None,
        HASH_B if seq > 1 else None,
        payload_bytes,
        HASH_C,
        bytes(range(64)),
    )


NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, U64_MAX), st.just(U64_MAX))
ENTRIES = st.builds(linked, NUMBERS.filter(bool), NUMBERS, NUMBERS, st.booleans())


def yamf_of(decoded: dict[str, str] | None) -> bytes | None:
    return None if decoded is None else bytes.fromhex("0040" + decoded["Blake2b"])


@pytest.mark.parametrize("vector", PUBLISHED, ids=lambda v: f"seq{v['decoded']['seqNum']}")
def test_published_entries_decode_to_their_fields(vector: dict[str, Any]) -> None:
    fields = vector["decoded"]
    encoded = bytes.fromhex(vector["encoded"])
    entry = Entry(
        bytes.fromhex(fields["author"]),
        fields["logId"],
        fields["seqNum"],
        fields["isEndOfFeed"],
        yamf_of(fields["lipmaaLink"]),
        yamf_of(fields["backlink"]),
        fields["payloadSize"],
        cast("bytes", yamf_of(fields["payloadHash"])),
        bytes.fromhex(fields["sig"]),
    )
    assert decode_entry(encoded) == entry
    assert encode_entry(entry) == encoded
    assert signature_is_valid(encoded)


def test_published_logs_are_reproduced_byte_for_byte_from_the_key() -> None:
    key = SigningKey(SECRET)
    for log in (PUBLISHED[:1], PUBLISHED[1:]):
        hashes: dict[int, bytes] = {}
        for seq, vector in enumerate(log, 1):
            payload = bytes.fromhex(vector["payload"])
            encoded = sign_entry(
                key,
                log_id=vector["decoded"]["logId"],
                seq=seq,
                is_end=vector["decoded"]["isEndOfFeed"],
                lipmaalink=hashes[lipmaa(seq)] if has_distinct_lipmaalink(seq) else None,
                backlink=hashes.get(seq - 1),
                payload_bytes=len(payload),
                payload_hash=yamf_hash(payload),
            )
            assert encoded.hex() == vector["encoded"]
            hashes[seq] = yamf_hash(encoded)
            back_hash, lipmaa_hash = hashes.get(seq - 1), hashes.get(lipmaa(seq))
            verify_links(decode_entry(encoded), lipmaa_hash, back_hash)


def test_the_largest_entry_has_322_bytes() -> None:
    seq = next(n for n in range(U64_MAX, 0, -1) if has_distinct_lipmaalink(n))
    encoded = encode_entry(linked(seq, U64_MAX, U64_MAX))
    assert len(encoded) == ENTRY_BYTES_MAX == 322
    assert decode_entry(encoded) == linked(seq, U64_MAX, U64_MAX)


@given(ENTRIES, st.binary(max_size=4), st.binary(max_size=4))
def test_entries_round_trip_wherever_they_stand(entry: Entry, before: bytes, after: bytes) -> None:
    encoded = encode_entry(entry)
    assert decode_entry(encoded) == entry
    end = len(before) + len(encoded)
    assert decode_entry_prefix(before + encoded + after, len(before)) == (entry, end)


@given(ENTRIES)
def test_every_prefix_of_an_entry_asks_for_more_and_is_no_entry(entry: Entry) -> None:
    encoded = encode_entry(entry)
    for length in range(len(encoded)):
        with pytest.raises(NeedMore) as short:
            decode_entry_prefix(encoded[:length], 0)
        with pytest.raises(EntryError, match=f"ends inside it, at byte {length}") as caught:
            decode_entry(encoded[:length])
        assert caught.value.field == short.value.field


def test_a_trailer_is_refused_where_one_entry_is_expected() -> None:
    with pytest.raises(EntryError, match="1 bytes follow") as caught:
        decode_entry(encode_entry(linked(5)) + b"\x00")
    assert caught.value.field == "signature"


# Entry 8 of log 7: tag 0, author 1-32, log id 33, seqnum 34, lipmaalink 35, backlink 101,
# size 167, payload hash 168, signature 234.
@pytest.mark.parametrize(
    ("position", "replaced", "by", "field"),
    [
        (0, 1, "02", "tag"),
        (0, 1, "ff", "tag"),
        (33, 1, "f807", "log id"),
        (34, 1, "f90008", "seqnum"),
        (34, 1, "00", "seqnum"),
        (35, 1, "01", "lipmaalink"),
        (36, 1, "41", "lipmaalink"),
        (101, 1, "02", "backlink"),
        (102, 1, "20", "backlink"),
        (167, 1, "f803", "size"),
        (168, 1, "03", "payload hash"),
        (169, 1, "f840", "payload hash"),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(
    position: int, replaced: int, by: str, field: str
) -> None:
    encoded = encode_entry(linked(8, 7))
    assert len(encoded) == 298
    bad = encoded[:position] + bytes.fromhex(by) + encoded[position + replaced :]
    for read in (decode_entry, lambda data: decode_entry_prefix(data, 0)):
        with pytest.raises(EntryError) as caught:
            read(bad)
        assert caught.value.field == field


def test_an_error_shows_as_soon_as_its_bytes_are_there() -> None:
    encoded = bytearray(encode_entry(linked(8, 7)))
    encoded[101] = 2
    for length in range(len(encoded) + 1):
        expected = NeedMore if length < 102 else EntryError
        with pytest.raises(expected):
            decode_entry_prefix(bytes(encoded[:length]), 0)


@given(st.binary(max_size=400))
def test_hostile_bytes_raise_entry_errors_only(data: bytes) -> None:
    for candidate in (data, b"\x00" + bytes(32) + data):
        try:
            entry = decode_entry(candidate)
        except EntryError:
            continue
        assert encode_entry(entry) == candidate


@given(ENTRIES, st.integers(0, 8 * 322 - 1))
def test_an_entry_with_a_flipped_bit_is_refused_or_another_entry(entry: Entry, bit: int) -> None:
    encoded = bytearray(encode_entry(entry))
    bit %= 8 * len(encoded)
    encoded[bit // 8] ^= 1 << bit % 8
    try:
        other = decode_entry(bytes(encoded))
    except EntryError:
        return
    assert other != entry
    assert encode_entry(other) == encoded


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"author": bytes(31)}, "author"),
        ({"log_id": U64_MAX + 1}, "log id"),
        ({"log_id": -1}, "log id"),
        ({"seq": 0}, "seqnum"),
        ({"seq": U64_MAX + 1}, "seqnum"),
        ({"seq": 5}, "lipmaalink"),
        ({"lipmaalink": None}, "lipmaalink"),
        ({"lipmaalink": HASH_A[:-1]}, "lipmaalink"),
        ({"backlink": None}, "backlink"),
        ({"backlink": b"\x01" + HASH_B[1:]}, "backlink"),
        ({"seq": 1, "lipmaalink": None}, "backlink"),
        ({"payload_bytes": U64_MAX + 1}, "size"),
        ({"payload_hash": HASH_C[2:]}, "payload hash"),
        ({"signature": bytes(63)}, "signature"),
    ],
)
def test_what_has_no_encoding_is_refused_with_its_field(
    changes: dict[str, Any], field: str
) -> None:
    values = {name: getattr(linked(8), name) for name in Entry.__dataclass_fields__}
    with pytest.raises(EntryError) as caught:
        encode_entry(Entry(**(values | changes)))
    assert caught.value.field == field


@given(ENTRIES)
def test_an_entry_is_rebuilt_from_the_tail_of_its_encoding(entry: Entry) -> None:
    encoded = encode_entry(entry)
    offset = tail_offset(entry.log_id, entry.seq)
    tail = encoded[offset:]
    assert tail.startswith(encode_varu64(entry.payload_bytes))
    assert tail_fields(tail) == (entry.payload_bytes, entry.payload_hash)
    links = (entry.lipmaalink, entry.backlink)
    assert rebuild_entry(entry.key, entry.seq, encoded[0], *links, tail) == encoded


def test_an_entry_is_not_rebuilt_with_the_wrong_links() -> None:
    tail = encode_entry(linked(8))[tail_offset(0, 8) :]
    key = linked(8).key
    for seq, lipmaalink, backlink, field in (
        (8, None, HASH_B, "lipmaalink"),
        (8, HASH_A, None, "backlink"),
        (7, HASH_A, HASH_B, "lipmaalink"),
        (1, None, HASH_B, "backlink"),
        (7, None, HASH_B[1:], "backlink"),
    ):
        with pytest.raises(EntryError) as caught:
            rebuild_entry(key, seq, 0, lipmaalink, backlink, tail)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("cut", "field"), [(0, "size"), (40, "payload hash"), (80, "signature"), (132, "signature")]
)
def test_a_tail_of_another_length_is_refused(cut: int, field: str) -> None:
    tail = encode_entry(linked(1))[tail_offset(0, 1) :] + b"\x00"
    with pytest.raises(EntryError) as caught:
        tail_fields(tail[:cut])
    assert caught.value.field == field


def test_links_are_checked_against_the_hashes_that_are_held() -> None:
    entry = linked(8)
    verify_links(entry, HASH_A, HASH_B)
    verify_links(entry, None, None)
    verify_links(linked(1), HASH_C, HASH_C)
    verify_links(linked(7), HASH_C, HASH_B)  # its only link is the backlink
    with pytest.raises(EntryError, match=r"entry 8 .*bamboo.md Verified") as caught:
        verify_links(entry, HASH_C, HASH_B)
    assert caught.value.field == "lipmaalink"
    with pytest.raises(EntryError, match="entry 8") as caught:
        verify_links(entry, None, HASH_C)
    assert caught.value.field == "backlink"


def test_a_log_key_is_written_and_parsed() -> None:
    key = LogKey(bytes(range(32)), 7)
    assert str(key) == bytes(range(32)).hex() + "/7"
    assert LogKey.parse(str(key)) == key
    assert LogKey.parse(str(key).upper()) == key
    assert LogKey.parse(bytes(32).hex()) == LogKey(bytes(32), 0)
    assert LogKey.parse(f"{bytes(32).hex()}/{U64_MAX}").log_id == U64_MAX
    assert linked(3, 9).key == (bytes(range(32)), 9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no log"),
        ("ab", "64 hex digits"),
        ("g" * 64, "64 hex digits"),
        ("00" * 32 + "/", "names no log"),
        ("00" * 32 + "/-1", "names no log"),
        ("00" * 32 + "/\u0661", "names no log"),
        ("00" * 32 + "/1\n", "names no log"),
        (" " + "00" * 32, "names no log"),
        ("00" * 33, "names no log"),
        ("00" * 32 + "/" + "1" * 21, "names no log"),
        (f"{'00' * 32}/{U64_MAX + 1}", "above 2^64 - 1"),
    ],
)
def test_what_names_no_log_is_refused_with_a_message(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("^", r"\^")) as caught:
        LogKey.parse(text)
    assert "\n" not in str(caught.value)


@given(st.binary(min_size=32, max_size=32), st.integers(0, U64_MAX))
def test_the_key_of_a_log_is_printed_in_full_and_is_read_back(author: bytes, log_id: int) -> None:
    key = LogKey(author, log_id)
    assert repr(key) == f"LogKey('{author.hex()}/{log_id}')"
    for again in (eval(repr(key)), LogKey(str(key)), pickle.loads(pickle.dumps(key)), copy(key)):
        assert again == key
        assert hash(again) == hash(key)
        assert type(again) is LogKey


def test_what_is_no_key_is_no_text_of_one() -> None:
    assert LogKey("00" * 32) == LogKey(bytes(32), 0)
    assert eval(repr(LogKey(bytes(3), 5))) == LogKey(bytes(3), 5)
    with pytest.raises(TypeError, match="LogKey\\(author, log_id\\)"):
        LogKey(bytes(32))  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="names no log"):
        LogKey("ben")
