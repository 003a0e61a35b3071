"""The way in and the way out: TLS with both sides' keys, and who may stay (doors.md 2 to 4).

Everybody who is turned away is told so, and as little as that takes: by TLS's own alert as long as
the handshake lasts, then by the line `denied` (parting.py says why not more).

A call is refused in the same way: whoever answers has to be who was called, or be allowed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio
from msgspec import Struct

from logstore import Pauses, PeerRule, Sighting, Store, StoreError, wall_clock_us
from peer import InterestsChanged
from peer.node.doors.admission import Admission, Doors, ProvedStream
from peer.node.doors.sightings import Sightings
from peer.node.doors.trouble import HandshakeError, Trouble
from peer.node.host.store_host import StoreHost

from .addresses import Address, PeerAddress
from .connection import EndKind
from .dialling import CannotConnectError, PausedError, leads_to, open_stream
from .gate import place_of
from .parting import linger, turn_away
from .records import Observer
from .scoping import scoped

if TYPE_CHECKING:
    from peer.node.doors.tls import Identity

    from .neighbours import Neighbour

HANDSHAKE_S: Final = 10.0
"""For a handshake and the setup bytes together, from when a connection was taken."""
DENIED: Final = b"denied\n"
TELL_PEER_S: Final = 3600.0
TELL_REASON_S: Final = 60.0
TOLD_MAX: Final = 1024
"""Ids and reasons of which it is remembered that they were told: ids cost nothing to make."""


class Refused(StrEnum):
    """Why a caller was turned away; the `kind` of the event `refused`."""

    UNKNOWN = "unknown"
    BLOCKED = "blocked"
    CERTIFICATE = "certificate"
    NO_TLS = "no tls"
    LIMIT = "limit"


class _Told(Struct):
    at_s: float
    since: int = 0
    """How often it has happened since it was told."""


class Decided(Protocol):
    """What people have said of other peers."""

    @property
    def peers(self) -> Mapping[bytes, PeerRule]:
        """What is decided of each, by its id."""

    @property
    def pauses(self) -> Pauses:
        """With whom there is to be no connection for now."""


class Entrance:
    """Lets connections of a node in and out."""

    def __init__(
        self,
        host: StoreHost,
        doors: Doors,
        decided: Decided,
        nursery: trio.Nursery,
        observer: Observer,
    ) -> None:
        self._store: Store = host.store
        self._doors = doors
        self.admission = Admission(host.store.author, doors, decided.peers)
        self.pausing = self.admission.pausing
        self.pausing.take(decided.pauses)
        self._host = host
        self.sightings = Sightings(nursery, self._keep, wall_clock_us)
        self._observer = observer
        self.neighbours: list[Neighbour] = []
        """Who is announced in the local network (discovery.py)."""
        self.addresses: list[Address] = []
        """Where this node listens. Nobody is called there: who has all that this store has would
        say that all is in step."""
        self.served_at: list[Address] = []
        """Where another process serves this store; nor is anybody called there."""
        self._identity: Identity | None = None
        self._told: dict[str, _Told] = {}
        self.refusals: Counter[Refused] = Counter()
        """How often callers were turned away, each of them counted."""

    def take(self, decided: Decided) -> None:
        """Other rules and pauses are in force. Whom they let in no more is still there."""
        self.admission.take(decided.peers)
        self.pausing.take(decided.pauses)

    # By which address

    def listens_with_tls(self, address: Address) -> bool:
        """Whether who connects to an address has to prove who he is."""
        return self._doors.tls or not (self._doors.insecure or address.is_loopback)

    def calls_with_tls(self, target: PeerAddress) -> bool:
        """Whether who answers has to prove who he is."""
        if target.peer is not None:
            return True
        if target.tls is not None:
            return target.tls
        return self.listens_with_tls(target.address)

    def exactly(self, target: PeerAddress) -> PeerAddress:
        """The same, in full: whoever calls it later may have other defaults."""
        if target.peer is not None:
            return target._replace(greedy=None)
        return target._replace(greedy=None, tls=self.calls_with_tls(target))

    async def load_identity(self) -> "Identity":
        """What TLS needs of the node key. Raises KeyFileError if that is lost."""
        if self._identity is None:
            # Loading it is work for a disk, and TLS's libraries are for whoever uses them.
            self._identity = await trio.to_thread.run_sync(_make_identity, self._store)
        return self._identity

    # Out

    async def check_calls(self, targets: Iterable[PeerAddress]) -> None:
        """Raises KeyFileError if calling these, or whom the table of peers has an address of, takes
        a node key that is lost: each call would fail, again and again."""
        rules = self.admission.rules.values()
        by_rule = any(rule.allowed and rule.address is not None for rule in rules)
        if by_rule or any(map(self.calls_with_tls, targets)):
            await self.load_identity()

    async def call(self, target: PeerAddress) -> trio.abc.Stream:
        """A connection with whoever is to answer at an address. Raises CannotConnectError."""
        if self.pausing.holds():
            raise PausedError(target.address)
        if not self.calls_with_tls(target):
            return await self._open(target.address)
        from peer.node.doors.tls import TlsStream

        where = target.address
        try:
            identity = await self.load_identity()
            expects = await trio.to_thread.run_sync(expected_peer, self._store, target)
        except UnknownNameError as error:
            raise CannotConnectError(f"{where}: {error}") from None
        except StoreError as error:
            raise CannotConnectError(f"{where}: {error}", EndKind.STORAGE) from None
        if self.pausing.holds(expects):
            raise PausedError(where, expects)
        tls = TlsStream(
            await self._open(where),
            identity,
            server=False,
            expects=expects,
            blocks=self.admission.is_blocked,
        )
        try:
            with trio.fail_after(HANDSHAKE_S):
                await tls.do_handshake()
        except BaseException as error:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(tls)
            if isinstance(error, HandshakeError):
                raise CannotConnectError(f"{where}: {error}", EndKind(error.kind)) from None
            if isinstance(error, trio.TooSlowError):
                reason = f"{where}: the TLS handshake was not done in {HANDSHAKE_S:.0f} s"
                raise CannotConnectError(reason, EndKind.TIMEOUT) from None
            raise
        peer_id = tls.peer_id
        self.sightings.note(peer_id, str(where), place_of(where.host))
        if self.pausing.holds(peer_id):
            await turn_away(tls)
            raise PausedError(where, peer_id)
        if self.admission.rule_for(peer_id, expected=expects is not None) is None:
            await turn_away(tls)
            raise CannotConnectError(
                f"{where}: {peer_id.hex()} answers, whom this node has not allowed"
                f" (`peer allow` does, or call {peer_id.hex()}@{where})",
                EndKind.DENIED,
            )
        return tls

    async def _open(self, address: Address) -> trio.SocketStream:
        stream = await open_stream(address)
        if leads_to(stream, (*self.addresses, *self.served_at)):
            await trio.aclose_forcefully(stream)
            reason = f"{address}: this store itself is served there: call another node"
            raise CannotConnectError(reason, EndKind.WRONG_PEER)
        return stream

    # In

    async def admit(
        self, stream: trio.abc.Stream, host: str, address: str, until_s: float
    ) -> ProvedStream | None:
        """TLS over a stream that was taken from a host, if whoever is there may stay.

        Else it is told so, and the stream is closed. `until_s`: when it has to be done. Raises
        nothing but Cancelled and KeyFileError.
        """
        from peer.node.doors.tls import TlsStream

        identity = await self.load_identity()
        tls = TlsStream(stream, identity, server=True, blocks=self.admission.is_blocked)
        try:
            with trio.fail_at(until_s):
                await tls.do_handshake()
        except HandshakeError as error:
            self.refused(_kind_of(error), str(error), address)
            await linger(stream)
        except trio.TooSlowError:
            reason = f"the TLS handshake was not done in {HANDSHAKE_S:.0f} s"
            self.refused(Refused.NO_TLS, reason, address)
        except trio.ClosedResourceError:
            pass
        else:
            peer_id = tls.peer_id
            self.sightings.note(peer_id, address, place_of(host))
            if self.pausing.holds(peer_id):
                await turn_away(tls)
                return None
            if self.admission.rule_for(peer_id, expected=False) is not None:
                return tls
            # Whoever has been blocked since its certificate was looked at gets no line.
            if self.admission.is_blocked(peer_id):
                self.refused(Refused.BLOCKED, "is blocked", address, peer_id)
                await turn_away(tls)
            else:
                self.refused(Refused.UNKNOWN, "is not allowed", address, peer_id)
                await turn_away(tls, DENIED)
            return None
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)
        return None

    def scoped(self, stream: trio.abc.Stream, event: InterestsChanged) -> InterestsChanged:
        """What this node wants and offers, as far as whoever has proved to be there may know."""
        if not isinstance(stream, ProvedStream):
            return event
        rule = self.admission.rule_for(stream.peer_id, expected=stream.expects is not None)
        return scoped(event, stream.peer_id, rule)

    def knows(self, stream: trio.abc.Stream) -> bool:
        """Whether at the other end of a stream is a peer that was allowed."""
        return isinstance(stream, ProvedStream) and self.admission.knows(stream.peer_id)

    # Who was seen, and what is told of it

    async def _keep(self, seen: Mapping[bytes, Sighting]) -> None:
        try:
            await self._host.call(partial(self._store.peers.note_seen, seen))
        except StoreError:
            # A full disk is told of by whoever keeps logs. That somebody knocked is no loss.
            return

    def refused(
        self, kind: Refused, reason: str, address: str, peer_id: bytes | None = None
    ) -> None:
        """A caller was turned away: told of each id once an hour, else of each reason a minute."""
        self.refusals[kind] += 1
        now = trio.current_time()
        proved = None if peer_id is None else peer_id.hex()
        key, every_s = (
            (f"{kind} {reason}", TELL_REASON_S)
            if proved is None
            else (
                proved,
                TELL_PEER_S,
            )
        )
        told = self._told.pop(key, None)
        if told is not None and now < told.at_s + every_s:
            told.since += 1
            self._told[key] = told
            return
        count = 1 if told is None else told.since + 1
        self._told[key] = _Told(now)
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._observer(
            {
                "event": "refused",
                "address": address,
                "peer_id": proved,
                "kind": str(kind),
                "reason": reason,
                "count": count,
            }
        )


def _make_identity(store: Store) -> "Identity":
    from peer.node.doors.tls import Identity

    return Identity(store.signing_key())


def _kind_of(error: HandshakeError) -> Refused:
    kinds = {Trouble.BLOCKED: Refused.BLOCKED, Trouble.CERTIFICATE: Refused.CERTIFICATE}
    return kinds.get(error.kind, Refused.NO_TLS)


class UnknownNameError(Exception):
    """No peer has a name; the text is one line for people."""


def expected_peer(store: Store, target: PeerAddress) -> bytes | None:
    """The id of who is called; None: whoever is allowed. Raises UnknownNameError, StoreError."""
    if target.peer is None:
        return None
    named = store.names().get(target.peer)
    if isinstance(named, bytes):
        return named
    if named is not None:
        raise UnknownNameError(f"{target.peer} is a log, and no peer")
    try:
        return bytes.fromhex(target.peer)
    except ValueError:
        raise UnknownNameError(f"no peer is called {target.peer} (`peer list`)") from None
