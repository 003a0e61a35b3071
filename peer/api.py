"""A peer inside a Trio program: `Peer` for nodes that stay, `sync` for once.

    with Store.open(path) as store:
        async with Peer(store) as peer:
            await peer.follow(LogKey.parse("3f09.../0"))
            peer.connect("example.org:7007")
            async for entry in peer.entries():
                print(entry.key, entry.seq, entry.payload)

There is no global state: any number of peers may run in one program, also on stores in memory
(`Store.memory`) and over links in memory (`memory_link`).
"""

import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Self, TypeVar

import trio

from logstore import (
    AnyLog,
    Appended,
    LogClosed,
    LogInfo,
    OwnLogsReadOnly,
    Statistics,
    Store,
    check_batches,
    check_payloads,
    check_range,
    check_signing,
    wrong_type,
)
from peer import counted, seq_span
from peer.node import (
    OLDEST,
    Address,
    CannotConnectError,
    CannotListenError,
    CannotTraceError,
    ConnectionInfo,
    ConnectionState,
    Direction,
    Doors,
    Greedy,
    Limits,
    MemoryStream,
    Meter,
    MetricsServer,
    Node,
    NodeConfig,
    Observer,
    Overview,
    PeerAddress,
    PendingCalls,
    Reason,
    SyncError,
    SyncSummary,
    Takes,
    Taking,
    Watch,
    address_in,
    asked_in,
    called_in,
    check_seq,
    check_store,
    check_timeout,
    hear_first,
    held_up_to,
    log_in,
    memory_link,
    metrics_address,
    newest_held_by,
    news_of,
    read_ahead,
    running_node,
    serving_metrics,
    stage,
    subject_in,
    sync_once,
    target_of,
    unobserved,
    why_log,
    why_peer,
    within,
)
from wire import LogKey

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = [
    "ENTERED_ONCE",
    "NO_TRIO",
    "OLDEST",
    "OUTSIDE",
    "Address",
    "CannotConnectError",
    "CannotListenError",
    "CannotTraceError",
    "ConnectionInfo",
    "ConnectionState",
    "Direction",
    "Doors",
    "Greedy",
    "Limits",
    "MemoryStream",
    "NodeConfig",
    "Observer",
    "Peer",
    "PeerAddress",
    "Reason",
    "SyncError",
    "SyncSummary",
    "Taking",
    "memory_link",
    "read_ahead",
    "sync",
    "unobserved",
]

T = TypeVar("T")

OUTSIDE: Final = "a Peer runs inside `with Peer(...)` or `async with Peer(...)`"
ENTERED_ONCE: Final = "a Peer is entered once: make a new one, Peer(store), for each block"
NO_TRIO: Final = (
    "peer.api.Peer runs in Trio, and here is none:"
    " peer.aio.Peer is for asyncio, peer.blocking.Peer for programs without a loop"
)


