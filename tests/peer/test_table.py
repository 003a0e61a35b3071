"""Every rule of the control channel, for both roles, whole and byte by byte (point2point.md 9)."""

from typing import Any, cast

import pytest

from peer.protocol.errors import RemoteViolation
from tests.records import replace
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlMessage,
    Eagerness,
    Grant,
    Propose,
    encode_control,
    encode_request_cancelled,
    encode_switch,
)

from .impolite import LOG, SMALL, Impolite, cancel, log_of, propose

HELD = log_of(40)
pytestmark = pytest.mark.parametrize(
    ("proactive", "byte_by_byte"), [(False, False), (True, False), (False, True), (True, True)]
)


@pytest.fixture
def peer(proactive: bool, byte_by_byte: bool) -> Impolite:
    """An engine that holds 40 entries and has no credit to propose with."""
    return Impolite(HELD, proactive=proactive, byte_by_byte=byte_by_byte)


def refused(peer: Impolite, *messages: ControlMessage | bytes) -> RemoteViolation:
    """The violation that the messages are."""
    before = dict(peer.store.logs[LOG])
    with pytest.raises(RemoteViolation) as caught:
        peer.control(*messages)
    assert peer.store.logs[LOG] == before
    return caught.value


def own_request(peer: Impolite) -> Propose:
    """Let the engine propose; returns its proposal."""
    peer.control(Grant(8))
    [proposal] = [m for m in peer.messages() if isinstance(m, Propose)]
    assert proposal.log == LOG
    assert proposal.start == 41
    return proposal


def test_credit_above_2_64_minus_1_is_a_violation(peer: Impolite) -> None:
    """point2point.md 2: at most 2^64 - 1 outstanding."""
    peer = Impolite({}, proactive=peer.number == 1, byte_by_byte=peer.step == 1, follows=False)
    peer.control(Grant(U64_MAX))
    violation = refused(peer, Grant(1))
    assert violation.rule == "point2point.md 2"
    assert str(U64_MAX) in violation.detail


def test_a_proposal_without_credit_is_a_violation(peer: Impolite) -> None:
    """point2point.md 9: the 65th proposal while none was answered."""
    peer.host.todo.clear()
    for index in range(64):
        peer.engine.receive_control(encode_control(propose(peer.number + 2 * index, 30, end=31)))
    violation = refused(peer, propose(peer.number + 128, 30, end=31))
    assert (violation.rule, violation.request) == ("point2point.md 2", peer.number + 128)
    assert "credit" in violation.detail


def test_a_number_of_the_wrong_parity_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, propose(1 - peer.number))
    assert (violation.rule, violation.request) == ("point2point.md 2", 1 - peer.number)
    assert "parity" in violation.detail


def test_a_number_in_use_is_a_violation(peer: Impolite) -> None:
    number = peer.open_request()
    violation = refused(peer, propose(number))
    assert (violation.rule, violation.request) == ("point2point.md 2", number)
    assert "in use" in violation.detail


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"start": 0, "lower_info": 0}, "seqnum 0"),
        ({"start": 5, "lower_info": 0}, "seqnum 0"),
        ({"start": 5, "lower_info": 1, "end": 0, "upper_info": 0}, "seqnum 0"),
        ({"start": 5, "lower_info": 6, "starting_hash": HELD[5].hash}, "above start"),
        ({"start": 5, "lower_info": 2, "starting_hash": HELD[1].hash}, "lower pool"),
        ({"start": 5, "lower_info": 1, "end": 4, "upper_info": 4}, "below start"),
        ({"start": 5, "lower_info": 1, "end": 6, "upper_info": 5}, "below end"),
        ({"start": 5, "lower_info": 1, "end": 6, "upper_info": 14}, "upper pool"),
        ({"start": U64_MAX, "lower_info": 2, "starting_hash": HELD[1].hash}, "lower pool"),
        ({"start": 1, "end": 5, "upper_info": U64_MAX}, "upper pool"),
    ],
)
def test_a_proposal_outside_the_limits_of_section_5_is_a_violation(
    peer: Impolite, fields: dict[str, object], word: str
) -> None:
    values = {"start": 1, **fields}
    violation = refused(peer, propose(peer.number, **cast("dict[str, Any]", values)))
    assert (violation.rule, violation.request) == ("point2point.md 5", peer.number)
    assert word in violation.detail


