"""Setup, pings, timeouts and the good end of a session (point2point.md 1, 9), for both roles."""

from random import Random

import pytest
from nacl.signing import SigningKey

from bymux import Role
from peer.protocol.config import HEADERS_BYTES_MAX, SessionConfig
from peer.protocol.errors import RemoteViolation, SessionTimeout
from peer.protocol.events import Interests, InterestsChanged, LogChanged
from peer.protocol.notices import SetUp
from peer.session import DATA, Session
from tests.bymux.factory import write
from wire import LogKey, encode_setup, encode_switch

from .rig import Author, Host, Store

AUTHOR = Author(SigningKey(b"s" * 32))
LOG = LogKey(AUTHOR.id, 0)
CONFIG = SessionConfig(small_payload_bytes_max=64)
ROLES = pytest.mark.parametrize("role", list(Role))
SETUP = encode_setup(CONFIG.setup)
OPENING = bytes.fromhex("02 01 00400000") + bytes.fromhex("20 00 02 0040")
"""4 MiB that may come on data, and 64 proposals: known before anything is heard."""
FOLLOWS = InterestsChanged(Interests(logs=frozenset((LOG,))), (LOG,))


class End:
    """A session, its host and the bytes on their way to it."""

    def __init__(self, role: Role, store: Store, follows: InterestsChanged) -> None:
        self.session = Session(role, CONFIG, 0.0)
        self.host = Host(store)
        self.arriving = bytearray()
        self.session.handle(follows, 0.0)

    def work(self, now: float) -> bool:
        """Carry out all commands, as a host does; whether there were any."""
        commands = self.session.commands()
        for command in commands:
            for event in self.host._replies(command):
                self.session.handle(event, now)
        changes = [change for change in self.host.todo if isinstance(change, LogChanged)]
        self.host.todo.clear()
        for change in changes:
            self.session.handle(change, now)
        return bool(commands or changes)


class Wire:
    """Two sessions and a transport between them."""

    def __init__(self, left: Store, right: Store, follows: InterestsChanged = FOLLOWS) -> None:
        self.ends = (End(Role.PROACTIVE, left, follows), End(Role.REACTIVE, right, follows))
        self.now = 0.0

    def send(self, side: int, bytes_max: int = 1 << 16) -> int:
        data = self.ends[side].session.bytes_to_send(bytes_max)
        self.ends[1 - side].arriving += data
        return len(data)

    def deliver(self, side: int, size: int) -> int:
        """Bytes arrive at `side`."""
        end = self.ends[side]
        chunk = bytes(end.arriving[:size])
        del end.arriving[:size]
        if chunk:
            end.session.receive_bytes(chunk, self.now)
        return len(chunk)

    def run(self, size: int = 1 << 16) -> None:
        busy = True
        while busy:
            busy = False
            for side in (0, 1):
                busy = self.ends[side].work(self.now) or busy
                busy = bool(self.send(side)) or busy
                busy = bool(self.deliver(1 - side, size)) or busy


def store_of(count: int, payload: bytes = b"payload") -> Store:
    store = Store()
    for _ in range(count):
        store.append(AUTHOR, 0, payload)
    return store


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
def test_two_sessions_agree_however_the_bytes_are_split(size: int) -> None:
    wire = Wire(store_of(30), Store())
    wire.run(size)
    assert wire.ends[0].host.store.logs[LOG] == wire.ends[1].host.store.logs[LOG]
    assert all(end.session.established for end in wire.ends)


def test_a_log_that_is_new_while_the_setup_is_under_way_is_told_of() -> None:
    """Its author is followed by both, and nobody was told to offer it."""
    follows = InterestsChanged(Interests(authors=frozenset((AUTHOR.id,))), ())
    wire = Wire(store_of(3), Store(), follows)
    wire.ends[0].session.handle(LogChanged(LOG, 3, 3), 0.0)
    wire.run()
    assert wire.ends[1].host.store.logs[LOG] == store_of(3).logs[LOG]


def test_a_turn_of_a_large_payload_leaves_whole() -> None:
    """Headers and all: cut off, they took a turn and a read of their own."""
    wire = Wire(store_of(1, Random(1).randbytes(4 << 20)), Store())
    turn_bytes = 256 * 1024
    sent: list[int] = []
    for _ in range(1000):
        if not any(end.work(wire.now) for end in wire.ends) and sent and not sent[-1]:
            break
        sent.append(wire.send(0, turn_bytes))
        wire.send(1)
        wire.deliver(0, 1 << 20)
        wire.deliver(1, 1 << 20)
    assert wire.ends[0].host.store.logs[LOG] == wire.ends[1].host.store.logs[LOG]
    turns = [size for size in sent if size > 1000]
    assert len(turns) == 16
    assert all(turn_bytes < size <= turn_bytes + 2 * HEADERS_BYTES_MAX for size in turns)
    # The rest are messages, and not the ends of turns.
    assert all(size < 500 for size in sent if size not in turns)
    assert sum(bool(size) for size in sent) < len(turns) + 8


