"""Serves a stream to any number of clients, at the pace of each (3.1, 4.4)."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from gateways import Ended, LogHost, Reception, Running, beside, outlasting, send_bounded, send_now
from gateways.datastream.sessions import Question, QuestionKind, ServerSession
from logstore import PayloadUnavailable, Store, StoreError
from peer import json_number
from peer.api import Address, Peer
from peer.node import Observer, address_of, open_listeners, unobserved
from wire import LogKey

from .errors import NotAStream
from .feed import Feed, WentBack
from .logs import State

log = logging.getLogger(__name__)

CLIENTS_MAX: Final = 500
WRITE_TIMEOUT_S: Final = 3.0
INACTIVITY_TIMEOUT_S: Final = 120.0
POSITION_EVERY_S: Final = 1.0
AT_ONCE_BYTES: Final = 1 << 16
"""The largest piece that is sent to all who are live before anybody else gets a turn."""
_READ_BYTES: Final = 16_384


class DataStreamServer(Running):
    """A server of one stream, inside an `async with` block.

    `peer_or_store`: what holds the log. `listen`: `HOST:PORT`, port 0 picks a free one.
    `clients_max`, `write_timeout_s` and `inactivity_timeout_s`: section 7; 0 is no limit.
    `observer` is called in the event loop with events, mappings that JSON can hold. Entering waits
    until entry 1 is held and all that is held is indexed, and for a store that fails until it goes
    on. Raises NotAStream, CannotListenError, StoreClosed; ValueError for no address.
    """

    def __init__(
        self,
        peer_or_store: Peer | Store,
        log: LogKey,
        *,
        listen: str | Address = "127.0.0.1:6900",
        clients_max: int = CLIENTS_MAX,
        write_timeout_s: float = WRITE_TIMEOUT_S,
        inactivity_timeout_s: float = INACTIVITY_TIMEOUT_S,
        observer: Observer = unobserved,
    ) -> None:
        super().__init__()
        self._host = LogHost(peer_or_store, observer)
        self._key = log
        self._listen = Address.parse(listen) if isinstance(listen, str) else listen
        self._write_timeout_s = write_timeout_s
        self._inactivity_timeout_s = inactivity_timeout_s
        self._observer = observer
        self._reception = Reception(
            self._host,
            clients_max=clients_max,
            came=lambda name: observer({"event": "client", "address": name}),
            gone=lambda name, why: observer(
                {"event": "client_gone", "address": name, "reason": why}
            ),
        )
        self._feed: Feed | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where it listens. RuntimeError outside of the block."""
        if self._address is None:
            raise RuntimeError("a DataStreamServer listens inside `async with`")
        return self._address

    @property
    def clients(self) -> int:
        """Connections that are open now."""
        return self._reception.clients

    @property
    def feed(self) -> Feed:
        """The stream that is served. RuntimeError outside of the block."""
        if self._feed is None:
            raise RuntimeError("a DataStreamServer serves inside `async with`")
        return self._feed

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        feed = self._feed = Feed(self._host, self._key)
        try:
            async with outlasting(self._reception.end) as nursery:
                nursery.start_soon(feed.run)
                await self._wait_for_declaration(feed)
                listeners = await open_listeners(self._listen)
                self._address = address_of(listeners[0])
                self._observer({"event": "listening", "address": str(self._address)})
                nursery.start_soon(self._reception.run, listeners, self._converse)
                nursery.start_soon(self._tell_positions, feed)
                yield
        finally:
            self._address = None
            feed.close()

    async def _wait_for_declaration(self, feed: Feed) -> None:
        said = False
        while feed.state is None or feed.state.declaration is None:
            state = feed.state
            if state is not None and state.broken:
                raise NotAStream(state.broken, str(self._key), "name another log")
            if not said and state is not None:
                said = True
                self._observer({"event": "waiting", "reason": await self._why_waiting(feed, state)})
            # It may have come while that was asked.
            await feed.wait_behind(state)

    async def _why_waiting(self, feed: Feed, state: State) -> str:
        try:
            return (await feed.host.call(partial(feed.log.standing, state))).reason
        except StoreError as error:
            return str(error)

    async def _tell_positions(self, feed: Feed) -> None:
        said_broken = False
        while True:
            state = feed.state
            assert state is not None
            self._observer(
                {
                    "event": "position",
                    "total_entries": json_number(state.total_entries),
                    "total_length": json_number(state.total_length),
                    "seq": json_number(state.seq),
                }
            )
            if state.broken and not said_broken:
                said_broken = True
                log.warning("%s is broken: %s", self._key, state.why_broken)
                self._observer({"event": "broken", "reason": state.why_broken})
            await trio.sleep(POSITION_EVERY_S)
            await feed.wait_behind(state)

    def _converse(self, stream: trio.SocketStream, _: str) -> "_Conversation":
        return _Conversation(self.feed, stream, self._write_timeout_s, self._inactivity_timeout_s)


