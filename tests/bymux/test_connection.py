"""What the application may ask for, and what it hears when it asks for too much."""

from collections.abc import Callable

import pytest

from bymux import (
    INFINITE,
    CloseReceived,
    Config,
    Connection,
    DataReceived,
    InitialStream,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    StopReadReceived,
    StreamEnded,
    StreamOpened,
)

from .factory import CLOSE, CREDIT, STOP_READ, WRITE, everything_from, packet, write

CONTROL_AND_DATA = Config(
    initial_streams=(InitialStream(0, INFINITE, INFINITE), InitialStream(1)),
    streams_creatable=False,
)


@pytest.mark.rule("BYMUX-1.01")
def test_the_examples_of_point2point_are_what_we_send() -> None:
    connection = Connection(Role.PROACTIVE, CONTROL_AND_DATA)
    connection.grant(1, 1 << 20)
    assert connection.data_to_send() == bytes.fromhex("02 01 00100000")
    connection.receive_data(bytes.fromhex("02 01 00100000 50"))
    assert connection.data_to_send() == bytes.fromhex("70")
    connection.send(1, b"abc")
    assert connection.data_to_send() == bytes.fromhex("20 01 03 616263")
    connection.ping()
    assert connection.data_to_send() == bytes.fromhex("50")
    connection.close(1)
    assert connection.data_to_send() == bytes.fromhex("80 01")
    connection.stop_read(1)
    assert connection.data_to_send() == bytes.fromhex("a0 01")


def closed(connection: Connection) -> None:
    connection.close(1)


def stopped(connection: Connection) -> None:
    connection.stop_read(1)


def ended(connection: Connection) -> None:
    connection.close(1)
    connection.stop_read(1)


def credited(connection: Connection) -> None:
    connection.receive_data(packet(CREDIT, 1, 2))


def creation_ended(connection: Connection) -> None:
    connection.close_creation()
    connection.stop_creation()


def nothing(connection: Connection) -> None:
    """Leaves a connection as it is."""


@pytest.mark.parametrize(
    ("before", "command", "rule", "stream"),
    [
        (nothing, lambda c: c.send(9, b"x"), "bymux.md Packets", 9),
        (nothing, lambda c: c.grant(9, 1), "bymux.md Packets", 9),
        (nothing, lambda c: c.close(9), "bymux.md Packets", 9),
        (nothing, lambda c: c.stop_read(9), "bymux.md Packets", 9),
        (nothing, lambda c: c.ping(9), "bymux.md Packets", 9),
        (nothing, lambda c: c.send(1, b"x"), "bymux.md Credit", 1),
        (credited, lambda c: c.send(1, b"xyz"), "bymux.md Credit", 1),
        (closed, lambda c: c.send(1, b""), "bymux.md Closing", 1),
        (closed, lambda c: c.close(1), "bymux.md Closing", 1),
        (stopped, lambda c: c.grant(1, 1), "bymux.md Closing", 1),
        (stopped, lambda c: c.stop_read(1), "bymux.md Closing", 1),
        (ended, lambda c: c.ping(1), "bymux.md Closing", 1),
        (nothing, lambda c: c.grant(1, 0), "bymux.md Credit", 1),
        (nothing, lambda c: c.grant(0, 1), "bymux.md Credit", 0),
        (nothing, lambda c: c.consumed(1, 1), "bymux.md Credit", 1),
        (nothing, lambda c: c.open_stream(), "bymux.md Creating streams", None),
        (nothing, lambda c: c.grant_streams(0), "bymux.md Credit", None),
        (nothing, lambda c: c.grant_streams(INFINITE + 1), "bymux.md Credit", None),
        (creation_ended, lambda c: c.open_stream(), "bymux.md Closing", None),
        (creation_ended, lambda c: c.grant_streams(1), "bymux.md Closing", None),
        (creation_ended, lambda c: c.close_creation(), "bymux.md Closing", None),
        (creation_ended, lambda c: c.stop_creation(), "bymux.md Closing", None),
        (creation_ended, lambda c: c.ping(), "bymux.md Closing", None),
    ],
)
@pytest.mark.rule("BYMUX-4.10")
def test_misuse_is_refused_and_changes_nothing(
    before: Callable[[Connection], None],
    command: Callable[[Connection], object],
    rule: str,
    stream: int | None,
) -> None:
    config = Config(initial_streams=CONTROL_AND_DATA.initial_streams)
    connection, untouched = Connection(Role.PROACTIVE, config), Connection(Role.PROACTIVE, config)
    before(connection)
    before(untouched)
    with pytest.raises(LocalProtocolError) as caught:
        command(connection)
    assert (caught.value.rule, caught.value.stream) == (rule, stream)
    assert connection.sendable(1) == untouched.sendable(1)
    assert everything_from(connection) == everything_from(untouched)
    assert connection.statistics() == untouched.statistics()


