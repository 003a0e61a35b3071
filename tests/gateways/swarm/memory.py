"""What a node holds, in memory: chunks, and the streams that they are items of."""

from collections.abc import Iterable

from gateways.swarm.bmt import Chunk, content_chunk
from gateways.swarm.codec import Stream
from gateways.swarm.sources import BAD_KEY, UnavailableError


def chunk_of(number: int) -> Chunk:
    payload = b"chunk %d" % number
    return content_chunk(len(payload), payload)


CHUNKS = [chunk_of(number) for number in range(600)]
ADDRESSES = [each.address for each in CHUNKS]


class Items:
    """A stream of some addresses; those in `gone` cannot be read."""

    def __init__(self, addresses: Iterable[bytes] = ()) -> None:
        self.items = [*addresses]
        self.gone: set[bytes] = set()

    @property
    def newest(self) -> int:
        return len(self.items)

    def addresses(self, first: int, last: int, count: int) -> list[bytes]:
        assert first > 0
        return self.items[first - 1 : min(last, first - 1 + count)]

    def holds(self, address: bytes) -> bool:
        return address not in self.gone


class Bins:
    """The streams of a name, by their keys."""

    def __init__(self, **items: Items) -> None:
        self.items = items

    def open(self, stream: Stream) -> Items:
        if stream.key not in self.items:
            raise UnavailableError(BAD_KEY)
        return self.items[stream.key]
