"""BARE, as far as Ockam's stream protocols use it (spec section 2.1): strict, without allocation.

Each value has one encoding: whatever is longer than needed, or left over, is refused. A length or
a count is compared with what is left before anything is made of it.
"""

from typing import Final

from gateways import reading
from wire import U64_MAX

_ONE_BYTE: Final = [bytes((n,)) for n in range(128)]


def encode_uint(number: int) -> bytes:
    """7 bits a byte, low group first. Raises ValueError if it is no unsigned 64-bit integer."""
    if 0 <= number < 128:
        return _ONE_BYTE[number]
    if not 0 <= number <= U64_MAX:
        raise ValueError(f"{number} is not an unsigned 64-bit integer")
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_data(data: bytes) -> bytes:
    """A length, then the bytes."""
    return encode_uint(len(data)) + data


def encode_text(text: str) -> bytes:
    """UTF-8, with its length before it. Raises UnicodeEncodeError for lone surrogates."""
    return encode_data(text.encode())


class Reader(reading.Reader):
    """Takes values off the front of some bytes. Every method raises CodecError."""

    __slots__ = ()

    uint = reading.Reader.leb128

    def data(self) -> bytes:
        """A length and as many bytes."""
        return self.take(self.leb128())

    def text(self) -> str:
        """A length and UTF-8."""
        start = self._at
        try:
            return self.data().decode()
        except UnicodeDecodeError:
            raise self.refused("a text", start, "it is no UTF-8") from None

    def flag(self) -> bool:
        """Whether an optional value follows."""
        start = self._at
        byte = self.take(1)[0]
        if byte > 1:
            raise self.refused("whether a value follows", start, f"{byte} is neither 0 nor 1")
        return byte == 1

    def tag(self, count: int) -> int:
        """Of an enumeration or a union with so many cases."""
        start = self._at
        tag = self.leb128()
        if tag >= count:
            raise self.refused("a tag", start, f"it is {tag}, {count - 1} is the last")
        return tag

    def count(self, element_bytes_min: int = 2) -> int:
        """Of a list whose elements take at least so many bytes each."""
        start = self._at
        count = self.leb128()
        if count * element_bytes_min > self.left:
            raise self.refused(
                f"a list of {count} elements",
                start,
                f"so many are claimed in {self.left} bytes",
            )
        return count
