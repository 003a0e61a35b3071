"""Whatever comes first, nothing is sent to who holds it, and no payload comes twice (section 10).

What was sent is stored a while after its request is over, and what is planned meanwhile has to know
of it. So these worlds are drawn from a seed: who does what next, and how often each does anything.
"""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logstore import FULL, PolicyKind, Subscription
from peer.protocol.events import Interests
from peer.protocol.notices import Arriving
from tests.records import replace

from .partial import AUTHOR, LOG, Counting, interests_of, pair_of, settle
from .rig import Held, Pair, Store
from .test_partial import RUNS, check, connected, subscriptions

STEPS = 600
AT_ONCE = (0.001, 0.01)
"""Nothing takes so long that somebody asks again."""
POLICIES = [("follow", "follow"), ("sync", "follow"), ("follow", "sync"), ("sync", "sync")]


def drawn_pair(draw: random.Random, policies: tuple[str, str]) -> Pair:
    """Host 0 follows a log of which host 1 has all, and holds a beginning, payloads left out."""
    left, right = Store(), Store()
    sizes = draw.choices([10, 200, 3000], k=draw.choice([1, 2, 3, 5]))
    held = draw.choice([0, 0, draw.randint(0, len(sizes))])
    for size in sizes:
        seq = right.append(AUTHOR, 0, b"p" * size)
        if seq <= held:
            whole = right.logs[LOG][seq]
            payload = whole.payload if draw.random() < 0.7 else None
            left.logs[LOG][seq] = Held(whole.encoded, whole.hash, payload)
    pair = pair_of(left, right, credit=draw.choice([600, 4096]))
    wanted = draw.choice([interests_of(FULL), Interests(everything=True)])
    given = draw.choice([interests_of(FULL), Interests(own=frozenset((LOG,)))])
    pair.connect((wanted, given), policy=policies[0], second=policies[1])
    return pair


def act(pair: Pair, draw: random.Random, ticks: tuple[float, ...] = (0.01, 0.1, 1.0)) -> None:
    """One thing after another, some of them much more often; sometimes so many seconds pass."""
    weights = [draw.choice([1, 1, 5, 20]) for _ in range(8)]
    for choice in draw.choices(range(8), weights, k=STEPS):
        side = choice % 2
        if choice < 2:
            pair.hosts[side].step(draw.randrange(4))
        elif choice < 4:
            pair.pump(side, data_max=draw.choice([30, 300, 5000]))
        elif choice < 6:
            pair.deliver_control(side, draw.randint(1, 300))
        else:
            pair.deliver_data(side, draw.randint(1, 600))
        if draw.random() < 0.05:
            pair.tick(draw.choice(ticks))


@pytest.mark.parametrize("policies", POLICIES)
# Payloads came twice: by mending, in a range that began inside one, and with what was offered.
@example(seed=345)
@example(seed=326)
@example(seed=158)
@example(seed=415)
# What was to bring the payload of the tail came to nothing, and the log grew.
@example(seed=15937)
# What was looked up for nobody was taken for an answer to whoever wanted the log meanwhile.
@example(seed=356869)
@example(seed=1000034)
@given(seed=st.integers(0, 1 << 32))
def test_no_payload_comes_that_has_come_or_is_under_way(
    policies: tuple[str, str], seed: int
) -> None:
    draw = random.Random(seed)
    pair = drawn_pair(draw, policies)
    host = pair.hosts[0]
    assert isinstance(host, Counting)
    had = {seq for seq, held in host.store.logs[LOG].items() if held.payload is not None}
    act(pair, draw)
    settle(pair, 10)
    whole = pair.hosts[1].store.logs[LOG]
    assert set(whole) <= set(host.store.logs[LOG])
    assert all(held.payload is not None for held in host.store.logs[LOG].values())
    assert {seq: 1 for seq in whole if seq not in had} == +host.payloads


@pytest.mark.parametrize("giver", [0, 1])
@pytest.mark.parametrize("held", [(700, 50), (50, 700), (0, 700), (700, 0), (300, 300)])
@pytest.mark.parametrize("more", [0, 1])
def test_who_gets_the_rest_of_a_payload_sends_what_the_other_lacks_of_it(
    held: tuple[int, int], giver: int, more: int
) -> None:
    """Both hold parts of it; a range that begins inside it fits one of them at most.

    The one who gets nothing from elsewhere may hold the entry behind it.
    """
    pair = Pair(stores=(Store(), Store()))
    stores, taker = [host.store for host in pair.hosts], 1 - giver
    for store, count in zip(stores, held, strict=True):
        store.append(AUTHOR, 0, b"y")
        store.append(AUTHOR, 0, b"x" * 1000)
        store.partial[LOG, 2] = b"x" * count
    if more:
        stores[taker].append(AUTHOR, 0, b"z" * 9)
    whole = stores[giver].logs[LOG][2]
    for store in stores:
        store.logs[LOG][2] = replace(whole, payload=None)
    pair.connect((interests_of(FULL), interests_of(FULL)))
    settle(pair, 10)
    stores[giver].logs[LOG][2] = whole
    stores[giver].changed(LOG)
    settle(pair, 60)
    if not more:
        stores[giver].append(AUTHOR, 0, b"z" * 9)
    settle(pair, 10)
    assert stores[taker].logs[LOG] == stores[giver].logs[LOG]
    arrived = [each for each in pair.hosts[taker].notices if isinstance(each, Arriving)]
    metadata_bytes = len(stores[giver].logs[LOG][3].encoded)
    assert sum(each.data_bytes for each in arrived) <= 1000 - held[taker] + 9 + metadata_bytes


