"""Every row of the tables of sections 3 and 7 that a connection decides: bytes in, replies out."""

from typing import Any

import pytest

from fuzz import harness, ockam_connection
from gateways.ockam import codec
from gateways.ockam.commands import (
    Append,
    FindStream,
    GetPosition,
    MakeStream,
    Read,
    SavePosition,
    Wait,
)
from gateways.ockam.outcomes import Made, Outcome
from gateways.ockam.server import Connection, Rights
from gateways.reading import CodecError

from .test_codec import VECTORS

STREAM = "ST_S_0c127aefd2ce913b"
OTHER = "ST_S_ffffffffffffffff"


def frame(worker: str, request: codec.Request, *back: str) -> bytes:
    route = tuple(map(codec.local, back or ("app",)))
    payload = codec.encode_request(request)
    return codec.encode_frame(codec.encode_message((codec.local(worker),), route, payload))


def replies(connection: Connection) -> list[tuple[str, codec.Response]]:
    """What is to be sent: who says what."""
    decoder = codec.FrameDecoder()
    found = []
    while connection.has_frames:
        decoder.feed(connection.frames())
        while (taken := decoder.next_frame()) is not None:
            message = codec.decode_message(taken)
            response = codec.decode_response(*codec.decode_payload(message.payload))
            found.append((message.back[0].value.decode(), response))
    connection.sent()
    return found


INVALID = codec.Failure("Invalid request")


@pytest.mark.parametrize("case", VECTORS["answers"], ids=lambda case: case["what"])
def test_the_answers_of_the_vectors(case: dict[str, Any]) -> None:
    connection = Connection()
    data = bytes.fromhex(case["frame"])
    if case["outcome"] == "close":
        with pytest.raises(CodecError):
            connection.receive(data)
        return
    connection.receive(data)
    commands = connection.commands()
    if case["outcome"] == "created":
        [command] = commands
        assert command == MakeStream(1, "orders", 1, True)
        connection.created(1, Made("orders", [(0, STREAM)]))
        assert replies(connection) == [(STREAM, codec.Created("orders"))]
        return
    assert commands == []
    expected = [] if case["outcome"] == "silence" else [INVALID]
    assert [response for _, response in replies(connection)] == expected


def test_any_pieces_mean_the_same() -> None:
    connection = Connection()
    for byte in frame(STREAM, codec.Pull(1, 0, 10)):
        connection.receive(bytes((byte,)))
    assert [type(each) for each in connection.commands()] == [Read]


@pytest.mark.parametrize(
    ("worker", "request_"),
    [
        ("stream", codec.Push(1, b"x")),
        ("stream", codec.Pull(1, 0, 1)),
        ("stream", codec.GetIndex("c", "orders")),
        ("stream_index", codec.Create("orders")),
        ("stream_index", codec.Pull(1, 0, 1)),
        ("stream", codec.Create("")),
        ("stream", codec.Create("n" * 256)),
        ("stream", codec.Create("orders", 0, codec.CREATE_PARTITIONED)),
        ("stream_index", codec.GetIndex("", "orders")),
        ("stream_index", codec.SaveIndex("c", "", 1)),
        ("stream_index", codec.SaveIndex("c" * 256, "orders", 1)),
        ("stream_index", codec.SaveIndex("c", "orders", 1, 1_024)),
    ],
)
def test_what_an_address_does_not_speak_or_cannot_be(worker: str, request_: codec.Request) -> None:
    connection = Connection()
    connection.receive(frame(worker, request_))
    assert connection.commands() == []
    assert replies(connection) == [(worker, INVALID)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (frame(STREAM, codec.GetIndex("c", "orders")), INVALID),
        (frame(STREAM, codec.Create("orders", 0, codec.CREATE_PARTITIONED)), INVALID),
        (
            frame(STREAM, codec.Create("orders", 1_025, codec.CREATE_PARTITIONED)),
            codec.Failure("Too many partitions"),
        ),
        (
            codec.encode_frame(
                codec.encode_message((codec.local(STREAM),), (codec.local("app"),), b"\x01\x00")
            ),
            INVALID,
        ),
    ],
)
def test_a_stream_says_what_it_does_not_speak_and_nobody_says_it_where_there_is_none(
    data: bytes, said: codec.Failure
) -> None:
    connection = Connection()
    for made, expected in (
        (Made("orders", [(0, STREAM)]), [(STREAM, said)]),
        (None, []),
        (Made("", (), "Unavailable"), []),
    ):
        connection.receive(data)
        [find] = connection.commands()
        assert isinstance(find, FindStream)
        assert find.address == STREAM
        connection.created(find.number, made)
        assert replies(connection) == expected
        assert connection.is_idle
    assert connection.take_unknown() == {STREAM: 1}


