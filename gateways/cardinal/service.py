"""`CardinalProducer` and `CardinalConsumer`: blocks into logs, and updates out of them, in Trio."""

import threading
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import trio

from gateways import LogHost, Running, WriterLock
from gateways.cardinal.codec import NUMBER_MAX, Ping, encode_message
from gateways.cardinal.content import Content
from gateways.cardinal.declared import DEFAULT_TOPIC, Router
from gateways.cardinal.headers import THRESHOLD, Head, Header
from gateways.cardinal.headers import TooDeep as TooDeepBranch
from gateways.cardinal.producing import Block
from gateways.cardinal.progress import Progress
from gateways.cardinal.tracking import Tracking
from logstore import ALL, Seldom, Store, StoreError
from peer.api import Peer
from peer.node import Observer, unobserved
from wire import LogKey

from .consuming import Consuming, Found, ReorgSaid, Said, Updated, read_state
from .logs import (
    TOGETHER_BYTES_MAX,
    TOGETHER_ENTRIES_MAX,
    NotAStream,
    Settings,
    Stream,
    create_stream,
    lock_name,
    own_stream,
    stream_of,
)
from .side import BadEvent, ConflictEvent, Side, View
from .why import Reasons, reasons
from .writing import Call, SubBatch, Writer

T = TypeVar("T")

DONE_REMEMBERED_S: Final = 60.0


# Producing ---------------------------------------------------------------------------------------


