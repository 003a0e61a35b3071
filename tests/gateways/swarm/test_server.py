"""The server's side of streams, message by message."""

from collections.abc import Collection

import pytest

from gateways.swarm.codec import (
    OPEN_END,
    RETRIEVE_REQUEST,
    SYNC,
    Message,
    OfferedHashes,
    Quit,
    Range,
    RetrieveDelivery,
    RetrieveRequest,
    Stream,
    StreamDelivery,
    Subscribe,
    SubscribeError,
    Unsubscribe,
    WantedHashes,
    encode_bits,
    encode_message,
    hex_key,
)
from gateways.swarm.commands import Read, Search, Send
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.ended import ENDED_MAX, LATE_S
from gateways.swarm.server import BATCH_S, SERVERS_MAX, Server, ServerMessage
from gateways.swarm.sources import ANSWERS_MAX, UnavailableError

from .memory import ADDRESSES, CHUNKS, Bins, Items

LIVE = Stream(SYNC, "6", live=True)
HISTORY = Stream(SYNC, "6", live=False)
ANSWERS = Stream(RETRIEVE_REQUEST, "", live=True)
BY_ADDRESS = {each.address: each.encoded for each in CHUNKS}


def _no_document(stream: Stream) -> Items:
    raise UnavailableError(f"document {stream.key} not held")


class Served:
    """A server with one bin, and a clock; chunks are read at once unless `reads` is off."""

    def __init__(self, count: int = 0, *, serves_retrieval: bool = True) -> None:
        self.items = Items(ADDRESSES[:count])
        self.bins = Bins(**{"6": self.items})
        self.rooms = {0, 1, 2, 3}
        self.held = set(ADDRESSES[:count])
        openers = {SYNC: self.bins.open, "DOC": _no_document}
        holds, has_room = self.held.__contains__, self.rooms.__contains__
        self.server = Server(openers, holds, has_room, serves_retrieval=serves_retrieval)
        self.now = 100.0
        self.searches: list[Search] = []
        self.reads: list[Read] = []
        self.reads_at_once = True

    def send(self, message: ServerMessage) -> list[tuple[int, Message]]:
        self.server.receive(message, self.now)
        return self.sent()

    def sent(self) -> list[tuple[int, Message]]:
        """What has come to be sent; all of it may leave."""
        found: list[tuple[int, Message]] = []
        while commands := self.server.commands():
            for command in commands:
                match command:
                    case Send():
                        encode_message(command.message)
                        found.append(command)
                    case Read() if self.reads_at_once:
                        self.read(command)
                    case Read():
                        self.reads.append(command)
                    case Search():
                        self.searches.append(command)
        return found

    def read(self, command: Read) -> None:
        chunks = [
            None if each in self.items.gone else BY_ADDRESS[each] for each in command.addresses
        ]
        self.server.read(command.number, chunks, self.now)

    def later(self, seconds: float) -> list[tuple[int, Message]]:
        self.now += seconds
        self.server.advance(self.now)
        return self.sent()

    def due(self) -> float | None:
        return self.server.next_deadline

    def add(self, first: int, last: int) -> list[tuple[int, Message]]:
        self.items.items += ADDRESSES[first:last]
        return self.later(0)


def _offer(stream: Stream, start: int, end: int, *, without: Collection[int] = ()) -> Message:
    items = [ADDRESSES[at - 1] for at in range(max(1, start), end + 1) if at not in without]
    return OfferedHashes(stream, start, end, b"".join(items))


def _none(stream: Stream, start: int, end: int, count: int = 128) -> WantedHashes:
    return WantedHashes(stream, encode_bits([False] * count), start, end)


NAME = "é" * 128
DOCUMENT = hex_key(bytes(32))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Subscribe(Stream("X", "", True), None, 1), "stream X not registered"),
        (Subscribe(Stream("X", "", True), None, 9), "stream X not registered"),
        (Subscribe(Stream(NAME, "", True), None, 1), f"stream {'é' * 124}"),
        (Subscribe(LIVE, None, 1), "server SYNC|6|l already registered"),
        (Subscribe(LIVE._replace(key="z"), None, 1), "bad key"),
        (Subscribe(HISTORY, None, 4), "bad priority"),
        (Subscribe(HISTORY, None, 255), "bad priority"),
        (Subscribe(Stream("DOC", DOCUMENT, False), None, 1), f"document {DOCUMENT} not held"),
        (
            Subscribe(ANSWERS._replace(live=False), None, 1),
            "stream RETRIEVE_REQUEST not registered",
        ),
        (Subscribe(ANSWERS, Range(0, 0), 1), "stream RETRIEVE_REQUEST not registered"),
    ],
)
def test_refusals_change_nothing(message: Subscribe, text: str) -> None:
    served = Served(3)
    assert served.send(Subscribe(LIVE, None, 1)) == []
    assert served.send(message) == [(3, SubscribeError(text))]
    assert served.server.streams == [LIVE]
    # It may have been given up before the refusal came.
    assert served.send(Unsubscribe(message.stream)) == []


