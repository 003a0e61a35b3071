"""What a gateway stands on: a store, or the peer that replicates into it.

With a peer, what this process stores is heard of at once; what other processes append is seen by
looking every 8 ms, as the store's version is cheap to ask for.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import trio

from logstore import Appended, Store
from peer.api import Peer
from peer.net import news_of

T = TypeVar("T")

LOOK_S: Final = 0.008
"""How long what other processes append may stay unseen."""


def store_of(peer_or_store: Peer | Store) -> Store:
    """The store of either."""
    return peer_or_store.store if isinstance(peer_or_store, Peer) else peer_or_store


class LogHost:
    """Calls of a store from Trio: none of them blocks the event loop."""

    def __init__(self, peer_or_store: Peer | Store) -> None:
        self.store: Final = store_of(peer_or_store)
        self._peer = peer_or_store if isinstance(peer_or_store, Peer) else None

    async def call(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread. Cancelled, it waits for it: what was begun is done."""
        return await trio.to_thread.run_sync(work)

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

    def append_many(
        self,
        batches: Sequence[tuple[int, Sequence[bytes]]],
        expected_seqs: Sequence[int | None] | None,
    ) -> list[list[Appended]]:
        """`Store.append_many`, through the peer where there is one. To be called in a thread."""
        if self._peer is None:
            return self.store.append_many(batches, expected_seqs=expected_seqs)
        append = partial(self._peer.append_many, batches, expected_seqs=expected_seqs)
        return trio.from_thread.run(append)

    async def watch(
        self,
        look: Callable[[], T],
        told: Callable[[T], object] = lambda _: None,
        *,
        every_s: float = LOOK_S,
    ) -> None:
        """Runs `look` in a thread now, and whenever anything was committed, until cancelled.

        Commits that come while it runs make it run again once. `told` is called in the event loop
        with what it returned. `every_s`: how often commits of other processes are looked for.
        """
        version: int | None = None
        with self._news() as wait:
            while True:
                # Asked for first: what is committed meanwhile makes the version a stale one.
                current = await trio.to_thread.run_sync(self.store.data_version)
                if current != version:
                    version = current
                    told(await trio.to_thread.run_sync(look))
                else:
                    with trio.move_on_after(every_s):
                        await wait()

    @contextmanager
    def _news(self) -> Iterator[Callable[[], Awaitable[None]]]:
        with ExitStack() as stack:
            if self._peer is None:
                yield trio.sleep_forever
            else:
                yield stack.enter_context(news_of(self._peer.node)).wait
