"""LZFoo compression (encodings.md): LZ4 finds the matches, its sequences are rewritten."""

from typing import Final

import lz4.block

from .varu64 import encode_varu64

_LZ4_REACH: Final = 65535
_LZ4_MATCH_MIN: Final = 4


class LZFooEncoder:
    """Compresses the packets of one direction of a connection, one after the other.

    Meant for pieces of up to about a MiB: memory is a small multiple of the piece.
    """

    __slots__ = ("_history", "_window")

    def __init__(self, window: int) -> None:
        """`window`: the negotiated one, in bytes, at least 1 (0 means that nothing is compressed).

        LZ4 reaches back 65,535 bytes, so a larger window changes nothing.
        """
        if window < 1:
            raise ValueError("with a window of 0 nothing may be compressed")
        self._window = min(window, _LZ4_REACH)
        self._history = b""

    def encode(self, data: bytes) -> bytes:
        """`data`, compressed. It has to be sent: what follows may refer to it."""
        compressed = _rewrite(self._lz4(data), data, self._window) if data else b""
        self._remember(data)
        return compressed

    def encode_if_smaller(self, data: bytes, saving_bytes: int = 1) -> bytes | None:
        """`data`, compressed, which then has to be sent.

        None if that would not save `saving_bytes` (at least 1): it is to be sent raw, and later
        packets do not refer to it. Of what LZ4 cannot shorten either it is not tried.
        """
        bytes_max = len(data) - saving_bytes
        block = self._lz4(data)
        # Literals cost LZ4 a byte for every 255 of them.
        if len(block) - len(data) // 255 - 16 > bytes_max:
            return None
        compressed = _rewrite(block, data, self._window)
        if len(compressed) > bytes_max:
            return None
        self._remember(data)
        return compressed

    def may_shrink(self, sample: bytes) -> bool:
        """Whether LZ4 shortens what begins with `sample`; nothing is remembered."""
        return len(self._lz4(sample)) < len(sample)

    def _lz4(self, data: bytes) -> bytes:
        return bytes(lz4.block.compress(data, store_size=False, dict=self._history))

    def _remember(self, data: bytes) -> None:
        if len(data) >= self._window:
            self._history = data[-self._window :]
        else:
            self._history = (self._history + data)[-self._window :]


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
def _rewrite(block: bytes, data: bytes, window: int) -> bytes:
    """The sequences of an LZ4 block of `data` as LZFoo elements.

    A match that lies beyond the window, or whose copy would take as many bytes as it saves, is
    joined with the literals around it.
    """
    out = bytearray()
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
                out += _LITERAL[length] if length < 512 else _header(0, length)
                out += data[literal:at]
            out += _COPY[n] if n < 512 else _header(128, n)
            if offset < 248:
                out.append(offset)
            else:
                out += encode_varu64(offset)
            literal = at + n
        at += n
    # LZ4 ends every block with literals.
    out += _header(0, at - literal) + data[literal:]
    return bytes(out)