def test_a_twin_that_is_there_keeps_both_out() -> None:
    served = Served(3)
    served.send(Subscribe(HISTORY, Range(9, 9), 1))
    error = SubscribeError("server SYNC|6|h already registered")
    assert served.send(Subscribe(LIVE, Range(1, 0), 2)) == [(3, error)]
    assert served.server.streams == [HISTORY]
    assert served.send(Subscribe(LIVE, None, 2)) == []


def test_a_peer_has_so_many_servers() -> None:
    served = Served()
    keys = [str(number) for number in range(SERVERS_MAX)]
    served.bins.items |= {key: Items() for key in keys}
    for key in keys[:-1]:
        assert served.send(Subscribe(Stream(SYNC, key, True), None, 1)) == []
    twins = Subscribe(Stream(SYNC, keys[-1], True), Range(1, 0), 1)
    assert served.send(twins) == [(3, SubscribeError("max peer servers"))]
    assert served.send(twins._replace(range=None)) == []
    assert len(served.server.streams) == SERVERS_MAX


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        (None, (0, 5)),
        (Range(0, 0), (0, 5)),
        (Range(1, 0), (1, 5)),
        (Range(0, 3), (0, 3)),
        (Range(2, 4), (2, 4)),
        (Range(5, 5), (5, 5)),
        (Range(2, 99), (2, 5)),
        (Range(2, OPEN_END), (2, 5)),
        (Range(6, 0), None),
        (Range(6, 9), None),
        (Range(4, 3), None),
        (Range(OPEN_END, OPEN_END), None),
    ],
)
def test_history_is_what_was_asked_for_up_to_the_session(
    asked: Range | None, offered: tuple[int, int] | None
) -> None:
    served = Served(5)
    sent = served.send(Subscribe(HISTORY, asked, 0))
    assert sent == ([] if offered is None else [(0, _offer(HISTORY, *offered))])
    assert served.add(5, 9) == []
    assert served.later(9) == []


def test_the_twins_meet_at_the_session_and_history_waits_for_live() -> None:
    served = Served(3)
    assert served.send(Subscribe(LIVE, Range(2, 0), 2)) == [(1, _offer(HISTORY, 2, 3))]
    assert served.add(3, 4) == []
    assert served.due() == served.now + BATCH_S
    assert served.later(BATCH_S) == [(2, _offer(LIVE, 4, 4))]
    assert served.send(Subscribe(LIVE._replace(key="1"), None, 2)) == [
        (3, SubscribeError("bad key"))
    ]
    assert Served(3).send(Subscribe(LIVE, Range(0, 0), 0)) == [(0, _offer(HISTORY, 0, 3))]


def test_batches() -> None:
    served = Served(300)
    assert served.send(Subscribe(HISTORY, Range(1, 0), 1)) == [(1, _offer(HISTORY, 1, 128))]
    assert served.later(60) == []
    assert served.send(_none(HISTORY, 129, OPEN_END)) == [(1, _offer(HISTORY, 129, 256))]
    assert served.send(_none(HISTORY, 257, 298)) == [(1, _offer(HISTORY, 257, 298))]
    assert served.send(_none(HISTORY, 299, 298, 42)) == []
    with pytest.raises(RefusedError, match="no open offer"):
        served.send(_none(HISTORY, 299, 0))


def test_a_live_batch_is_full_or_waits_for_more() -> None:
    served = Served(2)
    served.send(Subscribe(LIVE, None, 2))
    assert served.due() is None
    assert served.add(2, 3) == []
    due = served.due()
    assert due == served.now + BATCH_S
    served.now += 0.06
    assert served.add(3, 5) == []
    assert served.due() == due
    assert served.later(0.06) == [(2, _offer(LIVE, 3, 5))]
    assert served.add(5, 6) == []
    assert served.due() is None
    # All that one batch takes is here: what is behind it waits for the answer anyway.
    assert served.add(6, 200) == []
    assert served.send(_none(LIVE, 6, 0, 3)) == [(2, _offer(LIVE, 6, 133))]