class _Conversation:
    """One client: a task reads requests, another answers and streams."""

    def __init__(
        self,
        feed: Feed,
        stream: trio.SocketStream,
        write_timeout_s: float,
        inactivity_timeout_s: float,
    ) -> None:
        assert feed.state is not None
        assert feed.state.declaration is not None
        self._feed = feed
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._inactivity_timeout_s = inactivity_timeout_s
        self._session = ServerSession(feed.state.declaration.stream_type)
        self._cuts = feed.state.cuts
        self._wake = trio.Event()
        self._taken = trio.Event()
        self._heard_at_s = trio.current_time()
        self._is_at_rest = False
        """Whether all was answered and sent, and the answering task waits for something new."""
        self._rest = b""
        """Of a piece that was begun to be sent: nothing else leaves before it."""
        self._is_ending = False
        self._is_over = trio.Event()
        self._went_back: WentBack | None = None
        self._is_back = trio.Event()

    async def run(self) -> None:
        """Until the client closes. Raises Ended, OSError and Trio's stream errors."""
        self._feed.watchers[self._hear_of_change] = None
        try:
            await beside(self._read, self._answer, self._keep_time)
        except WentBack as error:
            raise Ended(str(error)) from None
        finally:
            del self._feed.watchers[self._hear_of_change]
            self._is_over.set()

    async def finish(self) -> None:
        """Returns once what was begun to be sent has been, and `run` ends: no entry ends half."""
        self._is_ending = True
        self._wake.set()
        await self._is_over.wait()

    async def _read(self) -> None:
        session = self._session
        while True:
            while not session.room:
                await self._taken.wait()
                self._taken = trio.Event()
            data = bytes(await self._stream.receive_some(min(_READ_BYTES, session.room)))
            if not data:
                return
            self._heard_at_s = trio.current_time()
            session.receive(data)
            self._wake.set()

    def _hear_of_change(self) -> None:
        """The stream has changed, perhaps while a piece is being sent to who takes its time."""
        position = self._session.position
        try:
            if position is not None:
                cuts = self._feed.check(self._cuts, position)
                if self._is_at_rest:
                    self._cuts = cuts
                    if self._send_at_once(position):
                        return
        except WentBack as error:
            self._went_back = error
            self._is_back.set()
        self._wake.set()

    def _send_at_once(self, position: int) -> bool:
        """Sends what is new without a task; True if that was all and the socket took it."""
        feed = self._feed
        piece = feed.piece_at_hand(position)
        if piece is None or len(piece.data) > AT_ONCE_BYTES:
            return False
        sent = send_now(self._stream, piece.data)
        if not sent:
            return False
        self._session.sent_up_to(piece.end)
        self._rest = piece.data[sent:]
        assert feed.state is not None
        return not self._rest and piece.end == feed.state.total_entries

    async def _keep_time(self) -> None:
        """Ends who is silent for too long, and who was sent what the stream has no more."""
        limit = self._inactivity_timeout_s or float("inf")
        session = self._session
        while True:
            with trio.move_on_at(self._heard_at_s + limit):
                await self._is_back.wait()
            if self._went_back is not None:
                raise self._went_back
            late = trio.current_time() >= self._heard_at_s + limit
            if late and session.unfinished:
                raise Ended(f"a request was begun and not finished for {limit:g} s")
            if late and session.position is None:
                raise Ended(f"it has asked for nothing for {limit:g} s")
            if late:
                # While Streaming silence is right; it counts again from when that is over.
                self._heard_at_s = trio.current_time()

    async def _answer(self) -> None:
        session = self._session
        while True:
            self._wake = trio.Event()
            if self._rest:
                await self._send(self._rest)
                self._rest = b""
            if self._is_ending:
                return
            while step := session.step():
                if isinstance(step, Question):
                    await self._look_up(step)
                if replies := session.replies():
                    await self._send(replies)
            self._taken.set()
            if session.ended is not None:
                raise Ended(session.ended)
            if session.position is None or not await self._send_piece(session.position):
                self._is_at_rest = True
                await self._wake.wait()
                self._is_at_rest = False

    async def _send_piece(self, number: int) -> bool:
        """Sends what follows; False at the end of the stream."""
        feed = self._feed
        self._cuts = feed.check(self._cuts, number)
        assert feed.state is not None
        if number >= feed.state.total_entries:
            return False
        try:
            piece = await feed.piece(number)
        except PayloadUnavailable:
            raise Ended(f"the payload of entry {number} was deleted here") from None
        if piece is None:
            return False
        if piece.cuts != self._cuts:
            # Read from an older or newer stream than the one that is known to be right.
            self._cuts = feed.check(self._cuts, number)
            if piece.cuts != self._cuts:
                await feed.refresh()
                return True
        # Marked as sent before it is: what leaves in part has been sent.
        self._session.sent_up_to(piece.end)
        await self._send(piece.data)
        return True

    async def _look_up(self, asked: Question) -> None:
        feed, session = self._feed, self._session
        state = feed.state
        assert state is not None
        # Before the look-up: a truncation meanwhile is one that this connection has to hear of.
        self._cuts = state.cuts
        match asked.kind:
            case QuestionKind.HEADER:
                session.answer_header(state.header)
            case QuestionKind.ENTRY:
                session.answer_entry(await feed.host.call(lambda: feed.log.entry(asked.number)))
            case QuestionKind.BOOKMARK:
                number = await feed.host.call(lambda: feed.log.bookmark(asked.bookmark))
                found = None
                if number is not None:
                    found = await feed.host.call(partial(feed.log.event_at, number))
                session.answer_entry(found)
            case QuestionKind.START:
                can = await feed.can_start(asked.number)
                session.start_from(asked.number if can else None)
            case QuestionKind.START_BOOKMARK:
                number = await feed.host.call(lambda: feed.log.bookmark(asked.bookmark))
                can = number is not None and await feed.can_start(number)
                session.start_from(number if can else None)

    async def _send(self, data: bytes) -> None:
        await send_bounded(self._stream, data, self._write_timeout_s)
