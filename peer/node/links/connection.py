"""One session over one stream: a task that reads, one that writes, one for timers.

Reading never waits for writing: what comes in is handed to the session at once, and what the
session has to say is pulled from it whenever the stream takes more. Everything that ends the
connection, bugs included, becomes an `Ending`; no other connection notices.
"""

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import trio
from msgspec import Struct

from logstore import StoreError
from peer import (
    Event,
    Ingested,
    IngestFailed,
    InterestsChanged,
    LogChanged,
    Notice,
    PayloadFinished,
    Refusal,
    RemoteViolation,
    Session,
    SessionTimeout,
    StorageFailed,
    Verdict,
)
from peer.node.doors.trouble import HandshakeError
from peer.node.fairness import Account, Seat, Turns
from peer.node.host.port import Port
from peer.node.host.store_host import StoreHost

from .parting import linger, under_way
from .sniffing import DENIED, TLS, Sniffer

if TYPE_CHECKING:
    from wire import LogKey

RECEIVE_BYTES: Final = 257 * 1024
"""Room for a turn of the other side with its headers: the few bytes that a smaller read leaves of
it would be one of their own."""
SEND_BYTES: Final = 256 * 1024
CLOSE_TIMEOUT_S: Final = 2.0
LINGER_S: Final = 1.0
"""After a good end: how long the other side's end of stream is waited for."""


class EndKind(StrEnum):
    """How a connection ended."""

    CLOSED = "closed"
    """In good order, by either side."""
    LOST = "lost"
    VIOLATION = "violation"
    TIMEOUT = "timeout"
    NOT_A_PEER = "not a peer"
    STORAGE = "storage"
    """The store here cannot be read."""
    INTERNAL = "internal error"
    UNREACHABLE = "unreachable"
    """Nobody answers."""
    DENIED = "denied"
    """The other side has not allowed this node, or this node who answered."""
    BLOCKED = "blocked"
    WRONG_PEER = "wrong peer"
    """Somebody answers who is not whom it was for."""
    CERTIFICATE = "certificate"
    NO_TLS = "no tls"
    WANTS_TLS = "wants tls"
    TLS = "tls"
    """It is spoken at both ends, and nothing came of it."""
    PAUSED = "paused"
    """Nobody was called, as `pause` said."""
    REMOVED = "removed"
    """The other side is allowed no longer."""


_TURNED_AWAY: Final = frozenset((EndKind.NOT_A_PEER, EndKind.WANTS_TLS))
"""What was said to them tells them why."""
_CLOSED_ALONE = "closed, without waiting for the other side any longer"


class Ending(Struct, frozen=True):
    """How and why a connection ended; `reason` is one line for people."""

    kind: EndKind
    reason: str


class _Failures(Struct):
    """Failures to keep what came, since something was kept; and who is told of each."""

    most: int | None
    tell: Callable[[str], None]
    since_kept: int = 0

    not_kept: str | None = None
    """Why something that came could not be kept, of several the last; it may be here now."""
    not_given: str | None = None
    """Why something that is held could not be read."""

    @property
    def are_too_many(self) -> bool:
        return self.since_kept == self.most


