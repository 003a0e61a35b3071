"""What comes of what is asked of the streams of a store, as a hub's clients are told.

It is said by whoever has the store, and turned into replies by whoever has the connection: neither
needs to know the other for that. Sans-io.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from gateways.ockam.bare import encode_uint

TOO_MANY_STREAMS: Final = "Too many streams"
UNKNOWN_STREAM: Final = "Unknown stream"
UNAVAILABLE: Final = "Unavailable"


class Outcome(Enum):
    """What became of a push that has no index."""

    REFUSED = auto()
    UNKNOWN = auto()
    """There is no such address: nothing is answered."""


class Made(NamedTuple):
    """The partitions there are, and why others are not."""

    name: str
    partitions: Sequence[tuple[int, str]]
    """The number and the address of each, ascending."""
    failure: str = ""


def message_bytes(index: int, data: bytes) -> int:
    """What a message takes of `Read.room`."""
    return len(encode_uint(index)) + len(encode_uint(len(data))) + len(data)
