"""Takes the stream of an upstream server into a log (3.3), and goes on from the log alone."""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import trio

from gateways import LogHost
from gateways.datastream.codec import CodecError, Entry, Header, encode_entry
from gateways.datastream.sessions import CONFIRMED_AT_ONCE, WaitingRoom
from logstore import Store, StoreError
from peer.api import Address, Peer
from wire import LogKey

from .client import DataStreamClient
from .errors import HistoryDiffers, RequestRefused, ServerFailed, StreamError, StreamMismatch
from .files import Gathered
from .source import DataStreamSource

T = TypeVar("T")

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 0.05
SILENT_S: Final = 2.0
ANSWER_S: Final = 10.0
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 60.0

Observer = Callable[[Mapping[str, object]], object]


class _Again(Exception):  # noqa: N818 - what is to be done
    """Both connections are to end, and it begins from 1."""


async def relay(
    peer_or_store: Peer | Store,
    address: str | Address,
    *,
    log_id: int = 0,
    stream_type: int = 1,
    once: bool = False,
    follow_truncation: bool = False,
    observer: Observer = lambda _: None,
    declared: Callable[[LogKey], object] = lambda _: None,
    rng: random.Random | None = None,
) -> None:
    """Appends what an upstream server has committed to an own log, until cancelled.

    `once`: returns when the log holds what the server said last, and raises ServerFailed when a
    connection fails. `declared` is called once the log is there. Raises HistoryDiffers unless
    `follow_truncation`, StreamMismatch, StoreLocked beside a source of the log, StoreError.
    """
    where = Address.parse(address) if isinstance(address, str) else address
    relaying = _Relay(peer_or_store, where, log_id, stream_type, observer, declared)
    relaying.once, relaying.follow_truncation = once, follow_truncation
    random_ = rng or random.Random()  # noqa: S311 - jitter
    step_s = _BACKOFF_FIRST_S
    while True:
        reason = ""
        moved = relaying.moved
        try:
            if await relaying.run():
                return
        except (ServerFailed, RequestRefused) as error:
            if once:
                raise
            reason = str(error)
        except _Again as error:
            if once:
                raise ServerFailed(str(error), str(where), "try again") from None
            reason = str(error)
        log.info("%s: %s", where, reason)
        observer({"event": "disconnected", "address": str(where), "reason": reason})
        if relaying.moved > moved:
            step_s = _BACKOFF_FIRST_S
        await trio.sleep(step_s * random_.uniform(0.5, 1.0))
        step_s = min(_BACKOFF_MAX_S, step_s * 2)


class _Relay:
    """One relay, over any number of connections."""

    def __init__(
        self,
        peer_or_store: Peer | Store,
        address: Address,
        log_id: int,
        stream_type: int,
        observer: Observer,
        declared: Callable[[LogKey], object],
    ) -> None:
        self._over = peer_or_store
        self._host = LogHost(peer_or_store)
        self._address = address
        self._log_id = log_id
        self._stream_type = stream_type
        self._observer = observer
        self._declared = declared
        self.once = False
        self.follow_truncation = False
        self.moved = 0
        """Entries that were appended."""

    async def run(self) -> bool:
        """One pair of connections; True if that is all."""
        clients = [DataStreamClient(self._address, stream_type=self._stream_type) for _ in range(2)]
        async with clients[0] as control, clients[1] as data:
            header = await _answer(control.header, "Header")
            await self._declare(header)
            async with DataStreamSource(self._over, log_id=self._log_id) as source:
                await self._check_declaration(source, header)
                self._declared(source.key)
                self._observer({"event": "connected", "address": str(self._address)})
                await self._compare_last(source, control)
                if self.once and source.total_entries >= header.total_entries:
                    return True
                await _answer(partial(data.start, source.total_entries), "Start")
                return await _Transfer(self, source, control, data).run()

    async def _declare(self, header: Header) -> None:
        info = await self._host.call(
            lambda: self._host.store.log(LogKey(self._host.store.author, self._log_id))
        )
        if info is None or not info.entries:
            await DataStreamSource.create(
                self._over,
                log_id=self._log_id,
                stream_type=header.stream_type,
                system_id=header.system_id,
                file_version=header.file_version,
                origin="relay",
            )

    async def _check_declaration(self, source: DataStreamSource, header: Header) -> None:
        declared = await source.declaration()
        wanted = (header.stream_type, header.system_id, header.file_version, "relay")
        if tuple(declared) != wanted:
            raise StreamMismatch(
                f"stream type, system id, file version and origin are {wanted}, those of the log"
                f" {tuple(declared)}",
                str(self._address),
                "relay it into another log (--log-id)",
            )

    async def _compare_last(self, source: DataStreamSource, control: DataStreamClient) -> None:
        last = source.total_entries - 1
        if last >= 0 and not await self.is_equal(source, control, last):
            await self.differs(source, control, last)

    async def is_equal(
        self, source: DataStreamSource, control: DataStreamClient, number: int
    ) -> bool:
        """Whether upstream has an entry as the log has it."""
        ours = await self._host.call(partial(source.log.entry, number))
        return ours == await _answer(partial(control.entry, number), "Entry")

    async def differs(self, source: DataStreamSource, control: DataStreamClient, high: int) -> None:
        """Entry `high` differs: finds the first that does, and gives up from there or raises."""
        low = 0
        while low < high:
            middle = (low + high) // 2
            if await self.is_equal(source, control, middle):
                low = middle + 1
            else:
                high = middle
        if not self.follow_truncation:
            raise HistoryDiffers(low, str(self._address))
        await source.truncate(low)
        self._observer({"event": "truncated", "total_entries": low})