@pytest.mark.parametrize(
    ("adjust", "word"),
    [
        ({"end": 0}, "seqnum 0"),
        ({"end": 4}, "below start"),
        ({"end": 10, "upper_info": 9}, "below end"),
        ({"end": 10, "upper_info": 14}, "upper pool"),
        ({"upper_info": 14}, "below end"),
        ({"upper_info": 38}, "upper pool"),
        ({"min_bytes": 9}, "goes down"),
        ({"max_bytes": 101}, "goes up"),
    ],
)
def test_an_adjust_outside_the_limits_of_section_5_is_a_violation(
    peer: Impolite, adjust: dict[str, int], word: str
) -> None:
    number = peer.open_request(
        5,
        lower_info=1,
        end=15,
        upper_info=40,
        min_bytes=10,
        max_bytes=100,
    )
    violation = refused(peer, Adjust(number, **cast("dict[str, Any]", adjust)))
    assert (violation.rule, violation.request) == ("point2point.md 5", number)
    assert word in violation.detail


def test_what_is_not_below_the_old_value_is_ignored_and_not_checked(peer: Impolite) -> None:
    """point2point.md 5: 45 is in no pool of 15."""
    number = peer.open_request(5, lower_info=1, end=15, upper_info=40)
    peer.control(Adjust(number, end=16), Adjust(number, upper_info=45))
    [request] = peer.engine.actor.requests_of(LOG)
    assert (request.active, request.lowest_end()) == (True, 15)


def test_an_upper_info_that_crosses_a_lower_end_is_ignored(peer: Impolite) -> None:
    """point2point.md 5: an end below the base's leaves no upper pool; 39 was in that of 15."""
    number = peer.open_request(5, lower_info=1, end=15, upper_info=40)
    peer.control(Adjust(number, end=10))
    peer.control(Adjust(number, upper_info=39))
    [request] = peer.engine.actor.requests_of(LOG)
    assert (request.active, request.lowest_end()) == (True, 10)


def test_nobody_leaves_notify_only(peer: Impolite) -> None:
    """point2point.md 5."""
    number = peer.open_request(eagerness=Eagerness.NOTIFY)
    violation = refused(peer, Adjust(number, eagerness=Eagerness.ALL))
    assert (violation.rule, violation.request) == ("point2point.md 5", number)


def test_a_confirmation_without_eagerness_is_a_violation(peer: Impolite) -> None:
    number = own_request(peer).request
    violation = refused(peer, Adjust(number, allow_skip=True))
    assert (violation.rule, violation.request) == ("point2point.md 2", number)
    assert "eagerness" in violation.detail


def test_a_confirmation_of_an_open_sparse_request_has_an_end(
    proactive: bool, byte_by_byte: bool
) -> None:
    """point2point.md 3."""
    peer = Impolite(
        HELD, proactive=proactive, byte_by_byte=byte_by_byte, config=replace(SMALL, policy="sync")
    )
    peer.control(Grant(8))
    [probe] = [m for m in peer.messages() if isinstance(m, Propose)]
    assert probe.sparse
    violation = refused(peer, Adjust(probe.request, eagerness=Eagerness.NOTIFY))
    assert (violation.rule, violation.request) == ("point2point.md 3", probe.request)


def test_an_end_off_the_sparse_path_is_a_violation(peer: Impolite) -> None:
    """point2point.md 3: the path from 13 to 1 is 13, 4, 1."""
    number = peer.open_request(sparse=True, end=13)
    peer.control(Adjust(number, end=4))
    violation = refused(peer, Adjust(number, end=3))
    assert (violation.rule, violation.request) == ("point2point.md 3", number)


@pytest.mark.parametrize("message", [Adjust(7, end=3), cancel(7), Adjust(8, end=3), cancel(8)])
def test_adjusting_or_cancelling_what_does_not_exist_is_a_violation(
    peer: Impolite, message: Adjust | Cancel
) -> None:
    violation = refused(peer, message)
    assert (violation.rule, violation.request) == ("point2point.md 9", message.request)


@pytest.mark.parametrize("again", [Adjust(0, end=3), cancel(0)])
def test_nothing_follows_ones_own_cancel(peer: Impolite, again: Adjust | Cancel) -> None:
    number = peer.open_request()
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    violation = refused(peer, replace(again, request=number))
    assert (violation.rule, violation.request) == ("point2point.md 9", number)


