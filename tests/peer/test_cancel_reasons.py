"""What each reason of a cancel brings about (point2point.md 6), for a partial replica too."""

import pytest

from logstore import PolicyKind, Subscription
from peer.protocol.events import Interests, InterestsChanged
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_request_cancelled,
    encode_switch,
)

from .impolite import LOG, REFERENCE, Impolite, cancel, log_of, metadata_packet, propose
from .partial import closed

PARTS = closed([5, 20, 21, 22])
"""1, 4, 5, 13, 17 to 22."""


def asker() -> Impolite:
    """An engine that holds parts of a log, follows it, and may propose."""
    peer = Impolite({seq: REFERENCE[seq] for seq in sorted(PARTS)}, proactive=True)
    peer.control(Grant(50))
    return peer


def proposals(peer: Impolite) -> list[Propose]:
    return [message for message in peer.messages() if isinstance(message, Propose)]


def refuse(peer: Impolite, own: Propose, answer: Cancel) -> list[Propose]:
    """Cancel a proposal of the engine in full; returns what it proposes then."""
    assert answer.request == own.request
    peer.control(answer)
    peer.sent()
    peer.data(encode_switch(own.request), encode_request_cancelled(own.request))
    return proposals(peer)


def test_each_gap_and_what_is_behind_the_newest_is_asked_for() -> None:
    asked = [(own.start, own.end, own.lower_info) for own in proposals(asker())]
    gaps = [(2, 3), (6, 12), (14, 16), (23, None)]
    assert asked == [(start, end, start) for start, end in gaps]


@pytest.mark.parametrize("reason", [CancelReason.NOT_WANTED, CancelReason.PAYLOAD_MANDATORY])
def test_what_is_not_wanted_is_not_proposed_again_unless_it_is_offered(
    reason: CancelReason,
) -> None:
    peer = asker()
    for own in proposals(peer):
        assert refuse(peer, own, cancel(own.request, reason)) == []
    peer.wait(100)
    assert proposals(peer) == []
    offer = propose(peer.number, 10, end=11, lower_info=10, eagerness=Eagerness.NOTIFY)
    peer.control(offer)
    [answer, ask] = [m for m in peer.messages() if isinstance(m, Adjust | Cancel | Propose)]
    assert answer == Cancel(peer.number, CancelReason.NOT_WANTED)
    assert isinstance(ask, Propose)
    assert (ask.start, ask.end, ask.lower_info) == (10, 11, 8)


def test_an_offer_that_is_just_right_is_taken() -> None:
    """Entry 6 links to 5, which is held."""
    peer = asker()
    for own in proposals(peer):
        refuse(peer, own, cancel(own.request, CancelReason.NOT_WANTED))
    peer.control(propose(peer.number, 6, end=40, lower_info=6, eagerness=Eagerness.NOTIFY))
    [answer] = [m for m in peer.messages() if isinstance(m, Adjust | Cancel)]
    assert isinstance(answer, Adjust)
    assert (answer.eagerness, answer.end) == (Eagerness.ALL, 12)


def test_a_side_out_of_resources_is_asked_again_later() -> None:
    peer = asker()
    [first, *_] = proposals(peer)
    assert refuse(peer, first, cancel(first.request, CancelReason.NO_RESOURCES)) == []
    peer.wait(1.5)
    assert [(own.start, own.end) for own in proposals(peer)] == [(first.start, first.end)]


@pytest.mark.parametrize("end", [7, 19, 5])
def test_the_end_of_a_log_is_asked_for_by_itself(end: int) -> None:
    """134: exactly that entry, with what its pool lacks."""
    peer = asker()
    *others, own = proposals(peer)
    for other in others:
        refuse(peer, other, cancel(other.request, CancelReason.NOT_WANTED))
    told = Cancel(own.request, CancelReason.LOG_ENDED, seq=end)
    [ask, *_] = refuse(peer, own, told)
    assert (ask.start, ask.end, ask.upper_info) == (end, end, end)
    assert ask.lower_info == min([n for n in closed([end]) if n not in PARTS], default=end)


def test_a_complete_range_is_planned_anew() -> None:
    """130: an end that the other side lowered leaves a rest, or all of it as nothing moved."""
    peer = asker()
    own = proposals(peer)[1]
    peer.control(Adjust(own.request, eagerness=Eagerness.NOTIFY, end=own.start))
    peer.sent()
    rest = refuse(peer, own, cancel(own.request, CancelReason.COMPLETE))
    assert (own.start, own.end) not in [(each.start, each.end) for each in rest]
    peer.wait(peer.engine._config.retry_first_s)
    rest = proposals(peer)
    assert (own.start, own.end) in [(each.start, each.end) for each in rest]


