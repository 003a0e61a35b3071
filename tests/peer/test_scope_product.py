"""What a peer may read and write: of whatever is held and wanted, no more than that moves.

The rule is stated here once more, in other words than the engine's: for each log, who has it, who
wants it, and what each may do, say which entries are where in the end. Every byte that a side sends
is kept and decoded, so that what must not leave is looked for where it would be.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from logstore import PolicyKind, Subscription, WriteScope
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.scope import Scope
from tests.records import replace
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    DataDecoder,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    RequestCancelled,
    Switch,
)

from .rig import Author, Pair, Store

AMY, BEN, EVE = (Author(SigningKey(bytes([n]) * 32)) for n in (1, 2, 3))
Reads = frozenset[bytes | LogKey] | None
NOTHING: Reads = frozenset()
ALL_OF_IT: Reads = None
BIG = 100_000


class Recorded(Pair):
    """A pair of which everything that a side has sent is kept."""

    def __init__(self, stores: tuple[Store, Store], credit: int = 4096) -> None:
        super().__init__(stores=stores, credit=credit)
        self.said: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self.sent: tuple[bytearray, bytearray] = (bytearray(), bytearray())

    def pump(self, side: int, *, data_max: int = 1 << 20) -> None:
        control, data = len(self.control[side]), len(self.data[side])
        super().pump(side, data_max=data_max)
        self.said[side].extend(self.control[side][control:])
        self.sent[side].extend(self.data[side][data:])

    def messages(self, side: int) -> Iterator[ControlMessage]:
        decoder = ControlDecoder()
        decoder.feed(bytes(self.said[side]))
        while (message := decoder.next_message()) is not None:
            yield message

    def sends_nothing(self, side: int) -> bool:
        """Whether no piece left, not even a word that one has come."""
        decoder = DataDecoder(1024)
        decoder.feed(bytes(self.sent[side]))
        while (packet := decoder.next_packet(False)) is not None:
            if not isinstance(packet, Switch | RequestCancelled):
                return False
        return True


def signed(author: Author, count: int, *, ended: bool = False, big: bool = False) -> Store:
    store = Store()
    for number in range(1, count + 1):
        payload = b"%d of a log" % number
        if big and number == count:
            payload = random.Random(1).randbytes(BIG)  # which nothing compresses
        store.append(author, 0, payload, is_end=ended and number == count)
    return store


def holding(author: Author, held: int, count: int, *, ended: bool = False) -> Store:
    """The first entries of a log of `count`."""
    whole, part = signed(author, count, ended=ended), Store()
    log = LogKey(author.id, 0)
    for seq in range(1, held + 1):
        part.logs[log][seq] = replace(whole.logs[log][seq])
    part.changed(log)
    return part


@dataclass(frozen=True)
class Case:
    """One log: whose it is, how much is held here and there, and what this side wants of it."""

    author: Author
    here: int
    there: int
    wanted: Subscription | None = None
    """None: merely held, unless it is our own."""
    ended: bool = False

    @property
    def log(self) -> LogKey:
        return LogKey(self.author.id, 0)

    @property
    def is_own(self) -> bool:
        return self.author is AMY

    def interests(self, scope: Scope) -> Interests:
        follows = self.wanted is not None
        return Interests(
            logs=frozenset((self.log,)) if follows else frozenset(),
            own=frozenset((self.log,)) if self.is_own and self.here else frozenset(),
            author=AMY.id,
            subscriptions={self.log: self.wanted} if self.wanted is not None else {},
            held={self.log} if self.here else set(),
            scope=scope,
        )

    def expected(self, scope: Scope) -> tuple[int, int]:
        """How many entries are here and there in the end: doors.md 3, in other words."""
        read = scope.reads is None or bool(scope.reads & {self.log, self.author.id})
        write = {
            WriteScope.FOLLOWED: True,
            WriteScope.OWN: self.author is BEN,
            WriteScope.NONE: False,
        }[scope.writes]
        wanted = self.is_own or self.wanted is not None
        taken = wanted and write and (read or not self.is_own)
        most = max(self.here, self.there)
        return most if taken else self.here, most if read else self.there


FULL = Subscription()
CASES = {
    "own": Case(AMY, 5, 0),
    "own, partly there": Case(AMY, 5, 3),
    "own, lost here": Case(AMY, 3, 5),
    "own, ended": Case(AMY, 5, 2, ended=True),
    "followed": Case(EVE, 5, 0, FULL),
    "followed, less there": Case(EVE, 5, 3, FULL),
    "followed, less here": Case(EVE, 3, 5, FULL),
    "followed, empty here": Case(EVE, 0, 5, FULL),
    "followed, theirs": Case(BEN, 2, 5, FULL),
    "followed, theirs, empty here": Case(BEN, 0, 5, FULL),
    "followed, in step": Case(EVE, 5, 5, FULL),
    "followed, ended": Case(EVE, 5, 0, FULL, ended=True),
    "followed, ended there": Case(EVE, 2, 5, FULL, ended=True),
    "the newest of it": Case(EVE, 0, 5, Subscription(PolicyKind.LATEST, count=5)),
    "merely held": Case(EVE, 5, 0),
    "merely held, less here": Case(EVE, 3, 5),
    "merely held, theirs": Case(BEN, 3, 5),
}
READS: dict[str, Callable[[LogKey], Reads]] = {
    "all": lambda log: ALL_OF_IT,
    "none": lambda log: NOTHING,
    "the author": lambda log: frozenset((log.author,)),
    "the log": lambda log: frozenset((log,)),
    "another log": lambda log: frozenset((LogKey(log.author, 7), bytes(32))),
}
THERE = Interests(everything=True, author=BEN.id)


def connected(
    case: Case, scope: Scope, role: int, *, policies: tuple[str, str] = ("follow", "follow")
) -> Recorded:
    """This side has the scope; `role` says whether it called (0)."""
    count = max(case.here, case.there)
    here = holding(case.author, case.here, count, ended=case.ended)
    there = holding(case.author, case.there, count, ended=case.ended)
    theirs = replace(THERE, held=None)
    if case.author is BEN:
        theirs = replace(theirs, own=frozenset((case.log,)))
    ours = case.interests(scope)
    stores, interests = ((here, there), (ours, theirs))
    if role:
        stores, interests, policies = stores[::-1], interests[::-1], policies[::-1]
    pair = Recorded(stores)
    pair.connect(interests, policy=policies[0], second=policies[1])
    return pair


def settle(pair: Pair) -> None:
    for _ in range(30):
        pair.run(rounds_max=300, advance_s=1.0)


@pytest.mark.parametrize("role", [0, 1], ids=["calling", "called"])
@pytest.mark.parametrize("writes", list(WriteScope))
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("name", CASES)
def test_no_more_moves_than_a_scope_allows(
    name: str, reads: str, writes: WriteScope, role: int
) -> None:
    case = CASES[name]
    scope = Scope(READS[reads](case.log), writes, BEN.id)
    pair = connected(case, scope, role)
    settle(pair)
    here, there = pair.hosts[role].store, pair.hosts[1 - role].store
    assert (here.height(case.log), there.height(case.log)) == case.expected(scope)
    check_what_was_said(pair, case, scope, role)


def check_what_was_said(pair: Recorded, case: Case, scope: Scope, role: int) -> None:
    read = scope.reads is None or bool(scope.reads & {case.log, case.author.id})
    said = list(pair.messages(role))
    proposals = [each for each in said if isinstance(each, Propose)]
    if not read:
        assert pair.sends_nothing(role)
        assert not any(isinstance(each, Cancel) and each.entries for each in said)
    takes = case.interests(scope).wants(case.log)
    if not read and not takes:
        allowed = (Grant,)
        for each in said:
            refusal = isinstance(each, Cancel) and each.reason is CancelReason.NOT_WANTED
            assert refusal or isinstance(each, allowed)
    if not takes:
        asks: list[Propose | Adjust] = [*proposals]
        asks += [each for each in said if isinstance(each, Adjust)]
        assert all(each.eagerness in (Eagerness.NOTIFY, None) for each in asks)


@pytest.mark.parametrize("role", [0, 1], ids=["calling", "called"])
@pytest.mark.parametrize("writes", list(WriteScope))
@pytest.mark.parametrize("reads", ["all", "none"])
@pytest.mark.parametrize("syncs", ["here", "there"])
@pytest.mark.parametrize("name", CASES)
def test_a_one_time_sync_ends_at_once_whatever_it_may_not_do(
    name: str, syncs: str, reads: str, writes: WriteScope, role: int
) -> None:
    case = CASES[name]
    if case.wanted is not None and case.wanted.kind is PolicyKind.LATEST and syncs == "there":
        return  # it is told of no more than it asks for
    scope = Scope(READS[reads](case.log), writes, BEN.id)
    policies = ("sync", "follow") if syncs == "here" else ("follow", "sync")
    if (syncs == "here") is bool(role):
        return  # a one-time sync is made by who calls
    pair = connected(case, scope, role, policies=policies)
    syncing = pair.hosts[role if syncs == "here" else 1 - role]
    for _ in range(4):
        pair.run(rounds_max=300, advance_s=1.0)
    assert any(type(each).__name__ == "SyncFinished" for each in syncing.notices)
    here, there = pair.hosts[role].store, pair.hosts[1 - role].store
    expected = case.expected(scope)
    assert here.height(case.log) <= expected[0]
    assert there.height(case.log) <= expected[1]
    check_what_was_said(pair, case, scope, role)


@pytest.mark.parametrize("role", [0, 1], ids=["calling", "called"])
def test_a_fork_of_what_may_not_be_read_is_not_told(role: int) -> None:
    log = LogKey(EVE.id, 0)
    here, other = signed(EVE, 4), signed(EVE, 3)
    other.append(EVE, 0, b"another 4")
    proof = (here.logs[log][4].encoded, other.logs[log][4].encoded)
    here.record_fork(log, 4, proof)
    for reads, told in ((ALL_OF_IT, True), (NOTHING, False)):
        there = holding(EVE, 2, 3)
        ours = Interests(logs=frozenset((log,)), scope=Scope(reads, WriteScope.FOLLOWED, BEN.id))
        stores, interests = (here, there), (ours, THERE)
        if role:
            stores, interests = stores[::-1], interests[::-1]
        pair = Recorded(stores)
        pair.connect(interests)
        settle(pair)
        assert (log in there.forks) is told
        shown = [each for each in pair.messages(role) if isinstance(each, Cancel) and each.entries]
        assert bool(shown) is told


# Changes while things flow


def change(pair: Pair, side: int, interests: Interests) -> None:
    store, unscoped = pair.hosts[side].store, replace(interests, scope=None)
    offers = tuple(
        log
        for log in store.logs
        if unscoped.follows(log)  # as the node's book has them: scopes are the session's
    )
    pair.hosts[side].todo.append(InterestsChanged(interests, offers))


WIDE = Scope(ALL_OF_IT, WriteScope.FOLLOWED, BEN.id)


@pytest.mark.parametrize("role", [0, 1], ids=["calling", "called"])
@pytest.mark.parametrize("name", ["own", "followed", "merely held"])
def test_narrowing_stops_a_payload_in_flight(name: str, role: int) -> None:
    case = CASES[name]
    here = signed(case.author, 5, big=True)
    ours = case.interests(WIDE)
    stores, interests = (here, holding(case.author, 0, 5)), (ours, THERE)
    if role:
        stores, interests = stores[::-1], interests[::-1]
    pair = Recorded(stores, credit=1500)
    pair.connect(interests)
    for _ in range(200):
        if len(pair.sent[role]) >= 2500:
            break
        pair.one_round()
    assert len(pair.sent[role]) >= 2500
    change(pair, role, replace(ours, scope=Scope(NOTHING, WriteScope.FOLLOWED, BEN.id)))
    pair.hosts[role].collect()
    while pair.hosts[role].step():
        pass
    # What has been made may leave; nothing more is made but the ends of requests.
    before = len(pair.sent[role]) + pair.engine(role)._outbound._out_bytes
    settle(pair)
    assert len(pair.sent[role]) - before < 64
    there = pair.hosts[1 - role].store
    held = there.logs[case.log].get(5)
    assert held is None or held.payload is None
    assert not any(
        isinstance(each, Propose) and not ours_still(each, case, role)
        for each in list(pair.messages(role))[-1:]
    )


def ours_still(proposal: Propose, case: Case, role: int) -> bool:
    """What this side wants of a log it goes on asking for; of own ones it asks nothing more."""
    return proposal.log == case.log and not case.is_own


@pytest.mark.parametrize("role", [0, 1], ids=["calling", "called"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("writes", list(WriteScope))
@pytest.mark.parametrize("reads", ["all", "none"])
def test_widening_brings_the_rest_without_a_reconnect(
    name: str, reads: str, writes: WriteScope, role: int
) -> None:
    case = CASES[name]
    pair = connected(case, Scope(READS[reads](case.log), writes, BEN.id), role)
    settle(pair)
    change(pair, role, case.interests(WIDE))
    settle(pair)
    here, there = pair.hosts[role].store, pair.hosts[1 - role].store
    assert (here.height(case.log), there.height(case.log)) == case.expected(WIDE)


@pytest.mark.parametrize("role", [0, 1], ids=["calling", "called"])
@pytest.mark.parametrize("name", CASES)
def test_who_may_write_no_more_is_taken_nothing_from(name: str, role: int) -> None:
    case = CASES[name]
    pair = connected(case, WIDE, role)
    settle(pair)
    change(pair, role, case.interests(Scope(ALL_OF_IT, WriteScope.NONE, BEN.id)))
    settle(pair)
    here, there = pair.hosts[role].store, pair.hosts[1 - role].store
    before = here.height(case.log)
    if not case.ended and here.end(case.log) is None:
        author = replace(case.author)
        there.append(author, 0, b"one more")
        settle(pair)
    assert here.height(case.log) == before


SCOPES = st.builds(
    Scope,
    st.sampled_from([ALL_OF_IT, NOTHING, frozenset((EVE.id,)), frozenset((AMY.id,))]),
    st.sampled_from(list(WriteScope)),
    st.just(BEN.id),
)


@dataclass
class Flow:
    """Three logs, one of each kind, with big payloads."""

    stores: tuple[Store, Store] = field(default_factory=lambda: (Store(), Store()))

    def __post_init__(self) -> None:
        here, there = self.stores
        for store, author, count in ((here, AMY, 4), (here, EVE, 3), (there, BEN, 4)):
            for number in range(count):
                store.append(author, 0, random.Random(number).randbytes(1500 if number % 2 else 9))


TOLD_BEFORE_IT_IS_REFUSED = [
    (Scope(reads, writes, BEN.id), rounds)
    for reads, writes, rounds in (
        (NOTHING, WriteScope.FOLLOWED, 1),
        (ALL_OF_IT, WriteScope.FOLLOWED, 1),
        (ALL_OF_IT, WriteScope.OWN, 2),
        (ALL_OF_IT, WriteScope.FOLLOWED, 2),
    )
]
"""What was asked for after an offer is ended with 128, so that it takes another offer."""


@given(
    st.lists(st.tuples(SCOPES, st.integers(1, 12)), min_size=1, max_size=4),
    st.integers(0, 1),
    st.integers(200, 3000),
)
@example(TOLD_BEFORE_IT_IS_REFUSED, 0, 200)
@example(TOLD_BEFORE_IT_IS_REFUSED, 1, 3000)
def test_scopes_may_change_at_any_moment(
    changes: list[tuple[Scope, int]], role: int, credit: int
) -> None:
    """Nothing that is not covered any more leaves, and in the end all is as the last scope says."""
    flow = Flow()
    here, there = flow.stores
    eve = LogKey(EVE.id, 0)
    ours = Interests(
        authors=frozenset((BEN.id, EVE.id)),
        own=frozenset((LogKey(AMY.id, 0),)),
        author=AMY.id,
        scope=WIDE,
    )
    theirs = replace(THERE, own=frozenset((LogKey(BEN.id, 0),)))
    stores, interests = (here, there), (ours, theirs)
    if role:
        stores, interests = stores[::-1], interests[::-1]
    pair = Recorded(stores, credit=credit)
    pair.connect(interests)
    for scope, rounds in changes:
        for _ in range(rounds):
            pair.one_round()
        change(pair, role, replace(ours, scope=scope))
        while pair.hosts[role].step():
            pass
        if scope.reads == NOTHING:
            pair.pump(role)
            sent = len(pair.sent[role]) + pair.engine(role)._outbound._out_bytes
            for _ in range(3):
                pair.one_round()
            assert len(pair.sent[role]) - sent < 64
    settle(pair)
    scope = changes[-1][0]
    for log in (eve, LogKey(AMY.id, 0)):
        if not scope.may_read(log):
            continue
        assert there.height(log) == here.height(log)
    if scope.writes is not WriteScope.NONE:
        assert here.height(LogKey(BEN.id, 0)) == 4
    change(pair, role, replace(ours, scope=WIDE))
    settle(pair)
    for log in (eve, LogKey(AMY.id, 0), LogKey(BEN.id, 0)):
        assert here.height(log) == there.height(log) == max(len(here.logs[log]), 1)
        assert all(held.payload is not None for held in there.logs[log].values())