@pytest.mark.parametrize("first", range(136, 160))
def test_an_unused_first_byte_is_a_violation(peer: Impolite, first: int) -> None:
    violation = refused(peer, bytes((first, 0)))
    assert violation.rule == "point2point.md 2"
    assert str(first) in violation.detail


@pytest.mark.parametrize("reason", [133, 135])
def test_an_entry_in_a_cancel_has_to_parse(peer: Impolite, reason: int) -> None:
    number = own_request(peer).request
    violation = refused(peer, bytes((reason, number)) + b"\x02" + HELD[1].encoded[1:] * 2)
    assert "tag" in violation.detail
    assert f"request {number}" in violation.detail


def test_a_request_is_over_after_four_messages_and_its_number_free(peer: Impolite) -> None:
    """point2point.md 6."""
    number = peer.open_request()
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    assert peer.messages() == [cancel(number)]
    assert peer.sent().endswith(encode_request_cancelled(number))
    assert peer.engine.requests == 1
    peer.data(encode_request_cancelled(number))
    assert peer.engine.requests == 0
    peer.open_request()


def test_a_32_may_come_before_its_cancel_and_before_any_switch(peer: Impolite) -> None:
    """point2point.md 6."""
    number = peer.open_request()
    peer.data(encode_request_cancelled(number))
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    peer.sent()
    assert peer.engine.requests == 0


@pytest.mark.rule("P2P-6.03")
def test_our_32_is_sent_once_when_cancels_cross(peer: Impolite) -> None:
    """point2point.md 6: both cancel before either 32 is written."""
    number = peer.open_request()
    [request] = peer.engine.actor.requests_of(LOG)
    peer.engine.actor.cancel(request, Cancel(number, CancelReason.NO_RESOURCES))
    peer.control(cancel(number, CancelReason.NO_RESOURCES))
    assert peer.sent().count(encode_request_cancelled(number)) == 1


@pytest.mark.rule("P2P-6.19", "P2P-6.20")
def test_a_reused_number_waits_for_the_32_of_its_last_request(peer: Impolite) -> None:
    """point2point.md 6: held, one per number, adjusts and cancels meanwhile are applied."""
    number = peer.open_request()
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    peer.sent()
    peer.messages()
    peer.control(propose(number, 1, end=20), Adjust(number, end=9))
    assert peer.messages() == []
    assert "in use" in refused_again(peer, number)


def refused_again(peer: Impolite, number: int) -> str:
    return refused(peer, propose(number)).detail


def test_a_held_request_is_answered_once_the_32_has_come(peer: Impolite) -> None:
    number = peer.open_request()
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    peer.sent()
    peer.messages()
    peer.control(propose(number, 1, end=20), Adjust(number, end=9))
    peer.data(encode_request_cancelled(number))
    grant, confirmation = sorted(peer.messages(), key=lambda m: isinstance(m, Adjust))
    assert isinstance(grant, Grant)
    assert isinstance(confirmation, Adjust)
    peer.data(encode_switch(number))


def test_a_held_request_that_was_cancelled_is_only_cancelled_back(peer: Impolite) -> None:
    number = peer.open_request()
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    peer.sent()
    peer.control(propose(number), cancel(number, CancelReason.NOT_WANTED))
    peer.messages()
    peer.data(encode_request_cancelled(number))
    assert cancel(number) in peer.messages()
    peer.sent()
    peer.data(encode_request_cancelled(number))
    assert peer.engine.requests == 0


@pytest.mark.rule("P2P-7.07")
def test_a_dropped_proposal_is_ignored_even_while_its_number_waits_for_a_32(
    byte_by_byte: bool, proactive: bool
) -> None:
    """point2point.md 6 and 7: the number is used again, and the new proposal gives way to ours."""
    peer = Impolite(HELD, proactive=proactive, byte_by_byte=byte_by_byte)
    number = peer.open_request()
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    peer.sent()
    own = own_request(peer)
    peer.control(propose(number, own.start + 1, lower_info=1))
    peer.control(Adjust(number, end=90), cancel(number))
    peer.data(encode_request_cancelled(number))
    assert not any(isinstance(message, Cancel) for message in peer.messages())
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL))
    assert "not active" in refused(peer, cancel(number)).detail
