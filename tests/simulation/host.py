"""The store as sessions see it, without threads: the product's host, its queues in virtual time.

What is carried out, in which order, and what is answered is the product's own code
(peer.node.host.store_host and what it is made of). Here are only the threads: a lane does some
jobs at one moment and hands over their outcomes at a later one, and signatures take their time.
"""

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

from logstore import Store, StoreError
from peer import Command, Event
from peer.node.fairness import Account, Turns
from peer.node.host.changes import News
from peer.node.host.groups import Group
from peer.node.host.ingestion import Ingestion
from peer.node.host.lane import Job, Lane, Settle
from peer.node.host.port import Port
from peer.node.host.store_host import StoreHost, makers
from peer.node.host.telling import Pile, Telling
from peer.node.host.verifier import Verifier
from peer.node.host.worker_process import Ticket
from peer.node.links.sources import Settled, Sources
from wire import LogKey

from .clock import Clock, Life
from .truth import is_signed

T = TypeVar("T")


class Ordered(Generic[T]):
    """A set that is gone through in the order in which it was filled."""

    def __init__(self) -> None:
        self._items: dict[T, None] = {}

    def add(self, item: T) -> None:
        self._items[item] = None

    def discard(self, item: T) -> None:
        self._items.pop(item, None)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)


class Pace:
    """How long things take on one node; `life` is that of its process."""

    def __init__(self, clock: Clock, rng: random.Random, delay_s: float) -> None:
        self.clock = clock
        self.rng = rng
        self.delay_s = delay_s
        self.slow_until = 0.0
        self.late_until = 0.0
        """When the last of what was slow is done, though nothing new has been slow for a while."""
        self.was_slow = False
        self.life = Life()
        self.power_lost: Callable[[], bool] = lambda: False
        """Whether the machine has stopped in the middle of what is being done."""

    def soon(self, do: Callable[[], None]) -> None:
        """Calls `do` after a while."""
        delay_s = self.rng.uniform(0, self.delay_s)
        if self.clock.now < self.slow_until:
            delay_s += self.rng.uniform(0, 3.0)
            self.late_until = max(self.late_until, self.clock.now + delay_s)
        self.clock.after(delay_s, do, self.life)


class SimLane(Lane):
    """A lane whose thread is an event of the simulation."""

    def __init__(self, pace: Pace, settled: Callable[[], None] | None = None) -> None:
        super().__init__(settled=settled)
        self._pace = pace

    def put(self, job: Job, account: Account | None = None) -> None:
        self._jobs.put(account or self._own, job)
        if not self._running:
            self._begin()

    def _begin(self) -> None:
        self._running = True
        self._pace.soon(self._work)

    def _work(self) -> None:
        count = self._pace.rng.randint(1, len(self._jobs))
        outcomes: list[Settle] = []
        for _ in range(count):
            _, [job] = self._jobs.take(self._pace.clock.now)
            try:
                outcomes.append(job.work())
            except StoreError as error:
                outcomes.append(partial(job.failed, error))
            if self._pace.power_lost():
                return
        self._pace.soon(partial(self._settle, outcomes))

    def _settle(self, outcomes: list[Settle]) -> None:
        self._running = False
        if self._jobs:
            self._begin()
        super()._settle(outcomes)


class SimIngestion(Ingestion):
    """The way of received entries: verdicts and commits come as events."""

    def __init__(self, pace: Pace, commit: Callable[[list[Group], Settle], None]) -> None:
        verifier = cast(Verifier, _SimVerifier(pace, self))
        super().__init__(verifier, commit, lambda: pace.clock.now)
        self._pace = pace
        self._waits = False

    def collect(self) -> None:
        """Takes the verdicts that are there, and begins what waits for that."""
        self._go_on()

    def _is_due(self) -> bool:
        """Whether it is due by now, whatever else is being checked; first a while has to pass."""
        if self._committing or not self._checked or self._waits:
            return False
        self._waits = True
        self._pace.soon(self._now_due)
        return False

    def _now_due(self) -> None:
        self._waits = False
        if not self._committing and self._checked:
            self._begin_transaction()
        self._go_on()


