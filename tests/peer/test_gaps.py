"""Cursors that stand at something that is not held: entries, and the payload of the newest one."""

from collections import Counter

import pytest

from logstore import FULL, PolicyKind, Subscription
from peer.planner.gaps import cut_at_gap
from peer.planner.planner import Planner
from peer.protocol.events import LogView
from peer.protocol.request import Request
from tests.records import replace
from wire import Cancel, CancelReason, lower_pool

from .partial import LOG, closed, history, interests_of, pair_of, replica, settle
from .rig import RUNS_NAMED, Pair, Store

COUNT = 60
METADATA = Subscription(PolicyKind.METADATA)
SPARSE = Subscription(PolicyKind.SPARSE)
LATEST = Subscription(PolicyKind.LATEST, count=10)
SIDES = pytest.mark.parametrize("side", [0, 1])


def link(
    giver: Store,
    taker: Store,
    wishes: tuple[Subscription, Subscription],
    side: int,
    **settings: int,
) -> Pair:
    """`side` is the one that takes; `wishes` are the giver's and the taker's."""
    stores = (giver, taker) if side else (taker, giver)
    pair = pair_of(*stores)
    pair.config = replace(pair.config, **settings)
    pair.connect(
        (interests_of(wishes[1 - side]), interests_of(wishes[side]))
        if not side
        else (interests_of(wishes[0]), interests_of(wishes[1]))
    )
    return pair


def grow(store: Store, seqs: set[int]) -> None:
    """What another peer brought."""
    store.logs[LOG].update({seq: history(COUNT)[seq] for seq in seqs})
    store.changed(LOG)


@SIDES
@pytest.mark.parametrize("wish", [SPARSE, LATEST, FULL])
def test_what_is_behind_a_gap_of_the_giver_comes_all_the_same(
    side: int, wish: Subscription
) -> None:
    giver, taker = replica(COUNT, {1}), Store()
    pair = link(giver, taker, (wish, FULL), side)
    settle(pair, 3)
    assert set(taker.logs[LOG]) == {1}
    newest = closed(range(45, 51))
    grow(giver, newest)
    settle(pair, 12)
    assert set(taker.logs[LOG]) == newest | {1}
    grow(giver, {51, 52})
    settle(pair, 3)
    assert {51, 52} <= set(taker.logs[LOG])


@SIDES
def test_a_gap_is_noticed_by_a_giver_that_still_had_to_send_what_is_before_it(side: int) -> None:
    giver, taker = Store(), Store()
    pair = link(giver, taker, (SPARSE, METADATA), side, quantum_bytes=64)
    settle(pair, 3)
    credit = pair.data_credit[1 - side]
    pair.data_credit[1 - side] = 100
    newest = closed(range(45, 51))
    grow(giver, newest)
    pair.run()
    [request] = pair.engine(1 - side)._table.of_log(LOG)
    assert (request.outgoing.position, request.outgoing.dry) == (1, True)
    pair.data_credit[1 - side] += credit - 100
    settle(pair, 12)
    assert set(taker.logs[LOG]) == newest


def test_a_request_ends_that_stands_behind_what_turned_out_to_be_invalid() -> None:
    """It was passed before that was known, perhaps up to the middle of a payload."""
    pair = link(replica(COUNT, range(1, 6)), Store(), (FULL, FULL), 1)
    settle(pair, 3)
    (request,) = pair.engine(0)._table.of_log(LOG)
    view = LogView(LOG, height=3, newest=3, runs=((1, 3),), invalid=4)
    cut = cut_at_gap(request, view)
    assert cut is not None
    assert cut.cancel == Cancel(request.number, CancelReason.NOT_WANTED)
    assert cut_at_gap(request, replace(view, invalid=None)) is None


@SIDES
def test_a_gap_behind_what_the_taker_itself_has_sent_is_one_too(side: int) -> None:
    giver, taker = Store(), replica(COUNT, {1})
    pair = link(giver, taker, (FULL, FULL), side)
    settle(pair, 3)
    assert set(giver.logs[LOG]) == {1}
    newest = closed(range(45, 51))
    grow(giver, newest)
    settle(pair, 12)
    assert set(taker.logs[LOG]) == newest | {1}


