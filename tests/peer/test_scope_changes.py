"""The scope changes at any moment, while entries and payloads flow in both directions (doors.md 3).

What was made before that is on its way and may arrive; nothing is made afterwards that the new
scope does not cover, and nothing is taken in. Once everything is allowed, everything is everywhere.
"""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from logstore import WriteScope
from peer import Scope
from peer.protocol.commands import Command, Ingest, OpenPayload
from peer.protocol.events import Event, Interests
from peer.protocol.notices import EntriesSent
from wire import LogKey

from .rig import Held, Host, Store
from .scoped import HERE, THERE, THIRD, ScopedPair, history, kept, shows
from .stepped import SIDES, SteppedPair

LOGS = [LogKey(author.id, 0) for author in (HERE, THERE, THIRD)] + [LogKey(THIRD.id, 1)]
AUTHORS = {author.id: author for author in (HERE, THERE, THIRD)}
OWN, HELD_ONLY = LOGS[0], LOGS[3]
"""An own log of here, and one that it does not follow."""
COUNT = 40
TARGETS: list[bytes | LogKey] = [*LOGS, HERE.id, THIRD.id]
SCOPES = st.none() | st.builds(
    Scope,
    st.none() | st.frozensets(st.sampled_from(TARGETS), max_size=3),
    st.sampled_from(WriteScope),
    st.just(THERE.id),
)
WHOLE = {log: history(AUTHORS[log.author], log.log_id, COUNT) for log in LOGS}


