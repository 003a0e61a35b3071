"""An asynchronous client of any data stream server, ours or upstream's (5.1)."""

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self

import trio

from gateways.datastream.codec import Command, Entry, Header, Packet, Response, Result
from gateways.datastream.sessions import ClientSession
from gateways.reading import CodecError
from peer.api import Address
from peer.node import CannotConnectError, open_stream

from .errors import RequestRefused, ServerFailed, ServerUnreachable

_READ_BYTES: Final = 1 << 18


class DataStreamClient:
    """One connection, inside an `async with` block; one task uses it at a time.

    Everything raises ServerFailed once the server is gone or has sent what no server may send, and
    RequestRefused for a Result other than 0. Waits without end: use `trio.fail_after`.
    """

    def __init__(self, address: str | Address, *, stream_type: int = 1) -> None:
        self._address = Address.parse(address) if isinstance(address, str) else address
        self._session = ClientSession(stream_type)
        self._stream: trio.SocketStream | None = None

    async def __aenter__(self) -> Self:
        try:
            self._stream = await open_stream(self._address)
        except CannotConnectError as error:
            raise ServerUnreachable(
                "no connection", str(error), "see whether a server runs there"
            ) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)

    async def header(self) -> Header:
        """What the server says of the stream."""
        await self._ask(Command.HEADER)
        packet = await self._packet()
        assert isinstance(packet, Header)
        return packet

    async def entry(self, number: int) -> Entry | None:
        """One entry, None if the server says that it is not there."""
        await self._ask(Command.ENTRY, number)
        return await self._response()

    async def entries(self, numbers: list[int]) -> list[Entry | None]:
        """Many entries, asked for at once."""
        requests = [self._session.request(Command.ENTRY, number) for number in numbers]
        await self._send(b"".join(requests))
        found = []
        for _ in numbers:
            await self._result()
            found.append(await self._response())
        return found

    async def bookmark(self, bookmark: bytes) -> Entry | None:
        """The first entry at or behind a bookmark that is none, None if it is unknown."""
        await self._ask(Command.BOOKMARK, bookmark=bookmark)
        return await self._response()

    async def start(self, number: int) -> None:
        """Begins the stream at an entry; `receive` brings it."""
        await self._ask(Command.START, number)

    async def start_bookmark(self, bookmark: bytes) -> None:
        """Begins the stream at the entry of a bookmark."""
        await self._ask(Command.START_BOOKMARK, bookmark=bookmark)

    async def stop(self) -> None:
        """Ends the stream; entries that were on their way are dropped."""
        await self._ask(Command.STOP)

    async def stream(self) -> AsyncGenerator[Entry, None]:
        """The entries of the stream that was started, without end."""
        while True:
            packet = await self._packet()
            assert isinstance(packet, Entry)
            yield packet

    async def receive(self) -> Entry:
        """The next entry of the stream that was started."""
        packet = await self._packet()
        assert isinstance(packet, Entry)
        return packet

    async def _ask(self, command: Command, number: int = 0, bookmark: bytes = b"") -> None:
        await self._send(self._session.request(command, number, bookmark))
        await self._result()

    async def _result(self) -> None:
        while not isinstance(packet := await self._packet(), Result):
            # Entries that were sent before the server read the request.
            pass
        if packet.code != 0:
            raise RequestRefused(packet.code, packet.text, str(self._address))

    async def _response(self) -> Entry | None:
        packet = await self._packet()
        assert isinstance(packet, Response)
        return packet.entry

    async def _send(self, data: bytes) -> None:
        try:
            await self._open.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._failed("the connection was lost") from None

    async def _packet(self) -> Packet:
        try:
            while (packet := self._session.next()) is None:
                data = await self._open.receive_some(_READ_BYTES)
                if not data:
                    raise self._failed("the server has closed the connection")
                self._session.receive(bytes(data))
        except CodecError as error:
            raise self._failed(f"no data stream server: {error}") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._failed("the connection was lost") from None
        return packet

    @property
    def _open(self) -> trio.SocketStream:
        if self._stream is None:
            raise RuntimeError("a DataStreamClient asks inside `async with`")
        return self._stream

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(what, str(self._address), "connect again")
