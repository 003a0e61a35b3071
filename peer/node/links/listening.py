"""Taking connections in, as many as the limits allow."""

import logging
from contextlib import suppress

import trio

from logstore import StoreError

from .addresses import Address
from .connection import close_stream, words_of
from .entrance import HANDSHAKE_S, Entrance, Refused
from .gate import Gate, Slot, TooManyConnectionsError
from .records import Direction
from .roster import Member, Roster

log = logging.getLogger(__name__)


class CannotListenError(Exception):
    """An address cannot be listened on; the text is one line for people."""


async def open_listeners(address: Address) -> list[trio.SocketListener]:
    """Binds a host's addresses, all at the same port if it is to be picked (port 0).

    Raises CannotListenError.
    """
    try:
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
        if address.port == 0 and len(listeners) > 1:
            # Each has picked a port of its own: bind them all to the first one's.
            port = address_of(listeners[0]).port
            for listener in listeners:
                await listener.aclose()
            listeners = await trio.open_tcp_listeners(port, host=address.host)
    except OSError as error:
        raise CannotListenError(f"cannot listen on {address}: {words_of(error)}") from None
    return listeners


def address_of(listener: trio.SocketListener) -> Address:
    """Where a listener listens."""
    host, port = listener.socket.getsockname()[:2]
    return Address(host, port)


class Reception:
    """Runs the connections that came in."""

    def __init__(self, roster: Roster, gate: Gate, entrance: Entrance) -> None:
        self._roster = roster
        self._gate = gate
        self._entrance = entrance

    async def welcome(self, stream: trio.SocketStream, *, tls: bool) -> None:
        """Runs an accepted connection, if it may stay. Raises nothing."""
        peer = None
        with suppress(OSError):  # it has gone already
            peer = Address(*stream.socket.getpeername()[:2])
        if peer is None:
            await close_stream(stream)
        else:
            await self.run(stream, peer.host, str(peer), tls=tls)

    async def run(self, stream: trio.abc.Stream, host: str, address: str, *, tls: bool) -> None:
        """Runs a connection that came from a host, if it may stay."""
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
