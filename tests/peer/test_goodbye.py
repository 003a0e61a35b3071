"""How long the other side is waited for when a session ends in good order (point2point.md 1)."""

from collections.abc import Callable

import pytest

from bymux import Role
from peer.goodbye import PIECE_BYTES
from peer.protocol.config import SessionConfig
from peer.session import CONTROL, DATA, Session
from tests.bymux.factory import CLOSE, CREDIT, PING, PONG, STOP_READ, packet, write
from wire import Grant, encode_control

from .rig import Store
from .test_session import SETUP, Wire, store_of

CONFIG = SessionConfig()
STEP_S, MOST_S = CONFIG.close_step_s, CONFIG.close_timeout_s
BEGAN_S = 10.0
ROLES = pytest.mark.parametrize("role", list(Role))
PINGED, ANSWERED = packet(PING, None), packet(PONG, None)


def ending(role: Role = Role.REACTIVE) -> Session:
    """A session that is set up and has begun to end; the other side has taken what it said."""
    session = Session(role, CONFIG, 0.0)
    session.receive_bytes(SETUP + packet(CREDIT, DATA, 1 << 20), 0.0)
    drain(session, 0.0)
    session.close(BEGAN_S)
    drain(session, BEGAN_S)
    return session


def drain(session: Session, now: float) -> bytes:
    """All that a transport takes now."""
    sent = b""
    while data := session.bytes_to_send(1 << 16, now):
        sent += data
    return sent


def end_of(session: Session, since: float, every_s: float, keep: Callable[[float], None]) -> float:
    """When it is over although somebody does something again and again."""
    now = since
    while not session.closed:
        now = min(now + every_s, session.next_deadline() or 0.0)
        session.advance(now)
        if not session.closed:
            keep(now)
            drain(session, now)
    return now


@ROLES
def test_who_is_silent_is_waited_for_a_moment(role: Role) -> None:
    session = ending(role)
    assert end_of(session, BEGAN_S, 10.0, lambda _: None) == BEGAN_S + STEP_S


FLOODS = {
    "pings": PINGED,
    "grants": write(CONTROL, encode_control(Grant(1))),
    "credits": packet(CREDIT, DATA, 1),
    "half a message": write(CONTROL, b"\x00"),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_what_moves_nothing_keeps_nobody(flood: bytes) -> None:
    session = ending()
    ended = end_of(session, BEGAN_S, 0.1, lambda now: session.receive_bytes(flood, now))
    assert ended == BEGAN_S + STEP_S


def test_who_closes_one_channel_has_a_moment_for_the_other() -> None:
    session = ending()
    at_s = BEGAN_S + 0.7
    session.receive_bytes(packet(CLOSE, CONTROL), at_s)
    assert end_of(session, at_s, 10.0, lambda _: None) == at_s + STEP_S


def test_who_answered_pings_slowly_has_two_round_trips() -> None:
    session = Session(Role.REACTIVE, CONFIG, 0.0)
    session.receive_bytes(SETUP, 0.0)
    drain(session, 0.0)
    asked_s = CONFIG.ping_after_s
    session.advance(asked_s)
    assert drain(session, asked_s) == PINGED
    session.receive_bytes(ANSWERED, asked_s + 2.0)
    session.close(40.0)
    drain(session, 40.0)
    assert end_of(session, 40.0, 10.0, lambda _: None) == 44.0


def sending() -> Session:
    """A session in the middle of a large payload, of which much is still to be taken."""
    wire = Wire(store_of(400, b"x" * 200), Store())
    giver = wire.ends[0].session
    while giver._queued < 3 * PIECE_BYTES:
        for side in (0, 1):
            wire.ends[side].work(0.0)
            wire.send(side, 64)
            wire.deliver(1 - side, 1 << 16)
    return giver


def test_while_the_transport_takes_what_was_queued_it_is_waited_for() -> None:
    session = sending()
    session.close(BEGAN_S)
    now = taken_s = BEGAN_S
    for _ in range(3):
        assert 0 < len(session.bytes_to_send(1 << 20, now)) <= PIECE_BYTES + 64
        taken_s, now = now, now + 0.9 * STEP_S
        session.advance(now)
        assert not session.closed
    # It takes the third piece no more.
    assert session.next_deadline() == taken_s + STEP_S


def test_while_what_the_transport_took_arrives_it_is_waited_for() -> None:
    session = ending()
    held = [5000, 4000, 4000, 4500, 4000, 3999]
    at_s = BEGAN_S
    for count in held[:2]:
        at_s += 0.5
        session.transport_holds(count, at_s)
    assert session.next_deadline() == at_s + STEP_S
    for count in held[2:5]:
        session.transport_holds(count, at_s + 0.2)
    assert session.next_deadline() == at_s + STEP_S
    session.transport_holds(held[5], at_s + 0.9)
    assert session.next_deadline() == at_s + 0.9 + STEP_S


def test_who_has_read_it_and_may_have_to_store_something_has_all_the_time() -> None:
    session = sending()
    session.close(BEGAN_S)
    sent = drain(session, BEGAN_S)
    assert sent.endswith(PINGED)
    session.receive_bytes(ANSWERED, BEGAN_S + 0.1)
    assert end_of(session, BEGAN_S, 10.0, lambda _: None) == BEGAN_S + MOST_S


def test_who_has_read_it_and_was_sent_nothing_has_a_moment() -> None:
    session = ending()
    session.receive_bytes(ANSWERED, BEGAN_S + 0.1)
    assert end_of(session, BEGAN_S, 10.0, lambda _: None) == BEGAN_S + 0.1 + STEP_S


def test_a_pong_that_is_owed_when_all_is_over_is_waited_for_by_nobody() -> None:
    session = ending()
    said = [packet(kind, stream) for kind in (CLOSE, STOP_READ) for stream in (CONTROL, DATA)]
    session.receive_bytes(b"".join(said) + PINGED, BEGAN_S)
    assert session.both_closed
