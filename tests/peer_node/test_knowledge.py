"""What a node knows of the other side of a connection follows from the session's notices."""

import pytest

from peer import (
    Arriving,
    EntriesReceived,
    NewestLearned,
    PayloadsReceived,
    RequestCancelled,
    RequestConfirmed,
    RequestGivenUp,
)
from peer.node.links.knowledge import LOGS_MAX, GivenUp, Knowledge, Refused
from wire import CancelReason, LogKey

LOG = LogKey(b"k" * 32, 0)


def confirmed(number: int, log: LogKey = LOG) -> RequestConfirmed:
    return RequestConfirmed(number, log, ours=True, start=1, end=None)


def cancelled(number: int, reason: CancelReason, *, by_us: bool = False) -> RequestCancelled:
    return RequestCancelled(number, LOG, reason, by_us=by_us)


def test_the_newest_entry_is_the_largest_that_was_said() -> None:
    knowledge = Knowledge()
    for notice in (NewestLearned(LOG, 5), NewestLearned(LOG, 9), NewestLearned(LOG, 7)):
        knowledge.take(notice, 0.0)
    assert knowledge.newest == {LOG: 9}


def test_requests_are_counted_until_either_side_cancels() -> None:
    knowledge = Knowledge()
    knowledge.take(confirmed(0), 0.0)
    knowledge.take(confirmed(1), 0.0)
    assert knowledge.active == {LOG: 2}
    knowledge.take(cancelled(0, CancelReason.COMPLETE), 0.0)
    knowledge.take(cancelled(0, CancelReason.YOU_CANCELLED, by_us=True), 0.0)
    assert knowledge.active == {LOG: 1}
    knowledge.take(cancelled(1, CancelReason.NOT_WANTED, by_us=True), 0.0)
    assert knowledge.active == {}


def test_a_number_that_is_used_again_counts_once() -> None:
    knowledge = Knowledge()
    knowledge.take(confirmed(0), 0.0)
    knowledge.take(confirmed(0), 0.0)
    assert knowledge.active == {LOG: 1}


def test_a_refusal_is_theirs_and_stands_until_a_request_is_confirmed() -> None:
    knowledge = Knowledge()
    knowledge.take(cancelled(0, CancelReason.NO_RESOURCES, by_us=True), 1.0)
    knowledge.take(cancelled(2, CancelReason.COMPLETE), 1.0)
    assert knowledge.refused == {}
    knowledge.take(cancelled(4, CancelReason.NO_RESOURCES), 2.0)
    assert knowledge.refused == {LOG: Refused(CancelReason.NO_RESOURCES, 2.0)}
    knowledge.take(confirmed(6), 3.0)
    assert knowledge.refused == {}


def test_what_was_given_up_stands_until_entries_are_stored() -> None:
    knowledge = Knowledge()
    knowledge.take(RequestGivenUp(0, LOG, "the disk is full"), 4.0)
    assert knowledge.given_up == {LOG: GivenUp("the disk is full", 4.0)}
    knowledge.take(EntriesReceived(LOG, 3, 1, 0), 5.0)
    assert knowledge.given_up == {}


def test_what_a_peer_says_of_many_logs_is_bounded() -> None:
    knowledge = Knowledge()
    for number in range(LOGS_MAX + 10):
        knowledge.take(NewestLearned(LogKey(b"k" * 32, number), 1), 0.0)
    assert len(knowledge.newest) == LOGS_MAX
    assert LogKey(b"k" * 32, LOGS_MAX + 9) in knowledge.newest


def test_of_very_many_refusals_the_oldest_are_forgotten() -> None:
    knowledge = Knowledge()
    logs = [LogKey(b"k" * 32, number) for number in range(LOGS_MAX + 1)]
    for at, log in enumerate(reversed(logs)):
        knowledge.take(RequestCancelled(0, log, CancelReason.NOT_WANTED, by_us=False), float(at))
    assert LOGS_MAX // 2 < len(knowledge.refused) <= LOGS_MAX
    assert list(knowledge.refused) == logs[: len(knowledge.refused)]


@pytest.mark.parametrize(
    "over",
    [PayloadsReceived(LOG, 7, 10), RequestCancelled(4, LOG, CancelReason.COMPLETE, by_us=False)],
    ids=["it is whole", "the request is over"],
)
def test_a_payload_is_on_its_way_until_it_is_whole_or_nobody_sends_it(
    over: PayloadsReceived | RequestCancelled,
) -> None:
    known = Knowledge()
    known.take(RequestConfirmed(4, LOG, ours=True, start=1, end=None), 0.0)
    known.take(Arriving(LOG, 100, 6, inside=False), 0.0)
    assert known.arriving == {}
    known.take(Arriving(LOG, 100, 7, inside=True), 0.0)
    assert known.arriving == {LOG: 7}
    known.take(over, 0.0)
    assert known.arriving == {}


def test_requests_are_counted_for_each_side() -> None:
    known = Knowledge()
    known.take(RequestConfirmed(4, LOG, ours=True, start=1, end=None), 0.0)
    known.take(RequestConfirmed(5, LOG, ours=False, start=1, end=None), 0.0)
    known.take(RequestConfirmed(7, LOG, ours=False, start=1, end=None), 0.0)
    assert (known.ours, known.theirs) == (1, 2)
    known.take(RequestCancelled(5, LOG, CancelReason.COMPLETE, by_us=False), 0.0)
    known.take(RequestCancelled(5, LOG, CancelReason.YOU_CANCELLED, by_us=True), 0.0)
    assert (known.ours, known.theirs) == (1, 1)