@pytest.mark.parametrize("worker", ["stream", "stream_service", "stream_kafka"])
def test_who_creates(worker: str) -> None:
    connection = Connection()
    connection.receive(frame(worker, codec.Create("n" * 255, 2, codec.CREATE_PARTITIONS)))
    assert connection.commands() == [MakeStream(1, "n" * 255, 2, True)]
    connection.created(1, Made("n" * 255, [(0, STREAM)], "Too many streams"))
    assert replies(connection) == [
        (STREAM, codec.Created("n" * 255, 0, codec.CREATE_PARTITIONS)),
        (worker, codec.Failure("Too many streams")),
    ]


def test_a_stream_answers_a_create_with_itself() -> None:
    connection = Connection()
    create = codec.Create("another", 2, codec.CREATE_PARTITIONED)
    connection.receive(frame(STREAM, create) + frame(STREAM, codec.Create(None)))
    assert connection.commands() == [FindStream(1, STREAM)]
    connection.created(1, Made("orders", [(3, STREAM)]))
    assert connection.commands() == [FindStream(2, STREAM)]
    connection.created(2, Made("orders", [(3, STREAM)]))
    assert replies(connection) == [
        (STREAM, codec.Created("orders", 3, codec.CREATE_PARTITIONED)),
        (STREAM, codec.Created("orders")),
    ]


def test_an_unknown_stream_answers_no_create() -> None:
    connection = Connection()
    connection.receive(frame(OTHER, codec.Create("orders")))
    assert connection.commands() == [FindStream(1, OTHER)]
    connection.created(1, None)
    assert replies(connection) == []
    assert connection.take_unknown() == {OTHER: 1}


def test_too_many_partitions() -> None:
    connection = Connection()
    connection.receive(frame("stream", codec.Create("a", 1_025, codec.CREATE_PARTITIONED)))
    assert replies(connection) == [("stream", codec.Failure("Too many partitions"))]


@pytest.mark.parametrize("rights", [Rights.NO_CREATE, Rights.READ_ONLY])
def test_without_the_right_nothing_is_made(rights: Rights) -> None:
    connection = Connection(rights)
    connection.receive(frame("stream", codec.Create(None)))
    assert connection.commands() == [MakeStream(1, None, 1, False)]


def test_confirms_leave_in_the_order_of_the_pushes_and_an_error_a_second_later() -> None:
    connection = Connection()
    pushes = [codec.Push(7, bytes((number,))) for number in range(4)]
    connection.receive(b"".join(frame(STREAM, push) for push in pushes))
    [append] = connection.commands()
    assert append == Append(1, [(STREAM, push.data) for push in pushes])
    connection.appended(1, [5, Outcome.REFUSED, Outcome.UNKNOWN, 6])
    confirms = [(STREAM, codec.Pushed(7, True, 5)), (STREAM, codec.Pushed(7, True, 6))]
    assert replies(connection) == confirms
    [wait] = connection.commands()
    assert wait == Wait(2, 1.0)
    connection.waited(2)
    assert replies(connection) == [(STREAM, codec.Pushed(7, False, 0))]
    assert connection.take_unknown() == {STREAM: 1}
    assert connection.take_unknown() == {}


