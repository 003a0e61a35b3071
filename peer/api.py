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
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import trio

from logstore import (
    Appended,
    Follow,
    LogInfo,
    PayloadState,
    Statistics,
    Store,
    StoredEntry,
    Subscription,
)
from peer import Interests
from peer.net import (
    Address,
    CannotConnectError,
    CannotListenError,
    CannotTraceError,
    ConnectionInfo,
    ConnectionState,
    Direction,
    EndKind,
    Greedy,
    Knowledge,
    Limits,
    MemoryStream,
    Node,
    NodeConfig,
    Observer,
    Overview,
    Reason,
    lack_of,
    memory_link,
    newest_held_by,
    open_stream,
    running_node,
    unobserved,
    why_log,
    why_peer,
)
from wire import LogKey

__all__ = [
    "Address",
    "CannotConnectError",
    "CannotListenError",
    "CannotTraceError",
    "ConnectionInfo",
    "ConnectionState",
    "Direction",
    "Greedy",
    "Limits",
    "MemoryStream",
    "NodeConfig",
    "Peer",
    "Reason",
    "SyncError",
    "SyncSummary",
    "memory_link",
    "sync",
]

READ_ENTRIES: Final = 256
READ_BYTES: Final = 1 << 20


class SyncError(Exception):
    """A one-time sync did not come to its end; the text is one line for people."""


@dataclass(frozen=True, slots=True)
class SyncSummary:
    """What a one-time sync moved. Payload bytes are uncompressed, bytes are the transport's."""

    logs: int
    """Logs that either side wanted."""
    entries_received: int
    entries_sent: int
    payload_bytes_received: int
    payload_bytes_sent: int
    bytes_received: int
    bytes_sent: int
    saved_bytes_received: int
    """By how much compression made the payload bytes fewer that came..."""
    saved_bytes_sent: int
    """... and that went."""
    duration_s: float


