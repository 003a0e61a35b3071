"""A session tells how much of what the two sides allow each other is used, and what was saved."""

import pytest

from bymux import Role
from peer import LookUp, SessionConfig
from peer.session import Session
from tests.peer.test_session import Wire, store_of

from .rig import Store


def test_what_was_sent_is_in_flight_until_the_other_side_is_done_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = SessionConfig(data_credit_bytes=1 << 20)
    monkeypatch.setattr("tests.peer.test_session.CONFIG", config)
    wire = Wire(store_of(8000), Store())
    sender, receiver = (end.session for end in wire.ends)
    for _ in range(40):
        for side in (0, 1):
            wire.ends[0].work(0.0)
            wire.send(side)
            wire.deliver(1 - side, 1 << 16)
        # The receiver's look-ups are answered, but nothing that it has is ever stored.
        for command in receiver.commands():
            if isinstance(command, LookUp):
                for event in wire.ends[1].host._replies(command):
                    receiver.handle(event, 0.0)
    sent, received = sender.allowances(), receiver.allowances()
    credit = config.data_credit_bytes
    assert sent.outgoing_bytes == sent.outgoing_bytes_max == credit
    assert received.incoming_bytes == received.incoming_bytes_max == credit
    assert (sent.outgoing_waits, received.outgoing_waits) == (True, False)


def test_in_the_end_nothing_is_kept_back() -> None:
    wire = Wire(store_of(30), Store())
    wire.run()
    first, second = (end.session.allowances() for end in wire.ends)
    assert second.incoming_bytes == 0
    assert first.proposals_left > 0
    assert not first.outgoing_waits


def test_before_the_setup_nothing_is_allowed_and_nothing_waits() -> None:
    allowed = Session(Role.PROACTIVE, SessionConfig(), 0.0).allowances()
    assert (allowed.proposals_left, allowed.outgoing_waits) == (0, False)


def test_both_sides_count_the_same_that_compression_saved() -> None:
    wire = Wire(store_of(3, b"again and again " * 4000), Store())
    wire.run()
    sent, received = (end.session.statistics() for end in wire.ends)
    assert sent.saved_bytes_sent == received.saved_bytes_received > 100_000
    assert sent.saved_bytes_received == received.saved_bytes_sent == 0
    assert received.bytes_received < received.saved_bytes_received
