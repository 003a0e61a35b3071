"""A peer of the tests' own that wants all there is, and notes in which order it comes."""

from collections.abc import Callable

from .endpoint import EVERYTHING, STREAM, Endpoint, number
from .upstream import BINS


class Downstream:
    """What an endpoint takes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.came: dict[bytes, None] = {}
        """Chunks of streams, in the order in which they came."""
        self.answers: dict[bytes, int] = {}
        """Chunks that were asked for by their address, and how many others came before them."""

    async def subscribe(self) -> None:
        """To all bins, live and from their beginnings."""
        for key in BINS:
            await self.endpoint.say(4, [["SYNC", key, True], [1, 0], 2])

    async def request(self, address: bytes) -> None:
        """Asks for a chunk."""
        await self.endpoint.say(5, [address, True, 0])

    async def read(self, until: Callable[[], bool]) -> None:
        """Takes and answers what comes until something is so."""
        while not until():
            code, value = await self.endpoint.next()
            assert isinstance(value, list)
            address = value[0]
            if code == STREAM + 1:
                await self._want(*value)
            elif code == STREAM + 10:
                assert isinstance(address, bytes)
                self.came[address] = None
            elif code == STREAM + 6:
                assert isinstance(address, bytes)
                self.answers[address] = len(self.came)

    async def _want(self, *offer: object) -> None:
        stream, _, last, hashes, _ = offer
        assert isinstance(stream, list)
        assert isinstance(last, bytes)
        assert isinstance(hashes, bytes)
        count = len(hashes) // 32
        bits = b"\xff" * (count // 8 + 1)
        end = 0 if number(stream[2]) else EVERYTHING
        await self.endpoint.say(2, [stream, bits, number(last) + 1, end])
