"""Exchanges: the sequence of a request, packets, adjusting (point2point.md 3, 4, 5)."""

from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    LZFooEncoder,
    Notify,
    PayloadStart,
    Propose,
    SkipAbove,
    SkipBelow,
    SkipUnavailable,
    Switch,
    encode_compressed,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
    upper_pool,
)

from .cases import Need, case
from .histories import History
from .phrases import large
from .script import CREDIT_GIVEN, NARROW, SAFE, Speaker

LOWER_OF_11 = (4, 8, 9, 10)
"""The lower pool of 11, from lower info 4 on."""


@case("P2P-3.01", "P2P-4.03", "P2P-4.05", "P2P-6.21", "P2P-8.11")
def a_finite_range_is_sent_with_its_pools_and_ended(p: Speaker) -> None:
    shared = p.library.shared
    number = p.open(shared, 11, lower_info=4, end=15, upper_info=40)
    p.expect_switch(number)
    for seq in LOWER_OF_11:
        p.expect_metadata(shared, seq, first=True)
    p.expect_entries(shared, range(11, 16))
    for seq in sorted(n for n in upper_pool(15) if n > 15):
        p.expect_metadata(shared, seq, first=seq - 1 != 15 and seq - 1 not in upper_pool(15))
    p.expect_cancel(number, CancelReason.COMPLETE)
    p.expect_end(number)


@case("P2P-3.02", "P2P-4.03", needs=frozenset((Need.SETTINGS,)))
def pools_are_read_where_they_stand(p: Speaker) -> None:
    history = p.library.fresh()
    p.deliver(history, 10)
    # A node that wants the whole log needs no upper pool, and would lower it.
    settings = Adjust(0, eagerness=Eagerness.ALL, allow_skip=True, upper_info=13)
    number = p.receiving_with(history, settings, 11, lower_info=4, end=12, upper_info=13)
    assert sorted(upper_pool(12)) == [12, 13]
    p.data(
        b"".join(history.metadata(seq, first=True) for seq in LOWER_OF_11),
        history.entries([11, 12]),
        history.metadata(13),
        encode_request_cancelled(number),
    )
    p.cancel(number, CancelReason.COMPLETE)
    p.wait_until_held(history, 12)


@case("P2P-3.03", "P2P-3.06", "P2P-4.05")
def a_range_may_begin_inside_a_payload(p: Speaker) -> None:
    shared = p.library.shared
    number = p.open(shared, 12, offset=1, end=13)
    p.expect_switch(number)
    p.expect_payload(shared, 12, offset=1)
    # The metadata of 12 was not transmitted: 13 carries its backlink.
    p.expect_metadata(shared, 13, first=True)
    p.expect_payload(shared, 13)
    p.expect_end(number)


@case("P2P-3.03", "P2P-3.05")
def offset_0_of_an_empty_payload(p: Speaker) -> None:
    history = p.library.fresh(lambda _: b"")
    p.deliver(history, 2)
    number = p.open(history, 1, offset=0, end=2)
    p.expect_switch(number)
    p.expect_payload(history, 1)
    p.expect_metadata(history, 2)
    p.expect_payload(history, 2)
    p.expect_end(number)


@case("P2P-3.04")
def an_offset_into_what_is_not_held_is_cancelled_with_129(p: Speaker) -> None:
    number = p.propose(p.library.fresh(), 1, offset=0)
    p.expect_cancel(number, CancelReason.NO_RESOURCES)


@case("P2P-3.07")
def payloads_only_is_nothing_but_payloads(p: Speaker) -> None:
    shared = p.library.shared
    number = p.open(shared, 2, end=5, payloads_only=True)
    p.expect_switch(number)
    for seq in range(2, 6):
        p.expect_payload(shared, seq)
    p.expect_end(number)


@case("P2P-3.08")
def payloads_only_of_what_is_not_held_is_cancelled_with_129(p: Speaker) -> None:
    number = p.propose(p.library.fresh(), 1, end=3, payloads_only=True)
    p.expect_cancel(number, CancelReason.NO_RESOURCES)


@case("P2P-3.09", "P2P-4.05")
def sparse_is_the_shortest_path(p: Speaker) -> None:
    shared = p.library.shared
    number = p.open(shared, 1, end=13, sparse=True)
    p.expect_switch(number)
    for seq in (1, 4, 13):
        p.expect_metadata(shared, seq, first=True)
        p.expect_payload(shared, seq)
    p.expect_cancel(number, CancelReason.COMPLETE)
    p.expect_end(number)


