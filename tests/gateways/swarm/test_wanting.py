"""What is subscribed at a peer, as the depth moves and the peer refuses, quits or asks."""

from gateways.swarm.book import Book
from gateways.swarm.client import Client
from gateways.swarm.codec import (
    HIGH,
    RETRIEVE_REQUEST,
    SYNC,
    TOP,
    Message,
    OfferedHashes,
    Quit,
    Range,
    RequestSubscription,
    Stream,
    Subscribe,
    Unsubscribe,
    bin_key,
    read_bin_key,
)
from gateways.swarm.commands import Send
from gateways.swarm.intervals import Intervals
from gateways.swarm.wanting import Wanting, share_of

from .memory import ADDRESSES


def bin_(number: int, *, live: bool = True) -> Stream:
    return Stream(SYNC, bin_key(number), live)


class Node:
    def __init__(
        self, *, takes: bool = True, intervals: dict[str, Intervals] | None = None
    ) -> None:
        self.held = set(ADDRESSES)
        self.client = Client(Book(self.held.__contains__))
        self.wanting = Wanting(self.client, intervals or {}, takes=takes)

    def said(self) -> list[Message]:
        return [each.message for each in self.client.commands() if isinstance(each, Send)]

    def subscribed(self) -> set[int]:
        return {
            read_bin_key(each.stream.key) for each in self.said() if isinstance(each, Subscribe)
        }


def test_shares() -> None:
    assert [*share_of(0, 0)] == [*range(17)]
    assert [*share_of(0, 2)] == [0]
    assert [*share_of(1, 2)] == [1]
    assert [*share_of(2, 2)] == [*range(2, 17)]
    assert [*share_of(9, 2)] == [*range(2, 17)]
    assert [*share_of(16, 16)] == [16]


def test_answers_to_what_is_looked_for_are_wanted_first() -> None:
    node = Node()
    node.wanting.begin(0.0)
    node.wanting.set_share(range(1), 0.0)
    answers = Stream(RETRIEVE_REQUEST, "", live=True)
    assert node.said() == [
        Subscribe(answers, None, TOP),
        Subscribe(bin_(0), Range(0, 0), HIGH),
    ]


def test_history_goes_on_at_the_first_gap() -> None:
    intervals = Intervals(0)
    intervals.add(0, 128)
    intervals.add(200, 300)
    node = Node(intervals={"0": intervals})
    node.wanting.set_share(range(1), 0.0)
    assert node.said() == [Subscribe(bin_(0), Range(129, 0), HIGH)]


def test_the_depth_moves() -> None:
    node = Node()
    node.wanting.set_share(range(17), 0.0)
    assert node.subscribed() == {*range(17)}
    node.wanting.set_share(range(3, 4), 10.0)
    gone = {each.stream for each in node.said() if isinstance(each, Unsubscribe)}
    # Each twin by a message of its own.
    assert gone == {bin_(at, live=live) for at in range(17) if at != 3 for live in (True, False)}
    node.wanting.set_share(range(2, 4), 20.0)
    # What of the old subscription is still on its way would be taken for the new one's.
    assert node.said() == []
    assert node.wanting.next_deadline == 40.0
    node.wanting.advance(39.9)
    assert node.said() == []
    node.wanting.advance(40.0)
    assert node.subscribed() == {2}
    assert node.wanting.next_deadline is None


def test_what_the_peer_asks_for_is_wanted_from_where_we_are() -> None:
    intervals = Intervals(0)
    intervals.add(0, 9)
    node = Node(intervals={"5": intervals})
    node.wanting.set_share(range(3, 4), 0.0)
    node.said()
    asked = RequestSubscription(bin_(5), Range(77, 99), TOP)
    node.wanting.request(asked, 0.0)
    assert node.said() == [Subscribe(bin_(5), Range(10, 0), HIGH)]
    node.wanting.request(asked, 0.0)
    assert node.said() == []
    # It stays so when the depth moves.
    node.wanting.set_share(range(3, 5), 0.0)
    assert node.subscribed() == {4}


def test_requests_that_are_not_obeyed() -> None:
    node = Node()
    for stream in (Stream("DOC", "00", live=False), Stream(SYNC, "h", live=True)):
        node.wanting.request(RequestSubscription(stream, None, TOP), 0.0)
    assert node.said() == []
    light = Node(takes=False)
    light.wanting.set_share(range(17), 0.0)
    light.wanting.request(RequestSubscription(bin_(1), Range(0, 0), TOP), 0.0)
    assert light.said() == []


def test_what_the_peer_has_no_more_of_is_not_asked_for_again() -> None:
    node = Node()
    node.wanting.set_share(range(2), 0.0)
    node.said()
    node.client.receive(Quit(bin_(1)), 0.0)
    node.wanting.over(bin_(1), 0.0)
    assert node.said() == [Unsubscribe(bin_(1, live=False))]
    node.wanting.advance(100.0)
    assert node.said() == []
    # But when it asks for it itself.
    node.wanting.request(RequestSubscription(bin_(1), Range(0, 0), TOP), 100.0)
    assert node.subscribed() == {1}


def test_a_pause() -> None:
    node = Node()
    node.wanting.begin(0.0)
    node.wanting.set_share(range(2), 0.0)
    node.said()
    node.wanting.pause(True, 0.0)
    assert len(node.said()) == 4
    assert node.client.streams == [Stream(RETRIEVE_REQUEST, "", live=True)]
    node.wanting.set_share(range(3), 1.0)
    assert node.said() == []
    node.wanting.pause(False, 2.0)
    assert node.subscribed() == {2}
    node.wanting.advance(30.0)
    assert node.subscribed() == {0, 1}


def test_it_is_synced_when_nothing_was_offered_for_a_while() -> None:
    node = Node()
    node.wanting.set_share(range(1), 0.0)
    assert not node.wanting.is_synced(4.9)
    node.client.receive(OfferedHashes(bin_(0), 1, 1, ADDRESSES[0]), 4.9)
    assert not node.wanting.is_synced(9.8)
    assert node.wanting.is_synced(9.9)
    node.held.discard(ADDRESSES[1])
    node.client.receive(OfferedHashes(bin_(0), 2, 2, ADDRESSES[1]), 20.0)
    assert not node.wanting.is_synced(26.0)
