"""Partial replicas of a log that grows while it is followed (point2point.md 10)."""

import pytest

from logstore import FULL, PolicyKind, Subscription
from peer.planner.asks import comparison_of, proposal_of
from peer.planner.peer_log import PeerLog, Planned
from peer.planner.rests import Kind, Outcome, Rests, up_to
from peer.planner.wanting import Wants
from peer.protocol.config import SessionConfig
from tests.records import replace
from wire import lower_pool, upper_pool

from .partial import LOG, closed, history, interests_of, pair_of, replica, settle
from .rig import Pair, Store

COUNT = 90
SPARSE = Subscription(PolicyKind.SPARSE)
LATEST = Subscription(PolicyKind.LATEST, count=10)
SIDES = pytest.mark.parametrize("side", [0, 1])


def grow(store: Store, *seqs: int) -> None:
    for seq in seqs:
        store.logs[LOG][seq] = history(COUNT)[seq]
    store.changed(LOG)


def link(source: Store, taker: Store, wish: Subscription, side: int) -> Pair:
    """`side` is the one that takes."""
    stores = (source, taker) if side else (taker, source)
    wishes = (FULL, wish) if side else (wish, FULL)
    pair = pair_of(*stores)
    pair.connect((interests_of(wishes[0]), interests_of(wishes[1])))
    settle(pair)
    return pair


@SIDES
def test_the_path_to_the_newest_follows_the_newest(side: int) -> None:
    source, taker = replica(COUNT, range(1, 41)), Store()
    pair = link(source, taker, SPARSE, side)
    assert set(taker.logs[LOG]) == set(lower_pool(40))
    for newest in (41, 42, 60, 75):
        grow(source, *range(41, newest + 1))
        settle(pair, 4)
        assert set(lower_pool(newest)) <= set(taker.logs[LOG])
    assert len(taker.logs[LOG]) < 20


@SIDES
def test_the_path_is_asked_for_about_once_a_second(side: int) -> None:
    source, taker = replica(COUNT, range(1, 41)), Store()
    pair = link(source, taker, SPARSE, side)
    before = len(taker.logs[LOG])
    for seq in range(41, 81):
        grow(source, seq)
        pair.run(advance_s=0.05)
    assert len(taker.logs[LOG]) - before <= 12
    settle(pair, 4)
    assert 80 in taker.logs[LOG]


@SIDES
@pytest.mark.parametrize("wish", [SPARSE, FULL, LATEST])
def test_who_is_told_what_is_new_does_not_ask_for_that(side: int, wish: Subscription) -> None:
    """It is told in the request of the other side, whatever that one wants."""
    source, taker = replica(COUNT, range(1, 41)), replica(COUNT, {40})
    pair = pair_of(source, taker) if side else pair_of(taker, source)
    wishes = (interests_of(wish), interests_of(SPARSE))
    pair.connect(wishes if side else wishes[::-1])
    settle(pair, 30)
    assert len(pair.engine(side).actor.requests_of(LOG)) == 1
    grow(source, *range(41, 61))
    settle(pair, 4)
    assert set(lower_pool(60)) <= set(taker.logs[LOG])


def test_who_asks_for_payloads_is_not_asked_sooner_what_is_new_for_that() -> None:
    """It does so again and again while they are missing."""
    rests = Rests(SessionConfig())
    state = PeerLog(LOG, rests, Planned(Wants()))
    rests.note(LOG, Kind.WATCH, Outcome.FINISHED, 0.0)
    rests.note(LOG, Kind.WATCH, Outcome.ENDED, 0.0, up_to(41))
    metadata = comparison_of((30, 31))
    group = replace(proposal_of(1, LOG, metadata, {}), payloads_only=True, lower_info=30)
    single = replace(group, end=30, upper_info=30, lower_info=None, payloads_only=False, offset=0)
    for proposal in (group, single):
        state.heard(proposal, (), 0.5)
        assert rests.is_left_alone(LOG, Kind.WATCH, 0.5)
        assert rests.left_alone(LOG, Kind.WATCH, 5.0) == up_to(41)
    state.heard(replace(single, end=None, upper_info=None), (), 0.5)
    assert not rests.is_left_alone(LOG, Kind.WATCH, 0.5)


@SIDES
def test_the_latest_go_on_live_and_nothing_is_deleted(side: int) -> None:
    source, taker = replica(COUNT, range(1, 51)), Store()
    pair = link(source, taker, LATEST, side)
    assert set(taker.logs[LOG]) == set(range(41, 51)) | closed([41])
    grow(source, *range(51, 61))
    settle(pair, 4)
    assert set(range(41, 61)) <= set(taker.logs[LOG])


@SIDES
def test_after_a_long_absence_the_latest_begin_anew_near_the_top(side: int) -> None:
    source, taker = replica(COUNT, range(1, 51)), Store()
    link(source, taker, LATEST, side).disconnect()
    grow(source, *range(51, COUNT + 1))
    link(source, taker, LATEST, side)
    held = set(taker.logs[LOG])
    assert set(range(COUNT - 9, COUNT + 1)) <= held
    assert held <= set(range(41, 51)) | set(range(COUNT - 9, COUNT + 1)) | closed([41, COUNT - 9])


@SIDES
def test_a_closed_range_brings_its_upper_pool_once_it_exists(side: int) -> None:
    """What is not there yet keeps no request open, and a later session finds it."""
    wish = Subscription(PolicyKind.RANGE, first=20, last=30)
    source, taker = replica(COUNT, range(1, 33)), Store()
    pair = link(source, taker, wish, side)
    there = {n for n in upper_pool(30) if n <= 32}
    assert set(taker.logs[LOG]) == set(range(20, 31)) | closed([20]) | there
    mine = pair.engine(side).actor.requests_of(LOG)
    assert [request for request in mine if request.ours] == []
    pair.disconnect()
    grow(source, *range(33, 61))
    link(source, taker, wish, side)
    there = {n for n in upper_pool(30) if n <= 60}
    assert set(taker.logs[LOG]) == set(range(20, 31)) | closed([20]) | there
    assert all(taker.logs[LOG][n].payload is None for n in there - {30})


@SIDES
def test_a_log_in_parts_grows_through_a_third_node(side: int) -> None:
    """The relay refused a range that it could not serve, and offers it once it can."""
    source, relay, taker = replica(COUNT, range(1, 61)), replica(COUNT, range(50, 61)), Store()
    pair = link(relay, taker, FULL, side)
    assert set(range(50, 61)) <= set(taker.logs[LOG])
    assert 2 not in taker.logs[LOG]
    other = pair_of(source, relay)
    relay.watchers.extend(pair.hosts[1 - side : 2 - side])
    other.connect((interests_of(FULL), interests_of(FULL)))
    for _ in range(12):
        settle(other, 1)
        settle(pair, 1)
    assert set(taker.logs[LOG]) == set(range(1, 61))
    assert all(held.payload is not None for held in taker.logs[LOG].values())
