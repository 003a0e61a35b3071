"""The client's side of streams, message by message, and the book that clients share."""

import pytest

from gateways.swarm.bmt import content_chunk
from gateways.swarm.book import ANSWER_S, Book
from gateways.swarm.client import BATCH_S, CLIENTS_MAX, Client, ClientMessage
from gateways.swarm.codec import (
    OPEN_END,
    RETRIEVE_REQUEST,
    SYNC,
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
)
from gateways.swarm.commands import ClientCommand, Ended, Found, Keep, Refused, Save, Send
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.ended import LATE_S
from gateways.swarm.intervals import Intervals

from .memory import ADDRESSES, CHUNKS

LIVE = Stream(SYNC, "6", live=True)
HISTORY = Stream(SYNC, "6", live=False)
NEWER = content_chunk(9, b"not there")


class Node:
    """What is held, the book, and clients of peers."""

    def __init__(self, peers: int = 1) -> None:
        self.held: set[bytes] = set()
        self.book = Book(self.held.__contains__)
        self.clients = [Client(self.book) for _ in range(peers)]
        self.client = self.clients[0]
        self.intervals = [Intervals(0) for _ in range(peers)]
        self.now = 100.0

    def subscribe(self, stream: Stream, range_: Range | None = None, peer: int = 0) -> None:
        self.clients[peer].subscribe(stream, range_, 2, self.intervals[peer], self.now)
        [sent] = self.clients[peer].commands()
        assert sent == Send(3, Subscribe(stream, range_, 2))

    def take(self, message: ClientMessage, peer: int = 0) -> list[ClientCommand]:
        self.clients[peer].receive(message, self.now)
        return self.clients[peer].commands()

    def deliver(self, at: int, peer: int = 0) -> list[ClientCommand]:
        return self.take(StreamDelivery(ADDRESSES[at], CHUNKS[at].encoded), peer)

    def record(self, *at: int, peer: int = 0) -> list[ClientCommand]:
        addresses = [ADDRESSES[each] for each in at]
        self.held.update(addresses)
        self.book.recorded(addresses, self.now)
        return self.clients[peer].commands()

    def fetches_nothing(self) -> bool:
        return not self.book._entries and not self.book._due

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.book.advance(self.now)
        for client in self.clients:
            client.advance(self.now)


def offer(stream: Stream, start: int, end: int, *at: int) -> OfferedHashes:
    return OfferedHashes(stream, start, end, b"".join(ADDRESSES[each] for each in at))


def wanted(stream: Stream, bits: list[int], start: int, end: int) -> Send:
    return Send(3, WantedHashes(stream, encode_bits([bit == 1 for bit in bits]), start, end))


def asked(at: int) -> Send:
    return Send(3, RetrieveRequest(ADDRESSES[at], skip_check=True, hops=0))


def saved(text: str) -> Save:
    return Save(SYNC, "6", text)


def kept(at: int) -> Keep:
    return Keep(ADDRESSES[at], CHUNKS[at].encoded)


def test_history_from_the_first_offer_to_behind_its_end() -> None:
    node = Node()
    node.subscribe(LIVE, Range(0, 0))
    assert node.client.streams == [LIVE, HISTORY]
    node.held.add(ADDRESSES[1])
    # One that stands there twice is wanted once.
    first = offer(HISTORY, 1, 4, 0, 1, 2, 0)
    assert node.take(first) == [wanted(HISTORY, [1, 0, 1, 0], 5, OPEN_END)]
    assert node.take(offer(HISTORY, 5, 6, 3, 1)) == []
    assert node.deliver(0) == [kept(0)]
    assert node.record(0) == []
    assert node.deliver(2) == [kept(2)]
    # What is written down of the first batch stands before the answer to the next.
    assert node.record(2) == [saved("0;0,4"), wanted(HISTORY, [1, 0], 7, OPEN_END)]
    assert node.deliver(3) == [kept(3)]
    assert node.record(3) == [saved("0;0,6")]
    assert node.take(offer(HISTORY, 9, 9, 3)) == [
        wanted(HISTORY, [0], 10, OPEN_END),
        saved("0;0,9"),
    ]
    assert (node.client.received, node.client.ignored) == (3, 0)


