"""What all connections of a node share: its state machines, and the one lock under which they move.

The machines ask the store what is held, hundreds of times for an offer, and write down what is
recorded before they go on. So they run in threads and not in the event loop, one step at a time: a
disk that is slow holds up what is synced, and nobody else in the process. What a step leads to is
done in the event loop, in its order. Chunks are read and written outside of the lock.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from gateways import LogHost
from gateways.reading import CodecError
from gateways.swarm.bmt import Chunk, Kind, span_of
from gateways.swarm.client import is_of_use
from gateways.swarm.codec import SYNC, Message, Stream, read_bin_key
from gateways.swarm.commands import Keep, Read, Save, Send
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.intervals import Intervals, decode_intervals
from gateways.swarm.keys import overlay_of
from gateways.swarm.link import Identity
from gateways.swarm.neighbour import Known, Neighbour
from gateways.swarm.peers import Arrived, Done, Dropped, Peers, Synced, cannot_go_on
from gateways.swarm.sources import BAD_KEY, FailedError, Source, UnavailableError
from logstore import StoreError
from peer.node import Observer

from .bins import Bins
from .keeping import Keeper
from .wishes import PREFIX as WISHES

log = logging.getLogger(__name__)

READS_MAX: Final = 2
"""Peers for whom chunks are read at once: the store has megabytes for each that reads."""
_FAILED_S: Final = 1.0
_TURN_S: Final = 0.02
"""So long the messages of one peer are taken in one go."""
_SOON_S: Final = 0.01
"""What is due again at once is not looked at sooner."""


class Talk(Protocol):
    """The connection of a peer."""

    def read_later(self, asked: Read) -> None:
        """Has chunks read once there is room for them."""

    def stirred(self) -> None:
        """There may be something to send."""

    def fail(self, error: RefusedError) -> None:
        """The connection is to end."""


_Command = tuple[Neighbour | None, Done]


class _Stepped(NamedTuple):
    """What came of a step."""

    done: list[_Command]
    due: float | None
    depth: int
    is_synced: bool
    storage: StoreError | None
    error: Exception | None


class _Failing:
    """A source in the store, as a server asks for it."""

    def __init__(self, source: Source, asking: Callable[[], AbstractContextManager[None]]) -> None:
        self._source = source
        self._asking = asking

    @property
    def newest(self) -> int:
        return self._source.newest

    def addresses(self, first: int, last: int, count: int) -> list[bytes]:
        with self._asking():
            return self._source.addresses(first, last, count)

    def holds(self, address: bytes) -> bool:
        with self._asking():
            return self._source.holds(address)


class _Wait:
    """Somebody waits for a chunk."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.chunk: bytes | None = None


