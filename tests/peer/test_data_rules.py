"""Every rule of the data channel, for both roles, whole and byte by byte (point2point.md 9)."""

from collections.abc import Callable
from functools import partial

import pytest

from peer.protocol.errors import RemoteViolation
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_apology,
    encode_compressed,
    encode_control,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
)

from .impolite import LOG, SAFE, SMALL, Impolite, cancel, entry_packets, log_of, propose
from .impolite import metadata_packet as metadata
from .impolite import payload_packet as payload

HELD = log_of(40)
BIG = log_of(3, lambda seq: b"%d" % seq * 200)
EMPTY = log_of(3, lambda seq: b"")
Make = Callable[..., Impolite]
SOLID = encode_payload_header
# Which side called makes no difference to data: each role once, whole or in pieces.
pytestmark = pytest.mark.parametrize(
    ("proactive", "byte_by_byte"), [(False, False), (True, True)], ids=["whole", "byte by byte"]
)


@pytest.fixture
def make(proactive: bool, byte_by_byte: bool) -> Make:
    return partial(Impolite, proactive=proactive, byte_by_byte=byte_by_byte)


@pytest.fixture
def peer(make: Make) -> Impolite:
    """A greedy receiver that follows the log and holds nothing of it, request confirmed."""
    peer = make()
    peer.open_request()
    peer.data(encode_switch(peer.number))
    return peer


@pytest.fixture
def safe(make: Make) -> Impolite:
    """The same without greediness and compression."""
    peer = make(setup=SAFE)
    peer.open_request()
    peer.data(encode_switch(peer.number))
    return peer


def refused(peer: Impolite, *packets: bytes) -> RemoteViolation:
    """The violation that the packets are; nothing that is stored changes."""
    before = dict(peer.store.logs[LOG])
    with pytest.raises(RemoteViolation) as caught:
        peer.data(*packets)
    after = peer.store.logs[LOG]
    assert {seq: after[seq] for seq in before} == before
    return caught.value


def test_switching_to_what_is_not_active_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, encode_switch(98))
    assert (violation.rule, violation.request) == ("point2point.md 9, Data", 98)


def test_switching_to_an_own_unconfirmed_request_is_a_violation(make: Make) -> None:
    """point2point.md 8; here the engine has not answered yet."""
    peer = make()
    peer.engine.receive_control(encode_control(propose(peer.number)))
    with pytest.raises(RemoteViolation) as caught:
        peer.engine.receive_data(encode_switch(peer.number))
    assert (caught.value.rule, caught.value.request) == ("point2point.md 8", peer.number)


def test_data_for_a_request_that_was_refused_is_a_violation(make: Make) -> None:
    """It may be switched to, since a 32 after another needs that; nothing else may follow."""
    peer = make(follows=False)
    peer.control(propose(peer.number))
    answers = [each for each in peer.messages() if not isinstance(each, Grant)]
    assert answers == [Cancel(peer.number, CancelReason.NOT_WANTED)]
    violation = refused(peer, encode_switch(peer.number), metadata(HELD, 1))
    assert (violation.rule, violation.request) == ("point2point.md 8", peer.number)


def test_cancelling_what_is_not_active_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, encode_request_cancelled(98))
    assert (violation.rule, violation.request) == ("point2point.md 9", 98)


def test_a_second_32_is_a_violation(peer: Impolite) -> None:
    first, peer.number = peer.number, peer.number + 2
    number = peer.open_request(1, end=3)
    peer.data(encode_switch(first))
    violation = refused(peer, encode_request_cancelled(number), encode_request_cancelled(number))
    assert (violation.rule, violation.request) == ("point2point.md 9", number)


@pytest.mark.parametrize(
    ("packet", "rule"),
    [
        (encode_notify(1), "point2point.md 9, Data"),
        (metadata(HELD, 1), "point2point.md 9, Data"),
        (encode_apology(), "point2point.md 9, Data"),
        (encode_request_cancelled(98), "point2point.md 6"),
    ],
)
def test_only_a_switch_follows_the_32_of_the_current_request(
    peer: Impolite, packet: bytes, rule: str
) -> None:
    violation = refused(peer, encode_request_cancelled(peer.number), packet)
    assert violation.rule == rule


