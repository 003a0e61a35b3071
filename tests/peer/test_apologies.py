"""Apologies as they are received, at every point (point2point.md 8)."""

import random

import pytest

from peer.protocol.config import SessionConfig
from peer.protocol.errors import RemoteViolation
from peer.protocol.notices import PayloadsReceived
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    LZFooEncoder,
    Propose,
    encode_apology,
    encode_compressed,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
)

from .impolite import LOG, Impolite, cancel, entry_packets, log_of
from .impolite import metadata_packet as metadata
from .impolite import payload_packet as payload
from .rig import Held

BIG = log_of(4, lambda seq: random.Random(seq).randbytes(200))
SORRY = encode_apology()


def raw(data: bytes) -> bytes:
    return encode_payload_header(len(data)) + data


def receiver(**options: object) -> Impolite:
    """A greedy receiver whose request is confirmed and current."""
    peer = Impolite(**options)  # type: ignore[arg-type]
    peer.open_request()
    peer.data(encode_switch(peer.number))
    return peer


def payload_of(peer: Impolite, seq: int) -> bytes | None:
    held = peer.store.logs[LOG].get(seq)
    return None if held is None else held.payload


def test_between_compressed_packets_the_window_goes_on() -> None:
    """What was taken back stays in the window, where the next packets refer to it."""
    text = b"words that come again, " * 20
    held = log_of(2, lambda seq: text)
    encoder = LZFooEncoder(1024)
    peer = receiver()

    def packed(data: bytes) -> bytes:
        return encode_compressed(len(data), encoder.encode(data))

    peer.data(metadata(held, 1), packed(text[:200]), packed(text[200:300]), SORRY)
    peer.data(packed(text[:100]), packed(text[100:]), metadata(held, 2), packed(text))
    assert [payload_of(peer, seq) for seq in (1, 2)] == [text, text]


@pytest.mark.parametrize("sent", [1, 100, 199])
def test_in_the_middle_of_a_payload(sent: int) -> None:
    peer = receiver()
    peer.data(metadata(BIG, 1), raw(b"x" * sent), SORRY, payload(BIG, 1), entry_packets(BIG, [2]))
    assert payload_of(peer, 1) == BIG[1].payload
    assert payload_of(peer, 2) == BIG[2].payload


def test_after_the_last_byte_it_waits_for_the_verdict() -> None:
    peer = receiver()
    peer.engine.receive_data(
        metadata(BIG, 1) + raw(b"x" * 200) + SORRY + payload(BIG, 1) + entry_packets(BIG, [2])
    )
    assert not peer.engine.drained
    peer.run()
    assert payload_of(peer, 1) == BIG[1].payload
    assert payload_of(peer, 2) == BIG[2].payload


def test_before_the_first_byte_it_is_for_the_metadata_which_is_valid() -> None:
    peer = receiver()
    with pytest.raises(RemoteViolation) as caught:
        peer.data(metadata(BIG, 1), SORRY)
    assert "valid data" in caught.value.detail


def test_after_a_skip_there_is_nothing_to_apologise_for() -> None:
    peer = receiver()
    with pytest.raises(RemoteViolation) as caught:
        peer.data(metadata(BIG, 1), encode_skip_unavailable(), SORRY)
    assert "not sent" in caught.value.detail


def test_after_an_apology_the_payload_may_be_skipped() -> None:
    peer = receiver()
    peer.data(metadata(BIG, 1), raw(b"x"), SORRY, encode_skip_unavailable())
    peer.data(entry_packets(BIG, [2]))
    assert (payload_of(peer, 1), payload_of(peer, 2)) == (None, BIG[2].payload)


def test_after_switching_away_and_back() -> None:
    peer = receiver()
    first = peer.number
    peer.data(metadata(BIG, 1), raw(b"x" * 50))
    peer.number += 2
    peer.open_request(1, end=1)
    peer.data(encode_switch(peer.number), encode_switch(first), SORRY, payload(BIG, 1))
    assert payload_of(peer, 1) == BIG[1].payload


@pytest.mark.parametrize("whole", [False, True])
def test_crossing_our_cancel_it_is_read_past(whole: bool) -> None:
    peer = receiver()
    [request] = peer.engine.actor.requests_of(LOG)
    peer.data(metadata(BIG, 1), raw(b"x" * 50))
    peer.engine._inbound.discard(request)
    peer.engine.actor.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
    peer.data(raw(b"x" * 150) if whole else b"", SORRY, payload(BIG, 1))
    peer.control(cancel(peer.number))
    peer.data(encode_request_cancelled(peer.number))
    peer.sent()
    assert peer.engine.requests == 0