@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize(
    ("reason", "seq"),
    [
        (CancelReason.COMPLETE, None),
        (CancelReason.YOU_CANCELLED, None),
        (CancelReason.LOG_ENDED, 9),
    ],
)
def test_what_ends_without_a_reason_is_asked_for_again_with_patience(
    reason: CancelReason, seq: int | None, *, confirmed: bool
) -> None:
    """Else it could end for ever, as fast as messages go."""
    peer = Impolite(log_of(3), proactive=True)
    peer.control(Grant(1000))
    asked = 0
    for _ in range(20):
        own = proposals(peer)
        while own:
            assert (own[0].start, own[0].end) == (4, None)
            if confirmed:
                peer.control(Adjust(own[0].request, eagerness=Eagerness.ALL))
            own = refuse(peer, own[0], Cancel(own[0].request, reason, seq=seq))
            asked += 1
            assert asked < 9
        peer.wait(1.0)
    assert asked > 2


def test_what_is_held_of_a_range_is_offered_although_our_own_requests_are_paused() -> None:
    """A one-time sync does not wait for it."""
    peer = Impolite({seq: REFERENCE[seq] for seq in sorted(PARTS)}, proactive=True)
    peer.control(Grant(99))
    for own in proposals(peer):
        peer.control(Cancel(own.request, CancelReason.NO_RESOURCES))
        peer.sent()
        peer.data(encode_switch(own.request), encode_request_cancelled(own.request))
    assert proposals(peer) == []
    peer.control(propose(peer.number, 14, lower_info=14, end=40))
    [offer] = proposals(peer)
    assert (offer.start, offer.end, offer.eagerness) == (17, 22, Eagerness.NOTIFY)
    assert peer.engine.now < peer.engine._config.retry_first_s


def test_a_range_that_begins_in_a_gap_is_refused_and_what_is_held_of_it_offered() -> None:
    peer = Impolite({seq: REFERENCE[seq] for seq in sorted(PARTS)}, follows=False)
    peer.control(Grant(9), propose(peer.number, 14, lower_info=14, end=40))
    refused, *offered = [m for m in peer.messages() if isinstance(m, Adjust | Cancel | Propose)]
    assert refused == Cancel(peer.number, CancelReason.NOT_WANTED)
    [offer] = [each for each in offered if isinstance(each, Propose)]
    assert (offer.start, offer.end, offer.eagerness) == (17, 22, Eagerness.NOTIFY)


@pytest.mark.parametrize(
    ("start", "end", "confirmed"), [(4, 12, 5), (20, None, None), (4, None, 5)]
)
def test_a_range_is_confirmed_up_to_the_next_gap(
    start: int, end: int | None, confirmed: int | None
) -> None:
    peer = Impolite({seq: REFERENCE[seq] for seq in sorted(PARTS)}, follows=False)
    peer.control(propose(peer.number, start, lower_info=start, end=end))
    [answer] = [m for m in peer.messages() if isinstance(m, Adjust)]
    assert (answer.end, answer.eagerness) == (confirmed, Eagerness.NOTIFY)


def test_payloads_of_entries_that_are_not_held_are_refused_with_129() -> None:
    peer = Impolite({seq: REFERENCE[seq] for seq in sorted(PARTS)}, follows=False)
    for number, fields in ((0, {"payloads_only": True}), (2, {"offset": 0})):
        peer.control(propose(number, 7, end=7, **fields))
        assert Cancel(number, CancelReason.NO_RESOURCES) in peer.messages()


def test_what_begins_inside_a_payload_is_refused_with_what_follows() -> None:
    """Also if the other side seemed to have all of it."""
    peer = Impolite(proactive=True)
    follows = propose(peer.number, 2, starting_hash=REFERENCE[1].hash)
    peer.control(follows, Grant(50))
    [own] = proposals(peer)
    peer.control(cancel(peer.number))
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL, allow_skip=True))
    peer.data(encode_switch(own.request), metadata_packet(REFERENCE, 1))
    assert refuse(peer, own, cancel(own.request, CancelReason.NO_RESOURCES)) == []
    peer.wait(1.0)
    [own] = proposals(peer)
    assert (own.start, own.end, own.offset) == (1, None, 0)
    assert refuse(peer, own, cancel(own.request, CancelReason.NOT_WANTED)) == []


def test_who_had_nothing_and_asks_for_what_follows_is_asked_for_the_path_there() -> None:
    peer = Impolite(follows=False, proactive=True)
    wish = Interests(logs=frozenset((LOG,)), subscriptions={LOG: Subscription(PolicyKind.SPARSE)})
    peer.host.todo.append(InterestsChanged(wish, (LOG,)))
    peer.run()
    peer.control(Grant(99))
    [probe] = proposals(peer)
    assert probe.sparse
    [watch] = refuse(peer, probe, Cancel(probe.request, CancelReason.NO_RESOURCES))
    assert refuse(peer, watch, Cancel(watch.request, CancelReason.NOT_WANTED)) == []
    peer.control(propose(peer.number, 4, lower_info=4, eagerness=Eagerness.NOTIFY))
    peer.wait(1.0)
    asked = [(own.start, own.end, own.sparse) for own in proposals(peer)]
    assert (1, 3, True) in asked
