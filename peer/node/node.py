"""The node: a store, its sessions, whom it calls and where it listens."""

import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from logstore import (
    Follow,
    KeepRule,
    NodeLock,
    Store,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    Subscription,
)
from peer import Interests, LogChanged, SessionConfig
from peer.node.doors.admission import Doors
from peer.node.host.lane import EndedError
from peer.node.host.store_host import POLL_S, StoreHost
from peer.node.host.verifier import Verifier
from peer.node.interests import InterestBook, Wanted
from peer.node.links.addresses import Address, PeerAddress, called_at
from peer.node.links.backoff import Backoff
from peer.node.links.calling import Calling, nothing
from peer.node.links.calls import Calls
from peer.node.links.connection import Ending
from peer.node.links.dialling import Connect, Dialler
from peer.node.links.entrance import Entrance
from peer.node.links.gate import Gate
from peer.node.links.greedy import Greedy
from peer.node.links.limits import Limits
from peer.node.links.listening import Reception, address_of, clean_up, open_listeners
from peer.node.links.records import ConnectionInfo, Direction, Observer
from peer.node.links.roster import Ended, Member, Roster
from peer.node.links.sources import SourceInfo
from peer.node.links.trace import TraceFile
from wire import LogKey, signature_self_test

from .errors import alone
from .keeping import Keeping
from .news import News
from .observing import Teller, unobserved
from .room import Room
from .spread import Spread

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 5.0
FLUSH_TIMEOUT_S: Final = 5.0
LOCK_ATTEMPTS: Final = 4
LOCK_RETRY_S: Final = 0.05
LOOK_AGAIN_S: Final = 1.0
"""How long to wait when what is wanted could not be read."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a node behaves.

    `workers`: verification processes at most, one for each core if None. `poll_s`: how often
    commits of other processes are looked for, in seconds. `lock`: whether it is the one node that
    serves its store. `serve_held`: whether logs are given out that are merely held. `fetches_only`:
    nothing is followed or offered, only what `Store.want` has recorded is asked for. `only`: own
    logs, which alone are brought into step, and of which every peer is asked what it holds.
    `trace`: a file for a record of every message. `doors`: who is let in, and how.
    """

    session: SessionConfig = field(default_factory=SessionConfig)
    limits: Limits = field(default_factory=Limits)
    workers: int | None = None
    poll_s: float = POLL_S
    lock: bool = True
    serve_held: bool = True
    fetches_only: bool = False
    only: frozenset[LogKey] | None = None
    trace: Path | None = None
    doors: Doors = field(default_factory=Doors)


@asynccontextmanager
async def running_node(
    store: Store,
    config: NodeConfig | None = None,
    *,
    observer: Observer = unobserved,
    rng: random.Random | None = None,
) -> AsyncIterator["Node"]:
    """A node that runs inside the block and ends its connections in good order behind it.

    `observer` is called in the event loop with every event, a mapping that JSON can hold. `rng`
    makes the jitter of calls. Raises StoreLocked if another node serves the store,
    SignatureLibraryError if the signature library judges by another rule, StoreError if the store
    cannot be read, CannotTraceError if the trace cannot be written. An exception of the block comes
    out as it is, in no group.
    """
    config = config or NodeConfig()
    signature_self_test()
    store.set_quotas(config.limits.quotas)
    failure: BaseException | None = None
    with await _locked(store) if config.lock else nullcontext():
        try:
            async with _traced(config, observer) as trace, trio.open_nursery() as outer:
                # Whoever is cancelled in here would wait for tasks that nobody tells to end.
                with trio.CancelScope(shield=True):
                    host, inner = await outer.start(_run_host, store, config)
                tell = Teller(observer, inner)
                if trace is not None:
                    inner.start_soon(trace.run)
                try:
                    # Only now, so that nothing that another process changes later is overlooked.
                    book = await trio.to_thread.run_sync(_new_book(store, config).load, store)
                    node = Node(host, config, book, inner, tell, rng or new_rng(), trace)
                    inner.start_soon(_when_cancelled, node.hurry)
                    keeping = Keeping(host, tell, book.wanted, deletes=book.deletes)
                    if config.lock:
                        inner.start_soon(keeping.run)
                    try:
                        yield node
                    except BaseException as error:  # noqa: BLE001 - raised again below
                        failure = error
                    await node.stop()
                    with trio.move_on_after(FLUSH_TIMEOUT_S, shield=True):
                        await keeping.finish()
                finally:
                    inner.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # Tasks that wanted something of a lane may hear of its end before they are cancelled.
            # Where there is nothing else it has ended as it was told to.
            _, causes = group.split(EndedError)
            if causes is not None:
                raise alone(causes) from None
    if failure is not None:
        raise failure