class Peer:
    """A node on a store, running inside an `async with` block of the caller's program.

    `config` sets limits and timeouts. `observer` is called in the event loop with every event of
    the node, a mapping that JSON can hold. `rng` makes the jitter of calls. Entering raises
    StoreLocked if another node serves the store (unless `config.lock` is false),
    SignatureLibraryError if the installed libsodium judges signatures by another rule, and
    StoreError if the store cannot be read. Leaving ends all connections in good order, in 5 s at
    most; the store stays open.
    """

    def __init__(
        self,
        store: Store,
        *,
        config: NodeConfig | None = None,
        observer: Observer = unobserved,
        rng: random.Random | None = None,
    ) -> None:
        self.store = store
        self._running: AbstractAsyncContextManager[Node] = running_node(
            store, config, observer=observer, rng=rng
        )
        self._started: Node | None = None
        self._overview: Overview | None = None

    async def __aenter__(self) -> Self:
        self._started = await self._running.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._running.__aexit__(kind, error, trace)
        finally:
            self._started = None

    @property
    def node(self) -> Node:
        """What runs underneath. RuntimeError outside of the block."""
        if self._started is None:
            raise RuntimeError("a Peer runs inside `async with Peer(...)`")
        return self._started

    # Connections

    async def listen(self, address: str | Address = "127.0.0.1:0") -> Address:
        """Takes connections at `HOST:PORT`; port 0 picks a free one.

        Returns where, the first address if the host has several. Raises CannotListenError, and
        ValueError for what is no address.
        """
        wanted = _address(address)
        try:
            found = await self.node.listen(wanted)
        except UnicodeError:
            raise CannotListenError(
                f"cannot listen on {wanted}: no host can have this name"
            ) from None
        return found[0]

    def connect(self, address: str | Address, *, greedy: Greedy | None = None) -> None:
        """Connects to a peer, and again whenever the connection is lost, from 0.5 s to 60 s later.

        `greedy`: whether payloads pass before they are verified, on these connections, instead of
        what `config` says for all; said again for the same address, it goes for the next one.
        Returns at once; `connections` says how it goes. Raises ValueError for what is no address.
        """
        self.node.connect(_address(address), greedy=greedy)

    def disconnect(self, address: str | Address) -> None:
        """Takes back `connect`: ends the connection in good order and makes no other."""
        self.node.hang_up(str(_address(address)))

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
    ) -> list[Appended]:
        """Signs one entry of one's own for each payload; returns when all are on disk.

        All or none are stored. Raises what `Store.append` raises. If the caller is cancelled the
        entries may be stored all the same.
        """
        append = partial(self.store.append, payloads, log_id=log_id, end_of_log=end_of_log)
        return await self.node.host.call(append)

    async def follow(self, target: Follow, subscription: Subscription | None = None) -> bool:
        """Follows a log, an author (32 bytes) or `ALL`, from now on and after a restart.

        `subscription`: what of it is wanted; None leaves that as it is, at first everything. Own
        logs are always wanted in full, and what is said of a log comes before what is said of its
        author, that before what is said of `ALL`. False if nothing changes.
        """
        return await self.node.follow(target, subscription)

    @property
    def subscriptions(self) -> dict[Follow, Subscription]:
        """What is followed, and what of it is wanted."""
        return self.node.subscriptions

    async def fetch(self, log: LogKey, first: int, last: int | None = None) -> None:
        """Returns once the entries from `first` to `last`, or that one, are held with payloads.

        Brings what was skipped, or deleted with `Store.drop`, from whichever peer has it, whether
        the log is followed or not, and waits without end for one that does: use `trio.fail_after`
        for a time limit. Cancelled, nothing is asked for any more. Raises LogClosed if the log ends
        before `first`, StoreError; ValueError for no range.
        """
        node = self.node
        wanted = log, first, first if last is None else last
        changed = _News()
        node.want_watchers.add(changed.note)
        try:
            # What is wanted no more is held, or somebody else has taken it back.
            while await node.want(*wanted):
                while node.is_wanted(*wanted):
                    await changed.wait()
        finally:
            node.want_watchers.discard(changed.note)
            with trio.CancelScope(shield=True):
                await node.unwant(*wanted)

    async def unfollow(self, target: Follow) -> bool:
        """Takes back `follow`, for later connections; False if exactly that was not followed."""
        return await self.node.unfollow(target)

    async def entries(
        self,
        target: LogKey | bytes | None = None,
        *,
        after: int | None = 0,
        with_payload: bool = True,
    ) -> AsyncGenerator[StoredEntry, None]:
        """Entries as they are stored, by whomever, without end.

        `target`: of one log, of one author (32 bytes), or all. `after`: the `ingest` number of the
        last entry that was taken, from which to go on; 0 begins with the oldest, None with what is
        new from now on. `with_payload` waits for an entry's payload; without, an entry comes as
        soon as it is verified, and once more when its payload has come or was deleted. Payloads
        above 64 KiB are not in the entry but opened with `Store.open_payload`.
        """
        position = after
        if position is None:
            position = await trio.to_thread.run_sync(self.store.position)
        with _news(self.node) as news:
            while True:
                read = partial(
                    self.store.read_changes,
                    position,
                    entries_max=READ_ENTRIES,
                    bytes_max=READ_BYTES,
                )
                found = await trio.to_thread.run_sync(read)
                for entry in found:
                    position = entry.ingest
                    present = entry.payload_state is PayloadState.PRESENT
                    if _is_of(entry.key, target) and (present or not with_payload):
                        yield entry
                if not found:
                    await news.wait()

    async def wait_for(self, log: LogKey, seq: int) -> LogInfo:
        """Returns once everything of a log up to an entry is held; payloads do not count."""
        with _news(self.node) as news:
            while True:
                info = await trio.to_thread.run_sync(self.store.log, log)
                if info is not None and info.height >= seq:
                    return info
                await news.wait()

    async def sync(
        self, target: str | Address | trio.abc.Stream, *, greedy: Greedy | None = None
    ) -> SyncSummary:
        """Brings this peer and another to what both have now of the logs that either follows.

        Connects to an address, or uses a stream of the caller's; beside other connections to the
        same peer, if there are any. `greedy` as with `connect`. Raises CannotConnectError,
        SyncError, and ValueError for what is no address; use `trio.fail_after` for a time limit.
        """
        return await _sync_once(self.node, self.store, target, greedy)

    async def newest(
        self, target: str | Address | trio.abc.Stream, logs: Iterable[LogKey]
    ) -> dict[LogKey, int]:
        """The newest entry that another peer holds of each log, for those that it gives out.

        Connects to an address, or uses a stream of the caller's, and moves nothing. Raises
        CannotConnectError, and ValueError for what is no address.
        """
        if isinstance(target, trio.abc.Stream):
            name, stream = "stream", target
        else:
            address = _address(target)
            name, stream = str(address), await open_stream(address)
        host, config = self.node.host, self.node.config.session
        return await newest_held_by(stream, name, logs, host, config)

    async def wait_in_sync(self) -> None:
        """Returns once this peer and all those given to `connect` have what the others had.

        What is appended meanwhile may be missing. Waits, without end, for peers that do not answer.
        """
        async with trio.open_nursery() as nursery:
            for address, greedy in self.node.called.items():
                nursery.start_soon(self._wait_in_sync_with, address, greedy)

    async def _wait_in_sync_with(self, address: str, greedy: Greedy | None) -> None:
        backoff = self.node.new_backoff()
        while True:
            try:
                await _sync_once(self.node, self.store, address, greedy)
            except (CannotConnectError, SyncError):
                await trio.sleep(backoff.next_delay_s())
            else:
                return

    async def status(self) -> Mapping[str, object]:
        """How this node is, in values that JSON has, as `node` in `bamboo-peer status --json`.

        Connections in full, and of logs the 500 that lack most or are in trouble.
        """
        if self._overview is None:
            overview = Overview(self.node)
            await overview.load()
            self._overview = overview
        return self._overview.state()

    async def why(self, subject: LogKey | str | Address) -> list[Reason]:
        """Why a log is not complete here, or how it stands with a peer (`HOST:PORT` or a host)."""
        state = await self.status()
        if isinstance(subject, str | Address):
            return why_peer(state, str(subject))
        return await trio.to_thread.run_sync(why_log, self.store, state, subject)

    async def statistics(self) -> Statistics:
        """Sizes of the store."""
        return await trio.to_thread.run_sync(self.store.statistics)


