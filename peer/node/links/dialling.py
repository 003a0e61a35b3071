"""Calling other peers, again and again."""

import random
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import Final

import trio

from .addresses import Address
from .backoff import Backoff
from .connection import EndKind, words_of
from .greedy import Greedy
from .records import ConnectionInfo, ConnectionState, Direction, Observer
from .roster import Member, Roster

Connect = Callable[[], Awaitable[trio.abc.Stream]]

CONNECT_TIMEOUT_S: Final = 10.0


WRONG_PEER_S: Final = 60.0
"""Who answers with another key than expected is not called again sooner, nor this node itself."""


class CannotConnectError(Exception):
    """Nobody answers at an address, or not whom it is for; the text is one line for people."""

    def __init__(self, reason: str, kind: EndKind = EndKind.UNREACHABLE) -> None:
        super().__init__(reason)
        self.kind = kind


class PausedError(CannotConnectError):
    """Nobody is called there for now, since everything is paused, or that peer."""

    def __init__(self, address: Address, peer_id: bytes | None = None) -> None:
        what = "all connections are" if peer_id is None else f"{peer_id.hex()} is"
        super().__init__(f"{address}: {what} paused (`resume` ends that)", EndKind.PAUSED)
        self.peer_id = peer_id


async def open_stream(address: Address) -> trio.SocketStream:
    """A connection without TLS. Raises CannotConnectError. Trio sets TCP_NODELAY on it."""
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            if address.path:
                return await trio.open_unix_socket(address.path)
            return await trio.open_tcp_stream(address.host, address.port)
    except trio.TooSlowError:
        raise CannotConnectError(f"{address}: no answer in {CONNECT_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise CannotConnectError(f"{address}: {words_of(error)}") from None
    except UnicodeError:
        # Name resolution is stricter about letters than what parses an address.
        raise CannotConnectError(f"{address}: no host can have this name") from None


def leads_to(stream: trio.SocketStream, addresses: Iterable[Address]) -> bool:
    """Whether a connection that was made from here is with who listens at one of these addresses of
    this machine."""
    try:
        theirs, ours = stream.socket.getpeername(), stream.socket.getsockname()
    except OSError:
        # It has ended already.
        return False
    if isinstance(theirs, str | bytes):
        return any(each.path == theirs for each in addresses if each.path)
    for each in addresses:
        if each.path or each.port != theirs[1]:
            continue
        # Of a connection with this machine both ends have one address, whichever it has.
        is_any = ip_address(each.host).is_unspecified
        if each.host == theirs[0] or (is_any and theirs[0] == ours[0]):
            return True
    return False


class Dialler:
    """Keeps one address connected, for as long as `run` runs.

    `greedy` goes for the connections that are made from now on; None: what the node has. `reached`
    is called with each connection that is established. `called`: how it is called, for people and
    for other processes; None: by no address.
    """

    def __init__(
        self,
        address: str,
        connect: Connect,
        roster: Roster,
        rng: random.Random,
        observer: Observer,
        greedy: Greedy | None = None,
        reached: Callable[[], None] = lambda: None,
        called: str | None = None,
    ) -> None:
        self._reached = reached
        self.called = called
        self.address = address
        self.greedy = greedy
        self._connect = connect
        self._roster = roster
        self._backoff = Backoff(rng)
        self._observer = observer
        self._scope = trio.CancelScope()
        self._member: Member | None = None
        self._state = ConnectionState.CONNECTING
        self._since_s = trio.current_time()
        self.last_error: str | None = None
        """Why the last connection came to nothing, or ended."""
        self._last_kind: EndKind | None = None
        self._attempts = 0
        self._retry_at_s: float | None = None
        self._stopping = False

    def stop(self) -> None:
        """Ends the connection in good order, if there is one, and calls no more."""
        self._stopping = True
        if self._member is None:
            self._scope.cancel()
        else:
            self._member.connection.close()

    @property
    def attempts(self) -> int:
        """Calls since the last connection."""
        return self._attempts

    @property
    def member(self) -> Member | None:
        """The connection, if there is one."""
        return self._member

    def info(self) -> ConnectionInfo:
        """How it stands with this address."""
        return ConnectionInfo(
            address=self.address,
            direction=Direction.OUTGOING,
            state=self._state,
            since_s=self._since_s,
            last_error=self.last_error,
            attempts=self._attempts,
            retry_at_s=self._retry_at_s,
        )

    async def run(self) -> None:
        """Calls until told to stop."""
        with self._scope:
            while True:
                await self._while_paused(None)
                await self._call()
                if self._stopping:
                    return
                delay_s = self._backoff.next_delay_s()
                if self._last_kind is EndKind.WRONG_PEER:
                    delay_s = max(delay_s, WRONG_PEER_S)
                self._enter(ConnectionState.WAITING)
                self._retry_at_s = self._since_s + delay_s
                await trio.sleep(delay_s)

    async def _while_paused(self, peer_id: bytes | None) -> None:
        if self._roster.pausing.holds(peer_id):
            self._enter(ConnectionState.PAUSED)
            self._retry_at_s = None
            await self._roster.pausing.until_over(peer_id)

    async def _call(self) -> None:
        self._enter(ConnectionState.CONNECTING)
        self._retry_at_s = None
        self._attempts += 1
        try:
            stream = await self._connect()
        except PausedError as error:
            self._attempts -= 1
            await self._while_paused(error.peer_id)
            return
        except CannotConnectError as error:
            self._failed(str(error), error.kind, told=False)
            return
        except Exception as error:  # noqa: BLE001 - no other connection is to notice
            self._roster.fault(f"a call to {self.address}", error)
            self._failed(f"internal error: {error!r}", EndKind.INTERNAL, told=False)
            return
        member = self._member = self._roster.make(
            stream,
            Direction.OUTGOING,
            self.address,
            greedy=self.greedy,
            on_established=self._reached,
        )
        try:
            ending = await self._roster.run(member)
        finally:
            self._member = None
        answered = member.established.is_set()
        if answered:
            self._attempts = 0
            counts = member.connection.session.statistics()
            moved = counts.bytes_received + counts.bytes_sent if ending.kind is EndKind.LOST else 0
            self._backoff.connected_for(trio.current_time() - member.since_s, moved)
        if ending.kind is EndKind.CLOSED:
            self.last_error = self._last_kind = None
        else:
            self._failed(ending.reason, ending.kind, member.peer_id, told=answered)

    def _enter(self, state: ConnectionState) -> None:
        self._state = state
        self._since_s = trio.current_time()

    def _failed(
        self, reason: str, kind: EndKind, peer_id: bytes | None = None, *, told: bool
    ) -> None:
        """Remembers why, and says so unless that was said already."""
        if not told and reason != self.last_error:
            self._observer(
                {
                    "event": "connect_failed",
                    "address": self.address,
                    "peer_id": None if peer_id is None else peer_id.hex(),
                    "kind": str(kind),
                    "reason": reason,
                }
            )
        self.last_error, self._last_kind = reason, kind
