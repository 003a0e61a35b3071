"""What the peer sends is either legal, or ends the connection with a reason."""

import itertools
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bymux import (
    INFINITE,
    CloseReceived,
    Config,
    Connection,
    CreditReceived,
    DataReceived,
    Event,
    InitialStream,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    StopReadReceived,
    StreamEnded,
    StreamOpened,
)
from bymux.inbox import VIEW_BYTES_MIN

from .factory import (
    CLOSE,
    CREDIT,
    PING,
    PONG,
    STOP_READ,
    U64_MAX,
    WRITE,
    everything_from,
    merged,
    packet,
    parse,
    receive,
    write,
)

CONTROL_AND_DATA = Config(
    initial_streams=(InitialStream(0, INFINITE, INFINITE), InitialStream(1)),
    streams_creatable=False,
)
STREAM_INPUTS = {
    "Write": packet(WRITE, 4, 1, b"x"),
    "Credit": packet(CREDIT, 4, 1),
    "Close": packet(CLOSE, 4),
    "StopRead": packet(STOP_READ, 4),
    "Ping": packet(PING, 4),
    "Pong": packet(PONG, 4),
}
FORBIDDEN_AFTER = {
    "Write": {"Close"},
    "Close": {"Close"},
    "Credit": {"StopRead"},
    "StopRead": {"StopRead"},
    "Ping": {"Close", "StopRead"},
    "Pong": {"Close", "StopRead"},
}
SAYINGS = [set[str](), {"Close"}, {"StopRead"}, {"Close", "StopRead"}]


@pytest.mark.parametrize("answer_close", [True, False])
@pytest.mark.parametrize("name", STREAM_INPUTS)
@pytest.mark.parametrize(("ours", "theirs"), list(itertools.product(SAYINGS, SAYINGS)))
@pytest.mark.rule("BYMUX-4.01", "BYMUX-4.02")
def test_every_input_in_every_state_is_legal_or_ends_the_connection(
    ours: set[str], theirs: set[str], name: str, answer_close: bool
) -> None:
    config = Config(initial_streams=(InitialStream(4, 9, 9),), answer_close=answer_close)
    connection = Connection(Role.REACTIVE, config)
    if "Close" in ours:
        connection.close(4)
    if "StopRead" in ours:
        connection.stop_read(4)
    for said in sorted(theirs):
        connection.receive_data(STREAM_INPUTS[said])
    # bymux.md: "A Close is answered by StopRead (unless sent already), a StopRead by Close".
    our_sayings = ours | ({"Close"} if "StopRead" in theirs else set())
    our_sayings |= {"StopRead"} if "Close" in theirs and answer_close else set()
    sent = {seen.kind for seen in parse(everything_from(connection))}
    assert sent == {{"Close": CLOSE, "StopRead": STOP_READ}[said] for said in our_sayings}
    is_active = len(our_sayings) < 2 or len(theirs) < 2
    assert connection.is_active(4) == is_active

    _, error = receive(connection, STREAM_INPUTS[name])
    if not is_active:
        assert error is not None
        assert error.rule == "bymux.md Packets"
    elif FORBIDDEN_AFTER[name] <= theirs:
        assert error is not None
        assert error.rule == "bymux.md Closing"
        assert name in error.detail
    else:
        assert error is None
    if error is not None:
        assert error.stream == 4
        assert_dead(connection)


def assert_dead(connection: Connection) -> None:
    """Nothing goes in or out any more, and the reason stays the same."""
    _, first = receive(connection, b"\x50")
    events, second = receive(connection, b"")
    assert first is not None
    assert str(first) == str(second)
    assert not events
    assert not connection.wants_to_send
    assert connection.data_to_send() == b""
    with pytest.raises(LocalProtocolError, match="the connection has ended"):
        connection.ping()


@pytest.mark.parametrize("first", range(0xC0, 0x100))
def test_types_that_do_not_exist_end_the_connection(first: int) -> None:
    connection = Connection(Role.REACTIVE)
    _, error = receive(connection, bytes((first,)))
    assert error is not None
    assert (error.rule, error.value) == ("bymux.md Packets", first)
    assert_dead(connection)


@pytest.mark.parametrize("name", STREAM_INPUTS)
def test_packets_of_a_stream_that_is_not_active_end_the_connection(name: str) -> None:
    connection = Connection(Role.REACTIVE)
    _, error = receive(connection, STREAM_INPUTS[name])
    assert error is not None
    assert str(error) == f"{name} of stream 4, which is not active (bymux.md Packets)"