@pytest.mark.parametrize(
    ("rights", "size"), [(Rights.ALL, 60_001), (Rights.READ_ONLY, 1)], ids=["large", "read-only"]
)
def test_a_push_that_is_refused_here(rights: Rights, size: int) -> None:
    connection = Connection(rights)
    connection.receive(frame(STREAM, codec.Push(1, bytes(size))))
    assert connection.commands() == [Append(1, [(STREAM, None)])]
    connection.appended(1, [Outcome.REFUSED])
    assert connection.commands() == [Wait(2, 1.0)]
    assert replies(connection) == []
    connection.waited(2)
    assert replies(connection) == [(STREAM, codec.Pushed(1, is_stored=False, index=0))]
    # To an address that there is not nothing is ever answered.
    connection.receive(frame(STREAM, codec.Push(1, bytes(size))))
    connection.appended(3, [Outcome.UNKNOWN])
    assert connection.commands() == [Append(3, [(STREAM, None)])]
    assert replies(connection) == []
    assert connection.take_unknown() == {STREAM: 1}


def test_the_largest_data_is_taken() -> None:
    connection = Connection(Rights.NO_CREATE)
    connection.receive(frame(STREAM, codec.Push(1, bytes(60_000))))
    [append] = connection.commands()
    assert isinstance(append, Append)


def test_without_a_return_route_a_push_and_a_save_take_effect() -> None:
    connection = Connection()
    payload = codec.encode_request(codec.Push(1, b"x"))
    message = codec.encode_message((codec.local(STREAM),), (), payload)
    connection.receive(codec.encode_frame(message))
    payload = codec.encode_request(codec.SaveIndex("c", "orders", 2))
    message = codec.encode_message((codec.local("stream_index"),), (), payload)
    connection.receive(codec.encode_frame(message))
    [append] = connection.commands()
    assert append == Append(1, [(STREAM, b"x")])
    connection.appended(1, [0])
    assert connection.commands() == [SavePosition(2, "c", "orders", 0, 2)]
    connection.saved(2)
    assert replies(connection) == []


def test_a_pull_behind_a_push_waits_for_it_and_a_push_behind_a_pull_too() -> None:
    connection = Connection()
    connection.receive(
        frame(STREAM, codec.Push(1, b"x"))
        + frame(STREAM, codec.Pull(2, 0, 10))
        + frame(STREAM, codec.Push(3, b"y"))
    )
    assert [type(each) for each in connection.commands()] == [Append]
    connection.appended(1, [0])
    [read] = connection.commands()
    assert isinstance(read, Read)
    connection.read(read.number, [(0, b"x")])
    assert [type(each) for each in connection.commands()] == [Append]
    assert [response for _, response in replies(connection)] == [
        codec.Pushed(1, True, 0),
        codec.Pulled(2, ((0, b"x"),)),
    ]


def test_a_pull_is_limited_and_fits_with_the_route_it_has_to_carry() -> None:
    connection = Connection()
    back = ["r" * 255] * 16
    connection.receive(frame(STREAM, codec.Pull(2**64 - 1, 2**64 - 1, 2**64 - 1), *back))
    [read] = connection.commands()
    assert isinstance(read, Read)
    assert (read.index, read.limit) == (2**64 - 1, 1_000)
    # One message always fits, and what fills the room makes the largest frame that is sent.
    assert read.room > 60_000 + 13
    connection.read(1, [(0, bytes(read.room - 4))])
    sent = connection.frames()
    assert 64_990 <= len(sent) <= 65_002


def test_a_pull_of_nothing_is_answered_and_an_unknown_address_is_not() -> None:
    connection = Connection(hold_s=5)
    connection.receive(frame(STREAM, codec.Pull(1, 0, 0)) + frame(OTHER, codec.Pull(2, 0, 1)))
    connection.read(1, [])
    connection.read(2, None)
    assert replies(connection) == [(STREAM, codec.Pulled(1, ()))]
    assert connection.take_unknown() == {OTHER: 1}