@case("P2P-3.10", "P2P-2.18")
def an_open_sparse_request_is_confirmed_with_the_newest_as_its_end(p: Speaker) -> None:
    assert p.newest(p.library.shared) == len(p.library.shared.held)


@case("P2P-3.11")
def an_open_sparse_request_beyond_the_newest_is_cancelled_with_129(p: Speaker) -> None:
    number = p.propose(p.library.shared, 100, lower_info=40, sparse=True)
    p.expect_cancel(number, CancelReason.NO_RESOURCES)


@case("P2P-3.12")
def the_end_of_a_sparse_request_is_lowered_on_its_path(p: Speaker) -> None:
    number = p.open(p.library.shared, 1, end=13, sparse=True)
    p.control(Adjust(number, end=4), Adjust(number, end=7))
    p.alive()


@case("P2P-3.13")
def empty_payloads_are_pieces_both_ways(p: Speaker) -> None:
    history = p.library.fresh(lambda _: b"")
    p.deliver(history, 3)
    number = p.open(history, 1, end=3)
    p.expect_switch(number)
    for seq in range(1, 4):
        p.expect_metadata(history, seq)
        assert p.packet() == PayloadStart(0, compressed=False)
    p.expect_end(number)


@case("P2P-3.13", "P2P-4.16")
def an_empty_payload_may_be_skipped(p: Speaker) -> None:
    history = p.library.fresh(lambda _: b"")
    p.receiving(history)
    p.data(history.metadata(1), encode_skip_unavailable(), history.entries([2]))
    p.wait_until_held(history, 2)


@case("P2P-3.15", "P2P-4.06")
def both_sides_send_each_behind_its_own_cursor(p: Speaker) -> None:
    """It sends what it holds; we pass that with a notify and send what follows."""
    history = p.library.fresh()
    p.deliver(history, 3)
    number = p.open(history)
    p.expect_switch(number)
    p.expect_entries(history, range(1, 4))
    p.data(encode_switch(number), encode_notify(6), history.entries([4, 5]))
    p.wait_until_held(history, 5)


@case("P2P-4.25", "P2P-3.15")
def a_notify_may_cross_the_pieces_that_it_passes(p: Speaker) -> None:
    """Both hold the first three; both send them, or notify of them, at the same time."""
    history = p.library.fresh()
    p.deliver(history, 3)
    number = p.receiving(history)
    p.expect_switch(number)
    p.expect_metadata(history, 1)
    p.expect_payload(history, 1)
    p.data(encode_notify(1), encode_notify(1), history.entries([2, 3, 4]))
    p.wait_until_held(history, 4)


@case("P2P-4.07", "P2P-4.05", "P2P-4.17")
def what_was_notified_of_was_not_transmitted(p: Speaker) -> None:
    history = p.library.fresh()
    p.deliver(history, 12)
    number = p.open(history, 12, eagerness=Eagerness.NOTIFY)
    p.expect_switch(number)
    p.expect_packet(Notify(2))
    p.data(encode_switch(number), encode_notify(2))
    p.data(history.metadata(13, first=True), history.solid(13))
    p.wait_until_held(history, 13)


@case("P2P-4.14", "P2P-2.16")
def payloads_outside_of_the_sizes_are_skipped(p: Speaker) -> None:
    history = p.library.fresh(lambda seq: b"x" * seq)
    p.deliver(history, 5)
    number = p.open(history, 1, end=5, min_bytes=2, max_bytes=4)
    p.expect_switch(number)
    p.expect_metadata(history, 1)
    p.expect_packet(SkipBelow())
    p.expect_entries(history, range(2, 5))
    p.expect_metadata(history, 5)
    p.expect_packet(SkipAbove())
    p.expect_end(number)


@case("P2P-4.15", "P2P-4.17")
def a_skip_goes_before_a_notify(p: Speaker) -> None:
    number = p.open(p.library.shared, 9, end=10, eagerness=Eagerness.NOTIFY, min_bytes=3)
    p.expect_switch(number)
    p.expect_packet(Notify(1))
    p.expect_packet(SkipBelow())
    p.expect_packet(Notify(2))
    p.expect_end(number)


