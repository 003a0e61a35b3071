"""Taking connections in, as many as the limits allow."""

import errno
import logging
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from logstore import StoreError

from .addresses import Address
from .connection import close_stream, words_of
from .entrance import HANDSHAKE_S, Entrance, Refused
from .gate import Gate, Slot, TooManyConnectionsError
from .records import Direction
from .roster import Member, Roster

log = logging.getLogger(__name__)

BACKLOG: Final = 128
SAID_SOON_S: Final = 0.05
"""A caller's first bytes follow his connection at once."""
LOOKED_AT_MAX: Final = 256
"""Connections that are waited for so long, without a place: what they take is a descriptor each."""


class CannotListenError(Exception):
    """An address cannot be listened on; the text is one line for people."""


async def open_listeners(address: Address) -> list[trio.SocketListener]:
    """Binds a host's addresses, all at the same port if it is to be picked (port 0).

    Raises CannotListenError.
    """
    try:
        if address.path:
            return [await open_unix_listener(address.path)]
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        if address.port == 0 and len(listeners) > 1:
            # Each has picked a port of its own: bind them all to the first one's.
            port = address_of(listeners[0]).port
            for listener in listeners:
                await listener.aclose()
            listeners = await trio.open_tcp_listeners(port, host=address.host)
    except OSError as error:
        raise CannotListenError(f"cannot listen on {address}: {words_of(error)}") from None
    except UnicodeError:
        raise CannotListenError(f"cannot listen on {address}: no host can have this name") from None
    return listeners


def address_of(listener: trio.SocketListener) -> Address:
    """Where a listener listens."""
    if listener.socket.family == socket.AF_UNIX:
        return Address.at_path(listener.socket.getsockname())
    host, port = listener.socket.getsockname()[:2]
    return Address(host, port)


async def open_unix_listener(path: str) -> trio.SocketListener:
    """Listens at a path, for this user alone (mode 0600). Raises OSError."""
    await _remove_left_over(path)
    listening = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await listening.bind(path)
        # Nobody comes in between: before `listen` every call is refused.
        await trio.Path(path).chmod(0o600)
        listening.listen(BACKLOG)
        return trio.SocketListener(listening)
    except BaseException:
        listening.close()
        raise


async def _remove_left_over(path: str) -> None:
    """Removes the socket of a process that was killed; never one at which somebody listens."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK((await trio.Path(path).lstat()).st_mode):
            raise OSError(errno.EEXIST, "there is a file that is no socket", path)
        if _is_bound(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
        await trio.Path(path).unlink()


def _is_bound(path: str) -> bool:
    """Whether a socket belongs to a process that lives. Raises OSError if that cannot be known.

    Asked with a socket of the other kind: the answer comes from the system alone, so that whoever
    listens there takes no caller who has gone before he has said anything.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:
                raise
    return True


def clean_up(address: Address) -> None:
    """Removes what an ended listener leaves behind: a socket's file does not go by itself."""
    if address.path:
        with suppress(OSError):
            Path(address.path).unlink()


class Reception:
    """Runs the connections that came in."""

    def __init__(self, roster: Roster, gate: Gate, entrance: Entrance) -> None:
        self._roster = roster
        self._gate = gate
        self._entrance = entrance
        self._looked_at = 0

    async def welcome(self, stream: trio.SocketStream, *, tls: bool) -> None:
        """Runs an accepted connection, if it may stay. Raises nothing."""
        peer = None
        with suppress(OSError):  # it has gone already
            if stream.socket.family == socket.AF_UNIX:
                # Who calls has no address there; all of them are of this machine.
                peer = Address.at_path(stream.socket.getsockname())
            else:
                peer = Address(*stream.socket.getpeername()[:2])
        if peer is None or await self._has_hung_up(stream):
            await close_stream(stream)
        else:
            await self.run(stream, peer.host, str(peer), tls=tls)

    async def _has_hung_up(self, stream: trio.SocketStream) -> bool:
        """Whether a caller is gone before he has said anything.

        He takes none of what his address is given, else a thousand such calls a second would keep
        out whoever has the same address: of a hundred of his own some seven would be let in.
        """
        if self._looked_at >= LOOKED_AT_MAX:
            return False
        self._looked_at += 1
        try:
            with trio.move_on_after(SAID_SOON_S):
                return not await stream.socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True
        finally:
            self._looked_at -= 1
        return False

    async def run(self, stream: trio.abc.Stream, host: str, address: str, *, tls: bool) -> None:
        """Runs a connection that came from a host, if it may stay."""
        if self._roster.pausing.holds():
            await close_stream(stream)
            return
        taken_s = trio.current_time()
        member: Member | None = None

        def give_way(reason: str) -> None:
            if member is None:
                self._entrance.refused(Refused.LIMIT, reason, address)
                scope.cancel()
            else:
                member.connection.give_way(reason)

        slot: Slot | None = None
        with trio.CancelScope() as scope:
            try:
                slot = self._gate.enter(host, taken_s, give_way)
                admitted: trio.abc.Stream | None = stream
                if tls:
                    until_s = taken_s + HANDSHAKE_S
                    admitted = await self._entrance.admit(stream, host, address, until_s)
                if admitted is None:
                    return
                if not self._entrance.knows(admitted):
                    self._gate.count_stranger(slot)
                member = self._make(admitted, address, slot, taken_s)
                await self._roster.run(member)
            except TooManyConnectionsError as reason:
                self._entrance.refused(Refused.LIMIT, str(reason), address)
                await close_stream(stream)
            except StoreError as error:
                log.warning("a connection from %s was closed: %s", address, error)
                await close_stream(stream)
            except Exception as error:  # noqa: BLE001 - no other connection is to notice
                self._roster.fault(f"a connection from {address}", error)
                await close_stream(stream)
            finally:
                if slot is not None:
                    slot.leave()
        if scope.cancelled_caught:
            await trio.aclose_forcefully(stream)

    def _make(self, stream: trio.abc.Stream, address: str, slot: Slot, taken_s: float) -> Member:
        def established() -> None:
            slot.established(lambda: member.is_useful)

        member = self._roster.make(
            stream, Direction.INCOMING, address, on_established=established, taken_s=taken_s
        )
        return member
