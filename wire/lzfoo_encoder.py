"""LZFoo compression (encodings.md): LZ4 finds the matches, its sequences are rewritten."""

from functools import cache
from typing import TYPE_CHECKING, Final

from .native import NATIVE
from .varu64 import encode_varu64

if TYPE_CHECKING:
    from collections.abc import Callable

_LZ4_REACH: Final = 65535
_LZ4_MATCH_MIN: Final = 4
_LZ4_THOROUGH: Final = 3
"""LZ4's level of "high compression" that finds most of what there is, at a third of its speed."""


class LZFooEncoder:
    """Compresses the packets of one direction of a connection, one after the other.

    Meant for pieces of up to about a MiB: memory is a small multiple of the piece.
    """

    __slots__ = ("_compress", "_history", "_window", "thorough")

    def __init__(self, window: int, *, thorough: bool = False) -> None:
        """`window`: the negotiated one, in bytes, at least 1 (0 means that nothing is compressed).

        LZ4 reaches back 65,535 bytes, so a larger window changes nothing. `thorough` may be changed
        at any time: whether to look longer for better matches.
        """
        if window < 1:
            raise ValueError("with a window of 0 nothing may be compressed")
        # Here and not above: who only checks entries, as Spark's workers do, needs no LZ4.
        from lz4.block import compress

        self._compress: Callable[..., bytes] = compress
        self._window = min(window, _LZ4_REACH)
        self._history = b""
        self.thorough = thorough

    def encode(self, data: bytes) -> bytes:
        """`data`, compressed. It has to be sent: what follows may refer to it."""
        compressed = self._rewritten(self._lz4(data), data) if data else b""
        self._remember(data)
        return compressed

    def encode_if_smaller(self, data: bytes, saving_bytes: int = 1) -> bytes | None:
        """`data`, compressed, which then has to be sent.

        None if that would not save `saving_bytes` (at least 1): it is to be sent raw, and later
        packets do not refer to it. What LZ4 at its fastest cannot shorten is not tried.
        """
        bytes_max = len(data) - saving_bytes
        block = self._lz4(data)
        # Literals cost LZ4 a byte for every 255 of them.
        if len(block) - len(data) // 255 > bytes_max:
            return None
        compressed = self._rewritten(block, data)
        if len(compressed) > bytes_max:
            return None
        self._remember(data)
        return compressed

    def may_shrink(self, sample: bytes) -> bool:
        """Whether LZ4 shortens what begins with `sample`; nothing is remembered."""
        return len(self._lz4(sample)) < len(sample)

    def _lz4(self, data: bytes) -> bytes:
        return bytes(self._compress(data, store_size=False, dict=self._history))

    def _rewritten(self, block: bytes, data: bytes) -> bytes:
        if self.thorough:
            block = self._compress(
                data,
                store_size=False,
                dict=self._history,
                mode="high_compression",
                compression=_LZ4_THOROUGH,
            )
        if NATIVE is not None:
            return NATIVE.lz4_to_lzfoo(block, data, self._window)
        return python_lz4_to_lzfoo(block, data, self._window)

    def _remember(self, data: bytes) -> None:
        if len(data) >= self._window:
            self._history = data[-self._window :]
        else:
            self._history = (self._history + data)[-self._window :]


@cache
def _encoded_offsets() -> list[bytes]:
    """Every offset within reach of LZ4 as a VarU64: made once, when it is first needed."""
    long = [b"\xf9" + n.to_bytes(2, "big") for n in range(256, _LZ4_REACH + 1)]
    return [encode_varu64(n) for n in range(256)] + long


def _header(kind: int, n: int) -> bytes:
    if n < 120:
        return bytes((kind | n,))
    k = (n.bit_length() + 7) >> 3
    return bytes((kind | (119 + k),)) + n.to_bytes(k, "big")


_LITERAL = [_header(0, n) for n in range(512)]
_COPY = [_header(128, n) for n in range(512)]


# An LZ4 block is a run of sequences: token (4 bits literal length, 4 bits match length - 4; 15
# means that bytes follow to be added, up to the first below 255) | more literal length | literals
# | offset, 2 bytes, little-endian | more match length. The last sequence ends with its literals.
def python_lz4_to_lzfoo(block: bytes, data: bytes, window: int) -> bytes:
    """The sequences of an LZ4 block of `data` as LZFoo elements.

    A match that lies beyond the window, or whose copy would take as many bytes as it saves, is
    joined with the literals around it. Text has a sequence for every 10 bytes or so, so this loop
    is what compression takes its time for: tables, and as few steps as can be.
    """
    literals, copies, offsets = _LITERAL, _COPY, _encoded_offsets()
    parts: list[bytes] = []
    add = parts.append
    pos = 0  # in the block
    at = 0  # in the data
    literal = 0  # where the pending literal begins in the data
    end = len(block)
    while True:
        token = block[pos]
        pos += 1
        n = token >> 4
        if n == 15:
            while (more := block[pos]) == 255:
                n += 255
                pos += 1
            n += more
            pos += 1
        pos += n
        at += n
        if pos == end:
            break
        offset = block[pos] | block[pos + 1] << 8
        pos += 2
        n = (token & 15) + _LZ4_MATCH_MIN
        if n == 19:
            while (more := block[pos]) == 255:
                n += 255
                pos += 1
            n += more
            pos += 1
        if offset <= window and (n > _LZ4_MATCH_MIN or offset < 248):
            if literal < at:
                length = at - literal
                add(literals[length] if length < 512 else _header(0, length))
                add(data[literal:at])
            add(copies[n] if n < 512 else _header(128, n))
            add(offsets[offset])
            at += n
            literal = at
        else:
            at += n
    # LZ4 ends every block with literals.
    add(_header(0, at - literal))
    add(data[literal:])
    return b"".join(parts)
