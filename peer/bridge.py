"""A peer in a thread of its own that runs Trio, for programs that do not: what `peer.aio` and
`peer.blocking` are made of.

There is one node, and it runs in Trio. To write it a second time for asyncio would be two to keep
equal; to run it by a layer that speaks both would put that layer under every read and write of all
who use Trio. Trio as a guest of another loop needs a loop, which a blocking program has not, and
stands still as long as a task of the host computes; peers would take that for silence. A thread
costs a switch for each call, and waits for nobody.

    caller's thread                      thread `bamboo-peer`
    begin(call)  -- run_sync_soon -->    a task of the nursery runs it
    cancel(call) -- run_sync_soon -->    its scope is cancelled
    ended()      <------------------     called there, once it has ended, in whatever way

A call that was cancelled is waited for: what it has begun (a request taken back, entries being
stored) is over when its caller goes on, as it is in Trio. What is handed over by `run_sync_soon` is
carried out in order and, if it was accepted, before the run ends; so a call that a cancellation
overtakes is known there never to have begun, and nobody waits for a call that nobody runs.

The calls' nursery stands around the peer's block: leaving the block is what makes them raise, in
the peer itself and as there (`PendingCalls`). What is left after that is cancelled. The thread is a
daemon: a program that ends without leaving the block loses by it what `kill -9` loses.

Entries are read ahead, `AHEAD` of them at most, and not handed over one by one as they are asked
for: each would cost a switch there and one back. Whoever iterates and is slow stops the reading.
"""

import random
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

import trio

from logstore import (
    INLINE_BYTES_MAX,
    Follow,
    KeepRule,
    PayloadTooLarge,
    Store,
    StoredEntry,
    Subscription,
)
from peer.api import (
    ENTERED_ONCE,
    OUTSIDE,
    Address,
    ConnectionInfo,
    Doors,
    Greedy,
    NodeConfig,
    Observer,
    Peer,
    PeerAddress,
    Taking,
    read_ahead,
    unobserved,
)

THREAD_NAME: Final = "bamboo-peer"
AHEAD: Final = 256
"""Entries that are read and not yet taken by who iterates..."""
AHEAD_BYTES: Final = 16 << 20
"""... and bytes of their payloads, that of the last one apart."""

T = TypeVar("T")


