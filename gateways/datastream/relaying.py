"""Takes the stream of an upstream server into a log (3.3), and goes on from the log alone."""

import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, TypeVar

import trio

from gateways import LogHost, again, beside
from gateways.datastream.codec import Declaration, Entry, encode_entry
from gateways.datastream.sessions import (
    Answer,
    Append,
    AskEntries,
    AskHeader,
    DeclaredOtherwise,
    HistoriesDiffer,
    OpenedLog,
    OpenLog,
    ReadOwn,
    RelayEnds,
    RelaySession,
    StartData,
    Step,
    Truncate,
    Wait,
)
from logstore import (
    KeyFileError,
    LogClosed,
    Store,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreLocked,
    StoreReadOnly,
)
from peer import json_number
from peer.api import Address, Peer
from peer.node import Backoff, CannotConnectError, Observer, unobserved
from wire import LogKey

from .errors import HistoryDiffers, RequestRefused, ServerFailed, StreamMismatch
from .files import Gathered
from .remote import DataStreamClient
from .source import DataStreamSource

T = TypeVar("T")

log = logging.getLogger(__name__)

ANSWER_S: Final = 10.0
_STORE_ENDS: Final = (KeyFileError, LogClosed, StoreClosed, StoreLocked, StoreReadOnly)
"""What no time mends. A disk that is full, or a log that moved on, is looked at again."""


async def relay(
    peer_or_store: Peer | Store,
    address: str | Address,
    *,
    log_id: int = 0,
    stream_type: int = 1,
    once: bool = False,
    follow_truncation: bool = False,
    observer: Observer = unobserved,
    declared: Callable[[LogKey], object] = lambda _: None,
    rng: random.Random | None = None,
) -> None:
    """Appends what an upstream server has committed to an own log, until cancelled.

    `once`: returns when the log holds what the server said last, and raises ServerFailed when a
    connection or the store fails. `declared` is called once the log is there. A store that fails is
    said, and tried again like an upstream that does. Raises HistoryDiffers unless
    `follow_truncation`, StreamMismatch, StoreLocked beside a source of the log, LogClosed if it has
    ended, other StoreErrors that no time mends.
    """
    where = Address.parse(address) if isinstance(address, str) else address
    relaying = _Relay(peer_or_store, where, log_id, stream_type, observer, declared)
    relaying.once, relaying.follow_truncation = once, follow_truncation
    if not once:
        await again(relaying.connect, relaying.talk, Backoff(rng or random.Random()))  # noqa: S311
    try:
        await relaying.run(await relaying.opened())
    except RelayEnds as error:
        raise ServerFailed(str(error), str(where), "try again") from None


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
        self.host = LogHost(peer_or_store, observer)
        self.address = address
        self._log_id = log_id
        self._stream_type = stream_type
        self.observer = observer
        self._declared = declared
        self.once = False
        self.follow_truncation = False
        self.moved = 0
        """Entries that were appended."""

    def connected(self, key: LogKey) -> None:
        """Tells that the log is there and the stream about to come."""
        self._declared(key)
        self.observer({"event": "connected", "address": str(self.address)})

    async def opened(self) -> "_Pair":
        """A pair of connections. Raises ServerFailed."""
        async with AsyncExitStack() as stack:
            control, data = [
                await stack.enter_async_context(
                    DataStreamClient(self.address, stream_type=self._stream_type)
                )
                for _ in range(2)
            ]
            return _Pair(self, control, data, stack.pop_all())

    async def run(self, pair: "_Pair") -> None:
        """One pair of connections until it is lost, or `once` is content.

        Raises RelayEnds, ServerFailed, RequestRefused, StreamMismatch, HistoryDiffers, StoreError.
        """
        try:
            await pair.run()
        except HistoriesDiffer as found:
            raise HistoryDiffers(found.number, str(self.address)) from None
        except DeclaredOtherwise as found:
            raise StreamMismatch(
                str(found), str(self.address), "relay it into another log (--log-id)"
            ) from None

    async def connect(self) -> "_Pair":
        """`opened`, for `again`: that nobody answers is told."""
        try:
            return await self.opened()
        except ServerFailed as error:
            self._tell_lost(error)
            raise CannotConnectError(str(error)) from None

    async def talk(self, pair: "_Pair") -> bool:
        """`run`, for `again`: what time mends is told. Whether anything was appended."""
        moved = self.moved
        try:
            await self.run(pair)
        except (ServerFailed, RequestRefused, RelayEnds, StoreError) as error:
            # Locked by a source of the log, it is so for as long as that runs; busy, for a moment.
            if isinstance(error, _STORE_ENDS) and not isinstance(error, StoreBusy):
                raise
            if isinstance(error, StoreError):
                self.host.storage_failed(error)
            log.info("%s: %s", self.address, error)
            self._tell_lost(error)
        return self.moved > moved

    def _tell_lost(self, error: Exception) -> None:
        where = str(self.address)
        self.observer({"event": "disconnected", "address": where, "reason": str(error)})

    async def open_log(self, wanted: Declaration, stack: AsyncExitStack) -> DataStreamSource:
        """The source of the log, which is declared if it has no entries."""
        store = self.host.store
        info = await self.host.call(lambda: store.log(LogKey(store.author, self._log_id)))
        if info is None or not info.entries:
            await DataStreamSource.create(self._over, log_id=self._log_id, **wanted._asdict())
        return await stack.enter_async_context(DataStreamSource(self._over, log_id=self._log_id))