async def _locked(store: Store) -> NodeLock:
    """The right to serve a store. Whoever asks whether a node runs may hold it for a moment."""
    if store.readonly:
        raise StoreReadOnly(
            "the store was opened for reading only",
            store.path or "memory",
            "open it without readonly to serve it or to sync",
        )
    for _ in range(LOCK_ATTEMPTS - 1):
        with suppress(StoreLocked):
            return store.lock_node()
        await trio.sleep(LOCK_RETRY_S)
    return store.lock_node()


async def _run_host(
    store: Store,
    config: NodeConfig,
    task_status: trio.TaskStatus[tuple[StoreHost, trio.Nursery]],
) -> None:
    """The threads of a node, and inside of them a nursery for what makes use of them.

    Its tasks go on when the caller is cancelled, until they are told to end. Sessions end before
    the threads, which are to keep what they received; and where the threads have ended first, by a
    fault, the host keeps it behind all of them.
    """
    verifier = Verifier(config.workers)
    host = StoreHost(store, verifier, poll_s=config.poll_s)
    with trio.CancelScope(shield=True):
        try:
            async with trio.open_nursery() as threads:
                await threads.start(verifier.run)
                await threads.start(host.run)
                try:
                    async with trio.open_nursery() as users:
                        task_status.started((host, users))
                        await trio.sleep_forever()
                finally:
                    threads.cancel_scope.cancel()
        finally:
            await host.end()


async def _when_cancelled(then: Callable[[], None]) -> None:
    """Where the node has ended by a fault there is nobody left to wait for."""
    try:
        await trio.sleep_forever()
    finally:
        then()


@asynccontextmanager
async def _traced(config: NodeConfig, observer: Observer) -> AsyncIterator[TraceFile | None]:
    """The trace that is wanted, if one is; closed behind the block."""
    trace = None if config.trace is None else TraceFile(config.trace, observer)
    try:
        yield trace
    finally:
        if trace is not None:
            await trace.close()


def _new_book(store: Store, config: NodeConfig) -> InterestBook:
    return InterestBook(
        store.author,
        serve_held=config.serve_held,
        fetches_only=config.fetches_only,
        only=config.only,
    )


def new_rng() -> random.Random:
    """Randomness that only keeps peers out of step."""
    return random.Random()  # noqa: S311 - nothing secret