async def sync(
    store: Store,
    target: str | Address | trio.abc.Stream,
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
        return await _sync_once(node, store, target)


async def _sync_once(
    node: Node,
    store: Store,
    target: str | Address | trio.abc.Stream,
    greedy: Greedy | None = None,
) -> SyncSummary:
    started = trio.current_time()
    if isinstance(target, trio.abc.Stream):
        name, stream = "stream", target
    else:
        address = _address(target)
        name, stream = str(address), await open_stream(address)
    member = node.sync(name, stream, greedy=greedy)
    await member.ended.wait()
    reason = "ended by us" if member.ending is None else member.ending.reason
    if member.connection.not_kept is not None:
        raise SyncError(f"{name}: not all that came could be kept: {member.connection.not_kept}")
    if member.logs_synced is None:
        raise SyncError(f"{name}: {reason}")
    if member.ending is None or member.ending.kind is not EndKind.CLOSED:
        raise SyncError(f"{name}: {reason}, before it had said that what was sent is kept there")
    if (not_given := member.connection.not_given) is not None:
        raise SyncError(f"{name}: not all that is held could be read: {not_given}")
    unfinished = await trio.to_thread.run_sync(_unfinished, store, node.interests, member.knowledge)
    if unfinished is not None:
        raise SyncError(f"{name}: {unfinished}")
    info = member.info()
    return SyncSummary(
        logs=member.logs_synced,
        entries_received=info.entries_received,
        entries_sent=info.entries_sent,
        payload_bytes_received=info.payload_bytes_received,
        payload_bytes_sent=info.payload_bytes_sent,
        bytes_received=info.bytes_received,
        bytes_sent=info.bytes_sent,
        saved_bytes_received=info.saved_bytes_received,
        saved_bytes_sent=info.saved_bytes_sent,
        duration_s=trio.current_time() - started,
    )


def _unfinished(store: Store, interests: Interests, knowledge: Knowledge) -> str | None:
    """What was begun in a one-time sync and is missing all the same, in words."""
    for log in (*knowledge.given_up, *knowledge.broken_off):
        subscription = interests.subscription(log)
        lack = lack_of(store, log, subscription, knowledge.newest.get(log, 0))
        if not interests.follows(log) or not (lack.entries or lack.payloads):
            continue
        if (given_up := knowledge.given_up.get(log)) is not None:
            return f"what came of {log} could not be kept: {given_up.detail}"
        return f"the other side broke off what it sent of {log}; its log may say why"
    return None


def _address(address: str | Address) -> Address:
    """Raises ValueError, also for what was put together by hand and is no address."""
    return Address.parse(str(address))


def _is_of(log: LogKey, target: LogKey | bytes | None) -> bool:
    if isinstance(target, LogKey):
        return log == target
    return target is None or log.author == target


class _News:
    """Wakes one task when anything of any log has changed."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def note(self, _: object = None) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Returns at once if anything changed since the last call, else when it does."""
        await self._event.wait()
        self._event = trio.Event()


@contextmanager
def _news(node: Node) -> Iterator[_News]:
    news = _News()
    node.host.watchers.add(news.note)
    try:
        yield news
    finally:
        node.host.watchers.discard(news.note)