@pytest.mark.parametrize("low_bits", range(16))
@pytest.mark.parametrize("kind", range(6))
def test_with_creation_closed_only_global_ping_and_pong_are_legal(kind: int, low_bits: int) -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    _, error = receive(connection, bytes((kind << 5 | 1 << 4 | low_bits,)) + bytes(8))
    if kind in {PING, PONG}:
        # The zeros behind it are a Credit of 0 for stream 0, and twice so.
        assert error is None
        assert everything_from(connection) == (b"\x70" if kind == PING else b"")
    else:
        assert error is not None
        assert error.rule == "bymux.md Closing"
        assert "global" in error.detail
        assert_dead(connection)


@pytest.mark.parametrize("given_widths", list(itertools.product((1, 2, 4, 8), repeat=2)))
def test_readers_accept_numbers_that_are_wider_than_needed(given_widths: tuple[int, int]) -> None:
    id_width, amount_width = given_widths
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    data = packet(WRITE, 0, 3, b"abc", id_width=id_width, amount_width=amount_width)
    assert merged(connection.receive_data(data)) == [DataReceived(0, b"abc")]


@pytest.mark.parametrize("low_bits", range(4))
def test_bits_without_a_meaning_are_ignored(low_bits: int) -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    connection.receive_data(bytes((PING << 5 | low_bits, 1)))
    assert everything_from(connection) == packet(PONG, 1)


def test_events_before_a_bad_packet_are_not_lost() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    good = write(0, b"abc") + packet(CREDIT, 1, 5) + packet(CLOSE, 1)
    events, error = receive(connection, good + packet(CLOSE, 1) + write(0, b"lost"))
    assert events == [DataReceived(0, b"abc"), CreditReceived(1), CloseReceived(1)]
    assert error is not None
    assert "Close after Close" in str(error)


@pytest.mark.parametrize(("credit", "amount"), [(0, 1), (5, 6), (5, U64_MAX), (2**64 - 2, U64_MAX)])
def test_a_write_beyond_the_credit_ends_before_one_byte_is_taken(credit: int, amount: int) -> None:
    config = Config(initial_streams=(InitialStream(4, receive_credit=credit),))
    connection = Connection(Role.REACTIVE, config)
    events, error = receive(connection, packet(WRITE, 4, amount) + b"body")
    assert not events
    assert error is not None
    assert (error.rule, error.stream, error.value) == ("bymux.md Credit", 4, amount)


def test_credit_that_is_granted_but_not_sent_does_not_count() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    connection.grant(1, 10)
    with pytest.raises(RemoteProtocolError, match="Write of 1 bytes with a credit of 0"):
        connection.receive_data(write(1, b"x"))


@pytest.mark.rule("BYMUX-2.08")
def test_a_write_of_two_to_62_bytes_takes_flat_memory() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    chunk = bytes(64 * 1024)
    connection.receive_data(packet(WRITE, 0, 2**62))
    tracemalloc.start()
    for _ in range(200):
        assert connection.receive_data(chunk) == [DataReceived(0, chunk)]
        connection.consumed(0, len(chunk))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024
    assert not connection.wants_to_send


@pytest.mark.parametrize("size", [VIEW_BYTES_MIN - 1, VIEW_BYTES_MIN])
def test_a_large_body_is_not_copied(size: int) -> None:
    """A small one is: a view of it would keep all that came with it."""
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    came = write(0, bytes(size)) + write(0, b"abc")
    first, second = connection.receive_data(came)
    assert isinstance(first, DataReceived)
    assert isinstance(second, DataReceived)
    assert (bytes(first.data), bytes(second.data)) == (bytes(size), b"abc")
    is_view = isinstance(first.data, memoryview) and first.data.obj is came
    assert is_view is (size >= VIEW_BYTES_MIN)
    assert isinstance(second.data, bytes)


FLOODS = {
    "Write of 0 bytes": packet(WRITE, 1, 0),
    "Credit of 0": packet(CREDIT, 0, 0),
    "Ping": packet(PING, 1),
    "Pong": packet(PONG, 1),
}