@SIDES
def test_a_gap_that_is_filled_in_time_cuts_nothing(side: int) -> None:
    giver, taker = replica(COUNT, {1}), Store()
    pair = link(giver, taker, (FULL, FULL), side)
    settle(pair, 3)
    [request] = pair.engine(1 - side)._table.of_log(LOG)
    grow(giver, closed({4}))
    pair.run(advance_s=2.0)
    pair.run()
    assert 4 not in taker.logs[LOG]
    grow(giver, {2, 3})
    settle(pair, 8)
    assert {1, 2, 3, 4} == set(taker.logs[LOG])
    assert pair.engine(1 - side)._table.of_log(LOG) == [request]
    assert request.lowest_end() is None


@SIDES
def test_a_gap_of_a_log_in_many_parts_is_cut_too(side: int) -> None:
    """One view does not name all its parts, and the next one does not tell of the gap."""
    giver, taker = replica(COUNT, closed({40})), replica(COUNT, closed({40}))
    pair = link(giver, taker, (FULL, SPARSE), side)
    settle(pair, 3)
    grow(giver, closed({45, 60}))
    assert len(giver.runs(LOG)) > RUNS_NAMED
    settle(pair, 12)
    assert set(lower_pool(60)) <= set(taker.logs[LOG])


@SIDES
@pytest.mark.parametrize("wish", [METADATA, Subscription(max_bytes=5)])
def test_whoever_does_not_want_the_payload_of_the_newest_entry_gets_the_entry_at_once(
    side: int, wish: Subscription
) -> None:
    giver, taker = replica(COUNT, range(1, 21), bare={20}), Store()
    pair = link(giver, taker, (METADATA, wish), side)
    pair.run()
    assert 20 in taker.logs[LOG]


@SIDES
def test_the_newest_entry_waits_for_its_payload_and_not_for_long(side: int) -> None:
    """With its payload it would be one transaction; but it is checked and held without it soon."""
    giver, taker = replica(COUNT, range(1, 19), bare={18}), Store()
    pair = link(giver, taker, (METADATA, FULL), side)
    pair.run()
    assert set(taker.logs[LOG]) == set(range(1, 18))
    settle(pair, 2)
    assert set(taker.logs[LOG]) == set(range(1, 19))
    settle(pair, 10)
    assert set(taker.logs[LOG]) == set(range(1, 19))
    assert taker.logs[LOG][18].payload is None
    grow(giver, {18})
    settle(pair, 60)
    assert taker.logs[LOG][18].payload == history(COUNT)[18].payload


@SIDES
def test_a_payload_that_neither_has_keeps_nothing_back_for_ever(side: int) -> None:
    """Both have passed its entry, and either may think that the other one has it."""
    giver, taker = replica(COUNT, {1, 2}, bare={2}), replica(COUNT, {1, 2}, bare={2})
    pair = link(giver, taker, (FULL, FULL), side)
    settle(pair, 3)
    grow(giver, {3, 4, 5})
    settle(pair, 15)
    assert set(taker.logs[LOG]) == {1, 2, 3, 4, 5}


def test_the_pool_of_what_is_behind_a_gap_is_no_gap() -> None:
    giver, taker = replica(COUNT, range(1, 14)), Store()
    pair = link(giver, taker, (FULL, FULL), 1)
    settle(pair, 2)
    [request] = pair.engine(0)._table.of_log(LOG)
    for seqs in ({14}, set(lower_pool(14))):
        grow(giver, seqs)
        settle(pair, 2)
    assert request.active
    assert set(taker.logs[LOG]) == set(range(1, 15))


@SIDES
def test_what_neither_has_is_asked_for_less_and_less_often(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both want it, so the request is confirmed, and nothing ever comes in it."""
    giver, taker = replica(COUNT, closed(range(57, 61))), replica(COUNT, {13})
    pair = link(giver, taker, (FULL, Subscription(PolicyKind.RANGE, first=2, last=22)), side)
    settle(pair, 60)
    asked = Counter[tuple[int, int | None]]()
    proposed = Planner.request_proposed

    def note(planner: Planner, request: Request) -> None:
        asked[request.proposal.start, request.proposal.end] += 1
        proposed(planner, request)

    monkeypatch.setattr(Planner, "request_proposed", note)
    settle(pair, 150)
    assert 0 < max(asked.values()) <= 8, asked