def test_chunks_that_are_wanted_are_read_and_the_next_offer_does_not_wait_for_them() -> None:
    served = Served(300)
    served.reads_at_once = False
    served.send(Subscribe(HISTORY, Range(1, 0), 1))
    wanted = [at in (0, 7, 8, 127) for at in range(128)]
    answer = WantedHashes(HISTORY, encode_bits(wanted), 129, 0)
    assert served.send(answer) == [(1, _offer(HISTORY, 129, 256))]
    [read] = served.reads
    assert read[1:] == (1, [ADDRESSES[at] for at in (0, 7, 8, 127)])
    served.items.gone = {ADDRESSES[7]}
    served.read(read)
    assert served.sent() == [
        (1, StreamDelivery(ADDRESSES[at], CHUNKS[at].encoded)) for at in (0, 8, 127)
    ]


def test_whoever_answers_without_reading_is_offered_nothing_more() -> None:
    served = Served(600)
    served.reads_at_once = False
    served.send(Subscribe(HISTORY, Range(1, 0), 1))
    all_ = encode_bits([True] * 128)
    assert len(served.send(WantedHashes(HISTORY, all_, 129, 0))) == 1
    assert served.send(WantedHashes(HISTORY, all_, 257, 0)) == []
    served.read(served.reads.pop(0))
    assert served.sent()[-1] == (1, _offer(HISTORY, 257, 384))
    served.read(served.reads.pop(0))
    served.sent()
    served.rooms.remove(1)
    assert served.send(_none(HISTORY, 385, 0)) == []
    assert served.due() is None
    served.rooms.add(1)
    assert served.later(0) == [(1, _offer(HISTORY, 385, 512))]


def test_chunks_that_are_gone_are_left_out_and_nothing_empty_is_sent() -> None:
    served = Served(300)
    served.items.gone = {*ADDRESSES[:130], ADDRESSES[131]}
    assert served.send(Subscribe(HISTORY, Range(1, 0), 1)) == []
    assert served.due() == served.now
    assert served.later(0) == [(1, _offer(HISTORY, 1, 256, without={*range(131), 132}))]
    served.items.gone = {*ADDRESSES}
    assert served.send(_none(HISTORY, 257, 0, 125)) == []
    assert served.later(0) == []
    assert served.due() is None


def test_zero_to_zero_is_no_more() -> None:
    served = Served(300)
    served.send(Subscribe(LIVE, Range(1, 0), 2))
    assert served.send(_none(HISTORY, 0, 0)) == []
    assert served.later(9) == []
    assert served.server.streams == [LIVE, HISTORY]
    assert served.send(Unsubscribe(HISTORY)) == []
    assert served.server.streams == [LIVE]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (_none(LIVE, 4, 0), "stream 'SYNC', key '6', live, which has no open offer"),
        (_none(LIVE._replace(key="9"), 4, 0), "no open offer"),
        (WantedHashes(HISTORY, b"", 4, 0), "0 bytes of bits for 3 hashes"),
        (Unsubscribe(LIVE._replace(key="9")), "was not subscribed"),
    ],
)
def test_a_broken_rule_drops_the_peer(message: ServerMessage, why: str) -> None:
    served = Served(3)
    served.send(Subscribe(LIVE, Range(1, 0), 2))
    with pytest.raises(RefusedError, match=why) as caught:
        served.send(message)
    assert caught.value.reason is Reason.SUBPROTOCOL_ERROR


def test_a_source_that_ends_is_quit_behind_its_offers() -> None:
    served = Served(3)
    served.send(Subscribe(LIVE, Range(1, 0), 2))
    served.server.end(SYNC, "6", served.now)
    assert served.sent() == [(2, Quit(LIVE)), (1, Quit(HISTORY))]
    served.server.end(SYNC, "6", served.now)
    assert served.sent() == []
    # What the client had sent before it knew.
    served.now += LATE_S - 1
    assert served.send(_none(HISTORY, 4, 0, 3)) == []
    assert served.send(Unsubscribe(LIVE)) == []
    assert served.send(Unsubscribe(HISTORY)) == []
    served.now += 1
    late: ServerMessage
    for late in (_none(HISTORY, 4, 0, 3), Unsubscribe(LIVE)):
        with pytest.raises(RefusedError):
            served.send(late)


