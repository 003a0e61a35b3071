"""Exchanges: cancelling and overlapping proposals (point2point.md 6 and 7)."""

from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    RequestCancelled,
    Switch,
    encode_request_cancelled,
    encode_switch,
)

from .cases import Need, case
from .histories import History
from .script import CREDIT_GIVEN, Speaker, UnmetError

CLOCK = frozenset((Need.CLOCK,))
GONE = CancelReason.YOU_CANCELLED


@case("P2P-6.01", "P2P-6.03")
def a_cancel_is_answered_on_both_channels(p: Speaker) -> None:
    number = p.receiving(p.library.fresh())
    p.cancel(number)
    p.expect_cancel(number, GONE)
    p.expect_end(number)


@case("P2P-6.02", begins_itself=True)
def nothing_but_the_32_follows_its_own_cancel(p: Speaker) -> None:
    """It had a whole log to send, and no credit for it yet."""
    p.begin(credit=0)
    number = p.open(p.library.shared)
    p.cancel(number)
    p.expect_cancel(number)
    p.mux(p.data_grant(CREDIT_GIVEN))
    p.expect_end(number)
    p.no_data()


@case("P2P-6.04", "P2P-6.12", "P2P-8.20")
def what_comes_for_a_request_that_it_gave_up_is_read_past(p: Speaker) -> None:
    """A payload beyond every limit: 129, and what is under way does no harm."""
    history = p.library.fresh()
    huge = p.library.huge(history)
    number = p.receiving(history)
    p.data(huge.metadata(1), b"\x08\x64" + bytes(100))
    p.expect_cancel(number, CancelReason.NO_RESOURCES)
    p.data(*(b"\x08\x64" + bytes(100) for _ in range(50)))
    p.cancel(number, GONE)
    p.data(encode_request_cancelled(number))
    p.expect_end(number)
    p.alive()


@case("P2P-6.04", "P2P-6.22")
def data_behind_a_cancel_is_read_up_to_the_32(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history, 1, end=3)
    p.cancel(number, CancelReason.COMPLETE)
    p.expect_cancel(number)
    p.data(history.entries([1, 2, 3]), encode_request_cancelled(number))
    p.wait_until_held(history, 3)


@case("P2P-6.07", "P2P-6.09")
def a_32_before_its_cancel_and_before_any_switch(p: Speaker) -> None:
    number = p.open(p.library.fresh())
    p.data(encode_request_cancelled(number))
    p.cancel(number)
    p.expect_cancel(number)
    p.expect_end(number)
    p.alive()


@case("P2P-6.08")
def a_32_between_packets_of_other_requests(p: Speaker) -> None:
    history = p.library.fresh()
    first, second = p.open(history), p.open(p.library.fresh())
    p.data(
        encode_switch(first),
        history.metadata(1),
        encode_request_cancelled(second),
        history.solid(1),
        history.entries([2]),
    )
    p.cancel(second)
    p.wait_until_held(history, 2)


@case("P2P-6.11", "P2P-6.10")
def it_switches_before_a_32_that_follows_that_of_its_current_request(p: Speaker) -> None:
    shared = p.library.shared
    first = p.open(shared)
    p.expect_switch(first)
    p.expect_entries(shared, range(1, len(shared.held) + 1))
    second = p.open(p.library.fresh())
    p.control(Cancel(first, CancelReason.NOT_WANTED), Cancel(second, CancelReason.NOT_WANTED))
    p.expect_packet(RequestCancelled(first))
    p.expect_packet(Switch(second))
    p.expect_packet(RequestCancelled(second))


@case("P2P-6.11")
def a_switch_to_a_cancelled_request_for_its_32(p: Speaker) -> None:
    first, second = p.receiving(p.library.fresh()), p.open(p.library.fresh())
    p.control(Cancel(first, CancelReason.NOT_WANTED), Cancel(second, CancelReason.NOT_WANTED))
    p.data(encode_request_cancelled(first), encode_switch(second))
    p.data(encode_request_cancelled(second))
    p.alive()


