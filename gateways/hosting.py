"""What a gateway stands on: a store, or the peer that replicates into it.

With a peer, what this process stores is heard of at once. What other processes append is seen once
the log of the database is written: that comes before it is synced and counts, so that for a while
the store is asked every few milliseconds. Else it is asked seldom.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import trio

from logstore import Appended, Seldom, Store, StoreClosed, StoreError
from peer.api import Peer
from peer.node import Commits, Observer, news_of, unobserved

from .log_ids import Batches

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS_MAX: Final = 40
"""Calls of a store that a gateway makes at once."""
LOOK_S: Final = 0.001
"""How soon the store is asked after its log was written, and how often at most."""
_LATE: Final = 0.25
"""After which part of the time since then it is asked again."""
EAGER_S: Final = 0.1
"""For how long: syncing takes as long as the disk wants."""
UNTOLD_S: Final = 0.008
"""How often it is asked where nothing is told of writes."""
SELDOM_S: Final = 1.0
"""How often it is asked otherwise: some file systems tell nothing."""


def store_of(peer_or_store: Peer | Store) -> Store:
    """The store of either."""
    return peer_or_store.store if isinstance(peer_or_store, Peer) else peer_or_store


class LogHost:
    """Calls of a store from Trio: none of them blocks the event loop."""

    def __init__(self, peer_or_store: Peer | Store, observer: Observer = unobserved) -> None:
        self.store: Final = store_of(peer_or_store)
        self._peer = peer_or_store if isinstance(peer_or_store, Peer) else None
        self._observer = observer
        self._seldom = Seldom(trio.current_time)
        # What runs in these threads may wait for the peer, which needs threads for what it does:
        # taken from the same ones, the last of them would be waited for by all others.
        self._threads = trio.CapacityLimiter(THREADS_MAX)

    def storage_failed(self, error: StoreError) -> None:
        """Says what ends nothing but what was asked: once a minute for each kind of failure."""
        if self._seldom.warn(log, type(error).__name__, f"the store has failed: {error}"):
            self._observer({"event": "storage_failed", "reason": str(error)})

    async def call(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread. Cancelled, it waits for it: what was begun is done."""
        return await trio.to_thread.run_sync(work, limiter=self._threads)

    async def append(
        self,
        payloads: Sequence[bytes | Path | BinaryIO],
        *,
        log_id: int,
        end_of_log: bool = False,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """`Store.append`, through the peer where there is one, which asks other peers first."""
        if self._peer is not None:
            return await self._peer.append(
                payloads, log_id=log_id, end_of_log=end_of_log, expected_seq=expected_seq
            )
        append = partial(
            self.store.append,
            payloads,
            log_id=log_id,
            end_of_log=end_of_log,
            expected_seq=expected_seq,
        )
        return await trio.to_thread.run_sync(append)

    async def append_many(
        self,
        batches: Batches,
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """`Store.append_many`, through the peer where there is one, which asks other peers first.

        Who is in a thread calls `sign`.
        """
        if self._peer is None:
            return await self.call(
                partial(self.sign, batches, expected_seqs=expected_seqs, ending=ending)
            )
        return await self._peer.append_many(batches, expected_seqs=expected_seqs, ending=ending)

    def sign(
        self,
        batches: Batches,
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """`append_many` for a thread that `call` has begun: what it does blocks there."""
        if self._peer is None:
            return self.store.append_many(batches, expected_seqs=expected_seqs, ending=ending)
        append = partial(self.append_many, batches, expected_seqs=expected_seqs, ending=ending)
        return trio.from_thread.run(append)

    async def watch(
        self,
        look: Callable[[], T],
        told: Callable[[T], object] = lambda _: None,
    ) -> None:
        """Runs `look` in a thread now, and whenever anything was committed, until cancelled.

        Commits that come while it runs make it run again once. `told` is called in the event loop
        with what it returned. A store that fails is said, and looked at again, a second later if
        nothing is committed until then; one that is closed never opens again.
        """
        version: int | None = None

        def look_if_new() -> tuple[T] | None:
            nonlocal version
            # Asked for first: what is committed meanwhile makes the version a stale one.
            current = self.store.data_version()
            if current == version:
                return None
            seen = look()
            version = current
            return (seen,)

        with self._news() as wait:
            while True:
                try:
                    seen = await trio.to_thread.run_sync(look_if_new)
                except StoreClosed:
                    raise
                except StoreError as error:
                    self.storage_failed(error)
                    seen = None
                if seen is not None:
                    told(*seen)
                await wait()

    @contextmanager
    def _news(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """A function that waits until it is time to ask the store."""
        with ExitStack() as stack:
            commits = stack.enter_context(Commits(self.store.log_path, LOOK_S))
            written_s = trio.current_time()

            async def others() -> None:
                nonlocal written_s
                if not commits.is_told:
                    await trio.sleep(UNTOLD_S)
                since_s = trio.current_time() - written_s
                # A quarter late at most; asked at each LOOK_S, who writes all the time would ask
                # as often as that.
                is_eager = since_s < EAGER_S
                if await commits.wait(since_s * _LATE if is_eager else SELDOM_S):
                    written_s = trio.current_time()

            if self._peer is None:
                yield others
                return
            news = stack.enter_context(news_of(self._peer.node))

            async def either() -> None:
                async with trio.open_nursery() as nursery:

                    async def first(wait: Callable[[], Awaitable[object]]) -> None:
                        await wait()
                        nursery.cancel_scope.cancel()

                    nursery.start_soon(first, news.wait)
                    nursery.start_soon(first, others)

            yield either