class Peer(Takes):
    """A node on a store, running inside an `async with` block of the caller's program.

    What a method has returned or yielded, every later call knows of, `status` and `why` as well.

    `config` sets limits and timeouts. `observer` is called in the event loop with every event of
    the node, a mapping that JSON can hold. `rng` makes the jitter of calls. Entering raises
    StoreLocked if another node serves the store (unless `config.lock` is false),
    SignatureLibraryError if the installed libsodium judges signatures by another rule, and
    StoreError if the store cannot be read. Leaving ends all connections in good order, in 5 s at
    most; the store stays open. What other tasks still wait for then raises RuntimeError, as what is
    called outside of the block does, and entering again. `ask_first`: see `append`. `doors`: who is
    let in, and how; `store.peers` says whom, by id.

    A log or an author may be given as text everywhere: by a name, in full, or by 8 digits and more
    that one id begins with (`Store.resolve`, which says what it raises).

    `metrics`: `PORT`, which is on 127.0.0.1, or `HOST:PORT`, where `/metrics`, `/healthz` and
    `/readyz` are served over HTTP. Port 0 picks a free one, and the event `metrics_listening` tells
    it. ValueError for what is no address; entering raises CannotListenError where it is not free.
    """

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
        check_store(store)
        self.store = store
        if doors is not None:
            config = replace(config or NodeConfig(), doors=doors)
        self._ask_first = ask_first
        where = None if metrics is None else metrics_address(str(metrics))
        self._watch = None if observer is unobserved else Watch(observer)
        if self._watch is not None:
            observer = self._watch.take
        self._running: AbstractAsyncContextManager[Node] = (
            running_node(store, config, observer=observer, rng=rng)
            if where is None
            else self._measured(config, where, observer, rng)
        )
        self._entered = False
        self._readings = {}
        self._started: Node | None = None
        self._pending = PendingCalls(OUTSIDE)
        self._overview: Overview | None = None

    async def __aenter__(self) -> Self:
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(NO_TRIO)
        if self._entered:
            raise RuntimeError(ENTERED_ONCE)
        self._entered = True
        self._started = await self._running.__aenter__()
        if self._watch is not None:
            trio.lowlevel.spawn_system_task(self._watch.run, self._started, self.overview)
        return self

    @asynccontextmanager
    async def _measured(
        self,
        config: NodeConfig | None,
        where: Address,
        observer: Observer,
        rng: random.Random | None,
    ) -> AsyncIterator[Node]:
        """A node that runs inside the block, and what is told of it over HTTP."""
        meter = Meter()
        counting = meter.observing(observer)
        async with running_node(self.store, config, observer=counting, rng=rng) as node:
            meter.watch(node)
            self._overview = overview = Overview(node)
            await overview.load()
            async with serving_metrics(MetricsServer(node, overview, meter), where, observer):
                yield node

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._watch is not None:
            self._watch.end()
        try:
            await self._pending.end()
            return await self._running.__aexit__(kind, error, trace)
        finally:
            self._started = None

    @property
    def node(self) -> Node:
        """What runs underneath. RuntimeError outside of the block."""
        if self._started is None:
            raise RuntimeError(OUTSIDE)
        return self._started

    # Connections

    async def listen(self, address: str | Address = "127.0.0.1:0") -> Address:
        """Takes connections at `HOST:PORT`, or at `unix:PATH`; port 0 picks a free one.

        Returns where, the first address if the host has several. Raises CannotListenError, and
        ValueError for what is no address.
        """
        return (await self.node.listen(address_in(address)))[0]

    def connect(
        self, address: str | Address | PeerAddress, *, greedy: Greedy | None = None
    ) -> None:
        """Connects to a peer, and again whenever the connection is lost, from 0.5 s to 60 s later.

        `HOST:PORT` calls whoever is allowed there, `ID@HOST:PORT` nobody else than that peer, by
        its id in hex or its name, and over TLS.

        `greedy`: whether payloads pass before they are verified, on these connections, instead of
        what `config` says for all; said again for the same address, it goes for the next one.
        Returns at once; `connections` says how it goes. Raises ValueError for what is no address,
        or one at which somebody else is called.
        """
        self.node.connect(target_of(address), greedy=greedy)

    def disconnect(self, address: str | Address | PeerAddress) -> None:
        """Takes back `connect`: ends the connection in good order and makes no other."""
        self.node.hang_up(str(target_of(address)))

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        *,
        proactive: bool,
        name: str = "stream",
        greedy: Greedy | None = None,
    ) -> None:
        """Runs a session over a stream of the caller's, until it ends; closes the stream.

        One of the two ends has to be proactive: the one that made the connection. `name` is what
        the other side is called in the store and in `connections`, `greedy` as with `connect`.
        """
        await self.node.serve_stream(stream, proactive=proactive, name=name, greedy=greedy)

    def connections(self) -> list[ConnectionInfo]:
        """Every open connection, and every address that is called again."""
        return self.node.connections()

    # Logs

    async def append(
        self,
        payloads: Sequence[bytes | Path | BinaryIO],
        *,
        log_id: int = 0,
        end_of_log: bool = False,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """Signs one entry of one's own for each payload; returns when all are on disk.

        All or none are stored. A file or stream is read beside everything else, and no further if
        the caller is cancelled; once it has been read, the entries may be stored all the same.
        Where others have had own logs from this store, the first call waits until those who are
        called by `connect` have said what they hold of this log, 3 s at most; what they hold and
        this store does not is waited for in any call. `ask_first=False` of the Peer does neither.
        Raises what `Store.append` raises, OwnLogsReadOnly also if peers hold more than has come,
        ValueError for no log id.
        """
        check_payloads(payloads)
        check_signing(log_id, expected_seq)
        store, host = self.store, self.node.host
        if self._ask_first and self.node.has_shared:
            await self._hear_first([LogKey(store.author, log_id)])
        append = partial(store.append, payloads)
        if not all(isinstance(each, bytes) for each in payloads):
            with self._pending.waiting():
                append = partial(store.append_staged, await stage(store, payloads))
        return await host.call(
            partial(append, log_id=log_id, end_of_log=end_of_log, expected_seq=expected_seq)
        )

    async def append_many(
        self,
        batches: Sequence[tuple[int, Sequence[bytes]]],
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """`Store.append_many`; waits as `append` does, for all logs at once, and raises as both."""
        check_batches(batches, expected_seqs, ending)
        if self._ask_first and self.node.has_shared:
            await self._hear_first({LogKey(self.store.author, log_id) for log_id, _ in batches})
        append = partial(
            self.store.append_many, batches, expected_seqs=expected_seqs, ending=ending
        )
        return await self.node.host.call(append)

    async def _hear_first(self, logs: Collection[LogKey]) -> None:
        with self._pending.waiting():
            missing = await hear_first(self.node, logs)
        if missing:
            log, count = min(missing.items())
            error = OwnLogsReadOnly(
                f"peers hold {counted(count, 'entry')} more than this store",
                str(log),
                "append again once they have come",
            )
            error.log = log
            raise error

    async def fetch(
        self, log: AnyLog, first: int, last: int | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Returns once the entries from `first` to `last`, or that one, are held with payloads.

        Brings what was skipped, or deleted with `Store.drop`, from whichever peer has it, whether
        the log is followed or not. Cancelled, out of time, or met by the end of the block, it asks
        no more. Raises LogClosed if the log ends before `first`, TimeoutError with what `why` says
        after `timeout_s` seconds, StoreError; ValueError for no log or no range.
        """
        last = first if last is None else last
        check_range(first, last)
        check_timeout(timeout_s)
        key = await log_in(self.store, log)
        call = partial(self._fetch, key, first, last)
        await self._within(timeout_s, f"{key} {seq_span(first, last)}", call, key)

    async def _fetch(self, *wanted: *tuple[LogKey, int, int]) -> None:
        node = self.node
        with self._pending.waiting(), news_of(node, logs=False) as changed:
            try:
                # What is wanted no more is held, or somebody else has taken it back.
                while await node.want(*wanted):
                    while node.is_wanted(*wanted):
                        await changed.wait()
            finally:
                await self._take_back(node, *wanted)

    async def _take_back(self, node: Node, log: LogKey, first: int, last: int) -> None:
        with trio.CancelScope(shield=True):
            try:
                await node.unwant(log, first, last)
            except RuntimeError:
                # The node has ended by a fault, and would be the last to know.
                await trio.to_thread.run_sync(self.store.unwant, log, first, last)

    async def wait_for(self, log: AnyLog, seq: int, *, timeout_s: float | None = None) -> LogInfo:
        """Returns once all that is wanted of a log up to an entry is held; payloads do not count.

        Something from that entry on has to be here, and no entry below may be missing that `follow`
        wants: with `latest:N` and the like not every one is. Of a log that is not followed all are
        waited for. Raises LogClosed if the log ends before that entry, TimeoutError with what `why`
        says after `timeout_s` seconds; ValueError for no log or no entry.
        """
        check_seq(seq)
        check_timeout(timeout_s)
        key = await log_in(self.store, log)
        call = partial(self._wait_for, key, seq)
        return await self._within(timeout_s, f"{key} {seq}", call, key)

    async def _wait_for(self, log: LogKey, seq: int) -> LogInfo:
        node = self.node
        with self._pending.waiting(), news_of(node) as news:
            while True:
                try:
                    info = await trio.to_thread.run_sync(held_up_to, self.store, log, seq)
                except LogClosed:
                    await node.host.until_told()
                    raise
                if info is not None:
                    await node.host.until_told()
                    return info
                await news.wait()

    async def sync(
        self,
        target: str | Address | PeerAddress | trio.abc.Stream,
        *,
        greedy: Greedy | None = None,
        timeout_s: float | None = None,
    ) -> SyncSummary:
        """Brings this peer and another to what both have now of the logs that either follows.

        Connects to an address, or uses a stream of the caller's; beside other connections to the
        same peer, if there are any. `greedy` as with `connect`. Raises CannotConnectError,
        SyncError, TimeoutError after `timeout_s` seconds, and ValueError for what is no address.
        """
        called = called_in(target)
        check_timeout(timeout_s)
        call = partial(sync_once, self.node, self.store, called, greedy)
        return await self._within(timeout_s, "end of the sync", call, *asked_in(called))

    async def newest(
        self,
        target: str | Address | PeerAddress | trio.abc.Stream,
        logs: Iterable[AnyLog],
        *,
        timeout_s: float | None = None,
    ) -> dict[LogKey, int]:
        """The newest entry that another peer holds of each log, for those that it gives out.

        Connects to an address, or uses a stream of the caller's, and moves nothing. Raises
        CannotConnectError, TimeoutError after `timeout_s` seconds, and ValueError for what is no
        address or no log.
        """
        if isinstance(logs, LogKey | str):
            raise wrong_type("logs", logs, "a list of logs is wanted")
        called = called_in(target)
        check_timeout(timeout_s)
        wanted = [await log_in(self.store, log, f"logs[{place}]") for place, log in enumerate(logs)]
        call = partial(self._newest, called, wanted)
        return await self._within(timeout_s, "answer", call, *asked_in(called))

    async def _newest(
        self, called: PeerAddress | trio.abc.Stream, wanted: list[LogKey]
    ) -> dict[LogKey, int]:
        if isinstance(called, trio.abc.Stream):
            name, stream = "stream", called
        else:
            name, stream = str(called), await self.node.entrance.call(called)
        node = self.node
        return await newest_held_by(stream, name, wanted, node.host, node.config.session)

    async def wait_in_sync(self, *, timeout_s: float | None = None) -> None:
        """Returns once this peer and all those given to `connect` have what the others had.

        What is appended meanwhile may be missing. Waits for every one of them, also for one that
        never answers, or raises TimeoutError with what `why` says after `timeout_s` seconds.
        """
        check_timeout(timeout_s)
        peers = [str(each) for each in self.node.called]
        await self._within(timeout_s, "being in step", self._wait_in_sync, *peers)

    async def _wait_in_sync(self) -> None:
        with self._pending.waiting():
            async with trio.open_nursery() as nursery:
                for target in self.node.called:
                    nursery.start_soon(self._wait_in_sync_with, target)

    async def _wait_in_sync_with(self, target: PeerAddress) -> None:
        backoff = self.node.new_backoff()
        while True:
            try:
                await sync_once(self.node, self.store, target)
            except (CannotConnectError, SyncError):
                await trio.sleep(backoff.next_delay_s())
            else:
                return

    async def _within(
        self,
        timeout_s: float | None,
        what: str,
        call: Callable[[], Awaitable[T]],
        *subjects: LogKey | str,
    ) -> T:
        return await within(timeout_s, what, call, [partial(self.why, each) for each in subjects])

    async def status(self) -> Mapping[str, object]:
        """How this node is, in values that JSON has, as `node` in `bamboo-peer status --json`.

        Connections in full, and of logs the 500 that lack most or are in trouble.
        """
        return (await self.overview()).state()

    async def overview(self) -> Overview:
        """What keeps up with how this node is, for `status` and whoever else tells others of it."""
        node = self.node
        if self._overview is None:
            overview = Overview(node)
            await overview.load()
            self._overview = overview
        return self._overview

    async def why(self, subject: AnyLog | Address) -> list[Reason]:
        """Why a log is not complete here, or how it stands with a peer (`HOST:PORT` or a host).

        Text is a log if anything in the store is called so, else a host. Raises Ambiguous.
        """
        found = await subject_in(self.store, subject)
        state = await self.status()
        if isinstance(found, str):
            return await trio.to_thread.run_sync(why_peer, self.store, state, found)
        return await trio.to_thread.run_sync(why_log, self.store, state, found)

    async def statistics(self) -> Statistics:
        """Sizes of the store."""
        return await trio.to_thread.run_sync(self.store.statistics)


async def sync(
    store: Store,
    target: str | Address | PeerAddress | trio.abc.Stream,
    *,
    config: NodeConfig | None = None,
    observer: Observer = unobserved,
) -> SyncSummary:
    """Connects once, replicates both ways until each side has what the other has, and ends.

    What is moved are the logs that either side follows; `store` may be served by a node meanwhile.
    Raises CannotConnectError, SyncError, StoreError, SignatureLibraryError, and ValueError for what
    is no address; use `trio.fail_after` for a time limit.
    """
    config = replace(config or NodeConfig(), lock=False)
    async with running_node(store, config, observer=observer) as node:
        return await sync_once(node, store, called_in(target))
