"""Payloads are asked of who holds another branch of the log, which neither side knows yet.

The starting hash of a request for several payloads is that of an entry before them, so that the
entries themselves may differ (point2point.md 2, 3). Whoever then sends what we did not mean is
honest. Payload for payload its entry is the starting hash, and that shows the fork.
"""

from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from peer.protocol.events import Interests
from tests.records import replace
from wire import LogKey, Setup, yamf_hash

from .impolite import GREEDY, SAFE, SMALL
from .relay import Link, RelayStore
from .rig import INLINE_BYTES_MAX, Author, Held, Pair, Store
from .test_greedy_chains import converge

AUTHOR = Author(SigningKey(b"o" * 32))
LOG = LogKey(AUTHOR.id, 0)
FOLLOWS = Interests(logs=frozenset((LOG,)))
COUNT = 12
"""Both branches end there: the hash that entry 13 would have to begin with is that of entry 4."""


def branch(sizes: list[int], parts_at: int = COUNT + 1, name: bytes = b"") -> Store:
    """A log whose payloads have these sizes; from `parts_at` on they begin with `name`."""
    store = Store()
    for seq, size in enumerate(sizes, 1):
        own = name if seq >= parts_at else b""
        store.append(AUTHOR, 0, (own + b"%d." % seq * size)[:size])
    return store


def without(store: Store, seqs: set[int]) -> Store:
    """The same replica, and these payloads are missing."""
    for seq in seqs & set(store.logs[LOG]):
        held = store.logs[LOG][seq]
        store.logs[LOG][seq] = Held(held.encoded, held.hash, None)
    return store


def liar_of(store: Store) -> RelayStore:
    """A node that takes wrong bytes for its payloads of more than a few bytes."""
    liar = RelayStore()
    for seq, held in store.logs[LOG].items():
        wrong = held.payload is not None and len(held.payload) > INLINE_BYTES_MAX
        payload = b"?" * len(held.payload or b"") if wrong else held.payload
        liar.logs[LOG][seq] = Held(held.encoded, held.hash, payload)
    return liar


def play(link: Link, action: str, side: int, size: int) -> None:
    """One event of a link, as far as it is open."""
    if not link.is_open:
        if link.violation is None:
            link.open(LOG)
    elif action == "cut":
        link.close()
    else:
        link.act(action, side, size)


def assert_mended(pair: Pair, side: int, shared: int) -> None:
    """All payloads of the first `shared` entries are there, and nothing of another branch."""
    left, right = (pair.hosts[each].store.logs[LOG] for each in (side, 1 - side))
    for seq in range(1, shared + 1):
        assert left[seq].payload == right[seq].payload is not None
    for seq in range(shared + 1, COUNT + 1):
        assert left[seq].payload is None or left[seq] != right[seq]


def assert_at_rest(pair: Pair) -> None:
    for side in (0, 1):
        engine = pair.engine(side)
        assert engine.drained
        assert not pair.hosts[side].sinks
        in_flight = pair.credit - pair.data_credit[side] - len(pair.data[side])
        assert in_flight == 0


OURS = [10, 90, 0, 33, 200, 21, 70, 5, 10, 5, 64, 30]
THEIRS = {
    "longer": 25,
    "shorter": 3,
    "empty": 0,
    "alike": None,
    "large": 300,
}


