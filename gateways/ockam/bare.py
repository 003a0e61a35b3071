"""BARE, as far as Ockam's stream protocols use it (spec section 2.1): strict, without allocation.

Each value has one encoding: whatever is longer than needed, or left over, is refused. A length or
a count is compared with what is left before anything is made of it.
"""

from typing import Final

U64_MAX: Final = (1 << 64) - 1
UINT_BYTES_MAX: Final = 10
_ONE_BYTE: Final = [bytes((n,)) for n in range(128)]


class CodecError(Exception):
    """Bytes that are not what they are to be; the text says what and where, for people."""


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


class Reader:
    """Takes values off the front of some bytes. Every method raises CodecError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that are not taken yet."""
        return len(self._data) - self._at

    def uint(self) -> int:
        """An unsigned 64-bit integer in its one encoding."""
        data, at = self._data, self._at
        if at >= len(data):
            raise CodecError(f"a number is missing at byte {at}")
        byte = data[at]
        if byte < 128:
            self._at = at + 1
            return byte
        number = byte & 127
        for shift in range(7, 7 * UINT_BYTES_MAX, 7):
            at += 1
            if at >= len(data):
                raise CodecError(f"a number is cut off at byte {at}")
            byte = data[at]
            number |= (byte & 127) << shift
            if byte < 128:
                if byte == 0:
                    raise CodecError(f"the number that ends at byte {at} is longer than needed")
                if number > U64_MAX:
                    raise CodecError(f"the number that ends at byte {at} is 2^64 or more")
                self._at = at + 1
                return number
        raise CodecError(f"a number goes on behind its tenth byte, at byte {at}")

    def data(self) -> bytes:
        """A length and as many bytes."""
        length = self.uint()
        return self.take(length)

    def take(self, length: int) -> bytes:
        """As many bytes."""
        start = self._at
        if length > len(self._data) - start:
            raise CodecError(f"{length} bytes are claimed at byte {start}, {self.left} are left")
        self._at = start + length
        return self._data[start : self._at]

    def text(self) -> str:
        """A length and UTF-8."""
        start = self._at
        try:
            return self.data().decode()
        except UnicodeDecodeError:
            raise CodecError(f"the text at byte {start} is no UTF-8") from None

    def flag(self) -> bool:
        """Whether an optional value follows."""
        byte = self.take(1)[0]
        if byte > 1:
            raise CodecError(f"an optional byte is {byte} before byte {self._at}")
        return byte == 1

    def tag(self, count: int) -> int:
        """Of an enumeration or a union with so many cases."""
        tag = self.uint()
        if tag >= count:
            raise CodecError(f"the tag before byte {self._at} is {tag}, {count - 1} is the last")
        return tag

    def count(self, element_bytes_min: int = 2) -> int:
        """Of a list whose elements take at least so many bytes each."""
        count = self.uint()
        if count * element_bytes_min > self.left:
            raise CodecError(f"{count} elements are claimed in {self.left} bytes")
        return count

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise CodecError(f"{self.left} bytes are left over")
