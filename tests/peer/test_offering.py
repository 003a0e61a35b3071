"""Logs that nobody has asked for are offered at a pace; what is wanted is not held back."""

from collections import Counter
from collections.abc import Callable

import pytest

from peer.planner.offering import FIRST, FOR_A_WANTED, MOST, PER_S, Offering
from peer.protocol.commands import LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import Event, Interests, InterestsChanged
from tests.records import replace
from wire import CancelReason, Grant, LogKey, Propose, encode_request_cancelled, encode_switch

from .impolite import AUTHOR, SMALL, Impolite, cancel
from .rig import Pair, Store

MANY = 400

LOGS = [LogKey(AUTHOR.id, number) for number in range(MANY)]
CONFIG = replace(SMALL, refused_credit_per_s=1e9, refused_credit_max=1e9)


EVERYTHING = Interests(everything=True)


def impolite(interests: Interests = EVERYTHING) -> Impolite:
    """An engine that holds many logs and offers them to somebody who has asked for none."""
    peer = Impolite(config=CONFIG)
    for log in LOGS:
        peer.store.append(AUTHOR, log.log_id, b"x")
    # It was there before: no news.
    peer.host.todo.clear()
    peer.host.todo.append(InterestsChanged(interests, tuple(LOGS)))
    return peer


def refuse_all(peer: Impolite) -> list[LogKey]:
    """Which logs are offered now; each of them is refused."""
    offered: list[LogKey] = []
    while proposals := [each for each in peer.messages() if isinstance(each, Propose)]:
        for proposal in proposals:
            number = proposal.request
            offered.append(proposal.log)
            peer.control(cancel(number, CancelReason.NOT_WANTED), Grant(1))
            peer.sent()
            peer.data(encode_switch(number), encode_request_cancelled(number))
    return offered


def test_who_refuses_is_offered_the_rest_by_and_by() -> None:
    peer = impolite()
    peer.control(Grant(64))
    offered = refuse_all(peer)
    assert len(offered) == FIRST
    assert peer.engine.next_deadline() is not None
    while len(offered) < MANY:
        began, before = peer.engine.now, len(offered)
        peer.wait(0.2)
        offered += refuse_all(peer)
        assert len(offered) - before <= (peer.engine.now - began) * PER_S + 1
        assert peer.engine.now < 2 * MANY / PER_S
    assert sorted(offered) == LOGS


def test_what_is_new_is_offered_at_once() -> None:
    peer = impolite()
    peer.control(Grant(64))
    offered = set(refuse_all(peer))
    waiting = next(log for log in LOGS if log not in offered)
    peer.store.append(AUTHOR, waiting.log_id, b"news")
    assert refuse_all(peer) == [waiting]


def test_what_was_refused_out_of_turn_is_not_looked_up_in_its_turn() -> None:
    """Where many sessions bring logs, most change before they come up: each was looked up twice."""
    peer, looked_up = impolite(), Counter[LogKey]()
    usual: Callable[..., list[Event]] = peer.host._replies

    def replies(item: object) -> list[Event]:
        if isinstance(item, LookUp):
            looked_up[item.log] += 1
        return usual(item)

    peer.host._replies = replies  # type: ignore[method-assign]
    peer.control(Grant(64))
    offered = refuse_all(peer)
    waiting = [log for log in LOGS if log not in offered]
    for log in waiting[:50]:
        peer.store.append(AUTHOR, log.log_id, b"news")
    offered += refuse_all(peer)
    while len(offered) < MANY:
        peer.wait(0.2)
        offered += refuse_all(peer)
    peer.wait(5.0)
    assert sorted(offered) == LOGS
    assert set(looked_up.values()) == {1}


def test_what_is_wanted_by_name_is_asked_for_at_once() -> None:
    peer = impolite(Interests(everything=True, logs=frozenset(LOGS[100:300])))
    peer.control(Grant(64))
    offered = refuse_all(peer)
    # Descending, as it is reactive; then it offers the first of the rest.
    assert offered[:200] == LOGS[299:99:-1]
    assert len(offered) == 200 + FIRST


@pytest.mark.parametrize("giver", [EVERYTHING, Interests(own=frozenset(LOGS))])
def test_who_wants_all_of_it_is_offered_it_without_waiting(giver: Interests) -> None:
    """Whether he confirms the offers, or refuses them and asks from the first entry on."""
    stores = (Store(), Store())
    for log in LOGS:
        stores[1].append(AUTHOR, log.log_id, b"x")
    pair = Pair(SessionConfig(), stores=stores)
    # The giver is reactive, and offers log 0, for which all others of its author go ahead, last.
    pair.connect((EVERYTHING, giver))
    # Long enough for round trips of as many logs as are offered at a time, and not for the pace.
    for _ in range(10):
        pair.run(advance_s=0.05)
    assert all(stores[0].height(log) for log in LOGS)


@pytest.mark.parametrize("once", [False, True])
def test_a_one_time_sync_keeps_no_pace(once: bool) -> None:
    offering = Offering(once=once)
    offers = 0
    while offers < 1000 and offering.may_offer(5.0):
        offering.offered()
        offers += 1
    assert offers == (1000 if once else FIRST)
    assert once or offering.next_deadline() == pytest.approx(5.0 + 1 / PER_S)


def test_no_more_is_saved_up_than_may_leave_at_once() -> None:
    offering = Offering(once=False)
    for _ in range(1000):
        offering.wanted()
    assert FOR_A_WANTED > 1
    for now in (0.0, 1000.0):
        offers = 0
        while offering.may_offer(now):
            offering.offered()
            offers += 1
        assert offers == MOST


def test_a_log_in_parts_is_looked_up_once_for_each_proposal() -> None:
    """Who answers that he does not hold what a proposal begins in is asked for nothing else yet."""
    giver = Store()
    for payload in (b"one", bytes(300_000)):
        giver.append(AUTHOR, 0, payload)
    giver.logs[LOGS[0]][2].payload = None
    pair = Pair(SessionConfig(), stores=(giver, Store()))
    here, looked_up = pair.hosts[0], list[LookUp]()
    usual: Callable[..., list[Event]] = here._replies

    def replies(item: object) -> list[Event]:
        if isinstance(item, LookUp):
            looked_up.append(item)
        return usual(item)

    here._replies = replies  # type: ignore[method-assign]
    other = Interests(logs=frozenset((LogKey(b"x" * 32, 0),)))
    pair.connect((Interests(everything=True), other))
    pair.run(advance_s=0.5)
    assert [each.log for each in looked_up].count(LOGS[0]) == 1


@pytest.mark.parametrize("now", [0.0, 2_773.1959587739075, 86_400.3, 1e6 + 1 / 3])
def test_when_the_time_has_come_an_offer_may_leave(now: float) -> None:
    """However old the clock is: else a time that has come would be waited for, for ever."""
    offering = Offering(once=False)
    for _ in range(1000):
        while offering.may_offer(now):
            offering.offered()
        due = offering.next_deadline()
        assert due is not None
        now = due
        assert offering.may_offer(now)
