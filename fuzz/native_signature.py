"""The native core judges signatures as libsodium does, and hashes as hashlib does, of any bytes."""

from hashlib import blake2b

from fuzz.harness import main
from fuzz.wire_samples import ROWS
from wire import HASH_BYTES, NATIVE, NATIVE_STATE, PayloadHasher, python_signature_is_valid
from wire.signature import python_verify
from wire.speccheck import SPECCHECK

CORPUS = [
    *(encoded for _, encoded, _ in ROWS),
    *(b"\x00" + key + message + signature for key, message, signature in SPECCHECK),
]


def check_signatures(entries: list[bytes]) -> bytes:
    """Every way of the native core gives libsodium's verdicts, which are returned."""
    assert NATIVE is not None
    expected = bytes(map(python_signature_is_valid, entries))
    assert NATIVE.signatures_are_valid(entries) == expected
    assert bytes(map(NATIVE.signature_is_valid, entries)) == expected
    return expected


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    assert NATIVE is not None
    check_signatures([data, data[1:], *CORPUS[:2], data])
    if len(data) >= 96:
        key, message, signature = data[:32], data[32:-64], data[-64:]
        expected = python_verify(key, message, signature)
        assert NATIVE.verify(key, message, signature) is expected
        assert NATIVE.verify_with_tables(key, message, signature) is expected
    expected_hash = b"\x00\x40" + blake2b(data).digest()
    assert len(expected_hash) == HASH_BYTES
    assert NATIVE.yamf_hash(data) == expected_hash
    hasher = PayloadHasher()
    for at in range(0, len(data), 100):
        hasher.update(memoryview(data)[at : at + 100])
    assert hasher.digest_yamf() == expected_hash


if __name__ == "__main__":
    if NATIVE is None:
        print(f"nothing to compare, native core: {NATIVE_STATE}")
    else:
        main(check, CORPUS)
