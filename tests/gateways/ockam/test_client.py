"""The clients' rules, against a hub that is a list of frames: confirms lost, refused, silent."""

import pytest

from gateways.ockam import codec
from gateways.ockam.client import Confirmed, ConsumerEnd, PublisherEnd, Refused, Silent

STREAM = codec.local("ST_S_0c127aefd2ce913b")


def requests(data: bytes) -> list[tuple[str, codec.Request]]:
    decoder = codec.FrameDecoder()
    decoder.feed(data)
    found = []
    while (frame := decoder.next_frame()) is not None:
        message = codec.decode_message(frame)
        request = codec.decode_request(*codec.decode_payload(message.payload))
        found.append((message.onward[0].value.decode(), request))
    return found


def answer(response: codec.Response, back: codec.Address = STREAM) -> bytes:
    payload = codec.encode_response(response)
    message = codec.encode_message((codec.local("bamboo"),), (back,), payload)
    return codec.encode_frame(message)


def pushes(end: PublisherEnd) -> list[tuple[int, bytes]]:
    return [
        (request.request, request.data)
        for _, request in requests(end.take())
        if isinstance(request, codec.Push)
    ]


def publisher() -> PublisherEnd:
    end = PublisherEnd("orders")
    end.connected(0)
    assert requests(end.take()) == [("stream", codec.Create("orders"))]
    end.receive(answer(codec.Created("orders")), 0)
    assert end.address == "ST_S_0c127aefd2ce913b"
    return end


def test_what_is_confirmed_is_told_by_its_token() -> None:
    end = publisher()
    first, second = end.push(b"a", 0), end.push(b"b", 0)
    assert pushes(end) == [(1, b"a"), (2, b"b")]
    data = answer(codec.Pushed(2, True, 8)) + answer(codec.Pushed(1, True, 7))
    unknown = answer(codec.Pushed(99, True, 1))
    end.receive(unknown + data, 1)
    assert end.confirmed() == [Confirmed(second, 8), Confirmed(first, 7)]
    end.receive(data, 1)
    assert end.confirmed() == []
    assert end.unconfirmed == 0


def test_unconfirmed_pushes_are_sent_again_in_order_before_newer_ones_with_fresh_ids() -> None:
    end = publisher()
    for data in (b"a", b"b", b"c"):
        end.push(data, 0)
    end.take()
    end.receive(answer(codec.Pushed(2, True, 0)), 1)
    end.connected(2)
    end.push(b"d", 2)
    assert pushes(end) == []
    end.receive(answer(codec.Created("orders")), 2)
    end.push(b"e", 2)
    assert pushes(end) == [(4, b"a"), (5, b"c"), (6, b"d"), (7, b"e")]


def test_a_refused_push_is_repeated_after_a_second_five_times() -> None:
    end = publisher()
    end.push(b"a", 0)
    for attempt in range(1, 6):
        assert pushes(end) == [(attempt, b"a")]
        end.receive(answer(codec.Pushed(attempt, False, 0)), attempt)
        assert end.due_s == attempt + 1
        end.tick(attempt + 0.9)
        assert pushes(end) == []
        end.tick(attempt + 1)
    with pytest.raises(Refused, match="six times"):
        end.receive(answer(codec.Pushed(6, False, 0)), 6)


def test_what_was_refused_goes_again_before_what_was_pushed_after_it() -> None:
    end = publisher()
    first, second = end.push(b"a", 0), end.push(b"b", 0)
    end.take()
    end.receive(answer(codec.Pushed(1, False, 0)), 1)
    end.connected(1.5)
    end.push(b"c", 1.5)
    end.receive(answer(codec.Created("orders")), 1.5)
    assert pushes(end) == []
    assert end.due_s == 2
    end.tick(2)
    assert pushes(end) == [(3, b"a"), (4, b"b"), (5, b"c")]
    stored = answer(codec.Pushed(3, True, 0)) + answer(codec.Pushed(4, True, 1))
    end.receive(stored, 2)
    assert end.confirmed() == [Confirmed(first, 0), Confirmed(second, 1)]


def test_what_is_new_waits_behind_what_was_refused() -> None:
    end = publisher()
    end.push(b"a", 0)
    end.take()
    end.receive(answer(codec.Pushed(1, False, 0)), 1)
    end.push(b"b", 1.5)
    assert pushes(end) == []
    end.tick(2)
    assert pushes(end) == [(2, b"a"), (3, b"b")]


def test_no_answer_in_10_s_is_a_lost_connection() -> None:
    end = publisher()
    due = [end.due_s]
    end.push(b"a", 100)
    assert [*due, end.due_s] == [None, 110]
    end.tick(109.9)
    with pytest.raises(Silent):
        end.tick(110)