@case("P2P-4.17", "P2P-2.16")
def notifications_for_who_wants_nothing_else(p: Speaker) -> None:
    number = p.open(p.library.shared, 1, end=20, eagerness=Eagerness.NOTIFY)
    p.expect_switch(number)
    p.expect_packet(Notify(40))
    p.expect_end(number)


@case("P2P-4.17", "P2P-2.16")
def a_payload_above_the_eager_size_is_notified_of(p: Speaker) -> None:
    shared = p.library.shared
    number = p.open(shared, 9, end=10, eagerness=Eagerness.LIMITED, eager_bytes=2)
    p.expect_switch(number)
    p.expect_metadata(shared, 9, first=True)
    p.expect_payload(shared, 9)
    p.expect_metadata(shared, 10)
    p.expect_packet(Notify(1))
    p.expect_end(number)


@case("P2P-4.16")
def a_payload_that_is_not_held_is_skipped(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history, 1, end=3)
    p.data(history.entries([1]), history.metadata(2), encode_skip_unavailable())
    p.data(history.entries([3]), encode_request_cancelled(number))
    p.cancel(number, CancelReason.COMPLETE)
    p.expect_cancel(number)
    p.wait_until_held(history, 3)
    p.expect_end(number)
    number = p.open(history, 1, end=3)
    p.expect_switch(number)
    p.expect_entries(history, [1])
    p.expect_metadata(history, 2)
    p.expect_packet(SkipUnavailable())
    p.expect_entries(history, [3])


@case("P2P-4.18", "P2P-4.24")
def nothing_is_passed_before_something_follows(p: Speaker) -> None:
    history = p.library.fresh()
    p.receiving(history)
    p.data(history.entries(range(1, 6)))
    p.wait_until_held(history, 5)
    p.no_data()


@case("P2P-4.09", "P2P-4.10", "P2P-1.07")
def one_window_holds_for_all_requests(p: Speaker) -> None:
    """What request 0 decompressed is referred to in request 2; raw bytes between are not in it."""
    text = b"the window is shared by all requests and never reset " * 3
    first, second = p.library.fresh(lambda _: text), p.library.fresh(lambda _: text)
    encoder = LZFooEncoder(p.negotiated.compression_window)
    packets = [encode_compressed(len(text), encoder.encode(text)) for _ in range(3)]
    assert len(packets[1]) < 20
    one = p.receiving(first)
    p.data(first.metadata(1), packets[0], first.metadata(2), first.solid(2))
    p.receiving(second)
    p.data(second.metadata(1), packets[1])
    p.data(encode_switch(one), first.metadata(3), packets[2])
    p.wait_until_held(first, 3)
    p.wait_until_held(second, 1)


@case("P2P-4.10", "P2P-4.09", is_long=True)
def what_it_compresses_decompresses_over_requests(p: Speaker) -> None:
    text = b"some text that is worth being compressed, more than once; " * 60
    histories = [p.library.fresh(lambda seq: b"%d" % seq + text) for _ in range(2)]
    for history in histories:
        p.deliver(history, 4)
    for history in histories:
        number = p.open(history, 1, end=4)
        p.expect_switch(number)
        p.expect_entries(history, range(1, 5))
        p.expect_end(number)


@case("P2P-4.11", "P2P-1.07", setup=NARROW, is_long=True)
def what_it_compresses_stays_inside_the_window(p: Speaker) -> None:
    """The reader here refuses an offset beyond 1,024 bytes."""
    text = bytes(range(256)) * 12
    history = p.library.fresh(lambda seq: text + b"%d" % seq)
    p.deliver(history, 4)
    number = p.open(history, 1, end=4)
    p.expect_switch(number)
    p.expect_entries(history, range(1, 5))
    p.expect_end(number)


@case("P2P-1.07", "P2P-1.06", setup=SAFE)
def without_windows_nothing_is_compressed(p: Speaker) -> None:
    history = p.library.fresh(lambda _: b"all the same " * 100)
    p.deliver(history, 2)
    number = p.open(history, 1, end=2)
    p.expect_switch(number)
    p.expect_entries(history, range(1, 3))
    p.expect_end(number)


@case("P2P-4.12")
def a_payload_in_packets_of_one_byte_raw_and_compressed(p: Speaker) -> None:
    history = p.library.fresh(large)
    p.receiving(history)
    body = history.payload(1)
    p.data(history.metadata(1))
    encoder = LZFooEncoder(p.negotiated.compression_window)
    for at in range(0, len(body), 2):
        p.data(
            encode_payload_header(1) + body[at : at + 1],
            encode_compressed(1, encoder.encode(body[at + 1 : at + 2])),
        )
    p.data(history.entries([2]))
    p.wait_until_held(history, 2)