def test_a_held_pull_waits_for_a_message() -> None:
    connection = Connection(hold_s=5)
    connection.receive(frame(STREAM, codec.Pull(1, 0, 10)))
    connection.commands()
    connection.read(1, [])
    assert connection.commands() == [Wait(2, 5)]
    connection.grown(frozenset((OTHER,)))
    assert connection.commands() == []
    connection.grown(frozenset((STREAM,)))
    [read] = connection.commands()
    assert isinstance(read, Read)
    connection.read(read.number, [(0, b"x")])
    assert replies(connection) == [(STREAM, codec.Pulled(1, ((0, b"x"),)))]
    connection.waited(2)
    assert replies(connection) == []


@pytest.mark.parametrize("is_held", [False, True])
def test_what_is_stored_while_a_pull_is_read_wakes_it(is_held: bool) -> None:
    connection = Connection(hold_s=5)
    connection.receive(frame(STREAM, codec.Pull(1, 0, 10)))
    if is_held:
        connection.read(1, [])
        connection.grown(frozenset((STREAM,)))
    connection.commands()
    assert connection.held == {STREAM}
    # The look that is under way may have been too early for it, and is not repeated each time.
    connection.grown(frozenset((STREAM,)))
    connection.grown(frozenset((STREAM,)))
    assert connection.commands() == []
    connection.read(1, [])
    [read] = [each for each in connection.commands() if isinstance(each, Read)]
    connection.read(read.number, [(0, b"x")])
    assert replies(connection) == [(STREAM, codec.Pulled(1, ((0, b"x"),)))]
    assert connection.held == frozenset()


def test_a_held_pull_ends_empty_by_time_by_a_newer_one_and_at_the_end() -> None:
    connection = Connection(hold_s=5)
    connection.receive(frame(STREAM, codec.Pull(1, 0, 10)))
    connection.read(1, [])
    connection.receive(frame(STREAM, codec.Pull(2, 0, 10)))
    assert replies(connection) == [(STREAM, codec.Pulled(1, ()))]
    connection.read(3, [])
    wait = connection.commands()[-1]
    assert isinstance(wait, Wait)
    connection.waited(wait.number)
    assert replies(connection) == [(STREAM, codec.Pulled(2, ()))]
    connection.receive(frame(STREAM, codec.Pull(3, 0, 10)))
    read = connection.commands()[-1]
    assert isinstance(read, Read)
    connection.read(read.number, [])
    connection.end()
    assert replies(connection) == [(STREAM, codec.Pulled(3, ()))]
    assert connection.is_idle


def test_of_two_pulls_of_one_route_that_are_read_together_one_waits() -> None:
    for order in ((1, 2), (2, 1)):
        connection = Connection(hold_s=5)
        connection.receive(frame(STREAM, codec.Pull(1, 0, 1)) + frame(STREAM, codec.Pull(2, 0, 1)))
        for number in order:
            connection.read(number, [])
        assert replies(connection) == [(STREAM, codec.Pulled(1, ()))]


def test_pulls_that_are_read_count_as_what_they_may_answer() -> None:
    connection = Connection()
    connection.receive(frame(STREAM, codec.Pull(1, 0, 1_000)) * 100)
    commands = connection.commands()
    assert len(commands) == 17
    assert not connection.wants_bytes
    connection.read(1, [(0, b"x")])
    assert len(connection.commands()) == 1
    # Answers that nobody takes are room that nobody has.
    for number in range(2, 19):
        connection.read(number, [(0, bytes(64_900))])
    assert connection.commands() == []


def test_64_pulls_are_held_and_the_next_is_answered_at_once() -> None:
    connection = Connection(hold_s=5)
    for number in range(65):
        connection.receive(frame(STREAM, codec.Pull(number, 0, 1), f"app{number}"))
        read = connection.commands()[-1]
        assert isinstance(read, Read)
        connection.read(read.number, [])
    assert replies(connection) == [(STREAM, codec.Pulled(64, ()))]


@pytest.mark.parametrize("partition", [None, 3])
def test_positions(partition: int | None) -> None:
    connection = Connection()
    connection.receive(frame("stream_index", codec.SaveIndex("c", "orders", 9, partition)))
    connection.receive(frame("stream_index_service", codec.GetIndex("c", "orders", partition)))
    assert connection.commands() == [SavePosition(1, "c", "orders", partition or 0, 9)]
    connection.saved(1)
    assert connection.commands() == [GetPosition(2, "c", "orders", partition or 0)]
    connection.position(2, None)
    [(worker, answer)] = replies(connection)
    assert worker == "stream_index_service"
    assert answer == codec.Index("c", "orders", None, partition)