def test_256_or_1_mib_may_be_unconfirmed() -> None:
    end = publisher()
    for _ in range(256):
        assert end.has_room
        end.push(b"", 0)
    assert not end.has_room
    end = publisher()
    end.push(bytes(60_000), 0)
    for _ in range(17):
        assert end.has_room
        end.push(bytes(60_000), 0)
    assert not end.has_room


def test_another_created_moves_the_stream() -> None:
    end = publisher()
    end.receive(answer(codec.Created("orders"), codec.local("ST_S_new")), 1)
    end.push(b"a", 1)
    [(worker, _)] = requests(end.take())
    assert worker == "ST_S_new"


def test_an_error_of_the_hub_is_told() -> None:
    end = PublisherEnd("orders")
    end.connected(0)
    with pytest.raises(Refused, match="Unknown stream"):
        end.receive(answer(codec.Failure("Unknown stream")), 0)


def test_a_partition_is_created_with_those_below_it() -> None:
    end = PublisherEnd("orders", 2)
    end.connected(0)
    create = codec.Create("orders", 3, codec.CREATE_PARTITIONED)
    assert requests(end.take()) == [("stream", create)]
    end.receive(answer(codec.Created("orders", 0, codec.CREATE_PARTITIONED)), 0)
    assert not pushes(end)
    end.receive(answer(codec.Created("orders", 2, codec.CREATE_PARTITIONED)), 0)
    end.push(b"a", 0)
    assert pushes(end) == [(1, b"a")]


def consumer() -> ConsumerEnd:
    end = ConsumerEnd("orders", client="c")
    end.connected(0)
    end.take()
    end.receive(answer(codec.Created("orders")), 0)
    assert requests(end.take()) == [("stream_index", codec.GetIndex("c", "orders"))]
    end.receive(answer(codec.Index("c", "orders", 5)), 0)
    assert requests(end.take()) == [(end.address, codec.Pull(1, 5, 100))]
    return end


def test_a_consumer_goes_on_where_it_was_and_drops_what_it_did_not_ask_for() -> None:
    end = consumer()
    end.receive(answer(codec.Pulled(9, ((5, b"stale"),))), 0)
    assert not end.messages
    end.receive(answer(codec.Pulled(1, ((4, b"below"), (5, b"a"), (7, b"b")))), 0)
    assert list(end.messages) == [(5, b"a"), (7, b"b")]
    assert requests(end.take()) == [(end.address, codec.Pull(2, 8, 100))]


@pytest.mark.parametrize("last", [2**64 - 1, 4])
def test_a_hub_that_has_nothing_that_can_be_read_is_at_its_end(last: int) -> None:
    end = consumer()
    end.receive(answer(codec.Pulled(1, ((6, b"a"),))), 0)
    end.take()
    end.receive(answer(codec.Pulled(2, ((last, b"b"),))), 0)
    assert list(end.messages) == [(6, b"a")]
    assert end.at_end
    assert requests(end.take()) == []
    end.tick(0.25)
    assert requests(end.take()) == [(end.address, codec.Pull(3, 7, 100))]
    end.handled(6, 1)
    assert saves(end) == [7]


def test_after_an_empty_list_it_slows_down_to_2_s() -> None:
    end = consumer()
    now = 0.0
    waits = []
    for number in range(1, 7):
        end.take()
        end.receive(answer(codec.Pulled(number, ())), now)
        assert end.due_s is not None
        waits.append(end.due_s - now)
        now = end.due_s
        end.tick(now)
    assert waits == [0.25, 0.5, 1, 2, 2, 2]


def saves(end: ConsumerEnd) -> list[int]:
    return [
        request.index for _, request in requests(end.take()) if isinstance(request, codec.SaveIndex)
    ]


def test_a_position_is_saved_at_most_once_a_second_and_at_the_end_with_a_get() -> None:
    end = consumer()
    end.receive(answer(codec.Pulled(1, tuple((5 + n, b"") for n in range(4)))), 0)
    end.take()
    end.handled(5, 8)
    assert saves(end) == [6]
    end.handled(6, 8.5)
    end.handled(7, 8.9)
    assert saves(end) == []
    end.tick(9)
    assert saves(end) == [8]
    assert end.finish(11)
    assert requests(end.take()) == [
        ("stream_index", codec.SaveIndex("c", "orders", 8)),
        ("stream_index", codec.GetIndex("c", "orders")),
    ]
    finished = [end.is_finished]
    end.receive(answer(codec.Index("c", "orders", 8)), 11)
    assert [*finished, end.is_finished] == [False, True]
    assert end.settled == 8


def test_a_lost_connection_goes_on_from_the_place_reached() -> None:
    end = consumer()
    end.receive(answer(codec.Pulled(1, ((5, b"a"),))), 0)
    end.connected(1)
    end.take()
    end.receive(answer(codec.Created("orders")), 1)
    assert requests(end.take()) == [(end.address, codec.Pull(3, 6, 100))]
    with pytest.raises(Silent):
        end.tick(11)
