"""Sums of the blocks of a payload's file: what is read of it is checked before anybody has it.

Theory. A disk hands out flipped bits in silence, and whoever passes them on is taken for a liar.
The hash that an entry names is of the whole payload: that it is wrong shows behind the last byte,
when all others have been sent; it says nothing to who reads a part; and to compute it anew for each
reader took a fifth of the processor time of both ends. So whoever writes a file, and has to hash it
anyway, sums up its blocks as well. The sums become part of the file's row with the commit that says
that the file is whole. A reader checks each block before anything of it leaves.

They are sums against disks and not against people: XXH3 is no cryptographic hash. Nothing is lost
by that. What a peer receives it hashes itself, whoever sends it; and who can change a store's files
can change its database too.

Format: for each 64 KiB of the payload, the last of which are what is left, the XXH3 of 64 bits in
its canonical form (big-endian); then the sum of those sums, so that a sum that was damaged itself
does not pass for a damaged file. Files that earlier versions wrote have no sums.
"""

from collections.abc import Iterator
from typing import Final

from xxhash import xxh3_64, xxh3_64_digest

BLOCK_BYTES: Final = 1 << 16
"""What is read at least: little for who reads a part, and its sum takes two microseconds."""
SUM_BYTES: Final = 8


class Summing:
    """The sums of a file that is being written, or read, from its start to its end."""

    def __init__(self) -> None:
        self._sums = bytearray()
        self._begun = xxh3_64()
        self._begun_bytes = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes."""
        at, view = 0, memoryview(data)
        if self._begun_bytes:
            at = min(BLOCK_BYTES - self._begun_bytes, len(view))
            self._begun.update(view[:at])
            self._begun_bytes += at
            if self._begun_bytes < BLOCK_BYTES:
                return
            self._end_block()
        whole = at + (len(view) - at) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(at, whole, BLOCK_BYTES):
            self._sums += xxh3_64_digest(view[start : start + BLOCK_BYTES])
        if whole < len(view):
            self._begun.update(view[whole:])
            self._begun_bytes = len(view) - whole

    def _end_block(self) -> None:
        self._sums += self._begun.digest()
        self._begun.reset()
        self._begun_bytes = 0

    def encode(self) -> bytes:
        """The sums of what was taken, for the file's row. More may be taken behind that."""
        last = self._begun.digest() if self._begun_bytes else b""
        sums = bytes(self._sums) + last
        return sums + xxh3_64_digest(sums)


class BlockSums:
    """The sums in a file's row."""

    def __init__(self, sums: bytes) -> None:
        self._sums = sums

    @classmethod
    def load(cls, encoded: bytes | None, payload_bytes: int) -> "BlockSums | None":
        """What `Summing.encode` gave of a payload of that size; None if there is nothing such."""
        blocks = -(-payload_bytes // BLOCK_BYTES)
        if encoded is None or len(encoded) != (blocks + 1) * SUM_BYTES:
            return None
        sums, own = encoded[:-SUM_BYTES], encoded[-SUM_BYTES:]
        return cls(sums) if xxh3_64_digest(sums) == own else None

    def are_right(self, first: int, data: bytes) -> bool:
        """Whether `data` are the blocks from number `first` (0-based) on, each of them whole."""
        sums = b"".join(map(xxh3_64_digest, _blocks(data)))
        return sums == self._sums[first * SUM_BYTES : first * SUM_BYTES + len(sums)]


def _blocks(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + BLOCK_BYTES] for at in range(0, len(view), BLOCK_BYTES))
