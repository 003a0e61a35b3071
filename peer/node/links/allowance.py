"""Data credit for connections, so that the memory of all of them together is bounded.

What a peer may have under way to us is granted once, when its connection begins (point2point.md 1).
So a new connection gets a share of what is left: early ones all that one may have, and the more
there are, the less.
"""

from typing import Final

SHARE: Final = 4
"""A connection gets no more than this part of what is left."""
CREDIT_BYTES_MIN: Final = 64 * 1024
"""What each connection gets, however many there are: enough to go on, if not fast."""


class Allowance:
    """Data credit for all connections of a node, in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.taken_bytes = 0
        """What the connections have now; above the maximum only by the least that each gets."""

    def take(self, bytes_wanted: int) -> int:
        """The credit of a new connection, at most what it wants."""
        share = max((self._bytes_max - self.taken_bytes) // SHARE, CREDIT_BYTES_MIN)
        credit = min(bytes_wanted, share)
        self.taken_bytes += credit
        return credit

    def give_back(self, credit: int) -> None:
        """The connection has ended."""
        self.taken_bytes -= credit
