"""Exchanges: setup, bymux, credit, numbers (point2point.md 1 and 2, bymux.md)."""

from tests.bymux.factory import CLOSE, CREDIT, PING, PONG, STOP_READ, WRITE, packet, write
from wire import Adjust, Cancel, CancelReason, Grant, Propose, encode_control, encode_varu64

from .cases import Need, case
from .script import CONTROL, CREDIT_GIVEN, DATA, GREEDY, INFINITE, Speaker

MIB = 1 << 20


@case("P2P-1.08")
def by_default_all_is_wanted(p: Speaker) -> None:
    assert p.theirs == GREEDY


@case("P2P-1.04", "P2P-1.05", begins_itself=True)
def the_six_high_bits_of_the_setup_are_ignored(p: Speaker) -> None:
    p.begin(raw_setup=b"\xff" + encode_varu64(65_536) * 2)
    p.alive()


@case("P2P-2.19", begins_itself=True)
def windows_need_not_be_canonical(p: Speaker) -> None:
    p.begin(raw_setup=b"\x03\xff" + (65_536).to_bytes(8, "big") + b"\xff" + b"\xff" * 8)
    p.alive()


@case("P2P-1.15", "P2P-1.10", begins_itself=True)
def bymux_packets_come_right_behind_the_setup(p: Speaker) -> None:
    history = p.library.fresh()
    p.number += 2
    proposal = history.propose(p.number - 2)
    p.begin(packet(PING, None), write(CONTROL, encode_control(proposal)))
    p.expect_said(PONG, None)
    assert isinstance(p.expect_answer(p.number - 2), Adjust)
    p.alive()


@case("P2P-1.11", "BYMUX-2.08")
def control_is_written_without_any_grant(p: Speaker) -> None:
    """More than any buffer that a grant could have been for; each message is done with at once."""
    number = p.open(p.library.shared, 1, end=5)
    for size in range(1, 200):
        p.control(Adjust(number, min_bytes=size))
    p.alive()
    assert not [said for said in p.said if said[:2] == (CREDIT, CONTROL)]


@case("P2P-1.12", begins_itself=True)
def no_data_is_sent_before_there_is_credit(p: Speaker) -> None:
    p.begin(credit=0)
    number = p.open(p.library.shared, 1, end=2)
    p.mux_ping()
    assert p.data_bytes_heard == 0
    p.mux(p.data_grant(CREDIT_GIVEN))
    p.expect_switch(number)
    p.expect_entries(p.library.shared, [1, 2])


@case("P2P-1.14", "BYMUX-3.01")
def pings_are_answered_each_in_its_place(p: Speaker) -> None:
    for stream in (None, CONTROL, DATA):
        p.mux(packet(PING, stream))
        p.expect_said(PONG, stream)


@case("P2P-1.16", ends=True)
def a_good_end_is_answered_and_the_transport_closes(p: Speaker) -> None:
    p.deliver(p.library.fresh(), 2)
    p.close()


@case("P2P-1.16", "P2P-1.17", ends=True)
def what_came_before_the_close_is_taken_in_first(p: Speaker) -> None:
    history = p.library.fresh()
    p.receiving(history)
    p.data(history.entries(range(1, 30)))
    p.close()
    p.kept.append((history, 29))


@case("P2P-1.22", "BYMUX-2.11", is_long=True)
def data_credit_comes_back_as_data_is_consumed(p: Speaker) -> None:
    while not p.data_credit:
        p.hear()
    history = p.library.fresh(lambda seq: bytes([seq % 256]) * 50_000)
    p.receiving(history)
    last = p.data_credit // 50_000 + 40
    for seq in range(1, last + 1):
        # More than the first grant in all, each as soon as there is credit for it.
        p.data(history.entries([seq]))
    p.wait_until_held(history, last)


@case("P2P-2.13")
def sixty_four_units_are_granted_at_the_start(p: Speaker) -> None:
    assert p.expect(Grant) == Grant(64)


@case("P2P-2.14")
def a_unit_is_granted_for_each_request_that_is_confirmed(p: Speaker) -> None:
    p.expect(Grant)
    for _ in range(3):
        p.open(p.library.fresh())
        p.expect(Grant, lambda grant: grant.units == 1)


@case("P2P-2.15", needs=frozenset((Need.CLOCK, Need.UNWANTED)))
def credit_for_what_was_refused_comes_back_slowly(p: Speaker) -> None:
    p.expect(Grant)
    for _ in range(10):
        number = p.propose(p.library.fresh(unwanted=True))
        p.expect_cancel(number)
        p.cancel(number, CancelReason.YOU_CANCELLED)
        p.end(number)
    p.mux_ping()
    assert not [message for message in p.inbox if isinstance(message, Grant)]
    p.wait(1.0)
    p.expect(Grant)