class Hub:
    """A node without its sockets. `run` has to be running."""

    def __init__(
        self,
        host: LogHost,
        bins: Bins,
        identity: Identity,
        *,
        chunks_max: int,
        observer: Observer,
    ) -> None:
        self.host: Final = host
        self.identity = identity
        """Who we say that we are; its underlay is that of the last address listened at."""
        self.observe: Final = observer
        self._bins = bins
        self._peers = Peers(
            identity.overlay, {SYNC: self._open_bin}, self._holds, is_light=identity.is_light
        )
        self.keeper: Final = Keeper(
            host, bins, chunks_max, self._kept, self._pause, self._tell_full
        )
        self._lock = trio.Lock()
        self._reading = trio.CapacityLimiter(READS_MAX)
        self._talks: dict[Neighbour, Talk] = {}
        self._due: float | None = None
        self._timed = trio.Event()
        self._grown = trio.Event()
        self._moved = trio.Event()
        self._was_synced = False
        self._storage: StoreError | None = None
        """What has failed in the step that runs."""
        self.depth = 0
        """The node's depth, as of the last step."""
        self.is_synced = False
        """Whether all is here that the peers have, as of the last step."""
        self.unfinished = 0
        """Connections whose handshakes are under way."""

    @property
    def neighbours(self) -> list[Neighbour]:
        """The peers that are connected."""
        return [*self._talks]

    def is_connected(self, public: bytes) -> bool:
        """Whether the node of a key is a peer now."""
        return any(each.known.public == public for each in self._talks)

    @property
    def chunks(self) -> int:
        """How many chunks are held."""
        return self._bins.count()

    async def run(self, wished: Callable[[dict[str, bytes]], object]) -> None:
        """Until cancelled. `wished` is told what other processes want, by name."""

        def look() -> tuple[bool, dict[str, bytes]]:
            return self._bins.place(), self.host.store.recall_all(WISHES)

        def told(seen: tuple[bool, dict[str, bytes]]) -> None:
            has_grown, wishes = seen
            if has_grown:
                self._grown.set()
            wished(wishes)
            self._tell_moved()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keeper.run)
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._grow)
            nursery.start_soon(self.host.watch, look, told)

    async def moved(self) -> None:
        """Returns once anything has happened that may change how it stands."""
        await self._moved.wait()

    # Steps ---------------------------------------------------------------------------------------

    async def step(self, work: Callable[[float], object]) -> None:
        """Moves the machines. What `work` leads to is done, also where it has failed.

        Raises RefusedError and StoreError if `work` does.
        """
        async with self._lock:
            now = trio.current_time()
            stepped = await self.host.call(partial(self._work, work, now))
            for neighbour, each in stepped.done:
                self._carry_out(neighbour, each, now)
            self.depth, self.is_synced = stepped.depth, stepped.is_synced
            if stepped.storage is not None:
                self.host.storage_failed(stepped.storage)
            self._arm(stepped.due, now, is_failing=stepped.storage is not None)
        self._tell_moved()
        if stepped.error is not None:
            raise stepped.error

    async def _own_step(self, work: Callable[[float], object]) -> None:
        """`step`, of what is no peer's, and so ends nobody's connection."""
        try:
            await self.step(work)
        except Exception:
            # One machine's fault is to end nothing else.
            log.exception("a step of the Swarm node has failed")
            await trio.sleep(_FAILED_S)

    def _work(self, work: Callable[[float], object], now: float) -> _Stepped:
        """What other peers are to have of a step they have, however it ends."""
        error: Exception | None = None
        try:
            work(now)
        except FailedError as failed:
            error = cannot_go_on(failed)
        except Exception as raised:  # noqa: BLE001 - `step` raises it
            error = raised
        done = self._save(self._peers.commands(now))
        due, storage = self._peers.next_deadline(now), self._storage
        self._storage = None
        return _Stepped(done, due, self._peers.depth, self._peers.is_synced, storage, error)

    def _save(self, done: list[_Command]) -> list[_Command]:
        """Writes down what is recorded of peers, before anything is sent that relies on it.

        Under the address of its key, which nobody else can claim: who wrote into the record of
        another one would keep us from ever asking that for what it has. Where a record cannot be
        written, the connection ends before more is said on it.
        """
        rows: dict[Neighbour, list[tuple[str, str, str]]] = {}
        for neighbour, each in done:
            if neighbour is not None and isinstance(each, Save):
                rows.setdefault(neighbour, []).append((each.name, each.key, each.text))
        failed: dict[Neighbour, Dropped] = {}
        for neighbour, records in rows.items():
            try:
                self._bins.save(overlay_of(neighbour.known.public), records)
            except StoreError as error:
                self._storage = error
                refused = RefusedError(Reason.REQUESTED, f"what it gave is not recorded: {error}")
                failed[neighbour] = Dropped(refused)
        if not failed:
            return done
        kept = [(at, each) for at, each in done if at not in failed or not isinstance(each, Send)]
        return [*kept, *failed.items()]

    # What the machines ask -----------------------------------------------------------------------

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Where the store fails, what is asked cannot be said."""
        try:
            yield
        except StoreError as error:
            self._storage = error
            raise FailedError(str(error)) from error

    def _holds(self, address: bytes) -> bool:
        with self._asking():
            return self._bins.holds(address)

    def _open_bin(self, stream: Stream) -> Source:
        try:
            bin_ = read_bin_key(stream.key)
        except CodecError:
            raise UnavailableError(BAD_KEY) from None
        return _Failing(self._bins.source(bin_), self._asking)

    def _carry_out(self, neighbour: Neighbour | None, done: Done, now: float) -> None:
        talk = None if neighbour is None else self._talks.get(neighbour)
        match done:
            case Send(priority, message):
                if talk is not None and neighbour is not None:
                    try:
                        neighbour.queue.put(priority, message)
                    except RefusedError as error:
                        talk.fail(error)
                    talk.stirred()
            case Read():
                if talk is not None:
                    talk.read_later(done)
            case Keep(address, chunk):
                if not self.keeper.put(_chunk(address, chunk), is_own=False):
                    self._peers.lost([address], now)
            case Arrived(tag, address, chunk):
                assert isinstance(tag, _Wait)
                if chunk is not None:
                    self.keeper.put(_chunk(address, chunk), is_own=True)
                tag.chunk = chunk
                tag.over.set()
            case Dropped(error):
                if talk is not None:
                    talk.fail(error)
            case Synced():
                assert neighbour is not None
                self._tell_synced(neighbour)
            case Save():
                pass

    def _arm(self, due: float | None, now: float, *, is_failing: bool) -> None:
        if due is not None:
            due = max(due, now + (_FAILED_S if is_failing else _SOON_S))
        is_sooner = due is not None and (self._due is None or due < self._due)
        self._due = due
        if is_sooner:
            self._timed.set()

    async def _keep_time(self) -> None:
        while True:
            self._timed = trio.Event()
            with trio.move_on_at(float("inf") if self._due is None else self._due):
                await self._timed.wait()
            if self._due is not None and trio.current_time() >= self._due:
                await self._own_step(self._peers.advance)

    # Peers ---------------------------------------------------------------------------------------

    async def join(self, known: Known, talk: Talk) -> Neighbour:
        """A peer's connection is open. Raises RefusedError for who is not to stay, StoreError."""
        recorded = await self.host.call(partial(self._recorded, overlay_of(known.public)))
        joined: list[Neighbour] = []

        def join(now: float) -> None:
            neighbour = self._peers.join(known, recorded, now)
            # What it is to be sent comes with this step.
            self._talks[neighbour] = talk
            joined.append(neighbour)

        await self.step(join)
        self.observe({"event": "connected", **known_fields(known)})
        return joined[0]

    def _recorded(self, overlay: bytes) -> dict[str, Intervals]:
        found: dict[str, Intervals] = {}
        for (name, key), text in self._bins.intervals(overlay).items():
            # A record that is damaged is none.
            with suppress(CodecError):
                if name == SYNC:
                    found[key] = decode_intervals(text)
        return found

    async def leave(self, neighbour: Neighbour) -> None:
        """A peer's connection is over."""
        del self._talks[neighbour]
        await self._own_step(partial(self._peers.leave, neighbour))

    async def receive(self, neighbour: Neighbour, messages: list[Message]) -> None:
        """A peer has said something. Raises RefusedError, which ends its connection."""

        left = deque(messages)

        def receive(now: float) -> None:
            until = time.monotonic() + _TURN_S
            while left:
                self._peers.receive(neighbour, left.popleft(), now)
                if time.monotonic() >= until:
                    return

        # In turns: of one who sends as many as he can, others wait for this one and no more.
        while left:
            await self.step(receive)

    async def read(self, neighbour: Neighbour, asked: Read) -> None:
        """Reads chunks that a peer has asked for, and puts them into its queue."""
        try:
            async with self._reading:
                chunks = await self.host.call(partial(self._read, asked.addresses))
        except StoreError as error:
            # They are passed over like those that have left: the peer asks others, or again.
            self.host.storage_failed(error)
            chunks = [None for _ in asked.addresses]
        neighbour.sent += sum(each is not None for each in chunks)
        await self.step(partial(self._peers.read, neighbour, asked.number, chunks))

    def _read(self, addresses: list[bytes]) -> list[bytes | None]:
        found = self._bins.read(addresses)
        passing = self._peers.passing
        return [
            passing.get(address) if chunk is None else chunk
            for address, chunk in zip(addresses, found, strict=True)
        ]

    def has_room(self) -> None:
        """The queue of a peer has room again, for what it is to be offered."""
        self._grown.set()

    # Chunks --------------------------------------------------------------------------------------

    async def chunk(self, address: bytes) -> bytes | None:
        """A chunk, from the store or from peers; None if nobody has it. Raises StoreError."""
        [held] = await self.host.call(partial(self._bins.read, [address]))
        # Of what can be part of no file somebody may have a better one.
        if held is not None and is_of_use(held):
            return held
        waiting = _Wait()
        await self.step(partial(self._peers.seek, address, waiting))
        try:
            await waiting.over.wait()
        finally:
            if not waiting.over.is_set():
                with trio.CancelScope(shield=True):
                    await self._own_step(lambda _: self._peers.give_up(address, waiting))
        if waiting.chunk is None:
            # It may have come otherwise while it was looked for.
            [waiting.chunk] = await self.host.call(partial(self._bins.read, [address]))
        return waiting.chunk

    async def _kept(self, kept: list[bytes], lost: list[bytes]) -> None:
        def kept_now(now: float) -> None:
            self._peers.lost(lost, now)
            self._peers.recorded(kept, now)
            self._peers.grown(now)

        await self._own_step(kept_now)

    async def _pause(self, is_paused: bool) -> None:
        await self._own_step(partial(self._peers.pause, is_paused))

    def _tell_full(self, chunks: int) -> None:
        self.observe({"event": "full", "chunks": chunks})

    async def _grow(self) -> None:
        while True:
            await self._grown.wait()
            self._grown = trio.Event()
            await self._own_step(self._peers.grown)
            await self.keeper.look()

    # How it stands --------------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """As JSON has it."""
        now = trio.current_time()
        return {
            "depth": self.depth,
            "fully_synced": self.is_synced,
            "peers": [
                {
                    **known_fields(each.known),
                    "proximity": each.proximity,
                    "synced": each.is_synced,
                    "lag_s": 0.0 if each.is_synced else round(now - each.since, 1),
                    "received": each.client.received,
                    "sent": each.sent,
                    "duplicates": each.client.ignored,
                }
                for each in self._talks
            ],
        }

    def _tell_synced(self, neighbour: Neighbour) -> None:
        self.observe(
            {
                "event": "synced",
                "overlay": neighbour.overlay.hex(),
                "chunks": neighbour.client.received,
                "bins": len(neighbour.wanting.bins),
            }
        )

    def _tell_moved(self) -> None:
        is_synced = self.is_synced
        if is_synced and not self._was_synced:
            self.observe({"event": "fully_synced"})
        self._was_synced = is_synced
        self._moved.set()
        self._moved = trio.Event()


def _chunk(address: bytes, encoded: bytes) -> Chunk:
    """One that was found valid; which kind it is shows in its span."""
    return Chunk(address, encoded, Kind.CONTENT if span_of(encoded) else Kind.FEED)


def known_fields(known: Known) -> dict[str, object]:
    """A peer as JSON has it."""
    return {
        "overlay": known.overlay.hex(),
        "enode": known.enode,
        "bamboo": known.has_bamboo,
        "light": known.is_light,
    }
