"""What the state machines of a peer have done, by whoever has its connection and the store.

In the order in which they come: a message is not to leave before what stands in front of it is
done.
"""

from typing import NamedTuple

from gateways.swarm.codec import Message, Stream


class Send(NamedTuple):
    """Put a message into the sending queue."""

    priority: int
    message: Message


class Read(NamedTuple):
    """Read chunks once their level has room; `Server.read` takes them, by the number."""

    number: int
    priority: int
    addresses: list[bytes]


class Search(NamedTuple):
    """Look for a chunk that is not held at other peers; `Server.found` says that it is here."""

    address: bytes
    skip_check: bool
    hops: int
    """Those that the peer named: whom we ask is told one more."""


class Keep(NamedTuple):
    """Append a valid chunk to the log; `Book.recorded` takes its address when it is on disk."""

    address: bytes
    chunk: bytes


class Found(NamedTuple):
    """A valid chunk that somebody waits for has come: `Searches.found` says who does."""

    address: bytes
    chunk: bytes


class Save(NamedTuple):
    """Write down which indexes of both twins of a stream are here."""

    name: str
    key: str
    text: str
    """Of `Intervals.encode`."""


class Refused(NamedTuple):
    """Tell who wanted it that a subscription is refused, and why."""

    stream: Stream
    text: str


class Ended(NamedTuple):
    """Tell who wanted it that the peer has no more of a stream."""

    stream: Stream


ServerCommand = Send | Read | Search
ClientCommand = Send | Keep | Found | Save | Refused | Ended
Command = ServerCommand | ClientCommand
