"""Carries out what sessions ask of the store, in threads, and tells them what changed.

One thread writes entries, some read, some write payload files. Each has a queue (lane.py); what is
in the queues is bounded by the sessions' data credit. News of logs come from the writing thread
alone, which looks at the store's change feed after each of its transactions and when another
process has committed: so they reach every session in the order in which they happened.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from msgspec import Struct, field

from logstore import NotAFork, OverQuota, Seldom, Store, StoreClosed, StoredEntry, StoreError
from peer import (
    ArrivalChanged,
    CheckEvidence,
    Command,
    Event,
    Ingest,
    LogChanged,
    LookUp,
    ReadEntries,
    ReadPayload,
    Refusal,
    StopReading,
)
from peer.node.fairness import Account, Turns
from peer.node.interests import Wanted
from wire import EntryError, LogKey, decode_entry

from .arrivals import Arrivals, Reading
from .changes import ChangeFeed, News
from .commits import SELDOM_S, Commits
from .faults import Faults
from .groups import Group, replies
from .hop import in_thread
from .ingestion import Ingestion
from .lane import Gathering, Job, Lane, Settle, Start
from .payload_host import PayloadHost
from .port import Deliver, Fail, Port, Replies
from .read_host import ReadHost
from .telling import Telling
from .verifier import Verifier

if TYPE_CHECKING:
    from .reading import Fresh

log = logging.getLogger(__name__)

POLL_S: Final = 0.05
_EVIDENCE_S: Final = 1.0
"""How often it is tried to keep evidence that the disk did not take."""
_RECEIVING_S: Final = 0.25
"""How often it is looked whether what came of payloads is to be kept."""
_EVIDENCE_MAX: Final = 1000
"""Logs of which so much is remembered, two entries each."""

T = TypeVar("T")
Watch = Callable[[Sequence[LogChanged]], None]
Work = Callable[[set[LogKey]], Callable[[], Replies]]
"""Something for the writing thread: it adds logs of which the change feed says nothing, and returns
what makes the replies to sessions, which is called in the event loop."""


class _EvidenceLeft(Struct):
    """What a disk that failed did not keep, and its source: nobody would send it again."""

    left: dict[LogKey, tuple[CheckEvidence, str]] = field(default_factory=dict)
    """For the writing thread only."""
    look_at: float = 0.0
    """When it is tried again."""


class StoreHost:
    """The store as sessions see it. `run` has to be running; it ends by being cancelled.

    `start` stands in for threads in tests. `poll_s`: how often commits of other processes are
    looked for, in seconds.
    """

    def __init__(
        self,
        store: Store,
        verifier: Verifier,
        *,
        poll_s: float = POLL_S,
        start: Start = in_thread,
    ) -> None:
        self.store = store
        self.ports: set[Port] = set()
        self.turns = Turns()
        """Those of all sessions in the event loop."""
        self._telling = Telling(self.ports, self.turns)
        self.watchers: set[Watch] = set()
        """Called with all news of logs, whoever brought them."""
        self.want_watchers: set[Callable[[Wanted], None]] = set()
        """Called with what is wanted, after another process has committed something."""
        self.quota_watchers: set[Callable[[OverQuota], None]] = set()
        """Called with everything that was not taken in for want of room."""
        self.faults = Faults()
        self._ports_opened = 0
        self._poll_s = poll_s
        self._feed = ChangeFeed(store)
        self.told = self._feed.position
        """What all watchers have been told of, as an ingest number; in the event loop."""
        self._fresh: Fresh | None = None
        self._evidence = _EvidenceLeft()
        gathering = Gathering()
        self._writer = Lane(start=start, gathering=gathering)
        self._ingestion = Ingestion(verifier, self._commit)
        self.arrivals = Arrivals(self._read_behind, self._arrival_changed)
        self._payloads = PayloadHost(
            store,
            self._write_soon,
            self.arrivals,
            self._tell_over_quota,
            start=start,
            gathering=gathering,
        )
        self._reads = ReadHost(store, self.arrivals, start=start, gathering=gathering)
        self._copier = Lane(start=start)
        """Copies the store's write-ahead log: nobody waits for it."""

    @property
    def _lanes(self) -> list[Lane]:
        return [*self._payloads.lanes, self._writer, *self._reads.lanes]

    def open_port(
        self,
        source: str,
        deliver: Deliver,
        fail: Fail,
        giver: bytes = b"",
        account: Account | None = None,
    ) -> Port:
        """A place for a session. `source`: where its entries come from, for people.

        `giver`: whom quotas go for, the id of the other side or b"" if it has proved none.
        `account`: who pays for what is done here; one of its own unless given.
        """
        self._ports_opened += 1
        port = Port(
            self._ports_opened,
            source,
            deliver,
            fail,
            giver,
            account,
            forgotten=self._feed.forgotten,
        )
        self.ports.add(port)
        return port

    def close_port(self, port: Port) -> None:
        """The session has ended. What it handed in is stored all the same."""
        port.close()
        self.ports.discard(port)
        self._reads.forget(port)
        self._payloads.suspend(port)

    def submit(
        self, port: Port, commands: Iterable[Command], payer: Account | None = None
    ) -> list[Event]:
        """Begins to carry out a session's commands. `payer`: who pays for its look-ups instead.

        Returns what is answered at once. The caller hands it to the session behind what that does
        now: called back, a live entry came two passes of the event loop later.
        """
        answers: list[Event] = []
        self._writer.gathering.is_on = True
        try:
            for command in commands:
                match command:
                    case Ingest(items=items):
                        self._ingestion.submit(port, items)
                    case LookUp() | ReadEntries() | ReadPayload() | StopReading():
                        if (answer := self._reads.submit(port, command, payer)) is not None:
                            answers.append(answer)
                    case CheckEvidence():
                        work = partial(self._check_evidence, command, port.source)
                        self._write_soon(work, port.account)
                    case _:
                        self._payloads.submit(port, command)
        finally:
            self._writer.gathering.is_on = False
            for lane in self._lanes:
                if lane.is_due:
                    lane.begin()
        return answers

    def when_payloads_kept(self, then: Callable[[], None]) -> None:
        """Calls `then` once what sessions have received of payloads until now is kept."""
        left = len(self._payloads.lanes)

        def reached() -> None:
            nonlocal left
            left -= 1
            if not left:
                # What is whole is its entry's only then.
                self._writer.when_done(then)

        for lane in self._payloads.lanes:
            lane.when_done(reached)

    async def call(self, work: Callable[[], T], *, also: Iterable[LogKey] = ()) -> T:
        """Runs `work` in the writing thread in its turn, and tells what it changed.

        Returns what it returns and raises what it raises. `also`: logs of which something changed
        that the change feed does not say. Cancelled, it is done all the same.
        """
        result, _ = await self._writer.call(
            lambda: (work(), self._feed.take(also)), lambda done: self._publish(done[1])
        )
        return result

    async def until_told(self, ingest: int | None = None) -> None:
        """Returns once everybody here was told of all that is stored, or up to an ingest number.

        Whoever reads the store beside the writing thread may see what nobody was told of yet, and
        hands it on only behind this: what a call has returned, the overview knows.
        """
        if ingest is None or ingest > self.told:
            await self.call(lambda: None)

    def fresh_after(self, ingest: int) -> list[StoredEntry] | None:
        """All that has been told of behind a place, if the latest news have it."""
        fresh = self._fresh
        if fresh is None or not fresh.after <= ingest < fresh.up_to:
            return None
        return [entry for entry in fresh.entries if entry.ingest > ingest]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the threads' queues until cancelled. Raises StoreClosed if the store is closed."""
        async with trio.open_nursery() as nursery:
            for lane in self._lanes:
                await nursery.start(lane.run)
            await nursery.start(self._ingestion.run)
            await nursery.start(self._telling.run)
            await nursery.start(self._copier.run)
            nursery.start_soon(self._poll)
            task_status.started()

    async def end(self) -> None:
        """Keeps what came of payloads, once `run` and all sessions have ended, however they did.

        Nobody is told of anything any more. It takes as long as the disk for what sessions had
        under way, 1 MiB of each at most. Not to be cancelled.
        """
        self.watchers.clear()
        self.want_watchers.clear()
        self.quota_watchers.clear()
        await self._payloads.end()
        await self._writer.finish()

    def write_soon(self, work: Callable[[], None]) -> None:
        """Runs `work` in the writing thread in its turn."""

        def do(_: set[LogKey]) -> Callable[[], Replies]:
            work()
            return dict

        self._write_soon(do)

    @property
    def idle(self) -> bool:
        """Whether everything handed in is stored."""
        return self._ingestion.idle and all(lane.idle for lane in self._lanes)

    async def wait_idle(self) -> None:
        """Returns once everything handed in is stored."""
        waits = [self._ingestion.wait_idle, *(lane.wait_idle for lane in self._lanes)]
        while not self.idle:
            for wait in waits:
                await wait()

    # The writing thread

    def _commit(self, groups: list[Group], stored: Callable[[], None]) -> None:
        work = partial(self._store_groups, groups)

        def do() -> Settle:
            began = perf_counter()
            settle, news = self._with_news(work)
            seconds = perf_counter() - began

            def heed() -> None:
                charge(groups, seconds)
                self._publish(news, settle(), makers(groups))
                stored()

            return heed

        self._writer.put_now(Job(do, _raise))

    def _write_soon(self, work: Work, account: Account | None = None) -> None:
        def do() -> Settle:
            settle, news = self._with_news(work)
            by = {} if account is None else {change.log: account for change in news.changes}
            return lambda: self._publish(news, settle(), by)

        self._writer.put(Job(do, partial(self.faults.tell, "the writing thread")), account)

    def _with_news(self, work: Work) -> tuple[Callable[[], Replies], News]:
        also: set[LogKey] = set()
        settle = work(also)
        return settle, self._feed.take(also)

    def _store_groups(self, groups: list[Group], also: set[LogKey]) -> Callable[[], Replies]:
        by_source: dict[tuple[str, bytes], list[Group]] = {}
        for group in groups:
            if group.good:
                port = group.handed.port
                by_source.setdefault((port.source, port.giver), []).append(group)
        contested = False
        for (source, giver), batch in by_source.items():
            try:
                contested = self._put(batch, source, giver, also) or contested
            except StoreError as error:
                refuse_all(batch, str(error))
            except Exception as error:  # noqa: BLE001 - a bug must not keep the session waiting
                self.faults.tell("entries cannot be stored", error)
                refuse_all(batch, "an internal error, see the log")
        settle = partial(self._answers, groups)
        if contested:
            return partial(self._tell_wanted, Wanted.load(self.store), settle)
        return settle

    def _answers(self, groups: list[Group]) -> Replies:
        for group in groups:
            if group.over_quota is not None:
                self._tell_over_quota(group.over_quota)
        return replies(groups)

    def _tell_over_quota(self, over: OverQuota) -> None:
        for watch in list(self.quota_watchers):
            watch(over)

    def _tell_wanted(self, wanted: Wanted, settle: Callable[[], Replies]) -> Replies:
        """An own log is contested: sessions have to know before they go on."""
        for watch in list(self.want_watchers):
            watch(wanted)
        return settle()

    def _put(self, groups: list[Group], source: str, giver: bytes, also: set[LogKey]) -> bool:
        """Whether an own log is contested by what came."""
        contested = False
        batches = [(group.handed.log, group.new_entries()) for group in groups]
        results = self.store.put_many(batches, source=source, giver=giver)
        forgotten = None
        if any(result.rejected is not None for result in results):
            forgotten = self.store.forgotten()
        for group, result in zip(groups, results, strict=True):
            invalid_seq = None
            if result.rejected is not None:
                info = self.store.log(result.key)
                invalid_seq = None if info is None else info.invalid_seq
            # Of a log that was forgotten since, what fits to what was held fits no more.
            is_gone = forgotten is not None and forgotten != group.handed.port.forgotten
            group.take_result(result, invalid_seq=invalid_seq, is_gone=is_gone)
            if result.fork is not None:
                also.add(result.key)
            contested = contested or result.contested
        return contested

    def _check_evidence(
        self, command: CheckEvidence, source: str, also: set[LogKey]
    ) -> Callable[[], Replies]:
        """Records a fork if what a peer sent, with what is held, proves one."""
        entries = list(command.entries)
        try:
            if not command.wanted and self.store.log(command.log) is None:
                # Nobody makes us keep, or ask about, what we have nothing to do with.
                self._evidence.left.pop(command.log, None)
                return dict
            if len(entries) == 1:
                held = self.store.entry(command.log, decode_entry(entries[0]).seq)
                entries += [] if held is None else [held.encoded]
            if len(entries) == 2:
                self.store.record_fork(command.log, entries[1], entries[0], source=source)
                also.add(command.log)
        except (EntryError, NotAFork) as error:
            self._evidence.left.pop(command.log, None)
            log.info("a peer's evidence against %s proves nothing: %s", command.log, error)
        except StoreError as error:
            if command.log not in self._evidence.left:
                log.warning("evidence against %s cannot be kept yet: %s", command.log, error)
            if len(self._evidence.left) < _EVIDENCE_MAX:
                self._evidence.left[command.log] = (command, source)
        else:
            self._evidence.left.pop(command.log, None)
            if command.log.author == self.store.author:
                return partial(self._tell_wanted, Wanted.load(self.store), dict)
        return dict

    # News

    def _publish(
        self,
        news: News,
        answers: Replies | None = None,
        by: Mapping[LogKey, Account] | None = None,
    ) -> None:
        """Delivers replies, each session's before the news. `by`: who brought what is new."""
        changes = news.changes
        self.told = news.position
        self._fresh = news.fresh
        self._reads.note_changes(changes, news.fresh)
        self._payloads.note_changes(changes)
        for port, events in (answers or {}).items():
            port.deliver(*events)
        if changes:
            self._telling.take(changes, by or {})
            for watch in list(self.watchers):
                watch(changes)
        if news.wanted is not None:
            for watch_wanted in list(self.want_watchers):
                watch_wanted(news.wanted)
        if self.store.copy_due and self._copier.idle:
            self._copier.put(Job(self._copy_log, partial(self.faults.tell, "copying the log")))

    def _copy_log(self) -> Settle:
        self.store.copy_log()
        return lambda: None

    def _arrival_changed(self, log: LogKey, seq: int) -> None:
        for port in list(self.ports):
            port.deliver(ArrivalChanged(log, seq))

    def _read_behind(self, reading: Reading, command: ReadPayload, count: int) -> None:
        self._reads.read_behind(reading, command, count)

    async def _poll(self) -> None:
        troubles = Seldom(trio.current_time)
        with Commits(self.store.log_path, self._poll_s) as commits:
            while True:
                await commits.wait(_RECEIVING_S if self._payloads.is_receiving else SELDOM_S)
                self._payloads.checkpoint()
                try:
                    await self._look()
                except StoreClosed:
                    # It does not open again, and a node without a store is of no use.
                    raise
                except StoreError as error:
                    if troubles.may_say(str(error)):
                        log.warning("the store cannot be looked at: %s", error)

    async def _look(self) -> None:
        """Tells what another process has committed, if any has."""
        if self._has_nothing_to_look_for():
            return
        also: set[LogKey] = set()
        await self.call(partial(self._check_evidence_left, also), also=also)

    def _has_nothing_to_look_for(self) -> bool:
        """Whether this time may pass."""
        if self._evidence.left and trio.current_time() >= self._evidence.look_at:
            self._evidence.look_at = trio.current_time() + _EVIDENCE_S
            return False
        # With all threads at rest nobody holds the lock that looking at the version takes.
        return all(lane.idle for lane in self._lanes) and not self._feed.is_stale()

    def _check_evidence_left(self, also: set[LogKey]) -> None:
        """In the writing thread. Adds the logs of which evidence is kept at last."""
        for command, source in list(self._evidence.left.values()):
            self._check_evidence(command, source, also)


def _raise(error: Exception) -> None:
    """A bug: whoever handed in entries would wait for ever. So the node ends with it."""
    raise error


def makers(groups: Iterable[Group]) -> dict[LogKey, Account]:
    """Who brought what is new of each log."""
    return {group.handed.log: group.handed.port.account for group in groups if group.good}


def charge(groups: Sequence[Group], seconds: float) -> None:
    """Those whose entries were in a transaction pay for it by how many there were."""
    now, entries = trio.current_time(), sum(len(group.entries) for group in groups)
    for group in groups:
        group.handed.port.account.charge(seconds * len(group.entries) / entries, now)


def refuse_all(groups: Iterable[Group], detail: str) -> None:
    """Nothing of these groups was stored, for a reason of ours."""
    for group in groups:
        group.refuse_from(0, Refusal.STORAGE, detail)
