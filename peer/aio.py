"""`Peer` for asyncio: `peer.api.Peer`, in a thread of its own that runs Trio (bridge.py).

    async with Peer(store) as peer:
        peer.connect("example.org:7007")
        async for entry in peer.entries():
            print(entry.key, entry.seq, entry.payload)

Names, arguments, results and exceptions are those of `peer.api.Peer`, which says what they mean; a
test compares the signatures. What belongs to Trio is not here: `node`, `overview`, `serve_stream`,
and streams in the place of addresses.

A `Peer` belongs to the loop that entered it. A task that is cancelled cancels its call, and goes on
once that has ended. What does not wait (`connect`, `connections`) takes a turn of the other thread.
The observer is called in the loop, and what it raises ends the peer. A peer that has ended by a
fault cancels no task here, where nothing says which ones are of the block: what is called raises
RuntimeError, and the end of the block raises the fault.
"""

import asyncio
import random
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, Self, TypeVar, overload

from logstore import (
    PAYLOAD_BYTES_MAX,
    AnyLog,
    AnyTarget,
    Appended,
    EntryWithPayload,
    KeepRule,
    LogInfo,
    Statistics,
    Store,
    StoredEntry,
    Subscription,
    Tidied,
    check_number,
)
from peer.api import (
    OLDEST,
    OUTSIDE,
    Address,
    Doors,
    Greedy,
    NodeConfig,
    Observer,
    PeerAddress,
    Reason,
    SyncSummary,
    Taking,
    unobserved,
)
from peer.bridge import Ahead, Bridged, Call, payload_size
from wire import LogKey

__all__ = ["Peer"]

TURN_ENTRIES: Final = 64
"""Entries after which an iteration lets other tasks run, however many are there."""

T = TypeVar("T")


