"""Bymux streams as Trio streams: `Multiplexer` runs a connection over any `trio.abc.Stream`.

    async with trio.open_nursery() as nursery:
        multiplexer = Multiplexer(transport, Role.PROACTIVE)
        nursery.start_soon(multiplexer.run)
        stream = await multiplexer.open_stream()
        await stream.send_all(b"hello")
        await multiplexer.aclose()

One task reads the transport and one writes it, and the first never waits for the second: whatever
arrives is taken at once, into buffers that credit bounds, so two sides that both have their hands
full of unsent data still read each other.
"""

import operator
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio

from . import (
    INFINITE,
    CloseReceived,
    Config,
    Connection,
    DataReceived,
    Event,
    PongReceived,
    RemoteProtocolError,
    Role,
    Statistics,
    StopReadReceived,
    StreamEnded,
    StreamOpened,
)

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 256 * 1024
_RECEIVE_BYTES = 64 * 1024  # what one `receive_some` returns at most, unless told otherwise
_CLOSE_TIMEOUT_S = 2.0  # for the transport's own farewell, such as that of TLS


class _Turn:
    """Lets one task in at a time and refuses a second, as Trio's streams do."""

    __slots__ = ("_doing", "_taken")

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._taken = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        if self._taken:
            raise trio.BusyResourceError(f"another task is {self._doing} this stream")
        self._taken = True
        try:
            yield
        finally:
            self._taken = False


