"""What a side gets only after it had to skip it reaches the other one at once, and once only."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import FULL, PolicyKind, Subscription
from peer.events import LogView
from peer.request import Request
from wire import Eagerness, Propose

from .partial import AUTHOR, LOG, Counting, interests_of, pair_of, settle
from .rig import Held, Pair, Store

COUNT = 20
LONG_S = 80
"""By then the next try by itself is more than half a minute away."""


def bare_pair(wanted: Subscription = FULL) -> tuple[Pair, dict[int, Held]]:
    """Host 0 has been told for a while that host 1 holds no payload; and what these would be."""
    left, right = Store(), Store()
    for seq in range(1, COUNT + 1):
        right.append(AUTHOR, 0, b"p" * (10 if seq % 3 else 200))
    whole = dict(right.logs[LOG])
    for seq, held in whole.items():
        right.logs[LOG][seq] = replace(held, payload=None)
    pair = pair_of(left, right)
    pair.connect((interests_of(wanted), interests_of(FULL)))
    settle(pair, LONG_S)
    assert list(left.logs[LOG]) == list(whole)
    return pair, whole


def come(pair: Pair, whole: dict[int, Held], seqs: set[int]) -> None:
    store = pair.hosts[1].store
    store.logs[LOG].update({seq: whole[seq] for seq in seqs})
    store.changed(LOG)


def offers_of(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, side: int = 1, *, asks: bool = False
) -> list[tuple[int, int | None]]:
    """The ranges that a host offers from now on, or asks for."""
    made: list[tuple[int, int | None]] = []
    actor = pair.engine(side).actor
    propose = actor.propose

    def spy(proposal: Propose, view: LogView) -> Request:
        if (proposal.eagerness is Eagerness.NOTIFY) is not asks:
            made.append((proposal.start, proposal.end))
        return propose(proposal, view)

    monkeypatch.setattr(actor, "propose", spy)
    return made


@settings(max_examples=12, deadline=None)
@given(batches=st.lists(st.sets(st.integers(1, COUNT), min_size=1), min_size=1, max_size=5))
def test_what_was_skipped_comes_soon_after_it_came_to_be_held(batches: list[set[int]]) -> None:
    pair, whole = bare_pair()
    held = pair.hosts[0].store.logs[LOG]
    for seqs in batches:
        come(pair, whole, seqs)
        settle(pair, 4)
        assert all(held[seq].payload == whole[seq].payload for seq in seqs)
    settle(pair, LONG_S)
    host = pair.hosts[0]
    assert isinstance(host, Counting)
    assert +host.payloads == dict.fromkeys(set().union(*batches), 1)
    assert [pair.engine(side).requests for side in (0, 1)] == [1, 1]


def test_neighbours_are_offered_together_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, whole = bare_pair()
    made = offers_of(pair, monkeypatch)
    come(pair, whole, {1, 3, 4, 5, 9})
    settle(pair, 10)
    come(pair, whole, {10})
    settle(pair, LONG_S)
    assert made == [(1, 1), (3, 5), (9, 9), (10, 10)]


def test_nothing_is_offered_to_who_wants_no_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, whole = bare_pair(Subscription(PolicyKind.METADATA))
    made = offers_of(pair, monkeypatch)
    come(pair, whole, set(whole))
    settle(pair, 10)
    assert made == []


def test_what_was_dropped_is_never_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = bare_pair()
    store = pair.hosts[1].store
    store.dropped = {(LOG, seq) for seq in range(1, COUNT + 1)}
    made = offers_of(pair, monkeypatch)
    for _ in range(10):
        store.append(AUTHOR, 0, b"new")
        settle(pair, 3)
    assert made == []
    assert max(pair.hosts[0].store.logs[LOG]) == COUNT + 10


def test_of_too_many_parts_the_lowest_are_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.late.RANGES_MAX", 3)
    left, right = Store(), Store()
    for _ in range(COUNT):
        right.append(AUTHOR, 0, b"p")
    whole = dict(right.logs[LOG])
    for seq in range(1, COUNT, 2):
        right.logs[LOG][seq] = replace(whole[seq], payload=None)
    pair = pair_of(left, right)
    pair.connect((interests_of(FULL), interests_of(FULL)))
    settle(pair, LONG_S)
    made = offers_of(pair, monkeypatch)
    come(pair, whole, set(whole))
    settle(pair, 10)
    assert made == [(1, 15), (17, 17), (19, 19)]
    host = pair.hosts[0]
    assert isinstance(host, Counting)
    assert host.store.logs[LOG] == whole
    assert max(host.payloads.values()) == 1


def test_who_holds_parts_without_payloads_is_asked_with_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That it cannot serve a group of payloads whole is no reason to offer anything."""
    left, right = Store(), Store()
    for _ in range(6):
        right.append(AUTHOR, 0, b"p")
    whole = {seq: replace(held, payload=None) for seq, held in right.logs[LOG].items()}
    left.logs[LOG].update(whole)
    right.logs[LOG] = {seq: whole[seq] for seq in (1, 4)}
    pair = pair_of(left, right)
    pair.connect((interests_of(FULL), interests_of(Subscription(PolicyKind.RANGE, last=1))))
    asked, offered = offers_of(pair, monkeypatch, 0, asks=True), offers_of(pair, monkeypatch)
    settle(pair, 300)
    assert 3 <= sum(first == 1 for first, _ in asked) <= 12
    assert len(offered) <= 2
