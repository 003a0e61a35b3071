"""One connection with another node: its socket, and what is sent on it in which order.

What a peer has asked for now is to overtake what may come whenever it comes (spec section 3.8). So
little is given to the system at once, and the buffers of the socket are small: behind a message
that is in them nothing can be put in front. For the same reason chunks are read only when few are
left to be sent, which also is what keeps a peer that reads slowly from filling our memory.
"""

import logging
import secrets
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from gateways import Ended, beside, send_off
from gateways.reading import CodecError
from gateways.swarm.codec import PRIORITIES, Message
from gateways.swarm.commands import Read
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.keys import Enode
from gateways.swarm.link import EndedError, Link
from gateways.swarm.neighbour import Known, Neighbour
from gateways.swarm.rlpx import draw

if TYPE_CHECKING:
    from .hub import Hub

log = logging.getLogger(__name__)

NOTHING_SENT_S: Final = 30.0
FAREWELL_S: Final = 1.0
UNFINISHED_MAX: Final = 8
"""Callers whose handshakes are under way (spec section 7)."""
SOCKET_BYTES: Final = 256 << 10
_READ_BYTES: Final = 128 << 10
_SEND_BYTES: Final = 64 << 10


class Conversation:
    """A connection. `enode`: whom we have called, None: somebody has called us."""

    def __init__(
        self, hub: "Hub", stream: trio.SocketStream, name: str, enode: Enode | None = None
    ) -> None:
        self._hub = hub
        self._stream = stream
        self._name = name
        self._enode = enode
        self._link = Link(
            hub.identity,
            draw(secrets.token_bytes),
            trio.current_time(),
            None if enode is None else enode.public,
        )
        self._neighbour: Neighbour | None = None
        # Frames on their way out: without one of them no later one can be read, nor a farewell.
        self._leaving = bytearray()
        self._reads: deque[Read] = deque()
        self._stirred = trio.Event()
        self._readable = trio.Event()
        self._lacked_room = False
        self._is_held_up = False
        self._failure: RefusedError | None = None
        self._failed = trio.Event()
        self._is_over = trio.Event()
        self._shaking = trio.CancelScope()
        self.known: Known | None = None
        """Who it is, once that is known."""

    async def run(self) -> None:
        """Until it ends. Raises Ended, OSError, StoreError and Trio's stream errors."""
        if self._enode is None and self._hub.unfinished >= UNFINISHED_MAX:
            self._is_over.set()
            raise Ended(f"{UNFINISHED_MAX} others have not finished their handshakes")
        self._stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._stream.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        try:
            await self._run()
        except RefusedError as error:
            await self._say_farewell(error.reason)
            raise Ended(str(error)) from None
        except EndedError as error:
            raise Ended(f"it has ended the connection: {error}") from None
        except CodecError as error:
            raise Ended(f"it is not who it is to be, or speaks no RLPx: {error}") from None
        finally:
            self._is_over.set()

    async def _run(self) -> None:
        early: list[Message] | None = None
        with self._shaking:
            early = await self._shake_hands()
        if early is None:
            raise Ended("this node ends")
        known = self.known = self._known()
        neighbour = self._neighbour = await self._hub.join(known, self)
        try:
            await self._hub.receive(neighbour, early)
            await beside(self._receive, self._send, self._read, self._keep_time, self._fail)
        finally:
            with trio.CancelScope(shield=True):
                await self._hub.leave(neighbour)

    async def finish(self) -> None:
        """Says farewell; returns once the connection is over."""
        self.fail(RefusedError(Reason.QUITTING, "this node ends"))
        self._shaking.cancel()
        await self._is_over.wait()

    def fail(self, error: RefusedError) -> None:
        """The connection is to end."""
        if self._failure is None:
            self._failure = error
            self._failed.set()

    async def _fail(self) -> None:
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def _say_farewell(self, reason: Reason) -> None:
        """Our last message, if the peer takes it soon."""
        self._link.farewell(reason)
        with trio.move_on_after(FAREWELL_S):
            await self._flush()
            await self._stream.send_eof()
            # Closed over what was not read, the system would answer with a reset, by which the
            # peer loses what it has not read itself.
            while await self._stream.receive_some(_READ_BYTES):
                pass

    # Handshakes ----------------------------------------------------------------------------------

    async def _shake_hands(self) -> list[Message]:
        """Until the connection is open; what came behind that."""
        early: list[Message] = []
        self._hub.unfinished += self._enode is None
        try:
            while not self._link.is_open:
                await self._flush()
                left_s = self._link.next_deadline - trio.current_time()
                with trio.move_on_after(left_s) as waiting:
                    data = await self._stream.receive_some(_READ_BYTES)
                if waiting.cancelled_caught:
                    self._link.advance(trio.current_time())
                elif not data:
                    raise Ended("it has hung up in the middle of a handshake")
                else:
                    early += self._link.receive(bytes(data), trio.current_time())
        finally:
            self._hub.unfinished -= self._enode is None
        return early

    def _known(self) -> Known:
        peer = self._link.peer
        assert peer is not None
        return Known(
            self._link.public,
            peer.overlay,
            str(self._enode) if self._enode is not None else peer.underlay,
            self._link.has_bamboo,
            peer.is_light,
        )

    # In and out ----------------------------------------------------------------------------------

    async def _receive(self) -> None:
        assert self._neighbour is not None
        while True:
            self._is_held_up = not self._hub.keeper.has_room
            await self._hub.keeper.room()
            self._is_held_up = False
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                return
            messages = self._link.receive(bytes(data), trio.current_time())
            # A ping is answered, whatever else came.
            self.stirred()
            if messages:
                await self._hub.receive(self._neighbour, messages)

    def stirred(self) -> None:
        """There may be something to send."""
        self._stirred.set()

    async def _send(self) -> None:
        assert self._neighbour is not None
        queue = self._neighbour.queue
        while True:
            self._stirred = trio.Event()
            self._leaving += self._link.take()
            while len(self._leaving) < _SEND_BYTES and (message := queue.take()) is not None:
                self._link.send(*message)
                self._leaving += self._link.take()
            self._look_at_room()
            if self._leaving:
                await send_off(self._stream, self._leaving, NOTHING_SENT_S)
            else:
                await self._stirred.wait()

    async def _flush(self) -> None:
        self._leaving += self._link.take()
        await send_off(self._stream, self._leaving, NOTHING_SENT_S)

    def _look_at_room(self) -> None:
        """What waited for room in the queue may go on."""
        assert self._neighbour is not None
        self._readable.set()
        has_room = all(self._neighbour.queue.has_room(each) for each in PRIORITIES)
        if has_room and self._lacked_room:
            self._hub.has_room()
        self._lacked_room = not has_room

    def read_later(self, asked: Read) -> None:
        """Reads chunks once few of their level are left to be sent."""
        self._reads.append(asked)
        self._readable.set()

    async def _read(self) -> None:
        assert self._neighbour is not None
        queue = self._neighbour.queue
        while True:
            self._readable = trio.Event()
            ready = [each for each in self._reads if queue.is_short(each.priority)]
            if not ready:
                await self._readable.wait()
                continue
            asked = max(ready, key=lambda each: each.priority)
            self._reads.remove(asked)
            await self._hub.read(self._neighbour, asked)

    async def _keep_time(self) -> None:
        while True:
            await trio.sleep_until(self._link.next_deadline)
            if self._is_held_up:
                # What it has said waits for our disk.
                self._link.hold(trio.current_time())
            self._link.advance(trio.current_time())
            self.stirred()