@pytest.mark.parametrize("packet", [encode_notify(1), metadata(HELD, 1), encode_apology()])
def test_only_a_switch_or_a_32_comes_first(make: Make, packet: bytes) -> None:
    peer = make()
    peer.open_request()
    violation = refused(peer, packet)
    assert violation.rule == "point2point.md 9, Data"
    assert "before a switch" in violation.detail


def test_metadata_where_a_payload_is_due_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, metadata(HELD, 1), metadata(HELD, 2))
    assert (violation.rule, violation.request) == ("point2point.md 3", peer.number)
    assert "payload of entry 1" in violation.detail


@pytest.mark.parametrize(
    "packet",
    [SOLID(1), encode_skip_unavailable(), encode_skip_below(), encode_skip_above()],
)
def test_a_payload_where_metadata_is_due_is_a_violation(peer: Impolite, packet: bytes) -> None:
    violation = refused(peer, packet)
    assert (violation.rule, violation.request) == ("point2point.md 3", peer.number)
    assert "metadata of entry 1" in violation.detail


@pytest.mark.parametrize(
    "packets", [metadata(HELD, 3), encode_notify(1), encode_notify(2**64 - 1), SOLID(1)]
)
def test_moving_past_the_end_is_a_violation(make: Make, packets: bytes) -> None:
    peer = make(HELD)
    number = peer.open_request(1, end=2, eagerness=Eagerness.NOTIFY)
    peer.data(encode_switch(number), encode_notify(4))
    violation = refused(peer, packets)
    assert violation.request == number
    assert "past the end" in violation.detail


def test_seqnums_end_in_an_open_range_too(make: Make) -> None:
    """2^64 - 1 pieces fit into an open range from 1 on, a second time they do not."""
    peer = make(HELD, follows=False)
    number = peer.open_request(1)
    peer.data(encode_switch(number), encode_notify(2**64 - 1))
    peer.data(encode_notify(2**64 - 1))
    violation = refused(peer, encode_notify(1))
    assert "past the end" in violation.detail


def test_more_payload_than_the_metadata_said_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, metadata(HELD, 1), SOLID(3), b"abc")
    assert (violation.rule, violation.request) == ("point2point.md 4", peer.number)
    assert "3 bytes of a payload of which 2 are left" in violation.detail


def test_more_payload_in_pieces_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, metadata(BIG, 1), SOLID(150), b"1" * 150, SOLID(51))
    assert (violation.rule, violation.request) == ("point2point.md 4", peer.number)


@pytest.mark.parametrize("packet", [SOLID(0), encode_skip_bytes(0), encode_compressed(0, b"")])
def test_packets_of_length_0_are_violations(peer: Impolite, packet: bytes) -> None:
    violation = refused(peer, metadata(HELD, 1), packet)
    assert violation.request == peer.number


@pytest.mark.parametrize("packet", [encode_skip_bytes(0), encode_compressed(0, b"")])
def test_an_empty_payload_takes_packet_8_or_a_skip_and_no_other(
    peer: Impolite, packet: bytes
) -> None:
    violation = refused(peer, metadata(EMPTY, 1), packet)
    assert (violation.rule, violation.request) == ("point2point.md 4", peer.number)


def test_an_empty_payload_is_one_packet(peer: Impolite) -> None:
    peer.data(metadata(EMPTY, 1), SOLID(0), metadata(EMPTY, 2), SOLID(0), metadata(EMPTY, 3))
    assert peer.store.logs[LOG][2].payload == b""


def test_compression_with_window_0_is_a_violation(safe: Impolite) -> None:
    violation = refused(safe, metadata(HELD, 1), b"\x09")
    assert violation.request == safe.number
    assert "window 0" in violation.detail


