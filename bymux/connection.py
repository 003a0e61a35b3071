"""One endpoint of a bymux connection, without input and output.

It routes: `inbox` judges what comes, `outbox` orders what goes, `channel` holds what is known.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeGuard, TypeVar

from msgspec import Struct

from .channel import Channel
from .config import INFINITE, Config, Role
from .credit import CREDIT
from .errors import LocalProtocolError, RemoteProtocolError, Violation
from .events import Event
from .half import MAY_GRANT, MAY_WRITE, Half, Input, advance, check_may_ping
from .inbox import Inbox
from .outbox import BYTES_MAX_LEAST, Outbox
from .registry import CREATING, Registry

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_Call = Callable[Concatenate["Connection", _Arguments], _Answer]


def _command(call: _Call[_Arguments, _Answer]) -> _Call[_Arguments, _Answer]:
    """A rule broken in here was broken by our caller; and a broken connection does nothing more."""

    @wraps(call)
    def guarded(
        connection: "Connection", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Answer:
        connection._check_alive()  # noqa: SLF001 - a part of the class, which its methods need first
        try:
            return call(connection, *args, **kwargs)
        except Violation as broken:
            raise LocalProtocolError(
                broken.rule, broken.detail, stream=broken.stream, value=broken.value
            ) from None

    return guarded


def is_kept(data: bytes | bytearray | memoryview) -> TypeGuard[bytes | memoryview]:
    """Whether nobody can change it, so that it needs no copy to be sent later."""
    if type(data) is bytes:
        return True
    if type(data) is not memoryview or type(data.obj) is not bytes:
        return False
    return data.ndim == data.itemsize == 1 and data.c_contiguous


class Statistics(Struct, frozen=True):
    """What a connection has done and holds; for logs and metrics."""

    bytes_received: int
    bytes_sent: int
    packets_received: int
    packets_sent: int
    streams: int
    """Active streams."""
    bytes_queued: int
    """Queued by `send` and not yet sent, on all streams."""
    pongs_owed: int
    idle_work: float
    """How full the bucket of idle work is, in packets."""


class Connection:
    """One side of a bymux connection: bytes and commands in, bytes and events out.

    Feed it with `receive_data`, and whenever `wants_to_send` write what `data_to_send` returns, in
    order. Never let the first wait for the second: what is owed to the peer takes no room here.

    Events are handled in order, but the state is already that after the last of them: a stream that
    one event opens may be over by the end of the list (`is_active`).

    All commands raise LocalProtocolError for what the rules forbid, with the state unchanged, and
    for everything once `receive_data` has raised.
    """

    def __init__(self, role: Role, config: Config | None = None) -> None:
        self.role = role
        self.config = config if config is not None else Config()
        self._registry = Registry(role, self.config)
        self._outbox = Outbox(self._registry, self.config)
        self._inbox = Inbox(self._registry, self._outbox, self.config)
        self._failure: RemoteProtocolError | None = None
        self._bytes_received = 0
        self._bytes_sent = 0

    def receive_data(
        self,
        data: bytes | bytearray | memoryview,
        now: float = 0.0,
        packets_max: int | None = None,
    ) -> list[Event]:
        """Takes the next bytes from the peer, however they were cut.

        `packets_max`: after so many packets the rest is left for another call (`has_unread`), so
        that whoever serves many peers can let others have their turn: small packets are work for
        every few bytes, and a peer may send nothing else.

        `bytes` are cheapest: then a body is copied once, or not at all if it is large.
        `now` is in seconds, of any clock that never goes back. Data can be empty: then only
        streams that our own packets have ended since are reported.

        Raises RemoteProtocolError if the peer breaks a rule or a limit. The events before that are
        the error's `events`; every further call raises the same, without events.
        """
        if self._failure is not None:
            raise self._failed()
        inbox = self._inbox
        inbox.idle.pass_time(now)
        inbox.report_ended()
        self._bytes_received += len(data)
        try:
            inbox.receive(data if type(data) is bytes else bytes(data), packets_max)
        except Violation as broken:
            self._failure = RemoteProtocolError(
                broken.rule, broken.detail, stream=broken.stream, value=broken.value
            )
            error = self._failed()
            error.events = inbox.take_events()
            raise error from None
        return inbox.take_events()

    @property
    def has_unread(self) -> bool:
        """Whether some of the bytes wait for another call of `receive_data`."""
        return self._inbox.has_unread and self._failure is None

    def take_small_writes(self) -> int:
        """How many Writes of a few bytes, and not of all the credit, have come since the last call.

        They are legal, and whether they are of any use only the application can tell.
        """
        count, self._inbox.small_writes = self._inbox.small_writes, 0
        return count

    @property
    def wants_to_send(self) -> bool:
        """Whether `data_to_send` would return anything."""
        return self._outbox.has_work and self._failure is None

    def data_to_send(self, bytes_max: int = 256 * 1024) -> bytes:
        """The next bytes for the peer: whole packets, b"" if there are none.

        `bytes_max` is at least 18, so that every packet fits. Nothing is returned after
        `receive_data` has raised.
        """
        if self._failure is not None:
            return b""
        if bytes_max < BYTES_MAX_LEAST:
            detail = f"room for {bytes_max} bytes, {BYTES_MAX_LEAST} are the least"
            raise LocalProtocolError("bymux.md Packets", detail, value=bytes_max)
        data = self._outbox.collect(bytes_max)
        self._bytes_sent += len(data)
        return data

    # Data.

    def send(self, stream: int, data: bytes | bytearray | memoryview) -> None:
        """Queues data, at most `sendable(stream)` bytes. Bytes objects, and views of them, are not
        copied."""
        self.send_all(stream, (data,))

    @_command
    def send_all(self, stream: int, pieces: Iterable[bytes | bytearray | memoryview]) -> int:
        """As `send`, of what these pieces make together; of too many bytes none is queued.

        Returns how many there were.
        """
        target = self._registry[stream]
        if not MAY_WRITE[target.ours]:
            advance(target.ours, Input.WRITE, stream)
        kept = [piece if is_kept(piece) else bytes(piece) for piece in pieces]
        kept = [piece for piece in kept if piece]
        count = sum(map(len, kept))
        if count > target.send.left:
            detail = f"stream {stream}: {count} bytes with a credit of {target.send.left}"
            raise Violation(CREDIT, detail, stream=stream, value=count)
        if count:
            self._outbox.queue(target, kept, count)
        return count

    def sendable(self, stream: int) -> int:
        """How many bytes `send` would take now: credit minus what is queued, or INFINITE.

        0 for a stream that is not active, or that we have closed.
        """
        target = self._registry.streams.get(stream)
        return target.send.left if target is not None and MAY_WRITE[target.ours] else 0

    def queued(self, stream: int) -> int:
        """How many bytes are queued and not sent yet; 0 for a stream that is not active."""
        target = self._registry.streams.get(stream)
        return target.send.queued if target is not None else 0

    def owes(self, stream: int) -> bool:
        """Whether data, Close or StopRead of a stream is still to be sent."""
        target = self._registry.streams.get(stream)
        return target is not None and (
            target.close_owed or target.stop_owed or bool(target.send.queued)
        )

    @_command
    def consumed(self, stream: int, count: int) -> None:
        """The application is done with `count` received bytes: their credit is restored.

        When, bymux.md Credit says. Nothing is restored, and that is no misuse, on a stream that has
        ended or that one side has stopped reading or closed.
        """
        target = self._registry.streams.get(stream)
        if target is None:
            return
        receive = target.receive
        receive.consume(count, stream)
        if not (MAY_GRANT[target.ours] and MAY_WRITE[target.theirs]):
            receive.restorable = 0
        elif receive.restore():
            self._outbox.hurry(target)

    @_command
    def grant(self, stream: int, count: int) -> None:
        """Lets the peer write `count` bytes more, or INFINITE without end.

        With what was granted before and is not used up (credit that `consumed` restores is not),
        at most 2^64 - 2. Infinite credit cannot be taken back; making it infinite again is nothing.
        """
        target = self._registry[stream]
        if not MAY_GRANT[target.ours]:
            advance(target.ours, Input.CREDIT, stream)
        if target.receive.grant(count, stream):
            self._outbox.hurry(target)

    # Pings.

    @_command
    def ping(self, stream: int | None = None) -> None:
        """Asks the peer for a Pong (PongReceived), of a stream or (None) global.

        An honest peer answers each, but ends the connection over a flood: a few at a time.
        """
        channel = self._registry.creation if stream is None else self._registry[stream]
        if not channel.ping_always:
            check_may_ping(channel.ours, "Ping", stream)
        channel.pings_due += 1
        self._outbox.hurry(channel)

    # Closing.

    @_command
    def close(self, stream: int) -> None:
        """No more is written: Close goes out behind what is queued."""
        self._close(self._registry[stream])

    @_command
    def stop_read(self, stream: int) -> None:
        """No more credit is granted. What the peer sends with the credit it has still arrives."""
        self._stop_read(self._registry[stream])

    # Creating streams.

    @_command
    def open_stream(self) -> int:
        """Creates a stream, for one unit of global credit, and returns its id."""
        creation = self._registry.creation
        advance(creation.ours, Input.WRITE, None)
        if creation.send_credit == 0:
            raise Violation(CREATING, "global: no credit for another stream", value=0)
        creation.send_credit -= 1
        number = self._registry.create_ours().number
        creation.created.append(number)
        self._outbox.hurry(creation)
        return number

    @property
    def streams_openable(self) -> int:
        """How many streams `open_stream` could create now."""
        creation = self._registry.creation
        return creation.send_credit if MAY_WRITE[creation.ours] else 0

    @_command
    def grant_streams(self, count: int) -> None:
        """Lets the peer create `count` streams more; in sum at most 2^64 - 1."""
        creation = self._registry.creation
        advance(creation.ours, Input.CREDIT, None)
        held = creation.receive_credit + creation.credit_due
        if not 1 <= count <= INFINITE - held:
            detail = f"global: grant of {count} on top of {held}: 1 to 2^64 - 1 in sum"
            raise Violation(CREDIT, detail, value=count)
        creation.credit_due += count
        self._outbox.hurry(creation)

    @_command
    def close_creation(self) -> None:
        """We create no more streams: the global Close."""
        self._close(self._registry.creation)

    @_command
    def stop_creation(self) -> None:
        """We grant no more creation of streams: the global StopRead."""
        self._stop_read(self._registry.creation)

    # State.

    def is_active(self, stream: int) -> bool:
        """Whether a stream exists and not both sides have sent Close and StopRead yet."""
        return stream in self._registry.streams

    def has_closed(self, stream: int | None) -> bool:
        """Whether we write no more on a stream, or (None) create no more: `close` is misuse then.

        So it is after `close`, after the peer's StopRead, which is answered by Close, and for a
        stream that is not active.
        """
        channel = self._find(stream)
        return channel is None or not MAY_WRITE[channel.ours]

    def has_stopped(self, stream: int | None) -> bool:
        """Whether we grant no more credit: `stop_read` and `grant` are misuse then.

        So it is after `stop_read`, after the peer's Close if it is answered of itself, and for a
        stream that is not active.
        """
        channel = self._find(stream)
        return channel is None or not MAY_GRANT[channel.ours]

    @property
    def active_streams(self) -> tuple[int, ...]:
        """The ids of the active streams."""
        return tuple(self._registry.streams)

    @property
    def is_finished(self) -> bool:
        """Whether no stream is active and none can be created: the good end of a connection."""
        creation = self._registry.creation
        return not self._registry.streams and creation.theirs is Half.ENDED and creation.over_for_us

    def statistics(self) -> Statistics:
        """A snapshot of counters."""
        streams = self._registry.streams.values()
        pongs_owed = self._registry.creation.pongs_owed + sum(each.pongs_owed for each in streams)
        return Statistics(
            bytes_received=self._bytes_received,
            bytes_sent=self._bytes_sent,
            packets_received=self._inbox.packets,
            packets_sent=self._outbox.packets,
            streams=len(streams),
            bytes_queued=sum(each.send.queued for each in streams),
            pongs_owed=pongs_owed,
            idle_work=self._inbox.idle.used,
        )

    def _find(self, stream: int | None) -> Channel | None:
        return self._registry.creation if stream is None else self._registry.streams.get(stream)

    def _close(self, channel: Channel) -> None:
        channel.ours = advance(channel.ours, Input.CLOSE, channel.id)
        self._outbox.close(channel)

    def _stop_read(self, channel: Channel) -> None:
        channel.ours = advance(channel.ours, Input.STOP_READ, channel.id)
        self._outbox.stop_read(channel)

    def _check_alive(self) -> None:
        if self._failure is not None:
            failure = self._failure
            detail = f"the connection has ended: {failure}"
            raise LocalProtocolError(failure.rule, detail, stream=failure.stream)

    def _failed(self) -> RemoteProtocolError:
        """The peer's violation as a new error, since each that is raised has events of its own."""
        failure = self._failure
        assert failure is not None
        return RemoteProtocolError(
            failure.rule, failure.detail, stream=failure.stream, value=failure.value
        )
