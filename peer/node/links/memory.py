"""Two connected streams in memory with bounded buffers, for tests and for peers in one program."""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

BUFFER_BYTES: Final = 65_536
RECEIVE_BYTES: Final = 65_536

MemoryStream = trio.StapledStream["_SendEnd", "_ReceiveEnd"]


def memory_link(buffer_bytes: int = BUFFER_BYTES) -> tuple[MemoryStream, MemoryStream]:
    """Two ends of a link; in each direction at most `buffer_bytes` are under way.

    A sender waits while the buffer is full, as on a socket, so that what would stop on a network
    stops here too.
    """
    if buffer_bytes < 1:
        raise ValueError(f"a link needs a buffer, not {buffer_bytes} bytes")
    there, back = _Pipe(buffer_bytes), _Pipe(buffer_bytes)
    return (
        trio.StapledStream(_SendEnd(there), _ReceiveEnd(back)),
        trio.StapledStream(_SendEnd(back), _ReceiveEnd(there)),
    )


class _Pipe:
    """One direction: what was sent and not yet received, and which end is closed."""

    def __init__(self, buffer_bytes: int) -> None:
        self.buffer = bytearray()
        self.buffer_bytes = buffer_bytes
        self.sender_closed = False
        self.receiver_closed = False
        self._changed = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        await self._changed.park()

    def wake(self) -> None:
        self._changed.unpark_all()


class _SendEnd(trio.abc.SendStream):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._busy = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        pipe = self._pipe
        rest = memoryview(data)
        with self._alone():
            await trio.lowlevel.checkpoint()
            self._check()
            while rest:
                room = pipe.buffer_bytes - len(pipe.buffer)
                if room <= 0:
                    await self._pipe.wait()
                else:
                    pipe.buffer += rest[:room]
                    rest = rest[room:]
                    pipe.wake()
                self._check()

    async def wait_send_all_might_not_block(self) -> None:
        pipe = self._pipe
        with self._alone():
            await trio.lowlevel.checkpoint()
            if pipe.sender_closed:
                raise trio.ClosedResourceError
            while len(pipe.buffer) >= pipe.buffer_bytes and not pipe.receiver_closed:
                await pipe.wait()
                if pipe.sender_closed:
                    raise trio.ClosedResourceError

    async def send_eof(self) -> None:
        """Ends this direction; `trio.StapledStream` calls it."""
        with self._alone():
            await self.aclose()

    async def aclose(self) -> None:
        self._pipe.sender_closed = True
        self._pipe.wake()
        await trio.lowlevel.checkpoint()

    def _check(self) -> None:
        if self._pipe.sender_closed:
            raise trio.ClosedResourceError
        if self._pipe.receiver_closed:
            raise trio.BrokenResourceError("the other end is closed")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise trio.BusyResourceError("another task is sending")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


class _ReceiveEnd(trio.abc.ReceiveStream):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._busy = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        bytes_max = RECEIVE_BYTES if max_bytes is None else operator.index(max_bytes)
        if bytes_max < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._busy:
            raise trio.BusyResourceError("another task is receiving")
        self._busy = True
        try:
            await trio.lowlevel.checkpoint()
            return await self._receive(bytes_max)
        finally:
            self._busy = False

    async def _receive(self, bytes_max: int) -> bytes:
        pipe = self._pipe
        while not pipe.receiver_closed:
            if pipe.buffer:
                data = bytes(pipe.buffer[:bytes_max])
                del pipe.buffer[:bytes_max]
                pipe.wake()
                return data
            if pipe.sender_closed:
                return b""
            await pipe.wait()
        raise trio.ClosedResourceError

    async def aclose(self) -> None:
        self._pipe.receiver_closed = True
        self._pipe.buffer.clear()
        self._pipe.wake()
        await trio.lowlevel.checkpoint()
