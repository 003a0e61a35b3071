"""The ledger: each row of its table, what lifts it, and that it never holds more than its bound."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.planner.ranges import EVERYTHING, Ranges
from peer.planner.rests import RANGES_MAX, Kind, Outcome, Rests
from peer.protocol.config import SessionConfig
from wire import LogKey

LOG, OTHER = LogKey(b"a" * 32, 0), LogKey(b"b" * 32, 0)
CONFIG = SessionConfig()
SOME: Ranges = ((5, 9),)


def delays(rests: Rests, kind: Kind, outcome: Outcome, count: int = 12) -> list[float]:
    """How long each rest takes if it comes to nothing again as soon as it ends."""
    found, now = [], 100.0
    for _ in range(count):
        rests.note(LOG, kind, outcome, now, SOME)
        at = rests.next_at()
        if at is None:
            found.append(math.inf)
            break
        found.append(at - now)
        now = at
        assert rests.due(now) == [LOG]
        assert not rests.left_alone(LOG, kind, now)
    return found


def doubled(first: float, longest: float, count: int = 12) -> list[float]:
    return [min(first * 2.0**n, longest) for n in range(count)]


@pytest.mark.parametrize(
    ("kind", "outcome", "first_s"),
    [
        (Kind.RANGE, Outcome.STOOD, CONFIG.stalled_after_s),
        (Kind.PAYLOAD, Outcome.SKIPPED, CONFIG.stalled_after_s),
        (Kind.WATCH, Outcome.FINISHED, CONFIG.retry_first_s),
        (Kind.LOG, Outcome.EXHAUSTED, CONFIG.retry_first_s),
        (Kind.OFFER, Outcome.EXHAUSTED, CONFIG.retry_first_s),
        (Kind.LOG, Outcome.NOT_KEPT, CONFIG.keep_again_s),
    ],
)
def test_each_rest_is_twice_as_long_as_the_one_before_up_to_a_minute(
    kind: Kind, outcome: Outcome, first_s: float
) -> None:
    assert delays(Rests(CONFIG), kind, outcome) == doubled(first_s, CONFIG.retry_max_s)


def test_where_there_is_no_room_it_is_tried_every_few_minutes() -> None:
    found = delays(Rests(CONFIG), Kind.LOG, Outcome.NO_ROOM)
    assert found == doubled(CONFIG.room_first_s, CONFIG.room_max_s)


def test_what_is_refused_meanwhile_does_not_keep_what_a_proposal_has_lifted() -> None:
    """As where one side refuses what follows, and the other one lacks what is before that."""
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 100.0, EVERYTHING)
    rests.lift_by_their_proposal(LOG, 100.0, 20, is_further=False)
    later = ((21, EVERYTHING[-1][1]),)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 101.0, later)
    assert rests.left_alone(LOG, Kind.RANGE, 101.0) == EVERYTHING
    ends = 100.0 + CONFIG.stalled_after_s
    assert rests.next_at() == ends
    assert rests.due(ends) == [LOG]
    assert rests.left_alone(LOG, Kind.RANGE, ends) == later
    assert rests.refused(LOG, Kind.RANGE) == EVERYTHING
    # Once it is refused again that is all there is to know.
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, ends, SOME)
    assert rests.only_refused(LOG) == (*SOME, *later)


def test_news_shorten_a_rest_that_has_an_end_and_no_other() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 100.0, SOME)
    rests.hurry(LOG, (Kind.RANGE,), 101.0)
    assert rests.left_alone(LOG, Kind.RANGE, 1e9) == SOME
    rests.lift_by_their_proposal(LOG, 100.0, 7, is_further=False)
    assert rests.next_at() == 100.0 + CONFIG.stalled_after_s
    rests.hurry(LOG, (Kind.RANGE,), 101.0)
    assert rests.next_at() == 101.0
    assert rests.due(101.0) == [LOG]
    # The later moment that was said before is none any more.
    assert rests.next_at() is None


@pytest.mark.parametrize(
    ("outcome", "tries"), [(Outcome.EXHAUSTED, 8), (Outcome.NOT_KEPT, 5), (Outcome.SKIPPED, 0)]
)
def test_a_one_time_sync_tries_only_so_often(outcome: Outcome, tries: int) -> None:
    found = delays(Rests(CONFIG, once=True), Kind.PAYLOAD, outcome)
    assert len(found) == tries + 1
    assert found[-1] == math.inf


def test_what_was_skipped_rests_together_and_is_asked_for_in_turns() -> None:
    rests = Rests(CONFIG)
    assert rests.skipped_up_to(LOG) == 0
    rests.note(LOG, Kind.PAYLOAD, Outcome.SKIPPED, 0.0, ((1, 2), (5, 9)))
    assert rests.skipped_up_to(LOG) == 9
    at = rests.next_at()
    assert at is not None
    assert not rests.left_alone(LOG, Kind.PAYLOAD, at)
    rests.note(LOG, Kind.PAYLOAD, Outcome.SKIPPED, at, ((1, 2),))
    assert rests.left_alone(LOG, Kind.PAYLOAD, at) == ((1, 2), (5, 9))
    assert rests.skipped_up_to(LOG) == 2


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ENDED])
def test_what_was_refused_or_ended_rests_until_something_else_lifts_it(outcome: Outcome) -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, outcome, 0.0, SOME)
    assert rests.next_at() is None
    assert rests.left_alone(LOG, Kind.RANGE, 1e9) == SOME
    assert rests.left_alone(LOG, Kind.PAYLOAD, 1.0) == ()
    assert rests.left_alone(OTHER, Kind.RANGE, 1.0) == ()
    rests.lift(LOG, Kind.RANGE)
    assert rests.left_alone(LOG, Kind.RANGE, 1.0) == ()


def test_a_proposal_of_who_has_come_further_lifts_what_it_refused_at_once() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 0.0, SOME)
    rests.lift_by_their_proposal(LOG, 3.0, 0, is_further=True)
    assert rests.left_alone(LOG, Kind.RANGE, 3.0) == ()
    assert rests.due(3.0) == [LOG], "nobody would look again"


def test_any_other_proposal_lifts_it_with_patience_and_only_what_exists() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 0.0, SOME)
    rests.lift_by_their_proposal(LOG, 3.0, 4, is_further=False)
    assert rests.next_at() is None
    rests.lift_by_their_proposal(LOG, 3.0, 5, is_further=False)
    assert rests.next_at() == 3.0 + CONFIG.stalled_after_s
    once = Rests(CONFIG, once=True)
    once.note(LOG, Kind.RANGE, Outcome.REFUSED, 0.0, SOME)
    once.lift_by_their_proposal(LOG, 3.0, 5, is_further=False)
    assert once.next_at() is None, "somebody waits for the end"
    assert once.only_refused(LOG) == SOME, "nothing comes of what it proposed"


def test_what_comes_to_exist_after_the_last_proposal_is_tried_then() -> None:
    """As where both have refused each other what follows, and neither makes another proposal."""
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 0.0, SOME)
    rests.lift_existing(LOG, 7, 1.0)
    assert rests.next_at() is None, "no later proposal was made"
    rests.lift_by_their_proposal(LOG, 3.0, 4, is_further=False)
    assert rests.only_refused(LOG) is None, "that there was a later one would be forgotten"
    rests.lift_existing(LOG, 5, 6.0)
    assert rests.next_at() == 6.0 + CONFIG.stalled_after_s
    assert rests.left_alone(LOG, Kind.RANGE, 6.0 + CONFIG.stalled_after_s) == ()


def test_what_is_refused_after_the_last_proposal_waits_for_the_next_one() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 0.0, ((5, 9),))
    rests.lift_by_their_proposal(LOG, 3.0, 0, is_further=False)
    rests.note(LOG, Kind.RANGE, Outcome.REFUSED, 4.0, ((8, 12),))
    rests.lift_existing(LOG, 12, 5.0)
    at = rests.next_at()
    assert at is not None
    assert rests.left_alone(LOG, Kind.RANGE, at) == ((8, 12),)


def test_what_the_other_side_withdrew_may_be_asked_for_after_a_proposal_of_ours() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.WITHDRAWN, 5.0, SOME)
    assert rests.withdrawn(LOG, 6.0) == SOME
    assert rests.left_alone(LOG, Kind.RANGE, 6.0) == (), "of entries beside it nothing was said"
    rests.lift_by_our_proposal(LOG, 4.0, 6.0)
    assert rests.next_at() is None, "that proposal came before"
    rests.lift_by_our_proposal(LOG, 6.0, 6.0)
    assert rests.next_at() == 6.0 + CONFIG.stalled_after_s
    rests.lift_by_their_proposal(LOG, 7.0, 0, is_further=False)
    assert rests.withdrawn(LOG, 7.0) == ()


def test_what_comes_starts_the_back_off_anew() -> None:
    rests = Rests(CONFIG)
    for now in (0.0, 1.0, 3.0, 7.0):
        rests.note(LOG, Kind.LOG, Outcome.EXHAUSTED, now)
        rests.due(now + 8)
    rests.lift_by_arrival(LOG, 20.0)
    rests.note(LOG, Kind.LOG, Outcome.EXHAUSTED, 20.0)
    assert rests.next_at() == 20.0 + 2 * CONFIG.retry_first_s


def test_of_two_rests_of_a_log_both_ends_are_told() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.RANGE, Outcome.STOOD, 0.0, SOME)
    rests.note(LOG, Kind.LOG, Outcome.EXHAUSTED, 0.0)
    assert rests.due(CONFIG.retry_first_s) == [LOG]
    assert rests.next_at() == CONFIG.stalled_after_s
    assert rests.due(CONFIG.stalled_after_s) == [LOG]
    assert rests.next_at() is None


def test_what_is_left_to_others_is_tried_after_all_if_nothing_of_it_changes() -> None:
    rests = Rests(CONFIG)
    assert not rests.left_long_enough(LOG, Kind.PAYLOAD, (1, 2), 0.0)
    assert rests.left_long_enough(LOG, Kind.PAYLOAD, (1, 2), CONFIG.stalled_after_s)
    assert not rests.left_long_enough(LOG, Kind.PAYLOAD, (2,), CONFIG.stalled_after_s), "one came"
    rests.lift_by_arrival(LOG, 8.0)
    assert not rests.left_long_enough(LOG, Kind.PAYLOAD, (2,), 11.0)
    assert rests.left_long_enough(LOG, Kind.PAYLOAD, None, 8.0 + CONFIG.stalled_after_s)


def test_what_was_told_is_told_again_only_to_who_asks_for_it_later() -> None:
    rests = Rests(CONFIG)
    rests.note_told(LOG, SOME, 0.0)
    assert rests.left_alone(LOG, Kind.OFFER, 1e9) == SOME
    rests.lift_told_again(LOG, ((5, 6),), CONFIG.look_again_s / 2)
    assert rests.told(LOG) == SOME, "it had not reached them when they asked"
    rests.lift_told_again(LOG, ((5, 6),), CONFIG.look_again_s)
    assert rests.told(LOG) == ((7, 9),)
    once = Rests(CONFIG, once=True)
    once.note_told(LOG, SOME, 0.0)
    for _ in range(2):
        once.lift_told_again(LOG, ((5, 6),), 0.0)
        assert once.told(LOG) == ((7, 9),)
        once.note_told(LOG, SOME, 0.0)
        once.lift_told_again(LOG, ((5, 6),), 0.0)
        assert once.told(LOG) == SOME, "and once only"
        once.lift_told(LOG, ((5, 6),))


@given(starts=st.lists(st.integers(1, 5000), min_size=1, max_size=400, unique=True))
def test_rows_are_bounded_and_what_was_refused_is_never_asked_for_by_that(
    starts: list[int],
) -> None:
    rests = Rests(CONFIG)
    told: set[int] = set()
    for n, start in enumerate(starts):
        rests.note(LOG, Kind.RANGE, Outcome.REFUSED, float(n), ((2 * start, 2 * start),))
        rests.note_told(LOG, ((2 * start, 2 * start),), float(n))
        told.add(2 * start)
    refused = rests.left_alone(LOG, Kind.RANGE, 1e9)
    assert len(refused) <= RANGES_MAX
    assert all(any(first <= n <= last for first, last in refused) for n in told)
    said = rests.told(LOG)
    assert len(said) <= RANGES_MAX
    assert all(first == last and first in told for first, last in said)


def test_a_log_of_which_nothing_is_known_any_more_has_no_rows() -> None:
    rests = Rests(CONFIG)
    rests.note(LOG, Kind.LOG, Outcome.EXHAUSTED, 0.0)
    assert rests.left_alone(LOG, Kind.LOG, 0.5) == EVERYTHING
    assert LOG in rests
    rests.forget(LOG)
    assert LOG not in rests
    assert rests.left_alone(LOG, Kind.LOG, 0.5) == ()
    assert rests.due(1e9) == []
