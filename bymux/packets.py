"""Bymux packets as bytes (bymux.md Packets): how headers are laid out, read and written.

The first byte tells how long the whole header is, so a header is read either completely or not at
all, and no byte of a body is touched here.
"""

from enum import IntEnum
from typing import NamedTuple

U64_MAX = 2**64 - 1
HEADER_BYTES_MAX = 17
"""The first byte, an id and an amount of 8 bytes each."""


class Kind(IntEnum):
    """The types of packets; their numbers are the top three bits of the first byte."""

    CREDIT = 0
    WRITE = 1
    PING = 2
    PONG = 3
    CLOSE = 4
    STOP_READ = 5


class Layout(NamedTuple):
    """What a first byte says about its header."""

    kind: Kind
    is_global: bool
    amount_at: int
    """Index of the amount in the header, and so where the id ends; the id begins at 1."""
    header_bytes: int


_GLOBAL_BIT = 0b0001_0000


# kkk g ii aa: kind, global, and the widths of id and amount as powers of two. A global packet
# ignores ii and has no id, but for Write, whose id takes the place of the amount.
def _layout(first: int) -> Layout | None:
    if first >> 5 > Kind.STOP_READ:
        return None
    kind = Kind(first >> 5)
    is_global = bool(first & _GLOBAL_BIT)
    id_bytes = 0 if is_global else 1 << (first >> 2 & 3)
    amount_bytes = 1 << (first & 3) if kind in {Kind.CREDIT, Kind.WRITE} else 0
    if is_global and kind is Kind.WRITE:
        id_bytes, amount_bytes = amount_bytes, 0
    return Layout(kind, is_global, 1 + id_bytes, 1 + id_bytes + amount_bytes)


LAYOUTS: tuple[Layout | None, ...] = tuple(_layout(first) for first in range(256))
"""By first byte; None for the types that do not exist."""


def _width(n: int) -> tuple[int, bytes]:
    """The smallest width code that fits, and the bytes of the number."""
    if n < 1 << 8:
        return 0, n.to_bytes(1, "big")
    if n < 1 << 16:
        return 1, n.to_bytes(2, "big")
    if n < 1 << 32:
        return 2, n.to_bytes(4, "big")
    return 3, n.to_bytes(8, "big")


def encode_signal(kind: Kind, stream: int | None) -> bytes:
    """Ping, Pong, Close or StopRead, of a stream or (None) global."""
    if stream is None:
        return bytes((kind << 5 | _GLOBAL_BIT,))
    code, number = _width(stream)
    return bytes((kind << 5 | code << 2,)) + number


def encode_credit(stream: int | None, amount: int) -> bytes:
    """Credit of a stream, where an amount of 0 means infinite, or (None) of creating streams."""
    code, number = _width(amount)
    if stream is None:
        return bytes((Kind.CREDIT << 5 | _GLOBAL_BIT | code,)) + number
    id_code, id_number = _width(stream)
    return bytes((Kind.CREDIT << 5 | id_code << 2 | code,)) + id_number + number


def encode_create(stream: int) -> bytes:
    """The global Write, which creates a stream."""
    code, number = _width(stream)
    return bytes((Kind.WRITE << 5 | _GLOBAL_BIT | code,)) + number


class WriteHeaders:
    """Makes the headers of one stream's Write packets; all but the amount is prepared."""

    __slots__ = ("_prefixes",)

    def __init__(self, stream: int) -> None:
        id_code, id_number = _width(stream)
        first = Kind.WRITE << 5 | id_code << 2
        self._prefixes = tuple(bytes((first | code,)) + id_number for code in range(4))

    def encode(self, amount: int) -> bytes:
        """The header of a Write whose body has `amount` bytes."""
        code, number = _width(amount)
        return self._prefixes[code] + number
