"""Taking a gateway's clients in, and answering them as fast as they take it.

A client that takes nothing holds up nobody and not for ever: bytes leave in small sends, each of
which may wait only so long; a client that is one too many is closed without a byte.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import trio

from logstore import Seldom, StoreError

from .hosting import LogHost

log = logging.getLogger(__name__)

SEND_BYTES: Final = 1 << 18


class Ended(Exception):  # noqa: N818 - what happened
    """A connection has ended otherwise than by the client's closing; the text says why."""


class Conversation(Protocol):
    """One client of a gateway."""

    async def run(self) -> None:
        """Until the client has closed. Raises Ended, and whatever else ends it."""

    async def finish(self) -> None:
        """No new requests; returns once what is under way is done and sent, and `run` is to end."""


Converse = Callable[[trio.SocketStream, str], Conversation]
"""Makes one of a client's stream and the address it calls from."""


class Reception:
    """Runs a conversation with each client that comes to some listeners, `clients_max` in all.

    The stream is closed behind it. Whatever a conversation raises ends its connection alone: one
    client must not end what others are served by. `Ended` says why; a store that fails is told by
    `host`, and what nobody foresaw comes into the log as it is. `gone` is told the address and the
    reason, empty if the client has closed. 0 clients: no limit.
    """

    def __init__(
        self,
        host: LogHost,
        *,
        clients_max: int,
        came: Callable[[str], object] = lambda _: None,
        gone: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        self._host = host
        self._clients_max = clients_max
        self._came = came
        self._gone = gone
        self._conversations: set[Conversation] = set()
        self._is_ending = False
        self._refused = 0
        self._seldom = Seldom(trio.current_time)
        self.clients = 0
        """Connections that are open now."""

    async def run(self, listeners: list[trio.SocketListener], converse: Converse) -> None:
        """Takes clients until cancelled. The listeners are closed behind it."""
        await trio.serve_listeners(partial(self._welcome, converse), listeners)

    async def end(self) -> None:
        """Takes no more clients; returns once all conversations have finished."""
        self._is_ending = True
        async with trio.open_nursery() as nursery:
            for each in self._conversations:
                nursery.start_soon(each.finish)

    async def _welcome(self, converse: Converse, stream: trio.SocketStream) -> None:
        if self._is_ending:
            await trio.aclose_forcefully(stream)
            return
        try:
            address = name_of(stream.socket.getpeername())
        except OSError:  # it has gone already
            await trio.aclose_forcefully(stream)
            return
        if self._clients_max and self.clients >= self._clients_max:
            await trio.aclose_forcefully(stream)
            self._say_refused(address)
            return
        try:
            await self._serve(converse, stream, address)
        except Exception:
            # Of whoever is told of it. Let out of here it would end the listener for everybody.
            log.exception("telling of the connection from %s has failed", address)

    async def _serve(self, converse: Converse, stream: trio.SocketStream, address: str) -> None:
        self.clients += 1
        reason = ""
        try:
            await self._talk(converse, stream, address)
        except* Exception as failed:  # noqa: BLE001 - one client ends nobody else
            # The first one ended the conversation's other tasks, whose ends say nothing.
            reason = why_ended(self._host, _first(failed), address)
        finally:
            self.clients -= 1
            await trio.aclose_forcefully(stream)
            if reason:
                log.info("the connection from %s has ended: %s", address, reason)
            self._gone(address, reason)

    async def _talk(self, converse: Converse, stream: trio.SocketStream, address: str) -> None:
        self._came(address)
        conversation = converse(stream, address)
        self._conversations.add(conversation)
        try:
            await conversation.run()
        finally:
            self._conversations.discard(conversation)

    def _say_refused(self, address: str) -> None:
        self._refused += 1
        text = (
            f"{self._refused} connections were closed, the last one from {address}:"
            f" {self.clients} clients are connected, as many as are allowed"
        )
        if self._seldom.warn(log, "too many clients", text):
            self._refused = 0


def is_lost(error: Exception) -> bool:
    """Whether a connection has ended because nothing passes through it any longer."""
    return isinstance(error, OSError | trio.BrokenResourceError | trio.ClosedResourceError)


def why_ended(host: LogHost, error: Exception, address: str) -> str:
    """Why a connection has ended, in words; whoever has to know of it besides is told."""
    if isinstance(error, Ended):
        return str(error)
    if is_lost(error):
        return "the connection was lost"
    if isinstance(error, StoreError):
        host.storage_failed(error)
        return str(error)
    log.error("the connection with %s has failed", address, exc_info=error)
    return f"a fault of this program: {error!r}"


def _first(error: Exception) -> Exception:
    """What a group began with."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def name_of(place: tuple[str, int]) -> str:
    """An address of a socket as people write it."""
    host, port = place[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def send_bounded(
    stream: trio.SocketStream, data: bytes | memoryview, timeout_s: float
) -> None:
    """Sends all of `data`, at the client's pace. 0 s: without limit.

    Raises Ended once the client's socket has not taken a byte for `timeout_s`. Not `send_all`,
    which does not tell a slow client from a stuck one.
    """
    rest = memoryview(data)
    while rest:
        sent = await _send_some(stream, rest[:SEND_BYTES], timeout_s)
        rest = rest[sent:]


async def send_off(stream: trio.SocketStream, data: bytearray, timeout_s: float) -> None:
    """`send_bounded` of a few bytes, taken out as they leave: cancelled, it has left the rest."""
    while data:
        sent = await _send_some(stream, bytes(data), timeout_s)
        del data[:sent]


async def _send_some(stream: trio.SocketStream, data: bytes | memoryview, timeout_s: float) -> int:
    """How many bytes the client's socket has taken."""
    with trio.move_on_after(timeout_s or float("inf")):
        return await stream.socket.send(data)
    raise Ended(f"its socket has taken nothing for {timeout_s:g} s")


def send_now(stream: trio.SocketStream, data: bytes) -> int:
    """How many of the bytes the client's socket takes without waiting; 0 too if it is lost.

    For who has the same to say to many: a task that is woken for each client costs several times
    what the sending costs. Not while a task sends on the stream.
    """
    try:
        return os.write(stream.socket.fileno(), data)
    except OSError:  # it is full, or lost, which whoever waits on it hears
        return 0


async def receive_later(stream: trio.SocketStream, bytes_max: int) -> bytes:
    """What comes, b"" at the end, of a client that is waited for nearly always.

    Trio's own way asks the system in vain each time before it waits. Raises BrokenResourceError.
    """
    while True:
        await trio.lowlevel.wait_readable(stream.socket)
        try:
            return os.read(stream.socket.fileno(), bytes_max)
        except BlockingIOError:
            continue
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error


async def receive_some(
    stream: trio.SocketStream, bytes_max: int, timeout_s: float, why: str
) -> bytes:
    """What has come, b"" at the end. Raises Ended(why) after `timeout_s`; 0 s: without limit."""
    with trio.move_on_after(timeout_s or float("inf")):
        return bytes(await stream.receive_some(bytes_max))
    raise Ended(why)