class Inbox:
    """What the host has told and the session was not: it had not its turn.

    Of news of one log the latest are kept, at the place of the latest. So it is bounded by what the
    session has asked for and the logs that there are, however long the session rests.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[LogKey | int, Event] = OrderedDict()
        self._came = 0
        self.arrived = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, events: Iterable[Event]) -> None:
        """Keeps events behind those that are here."""
        for event in events:
            self._came += 1
            place = event.log if isinstance(event, LogChanged) else self._came
            self._events.pop(place, None)
            self._events[place] = event

    def take(self, most: int | None) -> list[Event]:
        """The first ones, in their order."""
        count = len(self._events) if most is None else min(most, len(self._events))
        return [self._events.popitem(last=False)[1] for _ in range(count)]


class Connection:
    """Runs a session over a stream.

    `source` names the other side in the store. `noticed` is called with the notices of the session,
    those of one moment at a time, and that moment. `interests` is what the session is told first.
    `send_bytes`: how much is handed to the stream at once, behind which what is urgent has to wait.
    `failures_max`: after so many failures to keep what came, with nothing kept in between, the
    session is ended in good order. `failed` is called with the reason of each. `peer_id`: what the
    other side has proved over TLS, where nothing but a setup or `denied` can be the first that it
    says. `seat`: its turns among all connections of a node.
    """

    def __init__(
        self,
        session: Session,
        stream: trio.abc.Stream,
        host: StoreHost,
        *,
        source: str,
        interests: InterestsChanged,
        noticed: Callable[[Sequence[Notice], float], None],
        send_bytes: int = SEND_BYTES,
        failures_max: int | None = None,
        failed: Callable[[str], None] = lambda _: None,
        peer_id: bytes | None = None,
        seat: Seat | None = None,
    ) -> None:
        self.session = session
        self._peer_id = peer_id
        self._seat = seat or Turns().seat(Account())
        self._inbox = Inbox()
        self._failures = _Failures(failures_max, failed)
        self._send_bytes = send_bytes
        self._stream = stream
        self._host = host
        self._source = source
        self._first = interests
        self._interests = interests.interests
        """What the session was told last that is wanted."""
        self._noticed = noticed
        self._sniffer = Sniffer()
        self._port: Port | None = None
        self._scope = trio.CancelScope()
        self._lingering = trio.CancelScope()
        self._timer = trio.CancelScope()
        self._writer = trio.lowlevel.ParkingLot()
        self._reading_ended = trio.Event()
        self._ending: Ending | None = None

    @property
    def not_kept(self) -> str | None:
        """Why something that came could not be kept, of several the last; it may be here now."""
        return self._failures.not_kept

    @property
    def not_given(self) -> str | None:
        """Why something that is held could not be read, of several the last."""
        return self._failures.not_given

    async def run(self) -> Ending:
        """Runs until the connection has ended and the stream is closed."""
        giver = self._peer_id or b""
        self._port = self._host.open_port(
            self._source, self._deliver, self._fail, giver, self._seat.account
        )
        try:
            self._deliver((self._first,))
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guard, self._read)
                    nursery.start_soon(self._guard, self._write)
                    nursery.start_soon(self._guard, self._keep_time)
                    nursery.start_soon(self._guard, self._handle)
        finally:
            self._leave(self._port)
            try:
                if self._ending is not None and self._ending.kind in _TURNED_AWAY:
                    with self._lingering:
                        await linger(self._stream)
            finally:
                await close_stream(self._stream)
        if self._ending is None and self.session.closed:
            return Ending(EndKind.CLOSED, _CLOSED_ALONE)
        return self._ending or Ending(EndKind.LOST, "ended by us")

    def tell(self, *events: Event) -> None:
        """Hands local events to the session."""
        if self._port is not None:
            self._port.deliver(*events)

    def close(self) -> None:
        """Begins to end the session in good order; it takes 5 s at most, and a moment where nobody
        answers. Whoever is turned away already is waited for no longer."""
        self._lingering.cancel()
        if self._ending is None:
            self.session.close(trio.current_time())
            self._turn()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._end(EndKind.LOST, "ended by us, without waiting for the other side any longer")

    # Tasks

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Turns whatever ends a task into the ending of the connection."""
        try:
            await task()
        except Exception as error:  # noqa: BLE001 - nothing may reach the other connections
            self._fail(error)

    async def _read(self) -> None:
        stream, session = self._stream, self.session
        while data := await stream.receive_some(RECEIVE_BYTES):
            other = self._sniffer.feed(bytes(data))
            if other is not None:
                self._end_with_stranger(other)
                return
            if self._peer_id is not None and self._sniffer.is_strange:
                if self._sniffer.has_seen_enough:
                    self._end(EndKind.NOT_A_PEER, "not a bamboo peer: that is no setup")
                    return
                continue
            await self._seat.turn()
            now = trio.current_time()
            with self._seat.paid(now):
                session.receive_bytes(bytes(data), now, self._seat.packets_max)
                self._turn()
            while session.has_unread:
                # Others first. Should the connection end meanwhile, the rest is never read.
                await trio.lowlevel.checkpoint()
                await self._seat.turn()
                now = trio.current_time()
                with self._seat.paid(now):
                    session.read_on(now, self._seat.packets_max)
                    self._turn()
        self._reading_ended.set()
        if session.closed:
            return
        if session.established:
            self._end(EndKind.LOST, "connection lost: the other side ended the stream")
        else:
            self._end(EndKind.LOST, "the other side hung up before it had said anything of use")

    async def _write(self) -> None:
        session = self.session
        waited_s = 0.0
        while True:
            now = trio.current_time()
            with self._seat.paid(now):
                data = session.bytes_to_send(self._send_bytes, now, waited_s=waited_s)
                # Looking for something to send may be what asks the store for it.
                is_answered = self._pass_on()
                if is_answered and not data:
                    # What was stored just now is there at once.
                    data = session.bytes_to_send(self._send_bytes)
                    is_answered = self._pass_on()
                if session.may_be_due:
                    self._set_timer()
            waited_s = 0.0
            if data:
                given_at = trio.current_time()
                await self._stream.send_all(data)
                waited_s = trio.current_time() - given_at
            elif session.closed:
                await self._say_goodbye()
                return
            elif is_answered:
                # Nobody else would wake this task for it; but a session that asks for ever, and
                # says nothing, would keep the loop.
                await trio.lowlevel.checkpoint()
            else:
                await self._writer.park()
            # Not before the setup, which tells a stranger that this is no place for him.
            await self._seat.turn()

    async def _say_goodbye(self) -> None:
        """Ends our direction first: closing with bytes unread could take back what we sent."""
        with trio.move_on_after(LINGER_S):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
                await self._reading_ended.wait()
        self._end(EndKind.CLOSED, "closed")

    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope() as self._timer:
                self._set_timer()
                await trio.sleep_forever()
            # What came in a few bytes may be read on for minutes, a piece whenever it is time.
            await self._seat.turn()
            now = trio.current_time()
            with self._seat.paid(now):
                if self.session.closing and (held := under_way(self._stream)) is not None:
                    self.session.transport_holds(held, now)
                self.session.advance(now)
                self._turn()

    # Between the session and the rest

    def _deliver(self, events: Sequence[Event], payer: Account | None = None) -> None:
        """Hands events to the session, at once unless others want their turns.

        The replies to what somebody has asked for in a flood are most of what it costs. `payer`: it
        is his turn, unless there is something here that came before. What shows that the other side
        broke the protocol waits for no turn: it ends what the turns are for, and whoever rests for
        what he has wasted would stay for as long.
        """
        waits = bool(self._inbox)
        try:
            if payer is not None and not waits:
                self.session.handle_all(events, trio.current_time())
                self._turn(payer)
                return
            self._inbox.put(events)
            if (not waits and self._seat.turn_if_free()) or any(map(_blames, events)):
                self._take_events(None)
                return
        except Exception as error:  # noqa: BLE001 - the host that delivers is not to blame
            self._fail(error)
        self._inbox.arrived.unpark_all()

    async def _handle(self) -> None:
        """Hands over what had to wait for its turn."""
        while True:
            while not self._inbox:
                await self._inbox.arrived.park()
            await self._seat.turn()
            self._take_events(self._seat.events_max)
            await trio.lowlevel.checkpoint()

    def _take_events(self, most: int | None) -> None:
        now = trio.current_time()
        with self._seat.paid(now):
            events = self._inbox.take(most)
            for event in events:
                self._note(event)
            self.session.handle_all(events, now)
            if self._failures.are_too_many:
                self.close()
            self._turn()

    def _note(self, event: Event) -> None:
        match event:
            case InterestsChanged():
                self._interests = event.interests
            case Ingested() | PayloadFinished(verdict=Verdict.VALID):
                self._failures.since_kept = 0
            case IngestFailed(refusal=Refusal.NO_ROOM) | PayloadFinished(verdict=Verdict.NO_ROOM):
                # The store host tells of it, by the limit: it is the same for many connections.
                self._failures.not_kept = event.detail
            case IngestFailed(refusal=Refusal.STORAGE) | PayloadFinished(verdict=Verdict.STORAGE):
                self._failures.not_kept = event.detail
                self._failures.since_kept += 1
                self._failures.tell(event.detail)
            case StorageFailed():
                self._failures.not_given = event.detail
                self._failures.tell(event.detail)
            case _:
                pass

    def _turn(self, payer: Account | None = None) -> None:
        """After any input: passes on what follows from it, and looks for something to send."""
        self._pass_on(payer)
        if self.session.take_stirred() and not self._writer.unpark_all():
            # Else the task that writes does so, behind what it finds to send: to ask all that may
            # be due costs as much as to read a packet.
            self._set_timer()

    def _pass_on(self, payer: Account | None = None) -> bool:
        """Passes on what the session has asked for or found out; whether it was answered."""
        session = self.session
        answers: list[Event] = []
        if self._port is not None and (commands := session.commands()):
            answers = self._host.submit(self._port, commands, payer)
        if notices := session.notices():
            now = trio.current_time()
            self._seat.earn(notices, self._interests, now)
            self._noticed(notices, now)
        if session.both_closed:
            deadline = trio.current_time() + CLOSE_TIMEOUT_S
            self._scope.deadline = min(self._scope.deadline, deadline)
        elif session.closed:
            # What could still be said is for nobody who listens.
            self._end(EndKind.CLOSED, _CLOSED_ALONE)
        if answers:
            # Of this turn, whoever has it; behind what came before, if that still waits.
            self._deliver(answers, payer or self._seat.account)
        return bool(answers)

    def _set_timer(self) -> None:
        deadline = self.session.next_deadline()
        deadline = float("inf") if deadline is None else deadline
        if self._timer.deadline != deadline:
            self._timer.deadline = deadline

    def _leave(self, port: Port) -> None:
        """What came whole is kept, what is unfinished can be resumed."""
        try:
            if self._inbox:
                self._take_events(None)
            self.session.receive_eof(trio.current_time())
            self._turn()
        except Exception as error:  # noqa: BLE001 - it has ended all the same
            self._fail(error)
        self._host.close_port(port)

    # Endings

    def remove(self) -> None:
        """Ends the connection at once: whoever is there is allowed no longer."""
        who = "the other side" if self._peer_id is None else self._peer_id.hex()
        self._end(EndKind.REMOVED, f"{who} is allowed no longer")

    @property
    def is_over(self) -> bool:
        """Whether it was ended, and only its task is left."""
        return self._ending is not None

    def give_way(self, reason: str) -> None:
        """Ends the connection at once, in favour of another one."""
        self._end(EndKind.LOST, f"ended by us: {reason}")

    def _end_with_stranger(self, other: str) -> None:
        if other == DENIED and self._peer_id is not None:
            self._end(EndKind.DENIED, f"{self._peer_id.hex()} has not allowed this node yet")
        elif other == TLS and self._peer_id is None:
            self._end(EndKind.WANTS_TLS, "the other side wants TLS")
        else:
            self._end(EndKind.NOT_A_PEER, f"not a bamboo peer: it speaks {other}")

    def _end(self, kind: EndKind, reason: str) -> None:
        if self._ending is None:
            self._ending = Ending(kind, reason)
        self._scope.cancel()

    def _fail(self, error: Exception) -> None:
        match error:
            case RemoteViolation():
                if self._sniffer.is_strange:
                    self._end(EndKind.NOT_A_PEER, f"not a bamboo peer: {error}")
                else:
                    self._end(EndKind.VIOLATION, str(error))
            case SessionTimeout():
                self._end(EndKind.TIMEOUT, str(error))
            case HandshakeError():
                self._end(EndKind(error.kind), str(error))
            case trio.BrokenResourceError() | trio.ClosedResourceError():
                if self.session.closed:
                    self._end(EndKind.CLOSED, "closed")
                else:
                    self._end(EndKind.LOST, f"connection lost: {words_of(error)}")
            case StoreError():
                self._failures.not_given = str(error)
                self._failures.tell(str(error))
                self._end(EndKind.STORAGE, str(error))
            case _:
                self._host.faults.tell(f"connection with {self._source}", error)
                self._end(EndKind.INTERNAL, f"internal error: {error!r}")


def _blames(event: Event) -> bool:
    """Whether something that came was wrong in a way that only the other side can have made it."""
    match event:
        case IngestFailed(refusal=Refusal.INVALID) | PayloadFinished(verdict=Verdict.INVALID):
            return True
        case _:
            return False


def words_of(error: BaseException) -> str:
    """What went wrong in the operating system's words; of several attempts, the first one's."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError):
        error = cause
    if isinstance(error, OSError):
        # Trio writes more into `strerror`; name look-ups have negative numbers of their own.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or str(error)
    return str(error) or type(error).__name__


async def close_stream(stream: trio.abc.AsyncResource) -> None:
    """Closes a stream, whatever the other side does and whoever cancels."""
    deadline = trio.current_time() + CLOSE_TIMEOUT_S
    with suppress(trio.BrokenResourceError), trio.CancelScope(shield=True, deadline=deadline):
        await stream.aclose()
        return
    await trio.aclose_forcefully(stream)