class Node:
    """A running node; `running_node` makes one."""

    def __init__(
        self,
        host: StoreHost,
        config: NodeConfig,
        book: InterestBook,
        nursery: trio.Nursery,
        observer: Observer,
        rng: random.Random,
        trace: TraceFile | None = None,
    ) -> None:
        self.host = host
        self.config = config
        self.gate = Gate(config.limits)
        self._book = book
        self._nursery = nursery
        self.observer = observer
        self.entrance = Entrance(host, config.doors, book.wanted, nursery, observer)
        self.addresses = self.entrance.addresses
        """Where it listens."""
        self._spread = Spread(host, nursery, self._is_news_of_own)
        self._roster = Roster(
            host,
            config.session,
            lambda: self._book.current,
            observer,
            trace,
            config.limits,
            admission=self.entrance.admission,
            spread=self._spread.note,
        )
        self._news = News(observer)
        self._reception = Reception(self._roster, self.gate, self.entrance)
        self.calls = Calls(host)
        """The addresses that were reached, for whoever wants to ask the same peers."""
        self._calling = Calling(
            self.entrance,
            self._roster,
            self.gate,
            self.calls,
            config.session,
            nursery,
            rng,
            observer,
        )
        self._accepting = trio.CancelScope()
        self._stopping = trio.CancelScope(shield=True)
        self._stopping_begun = False
        nursery.start_soon(self._roster.sources.run)
        self.room = Room(host, observer, config.limits.partial_seconds)
        nursery.start_soon(self.room.run)
        host.watchers.add(self._logs_changed)
        self.want_watchers: set[Callable[[], None]] = set()
        """Called when what is wanted may have changed, also because some of it has come."""
        self._look_lock, self._looking_at_wants = trio.Lock(), False
        self._wanted_told: Wanted | None = None  # what the host told since the last change here
        host.want_watchers.add(self._wanted_read)
        self._news.contested(self._book.wanted.contested)

    # Connections

    async def listen(self, address: Address) -> list[Address]:
        """Takes connections at an address (port 0: a free one).

        Raises CannotListenError, and KeyFileError where that takes TLS and the node key is lost.
        """
        tls = self.entrance.listens_with_tls(address)
        if tls:
            await self.entrance.load_identity()
        listeners = await open_listeners(address)
        await self._nursery.start(self._accept, listeners, tls)
        found = [address_of(listener) for listener in listeners]
        self.addresses += found
        for each in found:
            self.observer({"event": "listening", "address": str(each), "tls": tls})
        return found

    def connect(self, target: Address | PeerAddress, *, greedy: Greedy | None = None) -> Dialler:
        """Calls a peer, and calls again whenever there is no connection.

        `greedy`: what goes for this peer instead of what `config.session.setup` says. Said again
        of one that is called already, it goes for the next connection. Raises ValueError for
        another word, and where somebody else is called at that address.
        """
        return self._calling.connect(called_at(target, greedy))

    def dial(
        self,
        name: str,
        connect: Connect,
        *,
        greedy: Greedy | None = None,
        reached: Callable[[], None] | None = None,
    ) -> Dialler:
        """Like `connect`, by any transport; the name is shown to people.

        `reached` is called whenever somebody who answers there has turned out to be a peer.
        """
        return self._calling.dial(name, connect, greedy=greedy, reached=reached)

    def call_known(self) -> None:
        """Calls the peers that the table has an address of, from now on."""
        self._calling.call_known(self._book.wanted.peers)

    def hang_up(self, name: str) -> None:
        """Ends the connection in good order, if there is one, and calls no more."""
        self._calling.hang_up(name)

    @property
    def diallers(self) -> list[Dialler]:
        """Those who keep the peers connected that are called."""
        return self._calling.diallers

    @property
    def called(self) -> list[PeerAddress]:
        """Who is called again and again, by an address."""
        return self._calling.called

    def called_as(self, info: ConnectionInfo) -> str | None:
        """How a connection is called, as `PeerAddress.parse` takes it; None: by no address."""
        return self._calling.called_as(info.address) if info.direction == "outgoing" else None

    def new_backoff(self) -> Backoff:
        """Delays between attempts, with this node's jitter."""
        return self._calling.new_backoff()

    def sync(
        self,
        name: str,
        stream: trio.abc.Stream,
        *,
        greedy: Greedy | None = None,
        target: PeerAddress | None = None,
    ) -> Member:
        """Starts a one-time sync over a stream that was opened from here, to `target` if any."""
        outgoing = Direction.OUTGOING
        reached = nothing
        if target is not None:
            reached = partial(self.calls.reached, self.entrance.exactly(target))
        member = self._roster.make(
            stream, outgoing, name, policy="sync", greedy=greedy, on_established=reached
        )
        self._nursery.start_soon(self._roster.run, member)
        return member

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        *,
        proactive: bool,
        name: str,
        greedy: Greedy | None = None,
    ) -> Ending:
        """Runs a session over a stream to its end."""
        direction = Direction.OUTGOING if proactive else Direction.INCOMING
        return await self._roster.run(self._roster.make(stream, direction, name, greedy=greedy))

    @property
    def members(self) -> list[Member]:
        """The connections that are open."""
        return list(self._roster.members)

    @property
    def ended(self) -> list[Ended]:
        """How the last connections ended, the oldest first."""
        return list(self._roster.ended)

    @property
    def interests(self) -> Interests:
        """What is followed and offered."""
        return self._book.current.interests

    def connections(self) -> list[ConnectionInfo]:
        """Every open connection, and every peer that is called again."""
        diallers = self._calling.diallers
        dialled = {d.member: d for d in diallers if d.member is not None}
        found = []
        for member in self._roster.members:
            dialler = dialled.get(member)
            found.append(member.info(None if dialler is None else dialler.last_error))
        found += [d.info() for d in diallers if d.member is None]
        return sorted(found, key=lambda info: (info.direction, info.address))

    def change_limits(self, limits: Limits) -> None:
        """Holds to other limits from now on; what is held, and who is there, stays.

        What a session is given it has for its life, so it goes for those that begin later. Where
        the rates are others every connection begins again, since a stream is paced from its
        beginning; a one-time sync, for which somebody waits, goes on.
        """
        before, self.config = self.config.limits, replace(self.config, limits=limits)
        self.host.store.set_quotas(limits.quotas)
        self.gate.limits = limits
        self.room.partial_seconds = limits.partial_seconds
        self._roster.change(limits)
        if before.rates != limits.rates:
            self._roster.begin_again(syncs=False)

    @property
    def limit_hits(self) -> Counter[str]:
        """How often each limit was met, by its key (docs/limits.md)."""
        return self.gate.hits + self.room.hits + self._roster.hits

    def log_sources(self, log: LogKey) -> list[SourceInfo]:
        """The connections over which a log can come, and which of them it is fetched from."""
        return self._roster.log_sources(log)

    async def stop(self) -> None:
        """Ends everything in good order, in 5 s; what was received whole is stored.

        `running_node` calls it; a second call does nothing.
        """
        if self._stopping_begun:
            return
        self._stopping_begun = True
        self._spread.end()
        self._accepting.cancel()
        with self._stopping:
            self._calling.stop()
            await self._roster.close(STOP_TIMEOUT_S)
            with trio.move_on_after(FLUSH_TIMEOUT_S):
                await self._spread.remember()
                await self.entrance.sightings.flush()
                await self.host.wait_idle()

    def hurry(self) -> None:
        """Makes `stop` wait no longer."""
        self._stopping.cancel()

    # What is wanted

    @property
    def has_shared(self) -> bool:
        """Whether others have any own log from this store."""
        return any(self._book.current.interests.shared.values())

    @property
    def follows(self) -> list[Follow]:
        """What is followed."""
        return self._book.wanted.follows

    @property
    def subscriptions(self) -> dict[Follow, Subscription]:
        """What is wanted of each of `follows`."""
        return dict(self._book.wanted.subscriptions)

    async def follow(self, target: Follow, subscription: Subscription | None = None) -> bool:
        """Follows a log, an author or all, from now on; None leaves what is wanted as it is.

        False if nothing changes.
        """
        return await self._change_wanted(partial(self.host.store.follow, target, subscription))

    async def unfollow(self, target: Follow) -> bool:
        """Takes back `follow`; False if exactly that was not followed."""
        return await self._change_wanted(partial(self.host.store.unfollow, target))

    @property
    def keeps(self) -> dict[Follow, KeepRule]:
        """Which payloads are kept, by rules."""
        return dict(self._book.wanted.keeps)

    async def keep(self, target: Follow, rule: KeepRule | None) -> bool:
        """Which payloads are kept from now on; None ends a rule. False if nothing changes."""
        return await self._change_wanted(partial(self.host.store.keep, target, rule))

    def ask(self, logs: Collection[LogKey]) -> None:
        """Asks every peer, from now on, what it holds of own logs."""
        if self._book.ask(logs):
            self._roster.tell(self._book.current)

    async def want(self, log: LogKey, first: int, last: int) -> bool:
        """Has entries and their payloads brought once; False if there is nothing to bring."""
        return await self._change_wanted(partial(self.host.store.want, log, first, last))

    async def unwant(self, log: LogKey, first: int, last: int) -> bool:
        """Takes back `want`; False if exactly that was not wanted any more."""
        return await self._change_wanted(partial(self.host.store.unwant, log, first, last))

    def is_wanted(self, log: LogKey, first: int, last: int) -> bool:
        """Whether exactly this range is still to be brought."""
        return (first, last) in self._book.wanted.fetches.get(log, ())

    # Tasks

    async def _accept(
        self,
        listeners: list[trio.SocketListener],
        tls: bool,
        task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        addresses = [address_of(listener) for listener in listeners]
        try:
            # Connections outlive the listening: they are ended in good order.
            with self._accepting:
                await trio.serve_listeners(
                    partial(self._reception.welcome, tls=tls),
                    listeners,
                    handler_nursery=self._nursery,
                    task_status=task_status,
                )
        finally:
            for address in addresses:
                clean_up(address)

    # News

    def _logs_changed(self, changes: Sequence[LogChanged]) -> None:
        self._roster.sources.note(changes)
        if self._book.note(changes):
            self._roster.tell(self._book.current)
        fetches = self._book.wanted.fetches
        if fetches and any(change.log in fetches for change in changes):
            # Some of it may have come; several changes are looked at together.
            self._look_soon()
        for change in changes:
            self._news.changed(change)

    async def _change_wanted(self, change: partial[bool]) -> bool:
        self._wanted_told = None
        try:
            changed = await self.host.call(change)
            if changed:
                await self._look_at_wants()
        except StoreError:
            # What a failing disk did not confirm may be there all the same.
            self._look_soon()
            raise
        return changed

    def _wanted_read(self, wanted: Wanted) -> None:
        """Somebody may have changed what is wanted: another process, or a call of this one."""
        self._wanted_told = wanted
        if wanted != self._book.wanted:
            # Read again, in its turn: it may be older than a change made here.
            self._look_soon()

    def _look_soon(self) -> None:
        # The host reads on for a moment when the node has ended, which looks at nothing more.
        if not self._looking_at_wants and not self._nursery.cancel_scope.cancel_called:
            self._looking_at_wants = True
            self._nursery.start_soon(self._look_until_seen)

    async def _look_until_seen(self) -> None:
        self._looking_at_wants = False
        while True:
            try:
                await self._look_at_wants()
            except StoreError as error:
                log.warning("what is wanted cannot be read yet: %s", error)
                await trio.sleep(LOOK_AGAIN_S)
            else:
                return

    async def _look_at_wants(self) -> None:
        # Who has changed something looks, and so does who was told of it: only one of them tells.
        async with self._look_lock:
            if self._wanted_told == self._book.wanted:
                return
            wanted = await self.host.call(partial(Wanted.load, self.host.store))
            if wanted == self._book.wanted:
                return
            forgotten = self._book.wanted.forgotten
            if not self._book.take(wanted):
                self._book = await self.host.call(partial(self._book.load, self.host.store))
        self.entrance.take(wanted)
        self._roster.rules_changed()
        self._calling.take_rules(wanted.peers)
        self._roster.tell(self._book.current)
        if self._book.wanted.forgotten != forgotten:
            self._roster.begin_again()
        self._news.contested(self._book.wanted.contested)
        for watch in list(self.want_watchers):
            watch()

    def _is_news_of_own(self, key: LogKey, seq: int) -> bool:
        """Others may have an own log up to this entry from now on; False if that was known."""
        return self._book.note_shared(key, seq)
