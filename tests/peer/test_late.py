"""What a side gets only after it had to skip it reaches the other one soon, and once only."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import FULL, PolicyKind, Subscription
from peer.planner import late
from peer.planner.answer import is_late_offer
from peer.protocol.events import LogView
from peer.protocol.request import Request
from tests.records import replace
from wire import Cancel, CancelReason, Eagerness, Propose, decode_entry

from .partial import AUTHOR, LOG, Counting, interests_of, pair_of, settle
from .rig import Held, Pair, Store

COUNT = 20
LONG_S = 80
"""By then the next try by itself is more than half a minute away."""
SOON_S = 3


def bare_pair(
    wanted: Subscription = FULL, count: int = COUNT, **fields: object
) -> tuple[Pair, dict[int, Held]]:
    """Host 0 has been told for a while that host 1 holds no payload; and what these would be.

    Every third one is large. `fields`: of both configurations.
    """
    left, right = Store(), Store()
    for seq in range(1, count + 1):
        right.append(AUTHOR, 0, b"p" * (10 if seq % 3 else 200))
    whole = dict(right.logs[LOG])
    for seq, held in whole.items():
        right.logs[LOG][seq] = replace(held, payload=None)
    right.changed(LOG)
    pair = pair_of(left, right)
    pair.config = replace(pair.config, **fields)
    pair.connect((interests_of(wanted), interests_of(FULL)))
    settle(pair, LONG_S)
    assert max(left.logs[LOG]) == count
    return pair, whole


def come(pair: Pair, whole: dict[int, Held], seqs: set[int]) -> None:
    store = pair.hosts[1].store
    store.logs[LOG].update({seq: replace(whole[seq]) for seq in seqs})
    store.changed(LOG)


def proposals_of(
    pair: Pair, side: int, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Eagerness, int, int | None]]:
    """What a host proposes from now on."""
    made: list[tuple[Eagerness, int, int | None]] = []
    actor = pair.engine(side).actor
    propose = actor.propose

    def spy(proposal: Propose, view: LogView) -> Request:
        made.append((proposal.eagerness, proposal.start, proposal.end))
        return propose(proposal, view)

    monkeypatch.setattr(actor, "propose", spy)
    return made


def offers_among(made: list[tuple[Eagerness, int, int | None]]) -> list[tuple[int, int | None]]:
    return [(first, last) for eagerness, first, last in made if eagerness is Eagerness.NOTIFY]


def payloads_at(pair: Pair, side: int = 0) -> dict[int, int]:
    host = pair.hosts[side]
    assert isinstance(host, Counting)
    return dict(+host.payloads)


@settings(max_examples=25, deadline=None)
@given(batches=st.lists(st.sets(st.integers(1, COUNT), min_size=1), min_size=1, max_size=5))
def test_what_was_skipped_comes_soon_after_it_came_to_be_held(batches: list[set[int]]) -> None:
    pair, whole = bare_pair()
    held = pair.hosts[0].store.logs[LOG]
    for seqs in batches:
        come(pair, whole, seqs)
        # One range in a second; and the first of them at once.
        settle(pair, SOON_S + COUNT // 2)
        assert all(held[seq].payload == whole[seq].payload for seq in seqs)
    settle(pair, LONG_S)
    assert payloads_at(pair) == dict.fromkeys(set().union(*batches), 1)


@pytest.mark.parametrize("credit", [1, 3, late.CREDIT_LEFT_MIN])
def test_who_gives_little_credit_hears_of_it_too(credit: int) -> None:
    """One offer at a time, however much is left for what somebody waits for."""
    pair, whole = bare_pair(request_credit=credit)
    come(pair, whole, {2, 5, 9})
    settle(pair, SOON_S + 3)
    assert payloads_at(pair) == dict.fromkeys((2, 5, 9), 1)


def test_of_many_ranges_each_is_asked_for_again_however_little_credit_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the lowest first the others would wait for as long as that one is missing."""
    pair, whole = bare_pair(count=8, request_credit=1)
    come(pair, whole, {2, 4, 6, 8})
    settle(pair, LONG_S)
    made = proposals_of(pair, 0, monkeypatch)
    settle(pair, 4 * 61)
    asked = {start for eagerness, start, _ in made if eagerness is not Eagerness.NOTIFY}
    assert asked == {1, 3, 5, 7}


def test_it_comes_in_the_request_that_offers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, whole = bare_pair()
    offered, asked = (proposals_of(pair, side, monkeypatch) for side in (1, 0))
    come(pair, whole, set(whole))
    settle(pair, 1)
    assert payloads_at(pair) == dict.fromkeys(whole, 1)
    assert (offered, asked) == ([(Eagerness.NOTIFY, 1, COUNT)], [])


