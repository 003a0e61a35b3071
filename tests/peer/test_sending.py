"""What an engine sends, byte by byte, to a script that asks (point2point.md 3, 4, 6)."""

import pytest

from peer.protocol.events import EntriesRead, LogChanged, LogView, LookedUp, PayloadRead
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_notify,
    encode_request_cancelled,
    encode_skip_unavailable,
    encode_switch,
)

from .impolite import LOG, Impolite, cancel, entry_packets, log_of, propose
from .impolite import metadata_packet as metadata
from .impolite import payload_packet as payload
from .rig import Held

HELD = log_of(40)
END = encode_request_cancelled(0)
SWITCH = encode_switch(0)


def server(upto: int = 40) -> Impolite:
    """It holds the log up to there and wants nothing."""
    return Impolite({seq: HELD[seq] for seq in range(1, upto + 1)}, follows=False)


def without_payloads(*seqs: int) -> dict[int, Held]:
    held = dict(HELD)
    for seq in seqs:
        held[seq] = Held(held[seq].encoded, held[seq].hash, None)
    return held


def test_a_finite_range_is_sent_and_ended() -> None:
    """point2point.md 6: 130 right after the last packet, and the 32."""
    peer = server()
    peer.open_request(end=3)
    assert peer.sent() == SWITCH + entry_packets(HELD, [1, 2, 3]) + END
    assert Cancel(0, CancelReason.COMPLETE) in peer.messages()


@pytest.mark.parametrize(("upper_info", "upper"), [(15, []), (17, [16, 17]), (40, [16, 17])])
def test_pools_come_before_and_after_the_body(upper_info: int, upper: list[int]) -> None:
    """Of the upper pool only what is held; the confirmation says so (sections 3 and 5)."""
    peer = server(upto=20)
    peer.control(propose(0, 11, lower_info=4, end=15, upper_info=upper_info))
    [confirmation] = [m for m in peer.messages() if isinstance(m, Adjust)]
    assert confirmation.upper_info == (17 if upper_info > 20 else None)
    expected = b"".join(metadata(HELD, seq, is_first=True) for seq in (4, 8, 9, 10))
    expected += entry_packets(HELD, range(11, 16))
    expected += b"".join(metadata(HELD, seq) for seq in upper)
    assert peer.sent() == SWITCH + expected + END


def test_a_payload_is_skipped_if_it_is_not_held_and_may_be() -> None:
    peer = Impolite(without_payloads(2), follows=False)
    peer.open_request(end=3)
    expected = entry_packets(HELD, [1]) + metadata(HELD, 2) + encode_skip_unavailable()
    assert peer.sent() == SWITCH + expected + entry_packets(HELD, [3]) + END


def test_a_mandatory_payload_that_is_not_held_ends_the_request() -> None:
    peer = Impolite(without_payloads(2), follows=False)
    peer.open_request(end=3, mandatory=True)
    assert peer.sent() == SWITCH + entry_packets(HELD, [1]) + metadata(HELD, 2) + END
    assert Cancel(0, CancelReason.PAYLOAD_MANDATORY) in peer.messages()


def test_what_the_other_side_sent_is_passed_by_a_notify_when_something_follows() -> None:
    peer = Impolite({1: HELD[1], 2: HELD[2]})
    peer.open_request(3, lower_info=1)
    peer.data(SWITCH, metadata(HELD, 1), metadata(HELD, 2), entry_packets(HELD, [3, 4]))
    assert peer.sent() == b""
    peer.store.logs[LOG][5] = HELD[5]
    peer.host.todo.append(LogChanged(LOG, 5, 5))
    assert peer.sent() == SWITCH + encode_notify(6) + entry_packets(HELD, [5])


def test_a_skipped_payload_is_passed_by_a_skip_not_by_a_notify() -> None:
    """It was not transmitted, so a notify would say that it was (section 4)."""
    peer = Impolite({})
    peer.open_request()
    peer.data(SWITCH, metadata(HELD, 1), encode_skip_unavailable(), entry_packets(HELD, [2]))
    peer.store.logs[LOG][3] = HELD[3]
    peer.host.todo.append(LogChanged(LOG, 3, 3))
    expected = encode_notify(1) + encode_skip_unavailable() + encode_notify(2)
    assert peer.sent() == SWITCH + expected + entry_packets(HELD, [3])


def test_a_skipped_payload_that_we_hold_is_sent() -> None:
    peer = Impolite({1: HELD[1]})
    peer.open_request()
    peer.data(SWITCH, metadata(HELD, 1), encode_skip_unavailable())
    assert peer.sent() == SWITCH + encode_notify(1) + payload(HELD, 1)


def test_the_backlink_is_sent_if_its_target_was_only_notified_of() -> None:
    """point2point.md 4: a piece that was merely notified was not transmitted."""
    peer = server()
    peer.control(propose(0, 12))
    [confirmation] = [m for m in peer.messages() if isinstance(m, Adjust)]
    assert confirmation.eagerness is Eagerness.NOTIFY
    peer.data(SWITCH, encode_notify(2))
    assert peer.sent().startswith(SWITCH + encode_notify(2) + metadata(HELD, 13, is_first=True))


def test_the_backlink_is_expected_if_its_target_was_only_notified_of() -> None:
    """The same, from the receiver's side: we notify of 12, they send 13 with its backlink."""
    peer = Impolite({seq: HELD[seq] for seq in range(1, 13)})
    peer.control(propose(0, 12, eagerness=Eagerness.NOTIFY))
    peer.messages()
    assert peer.sent() == SWITCH + encode_notify(2)
    peer.data(SWITCH, encode_notify(2), metadata(HELD, 13, is_first=True), payload(HELD, 13))
    assert peer.store.logs[LOG][13].payload == b"p13"


def test_what_was_appended_before_the_confirmation_is_sent() -> None:
    """A change that comes while a proposal is unanswered is not forgotten."""
    peer = Impolite({1: HELD[1]}, proactive=True)
    peer.control(Grant(3))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    peer.store.logs[LOG][2] = HELD[2]
    peer.host.todo.append(LogChanged(LOG, 2, 2))
    peer.run()
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL))
    assert peer.sent() == encode_switch(own.request) + entry_packets(HELD, [2])


def test_a_log_that_ended_before_the_confirmation_is_cut() -> None:
    peer = Impolite({1: HELD[1]}, proactive=True)
    peer.control(Grant(3))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    peer.host.todo.append(LogChanged(LOG, 2, 2, end=2))
    peer.run()
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL))
    assert Adjust(own.request, end=2) in peer.messages()


def test_an_end_that_follows_an_end_is_preceded_by_a_switch() -> None:
    """point2point.md 6."""
    peer = server()
    for number in (0, 2):
        peer.number = number
        peer.open_request()
    peer.sent()
    peer.control(cancel(2), cancel(0))
    assert peer.sent() == (
        encode_request_cancelled(2) + encode_switch(0) + encode_request_cancelled(0)
    )


def test_replies_for_requests_that_are_gone_are_ignored() -> None:
    peer = server()
    peer.engine.handle(EntriesRead(99, ()))
    peer.engine.handle(PayloadRead(99, 1, 0, b"x"))
    peer.engine.handle(LookedUp(99, LogView(LOG)))
    assert peer.sent() == b""
