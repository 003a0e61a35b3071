"""The hostile side of an attack: its keys, its connections, and what it has done."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio
from nacl.signing import SigningKey

from bench.support.logs import signed_log
from logstore import NewEntry
from peer.node.doors.tls import Identity, TlsStream
from peer.node.doors.trouble import HandshakeError
from wire import LogKey, encode_metadata_packet, encode_payload_header

from .line import Line, LineEndedError, Pace, RefusedError

RECONNECTS_PER_S: Final = 10.0
"""As many as one address gets (docs/limits.md); loopback would get eight times that."""
BYTES_PER_S: Final = 8 * 1024 * 1024
PORTS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Orders:
    """What a hostile process is started with."""

    attack: str
    host: str
    port: int
    seed: str
    """Of its key, in hex."""
    node_id: str
    """Whom it calls over TLS, in hex; empty: without TLS."""
    connections: int
    held: str
    """A log that the node holds: its author, in hex."""
    entries: int
    """How many entries that log has."""
    seconds: float
    """About how long the attack will last."""


Play = Callable[[Line, int], Awaitable[None]]


class Hostile:
    """What attacks are made with."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.connections = orders.connections
        self.key = SigningKey(bytes.fromhex(orders.seed))
        self.rng = random.Random(orders.seed)
        self.counts: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.gone_s: list[float] = []
        """How long each connection lasted that the node ended."""
        self.ports: set[int] = set()
        self.pace = Pace(BYTES_PER_S, 1 << 20)
        self.reconnects = Pace(RECONNECTS_PER_S, orders.connections)
        self.prepared: list[list[bytes]] = []
        """What each connection sends, made before the attack began."""
        self._identity = Identity(self.key) if orders.node_id else None

    @property
    def held(self) -> LogKey:
        """A log that the node holds."""
        return LogKey(bytes.fromhex(self.orders.held), 0)

    async def socket(self) -> trio.SocketStream:
        """A bare connection. Raises LineEndedError."""
        try:
            stream = await trio.open_tcp_stream(self.orders.host, self.orders.port)
        except OSError as error:
            self.counts["not_connected"] += 1
            raise LineEndedError(f"not connected: {error.__class__.__name__}") from None
        self.counts["opened"] += 1
        if len(self.ports) < PORTS_MAX:
            self.ports.add(stream.socket.getsockname()[1])
        return stream

    async def call(self) -> Line:
        """A connection, with TLS if the node wants it. Raises LineEndedError."""
        stream: trio.abc.Stream = await self.socket()
        if self._identity is not None:
            tls = TlsStream(stream, self._identity, server=False)
            try:
                await tls.do_handshake()
            except (HandshakeError, trio.BrokenResourceError) as error:
                await trio.aclose_forcefully(stream)
                raise LineEndedError(f"TLS: {error}") from None
            stream = tls
        return Line(stream, self.pace, self.counts)

    async def once(self, play: Play, index: int = 0, *, listens: bool = True) -> str:
        """One connection from its beginning to its end; returns how it ended."""
        began = trio.current_time()
        try:
            line = await self.call()
        except LineEndedError as error:
            self.ends[str(error)] += 1
            return str(error)
        reason = "left"
        try:
            async with trio.open_nursery() as nursery:
                if listens:
                    nursery.start_soon(line.listen)
                await play(line, index)
                nursery.cancel_scope.cancel()
        except* LineEndedError as group:
            reason = str(_first(group))
        except* RefusedError as group:
            reason = f"cancelled with {_first(group)}"
        finally:
            await line.close()
        if reason != "left":
            self.gone_s.append(trio.current_time() - began)
        self.ends[reason] += 1
        return reason

    async def again(self, play: Play, index: int = 0, *, listens: bool = True) -> None:
        """One connection after the other, as often as one address may come."""
        while True:
            await self.reconnects.take(1)
            await self.once(play, index, listens=listens)

    async def crowd(self, play: Play, *, listens: bool = True, again: bool = True) -> None:
        """All connections side by side."""
        each = self.again if again else self._once_and_wait
        async with trio.open_nursery() as nursery:
            for index in range(self.connections):
                nursery.start_soon(partial(each, play, index, listens=listens))

    async def _once_and_wait(self, play: Play, index: int, *, listens: bool) -> None:
        await self.once(play, index, listens=listens)
        await trio.sleep_forever()

    # Logs

    def stranger(self) -> SigningKey:
        """A key that nobody has seen."""
        return SigningKey(self.rng.randbytes(32))


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    """The first error of a group, however deep."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def log_of(key: SigningKey, log_id: int = 0) -> LogKey:
    """A log of a key."""
    return LogKey(bytes(key.verify_key), log_id)


def entries_of(
    key: SigningKey, count: int, payload: Callable[[int], bytes], log_id: int = 0
) -> list[NewEntry]:
    """A valid log."""
    return signed_log(key, log_id, (payload(seq) for seq in range(1, count + 1)))


def metadata_of(entry: NewEntry, log_id: int = 0) -> bytes:
    """The packet of an entry, of one that comes behind all earlier ones."""
    return encode_metadata_packet(entry.encoded, log_id, entry.seq, with_backlink=False)


def packets_of(entry: NewEntry, log_id: int = 0) -> bytes:
    """Metadata and the whole payload."""
    assert isinstance(entry.payload, bytes)
    return metadata_of(entry, log_id) + encode_payload_header(len(entry.payload)) + entry.payload
