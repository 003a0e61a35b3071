"""LZFoo decompression (encodings.md): a byte-oriented LZ77 format with a window that spans calls.

The decoder works in steps of bounded output, whatever lengths the elements claim: a literal or a
copy that does not fit into a step is remembered and goes on in the next.
"""

from typing import Final

from .errors import LZFooError
from .native import NATIVE

STEP_BYTES_MAX: Final = 65536
"""Output of one `LZFooDecoder.read` at most."""

_SHORT_BYTES_MAX: Final = 128
"""More bytes than any element has, or makes, whose length is in its first byte."""

# Old output is dropped in bulk, once this much of it has left the window.
_SLACK_BYTES: Final = 4 * STEP_BYTES_MAX


class LZFooDecoder:
    """Decompresses the packets of one direction of a connection, one after the other.

    `start` a packet, then `feed` its bytes in any pieces and `read` until `finished`.
    """

    __slots__ = ("_core",)

    def __init__(self, window: int) -> None:
        """`window`: the negotiated one, in bytes; offsets never exceed it."""
        self._core = (
            PythonLZFooDecoder(window)
            if NATIVE is None
            else NATIVE.LZFooDecoder(window, LZFooError)
        )

    def start(self, uncompressed_bytes: int, compressed_bytes: int) -> None:
        """Begins a packet that declares these lengths; the one before has to be finished.

        Raises LZFooError if no reasonable encoder needs that many compressed bytes.
        """
        self._core.start(uncompressed_bytes, compressed_bytes)

    @property
    def wanted(self) -> int:
        """Compressed bytes of the packet that were not fed yet."""
        return self._core.wanted

    @property
    def finished(self) -> bool:
        """Whether the whole packet has been read, and was right."""
        return self._core.finished

    def feed(self, data: bytes) -> None:
        """Takes the next compressed bytes; ValueError if there are more of them than declared."""
        self._core.feed(data)

    def read(self) -> bytes:
        """The next 1 to 65,536 bytes of output, or none if more input is needed or all was read.

        Raises LZFooError, after all output before it, at an element that is not legal.
        """
        return self._core.read()