def test_statistics_count_what_was_moved() -> None:
    wire = Wire(store_of(5), Store())
    wire.run()
    for end in wire.ends:
        end.session.notices()
    sent, received = (end.session.statistics() for end in wire.ends)
    assert sent.entries_sent == received.entries_received == 5
    assert sent.payload_bytes_sent == received.payload_bytes_received == 35
    assert sent.bytes_sent == received.bytes_received
    assert sent.requests == 1


@ROLES
@pytest.mark.rule("P2P-1.02", "P2P-1.03", "P2P-1.05", "P2P-1.08")
def test_setup_is_sent_at_once_and_read_in_any_pieces(role: Role) -> None:
    session = Session(role, CONFIG, 0.0)
    assert session.bytes_to_send(100) == bytes.fromhex("03 fa010000 fa010000") + OPENING
    assert session.bytes_to_send(100) == b""
    for byte in SETUP[:-1]:
        session.receive_bytes(bytes((byte,)), 0.0)
        assert not session.established
    session.receive_bytes(SETUP[-1:], 0.0)
    assert session.established


@ROLES
@pytest.mark.rule("P2P-1.04", "P2P-1.06")
def test_the_six_high_bits_of_the_setup_are_ignored(role: Role) -> None:
    session = Session(role, CONFIG, 0.0)
    session.receive_bytes(b"\xff\x00\x00", 0.0)
    [setup] = session.notices()
    assert setup == SetUp(
        send_greedily=True, receive_greedily=True, compression_window=0, decompression_window=0
    )


@ROLES
@pytest.mark.rule("P2P-1.15")
def test_bymux_packets_may_come_right_behind_the_setup(role: Role) -> None:
    session = Session(role, CONFIG, 0.0)
    # A global ping, and 64 units of request credit on the control stream.
    session.receive_bytes(SETUP + b"\x50" + bytes.fromhex("2000020040"), 0.0)
    assert session.bytes_to_send(1000) == SETUP + OPENING
    assert b"\x70" in session.bytes_to_send(1000)