def test_what_has_ended_is_not_remembered_without_end() -> None:
    served = Served(3)
    for number in range(ENDED_MAX + 5):
        served.bins.items[str(number)] = Items()
        stream = Stream(SYNC, str(number), True)
        served.send(Subscribe(stream, None, 0))
        served.send(Unsubscribe(stream))
    assert len(served.server._ended._at) == ENDED_MAX
    served.now += LATE_S
    served.send(Subscribe(LIVE, None, 0))
    served.send(Unsubscribe(LIVE))
    assert len(served.server._ended._at) == 1


@pytest.mark.parametrize("skip_check", [True, False])
def test_a_request_is_answered_at_once_without_a_subscription(skip_check: bool) -> None:
    served = Served(3)
    delivered = (3, RetrieveDelivery(ADDRESSES[1], CHUNKS[1].encoded))
    assert served.send(RetrieveRequest(ADDRESSES[1], skip_check, 0)) == [delivered]


def test_a_request_is_answered_by_an_offer() -> None:
    served = Served(5)
    served.send(Subscribe(ANSWERS, None, 3))
    for at in (4, 2):
        assert served.send(RetrieveRequest(ADDRESSES[at], False, 0)) == []
    skipped = served.send(RetrieveRequest(ADDRESSES[3], True, 0))
    assert skipped == [(3, RetrieveDelivery(ADDRESSES[3], CHUNKS[3].encoded))]
    hashes = ADDRESSES[4] + ADDRESSES[2]
    assert served.later(BATCH_S) == [(3, OfferedHashes(ANSWERS, 1, 2, hashes))]
    assert served.send(WantedHashes(ANSWERS, encode_bits([False, True]), 3, 0)) == [
        (3, StreamDelivery(ADDRESSES[2], CHUNKS[2].encoded))
    ]


def test_a_request_for_what_is_not_here_is_passed_on_for_twenty_hops() -> None:
    served = Served(3)
    for hops in (0, 19, 20, 255):
        assert served.send(RetrieveRequest(ADDRESSES[9], True, hops)) == []
    assert served.searches == [Search(ADDRESSES[9], True, 0), Search(ADDRESSES[9], True, 19)]
    served.server.found(ADDRESSES[9], served.now, skip_check=True)
    assert served.sent() == [(3, RetrieveDelivery(ADDRESSES[9], CHUNKS[9].encoded))]


def test_of_a_peer_that_asks_and_does_not_read_the_oldest_requests_are_forgotten() -> None:
    served = Served(600)
    served.reads_at_once = False
    for number in range(ANSWERS_MAX + 3):
        served.send(RetrieveRequest(ADDRESSES[number % 600], True, 0))
    [read] = served.reads
    assert read[1:] == (3, ADDRESSES[:1])
    served.read(read)
    assert served.sent() == [(3, RetrieveDelivery(ADDRESSES[0], CHUNKS[0].encoded))]
    assert served.reads[1][1:] == (3, ADDRESSES[3:131])
    served.reads_at_once = True
    served.read(served.reads[1])
    assert len(served.sent()) == ANSWERS_MAX


def test_a_node_may_serve_no_retrievals() -> None:
    served = Served(3, serves_retrieval=False)
    assert served.send(RetrieveRequest(ADDRESSES[1], True, 0)) == []
    assert served.send(RetrieveRequest(ADDRESSES[9], True, 0)) == []
    assert served.searches == []
    error = SubscribeError("stream RETRIEVE_REQUEST not registered")
    assert served.send(Subscribe(ANSWERS, None, 3)) == [(3, error)]


def test_who_comes_and_goes_has_no_more_read_for_it_than_others() -> None:
    served = Served(300)
    served.reads_at_once = False
    for _ in range(500):
        sent = served.send(Subscribe(HISTORY, Range(0, 0), 3))
        for _, message in sent:
            if isinstance(message, OfferedHashes):
                bits = encode_bits([True] * 128)
                served.send(WantedHashes(HISTORY, bits, message.end + 1, OPEN_END))
        served.send(Unsubscribe(HISTORY))
    assert len(served.reads) <= 130
    # And when they are read it is offered more.
    while served.reads:
        served.read(served.reads.pop())
    served.sent()
    assert [type(each) for _, each in served.send(Subscribe(HISTORY, Range(0, 0), 3))] == [
        OfferedHashes
    ]