def _sent_by_the_endpoint(p: Speaker) -> tuple[History, int]:
    """A log whose first entry the endpoint has sent, and the request in which it did."""
    p.begin()
    history = p.library.fresh(large)
    p.deliver(history, 1)
    number = p.open(history)
    p.expect_switch(number)
    p.expect_metadata(history, 1)
    p.expect_payload(history, 1)
    return history, number


@case("P2P-4.12", "P2P-4.22", begins_itself=True)
def bytes_that_it_has_sent_itself_may_be_passed(p: Speaker) -> None:
    """Packet 7: our cursor catches up with its own inside a payload."""
    history, number = _sent_by_the_endpoint(p)
    p.data(
        encode_switch(number),
        encode_notify(1),
        encode_skip_bytes(150),
        encode_payload_header(50) + history.payload(1)[150:],
        history.entries([2]),
    )
    p.wait_until_held(history, 2)


@case("P2P-4.23", "P2P-4.22", begins_itself=True)
def a_wrong_payload_of_which_it_sent_a_part_itself_blames_nobody(p: Speaker) -> None:
    history, number = _sent_by_the_endpoint(p)
    p.data(encode_switch(number), encode_notify(1), encode_skip_bytes(150))
    p.data(encode_payload_header(50) + b"?" * 50, history.entries([2]))
    p.wait_until_held(history, 2)


# Adjusting


@case("P2P-5.02")
def what_is_not_below_is_ignored_and_not_checked(p: Speaker) -> None:
    """45 and 99 are in no pool of 15."""
    number = p.open(p.library.shared, 5, lower_info=1, end=15, upper_info=40)
    p.control(Adjust(number, end=16), Adjust(number, upper_info=45), Adjust(number, end=U64_MAX))
    p.control(Adjust(number, end=15, upper_info=99))
    p.alive()


@case("P2P-5.02", "P2P-5.13")
def an_upper_info_that_crosses_a_lower_end_is_ignored(p: Speaker) -> None:
    number = p.open(p.library.shared, 5, lower_info=1, end=15, upper_info=40)
    p.control(Adjust(number, end=10), Adjust(number, upper_info=39))
    p.alive()


