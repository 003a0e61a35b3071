"""Taking a gateway's clients in, and answering them as fast as they take it.

A client that takes nothing holds up nobody and not for ever: bytes leave in small sends, each of
which may wait only so long; a client that is one too many is closed without a byte.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from logstore import ExplainedError

log = logging.getLogger(__name__)

SEND_BYTES: Final = 1 << 18
REFUSALS_SAID_EVERY_S: Final = 1.0


class CannotListenError(ExplainedError):
    """An address cannot be listened on."""


class Ended(Exception):  # noqa: N818 - what happened
    """A connection has ended otherwise than by the client's closing; the text says why."""


class Reception:
    """Runs `handle` for each client that comes to some listeners, `clients_max` at a time.

    `handle` is given the stream and the client's address; the stream is closed behind it. It may
    raise `Ended`, OSError and Trio's stream errors, which end the connection alone; `gone` is told
    the address and the reason, empty if the client has closed. 0 clients: no limit.
    """

    def __init__(
        self,
        handle: Callable[[trio.SocketStream, str], Awaitable[None]],
        *,
        clients_max: int,
        came: Callable[[str], object] = lambda _: None,
        gone: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        self._handle = handle
        self._clients_max = clients_max
        self._came = came
        self._gone = gone
        self._refused = 0
        self._said_at_s = -REFUSALS_SAID_EVERY_S
        self.clients = 0
        """Connections that are open now."""

    async def run(
        self,
        listeners: list[trio.SocketListener],
        handle: Callable[[trio.SocketStream, str], Awaitable[None]] | None = None,
    ) -> None:
        """Takes clients until cancelled. The listeners are closed behind it.

        `handle`: what runs for clients of these listeners, in place of the one of all others.
        """
        await trio.serve_listeners(partial(self._welcome, handle or self._handle), listeners)

    async def _welcome(
        self,
        handle: Callable[[trio.SocketStream, str], Awaitable[None]],
        stream: trio.SocketStream,
    ) -> None:
        try:
            address = name_of(stream.socket.getpeername())
        except OSError:  # it has gone already
            await trio.aclose_forcefully(stream)
            return
        if self._clients_max and self.clients >= self._clients_max:
            await trio.aclose_forcefully(stream)
            self._say_refused(address)
            return
        self.clients += 1
        self._came(address)
        reason = ""
        try:
            await handle(stream, address)
        except Ended as ended:
            reason = str(ended)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            reason = "the connection was lost"
        finally:
            self.clients -= 1
            await trio.aclose_forcefully(stream)
            if reason:
                log.info("the connection from %s has ended: %s", address, reason)
            self._gone(address, reason)

    def _say_refused(self, address: str) -> None:
        self._refused += 1
        now = trio.current_time()
        if now - self._said_at_s < REFUSALS_SAID_EVERY_S:
            return
        self._said_at_s = now
        log.warning(
            "%d connections were closed, the last one from %s: %d clients are connected,"
            " as many as are allowed",
            self._refused,
            address,
            self.clients,
        )
        self._refused = 0


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
        with trio.move_on_after(timeout_s or float("inf")) as waiting:
            sent = await stream.socket.send(rest[:SEND_BYTES])
            rest = rest[sent:]
        if waiting.cancelled_caught:
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


async def receive_some(
    stream: trio.SocketStream, bytes_max: int, timeout_s: float, why: str
) -> bytes:
    """What has come, b"" at the end. Raises Ended(why) after `timeout_s`; 0 s: without limit."""
    with trio.move_on_after(timeout_s or float("inf")):
        return bytes(await stream.receive_some(bytes_max))
    raise Ended(why)
