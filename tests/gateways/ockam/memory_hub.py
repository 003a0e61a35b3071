"""A hub of streams in memory, as simple as it can be, that may lose, refuse and hang up.

`python -m tests.gateways.ockam.memory_hub` is one as a process: it prints where it listens.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum, auto

import trio

from gateways.ockam import codec
from peer.api import Address


class Fate(Enum):
    """What becomes of a request."""

    ANSWERED = auto()
    LOST = auto()
    """It takes effect, and the answer never comes."""
    REFUSED = auto()
    """A push only: nothing is stored, and ERROR says so."""
    CUT = auto()
    """It takes effect, and the connection is closed in place of the answer."""


class MemoryHub:
    """Streams and positions."""

    def __init__(self, fate: Callable[[codec.Request], Fate] = lambda _: Fate.ANSWERED) -> None:
        self.streams: defaultdict[str, list[bytes]] = defaultdict(list)
        self.positions: dict[tuple[str, str], int] = {}
        self._fate = fate
        self._addresses: dict[str, str] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, until it is closed by either side."""
        frames = codec.FrameDecoder()
        try:
            async for data in stream:
                frames.feed(bytes(data))
                while (frame := frames.next_frame()) is not None:
                    message = codec.decode_message(frame)
                    request = codec.decode_request(*codec.decode_payload(message.payload))
                    fate = self._fate(request)
                    worker = message.onward[0].value.decode()
                    found = self._answer(worker, request, is_refused=fate is Fate.REFUSED)
                    if fate is Fate.CUT:
                        return
                    if found is not None and fate is not Fate.LOST:
                        who, answer = found
                        payload = codec.encode_response(answer)
                        back = (codec.local(who),)
                        await stream.send_all(
                            codec.encode_frame(codec.encode_message(message.back, back, payload))
                        )
        except trio.BrokenResourceError:
            return

    def _answer(
        self, worker: str, request: codec.Request, *, is_refused: bool
    ) -> tuple[str, codec.Response] | None:
        """Who says what."""
        match request:
            case codec.Create(name):
                assert name is not None
                address = f"ST_S_{len(self._addresses):016x}"
                for known, stream in self._addresses.items():
                    address = known if stream == name else address
                self._addresses[address] = name
                return address, codec.Created(name)
            case codec.Push(number, data):
                messages = self.streams[self._addresses[worker]]
                if is_refused:
                    return worker, codec.Pushed(number, False, 0)
                messages.append(data)
                return worker, codec.Pushed(number, True, len(messages) - 1)
            case codec.Pull(number, index, limit):
                messages = self.streams[self._addresses[worker]]
                found = enumerate(messages[index : index + limit], index)
                return worker, codec.Pulled(number, tuple(found))
            case codec.GetIndex(client, stream):
                return worker, codec.Index(client, stream, self.positions.get((client, stream)))
            case codec.SaveIndex(client, stream, index):
                before = self.positions.get((client, stream), 0)
                self.positions[client, stream] = max(index, before)
                return None


@asynccontextmanager
async def listening(hub: MemoryHub) -> AsyncIterator[Address]:
    """Where a hub listens."""
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, hub.serve, [listener])
        yield Address(*listener.socket.getsockname()[:2])
        nursery.cancel_scope.cancel()


async def main() -> None:
    """Serves until it is ended."""
    async with listening(MemoryHub()) as address:
        print(address, flush=True)  # noqa: T201
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main)
