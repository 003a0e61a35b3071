"""One client of a hub: its socket, and the commands of its `Connection` (section 3.6)."""

import logging
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import trio

from gateways import Ended, beside, receive_later, send_bounded, send_now
from gateways.ockam.commands import (
    Append,
    Command,
    FindStream,
    GetPosition,
    MakeStream,
    Read,
    SavePosition,
    Wait,
)
from gateways.ockam.server import Connection, Rights
from gateways.reading import CodecError
from logstore import Seldom, StoreError

from .logs import Push

if TYPE_CHECKING:
    from .hub import Hub

log = logging.getLogger(__name__)

NOTHING_SENT_S: Final = 30.0
SEEN_OFF_S: Final = 1.0
"""How long a client may go on sending to a hub that ends."""
_READ_BYTES: Final = 1 << 16
_AT_ONCE_MAX: Final = 16
"""Pulls that are answered before others have their turn."""


class Conversation:
    """Serves a client until it closes, or says what nobody understands."""

    def __init__(
        self, hub: "Hub", stream: trio.SocketStream, name: str, rights: Rights, hold_s: float
    ) -> None:
        self._hub = hub
        self._stream = stream
        self._name = name
        self._connection = Connection(rights, hold_s=hold_s)
        self._changed: trio.Event | None = None
        """Where somebody waits for one."""
        self._ending = trio.CancelScope()
        self._all: trio.Nursery | None = None
        self._reason: Exception | None = None
        self._seldom = Seldom(trio.current_time)
        self._timers: list[tuple[float, int]] = []
        """When which `Wait` is over, a heap."""
        self._timed = trio.Event()
        self._rest = b""
        """Of what is sent, as much as the socket has not taken."""
        self._stuck = trio.Event()
        self._at_once = 0
        self._is_over = False

    async def run(self) -> None:
        """Until the client has closed. Raises Ended, OSError and Trio's stream errors."""
        self._stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        try:
            async with trio.open_nursery() as nursery:
                self._all = nursery
                try:
                    await beside(self._receive, self._send, self._keep_time)
                except Exception as error:  # noqa: BLE001 - it is raised below, and not in a group
                    self._end(error)
                nursery.cancel_scope.cancel()
        finally:
            # What was put into the next append is stored all the same.
            self._is_over = True
            self._tell_changed()
            self._tell_unknown(is_last=True)
            self._hub.forget(self)
        if self._reason is not None:
            raise self._reason

    async def finish(self) -> None:
        """No new requests; returns once what is under way is done, and its replies are sent."""
        self._ending.cancel()
        self._event(self._connection.end)
        while not self._is_over:
            await self._change()

    @property
    def held(self) -> frozenset[str]:
        """The addresses of the pulls that wait for a message."""
        return self._connection.held

    def grown(self, addresses: frozenset[str]) -> None:
        """Streams have more messages."""
        self._event(lambda: self._connection.grown(addresses))

    @property
    def _is_done(self) -> bool:
        is_sent = not self._connection.has_frames and not self._rest
        return is_sent and self._connection.is_idle

    def _end(self, reason: Exception) -> None:
        """What was first is the reason of all that ends with it."""
        if self._reason is None:
            is_nonsense = isinstance(reason, CodecError)
            self._reason = Ended(f"it sent what is no message: {reason}") if is_nonsense else reason
        if self._all is not None:
            self._all.cancel_scope.cancel()

    async def _change(self) -> None:
        """Returns once anything has happened."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # In and out ----------------------------------------------------------------------------------

    async def _receive(self) -> None:
        connection = self._connection
        with self._ending:
            while True:
                while not connection.wants_bytes:
                    await self._change()
                data = await receive_later(self._stream, _READ_BYTES)
                if not data:
                    break
                connection.receive(data)
                self._settle()
        # Who has closed, or sends nothing more, may still want the replies to what it has asked.
        while not self._is_done:
            await self._change()
        if self._ending.cancel_called:
            await self._see_off()

    async def _see_off(self) -> None:
        """Throws away what a client sends that has not heard yet that the hub ends.

        Closed over what was not read, the system would answer with a reset, by which the client
        loses the confirms that it has not read itself.
        """
        await self._stream.send_eof()
        with trio.move_on_after(SEEN_OFF_S):
            while await self._stream.receive_some(_READ_BYTES):
                pass

    async def _send(self) -> None:
        """Sends what the socket did not take at once."""
        while True:
            while not self._rest:
                self._stuck = trio.Event()
                await self._stuck.wait()
            await send_bounded(self._stream, self._rest, NOTHING_SENT_S)
            self._rest = b""
            self._connection.sent()
            self._settle()

    def _send_at_once(self) -> bool:
        """Whether there was anything to send, and the socket has taken all of it.

        Nearly always it does, and then no other task has to be woken for a reply, which is a good
        part of what clients who poll cost.
        """
        if self._rest or not self._connection.has_frames:
            return False
        data = self._connection.frames()
        self._rest = data[send_now(self._stream, data) :]
        if self._rest:
            self._stuck.set()
            return False
        self._connection.sent()
        return True

    def _event(self, happen: Callable[[], None]) -> None:
        """Tells the connection what has happened; what that leads to is begun."""
        if self._is_over or self._reason is not None:
            return
        try:
            happen()
            self._settle()
        except CodecError as error:
            self._end(error)

    def _settle(self) -> None:
        """Begins what the connection has asked for, and wakes whoever waits for a change."""
        # A save that there is room for is answered at once, and what is behind it begins; so does
        # what waited for the room of a reply that has left.
        self._at_once = 0
        while True:
            while commands := self._connection.commands():
                for command in commands:
                    self._begin(command)
            if not self._send_at_once():
                break
        self._hub.note_held(self)
        self._tell_unknown()
        self._tell_changed()

    # Commands ------------------------------------------------------------------------------------

    def _begin(self, command: Command) -> None:
        assert self._all is not None
        connection = self._connection
        match command:
            case Append(number, messages):
                self._hub.writer.put(
                    [Push(*message) for message in messages],
                    lambda outcomes: self._event(lambda: connection.appended(number, outcomes)),
                )
            case SavePosition(number, client, name, partition, index):
                if self._hub.saver.save((client, name, partition), index):
                    connection.saved(number)
                else:
                    self._all.start_soon(self._save, command)
            case Read(number, address, index):
                # Of many who poll most find nothing, which is known.
                if self._at_once < _AT_ONCE_MAX and self._hub.is_at_end(address, index):
                    self._at_once += 1
                    connection.read(number, ())
                else:
                    self._all.start_soon(self._read, command)
            case MakeStream():
                self._all.start_soon(self._make, command)
            case FindStream():
                self._all.start_soon(self._find, command)
            case GetPosition():
                self._all.start_soon(self._get, command)
            case Wait(number, seconds):
                heappush(self._timers, (trio.current_time() + seconds, number))
                self._timed.set()

    async def _read(self, asked: Read) -> None:
        found = await self._hub.read(asked.address, asked.index, asked.limit, asked.room)
        if self._connection.knows(asked.number):
            self._event(lambda: self._connection.read(asked.number, found))

    async def _make(self, asked: MakeStream) -> None:
        made = await self._hub.make(asked.name, asked.partitions, may_make=asked.may_make)
        self._event(lambda: self._connection.created(asked.number, made))

    async def _find(self, asked: FindStream) -> None:
        made = await self._hub.find(asked.address)
        self._event(lambda: self._connection.created(asked.number, made))

    async def _save(self, asked: SavePosition) -> None:
        position = asked.client, asked.name, asked.partition
        while not self._hub.saver.save(position, asked.index):
            await self._hub.saver.written()
        self._event(lambda: self._connection.saved(asked.number))

    async def _get(self, asked: GetPosition) -> None:
        try:
            index = await self._hub.position((asked.client, asked.name, asked.partition))
        except StoreError:
            self._event(lambda: self._connection.failed(asked.number))
        else:
            self._event(lambda: self._connection.position(asked.number, index))

    async def _keep_time(self) -> None:
        """All that waits, in one task: a client may make a thousand of them wait."""
        timers = self._timers
        while True:
            self._timed = trio.Event()
            with trio.move_on_at(timers[0][0] if timers else float("inf")):
                await self._timed.wait()
            while timers and timers[0][0] <= trio.current_time():
                _, number = heappop(timers)
                self._event(partial(self._connection.waited, number))

    def _tell_unknown(self, *, is_last: bool = False) -> None:
        if not self._connection.has_unknown:
            return
        if not (is_last or self._seldom.may_say("unknown addresses")):
            return
        unknown = self._connection.take_unknown()
        names = ", ".join(f"{each!a} ({count})" for each, count in unknown.items())
        log.warning("%s has sent to addresses that there are not: %s", self._name, names)
        self._hub.observe(
            {"event": "unknown_address", "address": self._name, "reason": f"unknown: {names}"}
        )