@pytest.mark.parametrize(
    "command",
    [
        lambda c: c.open_stream(),
        lambda c: c.grant_streams(1),
        lambda c: c.close_creation(),
        lambda c: c.stop_creation(),
    ],
)
def test_without_creation_there_is_nothing_to_say_about_it(
    command: Callable[[Connection], object],
) -> None:
    with pytest.raises(LocalProtocolError, match=r"global: .* after Close and StopRead"):
        command(Connection(Role.PROACTIVE, CONTROL_AND_DATA))


def test_sendable_is_credit_minus_what_is_queued() -> None:
    connection = Connection(Role.PROACTIVE, CONTROL_AND_DATA)
    assert (connection.sendable(0), connection.sendable(1)) == (INFINITE, 0)
    connection.receive_data(packet(CREDIT, 1, 10))
    connection.send(1, bytearray(b"abcd"))
    assert (connection.sendable(1), connection.queued(1)) == (6, 4)
    everything_from(connection)
    assert (connection.sendable(1), connection.queued(1)) == (6, 0)
    connection.close(1)
    assert connection.sendable(1) == 0
    assert (connection.sendable(9), connection.queued(9)) == (0, 0)


def test_pieces_are_queued_as_one_or_not_at_all() -> None:
    connection = Connection(Role.PROACTIVE, CONTROL_AND_DATA)
    connection.receive_data(packet(CREDIT, 1, 6))
    with pytest.raises(LocalProtocolError, match="7 bytes with a credit of 6"):
        connection.send_all(1, (b"abc", b"defg"))
    assert connection.queued(1) == 0
    connection.send_all(1, (b"", b"abc", memoryview(b"xdefx")[1:-1], bytearray()))
    assert connection.sendable(1) == 0
    assert connection.data_to_send() == write(1, b"abcdef")
    connection.send_all(1, (b"", b""))
    assert not connection.wants_to_send


def test_data_of_the_caller_may_change_after_send_if_it_can() -> None:
    connection = Connection(Role.PROACTIVE, CONTROL_AND_DATA)
    data = bytearray(b"abc")
    connection.send(0, memoryview(data))
    data[:] = b"xyz"
    assert connection.data_to_send() == write(0, b"abc")


def test_consumed_bytes_are_granted_anew_once_they_are_half_of_the_window() -> None:
    connection = Connection(
        Role.PROACTIVE, Config(initial_streams=(InitialStream(1, receive_credit=100),))
    )
    connection.receive_data(write(1, bytes(60)))
    connection.consumed(1, 39)
    assert not connection.wants_to_send
    connection.consumed(1, 1)
    assert connection.data_to_send() == packet(CREDIT, 1, 40)


def test_credit_is_also_restored_when_the_other_side_uses_up_what_it_has() -> None:
    connection = Connection(
        Role.PROACTIVE, Config(initial_streams=(InitialStream(1, receive_credit=100),))
    )
    connection.receive_data(write(1, bytes(20)))
    connection.consumed(1, 20)
    assert not connection.wants_to_send
    connection.receive_data(packet(WRITE, 1, 60))
    assert connection.data_to_send() == packet(CREDIT, 1, 20)


def test_nothing_is_restored_that_nobody_could_use() -> None:
    initial = (InitialStream(1, receive_credit=9), InitialStream(3, receive_credit=9))
    connection = Connection(Role.PROACTIVE, Config(initial_streams=initial, answer_close=False))
    connection.receive_data(write(1, bytes(9)) + write(3, bytes(9)) + packet(CLOSE, 3))
    connection.stop_read(1)
    connection.consumed(1, 9)
    connection.consumed(3, 9)
    connection.consumed(77, 9)
    assert connection.data_to_send() == packet(STOP_READ, 1)


def test_the_application_may_answer_close_itself() -> None:
    connection = Connection(
        Role.REACTIVE,
        Config(initial_streams=CONTROL_AND_DATA.initial_streams, answer_close=False),
    )
    ends = packet(CLOSE, 1) + packet(STOP_READ, 1)
    assert connection.receive_data(ends) == [CloseReceived(1), StopReadReceived(1)]
    assert connection.data_to_send() == packet(CLOSE, 1)
    assert connection.is_active(1)
    connection.stop_read(1)
    assert connection.owes(1)
    assert connection.data_to_send() == packet(STOP_READ, 1)
    assert not connection.owes(1)
    assert not connection.is_active(1)
    assert connection.receive_data(b"") == [StreamEnded(1)]


