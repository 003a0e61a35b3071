"""A full peer of the tests' own: it offers its chunks bin by bin, and notes what is asked of it.

It shares nothing with `gateways.swarm` but what a chunk is: `Endpoint` says what it says.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import trio

from gateways.swarm.bmt import content_chunk
from gateways.swarm.files import FileSplitter

from .endpoint import DISCONNECT, NO_PROOF, STREAM, Decoded, Endpoint, number

BATCH = 128
BINS = "0123456789abcdefg"


def leaves(data: bytes) -> dict[bytes, bytes]:
    """The chunks of data, each a leaf of its own, by their addresses."""
    pieces = (data[at : at + 4096] for at in range(0, len(data), 4096))
    found = (content_chunk(len(each), each) for each in pieces)
    return {each.address: each.encoded for each in found}


def file_chunks(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """All chunks of a file, by their addresses, and its hash."""
    splitter = FileSplitter()
    chunks = [*splitter.feed(data)]
    rest, root = splitter.finish()
    return {each.address: each.encoded for each in (*chunks, *rest)}, root


def bin_of(overlay: bytes, address: bytes) -> str:
    both = int.from_bytes(overlay, "big") ^ int.from_bytes(address, "big")
    return BINS[min(16, 256 - both.bit_length())]


class Asked(NamedTuple):
    """A Subscribe that has come."""

    key: str
    live: bool
    range: tuple[int, int] | None


class Offered(NamedTuple):
    """An offer that was made."""

    key: str
    live: bool
    first: int
    last: int
    hashes: tuple[bytes, ...]


class Upstream:
    """What an endpoint serves: `chunks`, in their order, until it is cancelled or hung up on."""

    def __init__(self, endpoint: Endpoint, chunks: Mapping[bytes, bytes]) -> None:
        self.endpoint = endpoint
        self.chunks = dict(chunks)
        self.bins: dict[str, list[bytes]] = {each: [] for each in BINS}
        for address in chunks:
            self.bins[bin_of(endpoint.overlay, address)].append(address)
        self.asked: list[Asked] = []
        self.offers: list[Offered] = []
        self.wanted: Counter[bytes] = Counter()
        self.retrieved: Counter[bytes] = Counter()
        self.reason: int | None = None
        """Which the other side has given for its end."""
        self.over = trio.Event()
        self._open: dict[tuple[str, bool], Offered] = {}

    @property
    def is_over(self) -> bool:
        """Whether the other side has ended it."""
        return self.over.is_set()

    async def run(self) -> None:
        """Until the other side has ended it."""
        try:
            while self.reason is None:
                await self._take(*await self.endpoint.next())
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.over.set()

    async def _take(self, code: int, value: Decoded) -> None:
        assert isinstance(value, list)
        if code == DISCONNECT:
            self.reason = number(value[0])
        elif code == STREAM + 4:
            await self.take_subscribe(value)
        elif code == STREAM + 2:
            await self.take_wanted(value)
        elif code == STREAM + 5:
            await self.take_request(value)

    async def take_subscribe(self, value: list[Decoded]) -> None:
        stream, span = value[0], value[1]
        assert isinstance(stream, list)
        assert isinstance(span, list)
        name, key = stream[0], stream[1]
        assert isinstance(name, bytes)
        assert isinstance(key, bytes)
        if name != b"SYNC":
            return
        found = (number(span[0]), number(span[1])) if span else None
        self.asked.append(Asked(key.decode(), bool(number(stream[2])), found))
        if found is not None:
            await self.offer_from(key.decode(), False, found[0])

    async def offer_from(self, key: str, live: bool, first: int) -> None:
        """The next batch from an index on, if there is anything."""
        first = max(1, first)
        hashes = self.bins[key][first - 1 : first - 1 + BATCH]
        if hashes:
            await self.offer(key, live, first, first + len(hashes) - 1, hashes)

    async def offer(
        self, key: str, live: bool, first: int, last: int, hashes: Iterable[bytes]
    ) -> None:
        """An offer, whatever the other side makes of it."""
        offered = Offered(key, live, first, last, tuple(hashes))
        self.offers.append(offered)
        self._open[key, live] = offered
        joined = b"".join(offered.hashes)
        await self.endpoint.say(1, [["SYNC", key, live], first, last, joined, NO_PROOF])

    async def take_wanted(self, value: list[Decoded]) -> None:
        stream, bits = value[0], value[1]
        assert isinstance(stream, list)
        assert isinstance(bits, bytes)
        key = stream[1]
        assert isinstance(key, bytes)
        live = bool(number(stream[2]))
        offered = self._open.pop((key.decode(), live))
        wanted = [each for at, each in enumerate(offered.hashes) if bits[at // 8] >> (at % 8) & 1]
        # The next offer before the chunks, as nodes do.
        await self.take_next(key.decode(), live, number(value[2]))
        for each in wanted:
            self.wanted[each] += 1
            await self.deliver(each)

    async def take_next(self, key: str, live: bool, first: int) -> None:
        """What comes behind an answer."""
        await self.offer_from(key, live, first)

    async def deliver(self, address: bytes) -> None:
        """What is wanted of an offer."""
        await self.endpoint.say(10, [address, self.chunks[address]])

    async def take_request(self, value: list[Decoded]) -> None:
        address = value[0]
        assert isinstance(address, bytes)
        self.retrieved[address] += 1
        if address in self.chunks:
            await self.answer(address)

    async def answer(self, address: bytes) -> None:
        """What is asked for by its address."""
        await self.endpoint.say(6, [address, self.chunks[address]])