@pytest.mark.parametrize(
    "compressed",
    [
        b"\x00\x00",  # an element that says nothing
        b"\xff" * 12,
    ],
)
def test_what_does_not_decompress_is_a_violation(peer: Impolite, compressed: bytes) -> None:
    violation = refused(peer, metadata(HELD, 1), encode_compressed(2, compressed))
    assert violation.rule == "encodings.md LZFoo"
    assert violation.request == peer.number


def test_a_skip_below_the_minimum_has_to_be_below_it(make: Make) -> None:
    violation = refused(own_peer(make), metadata(HELD, 1), encode_skip_below())
    assert violation.rule == "point2point.md 4"
    assert "not below the minimum 0" in violation.detail


def test_a_skip_above_the_maximum_has_to_be_above_it(make: Make) -> None:
    violation = refused(own_peer(make), metadata(HELD, 1), encode_skip_above())
    assert "not above the maximum" in violation.detail


def own_peer(make: Make) -> Impolite:
    peer = make()
    number = peer.open_request()
    peer.data(encode_switch(number))
    return peer


def test_a_mandatory_payload_is_not_skipped(peer: Impolite) -> None:
    """Our own confirmations allow skips, so the interest is set back here."""
    [request] = peer.engine.actor.requests_of(LOG)
    request.our_interest.mandatory = True
    violation = refused(peer, metadata(HELD, 1), encode_skip_unavailable())
    assert (violation.rule, violation.request) == ("point2point.md 4", peer.number)


def test_a_skip_comes_before_the_first_byte(peer: Impolite) -> None:
    violation = refused(peer, metadata(HELD, 1), SOLID(1), b"p", encode_skip_unavailable())
    assert "after the first byte" in violation.detail


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_notify_where_data_is_due_is_a_violation(peer: Impolite, count: int) -> None:
    violation = refused(peer, encode_notify(count))
    assert (violation.rule, violation.request) == ("point2point.md 4", peer.number)


def test_data_against_notify_only_is_a_violation(make: Make) -> None:
    peer = make(HELD, follows=False)
    number = peer.open_request(1)
    violation = refused(peer, encode_switch(number), metadata(HELD, 1))
    assert (violation.rule, violation.request) == ("point2point.md 4", number)


@pytest.mark.parametrize("seq", [1, 40, 41])
def test_payload_bytes_against_notify_only_are_a_violation(make: Make, seq: int) -> None:
    """Also those of entry 41, which is not held here, so that nobody knows its size."""
    peer = make(HELD, follows=False)
    number = peer.open_request(1)
    before = encode_switch(number) + encode_notify(2 * seq - 1)
    violation = refused(peer, before, SOLID(2), b"no")
    assert (violation.rule, violation.request) == ("point2point.md 4", number)
    assert "only notifies are due" in violation.detail


def test_a_payload_above_the_eager_size_is_a_violation(peer: Impolite) -> None:
    [request] = peer.engine.actor.requests_of(LOG)
    request.our_interest.data_up_to = 1
    violation = refused(peer, metadata(HELD, 1), payload(HELD, 1))
    assert "eagerness" in violation.detail


def test_skipped_bytes_have_to_be_some_that_we_sent(peer: Impolite) -> None:
    """Packet 7 only catches up within a payload."""
    violation = refused(peer, metadata(HELD, 1), encode_skip_bytes(1))
    assert "that we have not sent" in violation.detail


@pytest.mark.parametrize("first", [1, *range(10, 16), *range(17, 32), *range(33, 128), 130, 255])
def test_an_unused_first_byte_is_a_violation(peer: Impolite, first: int) -> None:
    violation = refused(peer, bytes((first,)))
    assert str(first) in violation.detail
    assert violation.request == peer.number


def bad_signature(seq: int = 1) -> bytes:
    packet = metadata(HELD, seq)
    return packet[:-1] + bytes((packet[-1] ^ 1,))


def test_invalid_metadata_in_a_safe_direction_is_a_violation(safe: Impolite) -> None:
    violation = refused(safe, bad_signature(), payload(HELD, 1))
    assert (violation.rule, violation.request) == ("point2point.md 8", safe.number)