@ROLES
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        bytes.fromhex("1603010200010001fc0303") + bytes(range(64)),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        SETUP + bytes.fromhex("c0"),
        SETUP + bytes.fromhex("300002"),
        SETUP + bytes.fromhex("90"),
        SETUP + bytes.fromhex("200901"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_no_session_ends_with_a_rule(role: Role, garbage: bytes, size: int) -> None:
    session = Session(role, CONFIG, 0.0)
    pieces = (garbage[at : at + size] for at in range(0, len(garbage), size))

    def receive_all() -> None:
        for piece in pieces:
            session.receive_bytes(piece, 0.0)

    with pytest.raises(RemoteViolation) as caught:
        receive_all()
    assert caught.value.rule


@ROLES
@pytest.mark.rule("P2P-1.09")
def test_setup_has_10_s_however_much_comes(role: Role) -> None:
    """point2point.md 1: an absolute deadline."""
    session = Session(role, CONFIG, 100.0)
    assert session.next_deadline() == 110.0
    session.receive_bytes(SETUP[:1], 109.0)
    session.advance(109.9)
    with pytest.raises(SessionTimeout, match="setup not finished after 10 s"):
        session.advance(110.0)


@ROLES
def test_silence_is_answered_by_a_ping_and_then_by_the_end(role: Role) -> None:
    session = Session(role, CONFIG, 0.0)
    session.receive_bytes(SETUP, 1.0)
    while session.bytes_to_send(1000):
        pass
    assert session.next_deadline() == 31.0
    session.advance(30.9)
    assert session.bytes_to_send(1000) == b""
    session.advance(31.0)
    assert session.bytes_to_send(1000) == b"\x50"
    assert session.next_deadline() == 61.0
    session.receive_bytes(b"\x70", 60.0)
    session.advance(61.0)
    session.advance(90.0)
    with pytest.raises(SessionTimeout, match="no sign of life for 60 s"):
        session.advance(120.0)


@pytest.mark.parametrize("closer", [0, 1])
@pytest.mark.rule("P2P-1.16", roles="both")
def test_either_side_may_end_a_session_and_both_know(closer: int) -> None:
    wire = Wire(store_of(3), Store())
    wire.run()
    wire.ends[closer].session.close(0.0)
    wire.run()
    assert all(end.session.closed for end in wire.ends)


def test_both_may_end_it_at_once() -> None:
    wire = Wire(store_of(3), Store())
    wire.run()
    for end in wire.ends:
        end.session.close(0.0)
    wire.run()
    assert all(end.session.closed for end in wire.ends)


@pytest.mark.parametrize("moment", range(217, 6000, 217))
@pytest.mark.parametrize("closer", [0, 1])
@pytest.mark.rule("P2P-1.17", roles="both")
def test_what_the_closer_sent_is_kept_before_its_close_is_answered(
    moment: int, closer: int
) -> None:
    """Ended in the middle of pieces and packets; nobody has to wait for the close timeout."""
    wire = Wire(store_of(20, b"x" * 200), Store())
    sent = 0
    while sent < moment:
        for side in (0, 1):
            wire.ends[side].work(0.0)
        step = wire.send(0, 64) + wire.send(1, 64)
        sent += step
        for side in (0, 1):
            wire.deliver(side, 50)
        if not step and not wire.ends[0].arriving and not wire.ends[1].arriving:
            break
    wire.ends[closer].session.close(0.0)
    other = wire.ends[1 - closer]
    for _ in range(10_000):
        if wire.ends[closer].session.closed:
            break
        wire.ends[closer].work(0.0)
        wire.send(closer)
        wire.deliver(1 - closer, 50)
        # The other host is as slow as can be: whatever answers the Close, its work was done before.
        if not other.arriving:
            other.work(0.0)
            wire.send(1 - closer)
        wire.deliver(closer, 50)
    assert wire.ends[closer].session.closed
    assert other.session.closed
    engine = other.session._engine
    assert engine is None or engine.drained
    assert not other.host.sinks


@ROLES
@pytest.mark.rule("P2P-1.18")
def test_the_closer_waits_5_s_and_no_longer(role: Role) -> None:
    session = Session(role, CONFIG, 0.0)
    session.receive_bytes(SETUP, 0.0)
    while session.bytes_to_send(1000):
        pass
    session.close(1.0)
    drip = encode_switch(1 << 62)[:-1]
    assert len(drip) * 0.7 > 5.0
    for number, byte in enumerate(drip, 1):
        # Something is on its way all the time.
        session.advance(1.0 + 0.7 * number)
        assert session.closed == (number >= 8)
        session.receive_bytes(write(DATA, bytes((byte,))), 1.0 + 0.7 * number)
    session.advance(6.0)
    assert session.closed


@ROLES
def test_a_session_without_setup_closes_at_once(role: Role) -> None:
    session = Session(role, CONFIG, 0.0)
    session.close(0.0)
    assert session.closed


def amid_a_payload(payload: bytes) -> Wire:
    """Some of it has reached the other end, and more is under way."""
    wire = Wire(store_of(1, payload), Store())
    while not wire.ends[1].host.sinks:
        for side in (0, 1):
            wire.ends[side].work(0.0)
            wire.send(side, 64)
            wire.deliver(1 - side, 40)
    for _ in range(3):
        wire.send(0, 64)
        wire.deliver(1, 64)
        wire.ends[1].work(0.0)
    return wire


def test_a_lost_connection_keeps_what_is_whole_and_what_can_be_resumed() -> None:
    wire = amid_a_payload(b"x" * 1000)
    lost = wire.ends[1]
    lost.session.receive_eof(0.0)
    lost.work(0.0)
    assert lost.session.closed
    assert not lost.host.sinks
    assert lost.host.store.logs[LOG][1].payload is None
    assert b"x" * 1000 > lost.host.store.partial[LOG, 1] > b""


@pytest.mark.parametrize("size", [1000, 100_000], ids=["small", "large"])
def test_what_was_suspended_as_no_more_comes_is_not_begun_anew(size: int) -> None:
    """Control messages go on behind the end of the data, and each has the data looked at."""
    wire = amid_a_payload(Random(1).randbytes(size))
    engine, host = wire.ends[1].session._engine, wire.ends[1].host
    assert engine is not None
    engine.data_ended()
    wire.ends[1].work(0.0)
    kept = host.store.partial[LOG, 1]
    assert kept
    engine.receive_control(b"")
    wire.ends[1].work(0.0)
    assert not host.sinks
    assert host.store.partial[LOG, 1] == kept


def test_a_session_that_has_failed_says_and_takes_nothing_any_more() -> None:
    """Whoever is about to write, to tell it something or to close it may not know yet."""
    session = Session(Role.REACTIVE, CONFIG, 0.0)
    session.handle(FOLLOWS, 0.0)
    with pytest.raises(RemoteViolation):
        session.receive_bytes(SETUP + bytes.fromhex("2001026162"), 0.0)
    assert session.bytes_to_send(1 << 16) == b""
    session.advance(2 * CONFIG.idle_timeout_s)
    session.handle(FOLLOWS, 1.0)
    session.close(1.0)
    session.receive_bytes(b"more", 1.0)
    assert session.bytes_to_send(1 << 16) == b""
    session.receive_eof(1.0)
