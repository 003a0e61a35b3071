"""Ending a connection so that what was said last arrives.

A socket that is closed with bytes unread resets the connection, and the other side's system throws
away what it has not read yet: the alert, or the line that says why. So our direction is ended, and
what comes is read on. That lasts a while and takes some bytes, and no more, since whoever is sent
away may go on sending for ever.
"""

import fcntl
import sys
import termios
from contextlib import suppress
from typing import Final

import trio

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 64 * 1024


async def turn_away(stream: trio.abc.HalfCloseableStream, said: bytes = b"") -> None:
    """Says something, ends our direction, and closes once the other side has, or 2 s later.

    At once where it is cancelled: a node that ends waits for nobody whom it has sent away.
    """
    try:
        with trio.move_on_after(LINGER_S), suppress(trio.BrokenResourceError):
            if said:
                await stream.send_all(said)
            await linger(stream)
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)


async def linger(stream: trio.abc.Stream) -> None:
    """Ends our direction and reads on, 2 s and 64 KiB at most."""
    left = LINGER_BYTES
    with trio.move_on_after(LINGER_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while left > 0 and (data := await stream.receive_some(min(left, LINGER_BYTES // 4))):
            left -= len(data)


def under_way(stream: trio.abc.AsyncResource) -> int | None:
    """Bytes that were sent and that the other end's system has not acknowledged.

    None where that cannot be known: over what is no socket, and where systems do not tell.
    """
    while not isinstance(stream, trio.SocketStream):
        below = getattr(stream, "transport", None)
        if below is None:
            return None
        stream = below
    with suppress(OSError, ValueError):  # ValueError: it is closed already
        told = fcntl.ioctl(stream.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(told, sys.byteorder)
    return None