class Storing(Host):
    """A host that counts what it is given to store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.given: Counter[LogKey] = Counter()
        """Entries, and payloads that come in parts, by their logs."""

    def _replies(self, item: Command | Event) -> list[Event]:
        self.given.update(_given_by(item))
        return super()._replies(item)

    def given_so_far(self) -> Counter[LogKey]:
        """What is given already, carried out or not."""
        self.collect()
        return self.given + Counter(log for item in self.todo for log in _given_by(item))


def _given_by(item: Command | Event) -> list[LogKey]:
    match item:
        case Ingest():
            return [entry.log for entry in item.items]
        case OpenPayload():
            return [item.log]
        case _:
            return []


def lacks(giver: dict[int, Held], taker: dict[int, Held]) -> set[int]:
    """What one side has of a log and the other has not: entries, or their payloads."""
    return {
        seq
        for seq, held in giver.items()
        if seq not in taker or (held.payload is not None and taker[seq].payload is None)
    }


class Scopes(SteppedPair):
    """Both sides hold a part of each log; here changes the scope of there."""

    def __init__(self) -> None:
        super().__init__()
        self.started = False

    @initialize(
        here=SIDES,
        scope=SCOPES,
        counts=st.tuples(*[st.tuples(st.integers(0, 9), st.integers(0, 9))] * len(LOGS)),
    )
    def meet(self, here: int, scope: Scope | None, counts: tuple[tuple[int, int], ...]) -> None:
        stores = (Store(), Store())
        for log, parts in zip(LOGS, counts, strict=True):
            for store, count in zip(stores, parts, strict=True):
                store.logs[log].update(kept(WHOLE[log], range(1, count + 1)))
        self.pair: ScopedPair = ScopedPair(here, stores, credit=900)
        for store in stores:
            store.watchers.clear()
        left, right = (host.store for host in self.pair.hosts)
        self.hosts = (Storing(left), Storing(right))
        self.pair.hosts = self.hosts
        self.scope = scope
        there = Interests(logs=frozenset(LOGS), author=THERE.id)
        policies = ("follow", "follow")
        self.pair.meet(self.interests(), there, policies=policies, first=1 - here)
        self.started = True
        self.note_change()

    def interests(self) -> Interests:
        return Interests(
            logs=frozenset(LOGS) - {OWN, HELD_ONLY},
            own=frozenset({OWN}),
            author=HERE.id,
            scope=self.scope,
        )

    # The rule, stated apart from the code.

    def may_read(self, log: LogKey) -> bool:
        reads = None if self.scope is None else self.scope.reads
        return reads is None or log in reads or log.author in reads

    def may_write(self, log: LogKey) -> bool:
        writes = WriteScope.FOLLOWED if self.scope is None else self.scope.writes
        if log == HELD_ONLY or (log == OWN and not self.may_read(log)):
            return False
        return writes is WriteScope.FOLLOWED or (
            writes is WriteScope.OWN and log.author == THERE.id
        )

    # What has passed by now

    def note_change(self) -> None:
        """What has been made, and taken in, is not judged by the scope from now on."""
        pair, here = self.pair, self.hosts[self.pair.here]
        engine = pair.engine(pair.here)
        here.collect()
        self.notices_before = len(here.notices)
        self.sent_before = len(pair.sent) + engine._outbound._out_bytes
        self.given_before = here.given_so_far()
        self.cursors = {
            request.ident: (request.outgoing.position, request.outgoing.progress)
            for request in engine._table.all()
            if request.base is not None
        }

    @rule(scope=SCOPES)
    def change_scope(self, scope: Scope | None) -> None:
        self.scope = scope
        self.pair.change(self.interests())
        self.note_change()

    @rule(log=st.sampled_from(LOGS), side=SIDES)
    def append(self, log: LogKey, side: int) -> None:
        """Something new comes to a side from elsewhere."""
        store = self.hosts[side].store
        seq = store.height(log) + 1
        if seq <= COUNT:
            store.logs[log][seq] = WHOLE[log][seq]
            store.changed(log)

    @rule(rounds=st.integers(1, 4))
    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.pair.one_round()

    @invariant()
    def nothing_leaves_that_may_not_be_read(self) -> None:
        if not self.started:
            return
        pair, here = self.pair, self.hosts[self.pair.here]
        closed = [log for log in LOGS if not self.may_read(log)]
        for request in pair.engine(pair.here)._table.all():
            if request.log in closed:
                cursor = request.outgoing.position, request.outgoing.progress
                # What begins inside a payload has its cursor there before anything has left.
                begin = 0, 0 if request.base is None else request.base.offset
                assert cursor == self.cursors.get(request.ident, begin)
        sent = bytes(pair.sent[self.sent_before :])
        for log in closed:
            assert not shows(sent, WHOLE[log])
        here.collect()
        made = here.notices[self.notices_before :]
        assert not [each for each in made if isinstance(each, EntriesSent) and each.log in closed]

    @invariant()
    def nothing_is_taken_in_that_may_not_be_written(self) -> None:
        if not self.started:
            return
        given = self.hosts[self.pair.here].given_so_far() - self.given_before
        assert not [log for log in given if not self.may_write(log)]

    @invariant()
    def a_log_is_not_mentioned_that_may_be_neither_read_nor_written(self) -> None:
        if not self.started:
            return
        for request in self.pair.engine(self.pair.here)._table.all():
            log = request.log
            if not (self.may_read(log) or self.may_write(log)) and (
                request.ours or request.confirmed
            ):
                assert request.cancel_sent is not None

    def teardown(self) -> None:
        if not self.started:
            return
        self.rest()
        self.change_scope(None)
        self.rest()

    def rest(self) -> None:
        """Both sides come to rest, with all that the scope allows."""
        self.pair.settle(25)
        self.nothing_leaves_that_may_not_be_read()
        self.nothing_is_taken_in_that_may_not_be_written()
        here, there = (self.hosts[side].store.logs for side in (self.pair.here, self.pair.there))
        for log in LOGS:
            if self.may_read(log):
                assert lacks(here[log], there[log]) == set(), f"{log} is not given"
            if self.may_write(log):
                assert lacks(there[log], here[log]) == set(), f"{log} is not taken"
        for side in (0, 1):
            assert self.pair.engine(side).drained
            assert not self.hosts[side].sinks
        said = len(self.pair.records)
        self.pair.settle(25)
        assert len(self.pair.records) == said


TestScopes = Scopes.TestCase
TestScopes.settings = settings(stateful_step_count=40)


@pytest.mark.parametrize("counts", [(4, 1), (5, 2)])
def test_what_comes_up_while_a_peer_may_read_is_told_although_its_request_is_cut(
    counts: tuple[int, int],
) -> None:
    """What it asked for in vain is in a request of ours, which the narrower scope ends."""
    log = LogKey(THIRD.id, 0)
    nothing = Scope(frozenset(), WriteScope.FOLLOWED, THERE.id)
    world = Scopes()
    parts = tuple(counts if each == log else (0, 0) for each in LOGS)
    world.meet(here=0, scope=nothing, counts=parts)
    world.change_scope(scope=None)
    world.append(log=log, side=1)
    world.go_on(rounds=1)
    world.append(log=log, side=1)
    world.change_scope(scope=nothing)
    world.teardown()