class MultiplexedStream(trio.abc.HalfCloseableStream):
    """One stream of a `Multiplexer`, which alone makes these."""

    def __init__(self, multiplexer: "Multiplexer", stream: int, receive_credit: int) -> None:
        self.id = stream
        self._receive_credit = receive_credit
        self._multiplexer = multiplexer
        self._connection = multiplexer.connection
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._receiving = _Turn("reading from")
        self._sending = _Turn("writing to")
        self._changed = trio.lowlevel.ParkingLot()
        self._is_closed = False
        self._eof_sent = False
        self._eof_received = False
        self._stop_received = False
        self._has_ended = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, b"" after the last. What is returned is granted to the peer anew."""
        limit = _RECEIVE_BYTES if max_bytes is None else operator.index(max_bytes)
        if limit < 1:
            raise ValueError(f"max_bytes is {limit}, 1 is the least")
        with self._receiving.taken():
            await trio.lowlevel.checkpoint()
            while True:
                if self._is_closed:
                    raise trio.ClosedResourceError("this stream was closed")
                if self._received:
                    return self._take(limit)
                if self._eof_received:
                    return b""
                self._multiplexer.check_running()
                await self._changed.park()

    def _take(self, limit: int) -> bytes:
        received = self._received
        parts: list[bytes] = []
        room = limit
        while received and room >= len(received[0]):
            part = received.popleft()
            parts.append(part)
            room -= len(part)
        if received and room:
            parts.append(received[0][:room])
            received[0] = received[0][room:]
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._received_bytes -= len(data)
        if self._is_alive:
            self._connection.consumed(self.id, len(data))
            self._multiplexer.wake_writer()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Queues all of `data`, as credit allows and a small buffer has room."""
        with self._sending.taken():
            await trio.lowlevel.checkpoint()
            self._check_writable()
            rest = memoryview(data).cast("B")
            while rest:
                room = await self._wait_for_room()
                whole = isinstance(data, bytes) and len(data) == len(rest) <= room
                self._connection.send(self.id, data if whole else rest[:room])
                self._multiplexer.wake_writer()
                rest = rest[room:]

    async def wait_send_all_might_not_block(self) -> None:
        """Waits until there is credit, and room in the buffer."""
        with self._sending.taken():
            await trio.lowlevel.checkpoint()
            await self._wait_for_room()

    async def _wait_for_room(self) -> int:
        while True:
            self._check_writable()
            room = self._multiplexer.send_buffer_bytes - self._connection.queued(self.id)
            room = min(room, self._connection.sendable(self.id))
            if room > 0:
                return room
            await self._changed.park()

    def _check_writable(self) -> None:
        if self._is_closed or self._eof_sent:
            raise trio.ClosedResourceError("this stream was closed for writing")
        if self._stop_received:
            raise trio.BrokenResourceError("the peer has stopped reading this stream")
        self._multiplexer.check_running()

    async def send_eof(self) -> None:
        """Writes no more, behind what was sent; reading goes on."""
        with self._sending.taken():
            await trio.lowlevel.checkpoint()
            if self._is_closed:
                raise trio.ClosedResourceError("this stream was closed")
            if not self._eof_sent:
                self._check_writable()
                self._say_eof()

    async def aclose(self) -> None:
        """Writes and reads no more, and waits until everything sent is with the transport.

        What was not read is thrown away. Cancelled, it closes all the same, without waiting.
        """
        self.close_nowait()
        await self._multiplexer.wait_sent(self)

    def close_nowait(self) -> None:
        """`aclose` without the waiting."""
        if self._is_closed:
            return
        self._is_closed = True
        self._received.clear()
        self._received_bytes = 0
        self._say_eof()
        if self._is_alive and not self._connection.has_stopped(self.id):
            self._connection.stop_read(self.id)
        self._multiplexer.wake_writer()
        self.wake()

    def _say_eof(self) -> None:
        self._eof_sent = True
        if self._is_alive and not self._connection.has_closed(self.id):
            self._connection.close(self.id)
        self._multiplexer.wake_writer()

    @property
    def _is_alive(self) -> bool:
        """Whether the connection knows this stream and takes commands."""
        return not self._has_ended and self._multiplexer.failure is None

    @property
    def is_sent(self) -> bool:
        """Whether all that this side will ever send of the stream has left the connection."""
        return self._has_ended or not self._connection.owes(self.id)

    # For the multiplexer.

    def wake(self) -> None:
        """Something has changed for whoever waits here."""
        self._changed.unpark_all()

    def take_event(self, event: Event) -> None:
        """Applies an event of this stream."""
        match event:
            case DataReceived(_, data):
                if not self._is_closed:
                    self._received.append(bytes(data))
                    self._received_bytes += len(data)
            case CloseReceived():
                self._eof_received = True
            case StopReadReceived():
                self._stop_received = True
            case StreamEnded():
                self._has_ended = True
            case _:
                pass  # credit: whoever waits for it looks again
        self.wake()

    def allow(self, window_bytes: int) -> None:
        """Fills the first credit up to the window, unless the peer is done or has more."""
        if self._receive_credit < window_bytes and not self._connection.has_stopped(self.id):
            self._connection.grant(self.id, window_bytes - self._receive_credit)

    def overflows(self, bytes_max: int) -> bool:
        """Whether more waits to be read, on a stream where no credit bounds it."""
        return self._receive_credit == INFINITE and self._received_bytes > bytes_max