def test_live_names_an_open_end_and_begins_where_the_server_says() -> None:
    node = Node()
    node.subscribe(LIVE)
    assert node.take(offer(LIVE, 7, 7, 0)) == [wanted(LIVE, [1], 8, 0)]
    node.deliver(0)
    assert node.record(0) == [saved("0;7,7")]
    assert node.take(offer(LIVE, 9, 9, 0)) == [wanted(LIVE, [0], 10, 0), saved("0;7,9")]


def test_a_range_with_an_end_is_answered_behind_it_too() -> None:
    node = Node()
    node.subscribe(HISTORY, Range(3, 4))
    node.held.add(ADDRESSES[0])
    answer = wanted(HISTORY, [0, 0], 5, 4)
    assert node.take(offer(HISTORY, 3, 4, 0, 0)) == [answer, saved("0;3,4")]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (offer(HISTORY, 1, 4), "'SYNC', key '6', history without a hash"),
        (offer(LIVE, 1, 1, 0), "live, which is not subscribed"),
        (offer(HISTORY, 4, 3, 0), "from 4 to 3, where 2 was asked for"),
        (offer(HISTORY, 0, 1, 0), "from 0 to 1, where 2 was asked for"),
        (offer(HISTORY, 2, OPEN_END, 0), "from 2 to 18446744073709551615"),
        (StreamDelivery(ADDRESSES[0], CHUNKS[1].encoded), "not the one of its address"),
        (RetrieveDelivery(ADDRESSES[0], b""), "not the one of its address"),
        (StreamDelivery(ADDRESSES[0], CHUNKS[0].encoded + b"x"), "not the one of its address"),
    ],
)
def test_a_broken_rule_drops_the_peer(message: ClientMessage, why: str) -> None:
    node = Node()
    node.subscribe(HISTORY, Range(2, 0))
    with pytest.raises(RefusedError, match=why) as caught:
        node.take(message)
    assert caught.value.reason is Reason.SUBPROTOCOL_ERROR
    assert node.client.commands() == []


def test_one_offer_of_a_stream_waits_and_no_second() -> None:
    node = Node()
    node.subscribe(HISTORY, Range(1, 0))
    node.take(offer(HISTORY, 1, 1, 0))
    assert node.take(offer(HISTORY, 2, 2, 1)) == []
    with pytest.raises(RefusedError, match="a second offer"):
        node.take(offer(HISTORY, 3, 3, 2))


def test_what_was_not_asked_for_is_ignored_and_counted() -> None:
    node = Node()
    node.subscribe(HISTORY, Range(1, 0))
    node.take(offer(HISTORY, 1, 1, 0))
    assert node.take(StreamDelivery(NEWER.address, NEWER.encoded)) == []
    assert node.deliver(0) == [kept(0)]
    assert node.deliver(0) == []
    node.record(0)
    assert node.deliver(0) == []
    assert (node.client.received, node.client.ignored) == (1, 3)


def test_what_another_fetches_is_not_wanted_and_completes_both() -> None:
    node = Node(peers=2)
    for peer in (0, 1):
        node.subscribe(HISTORY, Range(0, 0), peer)
    assert node.take(offer(HISTORY, 1, 2, 0, 1)) == [wanted(HISTORY, [1, 1], 3, OPEN_END)]
    answer = wanted(HISTORY, [0, 0, 1], 4, OPEN_END)
    assert node.take(offer(HISTORY, 1, 3, 1, 0, 2), peer=1) == [answer]
    # Not asked of this one.
    assert node.deliver(0, peer=1) == []
    for at, peer in ((0, 0), (1, 0), (2, 1)):
        assert node.deliver(at, peer) == [kept(at)]
    assert node.record(0, 1, 2) == [saved("0;0,2")]
    assert node.clients[1].commands() == [saved("0;0,3")]
    assert node.fetches_nothing()


def test_who_does_not_deliver_is_passed_over_and_then_dropped() -> None:
    node = Node(peers=3)
    for peer in range(3):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 2, 0, 1), peer)
    node.deliver(0)
    assert node.book.next_deadline == node.now + ANSWER_S
    node.later(ANSWER_S - 1)
    assert node.clients[1].commands() == []
    node.later(1)
    assert [client.commands() for client in node.clients] == [[], [asked(1)], []]
    node.later(BATCH_S - ANSWER_S - 1)
    with pytest.raises(RefusedError, match="0 to 2 did not come in 30 s"):
        node.later(1)
    node.clients[0].close(node.now)
    # The second may still deliver, and is not asked again.
    assert [client.commands() for client in node.clients] == [[], [], []]
    answered = RetrieveDelivery(ADDRESSES[1], CHUNKS[1].encoded)
    assert node.take(answered, peer=1) == [kept(1)]
    assert node.record(0, 1) == []
    for peer in (1, 2):
        assert node.clients[peer].commands() == [saved("0;0,2")]
    assert node.fetches_nothing()


