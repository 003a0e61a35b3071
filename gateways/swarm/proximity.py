"""How near addresses are to each other, and what follows: bins and depth (spec section 2.8).

Nodes and chunks live in one space of 32-byte addresses. How near two of them are is how many bits
they begin with in common; sixteen are told apart. A node keeps its chunks in bins, by how near they
are to itself, and all that nearer than its depth is its own neighbourhood's.
"""

from collections.abc import Iterable
from typing import Final

PROXIMITY_MAX: Final = 16
"""Of an address to itself too; so there are the bins 0 to 16."""
_TOLD_BYTES: Final = PROXIMITY_MAX // 8
_NEIGHBOURS: Final = 2
"""So many peers that are nearest are a neighbourhood."""


def proximity(one: bytes, other: bytes) -> int:
    """How many bits two addresses of 32 bytes begin with in common: 0 to 16 (spec section 2.8).

    Of a chunk's address and its holder's it is the number of the chunk's bin.
    """
    differing = int.from_bytes(one[:_TOLD_BYTES], "big") ^ int.from_bytes(
        other[:_TOLD_BYTES], "big"
    )
    return PROXIMITY_MAX - differing.bit_length()


def depth(proximities: Iterable[int]) -> int:
    """The depth of a node with full peers of these proximities to it: 0 to 16 (spec section 2.8).

    No bin above it is empty, so that a chunk that is not of the neighbourhood has a peer to go to.
    """
    nearest_first = sorted(proximities, reverse=True)
    if len(nearest_first) <= _NEIGHBOURS:
        return 0
    second = nearest_first[_NEIGHBOURS - 1]
    filled = set(nearest_first)
    return next(bin_ for bin_ in range(second + 1) if bin_ == second or bin_ not in filled)
