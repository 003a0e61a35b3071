"""What crosses is what doors.md 3 allows, whatever is held here and whoever speaks first.

may read, write   we
yes, yes          do as today
yes, no           offer and serve it, and ask for notifications only
no, yes           ask for it, and send nothing of it
no, no            never mention it; cancel with 128 as if nothing were held
"""

from dataclasses import dataclass, field

import pytest

from logstore import FULL, PolicyKind, Subscription, WriteScope
from peer import Scope
from peer.protocol.events import Interests
from wire import CancelReason, LogKey

from .rig import Author, Held, Store
from .scoped import HERE, THERE, THIRD, Crossed, ScopedPair, history, kept, payload_of, shows

COUNT = 7
"""Entries of the log, where it is held whole."""


@dataclass(frozen=True)
class State:
    """How a log stands: entries 1 to `here` are held here, 1 to `there` by the other side."""

    name: str
    here: int
    there: int
    author: Author = field(default_factory=lambda: THIRD)
    followed: bool = True
    wish: Subscription = FULL
    fork: int | None = None
    """Both have the same entries below it, and here has the proof."""
    ends: bool = False

    @property
    def log(self) -> LogKey:
        return LogKey(self.author.id, 0)

    @property
    def entries(self) -> dict[int, Held]:
        return history(self.author, 0, max(self.here, self.there), ends=self.ends)


SPARSE = Subscription(PolicyKind.SPARSE)
LATEST = Subscription(PolicyKind.LATEST, count=2)
STATES = [
    State("own, ahead", COUNT, 3, HERE),
    State("own, lost", 3, COUNT, HERE),
    State("own, alone", COUNT, 0, HERE),
    State("followed, ahead", COUNT, 3),
    State("followed, behind", 3, COUNT),
    State("followed, alike", COUNT, COUNT),
    State("followed, alone", COUNT, 0),
    State("followed, empty", 0, COUNT),
    State("theirs, behind", 3, COUNT, THERE),
    State("theirs, ahead", COUNT, 3, THERE),
    State("theirs, empty", 0, COUNT, THERE),
    State("held, ahead", COUNT, 3, followed=False),
    State("held, behind", 3, COUNT, followed=False),
    State("held, theirs", 3, COUNT, THERE, followed=False),
    State("forked, ahead", 4, 3, fork=5),
    State("forked, behind", 4, COUNT, fork=5),
    State("ended, ahead", COUNT, 3, ends=True),
    State("ended, behind", 3, COUNT, ends=True),
    State("ended, alike", COUNT, COUNT, ends=True),
    State("sparse", 3, COUNT, wish=SPARSE),
    State("sparse, empty", 0, COUNT, wish=SPARSE),
    State("latest", 3, COUNT, wish=LATEST),
    State("latest, ahead", COUNT, 3, wish=LATEST),
]


def proof(state: State) -> tuple[bytes, bytes]:
    """Two entries of one number."""
    assert state.fork is not None
    common = kept(history(state.author, 0, COUNT), range(1, state.fork))
    payload = payload_of(state.author, 0, state.fork)
    return (
        state.author.entry(common, 0, payload)[1].encoded,
        state.author.entry(common, 0, b"another")[1].encoded,
    )


def world(state: State, here: int) -> ScopedPair:
    stores = (Store(), Store())
    for store, count in zip(stores, (state.here, state.there), strict=True):
        store.logs[state.log].update(kept(state.entries, range(1, count + 1)))
    if state.fork is not None:
        stores[0].record_fork(state.log, state.fork, proof(state))
    return ScopedPair(here, stores)


def interests(state: State, scope: Scope | None) -> tuple[Interests, Interests]:
    """Of here, and of there, which follows the log in full."""
    logs = frozenset((state.log,))
    own = state.author is HERE
    here = Interests(
        logs=logs if state.followed and not own else frozenset(),
        own=logs if own else frozenset(),
        author=HERE.id,
        subscriptions={state.log: state.wish},
        scope=scope,
    )
    return here, Interests(logs=logs, author=THERE.id)


# The rule, stated apart from the code.


def may_read(scope: Scope, log: LogKey) -> bool:
    return scope.reads is None or bool({log.author, log} & scope.reads)


def may_write(scope: Scope, state: State) -> bool:
    allowed = {"followed": True, "own": state.author is THERE, "none": False}[scope.writes.value]
    # Own logs are taken back only from who may read them.
    return allowed and (state.author is not HERE or may_read(scope, state.log))


def given(state: State, *, read: bool) -> set[int]:
    """The entries that leave, with their payloads: what is held here alone, below any fork."""
    return set(range(state.there + 1, state.here + 1)) if read else set()


def taken(state: State, *, write: bool) -> set[int]:
    """The entries that come: what is wanted of what is held there alone."""
    if not (write and state.followed) or state.fork is not None:
        return set()
    missing = set(range(state.here + 1, state.there + 1))
    if state.wish.kind is PolicyKind.SPARSE:
        return missing & set(PATH)
    if state.wish.kind is PolicyKind.LATEST:
        return missing & (set(range(COUNT - 1, COUNT + 1)) | set(PATH))
    return missing


def paid(state: State, *, write: bool) -> set[int]:
    """Those of them that come with their payloads."""
    entries = taken(state, write=write)
    is_latest = state.wish.kind is PolicyKind.LATEST
    return entries & {COUNT - 1, COUNT} if is_latest else entries