class _Waiting:
    """Calls that are signed together."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.error: Exception | None = None

    @property
    def is_full(self) -> bool:
        entries = sum(call.entries for call in self.calls)
        return entries >= TOGETHER_ENTRIES_MAX or (
            sum(call.bytes for call in self.calls) >= TOGETHER_BYTES_MAX
        )


class CardinalProducer(Running):
    """Writes the blocks of a chain into logs of the node's own author, inside `async with`.

    The stream is made where there is none: `patterns` are (pattern, topic), `log_id` that of the
    default topic. `skip_seen`: blocks that another producer of the chain has written in full are
    left out. `ping_s`: how often it is written that this producer lives, None never. Entering
    raises NotAStream where the chain is there with other settings, StoreLocked where another
    process writes it, DeclarationError and ValueError for what cannot be declared, StoreError.
    """

    def __init__(
        self,
        peer_or_store: Peer | Store,
        chain: str,
        *,
        patterns: Iterable[tuple[str, str]] = (),
        default: str = DEFAULT_TOPIC,
        threshold: int = THRESHOLD,
        log_id: int | None = None,
        skip_seen: bool = False,
        ping_s: float | None = None,
        observer: Observer = unobserved,
    ) -> None:
        super().__init__()
        self._host = LogHost(peer_or_store, observer)
        self._settings = Settings(chain, default, tuple(patterns), threshold)
        self._log_id = log_id
        self._skip_seen = skip_seen
        self._ping_s = ping_s
        self._making = trio.Lock()
        """Held while the writer is asked: what it says depends on what it said before."""
        self._signing = trio.Lock()
        self._next = _Waiting()
        self._side: Side
        self._writer: Writer | None = None
        self.stream: Stream

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        host = self._host
        create = partial(create_stream, host.store, host.sign, self._settings, log_id=self._log_id)
        self.stream = await host.call(create)
        what = f"another process writes the stream {self.stream.key}"
        with WriterLock(host.store.path, lock_name(self.stream), what):
            self._side = Side(host.store, Seldom(trio.current_time))
            try:
                await self._opened()
                async with trio.open_nursery() as nursery:
                    if self._ping_s is not None:
                        nursery.start_soon(self._ping, self._ping_s)
                    yield
                    nursery.cancel_scope.cancel()
            finally:
                self._side.close()

    async def _opened(self) -> Writer:
        if self._writer is None:
            self._writer = await self._host.call(
                partial(
                    Writer,
                    self._host.store,
                    self._side,
                    self.stream,
                    skips_seen=self._skip_seen,
                )
            )
        return self._writer

    async def add_block(
        self, block: Block, batches: Mapping[bytes, SubBatch] | None = None
    ) -> Call:
        """Writes a block, and those of its sub-batches that are given, by id.

        Returns once it is on disk. `Call.already`: it was written before. Raises BlockRefused,
        StoreError.
        """
        return await self._written(lambda writer: writer.add_block(block, batches))

    async def send_batch(
        self,
        hash_: bytes,
        batch: bytes,
        *,
        values: Mapping[str, bytes] | None = None,
        deletes: Collection[str] = (),
    ) -> Call:
        """Writes a sub-batch that a block has named. Raises BlockRefused, StoreError."""
        content = SubBatch(values or {}, deletes)
        return await self._written(lambda writer: writer.send_batch(hash_, batch, content))

    async def _written(self, make: Callable[[Writer], Call]) -> Call:
        """What a call makes, once it is on disk."""
        async with self._making:
            while True:
                writer = await self._opened()
                call = await self._host.call(partial(make, writer))
                # What it wrote may have failed meanwhile: then it believes what is not so.
                if writer is self._writer:
                    break
            waiting = self._wait_with(call)
        await self._sign(waiting)
        return call

    @asynccontextmanager
    async def reorg(self, number: int, ancestor: bytes) -> AsyncIterator[None]:
        """From a common ancestor on the chain is another one: what is written in the block.

        A block that is left by an exception leaves it open, and so does a crash: entered again with
        the same ancestor it goes on. Raises BlockRefused where another one is open, StoreError.
        """
        async with self._making:
            # What was written before it is on disk before it.
            await self._sign(self._next)
            async with self._signing:
                writer = await self._opened()
                begin = partial(writer.begin_reorg, self._host.sign, number, ancestor)
                await self._host.call(begin)
        yield
        async with self._making:
            await self._sign(self._next)
            async with self._signing:
                writer = await self._opened()
                await self._host.call(partial(writer.end_reorg, self._host.sign))

    async def latest(self) -> int | None:
        """The highest number in any Batch of the chain that is held here. Raises StoreError."""
        async with self._making:
            writer = await self._opened()
            return await self._host.call(writer.newest)

    def _wait_with(self, call: Call) -> _Waiting:
        if call.batches:
            self._next.calls.append(call)
        return self._next

    async def _sign(self, waiting: _Waiting) -> None:
        """Returns once what waits together is on disk: one of them signs for all. Raises."""
        async with self._signing:
            if waiting is self._next and waiting.calls and waiting.error is None:
                self._next = _Waiting()
                batches = [each for call in waiting.calls for each in call.batches]
                # Cancelled or not, the others learn what became of it.
                with trio.CancelScope(shield=True):
                    try:
                        await self._host.append_many(batches)
                    except Exception as error:  # noqa: BLE001 - it is raised to all that wait
                        self._fail(waiting, error)
                    if self._writer is not None:
                        await self._host.call(self._writer.signed)
        if waiting.error is not None:
            raise waiting.error

    def _fail(self, waiting: _Waiting, error: Exception) -> None:
        """What the writer believes to have written it has not, and nor what was made since."""
        waiting.error, self._writer = error, None
        if self._next is not waiting:
            self._next.error, self._next = error, _Waiting()

    async def _ping(self, every_s: float) -> None:
        message = encode_message(Ping(self.stream.key.author, b""))
        while True:
            await trio.sleep(every_s)
            async with self._making:
                writer = await self._opened()
                waiting = self._wait_with(writer.say(*message))
            try:
                await self._sign(waiting)
            except StoreError as error:
                self._host.storage_failed(error)


# Consuming ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Event:
    """Something that a consumer is told; `done` once it is dealt with."""

    _consumer: "CardinalConsumer" = field(repr=False, compare=False)
    _progress: Progress | None = field(repr=False, compare=False)

    def done(self) -> None:
        """It is dealt with, and so is everything before it: `CardinalConsumer.state` goes on."""
        self._consumer._done(self, self._progress)  # noqa: SLF001 (they are one)


@dataclass(slots=True)
class Update(Event):
    """The chain has changed: undo `removed` from its end, then apply `added`, oldest first."""

    added: tuple[Header, ...] = ()
    removed: tuple[tuple[int, bytes], ...] = ()
    """Number and hash of each."""


@dataclass(slots=True)
class Reorg(Event):
    """A producer has set the head back to a common ancestor."""

    number: int = 0
    hash: bytes = b""


@dataclass(slots=True)
class Conflict(Event):
    """Producers disagree about a block."""

    hash: bytes = b""
    key: bytes = b""
    producers: tuple[bytes, ...] = ()
    """Their authors."""


@dataclass(slots=True)
class TooDeep(Event):
    """A branch is heavier, and is not followed: more blocks would be taken back than may be."""

    number: int = 0
    hash: bytes = b""


@dataclass(slots=True)
class BadMessage(Event):
    """A message, or the rest of a payload, breaks a rule."""

    log: LogKey | None = None
    seq: int = 0
    index: int = 0
    reason: str = ""


@dataclass(slots=True)
class Ready(Event):
    """All that was held when the consumer began is told."""

    head: Head | None = None


class _Some(AsyncIterator[T]):
    """What comes some at a time, until None comes. Unlike a generator it may be left anywhere."""

    def __init__(self, more: Callable[[], Awaitable[Sequence[T] | None]]) -> None:
        self._more = more
        self._waiting: deque[T] = deque()

    async def __anext__(self) -> T:
        while not self._waiting:
            found = await self._more()
            if found is None:
                raise StopAsyncIteration
            self._waiting.extend(found)
        return self._waiting.popleft()


class CardinalConsumer(Running):
    """Tells how a chain changes, inside `async with`.

    `streams`: their default topics' logs, or `AUTHOR/LOG`, or an own chain's name, in the order of
    preference. `start`: behind which block it begins. `state`: what `state` was, instead.
    `tracked`: expressions, one of which has to be found in the key of an item. `topics`: besides
    the default one, None all. Entering raises NotAStream, ProducersDisagree, HistoryGone,
    PatternError, StateError, StoreError.
    """

    def __init__(
        self,
        peer_or_store: Peer | Store,
        streams: Sequence[LogKey | str],
        *,
        start: Head | None = None,
        state: bytes | None = None,
        tracked: Iterable[str] = (),
        topics: Iterable[str] | None = None,
        threshold: int | None = None,
        observer: Observer = unobserved,
    ) -> None:
        super().__init__()
        self._host = LogHost(peer_or_store, observer)
        if not streams:
            raise ValueError("no stream is named")
        self._streams = tuple(streams)
        self._start = start
        self._state = state
        self._tracked = tuple(tracked)
        self._topics = None if topics is None else tuple(topics)
        self._threshold = threshold
        self._lock = threading.Lock()
        """The event loop's threads ask one at a time."""
        self._news = trio.Event()
        self._is_ready = False
        self._followed: LogKey | None = None
        self._progress: Progress | None = None
        """Of the last event that was done."""
        self._was_done: dict[bytes | int, float] = {}
        self._done_news = trio.Event()
        self._side: Side
        self._consuming: Consuming

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._side = Side(self._host.store, Seldom(trio.current_time))
        try:
            self._consuming = await self._host.call(self._begin)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(self._host.watch, self._bring_on, self._tell))
                yield
                nursery.cancel_scope.cancel()
        finally:
            self._side.close()

    def _begin(self) -> Consuming:
        store = self._host.store
        streams = tuple(_stream(store, each) for each in self._streams)
        declared = streams[0].declared
        router = Router(declared.patterns, declared.default)
        view = View(streams, Tracking(router, self._tracked, self._topics))
        token, progress = None, None
        if self._state is not None:
            progress, token = read_state(store, self._state)
        return Consuming(
            store,
            self._side,
            view,
            start=self._start,
            token=token,
            progress=progress,
            threshold=self._threshold,
        )

    def _bring_on(self) -> None:
        with self._lock:
            self._consuming.bring_on()

    def _tell(self, _: None) -> None:
        self._news.set()

    # Events --------------------------------------------------------------------------------------

    def events(self) -> AsyncIterator[Event]:
        """What happens, for ever. Raises StoreError, HistoryGone."""
        return _Some(self._more)

    async def _more(self) -> list[Event]:
        # From here on whatever is committed is news.
        self._news = news = trio.Event()
        said = await self._host.call(self._take)
        if said is not None:
            events = map(self._event, said)
            return [each for each in events if each is not None]
        if not self._is_ready:
            self._is_ready = True
            return [Ready(self, None, self._consuming.head)]
        await news.wait()
        return []

    def _take(self) -> list[Said] | None:
        with self._lock:
            said = self._consuming.take()
            if said is None:
                # What came since it was brought on last is taken before it is waited for more.
                self._consuming.bring_on()
                said = self._consuming.take()
            self._follow_channel()
            return said

    def _follow_channel(self) -> None:
        """Has the store follow the channel of a reorganisation, which is taken next."""
        store, channel = self._host.store, self._consuming.channel
        if channel is None or channel == self._followed or channel.author == store.author:
            return
        self._followed = channel
        if not store.readonly and {ALL, channel, channel.author}.isdisjoint(store.follows()):
            store.follow(channel)

    def _event(self, said: Said) -> Event | None:
        match said:
            case Updated(added, removed, progress):
                return Update(self, progress, added, removed)
            case ReorgSaid(number, hash_):
                return Reorg(self, None, number, hash_)
            case TooDeepBranch(number, hash_):
                return TooDeep(self, None, number, hash_)
            case ConflictEvent(_, hash_, key, producers):
                return Conflict(self, None, hash_, key, producers)
            case BadEvent(_, log, seq, frame, reason):
                return BadMessage(self, None, log, seq, frame, reason)
            case Found():
                return None

    def _done(self, event: Event, progress: Progress | None) -> None:
        if progress is not None:
            self._progress = progress
        if isinstance(event, Update):
            now = trio.current_time()
            for known, at in [*self._was_done.items()]:
                if at >= now - DONE_REMEMBERED_S:
                    break
                del self._was_done[known]
            for header in event.added:
                for name in (header.hash, header.number):
                    self._was_done.pop(name, None)
                    self._was_done[name] = now
            self._done_news.set()
            self._done_news = trio.Event()

    # What may be asked ---------------------------------------------------------------------------

    async def state(self) -> bytes:
        """Where to go on behind the last update that was done. Raises StoreError."""

        def encoded() -> bytes:
            with self._lock:
                return self._consuming.state(self._progress or Progress(self._start))

        return await self._host.call(encoded)

    async def token(self) -> str:
        """The part of it that counts on every node. Raises StoreError."""

        def found() -> str:
            with self._lock:
                return self._consuming.token(self._progress or Progress(self._start))

        return await self._host.call(found)

    async def content(self, block: Header | bytes) -> Content:
        """What a block changes, by its header or its hash. Raises HistoryGone, StoreError."""
        hash_ = block if isinstance(block, bytes) else block.hash

        def read() -> Content:
            with self._lock:
                return self._consuming.content(hash_)

        return await self._host.call(read)

    def blocks(self) -> AsyncIterator[Header]:
        """All blocks that are complete, whether part of the chain or not. Raises StoreError."""
        at = 0

        async def more() -> list[Header] | None:
            nonlocal at
            view = self._consuming.view
            page = await self._host.call(partial(self._side.complete, view, at))
            at = page[-1].at if page else at
            return page or None

        return _Some(more)

    async def why(self, hash_: bytes) -> Reasons:
        """How it stands with a block. Raises StoreError."""

        def found() -> Reasons:
            with self._lock:
                return reasons(self._host.store, self._side, self._consuming, hash_)

        return await self._host.call(found)

    async def wait_for(self, block: bytes | int, timeout_s: float) -> str:
        """`success` once a block is given out and done, by its hash or its number.

        Else behind so many seconds `timeout` if a Batch of it is known, `not_found` if none is.
        """
        with trio.move_on_after(timeout_s):
            while not self._is_done(block):
                await self._done_news.wait()
            return "success"
        view = self._consuming.view
        if isinstance(block, bytes):
            row = await self._host.call(partial(self._side.block, view, block))
            rows = [row] if row is not None else []
        elif block > NUMBER_MAX:
            rows = []
        else:
            rows = await self._host.call(partial(self._side.blocks_of, view, block))
        return "timeout" if any(row.header is not None for row in rows) else "not_found"

    def _is_done(self, block: bytes | int) -> bool:
        at = self._was_done.get(block)
        return at is not None and at >= trio.current_time() - DONE_REMEMBERED_S

    async def producers(self, within_s: float) -> list[bytes]:
        """The authors of whom anything arrived lately. Raises StoreError."""

        def found() -> Iterator[bytes]:
            since = time.time_ns() // 1_000 - int(within_s * 1e6)
            for stream in self._consuming.view.streams:
                infos = map(self._host.store.log, stream.topics().values())
                if any(info and (info.newest_at or 0) >= since for info in infos):
                    yield stream.key.author

        return await self._host.call(lambda: list(found()))


def _stream(store: Store, named: LogKey | str) -> Stream:
    if isinstance(named, LogKey):
        return stream_of(store, named)
    if "/" in named:
        return stream_of(store, LogKey.parse(named))
    found = own_stream(store, named)
    if found is None:
        raise NotAStream(f"no own chain {named!r}", str(store.path or "memory"), "create it")
    return found
