"""Two sides of one request get other branches of the log from elsewhere, which neither knows yet.

One of them only listens: it is notified of entries, passes them, and sends the payloads that the
other one lacks. From the fork on these are not the ones that were meant, and nobody is to blame.
"""

from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.engine import Engine
from peer.planner.sourcing import claim_all
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.notices import RequestGivenUp
from tests.records import replace
from wire import LogKey, Setup, negotiate, yamf_hash

from .impolite import GREEDY, SAFE, SMALL
from .relay import Link, RelayStore
from .rig import Held, Pair, Store, claim_none
from .test_greedy_chains import converge
from .test_other_branch import (
    ACTIONS,
    COMPRESSIONS,
    COUNT,
    FOLLOWS,
    LOG,
    OURS,
    SIZES,
    THEIRS,
    assert_at_rest,
    branch,
    liar_of,
    play,
    relay_store,
    without,
)


def agree(pair: Pair, side: int, *, sends: bool) -> None:
    """Until one side is in a request that may bring it the log; the other one may not know yet.

    `sends`: whether the other one may say anything on the data channel.
    """
    for each in [0, 1] * 50:
        while pair.hosts[each].step():
            pass
        requests = pair.engine(side)._table.all()
        if any(request.active and request.our_interest.metadata_ever for request in requests):
            return
        pair.pump(each, data_max=1 << 20 if sends else 0)
        pair.deliver_control(each, len(pair.control[each]))
        pair.deliver_data(each, len(pair.data[each]))
    raise AssertionError("no request that brings anything")


def fill(store: Store, other: Store, last: int) -> None:
    """Take over what another replica holds, as if it came over other connections."""
    for seq in range(1, last + 1):
        held = other.logs[LOG][seq]
        store.logs[LOG][seq] = Held(held.encoded, held.hash, held.payload)
    store.changed(LOG)


def assert_sound(store: Store, whole: Store, shared: int) -> None:
    """All payloads of the first `shared` entries are there, and nothing of another entry."""
    for seq, held in store.logs[LOG].items():
        right = held.payload is None or yamf_hash(held.payload) == held.entry.payload_hash
        assert right
        assert seq > shared or held.payload == whole.logs[LOG][seq].payload
    assert set(store.logs[LOG]) >= set(range(1, shared + 1))


@pytest.mark.parametrize("kind", THEIRS)
@pytest.mark.parametrize("parts_at", [6, 8])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("setup", [SAFE, GREEDY])
@pytest.mark.parametrize("policy", ["follow", "sync"])
def test_who_listens_and_holds_another_branch_is_not_dropped(
    kind: str, parts_at: int, side: int, setup: Setup, policy: str
) -> None:
    size = THEIRS[kind]
    sizes = [n if size is None or seq < parts_at else size for seq, n in enumerate(OURS, 1)]
    mine, other = Store(), branch(sizes, parts_at, b"r")
    stores = (mine, other) if side == 0 else (other, mine)
    pair = Pair(replace(SMALL, compression="always"), stores=stores, setup=setup)
    policies = ("follow", policy) if side == 0 else (policy, "follow")
    claims = (claim_all, claim_none) if side == 0 else (claim_none, claim_all)
    pair.connect((FOLLOWS, FOLLOWS), policy=policies[0], second=policies[1], claims=claims)
    agree(pair, side, sends=policy == "sync")
    # Who reaches the end of a range ends it.
    fill(mine, without(branch(OURS, parts_at, b"l"), set(range(5, COUNT))), COUNT - 1)
    for _ in range(3):
        while pair.hosts[side].step():
            pass
        pair.pump(side)
    pair.deliver_control(side, len(pair.control[side]))
    pair.deliver_data(side, len(pair.data[side]))
    for _ in range(10):
        pair.run(advance_s=1.0)
    given_up = [each for each in pair.hosts[side].notices if isinstance(each, RequestGivenUp)]
    # In a sync the other side has ended the request before.
    assert (policy == "follow") <= len(given_up) <= 4
    assert_sound(mine, other, parts_at - 1)
    assert mine.forks[LOG][0] >= parts_at
    assert_at_rest(pair)


# Any order of events


class Listening(Link):
    """A connection that the right side has only for listening, for now."""

    listens = True

    def open(self, *logs: LogKey) -> None:
        super().open(*logs)
        if not self.listens:
            return
        negotiated = negotiate(self.setups[1], self.setups[0])
        right = self.hosts[1]
        right.todo.clear()
        right.engine = Engine(
            negotiated, self.config, proactive=False, now=self.now, claim=claim_none
        )
        right.todo.append(InterestsChanged(Interests(logs=frozenset(logs)), logs))


@given(
    sizes=st.tuples(SIZES, SIZES),
    parts_at=st.integers(2, COUNT - 1),
    lacks=st.sets(st.integers(1, COUNT), min_size=6),
    order=st.integers(0, 1 << 32),
    safe=st.sets(st.integers(0, 1)),
    lies=st.booleans(),
    compression=COMPRESSIONS,
)
def test_in_any_order_of_events_nobody_is_blamed_for_the_branch_he_got(
    sizes: tuple[list[int], list[int]],
    parts_at: int,
    lacks: set[int],
    order: int,
    safe: set[int],
    lies: bool,
    compression: Literal["always", "never"],
) -> None:
    """A source feeds a relay, which listens to somebody who gets the other branch from elsewhere.

    What the relay passes on while it comes may be wrong: then it takes it back.
    """
    theirs = [*sizes[0][: parts_at - 1], *sizes[1][parts_at - 1 :]]
    honest = relay_store(branch(theirs, parts_at, b"r"))
    whole = branch(sizes[0], parts_at, b"l")
    coming = without(branch(sizes[0], parts_at, b"l"), lacks).logs[LOG]
    relay, far = RelayStore(), RelayStore()
    config = replace(SMALL, compression=compression)
    giver = liar_of(honest) if lies else honest
    feeding = Link(giver, relay, config=config, setups=(SAFE if 0 in safe else GREEDY, GREEDY))
    link = Listening(far, relay, config=config, setups=(GREEDY, SAFE if 1 in safe else GREEDY))
    links = [feeding, link]
    rng = Random(order)
    link.open(LOG)
    cut_chance = rng.choice([0, 0, 0.004])
    for step in range(rng.choice([200, 400, 800])):
        if step == rng.choice([1, 30, 60]) and not feeding.is_open:
            feeding.open(LOG)
        if coming and rng.random() < 0.15:
            seq = min(coming)
            held = coming.pop(seq)
            if seq not in far.logs[LOG] and (seq == 1 or seq - 1 in far.logs[LOG]):
                far.logs[LOG][seq] = held
                far.changed(LOG)
        size = rng.choice([1, 30, 100, 700])
        action = "cut" if rng.random() < cut_chance else rng.choice(ACTIONS)
        play(rng.choice(links) if feeding.is_open else link, action, rng.randrange(2), size)
    assert link.violation is None
    feeding.close()
    links[0] = Link(honest, relay, config=config)
    link.listens = False
    for _ in range(2):
        for each in links:
            each.close()
            each.open(LOG)
        converge(links)
    assert [each.violation for each in links] == [None, None]
    for store in (relay, far):
        assert_sound(store, whole, parts_at - 1)
        assert not store.arrivals