def span(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


# What is told before it is wanted is told again.
@example(
    parts=(set(), span(6, 12) | span(16, 28) | span(39, 53)),
    bare=(set(), set()),
    wishes=(Subscription(PolicyKind.RANGE, first=24), Subscription(PolicyKind.METADATA)),
    policies=("sync", "sync"),
    order=1047,
)
# An upper pool is coming although the range was not confirmed yet.
@example(
    parts=(span(33, 34) | span(47, 57), span(35, 51)),
    bare=(set(), span(17, 29) | span(51, 60)),
    wishes=(
        Subscription(PolicyKind.RANGE, first=17, last=38),
        Subscription(PolicyKind.RANGE, first=14, min_bytes=20, max_bytes=90),
    ),
    policies=("sync", "follow"),
    order=0,
)
# The pool of what is offered and not wanted is asked for.
@example(
    parts=(span(58, 60), span(34, 35)),
    bare=(span(58, 60), set()),
    wishes=(FULL, Subscription(PolicyKind.RANGE, first=21, last=53)),
    policies=("sync", "sync"),
    order=0,
)
# A path is coming although it was not confirmed yet.
@example(
    parts=(span(23, 24), span(23, 31)),
    bare=(set(), set()),
    wishes=(
        Subscription(PolicyKind.RANGE, first=4, last=23),
        Subscription(PolicyKind.RANGE, first=39, last=44),
    ),
    policies=("follow", "follow"),
    order=5,
)
# An offer comes just before it is known that the log is wanted.
@example(
    parts=(span(55, 57) | {60}, set()),
    bare=(span(13, 18) | span(42, 50), set()),
    wishes=(Subscription(PolicyKind.LATEST, count=21, eager_bytes=0), FULL),
    policies=("sync", "follow"),
    order=151,
)
# Another part of a pool is coming than the one that was waited for.
@example(
    parts=(span(4, 12) | span(15, 29), span(55, 56)),
    bare=(set(), span(2, 7)),
    wishes=(
        Subscription(PolicyKind.METADATA, max_bytes=50, eager_bytes=60),
        Subscription(PolicyKind.RANGE, first=24, last=36),
    ),
    policies=("follow", "follow"),
    order=0,
)
# What could not be served as it was asked for is offered, although nobody wanted the log by then.
@example(
    parts=(span(26, 34), span(9, 16)),
    bare=(set(), span(21, 31)),
    wishes=(FULL, Subscription(PolicyKind.FULL, min_bytes=20, max_bytes=90, eager_bytes=0)),
    policies=("sync", "sync"),
    order=1226,
)
# An offer came before the log was wanted, and what is asked for then begins before it.
@example(
    parts=(set(), {4}),
    bare=(set(), set()),
    wishes=(FULL, FULL),
    policies=("follow", "sync"),
    order=23733038,
)
# The upper pool of what is asked for ends with an entry that is coming.
@example(
    parts=({1} | span(53, 57), set()),
    bare=(set(), set()),
    wishes=(
        Subscription(PolicyKind.FULL, eager_bytes=0),
        Subscription(PolicyKind.RANGE, first=2, last=54),
    ),
    policies=("follow", "follow"),
    order=1172,
)
# The entry that the other side was asked for, and told, was taken for a guess, and taken back.
@example(
    parts=(span(3, 6) | {9, 45, 59, 60}, {22} | span(51, 60)),
    bare=(set(), set()),
    wishes=(Subscription(eager_bytes=0), Subscription(PolicyKind.LATEST, count=55)),
    policies=("follow", "sync"),
    order=2,
)
@given(
    parts=st.tuples(RUNS, RUNS),
    bare=st.tuples(RUNS, RUNS),
    wishes=st.tuples(subscriptions(), subscriptions()),
    policies=st.sampled_from(POLICIES),
    order=st.integers(0, 1 << 32),
)
def test_parts_come_once_in_whatever_order(
    parts: tuple[set[int], set[int]],
    bare: tuple[set[int], set[int]],
    wishes: tuple[Subscription, Subscription],
    policies: tuple[str, str],
    order: int,
) -> None:
    pair, had = connected(parts, bare, wishes, policies)
    act(pair, random.Random(order), AT_ONCE)
    settle(pair, 30)
    check(pair, (had[0][0], had[1][0]), (had[0][1], had[1][1]), wishes)