def test_a_flood_of_global_credit_of_0_ends() -> None:
    """None is ever infinite there, so it is as void as on an infinite stream."""
    connection = Connection(Role.REACTIVE)
    assert connection.receive_data(packet(CREDIT, None, 0) * 1000) == []
    with pytest.raises(RemoteProtocolError, match="global: too much idle work"):
        connection.receive_data(packet(CREDIT, None, 0))


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.rule("BYMUX-7.03")
def test_a_flood_of_packets_without_effect_ends_and_takes_flat_memory(name: str) -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    tracemalloc.start()
    assert connection.receive_data(FLOODS[name] * 1000) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 1024
    _, error = receive(connection, FLOODS[name])
    assert error is not None
    assert error.rule == "bymux.md Idle work"
    assert f"this {name} is one more than the 1000 packets" in str(error)
    assert_dead(connection)


def test_time_and_data_let_idle_packets_pass_again() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    connection.receive_data(packet(PONG, 1) * 1000, now=5.0)
    connection.receive_data(packet(PONG, 1) * 33, now=6.0)
    connection.receive_data(write(0, b"x" * 40) + packet(PONG, 1) * 40, now=6.0)
    with pytest.raises(RemoteProtocolError, match="too much idle work"):
        connection.receive_data(packet(PONG, 1), now=6.0)


def test_more_pings_than_pongs_may_be_owed_end_the_connection() -> None:
    config = Config(
        initial_streams=CONTROL_AND_DATA.initial_streams,
        limits=Limits(pongs_owed_max=3, idle_work_max=10**6),
    )
    connection = Connection(Role.REACTIVE, config)
    connection.receive_data(packet(PING, 0) * 3 + packet(PING, 1) * 3 + packet(PING, None) * 3)
    assert connection.statistics().pongs_owed == 9
    _, error = receive(connection, packet(PING, 0))
    assert error is not None
    assert error.rule == "bymux.md Ping, Pong"


def test_asked_pongs_are_reported_and_no_idle_work() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    for _ in range(1500):
        connection.ping(1)
        assert connection.data_to_send() == packet(PING, 1)
        assert len(connection.receive_data(packet(PONG, 1))) == 1
    assert connection.statistics().idle_work == 0


def test_a_pong_that_overtakes_our_ping_is_unasked() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    connection.ping()
    assert connection.receive_data(packet(PONG, None)) == []


def test_credit_is_reported_once_per_stream_and_call() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    assert connection.receive_data(packet(CREDIT, 1, 5) * 10) == [CreditReceived(1)]
    assert connection.sendable(1) == 50
    assert connection.receive_data(packet(CREDIT, 1, 5)) == [CreditReceived(1)]


@pytest.mark.rule("BYMUX-2.09")
def test_the_peer_creates_streams_of_its_parity_for_credit() -> None:
    connection = Connection(Role.REACTIVE)
    connection.grant_streams(2)
    everything_from(connection)
    events = connection.receive_data(packet(WRITE, None, 6) + packet(WRITE, None, 300))
    assert events == [StreamOpened(6), StreamOpened(300)]
    _, error = receive(connection, packet(WRITE, None, 2))
    assert error is not None
    assert error.rule == "bymux.md Creating streams"
    assert "without global credit" in error.detail


@pytest.mark.parametrize(("number", "words"), [(7, "parity"), (4, "in use")])
def test_the_peer_cannot_create_a_stream_with_an_id_that_is_not_its_to_take(
    number: int, words: str
) -> None:
    connection = Connection(Role.REACTIVE, Config(initial_streams=(InitialStream(4),)))
    connection.grant_streams(2)
    everything_from(connection)
    _, error = receive(connection, packet(WRITE, None, number))
    assert error is not None
    assert (error.rule, error.value) == ("bymux.md Creating streams", number)
    assert words in error.detail


@pytest.mark.parametrize("held", [1, 2**63, U64_MAX])
def test_global_credit_may_not_exceed_two_to_64_minus_1(held: int) -> None:
    connection = Connection(Role.REACTIVE)
    connection.receive_data(packet(CREDIT, None, held))
    if held < U64_MAX:
        connection.receive_data(packet(CREDIT, None, U64_MAX - held))
    assert connection.streams_openable == U64_MAX
    _, error = receive(connection, packet(CREDIT, None, 1))
    assert error is not None
    assert error.rule == "bymux.md Credit"


