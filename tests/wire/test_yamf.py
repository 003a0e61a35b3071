"""YAMF hashes (encodings.md)."""

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import EntryError, NeedMore, PayloadHasher, decode_yamf, yamf_from_digest, yamf_hash

# BLAKE2b-512 of "abc", RFC 7693 appendix A.
ABC = (
    "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
    "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
)


def test_a_yamf_hash_is_type_length_and_blake2b_digest() -> None:
    assert yamf_hash(b"abc").hex() == "0040" + ABC
    assert yamf_from_digest(bytes.fromhex(ABC)) == yamf_hash(b"abc")


@pytest.mark.parametrize("length", [0, 63, 65])
def test_a_digest_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"not {length}"):
        yamf_from_digest(bytes(length))


@given(st.lists(st.binary()))
def test_a_hash_of_pieces_is_the_hash_of_the_whole(pieces: list[bytes]) -> None:
    hasher = PayloadHasher()
    for piece in pieces:
        hasher.update(piece)
        hasher.digest_yamf()  # asking in between changes nothing
    assert hasher.digest_yamf() == b"\x00\x40" + blake2b(b"".join(pieces)).digest()


def test_a_hash_is_decoded_whole_with_a_trailer_or_asked_for() -> None:
    value = yamf_hash(b"abc")
    assert decode_yamf(value, 0, "backlink") == (value, 66)
    assert decode_yamf(b"12" + value + b"34", 2, "backlink") == (value, 68)
    for length in range(66):
        with pytest.raises(NeedMore) as caught:
            decode_yamf(value[:length], 0, "backlink")
        assert caught.value.field == "backlink"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("0140", "yamf type 1 is unknown"),
        ("f8f8", "yamf type 248 is unknown"),
        ("f800", "f800.. is not canonical"),
        ("0020", "digest length 32, type 0 has 64"),
        ("00f90100", "digest length 256, type 0 has 64"),
        ("00f840", "f840.. is not canonical"),
    ],
)
def test_other_types_and_lengths_are_named_as_soon_as_they_are_read(start: str, said: str) -> None:
    data = bytes.fromhex(start)
    for trailer in (b"", bytes(64)):
        with pytest.raises(EntryError) as caught:
            decode_yamf(data + trailer, 0, "payload hash")
        assert caught.value.field == "payload hash"
        assert said in str(caught.value)