def test_it_is_not_read_from_once_64_replies_wait() -> None:
    connection = Connection()
    create = frame("stream", codec.Create(""))
    connection.receive(create * 70)
    assert not connection.wants_bytes
    # What had come meanwhile was kept, and is answered once there is room.
    assert len(replies(connection)) == 64
    assert len(replies(connection)) == 6
    assert connection.wants_bytes


def test_it_is_not_read_from_once_64_errors_wait() -> None:
    connection = Connection(Rights.READ_ONLY)
    connection.receive(frame(STREAM, codec.Push(1, b"")) * 70)
    assert connection.commands() == [Append(1, [(STREAM, None)] * 64)]
    assert not connection.wants_bytes
    # One went to nobody: its place is free for another one.
    connection.appended(1, [Outcome.UNKNOWN] + [Outcome.REFUSED] * 63)
    *waits, append = connection.commands()
    assert len(waits) == 63
    assert append == Append(65, [(STREAM, None)])
    connection.appended(65, [Outcome.REFUSED])
    assert not connection.wants_bytes
    for wait in waits[:6]:
        connection.waited(wait.number)
    assert connection.wants_bytes


def test_requests_that_are_not_answered_are_bounded() -> None:
    connection = Connection()
    connection.receive(frame(STREAM, codec.Push(1, bytes(60_000))) * 30)
    assert not connection.wants_bytes
    [append] = connection.commands()
    assert isinstance(append, Append)
    assert len(append.messages) == 18
    connection.appended(append.number, range(18))
    [append] = connection.commands()
    assert isinstance(append, Append)
    assert len(append.messages) == 12


def test_it_is_not_read_from_once_1000_saves_wait_for_room() -> None:
    connection = Connection()
    for number in range(1_001):
        assert connection.wants_bytes
        connection.receive(frame("stream_index", codec.SaveIndex(f"c{number}", "orders", 1)))
    assert not connection.wants_bytes
    assert connection.commands() == [SavePosition(1, "c0", "orders", 0, 1)]
    connection.saved(1)
    assert connection.commands() == [SavePosition(2, "c1", "orders", 0, 1)]
    assert connection.wants_bytes


def test_a_reply_copies_the_route_whatever_is_in_it() -> None:
    connection = Connection()
    back = (codec.Address(1, b"10.0.0.1:4000"), codec.Address(255, b""))
    payload = codec.encode_request(codec.Create("orders"))
    onward = (codec.local("stream"), codec.local("ignored"))
    connection.receive(codec.encode_frame(codec.encode_message(onward, back, payload)))
    connection.created(1, Made("orders", [(0, STREAM)]))
    decoder = codec.FrameDecoder()
    decoder.feed(connection.frames())
    taken = decoder.next_frame()
    assert taken is not None
    assert codec.decode_message(taken).onward == back


@pytest.mark.parametrize(
    "digits", [b"0c127aefd2ce91\xff\xfe", b"0C127AEFD2CE913B", b"0c127aefd2ce913"]
)
def test_what_no_stream_can_be_called_is_unknown(digits: bytes) -> None:
    connection = Connection(Rights.READ_ONLY)
    payload = codec.encode_request(codec.Push(1, b"x"))
    onward = (codec.Address(0, b"ST_S_" + digits),)
    connection.receive(codec.encode_frame(codec.encode_message(onward, onward, payload)))
    assert connection.commands() == []
    assert replies(connection) == []
    assert len(connection.take_unknown()) == 1


def test_the_fuzz_target_holds() -> None:
    harness.run_seeded(ockam_connection.check, ockam_connection.CORPUS, runs=200, seed=1)


@pytest.mark.long
def test_the_fuzz_target_holds_for_100_000_mutations() -> None:
    harness.run_seeded(ockam_connection.check, ockam_connection.CORPUS, runs=100_000, seed=2)
