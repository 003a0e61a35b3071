"""Exchanges: data and verification (point2point.md 8), and what ends or forks a log."""

from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Propose,
    encode_apology,
    encode_payload_header,
    encode_request_cancelled,
    encode_switch,
)

from .cases import case
from .histories import History
from .phrases import LARGE, large
from .script import SAFE, Speaker

SOLID = encode_payload_header


@case("P2P-8.10", "P2P-8.16")
def an_apology_takes_an_invalid_payload_back(p: Speaker) -> None:
    history = p.library.fresh()
    p.receiving(history)
    p.data(history.metadata(1), SOLID(2), b"no", encode_apology())
    p.data(history.solid(1), history.entries([2, 3]))
    p.wait_until_held(history, 3)


@case("P2P-8.10")
def an_apology_takes_invalid_metadata_back(p: Speaker) -> None:
    history = p.library.fresh()
    p.receiving(history)
    p.data(history.entries([1]), history.bad_signature(2), encode_apology())
    p.data(history.entries([2, 3]))
    p.wait_until_held(history, 3)


@case("P2P-8.16", "P2P-8.10")
def an_apology_in_the_middle_of_a_payload(p: Speaker) -> None:
    history = p.library.fresh(large)
    p.receiving(history)
    p.data(history.metadata(1), SOLID(100), b"x" * 100, encode_apology())
    p.data(history.solid(1), history.entries([2]))
    p.wait_until_held(history, 2)


@case("P2P-8.16", "P2P-8.10")
def an_apology_for_bytes_that_were_right(p: Speaker) -> None:
    history = p.library.fresh(large)
    p.receiving(history)
    p.data(history.metadata(1), SOLID(100), history.payload(1)[:100], encode_apology())
    p.data(history.solid(1), history.entries([2]))
    p.wait_until_held(history, 2)


@case("P2P-8.12", "P2P-8.22")
def an_invalid_piece_as_the_last_of_a_request(p: Speaker) -> None:
    """No next piece begins: the request ends, the piece is not kept, the connection goes on."""
    history = p.library.fresh(large)
    number = p.receiving(history)
    p.data(history.metadata(1), SOLID(LARGE), b"x" * LARGE, encode_request_cancelled(number))
    p.cancel(number)
    p.alive()


@case("P2P-8.12", "P2P-8.10")
def other_requests_go_on_between_an_invalid_piece_and_its_apology(p: Speaker) -> None:
    history, other = p.library.fresh(), p.library.fresh()
    first, second = p.receiving(history), p.open(other)
    p.data(history.metadata(1), SOLID(2), b"no", encode_switch(second), other.entries([1]))
    p.data(encode_switch(first), encode_apology(), history.solid(1), history.entries([2]))
    p.wait_until_held(history, 2)
    p.wait_until_held(other, 1)


@case("P2P-8.17", "P2P-2.08", "P2P-2.04")
def another_history_is_answered_with_133_and_the_entry(p: Speaker) -> None:
    shared = p.library.shared
    number = p.propose(shared, 5, starting_hash=shared.hash(2))
    found = p.expect_cancel(number, CancelReason.HASH_MISMATCH)
    assert found.entries == (shared.entry(4).encoded,)
    number = p.propose(shared, 6, offset=0, starting_hash=shared.hash(2))
    found = p.expect_cancel(number, CancelReason.HASH_MISMATCH)
    assert found.entries == (shared.entry(6).encoded,)


@case("P2P-8.17")
def a_range_behind_the_end_of_the_log_is_answered_with_134(p: Speaker) -> None:
    history = p.library.fresh(end=3)
    p.deliver(history, 3)
    number = p.propose(history, 4)
    found = p.expect_cancel(number, CancelReason.LOG_ENDED)
    assert found.seq == 3


def forked(p: Speaker, history: History) -> History:
    """Another log of the same name."""
    return History(history.author, history.log.log_id, lambda seq: b"forked %d" % seq)


@case("P2P-8.17", "P2P-6.15", "P2P-2.04")
def a_fork_that_a_135_proves_is_recorded_and_passed_on(p: Speaker) -> None:
    history = p.library.fresh()
    other = forked(p, history)
    own = p.asked(history)
    proof = (history.entry(1).encoded, other.entry(1).encoded)
    p.control(Cancel(own.request, CancelReason.FORKED, entries=proof))
    p.expect_cancel(own.request)
    p.expect_end(own.request)
    p.end(own.request)
    found = p.poll(history, CancelReason.FORKED)
    assert set(found.entries) == set(proof)