async def _answer(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """An answer of upstream, which may say nothing for ever."""
    with trio.move_on_after(ANSWER_S):
        return await ask()
    raise _Again(f"no answer to {what} for {ANSWER_S:g} s")


class _Transfer:
    """Moves what comes as Data into the log, once it is committed."""

    def __init__(
        self,
        relaying: _Relay,
        source: DataStreamSource,
        control: DataStreamClient,
        data: DataStreamClient,
    ) -> None:
        self._relay = relaying
        self._source = source
        self._control = control
        self._data = data
        self._room = WaitingRoom(source.total_entries)
        self._came = trio.Event()
        self._left = trio.Event()

    async def run(self) -> bool:
        """Until `once` is content. Raises _Again, ServerFailed, HistoryDiffers, StoreError."""
        failures: list[Exception] = []
        is_done = False
        async with trio.open_nursery() as nursery:

            async def guarded(task: Callable[[], Awaitable[None]]) -> None:
                nonlocal is_done
                try:
                    await task()
                    is_done = True
                except (_Again, StreamError, StoreError) as error:
                    failures.append(error)
                nursery.cancel_scope.cancel()

            nursery.start_soon(guarded, self._receive)
            nursery.start_soon(guarded, self._append)
        if failures:
            raise failures[0]
        return is_done

    async def _receive(self) -> None:
        while True:
            while self._room.is_full:
                self._left = trio.Event()
                await self._left.wait()
            entry = await self._data.receive()
            try:
                known = self._room.receive(entry)
            except CodecError as error:
                raise _Again(f"upstream skips: {error}") from None
            if known is not None:
                await self._compare(known)
            self._came.set()

    async def _compare(self, entry: Entry) -> None:
        """An entry that came again has to be the one that is stored."""
        stream = self._source.log

        def read() -> Entry | None:
            stream.update()
            return stream.entry(entry.number)

        if await trio.to_thread.run_sync(read) != entry:
            raise _Again(f"upstream sends another entry {entry.number} than before")

    async def _append(self) -> None:
        while True:
            with trio.move_on_after(LOOK_AGAIN_S if len(self._room) else SILENT_S):
                await self._came.wait()
            came, self._came = self._came.is_set(), trio.Event()
            header = await _answer(self._control.header, "Header")
            entries, unsure = self._room.ready(header.total_entries)
            if entries:
                await self._write(await self._confirmed(entries, unsure))
                self._left.set()
            due = self._room.next_number
            if self._relay.once and due >= header.total_entries:
                return
            if not came and not len(self._room) and header.total_entries > due:
                raise _Again(f"upstream counts {header.total_entries} entries and sends none")

    async def _confirmed(self, entries: list[Entry], unsure: list[int]) -> list[Entry]:
        """The entries with what upstream says now of those that came before it counted them."""
        first = entries[0].number
        for at in range(0, len(unsure), CONFIRMED_AT_ONCE):
            numbers = unsure[at : at + CONFIRMED_AT_ONCE]
            found = await _answer(partial(self._control.entries, numbers), "Entry")
            for number, entry in zip(numbers, found, strict=True):
                if entry is None or entry.number != number:
                    raise _Again(f"upstream counts entry {number} and does not have it")
                entries[number - first] = entry
        return entries

    async def _write(self, entries: list[Entry]) -> None:
        gathered = Gathered()
        async with self._source.batch() as batch:
            groups: list[tuple[bytes, int]] = []
            for entry in entries:
                groups += gathered.add(encode_entry(entry))
            for payload, count in groups + gathered.finish():
                batch.add_encoded(payload, count)
        self._room.appended(entries)
        self._relay.moved += len(entries)