def test_ranges_are_offered_one_by_one_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, whole = bare_pair()
    made = proposals_of(pair, 1, monkeypatch)
    come(pair, whole, {1, 3, 4, 5, 9})
    pair.run()
    assert offers_among(made) == [(1, 1)]
    settle(pair, 10)
    come(pair, whole, {10})
    settle(pair, LONG_S)
    assert offers_among(made) == [(1, 1), (3, 5), (9, 9), (10, 10)]
    assert set(payloads_at(pair).values()) == {1}


def test_what_lies_between_arrivals_and_is_held_is_offered_with_them_and_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, whole = bare_pair()
    come(pair, whole, {seq for seq in whole if seq % 2})
    settle(pair, LONG_S)
    made = proposals_of(pair, 1, monkeypatch)
    come(pair, whole, set(whole))
    settle(pair, SOON_S)
    assert offers_among(made) == [(2, COUNT)]
    assert payloads_at(pair) == dict.fromkeys(whole, 1)


@pytest.mark.parametrize(
    "wanted",
    [
        Subscription(PolicyKind.METADATA),
        Subscription(PolicyKind.FULL, max_bytes=100),
        Subscription(PolicyKind.FULL, min_bytes=100),
        Subscription(PolicyKind.LATEST, count=5),
    ],
)
def test_only_what_is_wanted_comes_and_what_is_not_asks_for_nothing(
    wanted: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, whole = bare_pair(wanted)
    offered, asked = (proposals_of(pair, side, monkeypatch) for side in (1, 0))
    come(pair, whole, set(whole))
    settle(pair, SOON_S)
    smallest, largest = wanted.payload_limits
    held = pair.hosts[0].store.logs[LOG]
    fits = {
        seq
        for seq in held
        if smallest <= decode_entry(whole[seq].encoded).payload_bytes <= largest
        if wanted.wants_entry(seq, COUNT)
    }
    assert payloads_at(pair) == dict.fromkeys(fits, 1)
    before = len(offered), len(asked)
    settle(pair, LONG_S)
    assert (len(offered), len(asked)) == before
    assert payloads_at(pair) == dict.fromkeys(fits, 1)
    assert bool(offered) == bool(fits)


def test_what_was_dropped_is_never_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = bare_pair()
    store = pair.hosts[1].store
    store.dropped = {(LOG, seq) for seq in range(1, COUNT + 1)}
    made = proposals_of(pair, 1, monkeypatch)
    for _ in range(10):
        store.append(AUTHOR, 0, b"new")
        settle(pair, 3)
    assert offers_among(made) == []
    assert max(pair.hosts[0].store.logs[LOG]) == COUNT + 10


def test_who_refuses_such_an_offer_gets_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, whole = bare_pair()
    engine = pair.engine(0)
    refused: list[int] = []
    proposed = engine._planner.request_proposed

    def refuse(request: Request) -> None:
        if not is_late_offer(request.proposal):
            proposed(request)
            return
        refused.append(request.proposal.start)
        engine.actor.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))

    monkeypatch.setattr(engine._planner, "request_proposed", refuse)
    for seqs in ({2}, {4, 5}, {9}):
        come(pair, whole, seqs)
        settle(pair, 10)
    assert refused == [2]
    # What it asks for by itself it gets all the same.
    settle(pair, LONG_S)
    assert payloads_at(pair) == dict.fromkeys((2, 4, 5, 9), 1)


def test_of_too_many_ranges_the_lowest_are_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "RANGES_MAX", 3)
    left, right = Store(), Store()
    for _ in range(COUNT):
        right.append(AUTHOR, 0, b"p")
    whole = dict(right.logs[LOG])
    for seq in range(1, COUNT, 2):
        right.logs[LOG][seq] = replace(whole[seq], payload=None)
    right.changed(LOG)
    pair = pair_of(left, right)
    pair.connect((interests_of(FULL), interests_of(FULL)))
    settle(pair, LONG_S)
    (remembered,) = pair.engine(1)._late._logs.values()
    assert remembered.asked == ((1, 15), (17, 17), (19, 19))
    come(pair, whole, set(whole))
    settle(pair, 10)
    assert left.logs[LOG] == whole
    assert set(payloads_at(pair).values()) == {1}


def test_one_look_up_a_second_is_made_for_a_log_that_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, _ = bare_pair()
    looked: list[int] = []
    look = pair.engine(1)._late._look

    def spy(*args: object) -> None:
        looked.append(1)
        look(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(pair.engine(1)._late, "_look", spy)
    for _ in range(40):
        pair.hosts[1].store.append(AUTHOR, 0, b"new")
        pair.run(advance_s=0.1)
    assert 2 <= len(looked) <= 5
