"""A payload in pieces whose entry is refused."""

import pytest

from peer.protocol.notices import FetchEnded
from tests.peer.impolite import (
    AUTHOR,
    LOG,
    SMALL,
    SWITCH,
    Impolite,
    cancel,
    entry_packets,
    log_of,
    metadata_packet,
    payload_packet,
    propose,
)
from tests.peer.rig import Held
from tests.records import replace
from wire import (
    Adjust,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_payload_header,
    encode_request_cancelled,
)


def test_a_payload_whose_entry_contradicts_what_is_held_is_not_kept_waiting() -> None:
    """Its file is closed: a few of them would otherwise end all reading."""
    first: dict[int, Held] = {}
    for payload in (b"one", b"two"):
        seq, entry = AUTHOR.entry(first, 0, payload)
        first[seq] = entry
    other = {1: first[1]}
    seq, entry = AUTHOR.entry(other, 0, b"x" * 100)
    other[seq] = entry
    peer = Impolite(first)
    number = peer.open_request()
    peer.data(SWITCH(number) + entry_packets(other, (1, 2)))
    assert peer.store.forks
    assert peer.engine.drained
    assert not peer.host.sinks


def test_nor_is_one_whose_entry_is_invalid_after_all_was_sent() -> None:
    """No apology can follow the end, so that nobody is to blame, and it is not waited for."""
    held: dict[int, Held] = {}
    seq, entry = AUTHOR.entry(held, 0, b"x" * 100)
    held[seq] = replace(entry, encoded=entry.encoded[:-1] + bytes([entry.encoded[-1] ^ 1]))
    peer = Impolite()
    number = peer.open_request()
    everything = SWITCH(number) + entry_packets(held, (1,)) + encode_request_cancelled(number)
    peer.engine.receive_data(everything)
    peer.control(cancel(number, CancelReason.NOT_WANTED))
    assert peer.engine.drained
    assert not peer.host.sinks
    assert not peer.store.logs[LOG]


@pytest.mark.parametrize("size", [20, 200])
@pytest.mark.parametrize(
    ("reason", "asked"), [(CancelReason.NOT_WANTED, []), (CancelReason.NO_RESOURCES, [(1, 0)])]
)
def test_a_wrong_payload_that_nobody_apologises_for_is_not_waited_for(
    size: int, reason: CancelReason, asked: list[tuple[int, int]]
) -> None:
    """Its sender may pass it on from somebody else, and says nothing after its cancel (section 8).

    What it withdrew with 128 is not asked of it (section 6), but others may be asked.
    """
    held = log_of(1, lambda _: b"p" * size)
    peer = Impolite()
    peer.control(Grant(50))
    number = peer.open_request()
    wrong = encode_payload_header(size) + b"q" * size
    peer.data(SWITCH(number), metadata_packet(held, 1), wrong)
    peer.control(cancel(number, reason))
    assert not [each for each in peer.host.notices if isinstance(each, FetchEnded)]
    peer.data(encode_request_cancelled(number))
    assert [each for each in peer.host.notices if isinstance(each, FetchEnded)]
    peer.messages()
    peer.wait(5.0)
    again = [each for each in peer.messages() if isinstance(each, Propose)]
    assert [(each.start, each.offset) for each in again] == asked


def test_a_range_that_ends_with_a_wrong_payload_is_given_up_for_a_while() -> None:
    """It began inside the payload of an entry, which came right: that one is none that rests."""
    whole = log_of(12)
    held = {seq: whole[seq] for seq in range(1, 5)}
    held[4] = replace(held[4], payload=None)
    peer = Impolite(held, proactive=True)
    peer.control(Grant(50))
    [asked] = [each for each in peer.messages() if isinstance(each, Propose)]
    assert (asked.start, asked.end, asked.offset) == (4, None, 0)
    peer.control(Adjust(asked.request, eagerness=Eagerness.NOTIFY, allow_skip=True))
    right, wrong = whole[4].payload, b"?" * len(whole[5].payload or b"")
    assert right is not None
    peer.data(
        SWITCH(asked.request),
        encode_payload_header(len(right)) + right,
        metadata_packet(whole, 5, is_first=True),
        encode_payload_header(len(wrong)) + wrong,
    )
    peer.control(cancel(asked.request, CancelReason.YOU_CANCELLED))
    peer.data(encode_request_cancelled(asked.request))
    # Our own end leaves, and the request is over.
    assert peer.sent() == encode_request_cancelled(asked.request)
    assert not [each for each in peer.messages() if isinstance(each, Propose)]
    assert peer.store.logs[LOG][4].payload == right
    assert peer.store.logs[LOG][5].payload is None


def test_a_small_one_that_is_wrong_has_an_end_though_nothing_can_be_begun_for_it() -> None:
    """It is given up, and counted once: the one behind it is read for what it is."""
    whole = log_of(4, lambda seq: bytes((seq,)) * (1000 if seq == 4 else 20))
    held = {seq: Held(whole[seq].encoded, whole[seq].hash, None) for seq in (2, 3)}
    peer = Impolite({1: whole[1], **held}, config=replace(SMALL, sinks_max=1))
    peer.control(propose(0, 4, starting_hash=whole[1].hash), Grant(64))
    [asked] = [each for each in peer.messages() if isinstance(each, Propose)]
    assert (asked.start, asked.end, asked.payloads_only) == (2, 3, True)
    peer.control(Adjust(asked.request, eagerness=Eagerness.ALL, allow_skip=True))
    begun = encode_payload_header(300) + (whole[4].payload or b"")[:300]
    peer.data(SWITCH(0), metadata_packet(whole, 4, is_first=True), begun)
    peer.data(SWITCH(asked.request), encode_payload_header(20) + b"x" * 20)
    assert cancel(asked.request, CancelReason.NO_RESOURCES) in peer.messages()
    incoming = next(each for each in peer.engine._table.all() if each.ours).incoming
    assert (incoming.position, incoming.progress) == (1, 0)
    peer.data(payload_packet(whole, 3))
    assert incoming.position == 2
