"""YAMF hashes (encodings.md): type, digest length, digest. One type exists, BLAKE2b of 64 bytes."""

from hashlib import blake2b
from typing import Final

from .errors import EntryError, NeedMore
from .native import NATIVE
from .varu64 import decode_varu64_canonical

DIGEST_BYTES: Final = 64
HASH_BYTES: Final = 66
HASH_PREFIX: Final = b"\x00\x40"
"""Type 0 (BLAKE2b) and digest length 64, what every yamf hash begins with."""

_RULE = "encodings.md YAMF hash"


def yamf_hash(data: bytes | bytearray | memoryview) -> bytes:
    """The 66-byte yamf hash of `data`."""
    if NATIVE is not None and type(data) is bytes:
        return NATIVE.yamf_hash(data)
    return HASH_PREFIX + blake2b(data).digest()


def yamf_from_digest(digest: bytes) -> bytes:
    """The yamf hash with this 64-byte BLAKE2b digest; ValueError at any other length."""
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a BLAKE2b digest has 64 bytes, not {len(digest)}")
    return HASH_PREFIX + digest


# type (canonical VarU64, 0) | digest length (canonical VarU64, 64) | digest
def decode_yamf(data: bytes, offset: int, field: str) -> tuple[bytes, int]:
    """The 66 bytes of the yamf hash at `offset`, and the offset behind it.

    Raises NeedMore if `data` ends first, and EntryError, naming `field`, at any other type or
    digest length. A wrong type is told from its own bytes, without waiting for the rest.
    """
    end = offset + HASH_BYTES
    value = data[offset:end]
    if value.startswith(HASH_PREFIX):
        if end > len(data):
            raise NeedMore(field)
        return value, end
    kind, after_kind = decode_varu64_canonical(data, offset, field)
    if kind != 0:
        raise EntryError(field, f"yamf type {kind} is unknown, only 0 (BLAKE2b) is", _RULE)
    length, _ = decode_varu64_canonical(data, after_kind, field)
    raise EntryError(field, f"yamf digest length {length}, type 0 has 64", _RULE)


class PythonPayloadHasher:
    """`PayloadHasher` without the native core."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = blake2b()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._state.update(data)

    def digest_yamf(self) -> bytes:
        return HASH_PREFIX + self._state.digest()


class PayloadHasher:
    """The yamf hash of a payload that comes in pieces."""

    __slots__ = ("_core",)

    def __init__(self) -> None:
        self._core = PythonPayloadHasher() if NATIVE is None else NATIVE.PayloadHasher()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Goes on with the next bytes."""
        if isinstance(self._core, PythonPayloadHasher):
            self._core.update(data)
        else:
            # It takes what cannot change meanwhile; where that is a copy, it costs a tenth more.
            self._core.update(bytes(data))

    def digest_yamf(self) -> bytes:
        """The 66-byte yamf hash of all bytes so far; more may follow."""
        return self._core.digest_yamf()