@case("P2P-5.12", "P2P-5.11")
def a_confirmation_may_pick_a_lower_end(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    p.control(Adjust(own.request, eagerness=Eagerness.ALL, end=7))
    p.data(
        encode_switch(own.request),
        history.entries(range(5, 8), first=5),
        encode_request_cancelled(own.request),
    )
    p.cancel(own.request, CancelReason.COMPLETE)
    p.wait_until_held(history, 7)


@case("P2P-5.12")
def a_confirmation_may_pick_a_pool_for_its_end(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    assert sorted(upper_pool(12)) == [12, 13]
    p.control(Adjust(own.request, eagerness=Eagerness.ALL, end=12, upper_info=13))
    p.data(
        encode_switch(own.request),
        history.entries(range(5, 13), first=5),
        history.metadata(13),
        encode_request_cancelled(own.request),
    )
    p.cancel(own.request, CancelReason.COMPLETE)
    p.wait_until_held(history, 12)


@case("P2P-5.13", begins_itself=True)
def a_cut_ends_what_is_sent(p: Speaker) -> None:
    p.begin(credit=0)
    shared = p.library.shared
    number = p.open(shared, 11, lower_info=11, end=15, upper_info=40)
    p.control(Adjust(number, end=13), Adjust(number, end=14))
    p.mux_ping()
    p.mux(p.data_grant(CREDIT_GIVEN))
    p.expect_switch(number)
    p.expect_entries(shared, range(11, 14), first=11)
    p.expect_cancel(number, CancelReason.COMPLETE)
    p.expect_end(number)


@case("P2P-5.13", begins_itself=True)
def a_cut_of_the_upper_info_leaves_a_part_of_the_pool(p: Speaker) -> None:
    p.begin(credit=0)
    shared = p.library.shared
    number = p.open(shared, 15, end=15, upper_info=40)
    p.control(Adjust(number, upper_info=17))
    p.mux_ping()
    p.mux(p.data_grant(CREDIT_GIVEN))
    p.expect_switch(number)
    p.expect_entries(shared, [15], first=15)
    p.expect_metadata(shared, 16)
    p.expect_metadata(shared, 17)
    p.expect_end(number)


@case("P2P-5.14")
def what_was_under_way_beyond_a_cut_is_kept(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history, 1, end=4)
    p.control(Adjust(number, end=1))
    p.data(history.entries(range(1, 5)), encode_request_cancelled(number))
    p.wait_until_held(history, 4)


@case("P2P-5.17")
def the_proposer_may_adjust_before_the_confirmation(p: Speaker) -> None:
    number = p.number
    p.number += 2
    p.control(
        p.library.shared.propose(number, 1, end=40),
        Adjust(number, end=2),
        Adjust(number, eagerness=Eagerness.LIMITED, eager_bytes=1),
    )
    p.expect_answer(number)
    p.expect_switch(number)
    for seq in (1, 2):
        p.expect_metadata(p.library.shared, seq)
        p.expect_packet(Notify(1))
    p.expect_cancel(number, CancelReason.COMPLETE)


@case("P2P-2.16", "P2P-4.17", begins_itself=True)
def the_newest_settings_hold_for_what_it_sends(p: Speaker) -> None:
    p.begin(credit=0)
    number = p.open(p.library.shared, 1, end=2)
    p.control(Adjust(number, eagerness=Eagerness.NOTIFY))
    p.mux_ping()
    p.mux(p.data_grant(CREDIT_GIVEN))
    p.expect_packet(Switch(number))
    p.expect_packet(Notify(4))


@case("P2P-2.20", "P2P-2.19")
def long_numbers_and_a_grant_of_nothing(p: Speaker) -> None:
    def long(value: int) -> bytes:
        return b"\xff" + value.to_bytes(8, "big")

    p.control(b"\x00" + long(0), b"\x00\x00")
    number = p.open(p.library.shared, 1, end=9)
    p.control(b"\x08" + long(number) + long(9))
    history = p.library.fresh()
    other = p.open(history)
    p.data(b"\x00" + long(other), history.metadata(1), b"\x08" + long(2) + b"p1")
    p.wait_until_held(history, 1)
    p.control(b"\x80" + long(other))
    p.expect_cancel(other)
    p.data(b"\x00" + long(other), b"\x20" + long(other))
    p.alive()


@case("P2P-7.10")
def a_proposal_may_overlap_confirmed_requests(p: Speaker) -> None:
    history = p.library.fresh()
    first = p.open(history, 1, end=3)
    second = p.open(history)
    p.data(encode_switch(first), history.entries([1, 2]))
    p.data(encode_switch(second), history.entries([1, 2, 3]))
    p.data(encode_switch(first), history.entries([3]))
    p.data(encode_switch(second), history.entries([4]))
    p.wait_until_held(history, 4)


def _brought_and_asked_for(p: Speaker) -> tuple[History, int]:
    """It has got three entries in one request, and is asked for them in another one."""
    history = p.library.fresh()
    p.receiving(history)
    p.data(history.entries([1, 2, 3]))
    p.wait_until_held(history, 3)
    return history, p.open(history)


@case("P2P-7.10")
def what_came_in_one_request_is_not_sent_back_in_another(p: Speaker) -> None:
    history, second = _brought_and_asked_for(p)
    assert p.newest(history) == 3
    p.cancel(second)
    p.expect_end(second)


@case("P2P-7.10", needs=frozenset((Need.CLOCK,)))
def who_does_not_say_what_it_has_sent_gets_it_after_a_while(p: Speaker) -> None:
    history, second = _brought_and_asked_for(p)
    p.wait(11)
    p.expect_switch(second)
    p.expect_entries(history, range(1, 4))


@case("P2P-4.12")
def a_notify_of_nothing_and_a_switch_to_where_one_is(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.data(b"\x03\x00", encode_switch(number), history.metadata(1), encode_switch(number))
    p.data(history.solid(1), b"\x03\x00")
    p.wait_until_held(history, 1)


@case("P2P-6.16")
def after_a_134_exactly_that_entry_is_proposed(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    p.control(Cancel(own.request, CancelReason.LOG_ENDED, seq=3))
    found = p.expect(Propose, lambda new: new.log == history.log and new.request != own.request)
    assert (found.start, found.end) == (3, 3)