@case("P2P-6.15")
def a_fork_that_a_133_proves_is_recorded(p: Speaker) -> None:
    history = p.library.fresh()
    other = forked(p, history)
    own = p.asked_behind(history, 4)
    p.control(Cancel(own.request, CancelReason.HASH_MISMATCH, entries=(other.entry(4).encoded,)))
    found = p.poll(history, CancelReason.FORKED, 5)
    assert set(found.entries) == {history.entry(4).encoded, other.entry(4).encoded}


@case("P2P-6.15")
def what_proves_no_fork_is_of_no_effect(p: Speaker) -> None:
    """A wrong signature, one entry twice, entries of two logs, and of two numbers."""
    for index in range(4):
        history = p.library.fresh()
        other = forked(p, history)
        good, bad = history.entry(1).encoded, other.entry(1).encoded
        proof = (
            (good, bad[:-1] + bytes((bad[-1] ^ 1,))),
            (good, good),
            (good, p.library.shared.entry(1).encoded),
            (good, history.entry(2).encoded),
        )[index]
        own = p.asked(history)
        p.control(Cancel(own.request, CancelReason.FORKED, entries=proof))
        p.expect_cancel(own.request)
        p.end(own.request)
        p.settle()
        p.deliver(history, 2)


@case("P2P-8.19")
def who_lacks_the_pool_asks_for_it_itself(p: Speaker) -> None:
    own = p.asked(p.library.fresh())
    assert own.start == 1


@case("P2P-8.01", "P2P-8.02")
def nothing_is_sent_for_an_own_proposal_without_an_answer(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    p.settle_quietly()
    p.no_own_data(own.request)


@case("P2P-8.02", "P2P-1.20")
def data_for_its_proposal_waits_for_the_answer(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    p.data(encode_switch(own.request), history.entries([1, 2]))
    p.mux_ping()
    p.control(Adjust(own.request, eagerness=Eagerness.ALL))
    p.data(history.entries([3]))
    p.wait_until_held(history, 3)


@case("P2P-8.03", "P2P-6.07")
def a_32_is_not_held_up_by_data_that_waits(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked(history)
    number = p.open(p.library.fresh())
    p.data(encode_switch(own.request), encode_request_cancelled(own.request))
    p.data(encode_switch(number), encode_request_cancelled(number))
    p.control(Cancel(own.request, CancelReason.NOT_WANTED), Cancel(number, CancelReason.NOT_WANTED))
    p.expect_cancel(own.request)
    p.expect_cancel(number)
    p.alive()


@case("P2P-8.05", "P2P-8.11", setup=SAFE)
def a_log_comes_back_as_it_was_in_safe_directions(p: Speaker) -> None:
    history = p.library.fresh(large)
    p.deliver(history, 3)
    number = p.open(history, 1, end=3)
    p.expect_switch(number)
    p.expect_entries(history, range(1, 4))
    p.expect_end(number)


@case("P2P-6.03", "P2P-6.15")
def reasons_that_make_no_sense_are_no_violation(p: Speaker) -> None:
    """134 with any number, 133 with an entry of another log: the request is over, no more."""
    shared = p.library.shared
    for cancel in (
        Cancel(0, CancelReason.LOG_ENDED, seq=2**64 - 1),
        Cancel(0, CancelReason.LOG_ENDED, seq=0),
        Cancel(0, CancelReason.HASH_MISMATCH, entries=(shared.entry(9).encoded,)),
        Cancel(0, CancelReason.PAYLOAD_MANDATORY),
        Cancel(0, CancelReason.COMPLETE),
        Cancel(0, CancelReason.YOU_CANCELLED),
    ):
        own = p.asked(p.library.fresh())
        p.control(Cancel(own.request, cancel.reason, entries=cancel.entries, seq=cancel.seq))
        p.expect_cancel(own.request)
        p.end(own.request)
    p.alive()


@case("P2P-2.11", "P2P-6.05")
def it_proposes_what_follows_once_a_range_is_complete(p: Speaker) -> None:
    history = p.library.fresh()
    own = p.asked_behind(history, 3)
    assert isinstance(own, Propose)
    assert own.end is None
