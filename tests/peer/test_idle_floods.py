"""What is legal, free for whoever sends it, and work for us: it has its turn, and an end."""

import pytest

from bymux import Role
from peer import RemoteViolation, Session, SessionConfig, default_setup
from wire import Grant, encode_control, encode_setup


def session(turn_packets: int | None = None) -> Session:
    made = Session(Role.REACTIVE, SessionConfig(turn_packets=turn_packets), 0.0)
    made.receive_bytes(encode_setup(default_setup()), 0.0)
    return made


class Flood:
    """Packets of a peer, as bymux on its side makes them."""

    def __init__(self) -> None:
        self.other = Session(Role.PROACTIVE, SessionConfig(), 0.0)
        self.other.receive_bytes(encode_setup(default_setup()), 0.0)
        self.other.bytes_to_send(1 << 20)
        self.mux = self.other._mux

    def credits(self, count: int) -> bytes:
        parts = []
        for _ in range(count):
            self.mux.grant(1, 1)
            parts.append(self.mux.data_to_send())
        return b"".join(parts)

    def writes(self, data: bytes, size: int) -> bytes:
        parts = []
        for offset in range(0, len(data), size):
            self.mux.send(0, data[offset : offset + size])
            parts.append(self.mux.data_to_send())
        return b"".join(parts)


def test_credit_a_byte_at_a_time_is_idle_work() -> None:
    session().receive_bytes(Flood().credits(60), 0.0)
    with pytest.raises(RemoteViolation, match="idle work"):
        session().receive_bytes(Flood().credits(2000), 0.0)


def test_grants_of_a_unit_at_a_time_are_idle_work() -> None:
    grants = encode_control(Grant(1))
    session().receive_bytes(Flood().writes(grants * 60, 64), 0.0)
    with pytest.raises(RemoteViolation, match="idle work"):
        session().receive_bytes(Flood().writes(grants * 2000, 64), 0.0)


def test_writes_of_a_byte_that_complete_nothing_are_idle_work() -> None:
    # A grant of a large number is one message of nine bytes or so.
    message = encode_control(Grant(2**40))
    with pytest.raises(RemoteViolation, match="idle work"):
        session().receive_bytes(Flood().writes(message * 400, 1), 0.0)


def test_time_and_pauses_let_the_same_pass() -> None:
    made, flood = session(), Flood()
    for second in range(200):
        made.receive_bytes(flood.credits(30), float(second))
    assert made.established


def test_a_turn_ends_and_the_rest_is_read_later() -> None:
    made = session(turn_packets=100)
    made.receive_bytes(Flood().credits(250), 0.0)
    turns = 1
    while made.has_unread:
        made.read_on(0.0)
        turns += 1
    assert turns == 3


def test_what_comes_in_turns_is_what_comes_at_once() -> None:
    data = Flood().writes(encode_control(Grant(1)) * 50, 1)
    at_once, in_turns = session(), session(turn_packets=7)
    at_once.receive_bytes(data, 0.0)
    for start in range(0, len(data), 11):
        in_turns.receive_bytes(data[start : start + 11], 0.0)
        while in_turns.has_unread:
            in_turns.read_on(0.0)
    left = at_once.allowances().proposals_left
    assert in_turns.allowances().proposals_left == left > 0