def test_crossing_our_change_to_notifies_it_is_as_right_as_before() -> None:
    peer = receiver()
    [request] = peer.engine.actor.requests_of(LOG)
    peer.data(metadata(BIG, 1), raw(b"x" * 50))
    peer.engine._table.adjust(request, Adjust(request.number, eagerness=Eagerness.NOTIFY))
    peer.data(SORRY, payload(BIG, 1))
    assert payload_of(peer, 1) == BIG[1].payload


def test_without_one_the_end_of_the_request_leaves_nothing_wrong_behind() -> None:
    """None comes after the sender's own cancel."""
    peer = receiver()
    peer.engine.receive_data(
        metadata(BIG, 1) + raw(b"x" * 200) + encode_request_cancelled(peer.number)
    )
    peer.run()
    assert payload_of(peer, 1) is None


def test_a_payload_whose_size_nobody_knows_is_taken_back_as_well() -> None:
    """A request for payloads alone whose entries we do not hold: what comes is read past.

    Our own confirmation asks for none, so the interest is another one here.
    """
    peer = Impolite(BIG)
    peer.open_request(payloads_only=True, end=4, starting_hash=None)
    [request] = peer.engine.actor.requests_of(LOG)
    request.our_interest.set_eagerness(Eagerness.ALL, None)
    del peer.store.logs[LOG][1]
    peer.data(encode_switch(peer.number), payload(BIG, 1), SORRY, SORRY, payload(BIG, 1))
    assert request.incoming.adrift
    assert Cancel(peer.number, CancelReason.NO_RESOURCES) in peer.messages()


def resuming(part: bytes) -> Impolite:
    """A receiver that has asked for the rest of the payload of entry 1."""
    peer = Impolite({1: Held(BIG[1].encoded, BIG[1].hash, None)})
    peer.store.partial[LOG, 1] = part
    peer.control(b"\x00\x40")
    [own] = [message for message in peer.messages() if isinstance(message, Propose)]
    assert (own.start, own.offset) == (1, len(part))
    peer.number = own.request
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL))
    peer.data(encode_switch(own.request))
    return peer


def test_the_rest_of_a_resumed_payload_that_is_taken_back_is_asked_for_from_the_start() -> None:
    right = BIG[1].payload or b""
    peer = resuming(right[:50])
    peer.data(raw(b"x" * 20), SORRY)
    assert Cancel(peer.number, CancelReason.NO_RESOURCES) in peer.messages()
    peer.data(raw(right[50:]))
    assert payload_of(peer, 1) is None


@pytest.mark.parametrize("held", [1, 50, 199])
def test_of_a_payload_that_is_gone_on_with_only_what_came_counts(held: int) -> None:
    right = BIG[1].payload or b""
    peer = resuming(right[:held])
    peer.data(raw(right[held:]))
    assert payload_of(peer, 1) == right
    came = [each for each in peer.host.notices if isinstance(each, PayloadsReceived)]
    assert came == [PayloadsReceived(LOG, 1, len(right) - held)]


def test_a_payload_of_which_bytes_were_passed_over_blames_nobody() -> None:
    """They were sent by us, so that its hash was not checked: it may be taken back."""
    peer = Impolite({1: BIG[1]})
    number = peer.open_request()
    peer.data(encode_switch(number))
    peer.sent()
    peer.data(metadata(BIG, 1), raw(b"x" * 150), encode_skip_bytes(50), SORRY, payload(BIG, 1))
    peer.data(entry_packets(BIG, [2]))
    assert payload_of(peer, 2) == BIG[2].payload


def test_one_that_waits_for_its_verdict_is_idle_work_once() -> None:
    config = SessionConfig(small_payload_bytes_max=64, idle_work_max=2)
    peer = receiver(config=config)
    peer.engine.receive_data(metadata(BIG, 1) + raw(b"x" * 200) + SORRY)
    for _ in range(10):
        peer.engine.receive_data(b"")
    peer.run()
    peer.data(payload(BIG, 1))
    assert payload_of(peer, 1) == BIG[1].payload


def test_one_after_another_for_ever_are_idle_work() -> None:
    peer = receiver(config=SessionConfig(small_payload_bytes_max=64, idle_work_max=2))
    taken_back = (
        metadata(BIG, seq) + raw(b"x") + SORRY + encode_skip_unavailable() for seq in range(1, 5)
    )
    with pytest.raises(RemoteViolation) as caught:
        peer.engine.receive_data(b"".join(taken_back))
    assert caught.value.rule == "too much idle work"