@case("P2P-2.09", "P2P-1.01")
def its_numbers_have_the_parity_of_its_role(p: Speaker) -> None:
    own = p.asked(p.library.fresh())
    assert own.request % 2 == (1 if p.proactive else 0)


@case("P2P-2.11")
def nothing_is_proposed_without_credit(p: Speaker) -> None:
    p.silent(Propose)
    history = p.library.fresh()
    number = p.propose(history, 5)
    p.expect_cancel(number)
    p.cancel(number, CancelReason.YOU_CANCELLED)
    p.end(number)
    p.silent(Propose)
    p.grant(1)
    p.expect(Propose)
    p.silent(Propose)


@case("P2P-2.08", "P2P-2.07")
def its_proposals_carry_the_hash_that_their_lower_info_links_to(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    assert (own.lower_info, own.starting_hash) == (5, history.hash(4))


@case("P2P-2.18")
def a_confirmation_sets_its_eagerness(p: Speaker) -> None:
    number = p.propose(p.library.fresh())
    answer = p.expect_answer(number)
    assert isinstance(answer, Adjust)
    assert answer.eagerness is not None


@case("P2P-2.10", "P2P-6.05", "P2P-6.01", "P2P-6.03")
def a_number_is_free_after_four_messages(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    for _ in range(3):
        p.cancel(number)
        p.expect_cancel(number, CancelReason.YOU_CANCELLED)
        p.expect_end(number)
        p.data(b"\x20" + encode_varu64(number))
        p.control(history.propose(number))
        assert isinstance(p.expect_answer(number), Adjust)
        p.data(b"\x00" + encode_varu64(number))
    p.data(history.entries([1, 2]))
    p.wait_until_held(history, 2)


@case("P2P-6.17")
def it_never_uses_a_number_twice(p: Speaker) -> None:
    numbers = set()
    for _ in range(4):
        own = p.asked(p.library.fresh())
        p.control(Cancel(own.request, CancelReason.NOT_WANTED))
        p.expect_cancel(own.request)
        p.expect_end(own.request)
        p.end(own.request)
        numbers.add(own.request)
    assert len(numbers) == 4


# Bymux: what looks wrong and is allowed


@case("BYMUX-1.03", "P2P-2.19")
def widths_may_be_larger_than_needed(p: Speaker) -> None:
    history = p.library.fresh()
    raw = encode_control(history.propose(p.number))
    p.mux(packet(WRITE, CONTROL, len(raw), raw, id_width=8, amount_width=8))
    assert isinstance(p.expect_answer(p.number), Adjust)
    p.mux(packet(PING, DATA, id_width=4))
    p.expect_said(PONG, DATA)
    p.number += 2
    p.alive()


@case("BYMUX-1.04")
def the_low_bits_of_a_global_ping_mean_nothing(p: Speaker) -> None:
    for bits in range(16):
        p.mux(bytes((PING << 5 | 1 << 4 | bits,)))
        p.expect_said(PONG, None)
        p.mux(bytes((PONG << 5 | 1 << 4 | bits,)))
    p.alive()


@case("BYMUX-3.02")
def pongs_that_nobody_asked_for(p: Speaker) -> None:
    p.mux(*(packet(PONG, stream) * 100 for stream in (None, CONTROL, DATA)))
    p.alive()


@case("BYMUX-7.01", "BYMUX-2.06")
def empty_writes_and_credit_of_0(p: Speaker) -> None:
    p.mux(
        packet(WRITE, CONTROL, 0) * 50,
        packet(WRITE, DATA, 0) * 50,
        packet(CREDIT, CONTROL, 0) * 50,
        packet(PING, None) * 50,
    )
    p.alive()


@case("BYMUX-2.05", "BYMUX-2.06")
def infinite_credit_for_data_and_again(p: Speaker) -> None:
    p.mux(packet(CREDIT, DATA, 0) * 3)
    p.alive()


@case("BYMUX-2.03")
def a_sum_that_is_infinite(p: Speaker) -> None:
    p.mux(packet(CREDIT, DATA, INFINITE - CREDIT_GIVEN), packet(CREDIT, DATA, 0))
    p.alive()


@case("BYMUX-2.01")
def writes_cut_anywhere_cost_only_their_bytes(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.open(history)
    raw = b"\x00" + encode_varu64(number) + history.entries([1, 2, 3])
    while p.data_credit < MIB:
        p.hear()
    before = p.data_credit
    p.mux(*(write(DATA, raw[at : at + 1]) for at in range(len(raw))))
    p.data_credit -= len(raw)
    p.wait_until_held(history, 3)
    assert p.data_credit <= before


@case("P2P-1.16", "BYMUX-4.01", "BYMUX-4.02")
def stopping_control_alone_is_answered_by_close(p: Speaker) -> None:
    p.mux(packet(STOP_READ, CONTROL))
    p.expect_said(CLOSE, CONTROL)
    p.mux_ping()
