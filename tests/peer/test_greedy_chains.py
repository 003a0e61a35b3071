"""Payloads on their way through several nodes, right and wrong ones (point2point.md 8).

Whatever happens: no wrong payload is stored, whoever passed one on unknowingly has apologised in
time and is blamed by nobody, and the right payload comes to everybody once somebody has it.
"""

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from peer.protocol.config import SessionConfig
from wire import LogKey, decode_entry, yamf_hash

from .relay import SAFE, Link, RelayStore, run_all
from .rig import INLINE_BYTES_MAX, SETUP, Author, Held

AUTHOR = Author(SigningKey(b"c" * 32))
LOG = LogKey(AUTHOR.id, 0)
BIG = random.Random(1).randbytes(6000)
PAYLOADS = [b"small", BIG, b"behind", BIG[:3000]]


def history(payloads: Iterable[bytes] = PAYLOADS) -> dict[int, Held]:
    known: dict[int, Held] = {}
    for payload in payloads:
        seq, held = AUTHOR.entry(known, 0, payload)
        known[seq] = held
    return known


def store_of(held: dict[int, Held]) -> RelayStore:
    store = RelayStore()
    store.logs[LOG].update(held)
    return store


def liar_of(held: dict[int, Held]) -> RelayStore:
    """A node that takes wrong bytes for the payloads of the large entries."""
    wrong = {
        seq: Held(each.encoded, each.hash, each.payload[:-1] + b"?")
        if each.payload is not None and len(each.payload) > INLINE_BYTES_MAX
        else each
        for seq, each in held.items()
    }
    return store_of(wrong)


def payloads_of(store: RelayStore) -> dict[int, bytes | None]:
    return {seq: each.payload for seq, each in store.logs[LOG].items()}


def assert_sound(store: RelayStore) -> None:
    for each in store.logs[LOG].values():
        entry = decode_entry(each.encoded)
        assert each.payload is None or yamf_hash(each.payload) == entry.payload_hash


def small(**changes: object) -> SessionConfig:
    values: dict[str, object] = {"small_payload_bytes_max": 64, "quantum_bytes": 256, **changes}
    return SessionConfig(**values)  # type: ignore[arg-type]


def chain(*stores: RelayStore, **options: object) -> list[Link]:
    links = [
        Link(left, right, config=small(), **options)  # type: ignore[arg-type]
        for left, right in pairwise(stores)
    ]
    for link in links:
        link.open(LOG)
    return links


def arrived(store: RelayStore, seq: int) -> int:
    arrival = store.arrivals.get((LOG, seq))
    return 0 if arrival is None else len(arrival.data)


WHOLE = dict(enumerate(PAYLOADS, start=1))


def test_bytes_reach_the_far_end_before_the_relays_have_the_payload() -> None:
    stores = [store_of(history()), *(RelayStore() for _ in range(4))]
    links = chain(*stores)
    run_all(links, bytes_max=100, until=lambda: arrived(stores[-1], 2) > 0)
    assert all(0 < arrived(store, 2) < len(BIG) for store in stores[1:])
    run_all(links, bytes_max=100)
    assert [payloads_of(store) for store in stores[1:]] == [WHOLE] * 4
    assert not any(store.arrivals for store in stores)


def test_a_star_is_fed_from_one_payload_as_it_arrives() -> None:
    source, relay, *leaves = store_of(history()), *(RelayStore() for _ in range(5))
    links = [*chain(source, relay), *(link for leaf in leaves for link in chain(relay, leaf))]
    run_all(links, bytes_max=100, until=lambda: all(arrived(leaf, 2) for leaf in leaves))
    assert relay.logs[LOG][2].payload is None
    run_all(links, bytes_max=100)
    assert [payloads_of(leaf) for leaf in leaves] == [WHOLE] * 4


def test_in_a_safe_direction_nothing_unverified_leaves() -> None:
    source, relay, far = store_of(history()), RelayStore(), RelayStore()
    first, second = chain(source, relay)[0], chain(relay, far, setups=(SAFE, SETUP))[0]

    def far_is_ahead() -> bool:
        # At most the metadata of the entry whose payload is still to come.
        assert relay.logs[LOG].get(2) is None or relay.logs[LOG][2].payload or not arrived(far, 2)
        return False

    run_all([first, second], bytes_max=100, until=far_is_ahead)
    assert payloads_of(far) == WHOLE


@pytest.mark.parametrize("setups", [(SETUP, SETUP), (SAFE, SAFE), (SETUP, SAFE), (SAFE, SETUP)])
def test_greedy_and_safe_are_chosen_for_each_direction_of_each_connection(
    setups: tuple[object, object],
) -> None:
    stores = [store_of(history()), RelayStore(), RelayStore()]
    links = [*chain(stores[0], stores[1]), *chain(stores[1], stores[2], setups=setups)]
    greedy = setups == (SETUP, SETUP)
    run_all(links, bytes_max=100, until=lambda: arrived(stores[2], 2) > 0)
    assert (stores[1].logs[LOG][2].payload is None) is greedy
    run_all(links, bytes_max=100)
    assert payloads_of(stores[2]) == WHOLE