@case("P2P-6.12")
def a_mandatory_payload_that_it_lacks_is_told_with_132(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history, 1, end=3)
    p.data(history.entries([1]), history.metadata(2), b"\x06", history.entries([3]))
    p.data(encode_request_cancelled(number))
    p.cancel(number, CancelReason.COMPLETE)
    p.expect_cancel(number)
    p.expect_end(number)
    p.wait_until_held(history, 3)
    number = p.open(history, 1, end=3, mandatory=True)
    p.expect_switch(number)
    p.expect_entries(history, [1])
    p.expect_metadata(history, 2)
    p.expect_cancel(number, CancelReason.PAYLOAD_MANDATORY)
    p.expect_end(number)


def refuse(p: Speaker, own: Propose, reason: CancelReason) -> None:
    """Refuse a proposal of the endpoint, and end it."""
    p.control(Cancel(own.request, reason))
    p.expect_cancel(own.request)
    p.expect_end(own.request)
    p.end(own.request)


@case("P2P-6.13")
def what_was_refused_with_128_is_not_proposed_again(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    further: list[Propose] = [own]
    while further:
        for each in further:
            refuse(p, each, CancelReason.NOT_WANTED)
        p.grant(len(further))
        p.settle()
        further = [m for m in p.inbox if isinstance(m, Propose) and m.log == history.log]
        for each in further:
            p.inbox.remove(each)
        if any((each.start, each.end) == (own.start, own.end) for each in further):
            raise UnmetError(f"the endpoint proposes again what was refused with 128: {own}")


@case("P2P-6.13")
def a_later_proposal_for_the_log_lifts_a_128(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    refuse(p, own, CancelReason.NOT_WANTED)
    p.grant(CREDIT_GIVEN)
    start = 7
    p.propose(history, start)
    while True:
        found = p.expect(Propose, lambda found: found.log == history.log)
        if found.start == own.start:
            return
        # It tried another range meanwhile, to which ours may have given way.
        refuse(p, found, CancelReason.NOT_WANTED)
        start += 2
        p.propose(history, start)


@case("P2P-6.14", needs=CLOCK)
def what_was_refused_with_129_is_tried_again_later(p: Speaker) -> None:
    history = p.library.fresh()
    refuse(p, p.asked(history), CancelReason.NO_RESOURCES)
    p.wait(0.5)
    p.silent(Propose, lambda found: found.log == history.log)
    p.wait(5.0)
    p.expect(Propose, lambda found: found.log == history.log)


@case("P2P-6.18", "P2P-6.19")
def a_number_that_waits_for_its_32_may_be_used_again(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.cancel(number)
    p.expect_cancel(number)
    p.expect_end(number)
    p.control(history.propose(number, 1, end=20), Adjust(number, end=2))
    p.silent(Adjust, lambda found: found.request == number)
    p.data(encode_switch(number), encode_request_cancelled(number))
    assert isinstance(p.expect_answer(number), Adjust)
    p.data(encode_switch(number), history.entries([1, 2]))
    p.wait_until_held(history, 2)


@case("P2P-6.19")
def a_proposal_that_waits_for_its_number_may_be_cancelled(p: Speaker) -> None:
    number = p.receiving(p.library.fresh())
    p.cancel(number)
    p.expect_cancel(number)
    p.expect_end(number)
    p.control(p.library.fresh().propose(number), Cancel(number, CancelReason.NOT_WANTED))
    p.data(encode_request_cancelled(number))
    p.expect_cancel(number, GONE)
    p.data(encode_switch(number), encode_request_cancelled(number))
    p.alive()


@case("P2P-6.21", "P2P-6.22")
def who_reaches_the_end_says_so_at_once(p: Speaker) -> None:
    number = p.open(p.library.shared, 1, end=3)
    p.expect_switch(number)
    p.expect_entries(p.library.shared, [1, 2, 3])
    p.expect_end(number)
    p.expect_cancel(number, CancelReason.COMPLETE)


@case("P2P-6.23", needs=frozenset((Need.CLOCK, Need.SYNC)))
def a_finite_range_in_which_both_only_notify_ends_after_5_s(p: Speaker) -> None:
    history = p.library.fresh()
    assert isinstance(p.expect_answer(p.propose(history, 1)), Cancel | Adjust)
    p.grant()
    own = p.expect(Propose, lambda found: found.log == history.log)
    assert own.sparse
    p.control(Adjust(own.request, eagerness=Eagerness.NOTIFY, end=4, upper_info=4))
    p.wait(4.9)
    p.silent(Cancel, lambda found: found.request == own.request)
    p.wait(0.2)
    p.expect_cancel(own.request, CancelReason.COMPLETE)


# Overlapping proposals


@case("P2P-7.01", "P2P-7.06", "P2P-2.11")
def the_larger_start_was_never_sent(p: Speaker) -> None:
    """It costs no credit and earns none; its number is free once the winner is answered."""
    history = p.library.fresh()
    own = p.asked(history)
    number = p.number
    p.settle_quietly()
    granted = p.granted
    for index in range(100):
        # More of them than there is credit for.
        p.control(history.propose(number + 2 * index, 3))
    p.mux_ping()
    assert p.granted == granted
    assert not [m for m in p.inbox if isinstance(m, Adjust | Cancel) and m.request >= number]
    p.number += 200
    take_part(p, history, own)
    p.control(p.library.fresh().propose(number))
    assert isinstance(p.expect_answer(number), Adjust)


def take_part(p: Speaker, history: History, own: Propose) -> None:
    """Confirm a proposal of the endpoint, and bring it the log."""
    p.control(Adjust(own.request, eagerness=Eagerness.ALL))
    p.data(encode_switch(own.request), history.entries([1, 2]))
    p.wait_until_held(history, 2)


@case("P2P-7.02", "P2P-7.01")
def with_equal_starts_the_reactive_sides_was_never_sent(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    number = p.propose(history, 1)
    if p.proactive:
        assert isinstance(p.expect_answer(number), Adjust)
        p.data(encode_switch(number), history.entries([1, 2]))
        p.wait_until_held(history, 2)
    else:
        p.mux_ping()
        assert not [m for m in p.inbox if isinstance(m, Adjust) and m.request == number]
        take_part(p, history, own)


@case("P2P-7.01", "P2P-7.06")
def the_endpoints_own_proposal_gives_way_to_a_smaller_start(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    number = p.propose(history, 4)
    assert isinstance(p.expect_answer(number), Adjust)
    p.data(encode_switch(number), history.entries([4, 5], first=4))
    p.wait_until_held(history, 5)
    assert own.request != number


@case("P2P-7.04")
def overlap_is_judged_whatever_the_kind(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    p.settle_quietly()
    for fields in (
        {"sparse": True, "end": 13},
        {"payloads_only": True, "end": 5},
        {"end": 3},
        {"offset": 0},
        {"lower_info": 1, "eagerness": Eagerness.NOTIFY},
    ):
        number = p.propose(history, 3, **fields)
        p.mux_ping()
        assert not [m for m in p.inbox if isinstance(m, Adjust | Cancel) and m.request == number]
    take_part(p, history, own)


@case("P2P-7.04")
def pools_do_not_overlap(p: Speaker) -> None:
    """Its proposal begins at 5; ours ends at 4, its upper pool reaches further."""
    history = p.library.fresh()
    p.asked_behind(history, 4)
    number = p.propose(history, 2, end=3, upper_info=4)
    assert isinstance(p.expect_answer(number), Adjust)


@case("P2P-7.07")
def what_is_said_of_a_dropped_proposal_is_ignored(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    number = p.propose(history, 3)
    p.control(
        Adjust(number, end=9),
        Adjust(number, eagerness=Eagerness.NOTIFY),
        Cancel(number, CancelReason.NOT_WANTED),
        Cancel(number, CancelReason.NOT_WANTED),
    )
    take_part(p, history, own)


@case("P2P-7.09", "P2P-7.01")
def what_the_winner_left_is_proposed_behind_it(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    number = p.receiving(history, 4, end=6)
    p.data(history.entries([4, 5, 6], first=4), encode_request_cancelled(number))
    p.cancel(number, CancelReason.COMPLETE)
    p.expect_cancel(number)
    again = p.expect(Propose, lambda found: found.log == history.log)
    # From 7 on, or from before if it has not stored all of this yet.
    assert own.start <= again.start <= 7
    assert again.end is None


@case("P2P-2.14", "P2P-7.06")
def credit_stays_the_same_over_many_requests(p: Speaker) -> None:
    """64 at the start, and each request gives its unit back."""
    for _ in range(100):
        number = p.open(p.library.fresh())
        p.cancel(number)
        p.expect_cancel(number)
        p.end(number)
    p.settle_quietly()
    used = p.number // 2
    assert p.granted - used == 64
    p.expect(Grant)