@pytest.mark.parametrize("rest", [b"", SOLID(2), SOLID(2) + b"n"])
def test_a_forged_entry_is_found_out_though_its_payload_does_not_come(
    safe: Impolite, rest: bytes
) -> None:
    """Else it would hold its connection for as long as pings are answered."""
    safe.data(bad_signature() + rest)
    with pytest.raises(RemoteViolation) as caught:
        safe.wait(SMALL.entry_alone_s)
    assert (caught.value.rule, caught.value.request) == ("point2point.md 8", safe.number)


def test_nor_is_it_kept_by_turning_to_another_request(safe: Impolite) -> None:
    number, safe.number = safe.number, safe.number + 2
    other = safe.open_request()
    violation = refused(safe, bad_signature(), SOLID(2), encode_switch(other))
    assert violation.request == number


def test_an_apology_that_does_not_come_ends_the_connection(peer: Impolite) -> None:
    """Whoever sends greedily might have one to make; but it finds out as soon as we do."""
    peer.data(bad_signature())
    peer.wait(SMALL.entry_alone_s)
    peer.wait(SMALL.apology_timeout_s - 1)
    with pytest.raises(RemoteViolation, match="without an apology"):
        peer.wait(1)


def test_an_apology_that_comes_ends_the_waiting_for_it(peer: Impolite) -> None:
    peer.data(bad_signature())
    peer.wait(SMALL.entry_alone_s)
    peer.data(encode_apology())
    peer.wait(2 * SMALL.apology_timeout_s)
    peer.data(metadata(HELD, 1), payload(HELD, 1))
    assert peer.store.logs[LOG][1].payload is not None


@pytest.mark.parametrize(
    "rest", [(SOLID(2), b"no"), (SOLID(2) + b"n", b"o"), (b"", SOLID(2) + b"no")]
)
def test_a_right_entry_whose_small_payload_comes_later_is_held_until_then(
    safe: Impolite, rest: tuple[bytes, bytes]
) -> None:
    first, second = rest
    held = log_of(1, lambda _: b"no")
    safe.data(metadata(held, 1) + first)
    safe.wait(SMALL.entry_alone_s)
    assert safe.store.logs[LOG][1].payload == (b"no" if first == SOLID(2) + b"no" else None)
    safe.data(second)
    safe.run()
    assert safe.store.logs[LOG][1].payload == b"no"


def test_an_invalid_payload_in_a_safe_direction_is_a_violation(safe: Impolite) -> None:
    violation = refused(safe, metadata(HELD, 1), SOLID(2), b"no")
    assert "its hash does not match" in violation.detail
    assert safe.number == violation.request


def test_an_invalid_large_payload_in_a_safe_direction_is_a_violation(safe: Impolite) -> None:
    refused(safe, metadata(BIG, 1), SOLID(200), b"2" * 200)
    assert safe.store.logs[LOG][1].payload is None


def test_a_32_does_not_excuse_invalid_data_in_a_safe_direction(safe: Impolite) -> None:
    """The verdict comes after the end of the request."""
    number = safe.number
    safe.engine.receive_data(
        metadata(BIG, 1) + SOLID(200) + b"2" * 200 + encode_request_cancelled(number)
    )
    with pytest.raises(RemoteViolation):
        safe.run()


def test_the_next_piece_after_an_invalid_one_is_a_violation(peer: Impolite) -> None:
    peer.data(metadata(HELD, 1), SOLID(2), b"no")
    violation = refused(peer, metadata(HELD, 2))
    assert "without an apology" in violation.detail


def test_a_verdict_that_comes_after_the_next_piece_is_a_violation(peer: Impolite) -> None:
    violation = refused(
        peer, bad_signature(), payload(HELD, 1), metadata(HELD, 2), payload(HELD, 2)
    )
    assert (violation.rule, violation.request) == ("point2point.md 8", peer.number)


