"""Limits on how many bytes a second connections move, in each direction.

A connection takes its turn for a small piece at a time, and turns are in the order in which they
were asked for: those that have something to move get equal shares, and what is urgent waits for
few pieces only. A `Rate` is a token bucket told by when its next byte is due.
"""

from dataclasses import replace
from typing import Final

import trio

from peer import SessionConfig

from .limits import Limits
from .records import Pace

BURST_S: Final = 0.1
"""What was not used for so long can be made up for: sleeping is not exact."""
PIECE_S: Final = 0.02
PIECE_BYTES_MIN: Final = 1024
PIECE_BYTES_MAX: Final = 64 * 1024
WAITED_S: Final = 1.0
"""Who waited so recently still counts as waiting: turns are short."""
CREDIT_S: Final = 0.25
"""So much data may be on its way here: control messages come behind it."""
CREDIT_BYTES_MIN: Final = 32 * 1024


class Rate:
    """A number of bytes a second that any number of tasks share."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_s = -float("inf")

    def turn(self, count: int, now: float) -> float:
        """When the next so many bytes may be moved, which counts as done."""
        at_s = max(self._free_at_s, now - BURST_S)
        self._free_at_s = at_s + count / self._bytes_per_s
        return at_s


def _piece_of(rate: int) -> int:
    return min(max(int(rate * PIECE_S), PIECE_BYTES_MIN), PIECE_BYTES_MAX)


class Pacer:
    """The limits of a node, for all its connections."""

    def __init__(self, limits: Limits) -> None:
        self.change(limits)
        self._of_peers: dict[tuple[bytes, int, int], Rate] = {}
        """By peer, direction and rate: one for all of its connections."""

    def change(self, limits: Limits) -> None:
        """Holds the connections that begin from now on to these limits."""
        self._node, self._peer = limits.bytes_per_s_max, limits.peer_bytes_per_s_max
        self._sending = [Rate(self._node)] if self._node is not None else []
        self._receiving = [Rate(self._node)] if self._node is not None else []

    @property
    def bytes_per_s(self) -> int | None:
        """What one connection may move at most, in each direction; None: without limit."""
        rates = [rate for rate in (self._node, self._peer) if rate is not None]
        return min(rates, default=None)

    @property
    def piece_bytes(self) -> int | None:
        """How much a connection moves in one turn; None: without limit."""
        rate = self.bytes_per_s
        if rate is None:
            return None
        return _piece_of(rate)

    @staticmethod
    def paces(stream: trio.abc.Stream, now: float) -> tuple[Pace | None, Pace | None]:
        """How sending and receiving go on what `stream` returned; None without a limit."""
        return stream.paces(now) if isinstance(stream, _Paced) else (None, None)

    def stream(
        self,
        stream: trio.abc.Stream,
        peer_id: bytes = b"",
        peer_rates: tuple[int | None, int | None] = (None, None),
    ) -> trio.abc.Stream:
        """The stream of a new connection, held to the limits.

        `peer_rates`: what a peer may send and be sent, in bytes a second, over all its connections.
        """
        piece_bytes = self.piece_bytes
        if piece_bytes is None and peer_rates == (None, None):
            return stream
        pieces = [] if piece_bytes is None else [piece_bytes]
        piece_bytes = min(pieces + [_piece_of(rate) for rate in peer_rates if rate is not None])
        peer = [] if self._peer is None else [self._peer]
        taken, given = (
            [] if rate is None else [self._of_peers.setdefault((peer_id, way, rate), Rate(rate))]
            for way, rate in enumerate(peer_rates)
        )
        sending = [*self._sending, *map(Rate, peer), *given]
        receiving = [*self._receiving, *map(Rate, peer), *taken]
        if isinstance(stream, trio.abc.HalfCloseableStream):
            return _PacedHalfCloseable(stream, sending, receiving, piece_bytes)
        return _Paced(stream, sending, receiving, piece_bytes)

    def session(self, config: SessionConfig) -> SessionConfig:
        """How a session behaves so that what is on its way delays little."""
        rate = self.bytes_per_s
        if rate is None:
            return config
        credit = min(config.data_credit_bytes, max(int(rate * CREDIT_S), CREDIT_BYTES_MIN))
        # A payload that is gathered in memory has to fit into the credit, with its entry.
        small = min(config.small_payload_bytes_max, credit // 2)
        return replace(config, data_credit_bytes=credit, small_payload_bytes_max=small)


class _Meter:
    """Counts what is moved, second by second."""

    def __init__(self) -> None:
        self._second = 0
        self._bytes = 0
        self._bytes_before = 0

    def add(self, count: int, now: float) -> None:
        self._turn(int(now))
        self._bytes += count

    def last_second(self, now: float) -> int:
        """In the last whole second."""
        self._turn(int(now))
        return self._bytes_before

    def _turn(self, second: int) -> None:
        if second != self._second:
            self._bytes_before = self._bytes if second == self._second + 1 else 0
            self._second, self._bytes = second, 0


class _Toll:
    """What a connection has to wait for in one direction.

    Little is moved at once and paid for later: so every turn is worth about the same.
    """

    def __init__(self, rates: list[Rate], piece_bytes: int) -> None:
        self._rates = rates
        self._piece_bytes = piece_bytes
        self._owed = 0
        self._meter = _Meter()
        self._waits_until_s = -float("inf")

    def pace(self, now: float) -> Pace:
        return Pace(self._meter.last_second(now), waits=now < self._waits_until_s + WAITED_S)

    async def pay(self, count: int) -> None:
        self._meter.add(count, trio.current_time())
        self._owed += count
        if self._owed < self._piece_bytes:
            return
        owed, self._owed = self._owed, 0
        now = trio.current_time()
        at_s = max(rate.turn(owed, now) for rate in self._rates)
        if at_s > now:
            self._waits_until_s = at_s
            await trio.sleep_until(at_s)


class _Paced(trio.abc.Stream):
    """A stream that waits for its turns."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        sending: list[Rate],
        receiving: list[Rate],
        piece_bytes: int,
    ) -> None:
        self.transport = stream
        self._piece_bytes = piece_bytes
        self._sending = _Toll(sending, piece_bytes)
        self._receiving = _Toll(receiving, piece_bytes)
        self._received = 0

    def paces(self, now: float) -> tuple[Pace, Pace]:
        """Of sending and receiving."""
        return self._sending.pace(now), self._receiving.pace(now)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with memoryview(data) as view:
            if not view:
                await self.transport.send_all(b"")
            for offset in range(0, len(view), self._piece_bytes):
                piece = view[offset : offset + self._piece_bytes]
                await self._sending.pay(len(piece))
                await self.transport.send_all(piece)

    async def wait_send_all_might_not_block(self) -> None:
        await self.transport.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        # Nobody knows before how much will come: what came is paid for before the next is read.
        received, self._received = self._received, 0
        await self._receiving.pay(received)
        limit = self._piece_bytes if max_bytes is None else min(max_bytes, self._piece_bytes)
        data = await self.transport.receive_some(limit)
        self._received = len(data)
        return data

    async def aclose(self) -> None:
        await self.transport.aclose()


class _PacedHalfCloseable(_Paced, trio.abc.HalfCloseableStream):
    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        sending: list[Rate],
        receiving: list[Rate],
        piece_bytes: int,
    ) -> None:
        super().__init__(stream, sending, receiving, piece_bytes)
        self._half = stream

    async def send_eof(self) -> None:
        await self._half.send_eof()