def test_a_session_is_finished_when_both_streams_are_over() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    for stream in (0, 1):
        connection.close(stream)
        connection.stop_read(stream)
    everything_from(connection)
    connection.receive_data(packet(CLOSE, 0) + packet(STOP_READ, 0) + packet(STOP_READ, 1))
    unfinished = connection.is_finished
    assert connection.active_streams == (1,)
    connection.receive_data(packet(CLOSE, 1))
    assert (unfinished, connection.is_finished) == (False, True)
    with pytest.raises(RemoteProtocolError, match="not active"):
        connection.receive_data(packet(CREDIT, 0, 0))


def test_a_creatable_connection_is_finished_once_creation_is() -> None:
    connection = Connection(Role.REACTIVE)
    connection.receive_data(packet(CLOSE, None) + packet(STOP_READ, None))
    unfinished = connection.is_finished
    everything_from(connection)
    assert (unfinished, connection.is_finished) == (False, True)


@pytest.mark.parametrize(("role", "expected"), [(Role.PROACTIVE, [0, 4]), (Role.REACTIVE, [1, 5])])
def test_opened_streams_get_free_ids_of_our_parity(role: Role, expected: list[int]) -> None:
    taken = (InitialStream(2), InitialStream(3))
    connection = Connection(role, Config(initial_streams=taken))
    connection.receive_data(packet(CREDIT, None, 2))
    assert connection.streams_openable == 2
    assert [connection.open_stream(), connection.open_stream()] == expected
    assert connection.streams_openable == 0


def test_an_id_of_ours_is_used_again_once_its_end_was_reported() -> None:
    connection = Connection(Role.PROACTIVE)
    connection.receive_data(packet(CREDIT, None, 9))
    connection.open_stream()
    connection.close(0)
    connection.receive_data(packet(CLOSE, 0) + packet(STOP_READ, 0))
    everything_from(connection)
    assert connection.active_streams == ()
    assert connection.open_stream() == 2
    assert connection.receive_data(b"") == [StreamEnded(0)]
    assert connection.open_stream() == 0


def test_an_initial_streams_id_is_not_used_again_before_its_end_was_reported() -> None:
    connection = Connection(Role.PROACTIVE, Config(initial_streams=(InitialStream(0),)))
    connection.receive_data(packet(CREDIT, None, 9) + packet(CLOSE, 0) + packet(STOP_READ, 0))
    everything_from(connection)
    assert connection.open_stream() == 2
    assert connection.receive_data(b"") == [StreamEnded(0)]
    assert connection.open_stream() == 0


@pytest.mark.rule("BYMUX-5.05", "BYMUX-8.01")
def test_both_sides_may_agree_on_credit_of_new_streams() -> None:
    config = Config(creator_credit=7, other_credit=INFINITE)
    creator, other = Connection(Role.PROACTIVE, config), Connection(Role.REACTIVE, config)
    other.grant_streams(1)
    creator.receive_data(everything_from(other))
    stream = creator.open_stream()
    creator.send(stream, b"at once")
    events = other.receive_data(everything_from(creator))
    assert events == [StreamOpened(stream), DataReceived(stream, b"at once")]
    assert (creator.sendable(stream), other.sendable(stream)) == (0, INFINITE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Config(write_bytes_max=0),
        lambda: Config(creator_credit=-1),
        lambda: Config(initial_streams=(InitialStream(1), InitialStream(1))),
        lambda: InitialStream(2**64),
        lambda: InitialStream(1, send_credit=2**64),
    ],
)
def test_impossible_agreements_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\d|same id"):
        make()


def test_one_can_ask_what_was_said_already_also_by_way_of_answer() -> None:
    connection = Connection(Role.REACTIVE, Config(initial_streams=CONTROL_AND_DATA.initial_streams))
    assert not connection.has_closed(1)
    assert not connection.has_stopped(1)
    connection.receive_data(packet(CLOSE, 1) + packet(STOP_READ, None))
    assert (connection.has_closed(1), connection.has_stopped(1)) == (False, True)
    assert (connection.has_closed(None), connection.has_stopped(None)) == (True, False)
    assert connection.has_closed(9)
    assert connection.has_stopped(9)


def test_statistics_count_bytes_packets_and_what_is_owed() -> None:
    connection = Connection(Role.REACTIVE, CONTROL_AND_DATA)
    connection.receive_data(b"\x50" + write(0, b"abc"))
    connection.send(0, b"defgh")
    before = connection.statistics()
    assert (before.bytes_received, before.packets_received) == (7, 2)
    assert (before.streams, before.bytes_queued, before.pongs_owed) == (2, 5, 1)
    assert before.idle_work == 0
    everything_from(connection)
    after = connection.statistics()
    assert (after.bytes_sent, after.packets_sent, after.bytes_queued) == (9, 2, 0)