def test_a_wrong_payload_is_apologised_for_at_every_hop_and_blames_only_the_liar() -> None:
    liar, *relays = liar_of(history()), *(RelayStore() for _ in range(3))
    links = chain(liar, *relays)
    run_all(links, bytes_max=100, until=lambda: arrived(relays[-1], 2) > 0)
    run_all(links, bytes_max=100)
    assert links[0].violation is not None
    assert "invalid data" in links[0].violation.detail
    assert [link.violation for link in links[1:]] == [None, None]
    assert [link.is_open for link in links] == [False, True, True]
    assert [arrived(store, 2) for store in relays] == [0, 0, 0]
    for store in relays:
        assert_sound(store)
    # The right bytes then come from somebody else, over the connections that are there.
    links += chain(store_of(history()), relays[0])
    run_all(links, bytes_max=100)
    assert [payloads_of(store) for store in relays] == [WHOLE] * 3
    assert [link.violation for link in links[1:]] == [None] * 3


def test_a_payload_goes_on_from_another_source_when_the_first_one_is_lost() -> None:
    source, relay, far = store_of(history()), RelayStore(), RelayStore()
    [first], [second] = chain(source, relay), chain(relay, far)
    run_all([first, second], bytes_max=100, until=lambda: arrived(far, 2) > 1000)
    first.close()
    run_all([second], bytes_max=100)
    assert arrived(far, 2) == arrived(relay, 2) > 1000
    [third] = chain(store_of(history()), relay)
    run_all([second, third], bytes_max=100)
    assert payloads_of(far) == payloads_of(relay) == WHOLE
    assert second.violation is None


def test_who_resumes_a_payload_gets_the_rest_of_it_greedily() -> None:
    source, relay, far = store_of(history()), RelayStore(), RelayStore()
    far.logs[LOG].update({seq: Held(h.encoded, h.hash, h.payload) for seq, h in history().items()})
    del far.logs[LOG][3], far.logs[LOG][4]
    far.logs[LOG][2].payload = None
    far.partial[LOG, 2] = BIG[:500]
    [first] = chain(source, relay)
    run_all([first], bytes_max=100, until=lambda: arrived(relay, 2) > 600)
    [second] = chain(relay, far)
    run_all([first, second], bytes_max=100, until=lambda: arrived(far, 2) > 500)
    assert relay.logs[LOG][2].payload is None
    run_all([first, second], bytes_max=100)
    assert payloads_of(far) == WHOLE


def test_many_payloads_that_stall_leave_room_for_the_others() -> None:
    """More logs than payloads may be under way side by side, none of which goes on."""
    relay, far = RelayStore(), RelayStore()
    logs = []
    for log_id in range(5):
        held = AUTHOR.entry({}, log_id, BIG)[1]
        log = LogKey(AUTHOR.id, log_id)
        logs.append(log)
        relay.logs[log][1] = Held(held.encoded, held.hash, None)
        relay.begin((log, 1), "somebody", 0)
        relay.feed((log, 1), BIG[:1000])
    whole = LogKey(AUTHOR.id, 9)
    relay.logs[whole][1] = AUTHOR.entry({}, 9, BIG)[1]
    link = Link(relay, far, config=small(inside_payloads_max=2))
    link.open(*logs, whole)
    run_all([link])
    assert far.logs[whole][1].payload == BIG
    assert sum(bool(arrival.data) for arrival in far.arrivals.values()) == 2
    for log in logs:
        relay.feed((log, 1), BIG[1000:])
        relay.complete((log, 1))
    run_all([link])
    assert all(far.logs[log][1].payload == BIG for log in logs)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["host", "host", "pump", "pump", "control", "data", "data", "cut", "open"]),
        st.integers(0, 1),
        st.integers(1, 700),
    ),
    max_size=250,
)


def play(link: Link, action: str, side: int, size: int) -> None:
    if not link.is_open:
        if action == "open" and link.violation is None:
            link.open(LOG)
        return
    if action == "cut" and size < 60:
        link.close()
    else:
        link.act(action, side, size)


@given(steps=STEPS, safe=st.sets(st.integers(0, 3)), lies=st.booleans())
def test_in_any_order_of_events_the_right_payloads_arrive_and_no_relay_is_blamed(
    steps: list[tuple[int, str, int, int]], safe: set[int], lies: bool
) -> None:
    """A liar and an honest source at one relay, and two more behind it."""
    honest, first, second, third = store_of(history()), *(RelayStore() for _ in range(3))
    liar = liar_of(history()) if lies else store_of(history())
    pairs = [(liar, first), (honest, first), (first, second), (second, third)]
    links = [
        Link(*pair, config=small(), setups=(SAFE if index in safe else SETUP, SETUP))
        for index, pair in enumerate(pairs)
    ]
    for link in links:
        link.open(LOG)
    relays = [first, second, third]
    for index, action, side, size in steps:
        play(links[index], action, side, size)
        for store in relays:
            assert_sound(store)
    assert [link.violation for link in links[1:]] == [None] * 3
    links[0].close()
    for link in links[1:]:
        if not link.is_open:
            link.open(LOG)
    converge(links[1:])
    assert [link.violation for link in links[1:]] == [None] * 3
    if any(payloads_of(store) != WHOLE for store in relays):
        # A payload that was found wrong late is asked for again in the next session.
        for link in links[1:]:
            link.close()
        for link in links[1:]:
            link.open(LOG)
        converge(links[1:])
    assert [payloads_of(store) for store in relays] == [WHOLE] * 3
    assert not any(store.arrivals for store in relays)


def converge(links: list[Link]) -> None:
    for _ in range(8):
        run_all(links)
        for link in links:
            link.do(lambda link=link: link.tick(2.0))  # type: ignore[misc]
    run_all(links)
