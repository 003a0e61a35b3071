"""What all connections of a node share, and each is given once, when it begins.

So it is with data credit (point2point.md 1: memory) and with open files. A new connection gets a
share of what is left: early ones all that one may have, and the more there are, the less, but
always enough to go on with, if not fast.
"""

import resource
from typing import Final

CREDIT_SHARE: Final = 16
FILES_SHARE: Final = 4
"""A connection gets no more than such a part of what is left. Of credit it is the lesser part,
since what fills a long pipe is more than most of them need: with a quarter, the twentieth of many
would get the least there is."""
CREDIT_BYTES_MIN: Final = 64 * 1024
FILES_MIN: Final = 3
"""A payload that comes, one that goes, and one more, so that one that stands does not stop all."""
FILES_ELSEWHERE: Final = 64
"""The database, its log and its readers, pipes of verification processes, standard streams."""


class Allowance:
    """Bytes of credit, or files, for all connections of a node."""

    def __init__(self, most: int, least: int, share: int) -> None:
        """`most`: of all together; `least`: what each gets, however many there are.

        `share`: into how many parts what is left is divided for each.
        """
        self.most = most
        self._share = share
        self._least = least
        self.taken = 0
        """What the connections have now; above the maximum only by the least that each gets."""

    def take(self, wanted: int) -> int:
        """The part of a new connection, at most what it wants."""
        part = min(wanted, max((self.most - self.taken) // self._share, self._least))
        self.taken += part
        return part

    def give_back(self, part: int) -> None:
        """The connection has ended."""
        self.taken -= part


def files_for_payloads(connections_max: int) -> int:
    """How many files this process may have open beside its connections and its store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(0, soft - FILES_ELSEWHERE - connections_max)