class Call(Generic[T]):
    """One call into the thread. `ended` is called there when it is over."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._has_begun = False
        self._values: list[T] = []
        self._failure: BaseException | None = None
        self._scope = trio.CancelScope()
        self.is_over = False

    def result(self) -> T:
        """What it has returned, or raises what it has raised; only when it is over."""
        if self._failure is not None:
            raise self._failure
        return self._values[0]

    async def run(self, function: Callable[[], Awaitable[T]], bridge: "Bridge") -> None:
        """In the thread: what is awaited for the caller."""
        self._has_begun = True
        try:
            with self._scope:
                self._values.append(await function())
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._failure = error
        finally:
            self.end(bridge)

    def end(self, bridge: "Bridge") -> None:
        """Over: without a value it was cancelled, by its caller or by the end of the block."""
        if self.is_over:
            return
        if not self._values and self._failure is None:
            self._failure = bridge.refusal()
        self.is_over = True
        self._ended()

    def cancel(self, bridge: "Bridge") -> None:
        """In the thread, behind whatever began it."""
        self._scope.cancel()
        if not self._has_begun:
            self.end(bridge)


def wait_for(call: Call[T], over: "SimpleQueue[None]") -> None:
    """Waits for what puts something into a queue when it is over.

    No `threading.Event`: what a signal handler raises in a thread that waits for one can leave its
    lock held, and `set` would then stop the thread of the peer for ever.
    """
    while not call.is_over:
        over.get()


class Bridge:
    """The thread, in which one peer is entered and left."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._calls: trio.Nursery | None = None
        """Of the tasks that run calls, while there may be any."""
        self._leaving = trio.Event()
        self._whole = trio.CancelScope()
        self._is_abandoned = False
        self._wrong: Exception | None = None
        """What an observer outside of the thread has raised."""
        self.failure: BaseException | None = None
        """What has ended the peer, if it was not left."""

    def start(self, started: Callable[[], None], ended: Callable[[], None]) -> None:
        """Enters the peer. Both are called in the thread, `started` once it is or cannot be."""
        self._thread = threading.Thread(
            target=self._run, args=(started, ended), name=THREAD_NAME, daemon=True
        )
        self._thread.start()

    def check_new(self) -> None:
        """Raises RuntimeError if it was started before."""
        if self._thread is not None:
            raise RuntimeError(ENTERED_ONCE)

    @property
    def is_running(self) -> bool:
        """Whether the peer was entered, and has not ended."""
        return self._calls is not None

    @property
    def is_here(self) -> bool:
        """Whether the caller is in the thread, and must not wait for it."""
        return threading.current_thread() is self._thread

    def refusal(self) -> RuntimeError:
        """What a call raises that the end of the block has met, or that comes too late."""
        error = RuntimeError(OUTSIDE)
        error.__cause__ = self.failure
        return error

    def begin(self, call: Call[T], function: Callable[[], Awaitable[T]]) -> None:
        """Has a call run; one that comes too late is over at once."""
        if not self.soon(partial(self._begin, call, function)):
            call.end(self)

    def cancel(self, call: Call[T]) -> None:
        """Cancels a call, which is over a little later."""
        if not self.soon(partial(call.cancel, self)):
            call.end(self)

    def run_sync(self, function: Callable[[], T]) -> T:
        """What a function returns that does not wait, and belongs to the thread."""
        if not self.is_running:
            raise self.refusal()
        if self.is_here:
            return function()
        over: SimpleQueue[None] = SimpleQueue()
        call: Call[T] = Call(partial(over.put, None))

        async def run() -> T:
            return function()

        self.begin(call, run)
        wait_for(call, over)
        return call.result()

    def soon(self, function: Callable[[], object]) -> bool:
        """Has something done in the thread; False if there is no Trio in it, or not any more."""
        if self._token is None:
            return False
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    def leave(self) -> None:
        """Has the peer left; the thread ends then."""
        self.soon(self._leaving.set)

    def abandon(self) -> None:
        """Has the peer left at once, also while it is still being entered."""
        self._is_abandoned = True
        self.soon(self._whole.cancel)

    def fail(self, error: Exception) -> None:
        """What an observer has raised ends the peer, wherever it was called."""

        def fail() -> None:
            self._wrong = self._wrong or error
            self._leaving.set()

        self.soon(fail)

    def join(self) -> None:
        """Waits until there is no thread."""
        if self._thread is not None:
            self._thread.join()

    def _begin(self, call: Call[T], function: Callable[[], Awaitable[T]]) -> None:
        if self._calls is None:
            call.end(self)
        else:
            self._calls.start_soon(call.run, function, self)

    def _run(self, started: Callable[[], None], ended: Callable[[], None]) -> None:
        try:
            trio.run(self._main, started)
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self.failure = error
        finally:
            self._calls = None
            started()
            ended()

    async def _main(self, started: Callable[[], None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._is_abandoned:
            self._whole.cancel()
        async with trio.open_nursery() as nursery:
            try:
                with self._whole:
                    async with self._peer:
                        self._calls = nursery
                        started()
                        await self._leaving.wait()
                        if self._wrong is not None:
                            raise self._wrong  # noqa: TRY301 - in the block, as in Trio
            except Exception as error:  # noqa: BLE001 - raised where the block ends
                self.failure = error
            finally:
                self._calls = None
                nursery.cancel_scope.cancel()


class Ahead(Generic[T]):
    """What an iteration reads ahead. `wake` is called in the thread, for who found nothing."""

    def __init__(
        self, bridge: Bridge, wake: Callable[[], None], size: Callable[[T], int] = lambda _: 0
    ) -> None:
        self._bridge = bridge
        self._wake = wake
        self._size = size
        self._bytes = 0
        self._all_taken: trio.Event | None = None
        """What the end of the reading waits for."""
        self._lock = threading.Lock()
        self._items: deque[T] = deque()
        self._sleeps = False
        """Whether who iterates has found nothing, and waits."""
        self._room: trio.Event | None = None
        """What the reading waits for, if it is as far ahead as it may be."""

    async def fill(self, items: AsyncGenerator[T, None]) -> None:
        """In the thread: reads, and waits where that is far enough."""
        async with aclosing(items):
            async for item in items:
                with self._lock:
                    self._items.append(item)
                    self._bytes += self._size(item)
                    is_far = len(self._items) >= AHEAD or self._bytes >= AHEAD_BYTES
                    room = trio.Event() if is_far else None
                    self._room = room
                    sleeps, self._sleeps = self._sleeps, False
                if sleeps:
                    self._wake()
                if room is not None:
                    await room.wait()

    def take(self) -> list[T]:
        """The next one, or none, of which there is news by `wake`."""
        with self._lock:
            if not self._items:
                self._sleeps = True
                if self._all_taken is not None:
                    self._bridge.soon(self._all_taken.set)
                return []
            item = self._items.popleft()
            self._bytes -= self._size(item)
            is_near = len(self._items) <= AHEAD // 2 and self._bytes <= AHEAD_BYTES // 2
            room = self._room if is_near else None
            if room is not None:
                self._room = None
        if room is not None:
            self._bridge.soon(room.set)
        return [item]

    async def taken(self) -> None:
        """In the thread: returns once whoever iterates has come back for more than there is."""
        with self._lock:
            if self._sleeps:
                return
            self._all_taken = trio.Event()
        await self._all_taken.wait()


def payload_size(entry: StoredEntry) -> int:
    """The bytes that an entry has of its payload, which may be large."""
    return entry.payload_bytes if entry.payload_bytes <= INLINE_BYTES_MAX else _large(entry)


def _large(entry: StoredEntry) -> int:
    try:
        return len(entry.payload or b"")
    except PayloadTooLarge:
        return 0


class Bridged:
    """What both facades have of `peer.api.Peer`: all that does not wait."""

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
        self.store = store
        self._peer = Peer(
            store,
            config=config,
            observer=observer,
            rng=rng,
            ask_first=ask_first,
            doors=doors,
            metrics=metrics,
        )
        self._bridge = Bridge(self._peer)

    async def _read_ahead(self, ahead: Ahead[StoredEntry], what: Taking) -> None:
        """In the thread: what `entries` of a facade hands out."""
        await ahead.fill(read_ahead(self._peer, what, ahead.taken))

    def connect(
        self, address: str | Address | PeerAddress, *, greedy: Greedy | None = None
    ) -> None:
        """`peer.api.Peer.connect`."""
        self._bridge.run_sync(partial(self._peer.connect, address, greedy=greedy))

    def disconnect(self, address: str | Address | PeerAddress) -> None:
        """`peer.api.Peer.disconnect`."""
        self._bridge.run_sync(partial(self._peer.disconnect, address))

    def connections(self) -> list[ConnectionInfo]:
        """`peer.api.Peer.connections`."""
        return self._bridge.run_sync(self._peer.connections)

    @property
    def keeps(self) -> dict[Follow, KeepRule]:
        """`peer.api.Peer.keeps`."""
        return self._bridge.run_sync(lambda: self._peer.keeps)

    @property
    def subscriptions(self) -> dict[Follow, Subscription]:
        """`peer.api.Peer.subscriptions`."""
        return self._bridge.run_sync(lambda: self._peer.subscriptions)