class _Pair:
    """Carries out the steps of one session."""

    def __init__(
        self,
        relaying: _Relay,
        control: DataStreamClient,
        data: DataStreamClient,
        stack: AsyncExitStack,
    ) -> None:
        self._relay = relaying
        self._session = RelaySession(
            once=relaying.once, follow_truncation=relaying.follow_truncation
        )
        self._control = control
        self._data = data
        self._stack = stack
        self._source: DataStreamSource | None = None
        self._came = trio.Event()
        self._took = trio.Event()
        self._started = trio.Event()

    async def run(self) -> None:
        """Until `once` is content; then it is closed. Raises what `_Relay.run` does, and what the
        session raises.
        """
        async with self._stack:
            await beside(self._receive, self._act)

    async def _receive(self) -> None:
        await self._started.wait()
        while True:
            while self._session.is_full:
                self._took = trio.Event()
                await self._took.wait()
            self._session.receive(await self._data.receive())
            self._came.set()

    async def _act(self) -> None:
        steps = self._session.run()
        answer: Answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            self._took.set()
            answer = await self._carry_out(step)

    async def _carry_out(self, step: Step) -> Answer:
        match step:
            case AskHeader():
                return await _answer(self._control.header, "Header")
            case AskEntries(numbers):
                return await _answer(partial(self._control.entries, numbers), "Entry")
            case OpenLog(wanted):
                source = self._source = await self._relay.open_log(wanted, self._stack)
                return OpenedLog(await source.declaration(), source.total_entries)
            case StartData(number):
                self._relay.connected(self._writing.key)
                await _answer(partial(self._data.start, number), "Start")
                self._started.set()
            case ReadOwn(number):
                return await self._relay.host.call(partial(self._read_own, number))
            case Truncate(number):
                await self._writing.truncate(number)
                self._relay.observer({"event": "truncated", "total_entries": json_number(number)})
            case Append(entries):
                await self._append(entries)
            case Wait(seconds):
                with trio.move_on_after(seconds):
                    await self._came.wait()
                self._came = trio.Event()
        return None

    @property
    def _writing(self) -> DataStreamSource:
        assert self._source is not None
        return self._source

    def _read_own(self, number: int) -> Entry | None:
        stream = self._writing.log
        stream.update()
        return stream.entry(number)

    async def _append(self, entries: list[Entry]) -> None:
        gathered = Gathered()
        async with self._writing.batch() as batch:
            groups: list[tuple[bytes, int]] = []
            for entry in entries:
                groups += gathered.add(encode_entry(entry))
            for payload, count in groups + gathered.finish():
                batch.add_encoded(payload, count)
        self._relay.moved += len(entries)


async def _answer(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """An answer of upstream, which may say nothing for ever."""
    with trio.move_on_after(ANSWER_S):
        return await ask()
    raise RelayEnds(f"no answer to {what} for {ANSWER_S:g} s")
