"""What all connections of a hub share: streams, positions, retention, and when each is looked at.

For one event loop; whatever blocks runs in threads. A store that fails makes ERRORs and a line in
the log once a minute, and ends nothing.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import trio

from gateways import LogHost, Saver
from gateways.ockam.outcomes import UNAVAILABLE, Made
from logstore import StoreError
from peer import json_number, log_fields
from peer.node import Observer
from wire import LogKey

from .book import Asked, Book
from .keeping import Keeper, Trimmed
from .logs import Catalog
from .side import Stream
from .writing import Writer

log = logging.getLogger(__name__)

REFRESH_S: Final = 1.0
KEEP_EVERY_S: Final = 60.0
KEEP_AFTER_MESSAGES: Final = 10_000
LOOK_S: Final = 0.05
"""How often what other processes append is looked for while somebody waits for it."""
_TOLD_MAX: Final = 100_000

T = TypeVar("T")


class Puller(Protocol):
    """Whose pulls wait for messages: of a conversation, all that a hub has to know."""

    @property
    def held(self) -> frozenset[str]:
        """The addresses of the streams that are waited for."""

    def grown(self, addresses: frozenset[str]) -> None:
        """These streams have more messages."""


class Hub:
    """A hub without its listeners. `run` has to be running."""

    def __init__(
        self, host: LogHost, catalog: Catalog, book: Book, keeper: Keeper, observer: Observer
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._book = book
        self._keeper = keeper
        self.observe: Final = observer
        self.writer: Final = Writer(host, catalog, self._stored, host.storage_failed)
        self.saver: Final = Saver(host, book)
        self._making = trio.Lock()
        self._holding: set[Puller] = set()
        self._position = 0
        self._pushed: dict[str, int] = {}
        self._keep_now = trio.Event()
        self._told: set[str] = set()
        self._ends: dict[str, int] = {}
        """The index at the end of a stream. Another dictionary once anything may have been stored:
        what a read finds that began before is no end any more."""
        self._version: int | None = None
        self._checked_at_s = -LOOK_S

    async def run(self, *, holds: bool) -> None:
        """Does what is due now and then, until cancelled. `holds`: whether pulls wait."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self.saver.run)
            nursery.start_soon(self._refresh)
            nursery.start_soon(self._keep)
            if holds:
                nursery.start_soon(self._watch)

    def begin(self) -> list[Trimmed]:
        """Takes in what is stored, and finishes what was begun. Blocks.

        A store that fails is said: what is not taken in now is as soon as it goes on.
        """
        try:
            self._catalog.refresh()
            self._position = self._host.store.position()
            reason = self._host.store.own_logs_read_only
            if reason is not None:
                log.warning("own streams are read-only, pushes are refused: %s", reason)
                return []
            self._catalog.ledger()
            return self._keeper.finish_trims()
        except StoreError as error:
            log.warning("streams cannot be written: %s", error)
            return []

    # Streams -------------------------------------------------------------------------------------

    async def make(self, name: str | None, partitions: int, *, may_make: bool) -> Made:
        """`Catalog.make`; tells of each stream once."""
        async with self._making:
            # One after the other, and who waits for that holds no thread.
            made = await self._host.call(
                partial(self._catalog.make, name, partitions, may_make=may_make)
            )
        self._ends = {}
        if not all(address in self._told for _, address in made.partitions):
            if len(self._told) > _TOLD_MAX:
                self._told.clear()
            # Whoever has asked is answered, whether it can be told or not: the streams are there.
            none: list[Stream] = []
            for stream in await self._try(partial(self._catalog.all, made.name), none):
                if stream.address not in self._told:
                    self._told.add(stream.address)
                    self.observe({"event": "stream", **stream_fields(stream)})
        return made

    async def find(self, address: str) -> Made | None:
        """The stream with an address, as if it had just been made; None if there is none."""
        try:
            stream = await self._host.call(partial(self._catalog.at, address))
        except StoreError as error:
            self._host.storage_failed(error)
            return Made("", (), UNAVAILABLE)
        return None if stream is None else Made(stream.name, [(stream.partition, address)])

    async def read(
        self, address: str, index: int, limit: int, room: int
    ) -> Sequence[tuple[int, bytes]] | None:
        """Messages; None if there is no such address."""
        if self.is_at_end(address, index):
            return ()
        if self._ends.get(address) == index and await self._is_unchanged():
            return ()
        ends = self._ends
        try:
            found = await self._host.call(partial(self._read, address, index, limit, room))
        except StoreError as error:
            self._host.storage_failed(error)
            return ()
        if found is not None and not found and limit:
            ends[address] = index
        return found

    def is_at_end(self, address: str, index: int) -> bool:
        """Whether a stream ended there a moment ago, and nothing was stored since."""
        is_fresh = trio.current_time() < self._checked_at_s + LOOK_S
        return is_fresh and self._ends.get(address) == index

    def _read(
        self, address: str, index: int, limit: int, room: int
    ) -> list[tuple[int, bytes]] | None:
        stream = self._catalog.at(address)
        return None if stream is None else self._catalog.read(stream, index, limit, room)

    async def _is_unchanged(self) -> bool:
        """Whether nothing was stored since the ends of streams were found.

        Asked once in 50 ms, however many consumers poll.
        """
        self._checked_at_s = trio.current_time()
        try:
            version = await self._host.call(self._host.store.data_version)
        except StoreError:
            version = None
        if version is None or version != self._version:
            self._version = version
            self._ends = {}
            return False
        return True

    def _stored(self, addresses: Sequence[str]) -> None:
        """Messages are on disk."""
        if self._keeper.has_rules:
            for address in addresses:
                count = self._pushed[address] = self._pushed.get(address, 0) + 1
                if count >= KEEP_AFTER_MESSAGES:
                    self._keep_now.set()
        self._grown(frozenset(addresses))

    async def position(self, asked: Asked) -> int | None:
        """A position; what was saved of it is on disk. Raises StoreError, which is said."""
        await self.saver.settled(asked)
        try:
            return await self._host.call(partial(self._book.get, asked))
        except StoreError as error:
            self._host.storage_failed(error)
            raise

    # Pulls that wait -----------------------------------------------------------------------------

    def note_held(self, puller: Puller) -> None:
        """Somebody may have begun or ended to wait for messages."""
        if puller.held:
            self._holding.add(puller)
        else:
            self._holding.discard(puller)

    def forget(self, puller: Puller) -> None:
        """A conversation has ended."""
        self._holding.discard(puller)

    def _grown(self, addresses: frozenset[str]) -> None:
        self._ends = {}
        for each in list(self._holding):
            if grown := addresses & each.held:
                each.grown(grown)

    async def _watch(self) -> None:
        """Hears of what other processes and peers have stored, while a pull waits for it."""

        def told(keys: set[LogKey]) -> None:
            held = {address for each in self._holding for address in each.held}
            # One that has been forgotten is looked at again.
            found = {each: self._catalog.key_of(each) for each in held}
            self._grown(
                frozenset(each for each, key in found.items() if key is None or key in keys)
            )

        def look() -> set[LogKey]:
            self._position, keys = self._host.store.changed_logs(self._position)
            return set(keys)

        await self._host.watch(look, told)

    # What is done now and then -------------------------------------------------------------------

    async def _refresh(self) -> None:
        while True:
            await trio.sleep(REFRESH_S)
            await self._try(self._catalog.refresh, None)

    async def _keep(self) -> None:
        while self._keeper.has_rules:
            self._tell_trimmed(await self._try(self._keeper.keep_all, []))
            deadline = trio.current_time() + KEEP_EVERY_S
            while trio.current_time() < deadline:
                with trio.move_on_at(deadline):
                    await self._keep_now.wait()
                    await self._keep_busy()

    async def _keep_busy(self) -> None:
        self._keep_now = trio.Event()
        for address, count in list(self._pushed.items()):
            if count >= KEEP_AFTER_MESSAGES:
                del self._pushed[address]
                trimmed = await self._try(partial(self._keep_one, address), None)
                self._tell_trimmed([] if trimmed is None else [trimmed])

    def _keep_one(self, address: str) -> Trimmed | None:
        stream = self._catalog.at(address)
        return None if stream is None else self._keeper.keep(stream)

    def _tell_trimmed(self, done: Sequence[Trimmed]) -> None:
        for each in done:
            self.observe({"event": "trimmed", **trimmed_fields(each)})

    def tell_trimmed(self, done: Sequence[Trimmed]) -> None:
        """Tells what `begin` has finished."""
        self._tell_trimmed(done)

    # Failures ------------------------------------------------------------------------------------

    async def _try(self, work: Callable[[], T], otherwise: T) -> T:
        try:
            return await self._host.call(work)
        except StoreError as error:
            self._host.storage_failed(error)
            return otherwise


def stream_fields(stream: Stream) -> dict[str, object]:
    """A stream as JSON has it."""
    fields = log_fields(stream.key)
    return {"stream": stream.name, "partition": stream.partition, **fields}


def trimmed_fields(trimmed: Trimmed) -> dict[str, object]:
    """What was dropped, as JSON has it."""
    return {
        "stream": trimmed.stream.name,
        "partition": trimmed.stream.partition,
        "earliest": json_number(trimmed.earliest),
        "count": trimmed.dropped.count,
        "bytes": json_number(trimmed.dropped.bytes),
    }
