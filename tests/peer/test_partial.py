"""Any two partial replicas of a log extend each other as far as the protocol allows."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logstore import FULL, PolicyKind, Subscription
from peer.protocol.notices import SyncFinished
from wire import U64_MAX

from .partial import (
    LOG,
    Counting,
    closed,
    history,
    interests_of,
    pair_of,
    replica,
    settle,
    wanted_of,
)
from .rig import Pair, Store

COUNT = 60

RUNS = st.lists(st.tuples(st.integers(1, COUNT), st.integers(0, 12)), max_size=4).map(
    lambda runs: {n for first, more in runs for n in range(first, min(COUNT, first + more) + 1)}
)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    kind = draw(st.sampled_from(list(PolicyKind)))
    count, first, last = 0, 1, None
    if kind is PolicyKind.LATEST:
        count = draw(st.integers(1, COUNT))
    if kind is PolicyKind.RANGE:
        first = draw(st.integers(1, COUNT))
        last = draw(st.none() | st.integers(first, COUNT + 5))
    low, high = draw(st.sampled_from([(0, U64_MAX), (0, U64_MAX), (20, 90), (0, 50)]))
    eager = draw(st.sampled_from([None, None, 0, 60]))
    return Subscription(kind, count, first, last, low, high, eager)


def check(
    pair: Pair,
    before: tuple[set[int], set[int]],
    payloads: tuple[set[int], set[int]],
    subscriptions: tuple[Subscription, Subscription],
) -> None:
    newest = max(before[0] | before[1], default=0)
    whole = history(COUNT)
    for side in (0, 1):
        host = pair.hosts[side]
        assert isinstance(host, Counting)
        held = host.store.logs[LOG]
        wanted = wanted_of(subscriptions[side], newest)
        offered = payloads[0] | payloads[1]
        assert wanted & (before[0] | before[1]) <= set(held), "wanted, there, and not brought"
        assert closed(held) == set(held), "an entry without its pool"
        for seq in wanted & offered:
            if subscriptions[side].wants_payload(whole[seq].entry.payload_bytes):
                assert held[seq].payload is not None, f"payload of {seq}"
        assert not [n for n in before[side] if host.entries[n]], "sent although held"
        assert max(host.entries.values(), default=0) <= 1, "sent twice"
        assert not [n for n in payloads[side] if host.payloads[n]], "payload sent although held"
        assert max(host.payloads.values(), default=0) <= 1, "payload sent twice"


def held_by(store: Store) -> tuple[set[int], set[int]]:
    held = store.logs[LOG]
    return set(held), {seq for seq, entry in held.items() if entry.payload is not None}


def connected(
    parts: tuple[set[int], set[int]],
    bare: tuple[set[int], set[int]],
    wishes: tuple[Subscription, Subscription],
    policies: tuple[str, str],
) -> tuple[Pair, list[tuple[set[int], set[int]]]]:
    """Two partial replicas at the beginning, and what each holds: entries, and payloads."""
    stores = [replica(COUNT, parts[side], bare[side]) for side in (0, 1)]
    had = [held_by(store) for store in stores]
    pair = pair_of(stores[0], stores[1])
    pair.connect(
        (interests_of(wishes[0]), interests_of(wishes[1])), policy=policies[0], second=policies[1]
    )
    return pair, had


LATEST_2 = Subscription(PolicyKind.LATEST, count=2)


# What is not wanted hides what is missing, in a view that names the first few.
@example(
    parts=({21}, set()),
    bare=(set(), set()),
    wishes=(FULL, LATEST_2),
    policies=("follow", "follow"),
)
# What is offered is not wanted, and its pool is.
@example(
    parts=({57}, set()),
    bare=(set(), set()),
    wishes=(FULL, Subscription(PolicyKind.RANGE, first=1, last=53)),
    policies=("sync", "follow"),
)
# Refusals that are lifted by each proposal of the other side hide what it offers.
@example(
    parts=({1, 25}, {44}),
    bare=(set(), set()),
    wishes=(FULL, FULL),
    policies=("follow", "follow"),
)
# The last missing payload comes while the log is being looked at.
@example(
    parts=({27}, set(range(55, 61))),
    bare=(set(), set()),
    wishes=(Subscription(PolicyKind.SPARSE, eager_bytes=60), Subscription(eager_bytes=60)),
    policies=("sync", "sync"),
)
@given(
    parts=st.tuples(RUNS, RUNS),
    bare=st.tuples(RUNS, RUNS),
    wishes=st.tuples(subscriptions(), subscriptions()),
    policies=st.sampled_from(
        [("follow", "follow"), ("follow", "follow"), ("sync", "follow"), ("sync", "sync")]
    ),
)
def test_each_side_ends_with_what_it_wants_of_both(
    parts: tuple[set[int], set[int]],
    bare: tuple[set[int], set[int]],
    wishes: tuple[Subscription, Subscription],
    policies: tuple[str, str],
) -> None:
    """point2point.md 10; and a one-time sync says when that is so."""
    pair, had = connected(parts, bare, wishes, policies)
    settle(pair, 25 if policies[0] == "follow" else 30)
    check(pair, (had[0][0], had[1][0]), (had[0][1], had[1][1]), wishes)
    if policies[0] == "sync":
        assert any(isinstance(notice, SyncFinished) for notice in pair.hosts[0].notices)


@pytest.mark.parametrize("side", [0, 1])
def test_full_and_latest(side: int) -> None:
    stores = [Store(), replica(COUNT, range(41, 51))]
    wishes = [FULL, Subscription(PolicyKind.LATEST, count=10)]
    if side:
        stores.reverse()
        wishes.reverse()
    pair = pair_of(stores[0], stores[1])
    pair.connect((interests_of(wishes[0]), interests_of(wishes[1])))
    settle(pair)
    assert set(stores[side].logs[LOG]) == set(stores[1 - side].logs[LOG])
