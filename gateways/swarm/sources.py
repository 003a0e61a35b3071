"""What a server offers: addresses under ascending indexes (spec sections 2.6 and 2.10).

Whether a stream is the bin of a node, the leaves of a file or the updates of a feed, its server
asks the same three things. What was offered under an index stays under it; a chunk may leave, and
its index does not go to another.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from gateways.swarm.codec import Stream

ANSWERS_MAX: Final = 1_024
"""Answers to retrievals of a peer that are not offered, or not read, yet (spec section 7)."""
BAD_KEY: Final = "bad key"
"""The text of `UnavailableError` for a key that is none of its kind of stream."""


class UnavailableError(Exception):
    """There is no such stream here; the text is what the SubscribeError says (spec section 3.1)."""


class FailedError(Exception):
    """What is asked cannot be said now: the connection that cannot do without it is to end.

    Raised by whoever stands behind a `Source` or says what is held. What was asked is asked again
    by a new connection, from what was recorded; a machine that went on would leave something out.
    """


class Source(Protocol):
    """The items of one stream."""

    @property
    def newest(self) -> int:
        """The highest index that has an item; 0 if there is none."""

    def addresses(self, first: int, last: int, count: int) -> list[bytes]:
        """Those of the indexes `first` to `last`, 32 bytes each, without gaps.

        From `first` on, which is 1 or more: `count` at most, and none behind the newest.
        """

    def holds(self, address: bytes) -> bool:
        """Whether the chunk of an item can be read: it may have left."""


Opener = Callable[[Stream], Source]
"""Finds the items of a stream, whose name is known. Raises UnavailableError."""


class Answers:
    """The items of `RETRIEVE_REQUEST`: what one peer asked for, and is here (spec section 3.6).

    They are offered once, and what is before an index that was asked for is no longer known.
    """

    def __init__(self, holds: Callable[[bytes], bool]) -> None:
        self.holds = holds
        self.newest = 0
        self._waiting: deque[bytes] = deque()

    def append(self, address: bytes) -> None:
        """An answer of 32 bytes to offer.

        Of a peer that asks and takes up no offer the oldest is forgotten, and those behind it move
        up: no index is without an item.
        """
        self._waiting.append(address)
        if len(self._waiting) > ANSWERS_MAX:
            self._waiting.popleft()
        else:
            self.newest += 1

    def addresses(self, first: int, last: int, count: int) -> list[bytes]:
        """As of every `Source`."""
        for _ in range(min(first - 1 - (self.newest - len(self._waiting)), len(self._waiting))):
            self._waiting.popleft()
        return [*islice(self._waiting, max(0, min(count, last - first + 1)))]
