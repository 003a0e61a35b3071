"""A long pipe between two nodes: what goes through takes its time, and no more than its rate.

A queue that is no longer than a router's, bytes that leave it at the rate and arrive after the
delay. `tc netem` would do the same to packets, but needs a module of the kernel that many machines
lack. What the kernel's TCP does at such a distance (its slow start, packets that are lost) is left
out: what is measured are the windows of the nodes. TCP's handshake, which loopback has done at
once, takes the time that it would take.
"""

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from bench.support.output import show

CHUNK_BYTES: Final = 32 * 1024
QUEUE_BYTES: Final = 128 * 1024
SOCKET_BYTES: Final = 64 * 1024
"""What a socket at an end of the pipe may hold besides: loopback would take megabytes."""
BEGINNING_S: Final = 2.0
"""What is moved so soon after the call is not counted: windows may open until then."""


@dataclass(frozen=True)
class Measures:
    """How long and how wide a pipe is."""

    round_trip_s: float = 0.1
    bytes_per_s: float = 100e6 / 8

    @property
    def room_bytes(self) -> float:
        """What one direction holds."""
        return self.bytes_per_s * self.round_trip_s / 2 + QUEUE_BYTES


LONG: Final = Measures()
"""100 ms there and back, 100 Mbit/s."""


class Direction:
    """One way through a pipe."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._left_at = 0.0
        self._ended = False
        self._changed = trio.lowlevel.ParkingLot()
        self.arrived: list[tuple[float, int]] = []
        """When something arrived, and how many bytes have by then."""

    async def take_in(self, source: trio.abc.ReceiveStream) -> None:
        """Reads what is to be carried, as long as there is room for it."""
        measures = self._measures
        while data := await received(source):
            takes_s = len(data) / measures.bytes_per_s
            self._left_at = max(self._left_at, trio.current_time()) + takes_s
            self._under_way.append((self._left_at + measures.round_trip_s / 2, data))
            self._bytes += len(data)
            self._changed.unpark_all()
            while self._bytes >= measures.room_bytes:
                await self._changed.park()
        self._ended = True
        self._changed.unpark_all()

    async def give_out(self, sink: trio.abc.HalfCloseableStream) -> None:
        """Hands on what has arrived."""
        total = 0
        while self._under_way or not self._ended:
            if not self._under_way:
                await self._changed.park()
                continue
            arrives_at, data = self._under_way[0]
            await trio.sleep_until(arrives_at)
            total += len(data)
            self.arrived.append((trio.current_time(), total))
            await sink.send_all(data)
            self._under_way.popleft()
            self._bytes -= len(data)
            self._changed.unpark_all()
        await sink.send_eof()


async def received(source: trio.abc.ReceiveStream) -> bytes:
    """What comes next; a connection that is cut ends as others do."""
    try:
        return bytes(await source.receive_some(CHUNK_BYTES))
    except trio.BrokenResourceError:
        return b""


class Pipe:
    """A connection through a pipe, from the moment of the call on."""

    def __init__(self, measures: Measures = LONG) -> None:
        self._measures = measures
        self.called_at = trio.current_time()
        self.out = Direction(measures)
        self.back = Direction(measures)

    async def run(
        self,
        caller: trio.abc.HalfCloseableStream,
        call: Callable[[], Awaitable[trio.abc.HalfCloseableStream]],
    ) -> None:
        """Carries what both sides say until both have ended; `call` reaches the one called."""
        round_trip_s = self._measures.round_trip_s
        try:
            async with trio.open_nursery() as nursery:
                # The caller says nothing before the answer to its first packet is there, and who is
                # called hears of it when the answer to that one is, with what was said behind it.
                await trio.sleep_until(self.called_at + round_trip_s)
                nursery.start_soon(self.out.take_in, caller)
                await trio.sleep_until(self.called_at + 1.5 * round_trip_s)
                called = await call()
                nursery.start_soon(self.out.give_out, called)
                nursery.start_soon(self.back.take_in, called)
                nursery.start_soon(self.back.give_out, caller)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def bytes_per_s(self, begin_s: float, end_s: float = float("inf")) -> float:
        """What came back in a second, between two times after the call; up to the last byte."""
        within = [
            each for each in self.back.arrived if begin_s <= each[0] - self.called_at <= end_s
        ]
        if len(within) < 2:
            return 0.0
        (first_at, before), (last_at, after) = within[0], within[-1]
        return (after - before) / (last_at - first_at)


def carry(address: str) -> None:
    """A role: a pipe to an address of this machine, until a line on standard input asks for its
    figures."""
    trio.run(_carry, int(address.rpartition(":")[2]))


async def _carry(port: int) -> None:
    pipes: list[Pipe] = []

    async def call() -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        limit_buffers(stream)
        return stream

    async def serve(caller: trio.SocketStream) -> None:
        limit_buffers(caller)
        pipes.append(Pipe())
        await pipes[-1].run(caller, call)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        show({"address": f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"})
        await trio.to_thread.run_sync(sys.stdin.readline)
        show(figures(pipes[-1]))
        nursery.cancel_scope.cancel()


def figures(pipe: Pipe) -> Mapping[str, float]:
    """What is told of the latest connection."""
    at, count = pipe.back.arrived[-1]
    return {
        "pipe_s": at - pipe.called_at,
        "pipe_mb": count / 1e6,
        "pipe_mb_per_s": pipe.bytes_per_s(BEGINNING_S) / 1e6,
    }


def limit_buffers(stream: trio.SocketStream) -> None:
    """The pipe's ends take no more than a network card would."""
    for option in (trio.socket.SO_SNDBUF, trio.socket.SO_RCVBUF):
        stream.setsockopt(trio.socket.SOL_SOCKET, option, SOCKET_BYTES)