PATH = (1, 4, 5, 6, 7)
"""The entries that lead from 7, the newest, to 1, those of the pool of its two latest included."""

READS: dict[str, frozenset[bytes | LogKey] | None] = {
    "reads all": None,
    "reads authors": frozenset({HERE.id, THERE.id, THIRD.id}),
    "reads logs": frozenset(LogKey(author.id, 0) for author in (HERE, THERE, THIRD)),
    "reads others": frozenset({b"o" * 32, LogKey(HERE.id, 9), LogKey(THIRD.id, 9)}),
    "reads none": frozenset(),
}


def run(
    state: State, scope: Scope | None, here: int, first: int, policies: tuple[str, str]
) -> ScopedPair:
    """All that happens until both sides are at rest."""
    pair = world(state, here)
    pair.meet(*interests(state, scope), policies=policies, first=first)
    pair.settle()
    return pair


def judge_given(state: State, out: Crossed, sent: bytes, *, read: bool) -> None:
    """What has left of a log."""
    marked = shows(sent, state.entries)
    if not read:
        assert out.is_nothing
        assert not marked
        return
    held = set(range(1, state.here + 1))
    assert out.notified <= held
    assert bool(out.proofs) >= (state.fork is not None)
    if state.fork is not None and state.there >= state.fork:
        # It looks for where its own history parts from ours.
        assert out.entries <= held
        assert not out.payloads
        assert not marked
        return
    assert out.entries == out.payloads == marked == given(state, read=read)


def judge_taken(state: State, out: Crossed, back: Crossed, *, read: bool, write: bool) -> None:
    """What has come of a log, and what was asked for."""
    assert back.entries == taken(state, write=write)
    assert back.payloads == paid(state, write=write)
    if write and state.followed:
        return
    assert out.asked <= {"notify"}
    told = set(range(state.here + 1, state.there + 1))
    if read and state.followed and state.fork is None:
        assert told <= back.notified
    else:
        assert not back.notified


def judge_silent(out: Crossed, back: Crossed) -> None:
    """Nothing names the log but refusals, one for each proposal."""
    proposed = [each for each in back.controls if each["message"] == "propose"]
    assert all(each["message"] == "cancel" for each in out.controls)
    assert {each["reason"] for each in out.controls} <= {int(CancelReason.NOT_WANTED)}
    assert len(out.controls) == len(proposed)


SCOPES = [(reads, writes) for reads in READS for writes in WriteScope]


@pytest.mark.parametrize("first", [0, 1], ids=["proactive first", "reactive first"])
@pytest.mark.parametrize("here", [0, 1], ids=["proactive", "reactive"])
@pytest.mark.parametrize("state", STATES, ids=[state.name for state in STATES])
def test_what_crosses_is_what_the_scope_allows(state: State, here: int, first: int) -> None:
    today = run(state, None, here, first, ("follow", "follow"))
    for reads, writes in SCOPES:
        scope = Scope(READS[reads], writes, THERE.id)
        pair = run(state, scope, here, first, ("follow", "follow"))
        out = pair.crossed(state.log, from_here=True)
        back = pair.crossed(state.log, from_here=False)
        read, write = may_read(scope, state.log), may_write(scope, state)
        judge_given(state, out, bytes(pair.sent), read=read)
        judge_taken(state, out, back, read=read, write=write)
        if read and write:
            assert pair.records == today.records
        elif not (read or (write and state.followed)):
            judge_silent(out, back)
        for side in (0, 1):
            assert pair.engine(side).drained
            assert not pair.hosts[side].sinks


SYNCS = [("sync", "follow"), ("follow", "sync"), ("sync", "sync")]
"""The policies of here and of there."""
STEP_S = 0.05
SYNC_S_MAX = 5.0


def sync(state: State, scope: Scope | None, here: int, policies: tuple[str, str]) -> ScopedPair:
    """A one-time sync of one side or of both, until it is done."""
    pair = world(state, here)
    pair.meet(*interests(state, scope), policies=policies, first=here)
    sides = [
        side
        for side, policy in zip((pair.here, pair.there), policies, strict=True)
        if policy == "sync"
    ]
    while not all(map(pair.finished, sides)):
        assert pair.now < SYNC_S_MAX
        pair.run(advance_s=STEP_S)
    return pair


@pytest.mark.parametrize("policies", SYNCS)
@pytest.mark.parametrize("here", [0, 1], ids=["proactive", "reactive"])
@pytest.mark.parametrize("state", STATES, ids=[state.name for state in STATES])
def test_a_sync_moves_what_the_scope_allows_and_ends_no_later(
    state: State, here: int, policies: tuple[str, str]
) -> None:
    """Whichever side it is one of; what is refused is waited for as little as what is moved."""
    today = sync(state, None, here, policies)
    for reads in ("reads all", "reads none"):
        for writes in WriteScope:
            scope = Scope(READS[reads], writes, THERE.id)
            pair = sync(state, scope, here, policies)
            out = pair.crossed(state.log, from_here=True)
            back = pair.crossed(state.log, from_here=False)
            read, write = may_read(scope, state.log), may_write(scope, state)
            assert pair.now <= today.now + STEP_S
            assert back.entries == taken(state, write=write)
            assert back.payloads == paid(state, write=write)
            if not read:
                assert out.is_nothing
                assert not shows(bytes(pair.sent), state.entries)
            elif state.fork is None:
                assert out.entries == out.payloads == given(state, read=read)
            if not (read or (write and state.followed)):
                judge_silent(out, back)
