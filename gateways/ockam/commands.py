"""What a connection of a hub has done, by whoever has a store and a clock.

Each command but `Wait` names what is asked of the streams of a store; it is answered by its number.
"""

from dataclasses import dataclass
from typing import NamedTuple


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
    """Store messages in this order, (address, data) each; `appended` answers.

    Without data: one that is refused, where there is such an address at all.
    """

    number: int
    messages: list[tuple[str, bytes | None]]


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