def test_a_peer_is_dropped_for_what_it_was_asked_for_alone() -> None:
    node = Node(peers=2)
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 1, 0), peer)
    node.deliver(0)
    # The disk is full: nobody is to blame.
    for _ in range(9):
        node.later(10)
        assert node.client.next_deadline is not None
        assert node.client.next_deadline > node.now
    assert [client.commands() for client in node.clients] == [[], []]
    assert node.record(0) == [saved("0;0,1")]


def test_nobody_is_asked_twice() -> None:
    node = Node(peers=2)
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 1, 0), peer)
    node.later(20)
    assert node.clients[1].commands() == [asked(0)]
    with pytest.raises(RefusedError):
        node.later(20)
    assert node.clients[0].commands() == []
    node.clients[0].close(node.now)
    with pytest.raises(RefusedError):
        node.later(10)
    node.clients[1].close(node.now)
    assert node.fetches_nothing()


def test_whoever_is_asked_late_has_its_time() -> None:
    node = Node(peers=2)
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 1, 0), peer)
    node.later(ANSWER_S)
    node.clients[0].close(node.now)
    assert node.clients[1].next_deadline == node.now + BATCH_S
    node.later(BATCH_S - 1)
    with pytest.raises(RefusedError, match="did not come"):
        node.later(1)


def test_what_came_some_other_way_is_not_asked_for_again() -> None:
    node = Node(peers=2)
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 2, 0, 1), peer)
    node.record(0)
    node.later(ANSWER_S)
    assert node.clients[1].commands() == [asked(1)]


def test_a_peer_whose_stream_has_ended_may_be_asked_when_it_is_back() -> None:
    node = Node(peers=2)
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 1, 0), peer)
    node.take(Quit(HISTORY))
    node.later(ANSWER_S)
    assert node.clients[1].commands() == [asked(0)]
    node.later(LATE_S - ANSWER_S)
    node.subscribe(HISTORY, Range(0, 0))
    assert node.take(offer(HISTORY, 1, 1, 0)) == [wanted(HISTORY, [0], 2, OPEN_END)]
    node.later(ANSWER_S + ANSWER_S - LATE_S)
    assert node.clients[0].commands() == [asked(0)]


def test_what_nobody_waits_for_is_not_remembered() -> None:
    node = Node()
    node.subscribe(HISTORY, Range(0, 0))
    node.take(offer(HISTORY, 1, 1, 0))
    node.later(ANSWER_S)
    node.client.unsubscribe(HISTORY, node.now)
    assert node.fetches_nothing()
    node = Node(peers=2)
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        node.take(offer(HISTORY, 1, 1, 0), peer)
    for _ in range(2):
        node.now += ANSWER_S
        node.book.advance(node.now)
    node.clients[1].unsubscribe(HISTORY, node.now)
    node.clients[0].close(node.now)
    assert node.fetches_nothing()


def test_who_offers_what_is_overdue_is_asked_by_its_answer() -> None:
    node = Node(peers=2)
    node.subscribe(HISTORY, Range(0, 0), 0)
    node.take(offer(HISTORY, 1, 1, 0), 0)
    node.later(ANSWER_S)
    node.subscribe(HISTORY, Range(0, 0), 1)
    assert node.take(offer(HISTORY, 1, 1, 0), 1) == [wanted(HISTORY, [1], 2, OPEN_END)]
    # It comes late, but it comes; the second is one too many.
    assert node.deliver(0) == [kept(0)]
    assert node.deliver(0, peer=1) == []
    assert node.clients[1].ignored == 1


