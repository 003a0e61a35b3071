"""Taking values off the front of bytes that somebody else has written: strict, and total.

What other systems send and store is read by the same few steps: so many bytes, a number in groups
of seven bits, nothing left over. Each value has one encoding, so that what decodes encodes to the
same bytes and nobody can say one thing in two ways; and a length is compared with what is left
before anything is made of it. Whatever is wrong is one error, which says what, where and why.
"""

from collections.abc import Callable
from typing import Final

from wire import U64_MAX

LEB128_BYTES_MAX: Final = 10


class CodecError(Exception):
    """Bytes that are not what they are to be; the text says what is wrong, for people."""


class Reader:
    """Takes values off the front of some bytes.

    `error` makes what every method raises, of a text that says what, at which byte, and why.
    """

    __slots__ = ("_at", "_data", "_error")

    def __init__(self, data: bytes, error: Callable[[str], Exception] = CodecError) -> None:
        self._data = data
        self._error = error
        self._at = 0

    @property
    def at(self) -> int:
        """Bytes that are taken: where the next value begins."""
        return self._at

    @property
    def left(self) -> int:
        """Bytes that are not taken yet."""
        return len(self._data) - self._at

    def refused(self, what: str, at: int, why: str) -> Exception:
        """The error for a value that began at byte `at`, for who reads more than is read here."""
        return self._error(f"{what} at byte {at}: {why}")

    def take(self, length: int) -> bytes:
        """So many bytes."""
        start = self._at
        end = start + length
        if end > len(self._data):
            raise self.refused(
                f"a value of {length} bytes", start, f"so many are claimed, {self.left} are left"
            )
        self._at = end
        return self._data[start:end]

    def leb128(self) -> int:
        """An unsigned 64-bit integer, 7 bits a byte and the low group first, in as few as it needs.

        Groups of zero at the end would be a second encoding.
        """
        data, at = self._data, self._at
        if at >= len(data):
            raise self.refused("a number", at, "it is missing")
        byte = data[at]
        if byte < 128:
            self._at = at + 1
            return byte
        number = byte & 127
        for shift in range(7, 7 * LEB128_BYTES_MAX, 7):
            at += 1
            if at >= len(data):
                raise self.refused("a number", self._at, "it is cut off")
            byte = data[at]
            number |= (byte & 127) << shift
            if byte < 128:
                if byte == 0:
                    raise self.refused("a number", self._at, "it is longer than needed")
                if number > U64_MAX:
                    raise self.refused("a number", self._at, "it is 2^64 or more")
                self._at = at + 1
                return number
        raise self.refused("a number", self._at, "it goes on behind its tenth byte")

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise self.refused("the end", self._at, f"{self.left} bytes are left over")