@pytest.mark.rule("P2P-8.10")
def test_an_apology_takes_an_invalid_payload_back(peer: Impolite) -> None:
    peer.data(metadata(HELD, 1), SOLID(2), b"no", encode_apology(), entry_packets(HELD, []))
    peer.data(payload(HELD, 1), entry_packets(HELD, range(2, 6)))
    assert peer.store.logs[LOG][5].payload == b"p5"
    assert peer.store.logs[LOG][1].payload == b"p1"


@pytest.mark.rule("P2P-8.10")
def test_an_apology_takes_invalid_metadata_back(peer: Impolite) -> None:
    peer.data(entry_packets(HELD, [1]), bad_signature(2), encode_apology())
    peer.data(entry_packets(HELD, range(2, 6)))
    assert set(peer.store.logs[LOG]) == {1, 2, 3, 4, 5}


def test_an_apology_in_the_middle_of_a_payload_is_allowed_once(peer: Impolite) -> None:
    peer.data(metadata(BIG, 1), SOLID(100), b"x" * 100, encode_apology())
    violation = refused(peer, SOLID(100), b"1" * 100, encode_apology())
    assert "second apology" in violation.detail


def test_after_an_apology_in_the_middle_the_payload_begins_again(peer: Impolite) -> None:
    peer.data(metadata(BIG, 1), SOLID(100), b"x" * 100, encode_apology(), payload(BIG, 1))
    assert peer.store.logs[LOG][1].payload == BIG[1].payload


def test_an_apology_for_valid_data_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, metadata(HELD, 1), payload(HELD, 1), encode_apology())
    assert (violation.rule, violation.request) == ("point2point.md 8", peer.number)
    assert "valid data" in violation.detail


def test_an_apology_for_valid_metadata_is_a_violation(peer: Impolite) -> None:
    assert "valid data" in refused(peer, metadata(HELD, 1), encode_apology()).detail


def test_two_apologies_for_one_piece_are_a_violation(peer: Impolite) -> None:
    peer.data(metadata(HELD, 1), SOLID(2), b"no", encode_apology())
    violation = refused(peer, SOLID(2), b"no", encode_apology())
    assert "second apology" in violation.detail


def test_an_apology_for_what_was_not_sent_is_a_violation(peer: Impolite) -> None:
    violation = refused(peer, metadata(HELD, 1), encode_skip_unavailable(), encode_apology())
    assert "not sent" in violation.detail


def test_an_apology_in_a_safe_direction_is_a_violation(safe: Impolite) -> None:
    violation = refused(safe, metadata(BIG, 1), SOLID(1), b"1", encode_apology())
    assert "safe direction" in violation.detail


def test_an_offset_beyond_the_payload_is_a_violation(make: Make) -> None:
    """point2point.md 3."""
    peer = make(HELD)
    with pytest.raises(RemoteViolation) as caught:
        peer.control(propose(peer.number, 3, offset=2))
    assert (caught.value.rule, caught.value.request) == ("point2point.md 3", peer.number)


@pytest.mark.rule("P2P-8.02", "P2P-8.03")
def test_data_waits_for_the_answer_to_our_proposal_and_a_32_does_not(
    make: Make,
) -> None:
    """point2point.md 8; what is behind a switch to it is not read, an end or a switch is."""
    peer = make(HELD)
    peer.control(Grant(4))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    second = peer.open_request(1, end=3, upper_info=3)
    peer.data(encode_switch(own.request), encode_request_cancelled(own.request))
    peer.data(encode_switch(second), encode_request_cancelled(second))
    peer.control(cancel(own.request, CancelReason.NOT_WANTED), cancel(second))
    peer.sent()
    assert peer.engine.requests == 0


@pytest.mark.rule("P2P-8.02")
def test_data_for_our_unanswered_proposal_is_held(make: Make) -> None:
    peer = make({seq: HELD[seq] for seq in (1, 2, 3)})
    peer.control(Grant(4))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    peer.data(encode_switch(own.request), entry_packets(HELD, [4, 5], first=4))
    assert 4 not in peer.store.logs[LOG]
    assert not peer.engine.drained
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL))
    assert peer.store.logs[LOG][5].payload == b"p5"