@pytest.mark.rule("BYMUX-4.09")
def test_global_close_and_stop_read_are_answered_and_leave_streams_alone() -> None:
    connection = Connection(Role.REACTIVE, Config(initial_streams=(InitialStream(0, 5, 5),)))
    events = connection.receive_data(packet(CLOSE, None) + packet(STOP_READ, None))
    assert events == [CloseReceived(None), StopReadReceived(None)]
    assert everything_from(connection) == packet(STOP_READ, None) + packet(CLOSE, None)
    assert not connection.is_finished
    assert connection.receive_data(write(0, b"abc")) == [DataReceived(0, b"abc")]
    with pytest.raises(RemoteProtocolError, match="global: Ping after Close and StopRead"):
        connection.receive_data(packet(PING, None))


@pytest.mark.rule("BYMUX-4.08")
def test_a_stream_is_over_when_both_have_said_both_and_its_id_is_free() -> None:
    connection = Connection(Role.REACTIVE)
    connection.grant_streams(2)
    everything_from(connection)
    ends = packet(CLOSE, 4) + packet(STOP_READ, 4)
    connection.receive_data(packet(WRITE, None, 4) + ends)
    assert everything_from(connection) == packet(STOP_READ, 4) + packet(CLOSE, 4)
    events = connection.receive_data(packet(WRITE, None, 4) + packet(PING, 4))
    assert events == [StreamEnded(4), StreamOpened(4)]
    assert everything_from(connection) == packet(PONG, 4)


def test_a_ping_to_a_stream_that_is_over_for_us_stays_unanswered() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    connection.close(1)
    connection.stop_read(1)
    everything_from(connection)
    connection.receive_data(packet(PING, 1))
    assert not connection.wants_to_send


# Recorded traffic: every kind of packet, in an order that is legal to the end.
SESSION = b"".join(
    (
        packet(CREDIT, 1, 1000, amount_width=8),
        write(0, b"control"),
        packet(PING, None),
        packet(WRITE, None, 6, id_width=4),
        packet(PING, 6, id_width=8),
        write(6, bytes(range(256)) * 2),
        packet(WRITE, 6, 0),
        write(6, b"!"),
        packet(CLOSE, 6),
        packet(PONG, 0),
        packet(STOP_READ, 6),
        packet(CREDIT, None, 3),
        write(0, b"x" * 70000),
        packet(CLOSE, None),
        packet(STOP_READ, None),
    )
)


def session_peer() -> Connection:
    initial = (InitialStream(0, INFINITE, INFINITE), InitialStream(1))
    connection = Connection(Role.REACTIVE, Config(initial_streams=initial, creator_credit=1000))
    connection.grant_streams(1)
    everything_from(connection)
    return connection


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    for start, end in itertools.pairwise([0, *sorted(places), len(data)]):
        yield data[start:end]


@given(
    places=st.lists(st.integers(0, len(SESSION)), max_size=30)
    | st.lists(st.integers(0, 560), max_size=500),
    bad_tail=st.booleans(),
    as_type=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_any_chunking_gives_the_same_events(
    places: list[int], bad_tail: bool, as_type: type[bytes | bytearray | memoryview]
) -> None:
    data = SESSION + (packet(CREDIT, None, 1) if bad_tail else b"")
    whole, error = receive(session_peer(), data)
    connection = session_peer()
    events: list[Event] = []
    piecewise_error = None
    for chunk in cut(data, places):
        try:
            events += connection.receive_data(as_type(chunk))
        except RemoteProtocolError as caught:
            events += caught.events
            piecewise_error = caught
            break
    assert merged(events) == merged(whole)
    assert (error is not None) == bad_tail
    assert str(piecewise_error) == str(error)


def test_one_byte_at_a_time_gives_the_same_events_and_answers() -> None:
    whole, piecewise = session_peer(), session_peer()
    expected = merged(whole.receive_data(SESSION))
    events = [event for byte in SESSION for event in piecewise.receive_data(bytes((byte,)))]
    assert merged(events) == expected
    assert set(parse(everything_from(piecewise))) == set(parse(everything_from(whole)))


def test_writes_of_a_few_bytes_are_counted_of_a_side_that_may_write_more() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    # As much as there is credit for: it goes to and fro as it is restored.
    connection.grant(1, 9)
    connection.data_to_send()
    for _ in range(50):
        connection.receive_data(write(1, b"x" * 9))
        connection.consumed(1, 9)
        connection.data_to_send()
    assert connection.take_small_writes() == 0
    connection.grant(1, 100)
    connection.data_to_send()
    for length in (1, 15, 16):
        connection.receive_data(write(1, b"x" * length))
    assert connection.take_small_writes() == 2
    assert connection.take_small_writes() == 0