class _SimVerifier:
    in_flight_max = 3

    def __init__(self, pace: Pace, ingestion: SimIngestion) -> None:
        self._pace = pace
        self._ingestion = ingestion

    def start(self, entries: Sequence[bytes]) -> Ticket:
        ticket = Ticket(entries)
        self._pace.soon(partial(self._resolve, ticket))
        return ticket

    def _resolve(self, ticket: Ticket) -> None:
        ticket.resolve(bytes(is_signed(encoded) for encoded in ticket.entries))
        self._ingestion.collect()


class SimSources(Sources):
    """The book of sources of a node; what it decides is told in events."""

    def __init__(self, pace: Pace, when_kept: Settled) -> None:
        super().__init__(when_kept)
        self._pace = pace
        self._looks_at = math.inf

    def wake(self) -> None:
        due = max(self._due(), self._pace.clock.now)
        if due < self._looks_at:
            self._looks_at = due
            self._pace.clock.after(due - self._pace.clock.now, self._look, self._pace.life)

    def _look(self) -> None:
        self._looks_at = math.inf
        self.book.advance(self._pace.clock.now)
        self._tell(self.book.take_changes())
        self.wake()


class SimTelling(Telling):
    """News of logs that were brought are told later, some at a time, the latest of each log."""

    def __init__(self, ports: Collection[Port], turns: Turns, pace: Pace) -> None:
        super().__init__(ports, turns)
        self._pace = pace

    def _begin(self) -> None:
        for pile in self._begun:
            self._pace.soon(partial(self._tell_some, pile))
        self._begun.clear()

    def _tell_some(self, pile: Pile) -> None:
        if pile:
            self._step(pile, self._pace.rng.randint(1, 1 + len(pile)))
        if pile:
            self._pace.soon(partial(self._tell_some, pile))
        else:
            del self._piles[pile.seat.account.payer]


class SimHost(StoreHost):
    """The product's host of a store, its threads replaced."""

    def __init__(self, store: Store, pace: Pace) -> None:
        super().__init__(store, cast(Verifier, None))
        self.ports = cast("set[object]", Ordered())  # type: ignore[assignment]
        self.watchers = cast("set[object]", Ordered())  # type: ignore[assignment]
        self.pace = pace
        self._telling = SimTelling(self.ports, self.turns, pace)
        self._writer = SimLane(pace)
        self._payloads.lanes = [SimLane(pace) for _ in self._payloads.lanes]
        self._reads.lanes = [SimLane(pace, self._reads.deliver) for _ in self._reads.lanes]
        self._ingestion = SimIngestion(pace, self._commit_groups)

    def submit(
        self, port: Port, commands: Iterable[Command], payer: Account | None = None
    ) -> list[Event]:
        """What is answered at once comes a little later all the same: a session that is told so
        behind what it does has to bear it."""
        if answers := super().submit(port, commands, payer):
            self.pace.soon(partial(port.deliver, *answers))
        return []

    def write(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        *,
        also: Iterable[LogKey] = (),
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Like `call`: runs `work` in the writing thread and tells what it changed."""

        def do() -> Settle:
            result, news = work(), self._feed.take(also)
            return partial(self._written, result, then, news)

        self._writer.put(Job(do, failed))

    def poll(self) -> None:
        """Looks whether anything was committed that nobody told of, as `_poll` does."""
        try:
            if self._has_nothing_to_look_for():
                return
        except StoreError:
            return
        also: set[LogKey] = set()
        self.write(partial(self._check_evidence_left, also), _nothing_more, also=also)

    def _written(self, result: T, then: Callable[[T], None], news: News) -> None:
        then(result)
        self._publish(news)

    def _commit_groups(self, groups: list[Group], done: Settle) -> None:
        work = partial(self._store_groups, groups)

        def do() -> Settle:
            settle, news = self._with_news(work)

            def tell() -> None:
                self._publish(news, settle(), makers(groups))
                done()

            return tell

        self._writer.put(Job(do, partial(_raise, done)))

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits or is being done."""
        lanes = all(lane.idle for lane in self._lanes)
        return self._ingestion.idle and self._telling.idle and lanes

    @property
    def open_sinks(self) -> int:
        """Payloads that are being received in pieces."""
        return len(self._payloads._sinks)


def _nothing_more(_: object) -> None:
    """What was done says all there is to say."""


def _raise(done: Settle, error: Exception) -> None:
    done()
    raise error
