"""A node deletes what rules say (logstore/keeping.py), soon after anything has changed.

It begins a second after the first change, so that what comes meanwhile is one pass, and ages are
looked at once a minute. What may go is found in a thread of its own, since to look through a large
store takes seconds for which nobody else is to wait; each deletion is a short transaction in the
writing thread, and behind each there is a pause, longer where others have something to do there.

A node that does not serve its store, as `sync` has one, does it once, at its end.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence

import trio

from logstore import PAUSE_S, Follow, Keeper, StoreClosed, StoreError, Tidied, merged
from peer import LogChanged, json_number, log_fields
from peer.node.host.store_host import StoreHost
from peer.node.interests import Wanted
from peer.node.links.records import Observer

log = logging.getLogger(__name__)

GATHER_S = 1.0
"""From the first change to the looking."""
AGES_S = 60.0
"""How often it is looked for what has become too old."""
TELL_S = 1.0
"""How often it is told what has been deleted, while more is."""
AGAIN_S = 5.0
"""When it is tried again where the store could not be read or written."""
BUSY_TIMES = 3
"""How much longer a pause is where others have something to do than what it took."""


class Keeping:
    """Deletes while `run` runs, and what is left to delete in `finish`."""

    def __init__(
        self, host: StoreHost, observer: Observer, wanted: Wanted, *, deletes: bool
    ) -> None:
        """`deletes`: False if it is to do nothing."""
        self._host = host
        self._observer = observer
        self._keeper = host.store.keeper()
        self._wanted = wanted
        self._is_due = deletes and wanted.deletes
        self._due = trio.lowlevel.ParkingLot()
        self._lock = trio.Lock()
        if deletes:
            host.watchers.add(self._logs_changed)
            host.want_watchers.add(self._take)

    def _take(self, wanted: Wanted) -> None:
        """Another rule may be in force."""
        had, self._wanted = self._wanted, wanted
        if wanted.deletes and (wanted.keeps, wanted.subscriptions, wanted.fetches) != (
            had.keeps,
            had.subscriptions,
            had.fetches,
        ):
            self._wake()

    def _logs_changed(self, _: Sequence[LogChanged]) -> None:
        if self._wanted.deletes:
            self._wake()

    def _wake(self) -> None:
        self._is_due = True
        self._due.unpark_all()

    async def run(self) -> None:
        """Deletes what is to go, until the store is closed."""
        while True:
            with trio.move_on_after(AGES_S if self._wanted.deletes_by_age else float("inf")):
                while not self._is_due:
                    await self._due.park()
            await trio.sleep(GATHER_S)
            self._is_due = False
            try:
                await self._delete()
            except StoreClosed:
                return  # which ends the node, with an error of its own
            except StoreError as error:
                log.warning("payloads that are to go cannot be deleted yet: %s", error)
                self._is_due = True
                await trio.sleep(AGAIN_S)

    async def finish(self) -> None:
        """Deletes what has come to go since the last time."""
        if not self._is_due:
            return
        self._is_due = False
        try:
            await self._delete()
        except StoreError as error:
            log.warning("payloads that are to go could not be deleted: %s", error)

    async def _delete(self) -> None:
        told_s = trio.current_time()
        done: list[Tidied] = []
        async with self._lock:
            try:
                async for some in _deleting(self._host, self._keeper):
                    done += some
                    if trio.current_time() >= told_s + TELL_S:
                        told_s = trio.current_time()
                        self._tell(done)
                        done = []
            finally:
                self._tell(done)

    def _tell(self, done: Iterable[Tidied]) -> None:
        for each in merged(done):
            fields = {"count": each.count, "bytes": json_number(each.bytes)}
            self._observer({"event": "kept", **log_fields(each.key), **fields})


async def tidy_now(host: StoreHost, target: Follow | None) -> list[Tidied]:
    """Deletes what rules say of the logs of a target, None: of all; what it was, in order."""
    done: list[Tidied] = []
    async for some in _deleting(host, host.store.keeper(target)):
        done += some
    return merged(done)


async def _deleting(host: StoreHost, keeper: Keeper) -> AsyncGenerator[list[Tidied], None]:
    """Deletes until nothing is left to delete; what was deleted in each transaction."""
    while await trio.to_thread.run_sync(keeper.look):
        began_s = trio.current_time()
        yield await host.call(keeper.act)
        times = 1 if host.idle else BUSY_TIMES
        await trio.sleep(max(PAUSE_S, times * (trio.current_time() - began_s)))
    await trio.to_thread.run_sync(keeper.end)