class Peer(Bridged):
    """`peer.api.Peer` for a program that runs in asyncio."""

    def __init__(
        self,
        store: Store,
        *,
        config: NodeConfig | None = None,
        observer: Observer = unobserved,
        rng: random.Random | None = None,
        ask_first: bool = True,
        doors: Doors | None = None,
        metrics: str | Address | None = None,
    ) -> None:
        super().__init__(
            store,
            config=config,
            observer=observer if observer is unobserved else self._tell,
            rng=rng,
            ask_first=ask_first,
            doors=doors,
            metrics=metrics,
        )
        self._observer = observer
        self._has_failed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._bridge.check_new()
        self._loop = loop = asyncio.get_running_loop()
        started, self._ended = loop.create_future(), loop.create_future()
        self._bridge.start(
            partial(self._in_loop, _settle, started), partial(self._in_loop, _settle, self._ended)
        )
        try:
            await _until(started, self._bridge.abandon)
        except asyncio.CancelledError:
            self._bridge.abandon()
            await self._left()
            raise
        if not self._bridge.is_running:
            await self._left()
            raise self._bridge.failure or self._bridge.refusal()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bridge.leave()
        await self._left()
        if self._bridge.failure is not None:
            raise self._bridge.failure

    async def listen(self, address: str | Address = "127.0.0.1:0") -> Address:
        """`peer.api.Peer.listen`."""
        return await self._call(partial(self._peer.listen, address))

    async def append(
        self,
        payloads: Sequence[bytes | Path | BinaryIO],
        *,
        log_id: int = 0,
        end_of_log: bool = False,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """`peer.api.Peer.append`."""
        return await self._call(
            partial(
                self._peer.append,
                payloads,
                log_id=log_id,
                end_of_log=end_of_log,
                expected_seq=expected_seq,
            )
        )

    async def append_many(
        self,
        batches: Sequence[tuple[int, Sequence[bytes]]],
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """`peer.api.Peer.append_many`."""
        return await self._call(
            partial(self._peer.append_many, batches, expected_seqs=expected_seqs, ending=ending)
        )

    async def follow(self, target: AnyTarget, subscription: Subscription | None = None) -> bool:
        """`peer.api.Peer.follow`."""
        return await self._call(partial(self._peer.follow, target, subscription))

    async def unfollow(self, target: AnyTarget) -> bool:
        """`peer.api.Peer.unfollow`."""
        return await self._call(partial(self._peer.unfollow, target))

    async def keep(self, target: AnyTarget, rule: KeepRule | None) -> bool:
        """`peer.api.Peer.keep`."""
        return await self._call(partial(self._peer.keep, target, rule))

    async def tidy(self, target: AnyTarget | None = None, *, dry_run: bool = False) -> list[Tidied]:
        """`peer.api.Peer.tidy`."""
        return await self._call(partial(self._peer.tidy, target, dry_run=dry_run))

    async def fetch(
        self, log: AnyLog, first: int, last: int | None = None, *, timeout_s: float | None = None
    ) -> None:
        """`peer.api.Peer.fetch`."""
        await self._call(partial(self._peer.fetch, log, first, last, timeout_s=timeout_s))

    @overload
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: Literal[True] = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> AsyncGenerator[EntryWithPayload, None]: ...
    @overload
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: bool,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> AsyncGenerator[StoredEntry, None]: ...
    async def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: bool = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> AsyncGenerator[StoredEntry, None]:
        """`peer.api.Peer.entries`, read ahead by 256 entries and 16 MiB of payloads at most."""
        loop, news = self._own_loop(), asyncio.Event()
        over = loop.create_future()

        def end() -> None:
            _settle(over)
            news.set()

        ahead: Ahead[StoredEntry] = Ahead(
            self._bridge, partial(self._in_loop, news.set), payload_size
        )
        bytes_max = payload_bytes_max if with_payload else None
        check_number("payload_bytes_max", payload_bytes_max)
        what = Taking(target, after, bytes_max, idle_s, cursor)
        read_ahead = partial(self._read_ahead, ahead, what)
        call: Call[None] = Call(partial(self._in_loop, end))
        self._bridge.begin(call, read_ahead)
        taken = 0
        try:
            while True:
                # Looked at first: what came before the end is taken before it.
                is_over = call.is_over
                news.clear()
                if found := ahead.take():
                    yield found[0]
                    taken += 1
                    if taken % TURN_ENTRIES == 0:
                        await asyncio.sleep(0)
                elif is_over:
                    call.result()
                    return
                elif not call.is_over:
                    await news.wait()
        finally:
            self._bridge.cancel(call)
            await _until(over, partial(self._bridge.cancel, call))

    async def ack(self, entry: StoredEntry, *, cursor: str | None = None) -> None:
        """`peer.api.Peer.ack`."""
        await self._call(partial(self._peer.ack, entry, cursor=cursor))

    async def wait_for(self, log: AnyLog, seq: int, *, timeout_s: float | None = None) -> LogInfo:
        """`peer.api.Peer.wait_for`."""
        return await self._call(partial(self._peer.wait_for, log, seq, timeout_s=timeout_s))

    async def sync(
        self,
        target: str | Address | PeerAddress,
        *,
        greedy: Greedy | None = None,
        timeout_s: float | None = None,
    ) -> SyncSummary:
        """`peer.api.Peer.sync`."""
        call = partial(self._peer.sync, target, greedy=greedy, timeout_s=timeout_s)
        return await self._call(call)

    async def newest(
        self,
        target: str | Address | PeerAddress,
        logs: Iterable[AnyLog],
        *,
        timeout_s: float | None = None,
    ) -> dict[LogKey, int]:
        """`peer.api.Peer.newest`."""
        return await self._call(partial(self._peer.newest, target, logs, timeout_s=timeout_s))

    async def wait_in_sync(self, *, timeout_s: float | None = None) -> None:
        """`peer.api.Peer.wait_in_sync`."""
        await self._call(partial(self._peer.wait_in_sync, timeout_s=timeout_s))

    async def status(self) -> Mapping[str, object]:
        """`peer.api.Peer.status`."""
        return await self._call(self._peer.status)

    async def why(self, subject: AnyLog | Address) -> list[Reason]:
        """`peer.api.Peer.why`."""
        return await self._call(partial(self._peer.why, subject))

    async def statistics(self) -> Statistics:
        """`peer.api.Peer.statistics`."""
        return await self._call(self._peer.statistics)

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        over = self._own_loop().create_future()
        call: Call[T] = Call(partial(self._in_loop, _settle, over))
        self._bridge.begin(call, function)
        await _until(over, partial(self._bridge.cancel, call))
        return call.result()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            raise RuntimeError(OUTSIDE)
        if loop is not self._loop:
            raise RuntimeError("a peer.aio.Peer belongs to the event loop that entered it")
        return loop

    async def _left(self) -> None:
        """Returns once the thread is gone; cancelled, it leaves in no good order."""
        if self._ended is not None:
            await _until(self._ended, self._bridge.abandon)
        self._bridge.join()

    def _tell(self, event: Mapping[str, object]) -> None:
        """In the thread: hands on an event."""
        self._in_loop(self._observe, event)

    def _observe(self, event: Mapping[str, object]) -> None:
        if self._has_failed:
            return
        try:
            self._observer(event)
        except Exception as error:  # noqa: BLE001 - raised again where the block ends
            self._has_failed = True
            self._bridge.fail(error)

    def _in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """From any thread; a loop that is closed has nobody left who waits."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:
                if not loop.is_closed():
                    raise


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _until(over: "asyncio.Future[None]", cancel: Callable[[], object]) -> None:
    """Waits for an end that a cancellation of the task only hurries."""
    cancelled: asyncio.CancelledError | None = None
    while not over.done():
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            cancel()
    if cancelled is not None:
        raise cancelled
