"""RLP, Ethereum's encoding of bytes and lists of them (spec section 2.1): strict, and total.

There are two kinds of item, bytes and lists, and what bytes mean is for the reader to know: so each
field is read by a method that says its type, and names it where it is wrong. Each value has one
encoding. Upstream's reader holds to that too, and signatures are over encodings: a second one for
the same statement would be a statement that nobody has signed.

A length is compared with what is left before anything is made of it, and lists stand in each other
to a bounded depth: a message of ten thousand opening brackets is an error like any other, and not
the end of the stack.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gateways import reading
from gateways.reading import CodecError
from wire import U64_MAX

DEPTH_MAX: Final = 16
"""Lists in each other, four times what any message has."""
INTEGER_BYTES_MAX: Final = 8
_BYTES: Final = 0x80
_LIST: Final = 0xC0
_SHORT_BYTES_MAX: Final = 55

Item = bytes | list["Item"]
"""What is read where nobody says which type it has."""
Value = bytes | str | int | Sequence["Value"]
"""What is written: an integer from 0 to 2^64 - 1, a boolean as one of them, a text as UTF-8."""


def encode(value: Value) -> bytes:
    """One item. Raises ValueError for an integer or a text that has no encoding."""
    if isinstance(value, bytes):
        if len(value) == 1 and value[0] < _BYTES:
            return value
        return _head(_BYTES, len(value)) + value
    if isinstance(value, str):
        return encode(value.encode())
    if isinstance(value, int):
        if not 0 <= value <= U64_MAX:
            raise ValueError(f"{value} is not an unsigned 64-bit integer")
        return encode(_shortest(value))
    payload = b"".join([encode(each) for each in value])
    return _head(_LIST, len(payload)) + payload


def _head(kind: int, length: int) -> bytes:
    if length <= _SHORT_BYTES_MAX:
        return bytes((kind + length,))
    size = _shortest(length)
    return bytes((kind + _SHORT_BYTES_MAX + len(size),)) + size


def _shortest(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) >> 3, "big")


def decode(data: bytes) -> Item:
    """One item and nothing behind it. Raises CodecError."""
    reader = Reader(data)
    item = reader.item("an item")
    reader.end()
    return item


class Reader(reading.Reader):
    """Takes items off the front of some bytes. Every method raises CodecError.

    Who calls `end` is strict about what stands behind the fields that it has read; who does not is
    lenient, as section 2.2 wants it of *auth* and *ack*.
    """

    __slots__ = ("_offset",)

    def __init__(
        self, data: bytes, error: Callable[[str], Exception] = CodecError, offset: int = 0
    ) -> None:
        super().__init__(data, error)
        self._offset = offset

    def refused(self, what: str, at: int, why: str) -> Exception:
        """The error for a value at byte `at` of this list, told by its place in the whole."""
        return super().refused(what, self._offset + at, why)

    @property
    def has_bytes(self) -> bool:
        """Whether bytes come next: neither a list nor the end."""
        return self.left > 0 and self._data[self._at] < _LIST

    def _length(self, what: str, kind: int) -> int:
        """Takes the head of an item of this kind, and gives the bytes that it has behind it."""
        start = self._at
        if not self.left:
            raise self.refused(what, start, "it is missing")
        first = self._data[start]
        found = _LIST if first >= _LIST else _BYTES
        if found != kind:
            why = "it is a list" if found == _LIST else "it is no list"
            raise self.refused(what, start, why)
        if first < _BYTES:
            return 1
        self._at = start + 1
        length = first - kind
        if length > _SHORT_BYTES_MAX:
            if length - _SHORT_BYTES_MAX > self.left:
                raise self.refused(what, start, "its length is cut off")
            size = self.take(length - _SHORT_BYTES_MAX)
            length = int.from_bytes(size, "big")
            if size[0] == 0 or length <= _SHORT_BYTES_MAX:
                raise self.refused(what, start, "its length is longer than needed")
        if length > self.left:
            why = f"{length} bytes are claimed, {self.left} are left"
            raise self.refused(what, start, why)
        if kind == _BYTES and length == 1 and self._data[self._at] < _BYTES:
            raise self.refused(what, start, "it is longer than needed")
        return length

    def data(self, what: str, *sizes: int) -> bytes:
        """Bytes, as many as one of these sizes, or any number where none is named."""
        start = self._at
        length = self._length(what, _BYTES)
        if sizes and length not in sizes:
            said = " or ".join(map(str, sizes))
            raise self.refused(what, start, f"it has {length} bytes, not {said}")
        return self.take(length)

    def text(self, what: str, bytes_max: int) -> str:
        """UTF-8 of so many bytes at most."""
        start = self._at
        length = self._length(what, _BYTES)
        if length > bytes_max:
            raise self.refused(what, start, f"it has {length} bytes, {bytes_max} are the limit")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.refused(what, start, "it is no UTF-8") from None

    def integer(self, what: str, most: int = U64_MAX) -> int:
        """From 0 to `most`, big-endian without leading zeros."""
        start = self._at
        length = self._length(what, _BYTES)
        if length > INTEGER_BYTES_MAX:
            why = f"it has {length} bytes, {INTEGER_BYTES_MAX} are the limit"
            raise self.refused(what, start, why)
        encoded = self.take(length)
        if encoded[:1] == b"\0":
            raise self.refused(what, start, "it has leading zeros")
        number = int.from_bytes(encoded, "big")
        if number > most:
            raise self.refused(what, start, f"it is {number}, {most} is the limit")
        return number

    def flag(self, what: str) -> bool:
        """A boolean."""
        return self.integer(what, 1) == 1

    def fields(self, what: str) -> "Reader":
        """A list: who reads its items, and ends it."""
        length = self._length(what, _LIST)
        offset = self._offset + self._at
        return Reader(self.take(length), self._error, offset)

    def item(self, what: str, depth: int = 0) -> Item:
        """Whatever comes next, inside of `depth` lists."""
        if self.has_bytes:
            return self.data(what)
        if depth == DEPTH_MAX:
            raise self.refused(what, self._at, f"lists stand {DEPTH_MAX} deep in each other")
        inner = self.fields(what)
        items: list[Item] = []
        while inner.left:
            items.append(inner.item(what, depth + 1))
        return items
