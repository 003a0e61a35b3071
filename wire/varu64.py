"""VarU64 (encodings.md): an unsigned 64-bit integer in one to nine bytes."""

from typing import Final

from .errors import EntryError, NeedMore

U64_MAX: Final = 2**64 - 1
VARU64_BYTES_MAX: Final = 9

_RULE = "encodings.md VarU64"

# A byte below 248 is the number itself; 247 + k (k = 1..8) is followed by k big-endian bytes.
_ONE_BYTE = [bytes((n,)) for n in range(248)]


def encode_varu64(n: int) -> bytes:
    """The canonical, that is the shortest, encoding of `n`.

    Raises ValueError if `n` is below 0 or above 2^64 - 1.
    """
    if 0 <= n < 248:
        return _ONE_BYTE[n]
    if not 0 <= n <= U64_MAX:
        raise ValueError(f"{n} is not an unsigned 64-bit integer")
    length = (n.bit_length() + 7) >> 3
    return bytes((247 + length,)) + n.to_bytes(length, "big")


def decode_varu64(data: bytes | memoryview, offset: int = 0) -> tuple[int, int]:
    """The number at `offset`, canonical or not, and the offset behind it.

    Raises NeedMore if `data` ends before the number does.
    """
    if offset >= len(data):
        raise NeedMore
    first = data[offset]
    if first < 248:
        return first, offset + 1
    end = offset + first - 246
    if end > len(data):
        raise NeedMore
    return int.from_bytes(data[offset + 1 : end], "big"), end


def decode_varu64_canonical(data: bytes, offset: int, field: str) -> tuple[int, int]:
    """Like `decode_varu64`, for the places where the specification says canonical.

    Raises NeedMore if `data` ends before the number does, and EntryError, naming `field`, if the
    number has a shorter encoding.
    """
    if offset >= len(data):
        raise NeedMore(field)
    first = data[offset]
    if first < 248:
        return first, offset + 1
    # Two bytes tell: a number that starts with a zero byte fits into fewer, and a number of one
    # byte below 248 needs no length before it.
    if offset + 1 < len(data):
        second = data[offset + 1]
        if second == 0 or (first == 248 and second < 248):
            raise EntryError(field, f"VarU64 {first:02x}{second:02x}.. is not canonical", _RULE)
    end = offset + first - 246
    if end > len(data):
        raise NeedMore(field)
    return int.from_bytes(data[offset + 1 : end], "big"), end