def test_a_peer_that_leaves_leaves_its_part_to_others() -> None:
    node = Node(peers=3)
    for peer in range(3):
        node.subscribe(HISTORY, Range(0, 0), peer)
    node.take(offer(HISTORY, 1, 3, 0, 1, 2), 0)
    node.take(offer(HISTORY, 1, 1, 0), 2)
    node.take(offer(HISTORY, 1, 2, 0, 1), 1)
    node.clients[2].commands(), node.clients[1].commands()
    node.deliver(1)
    node.clients[0].close(node.now)
    assert node.clients[1].commands() == []
    assert node.clients[2].commands() == [asked(0)]
    assert [*node.book._entries] == [ADDRESSES[0], ADDRESSES[1]]
    node.deliver(0, peer=2)
    assert node.record(0, 1, peer=1) == [saved("0;0,2")]


def test_who_offers_what_somebody_waits_for_is_asked_at_once() -> None:
    node = Node(peers=2)
    node.book.sought.add(ADDRESSES[0])
    for peer in range(2):
        node.subscribe(HISTORY, Range(0, 0), peer)
        sent = node.take(offer(HISTORY, 1, 2, 0, 1 + peer), peer)
        assert sent == [asked(0), wanted(HISTORY, [0, 1], 3, OPEN_END)]
    # It is for who waits, and for the batches.
    found = Found(ADDRESSES[0], CHUNKS[0].encoded)
    assert node.deliver(0, peer=1) == [kept(0), found]
    node.book.sought.clear()
    assert node.deliver(0) == []


def test_what_has_ended_is_heard_of_for_a_while() -> None:
    node = Node()
    node.subscribe(LIVE, Range(1, 0))
    node.take(offer(HISTORY, 1, 2, 0, 1))
    node.client.unsubscribe(HISTORY, node.now)
    node.client.unsubscribe(HISTORY, node.now)
    assert node.client.commands() == [Send(3, Unsubscribe(HISTORY))]
    assert node.take(Quit(LIVE)) == [Ended(LIVE)]
    assert node.take(Quit(LIVE)) == []
    assert node.client.streams == []
    assert node.client.free_at(LIVE) == node.now + LATE_S
    # What was asked for comes, and is welcome.
    assert node.deliver(0) == [kept(0)]
    node.record(0)
    for stream in (LIVE, HISTORY):
        assert node.take(offer(stream, 3, 3, 0)) == []
        with pytest.raises(ValueError, match="has just ended"):
            node.subscribe(stream, Range(1, 0))
    node.later(LATE_S)
    assert node.fetches_nothing()
    with pytest.raises(RefusedError, match="not subscribed"):
        node.take(offer(LIVE, 3, 3, 0))
    node.subscribe(LIVE, Range(1, 0))


DOCUMENT = Stream("DOC", "ab", live=False)
ANSWERS = Stream(RETRIEVE_REQUEST, "", live=True)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("stream RETRIEVE_REQUEST not registered", ANSWERS),
        ("stream SYNC not registered", LIVE),
        ("stream SYN not registered", None),
        ("server SYNC|6|h already registered", LIVE),
        ("server SYNC|7|l already registered", None),
        ("document ab not held", DOCUMENT),
        ("document abc not held", None),
        ("max peer servers", LIVE),
        ("bad key", LIVE),
        ("whatever upstream says", LIVE),
        ("", LIVE),
    ],
)
def test_a_refusal_is_of_the_oldest_that_it_fits(text: str, refused: Stream | None) -> None:
    node = Node()
    taken = Stream(SYNC, "5", live=False)
    node.subscribe(taken)
    node.held.add(ADDRESSES[0])
    node.take(offer(taken, 1, 1, 0))
    for stream in (LIVE, DOCUMENT, ANSWERS):
        node.subscribe(stream, Range(1, 0) if stream is not ANSWERS else None)
    before = node.client.streams
    expected = [] if refused is None else [Refused(refused, text)]
    assert node.take(SubscribeError(text)) == expected
    lost = {refused, HISTORY if refused == LIVE else None}
    assert node.client.streams == [each for each in before if each not in lost]


def test_how_much_is_had_of_one_peer() -> None:
    node = Node()
    for number in range(CLIENTS_MAX - 1):
        node.subscribe(Stream(SYNC, str(number), live=False), Range(1, 0))
    with pytest.raises(ValueError, match="512 streams of a peer"):
        node.subscribe(LIVE._replace(key="z"), Range(1, 0))
    node.subscribe(LIVE._replace(key="z"))
    with pytest.raises(ValueError, match="is subscribed"):
        node.subscribe(HISTORY._replace(key="5"))
