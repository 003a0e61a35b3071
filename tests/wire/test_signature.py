"""Signatures (bamboo.md Verified)."""

import json
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from wire import (
    SignatureLibraryError,
    sign_entry,
    signature_is_valid,
    signature_self_test,
    yamf_hash,
)

SPECCHECK = json.loads((Path(__file__).parent / "data" / "ed25519-speccheck.json").read_text())
# The order of the group that signatures are scalars of.
L = 2**252 + 27742317777372353535851937790883648493


def signed(seed: bytes = bytes(32)) -> bytes:
    return sign_entry(
        SigningKey(seed),
        log_id=0,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=0,
        payload_hash=yamf_hash(b""),
    )


def test_the_self_test_passes_with_the_installed_library() -> None:
    signature_self_test()


@pytest.mark.parametrize("accepted", [set(), {0}, {3, 4, 5}, {0, 1, 2, 3, 11}, set(range(12))])
def test_the_self_test_refuses_a_library_with_other_verdicts(accepted: set[int]) -> None:
    numbers = iter(range(12))
    with pytest.raises(SignatureLibraryError, match=r"accepts \[") as caught:
        signature_self_test(lambda *_: next(numbers) in accepted)
    assert str(sorted(accepted)) in str(caught.value)


def test_the_self_test_judges_the_twelve_published_signatures() -> None:
    judged = []

    def verify(*vector: bytes) -> bool:
        judged.append(vector)
        return len(judged) == 4

    signature_self_test(verify)
    assert judged == [
        tuple(bytes.fromhex(vector[part]) for part in ("pub_key", "message", "signature"))
        for vector in SPECCHECK
    ]


def test_a_signature_holds_for_no_other_bytes() -> None:
    encoded = signed()
    assert signature_is_valid(encoded)
    for index in range(len(encoded)):
        changed = bytearray(encoded)
        changed[index] ^= 1
        assert not signature_is_valid(bytes(changed)), index


def test_the_signature_of_another_author_is_invalid() -> None:
    assert not signature_is_valid(signed()[:-64] + signed(b"1" * 32)[-64:])


def test_a_second_encoding_of_the_same_signature_is_invalid() -> None:
    encoded = signed()
    s = int.from_bytes(encoded[-32:], "little") + L
    assert not signature_is_valid(encoded[:-32] + s.to_bytes(32, "little"))


@pytest.mark.parametrize("length", [0, 1, 64, 96])
def test_bytes_too_short_for_a_signature_have_none(length: int) -> None:
    assert not signature_is_valid(bytes(length))
