"""A whole session over one byte stream: setup, then bymux, then the engine (point2point.md 1).

Sans-io like everything it is made of: bytes, events and the time go in; bytes, commands and notices
come out.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from itertools import groupby
from typing import Concatenate, ParamSpec

import bymux
from bymux import CloseReceived, Connection, DataReceived, InitialStream, PongReceived, Role
from peer.data.link_speed import Pull
from peer.planner.sourcing import Claim, Readable, claim_all
from peer.protocol.buckets import Buckets
from peer.protocol.commands import Command
from peer.protocol.config import HEADERS_BYTES_MAX, WRITE_BYTES_MAX, SessionConfig
from peer.protocol.errors import RemoteViolation, SessionTimeout
from peer.protocol.events import ArrivalChanged, Event, LogChanged
from peer.protocol.notices import EntriesReceived, EntriesSent, Notice, PayloadsReceived, SetUp
from peer.protocol.table import opening
from peer.protocol.tracing import Tracer
from wire import LogKey, NeedMore, Negotiated, decode_setup, encode_setup, negotiate

from .engine import Engine
from .figures import Allowances, SessionStatistics
from .goodbye import PIECE_BYTES, Goodbye
from .pings import Ping, Pings

CONTROL = 0
DATA = 1

_SETUP_BYTES_MAX = 19
"""One byte and two VarU64."""

_QUEUED_BYTES_MIN = 64 * 1024
"""Data handed to bymux ahead of the transport, so that a write is never short of it."""

P = ParamSpec("P")
_Input = Callable[Concatenate["Session", P], None]


def _is_data(event: bymux.Event) -> bool:
    return isinstance(event, DataReceived) and event.stream == DATA


def _final(method: "_Input[P]") -> "_Input[P]":
    """What raises has ended the session: from then on it takes nothing in and has nothing to say.

    Whoever was about to write, to tell it something or to close it, and has not heard of that yet,
    may go on without harm; a half of bymux that has failed would refuse.
    """

    @wraps(method)
    def guarded(self: "Session", /, *args: P.args, **options: P.kwargs) -> None:
        if self._lost:
            return
        try:
            method(self, *args, **options)
        except BaseException:
            self._lost = True
            raise

    return guarded


class Session:
    """One side of a connection between two peers.

    After every call the host takes `commands` and `notices`, and writes `bytes_to_send` until that
    is empty. Whatever raises RemoteViolation or SessionTimeout has ended the session, and nothing
    but `receive_eof` has an effect any more: the host calls that, carries out the commands that are
    left, and closes the transport. `claim` says whether a log may be fetched here, `tracer` makes a
    record of every message. `buckets` are shared with others; a session alone has its own.
    """

    def __init__(
        self,
        role: Role,
        config: SessionConfig,
        now: float,
        tracer: Tracer | None = None,
        claim: Claim = claim_all,
        buckets: Buckets | None = None,
    ) -> None:
        self._role = role
        self._tracer = tracer
        self._claim = claim
        self._buckets = buckets
        self._config = config
        self._now = now
        self._out = bytearray(encode_setup(config.setup))
        if tracer is not None:
            tracer.setup_sent(config.setup)
        self._setup_bytes = bytearray()
        self._engine: Engine | None = None
        self._waiting: list[Event] = []
        self._changed: dict[LogKey, LogChanged] = {}
        self._notices: list[Notice] = []
        self._mux = Connection(
            role,
            bymux.Config(
                initial_streams=(
                    InitialStream(CONTROL, bymux.INFINITE, bymux.INFINITE),
                    InitialStream(DATA, 0, 0),
                ),
                streams_creatable=False,
                answer_close=False,
                write_bytes_max=WRITE_BYTES_MAX,
            ),
        )
        self._mux.grant(DATA, config.data_credit_bytes)
        # Right behind the setup: that a side waits for the other one's takes a round trip.
        self._mux.send(CONTROL, opening(config, tracer))
        self._out += self._mux.data_to_send()
        self._started_at = self._heard_at = now
        self._pinged_at: float | None = None
        self._pings = Pings()
        self._goodbye: Goodbye | None = None
        self._peer_closed: set[int] = set()
        self._lost = False
        self._bytes_received = 0
        self._bytes_sent = 0
        self._data_bytes = 0
        self._data_received = 0
        self._data_released = 0
        self._granted_first = 0
        self._entries = [0, 0]
        self._payload_bytes = [0, 0]

    # State

    @property
    def established(self) -> bool:
        """Whether the other side's setup has been read."""
        return self._engine is not None

    @property
    def heard_at(self) -> float:
        """When anything came last, on the caller's clock; at first when the session began."""
        return self._heard_at

    @property
    def closing(self) -> bool:
        """Whether either side has begun to end the session in good order."""
        return self._goodbye is not None or bool(self._peer_closed)

    @property
    def closed(self) -> bool:
        """Whether the session has ended in good order, or we have waited long enough for it."""
        if self._lost or self.both_closed:
            return True
        if self._goodbye is None:
            return False
        return self._engine is None or self._now >= self._goodbye.until_s

    @property
    def both_closed(self) -> bool:
        """Whether the other side has ended it too, so that what it was sent is stored."""
        return self._mux.is_finished  # should a pong be owed, nobody waits for it

    def statistics(self) -> SessionStatistics:
        saved = (0, 0) if self._engine is None else self._engine.saved_bytes
        return SessionStatistics(
            bytes_received=self._bytes_received,
            bytes_sent=self._bytes_sent,
            entries_received=self._entries[0],
            entries_sent=self._entries[1],
            payload_bytes_received=self._payload_bytes[0],
            payload_bytes_sent=self._payload_bytes[1],
            saved_bytes_received=saved[0],
            saved_bytes_sent=saved[1],
            requests=0 if self._engine is None else self._engine.requests,
        )

    @property
    def reads(self) -> Readable | None:
        """What the book of sources reads; None before the setup."""
        return None if self._engine is None else self._engine.reads

    def allowances(self) -> Allowances:
        left = self._mux.sendable(DATA)
        return Allowances(
            proposals_left=0 if self._engine is None else self._engine.request_credit,
            incoming_bytes=self._data_received - self._data_released,
            incoming_bytes_max=self._config.data_credit_bytes,
            outgoing_bytes=self._data_bytes - self._delivered(),
            outgoing_bytes_max=None if left == bymux.INFINITE else self._granted_first,
            outgoing_waits=bool(self._granted_first) and left == 0 and not self.closing,
        )

    # What comes in

    @_final
    def receive_bytes(self, data: bytes, now: float, packets_max: int | None = None) -> None:
        """Bytes from the transport. Raises RemoteViolation.

        `packets_max`: how many bymux packets are read in this turn, if not what the config says.
        """
        self._at(now)
        self._heard_at = now
        if self._pinged_at is not None and self._engine is not None:
            # The next ping is due sooner than the end for want of an answer was.
            self._engine.stirs.stir()
        self._pinged_at = None
        self._bytes_received += len(data)
        if self._engine is None:
            self._setup_bytes += data
            data = self._read_setup()
            if self._engine is None:
                return
        self._take(data, packets_max)

    @property
    def has_unread(self) -> bool:
        """Whether some of what came waits for `read_on`."""
        return self._mux.has_unread and not self._lost

    @_final
    def read_on(self, now: float, packets_max: int | None = None) -> None:
        """Goes on with what came, a turn of it. Raises RemoteViolation."""
        self._at(now)
        self._take(b"", packets_max)

    def _take(self, data: bytes, packets_max: int | None) -> None:
        """A turn of what came. A few bytes can be a packet, and each is work whatever it is for:
        whoever runs many sessions goes on only when the others have had their turn."""
        if self._engine is None:
            return
        packets_max = packets_max or self._config.turn_packets
        try:
            events = self._mux.receive_data(data, self._now, packets_max)
        except bymux.RemoteProtocolError as error:
            self._route_all(error.events)
            raise RemoteViolation(error.rule, error.detail) from None
        self._route_all(events)
        self._engine.note_small_writes(self._mux.take_small_writes())
        self._after_input()

    def receive_eof(self, now: float) -> None:
        """The transport is gone; `commands` then holds what is to be kept."""
        self._at(now)
        self._lost = True
        if self._engine is not None:
            self._engine.ended()

    def handle(self, event: Event, now: float) -> None:
        """A reply to a command, or something that happened on this host.

        Raises RemoteViolation if it proves that the other side broke a rule.
        """
        self.handle_all((event,), now)

    @_final
    def handle_all(self, events: Sequence[Event], now: float) -> None:
        """Several such events at once, in their order: what follows is thought about once.

        Raises RemoteViolation as `handle` does.
        """
        self._at(now)
        if self._engine is None:
            for event in events:
                self._wait(event)
        else:
            self._engine.handle_all(events)
            self._after_input()

    def _wait(self, event: Event) -> None:
        """The setup is not there yet, and nothing has been looked at: the last news of a log do."""
        if isinstance(event, LogChanged):
            self._changed[event.log] = event
        elif not isinstance(event, ArrivalChanged):
            self._waiting.append(event)

    def take_stirred(self) -> bool:
        """Whether there may be something to send since the last call, or due sooner (stirs.py)."""
        stirred = self._engine is None or self._engine.stirs.take()
        return stirred or self._mux.wants_to_send or self._goodbye is not None

    @property
    def may_be_due(self) -> bool:
        """Whether something may be due sooner than `next_deadline` said when it was last asked."""
        return self._engine is None or self._goodbye is not None or self._engine.stirs.may_be_due

    @_final
    def advance(self, now: float) -> None:
        """Time has passed. Raises SessionTimeout, or RemoteViolation as above."""
        self._at(now)
        config = self._config
        # Compared as `next_deadline` adds: a difference may be rounded to just below the limit.
        if self._engine is None:
            if now >= self._started_at + config.setup_timeout_s:
                raise SessionTimeout(f"setup not finished after {config.setup_timeout_s:.0f} s")
            return
        if now >= self._heard_at + config.idle_timeout_s:
            raise SessionTimeout(f"no sign of life for {config.idle_timeout_s:.0f} s")
        if self._pinged_at is None and now >= self._heard_at + config.ping_after_s:
            self._ping(Ping.ALIVE)
            self._pinged_at = now
        self._engine.advance()
        self._after_input()

    def next_deadline(self) -> float | None:
        """When `advance` has to be called although nothing came; None: not at all."""
        config = self._config
        if self._engine is None:
            return self._started_at + config.setup_timeout_s
        after = config.ping_after_s if self._pinged_at is None else config.idle_timeout_s
        times = [self._heard_at + after]
        if self._goodbye is not None and not self.closed:
            times.append(self._goodbye.until_s)
        engine_deadline = self._engine.next_deadline()
        if engine_deadline is not None:
            times.append(engine_deadline)
        return min(times)

    @_final
    def close(self, now: float) -> None:
        """End the session in good order; `closed` tells when that is done."""
        self._at(now)
        if self._goodbye is not None:
            return
        self._hand_over()
        self._goodbye = Goodbye(
            self._config,
            now,
            round_trip_s=self._pings.round_trip_s,
            queued=self._queued,
            stores=self._data_bytes > self._delivered(),
        )
        if self._engine is not None:
            for stream in (CONTROL, DATA):
                if self._mux.is_active(stream):
                    self._close_stream(stream)

    def transport_holds(self, count: int, now: float) -> None:
        """While `closing`: so many bytes that the transport took have not arrived over there."""
        if self._goodbye is not None:
            self._goodbye.transport_holds(count, now)

    # What goes out

    def commands(self) -> list[Command]:
        """What the host has to do; taken once."""
        return [] if self._engine is None else self._engine.commands()

    def notices(self) -> list[Notice]:
        """What observers may want to know; taken once."""
        taken = self._notices
        self._notices = []
        if self._engine is not None:
            taken.extend(self._engine.notices())
        for notice in taken:
            self._count(notice)
        return taken

    def bytes_to_send(
        self, bytes_max: int, now: float | None = None, *, waited_s: float = 0.0
    ) -> bytes:
        """The next bytes for the transport, about `bytes_max` at most; b"" if there are none.

        What is compressed depends on `now`, which is needed if time has passed since the last call
        of anything, and on `waited_s`, how long the transport took to take the bytes before.
        """
        if now is not None:
            self._at(now)
        if self._lost:
            return b""
        if self._goodbye is not None:
            self._goodbye.queue_is(self._queued, self._now)
            bytes_max = min(bytes_max, PIECE_BYTES)
        if self._out:
            data = bytes(self._out)
            self._out.clear()
        elif self._engine is None:
            return b""
        else:
            self._pull(bytes_max, waited_s)
            data = self._mux.data_to_send(bytes_max + HEADERS_BYTES_MAX)
        self._bytes_sent += len(data)
        return data

    @_final
    def _pull(self, bytes_max: int, waited_s: float) -> None:
        """Has all that there is to say handed to bymux."""
        engine = self._engine
        is_quiet = self._goodbye is None and not self._mux.wants_to_send
        if is_quiet and engine is not None and engine.awaits_payload:
            # Behind each chunk of a large payload, and to look for all else took as long as it.
            engine.data_pulled(Pull(0, self._delivered(), dry=True, waited_s=waited_s))
            return
        self._hand_over()
        self._fill(bytes_max, waited_s)
        if engine is not None:
            # Behind control messages a ping may be due.
            engine.stirs.is_to_pull = bool(self._mux.queued(CONTROL))
        if not self._queued:
            # Else this is called again, and it is dear: what pings wait for half the engine knows.
            self._hand_over()
        if self._goodbye is not None and not self._goodbye.is_asked:
            left = [stream for stream in (CONTROL, DATA) if self._mux.is_active(stream)]
            if left and not any(map(self._mux.owes, left)):
                # Behind it: a ping passes data.
                self._goodbye.is_asked = True
                self._ping(Ping.GOODBYE)

    def _pass_control(self) -> None:
        """Control bytes have infinite credit and go to bymux at once."""
        if self._engine is None:
            return
        control = self._engine.control_to_send()
        if control and self._mux.sendable(CONTROL):
            self._mux.send(CONTROL, control)

    def _hand_over(self) -> None:
        """The same, and what comes behind it."""
        self._pass_control()
        if self._engine is None:
            return
        self._engine.unread(self._mux.queued(CONTROL))
        if self._mux.queued(CONTROL):
            # A ping would pass it, and its answer say nothing of it.
            return
        if Ping.RECEIPT not in self._pings and self._engine.wants_receipt:
            self._engine.receipt_asked()
            self._ping(Ping.RECEIPT)
        left = Ping.SYNC not in self._pings and not self._mux.queued(DATA)
        if left and self._engine.wants_pong:
            self._engine.ping_sent()
            self._ping(Ping.SYNC)

    def _ping(self, kind: Ping) -> None:
        self._pings.made(kind, self._now)
        self._mux.ping(None)

    @property
    def _queued(self) -> int:
        """Bytes of both channels that the transport has not been given."""
        return self._mux.queued(CONTROL) + self._mux.queued(DATA)

    def _fill(self, bytes_max: int, waited_s: float) -> None:
        """Pull data from the engine as far as the credit goes."""
        if self._engine is None:
            return
        before, dry, blocked = self._data_bytes, False, False
        wanted = max(bytes_max, _QUEUED_BYTES_MIN)
        while self._mux.queued(DATA) < wanted:
            room = wanted + HEADERS_BYTES_MAX - self._mux.queued(DATA)
            room = min(self._mux.sendable(DATA), room)
            if room <= 0:
                blocked = True
                break
            pieces = self._engine.data_to_send(room)
            self._pass_control()
            if dry := not pieces:
                break
            self._data_bytes += self._mux.send_all(DATA, pieces)
        taken, delivered = self._data_bytes - before, self._delivered()
        self._engine.data_pulled(Pull(taken, delivered, dry, blocked, waited_s))

    def _delivered(self) -> int:
        """Data that the other side is done with, as far as its credit tells."""
        left = self._mux.sendable(DATA)
        if left == bymux.INFINITE:
            return self._data_bytes - self._mux.queued(DATA)
        granted = left + self._data_bytes
        if not self._granted_first:
            self._granted_first = granted
        return granted - self._granted_first

    # Inside

    def _at(self, now: float) -> None:
        self._now = now
        if self._engine is not None:
            self._engine.now = now

    def _read_setup(self) -> bytes:
        """Read the other side's setup; returns the bytes behind it."""
        try:
            theirs, used = decode_setup(bytes(self._setup_bytes[:_SETUP_BYTES_MAX]))
        except NeedMore:
            return b""
        rest = bytes(self._setup_bytes[used:])
        self._setup_bytes.clear()
        negotiated = negotiate(self._config.setup, theirs)
        if self._tracer is not None:
            self._tracer.setup_received(theirs, negotiated)
        self._start(negotiated)
        return rest

    def _start(self, negotiated: Negotiated) -> None:
        self._engine = Engine(
            negotiated,
            self._config,
            proactive=self._role is Role.PROACTIVE,
            now=self._now,
            tracer=self._tracer,
            claim=self._claim,
            buckets=self._buckets,
            opened=True,
        )
        self._notices.append(
            SetUp(
                negotiated.send_greedily,
                negotiated.receive_greedily,
                negotiated.compression_window,
                negotiated.decompression_window,
            )
        )
        waiting = [*self._waiting, *self._changed.values()]
        self._waiting.clear()
        self._changed.clear()
        self._engine.handle_all(waiting)

    def _route_all(self, events: list[bymux.Event]) -> None:
        """Neighbouring pieces of data go to the engine at once: it works on what it is given."""
        if self._engine is None:
            raise AssertionError("bymux begins behind the setup")
        for is_data, neighbours in groupby(events, _is_data):
            if is_data:
                pieces = [event.data for event in neighbours if isinstance(event, DataReceived)]
                self._data_received += sum(map(len, pieces))
                self._note_step()
                self._engine.receive_data(*pieces)
                continue
            self._engine.stirs.stir()
            for event in neighbours:
                self._route(self._engine, event)

    def _route(self, engine: Engine, event: bymux.Event) -> None:
        match event:
            case DataReceived(data=data):
                engine.receive_control(data)
            case CloseReceived(stream=int(stream)):
                self._peer_closed.add(stream)
                self._note_step()
                if stream == DATA:
                    engine.data_ended()
                else:
                    engine.control_ended()
            case PongReceived():
                # bymux passes on no more pongs than there were pings.
                self._pong_came(self._pings.answered(self._now))
            case _:
                pass

    def _pong_came(self, kind: Ping) -> None:
        if self._engine is not None and kind is Ping.SYNC:
            self._engine.pong_arrived()
        elif self._engine is not None and kind is Ping.RECEIPT:
            self._engine.receipt_came()
        elif self._goodbye is not None and kind is Ping.GOODBYE:
            self._goodbye.was_read(self._now)

    def _after_input(self) -> None:
        engine = self._engine
        if engine is None:
            return
        released = engine.data_credit_to_release()
        if released:
            self._data_released += released
            self._mux.consumed(DATA, released)
        if DATA in self._peer_closed:
            self._answer_close()

    def _answer_close(self) -> None:
        """Answer a Close once everything that came is stored (point2point.md 1)."""
        if self._engine is None or not self._engine.drained:
            return
        self._hand_over()
        for stream in (CONTROL, DATA):
            if self._mux.is_active(stream):
                self._close_stream(stream)

    def _note_step(self) -> None:
        if self._goodbye is not None:
            self._goodbye.step(self._now)

    def _close_stream(self, stream: int) -> None:
        # Either may have been said already: bymux answers a StopRead with Close by itself.
        for say in (self._mux.close, self._mux.stop_read):
            with suppress(bymux.LocalProtocolError):
                say(stream)

    def _count(self, notice: Notice) -> None:
        match notice:
            case EntriesReceived():
                self._entries[0] += notice.entries
                self._payload_bytes[0] += notice.payload_bytes
            case PayloadsReceived():
                self._payload_bytes[0] += notice.payload_bytes
            case EntriesSent():
                self._entries[1] += notice.entries
                self._payload_bytes[1] += notice.payload_bytes
            case _:
                pass