class PythonLZFooDecoder:
    """`LZFooDecoder` without the native core."""

    __slots__ = (
        "_compressed_left",
        "_copy_left",
        "_copy_offset",
        "_error",
        "_input",
        "_input_start",
        "_literal_left",
        "_out",
        "_out_left",
        "_pos",
        "_window",
    )

    def __init__(self, window: int) -> None:
        self._window = window
        self._out = bytearray()  # at least the last `window` bytes of all output
        self._out_left = 0
        self._compressed_left = 0  # not yet fed
        self._input = b""
        self._input_start = 0  # position of input[0] in the packet
        self._pos = 0
        self._literal_left = 0
        self._copy_left = 0
        self._copy_offset = 0
        self._error: LZFooError | None = None

    def start(self, uncompressed_bytes: int, compressed_bytes: int) -> None:
        assert self.finished, "the packet before is not finished"
        if compressed_bytes > 4 * uncompressed_bytes + 64:
            self._error = LZFooError(
                0, f"{compressed_bytes} compressed bytes for {uncompressed_bytes} are refused"
            )
            raise self._error
        self._out_left = uncompressed_bytes
        self._compressed_left = compressed_bytes
        self._input = b""
        self._input_start = self._pos = 0

    @property
    def wanted(self) -> int:
        return self._compressed_left

    @property
    def finished(self) -> bool:
        return self._out_left == 0 and self._error is None and self._input_ended()

    def feed(self, data: bytes) -> None:
        if len(data) > self._compressed_left:
            raise ValueError(f"{len(data)} bytes fed, {self._compressed_left} are left")
        self._compressed_left -= len(data)
        self._input_start += self._pos
        self._input = self._input[self._pos :] + data
        self._pos = 0

    def read(self) -> bytes:
        if self._error is not None:
            raise self._error
        out = self._out
        if len(out) > self._window + _SLACK_BYTES:
            del out[: len(out) - self._window]
        start = len(out)
        try:
            self._step()
        except LZFooError as error:
            self._error = error
            if len(out) == start:
                raise
        return bytes(out[start:])

    def _step(self) -> None:
        room = STEP_BYTES_MAX
        room -= self._continue_copy(room)
        room -= self._continue_literal(room)
        if self._within_element():
            return
        self._elements(room)
        if self._out_left and not self._within_element() and self._input_ended():
            end = self._input_start + self._pos
            raise LZFooError(end, f"the output is {self._out_left} bytes short")

    def _within_element(self) -> bool:
        return self._literal_left > 0 or self._copy_left > 0

    def _input_ended(self) -> bool:
        return self._compressed_left == 0 and self._pos == len(self._input)

    # literal: 0, length (7 bits) | [1 to 8 bytes of length] | bytes
    # copy: 1, length (7 bits) | [1 to 8 bytes of length] | V offset
    def _elements(self, room: int) -> None:
        """Decodes whole elements until input or room ends; one that does not fit is begun."""
        data, pos, out = self._input, self._pos, self._out
        end, window = len(data), self._window
        unused = self._out_left - room  # of the declared length, beyond this step
        while room and pos < end:
            if end - pos > _SHORT_BYTES_MAX:
                before = len(out)
                pos = _short_elements(data, pos, out, before + min(room, room + unused), window)
                room -= len(out) - before
            first = data[pos]
            n = first & 127
            after = pos + 1
            if n >= 120:
                after += n - 119
                if after > end:
                    break
                n = int.from_bytes(data[pos + 1 : after], "big")
            if not 0 < n <= room + unused:
                self._out_left = room + unused
                raise self._bad_length(pos, n)
            if first < 128:
                past = after + n
                if past > end or n > room:
                    self._out_left = room + unused
                    self._begin_literal(pos, after, n, room)
                    return
                out += data[after:past]
                pos = past
                room -= n
                continue
            if after >= end:
                break
            offset = data[after]
            after += 1
            if offset >= 248:
                past = after + offset - 247
                if past > end:
                    break
                offset = int.from_bytes(data[after:past], "big")
                after = past
            start = len(out) - offset
            if start < 0 or not 0 < offset <= window:
                raise self._bad_offset(pos, offset)
            pos = after
            if n <= offset and n <= room:
                out += out[start : start + n]
                room -= n
            else:
                self._out_left = room + unused
                self._copy_left, self._copy_offset = n, offset
                room -= self._continue_copy(room)
        self._pos = pos
        self._out_left = room + unused
        if room and pos < end and self._compressed_left == 0:
            raise LZFooError(self._input_start + pos, "a truncated element")

    def _begin_literal(self, pos: int, after: int, n: int, room: int) -> None:
        if n > len(self._input) - after + self._compressed_left:
            raise LZFooError(self._input_start + pos, f"a truncated literal of {n} bytes")
        self._pos = after
        self._literal_left = n
        self._continue_literal(room)

    def _continue_literal(self, room: int) -> int:
        n = min(self._literal_left, room, len(self._input) - self._pos)
        self._out += self._input[self._pos : self._pos + n]
        self._pos += n
        self._literal_left -= n
        self._out_left -= n
        return n

    def _continue_copy(self, room: int) -> int:
        n = min(self._copy_left, room)
        if n == 0:
            return 0
        start = len(self._out) - self._copy_offset
        pattern = self._out[start : start + n]
        if n > len(pattern):
            pattern = (pattern * (n // len(pattern) + 1))[:n]
        self._out += pattern
        self._copy_left -= n
        self._out_left -= n
        return n

    def _bad_length(self, pos: int, n: int) -> LZFooError:
        position = self._input_start + pos
        if n == 0:
            return LZFooError(position, "an element of length zero")
        return LZFooError(position, f"an element of {n} bytes, {self._out_left} are left to come")

    def _bad_offset(self, pos: int, offset: int) -> LZFooError:
        position = self._input_start + pos
        if offset == 0:
            return LZFooError(position, "an offset of zero")
        if offset > self._window:
            return LZFooError(position, f"offset {offset} is beyond the window of {self._window}")
        return LZFooError(position, f"offset {offset} is beyond the output of {len(self._out)}")


def _short_elements(data: bytes, pos: int, out: bytearray, out_max: int, window: int) -> int:
    """Decodes elements as long as they are of the usual kind: short, legal, and far from any end.

    Returns the position of the first that may be another. That leaves `out` shorter than `out_max`.
    """
    end = len(data) - _SHORT_BYTES_MAX
    size = len(out)
    size_end = out_max - _SHORT_BYTES_MAX
    while pos < end and size < size_end:
        first = data[pos]
        if first < 120:
            if not first:
                break
            pos += 1
            out += data[pos : pos + first]
            pos += first
            size += first
            continue
        n = first - 128
        offset = data[pos + 1]
        past = pos + 2
        if offset == 249:
            offset = data[pos + 2] << 8 | data[pos + 3]
            past = pos + 4
        elif offset >= 248:
            break
        start = size - offset
        if not 0 < n < 120 or n > offset or start < 0 or offset > window:
            break
        out += out[start : start + n]
        size += n
        pos = past
    return pos
