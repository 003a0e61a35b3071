"""What a connection of a hub has done, by whoever has a store and a clock; and what came of it.

Each command but `Wait` names what is asked of the streams of a store; it is answered by its number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from gateways.ockam.bare import encode_uint

TOO_MANY_STREAMS: Final = "Too many streams"
UNKNOWN_STREAM: Final = "Unknown stream"
UNAVAILABLE: Final = "Unavailable"


class MakeStream(NamedTuple):
    """Find or make partitions 0 to `partitions` - 1; `created` answers. No name: a new one."""

    number: int
    name: str | None
    partitions: int
    may_make: bool


class FindStream(NamedTuple):
    """Say of a stream by its address what it is; `created` answers, with None if there is none."""

    number: int
    address: str


class Append(NamedTuple):
    """Store messages in this order, (address, data) each; `appended` answers."""

    number: int
    messages: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Read:
    """Read messages; `read` answers. `room`: bytes that index, length and data may take."""

    number: int
    address: str
    index: int
    limit: int
    room: int


class GetPosition(NamedTuple):
    """Make what was saved of it durable, and read it; `position` answers."""

    number: int
    client: str
    name: str
    partition: int


@dataclass(frozen=True, slots=True)
class SavePosition:
    """Remember a position; `saved` answers once there was room for it."""

    number: int
    client: str
    name: str
    partition: int
    index: int


class Wait(NamedTuple):
    """Call `waited` after so many seconds."""

    number: int
    seconds: float


Command = MakeStream | FindStream | Append | Read | GetPosition | SavePosition | Wait


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