@pytest.mark.parametrize("kind", THEIRS)
@pytest.mark.parametrize("parts_at", [6, 8])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("setup", [SAFE, GREEDY])
@pytest.mark.parametrize("policy", ["follow", "sync"])
def test_who_holds_another_branch_is_not_dropped_and_gives_what_both_share(
    kind: str, parts_at: int, side: int, setup: Setup, policy: str
) -> None:
    size = THEIRS[kind]
    sizes = [n if size is None or seq < parts_at else size for seq, n in enumerate(OURS, 1)]
    missing = set(range(5, COUNT))
    mine = without(branch(OURS, parts_at, b"l"), missing)
    other = branch(sizes, parts_at, b"r")
    stores = (mine, other) if side == 0 else (other, mine)
    pair = Pair(replace(SMALL, compression="always"), stores=stores, setup=setup)
    policies = (policy, "follow") if side == 0 else ("follow", policy)
    pair.connect((FOLLOWS, FOLLOWS), policy=policies[0], second=policies[1])
    for _ in range(10):
        pair.run(advance_s=1.0)
    assert_mended(pair, side, parts_at - 1)
    assert mine.forks[LOG][0] >= parts_at
    assert_at_rest(pair)


# Any order of events

ACTIONS = ["host", "host", "host", "pump", "pump", "control", "data", "data"]
SIZES = st.lists(st.sampled_from([0, 3, 5, 10, 70, 150, 900, 900]), min_size=COUNT, max_size=COUNT)
COMPRESSIONS: st.SearchStrategy[Literal["always", "never"]] = st.sampled_from(["always", "never"])
MISSING = st.tuples(st.integers(0, 3), st.integers(1, 6))
"""How many payloads are missing before the branches part, and from there on."""


def relay_store(store: Store) -> RelayStore:
    relay = RelayStore()
    relay.logs[LOG].update(store.logs[LOG])
    return relay


@given(
    sizes=st.tuples(SIZES, SIZES),
    parts_at=st.integers(5, COUNT - 1),
    missing=st.tuples(MISSING, MISSING),
    order=st.integers(0, 1 << 32),
    safe=st.sets(st.integers(0, 1)),
    lies=st.booleans(),
    compression=COMPRESSIONS,
)
def test_in_any_order_of_events_nobody_is_blamed_for_the_branch_he_holds(
    sizes: tuple[list[int], list[int]],
    parts_at: int,
    missing: tuple[tuple[int, int], tuple[int, int]],
    order: int,
    safe: set[int],
    lies: bool,
    compression: Literal["always", "never"],
) -> None:
    """A source and a relay hold one branch, whoever is behind the relay holds the other one.

    What the relay passes on while it comes may be wrong: then it takes it back.
    """
    theirs = [*sizes[0][: parts_at - 1], *sizes[1][parts_at - 1 :]]
    source, relay = (branch(theirs, parts_at, b"r") for _ in range(2))
    lacks = [set(range(parts_at - before, parts_at + behind)) for before, behind in missing]
    honest, first = relay_store(source), relay_store(without(relay, lacks[0]))
    second = relay_store(without(branch(sizes[0], parts_at, b"l"), lacks[1]))
    giver = liar_of(honest) if lies else honest
    config = replace(SMALL, compression=compression)
    links = [
        Link(left, right, config=config, setups=(SAFE if index in safe else GREEDY, GREEDY))
        for index, (left, right) in enumerate([(giver, first), (first, second)])
    ]
    for link in links:
        link.open(LOG)
    rng = Random(order)
    cut_chance = rng.choice([0, 0, 0.004])
    for _ in range(rng.choice([100, 300, 800])):
        link, size = rng.choice(links), rng.choice([1, 30, 100, 700])
        action = "cut" if rng.random() < cut_chance else rng.choice(ACTIONS)
        play(link, action, rng.randrange(2), size)
    assert links[1].violation is None
    links[0].close()
    links[0] = Link(honest, first, config=config)
    for _ in range(2):
        for link in links:
            link.close()
            link.open(LOG)
        converge(links)
    assert [link.violation for link in links] == [None, None]
    for seq in range(1, parts_at):
        payload = honest.logs[LOG][seq].payload
        assert first.logs[LOG][seq].payload == second.logs[LOG][seq].payload == payload
    for held in second.logs[LOG].values():
        assert held.payload is None or yamf_hash(held.payload) == held.entry.payload_hash
    assert not first.arrivals
    assert not second.arrivals
