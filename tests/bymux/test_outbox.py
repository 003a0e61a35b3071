"""What goes out: control before data, streams in turn, in packets that are never cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bymux import INFINITE, Config, Connection, InitialStream, LocalProtocolError, Role

from .factory import (
    CLOSE,
    CREDIT,
    PING,
    PONG,
    STOP_READ,
    WRITE,
    Seen,
    everything_from,
    packet,
    parse,
    write,
)


def connected(streams: int = 3, write_bytes_max: int = 16384) -> Connection:
    initial = tuple(InitialStream(number, INFINITE, 100) for number in range(streams))
    config = Config(initial_streams=initial, write_bytes_max=write_bytes_max)
    return Connection(Role.PROACTIVE, config)


def sent(connection: Connection, bytes_max: int = 256 * 1024) -> list[Seen]:
    return list(parse(connection.data_to_send(bytes_max)))


@pytest.mark.rule("BYMUX-6.01")
def test_a_write_carries_at_most_16_kib_by_default() -> None:
    connection = connected()
    connection.send(1, bytes(40000))
    assert [len(seen.body) for seen in sent(connection)] == [16384, 16384, 40000 - 2 * 16384]


def test_small_pieces_are_gathered_into_one_write() -> None:
    connection = connected()
    for byte in b"gathered":
        connection.send(2, bytes((byte,)))
    assert connection.data_to_send() == write(2, b"gathered")


@pytest.mark.rule("BYMUX-6.02")
def test_streams_with_data_take_turns() -> None:
    connection = connected(write_bytes_max=10)
    connection.send(0, b"a" * 35)
    connection.send(1, b"b" * 15)
    connection.send(2, b"c" * 25)
    assert [(seen.stream, len(seen.body)) for seen in sent(connection)] == [
        *[(0, 10), (1, 10), (2, 10)],
        *[(0, 10), (1, 5), (2, 10)],
        *[(0, 10), (2, 5)],
        (0, 5),
    ]


def test_turns_go_on_where_the_last_call_ended() -> None:
    connection = connected(write_bytes_max=10)
    for stream in range(3):
        connection.send(stream, bytes(1000))
    order = [seen.stream for _ in range(30) for seen in sent(connection, 31)]
    assert order == list(itertools.islice(itertools.cycle(range(3)), len(order)))


@pytest.mark.rule("BYMUX-6.03")
def test_everything_else_goes_out_ahead_of_data() -> None:
    connection = connected()
    connection.send(0, bytes(10**6))
    sent(connection)
    connection.grant(1, 5)
    connection.ping(2)
    connection.receive_data(packet(PING, 0) + packet(PING, None))
    connection.stop_read(0)
    connection.close(1)
    kinds = [(seen.kind, seen.stream) for seen in sent(connection)]
    assert set(kinds[:6]) == {
        *{(CREDIT, 1), (PING, 2), (PONG, 0), (PONG, None), (STOP_READ, 0), (CLOSE, 1)}
    }
    assert {kind for kind, _ in kinds[6:]} == {WRITE}


def test_close_goes_out_behind_what_was_queued() -> None:
    connection = connected(write_bytes_max=4)
    connection.send(0, b"abcdefgh")
    connection.send(1, b"other")
    connection.close(0)
    seen = [each for each in sent(connection) if each.stream == 0]
    assert [each.kind for each in seen] == [WRITE, WRITE, CLOSE]


def test_what_was_queued_goes_out_before_a_stop_read_is_answered() -> None:
    connection = connected()
    connection.send(0, b"queued")
    connection.receive_data(packet(STOP_READ, 0))
    assert connection.data_to_send() == write(0, b"queued") + packet(CLOSE, 0)


def test_a_stop_read_makes_unsent_grants_moot() -> None:
    connection = connected()
    connection.grant(0, 5)
    connection.stop_read(0)
    assert connection.data_to_send() == packet(STOP_READ, 0)


def test_grants_are_summed_up_in_one_packet() -> None:
    connection = connected()
    connection.grant(1, 5)
    connection.grant(1, 6)
    connection.grant(2, 5)
    connection.grant(2, INFINITE)
    assert connection.data_to_send() == packet(CREDIT, 1, 11) + packet(CREDIT, 2, 0)


def test_a_new_stream_is_announced_before_anything_of_it() -> None:
    connection = connected(streams=0)
    connection.receive_data(packet(CREDIT, None, 2))
    first, second = connection.open_stream(), connection.open_stream()
    connection.grant(second, 5)
    connection.ping(first)
    connection.close_creation()
    seen = sent(connection)
    assert seen[:3] == [
        Seen(WRITE, None, first, b""),
        Seen(WRITE, None, second, b""),
        Seen(CLOSE, None, None, b""),
    ]
    assert {(each.kind, each.stream) for each in seen[3:]} == {(CREDIT, second), (PING, first)}


def test_the_least_room_is_that_of_the_largest_packet() -> None:
    connection = connected()
    with pytest.raises(LocalProtocolError, match="room for 17 bytes, 18 are the least"):
        connection.data_to_send(17)


@given(
    bytes_max=st.integers(18, 60),
    pings=st.integers(0, 40),
    data=st.binary(max_size=100),
    write_bytes_max=st.integers(1, 50),
)
def test_however_small_the_room_all_goes_out_whole_and_in_bounds(
    bytes_max: int, pings: int, data: bytes, write_bytes_max: int
) -> None:
    initial = (InitialStream(2**40, INFINITE, 10), InitialStream(3, INFINITE))
    config = Config(initial_streams=initial, write_bytes_max=write_bytes_max)
    connection = Connection(Role.PROACTIVE, config)
    connection.receive_data(packet(CREDIT, None, 3) + packet(PING, 2**40) * pings)
    for _ in range(pings):
        connection.ping(3)
    for stream in (2**40, 3):
        connection.send(stream, data)
        connection.grant(stream, 2**40)
        connection.close(stream)
    connection.open_stream()
    seen: list[Seen] = []
    while connection.wants_to_send:
        chunk = connection.data_to_send(bytes_max)
        assert 0 < len(chunk) <= bytes_max
        seen += parse(chunk)
    assert connection.data_to_send(bytes_max) == b""
    for stream in (2**40, 3):
        bodies = [each.body for each in seen if (each.kind, each.stream) == (WRITE, stream)]
        assert b"".join(bodies) == data
        assert all(0 < len(body) <= write_bytes_max for body in bodies)
        kinds = [each.kind for each in seen if each.stream == stream]
        assert kinds[-1] == CLOSE
        assert kinds.count(PONG if stream == 2**40 else PING) == pings
        assert kinds.count(CREDIT) == kinds.count(CLOSE) == 1
    assert connection.statistics().packets_sent == len(seen)


def test_everything_owed_goes_out_after_more_than_one_call() -> None:
    connection = connected()
    connection.receive_data(packet(PING, 0) * 1000)
    assert connection.data_to_send(100) == packet(PONG, 0) * 50
    assert everything_from(connection) == packet(PONG, 0) * 950
    assert not connection.wants_to_send


def test_what_cannot_change_is_sent_as_it_is_and_all_else_as_it_was() -> None:
    connection = Connection(Role.PROACTIVE, Config(initial_streams=(InitialStream(0, 100, 100),)))
    fixed, changing = b"bamboo", bytearray(b"bamboo")
    wide = memoryview(bytes(8)).cast("I")
    for data in (
        memoryview(fixed)[1:],
        memoryview(changing)[1:],
        changing,
        memoryview(fixed)[::2],
        wide,
    ):
        connection.send(0, data)
    changing[:] = b"BAMBOO"
    assert connection.data_to_send() == write(0, b"amboo" * 2 + b"bamboo" + b"bmo" + bytes(8))