class Multiplexer(trio.abc.AsyncResource):
    """Runs bymux over a transport; `run` has to be running, in a nursery of the caller's.

    `receive_window_bytes` is what the peer may have sent on a stream before it is read,
    if `config` does not grant more from the start. On a stream with infinite credit, more than
    `unread_bytes_max` of it unread ends the connection. `peer_streams_max` is how many streams of
    the peer's may exist at a time. `send_buffer_bytes` is what a stream queues before `send_all`
    waits.
    """

    def __init__(
        self,
        transport: trio.abc.Stream,
        role: Role,
        config: Config | None = None,
        *,
        receive_window_bytes: int = 256 * 1024,
        unread_bytes_max: int = 1024 * 1024,
        peer_streams_max: int = 64,
        send_buffer_bytes: int = 64 * 1024,
    ) -> None:
        self.connection = Connection(role, config)
        self.send_buffer_bytes = send_buffer_bytes
        self.failure: Exception | None = None
        """Why the connection is over, if it did not end well."""
        self._transport = transport
        self._role = role
        self._window = receive_window_bytes
        self._unread_bytes_max = unread_bytes_max
        self._streams: dict[int, MultiplexedStream] = {}
        self._arrived: deque[MultiplexedStream] = deque()
        self._changed = trio.lowlevel.ParkingLot()
        self._sent = trio.lowlevel.ParkingLot()
        self._work = trio.Event()
        self._done = trio.Event()
        self._scope = trio.CancelScope()
        self._writing = False
        self._lost: Exception | None = None
        """Why writing to the transport failed, while what is left of it is read."""
        self._peer_creates = self._is_creatable
        self._peer_grants = self._is_creatable
        self._pings = 0
        self._pongs = 0
        for initial in self.connection.config.initial_streams:
            self._add(initial.id, initial.receive_credit).allow(self._window)
        if self._is_creatable:
            self.connection.grant_streams(peer_streams_max)

    @property
    def _is_creatable(self) -> bool:
        return self.connection.config.streams_creatable

    # What the application calls.

    async def run(self) -> None:
        """Moves bytes until the connection has ended, then closes the transport.

        Returns when both sides have closed everything, and also when the transport ends otherwise
        or `aclose` is cancelled: then the streams raise BrokenResourceError and `failure` says why.
        Raises RemoteProtocolError if the peer breaks a rule.
        """
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, nursery.cancel_scope)
                    await self._read()
                    if self.failure is not None:
                        nursery.cancel_scope.cancel()
        finally:
            if self.failure is None and not self.connection.is_finished:
                reason = trio.ClosedResourceError("the multiplexer was stopped")
                self._fail(self._lost or reason)
            if self.failure is None:
                with trio.move_on_after(_CLOSE_TIMEOUT_S), suppress(trio.BrokenResourceError):
                    await self._transport.aclose()
            else:
                await trio.aclose_forcefully(self._transport)
            self._done.set()
            self._wake_all()
        if isinstance(self.failure, RemoteProtocolError):
            raise self.failure

    def stream(self, stream: int) -> MultiplexedStream:
        """A stream that exists from the start. Raises KeyError if there is none (any more)."""
        return self._streams[stream]

    async def open_stream(self) -> MultiplexedStream:
        """Creates a stream, once the peer lets us.

        Raises BrokenResourceError if it never will.
        """
        await trio.lowlevel.checkpoint()
        while not self.connection.streams_openable:
            self.check_running()
            if not self._peer_grants:
                raise trio.BrokenResourceError("no more streams can be created")
            await self._changed.park()
        self.check_running()
        number = self.connection.open_stream()
        stream = self._add(number, self.connection.config.other_credit)
        stream.allow(self._window)
        self.wake_writer()
        return stream

    async def accept_stream(self) -> MultiplexedStream:
        """The next stream that the peer created. Raises EndOfChannel if it creates no more."""
        await trio.lowlevel.checkpoint()
        while not self._arrived:
            if not self._peer_creates:
                raise trio.EndOfChannel
            self.check_running()
            await self._changed.park()
        stream = self._arrived.popleft()
        if self.failure is None:
            stream.allow(self._window)
            self.wake_writer()
        return stream

    async def ping(self) -> None:
        """Asks the peer for a Pong and waits for it."""
        await trio.lowlevel.checkpoint()
        self.check_running()
        self.connection.ping()
        self._pings += 1
        mine = self._pings
        self.wake_writer()
        while self._pongs < mine:
            self.check_running()
            await self._changed.park()

    async def aclose(self) -> None:
        """Closes all streams, both ways, and waits until the peer has done the same and `run` ends.

        Give it a time limit: cancelled, it ends the connection at once.
        """
        try:
            if self.failure is None and not self.connection.has_closed(None):
                self.connection.close_creation()
            if self.failure is None and not self.connection.has_stopped(None):
                self.connection.stop_creation()
            for stream in tuple(self._streams.values()):
                stream.close_nowait()
            self.wake_writer()
            await self._done.wait()
        except trio.Cancelled:
            self._scope.cancel()
            raise

    def statistics(self) -> Statistics:
        """Counters of the connection."""
        return self.connection.statistics()

    # What its streams call.

    def check_running(self) -> None:
        """Raises BrokenResourceError if nothing comes or goes any more."""
        if self.failure is not None:
            raise trio.BrokenResourceError(str(self.failure)) from self.failure
        if self._done.is_set():
            raise trio.BrokenResourceError("the connection has ended")

    def wake_writer(self) -> None:
        """There may be something to send."""
        if self.connection.wants_to_send:
            self._work.set()

    async def wait_sent(self, stream: MultiplexedStream) -> None:
        """Waits until the transport has taken what a closed stream sent, or is gone."""
        await trio.lowlevel.checkpoint()
        if self._writing or not stream.is_sent:
            while self.failure is None and not self._done.is_set():
                await self._sent.park()
                if stream.is_sent:
                    break

    # The two tasks.

    async def _read(self) -> None:
        while self.failure is None and not self.connection.is_finished:
            try:
                data = await self._transport.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
                self._fail(self._lost or lost)
                return
            if not data:
                reason = "the transport ended before the streams did"
                self._fail(self._lost or trio.BrokenResourceError(reason))
                return
            self._receive(data)
            self.wake_writer()
        self._work.set()

    def _receive(self, data: bytes | bytearray) -> None:
        try:
            events = self.connection.receive_data(data, trio.current_time())
        except RemoteProtocolError as broken:
            self._fail(broken)
            self._dispatch(broken.events)
        else:
            self._dispatch(events)

    async def _write(self, both: trio.CancelScope) -> None:
        while True:
            while data := self.connection.data_to_send(_WRITE_BYTES):
                self._receive(b"")  # our own packets may have ended streams
                for stream in self._streams.values():
                    stream.wake()  # there is room again
                self._writing = True
                try:
                    await self._transport.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
                    # What the peer sent before it went may still be there to be read.
                    self._lost = lost
                    both.deadline = trio.current_time() + _CLOSE_TIMEOUT_S
                    return
                self._writing = False
                self._sent.unpark_all()
            if self.connection.is_finished or self.failure is not None:
                both.cancel()
                return
            await self._work.wait()
            self._work = trio.Event()

    def _fail(self, reason: Exception) -> None:
        if self.failure is None:
            self.failure = reason
        self._wake_all()

    def _wake_all(self) -> None:
        self._work.set()
        self._changed.unpark_all()
        self._sent.unpark_all()
        for stream in (*self._streams.values(), *self._arrived):
            stream.wake()

    # Events.

    def _add(self, number: int, receive_credit: int) -> MultiplexedStream:
        stream = self._streams[number] = MultiplexedStream(self, number, receive_credit)
        return stream

    def _dispatch(self, events: list[Event]) -> None:
        for event in events:
            number = event.stream
            if number is None:
                self._take_global(event)
                continue
            if isinstance(event, StreamOpened):
                self._arrived.append(self._add(number, self.connection.config.creator_credit))
                self._changed.unpark_all()
                continue
            self._streams[number].take_event(event)
            if isinstance(event, StreamEnded):
                self._forget(number)
        if self.failure is None:
            self._check_buffers(events)

    def _take_global(self, event: Event) -> None:
        match event:
            case PongReceived():
                self._pongs += 1
            case CloseReceived():
                self._peer_creates = False
            case StopReadReceived():
                self._peer_grants = False
            case _:
                pass  # credit: whoever waits for it looks again
        self._changed.unpark_all()

    def _forget(self, number: int) -> None:
        """A stream is over; if the peer made it, it may make another."""
        del self._streams[number]
        is_theirs = number % 2 != self._role.parity
        if is_theirs and self.failure is None and not self.connection.has_stopped(None):
            self.connection.grant_streams(1)

    def _check_buffers(self, events: list[Event]) -> None:
        """Credit bounds what waits to be read; where it is infinite, this does."""
        for number in {event.stream for event in events if isinstance(event, DataReceived)}:
            stream = self._streams.get(number)
            if stream is not None and stream.overflows(self._unread_bytes_max):
                detail = f"stream {number}: over {self._unread_bytes_max} bytes unread"
                self._fail(RemoteProtocolError("bymux.md Credit", detail, stream=number))
