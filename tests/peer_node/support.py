"""What the tests of this folder share: an author who signs, and a session's end of a store host."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio
from nacl.signing import SigningKey

from logstore import Store
from peer import (
    Command,
    Event,
    Ingest,
    Ingested,
    IngestItem,
    LogChanged,
    OpenPayload,
    SessionConfig,
)
from peer.api import NodeConfig, Peer, SyncError, memory_link
from peer.node.fairness import Account
from peer.node.host.port import Port
from peer.node.host.store_host import StoreHost
from peer.node.host.verifier import Verifier
from tests.records import replace
from wire import LogKey, has_distinct_lipmaalink, lipmaa, sign_entry, yamf_hash

PATIENCE_S = 30
E = TypeVar("E", bound=Event)


class Author:
    """Signs the entries of one log, in memory."""

    def __init__(self, seed: int = 1, log_id: int = 0) -> None:
        self._key = SigningKey(bytes([seed]) * 32)
        self.log = LogKey(bytes(self._key.verify_key), log_id)
        self.encoded: dict[int, bytes] = {}
        self.payloads: dict[int, bytes] = {}

    def hash(self, seq: int) -> bytes:
        return yamf_hash(self.encoded[seq])

    def sign(self, seq: int, payload: bytes = b"", *, is_end: bool = False) -> bytes:
        """The encoding of an entry, which later ones link to."""
        encoded = sign_entry(
            self._key,
            log_id=self.log.log_id,
            seq=seq,
            is_end=is_end,
            lipmaalink=self.hash(lipmaa(seq)) if has_distinct_lipmaalink(seq) else None,
            backlink=self.hash(seq - 1) if seq > 1 else None,
            payload_bytes=len(payload),
            payload_hash=yamf_hash(payload),
        )
        self.encoded[seq] = encoded
        self.payloads[seq] = payload
        return encoded

    def items(
        self, first: int, last: int, *, request: int = 1, payload: bool = True
    ) -> list[IngestItem]:
        """Entries as a session hands them in; those not signed yet are."""
        return [self.item(seq, request=request, payload=payload) for seq in range(first, last + 1)]

    def item(self, seq: int, *, request: int = 1, payload: bool = True) -> IngestItem:
        if seq not in self.encoded:
            self.sign(seq, b"payload %d" % seq)
        held = self.payloads[seq] if payload else None
        return IngestItem(request, self.log, [(seq, self.encoded[seq], self.hash(seq), held)])

    def open_payload(self, seq: int = 1, sink: int = 1, offset: int = 0) -> OpenPayload:
        """A session begins to bring the payload of an entry."""
        digest = self.encoded[seq][-130:-64]
        return OpenPayload(sink, self.log, seq, len(self.payloads[seq]), digest, offset)


def spoiled(item: IngestItem) -> IngestItem:
    """The item, of one entry, with a wrong signature, and the hash that goes with it."""
    [(seq, encoded, _, payload)] = item.entries
    encoded = encoded[:-1] + bytes([encoded[-1] ^ 1])
    return replace(item, entries=[(seq, encoded, yamf_hash(encoded), payload)])


def run_of(items: Sequence[IngestItem]) -> IngestItem:
    """Items as a session hands in what has come together: as one."""
    return replace(items[0], entries=[entry for item in items for entry in item.entries])


class Client:
    """A session's end of a host: what it was told, and waiting for it."""

    def __init__(self, host: StoreHost, source: str = "a peer") -> None:
        self.events: list[Event] = []
        self.payers: list[Account | None] = []
        """Who pays for what follows from each event; None: the session."""
        self.failures: list[Exception] = []
        self._host = host
        self._told = trio.lowlevel.ParkingLot()
        self.port: Port = host.open_port(source, self._deliver, self.failures.append)

    def _deliver(self, events: Sequence[Event], payer: Account | None = None) -> None:
        self.events.extend(events)
        self.payers.extend(payer for _ in events)
        self._told.unpark_all()

    def submit(self, *commands: Command) -> None:
        if answers := self._host.submit(self.port, commands):
            self._deliver(answers)

    async def wait_for(self, kind: type[E], count: int = 1) -> E:
        """The latest event of a kind once there are so many."""
        with trio.fail_after(PATIENCE_S):
            while len(found := self.of(kind)) < count:
                await self._told.park()
        return found[-1]

    async def hear(self, fits: Callable[[LogChanged], bool]) -> None:
        """Returns once news have come that fit. They come behind the replies: in a turn that others
        may have before, and where a log has changed again, as the later ones alone."""
        with trio.fail_after(PATIENCE_S):
            while not any(map(fits, self.of(LogChanged))):
                await self._told.park()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def running_host(
    store: Store, *, workers: int = 0, poll_s: float = 0.001
) -> AsyncIterator[StoreHost]:
    verifier = Verifier(workers)
    host = StoreHost(store, verifier, poll_s=poll_s)
    async with trio.open_nursery() as nursery:
        await nursery.start(verifier.run)
        await nursery.start(host.run)
        yield host
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def host_without_payload(
    payload: bytes,
) -> AsyncIterator[tuple[Store, StoreHost, Author, Client]]:
    """A host that holds entry 1, whose payload is to come, and the session that brought it."""
    author = Author()
    author.sign(1, payload)
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            client.submit(Ingest([author.item(1, payload=False)]))
            await client.wait_for(Ingested)
            client.events.clear()
            yield store, host, author, client


async def synced(
    giver: Store, taker: Store, *, session: SessionConfig | None = None
) -> SyncError | None:
    """The taker syncs once with the giver, a node: how that failed, None if it did not."""
    failure = None
    config = NodeConfig(workers=0, poll_s=1.0, session=session or SessionConfig())
    here, there = memory_link()
    async with (
        Peer(giver, config=config) as one,
        Peer(taker, config=config) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: one.serve_stream(here, proactive=False))
        try:
            await other.sync(there)
        except SyncError as error:
            failure = error
        nursery.cancel_scope.cancel()
    return failure
