"""Looking for chunks at peers: who is asked, in which order, and when it is over."""

from gateways.swarm.book import Book
from gateways.swarm.peers import Lacking, Requester
from gateways.swarm.retrieval import NEXT_S, SEARCH_S, SEARCHES_MAX, Searches

WANTED = bytes(32)


class Peer:
    """Its overlay begins with a byte: the smaller, the nearer to WANTED."""

    def __init__(self, first: int) -> None:
        self.overlay = bytes([first]) + bytes(31)
        self.asked: list[tuple[bytes, int]] = []
        self.has_room = True

    def seek(self, address: bytes, hops: int) -> None:
        self.asked.append((address, hops))


def searches(*peers: Peer) -> Searches:
    found = Searches(Book(lambda _: False))
    for each in peers:
        found.join(each, 0.0)
    return found


def asked_by(peer: Peer) -> Requester:
    return Requester(peer, skip_check=True)  # type: ignore[arg-type]


def test_from_the_nearest_outward() -> None:
    far, near, middle = Peer(200), Peer(1), Peer(90)
    looking = searches(far, near, middle)
    looking.seek(WANTED, Lacking(1), 0, 10.0)
    assert [len(each.asked) for each in (near, middle, far)] == [1, 0, 0]
    assert looking.next_deadline == 10.0 + NEXT_S
    assert looking.advance(10.9) == []
    assert len(middle.asked) == 0
    looking.advance(11.0)
    assert [len(each.asked) for each in (near, middle, far)] == [1, 1, 0]
    looking.advance(12.0)
    looking.advance(13.0)
    assert [len(each.asked) for each in (near, middle, far)] == [1, 1, 1]
    assert looking.next_deadline == 10.0 + SEARCH_S
    assert looking.advance(20.0) == [(WANTED, Lacking(1))]
    assert looking.advance(30.0) == []
    assert looking.found(WANTED) == []


def test_all_who_wait_share_a_search() -> None:
    near, far = Peer(1), Peer(2)
    looking = searches(near, far)
    looking.seek(WANTED, Lacking(1), 0, 0.0)
    looking.seek(WANTED, Lacking(2), 0, 0.5)
    assert [len(each.asked) for each in (near, far)] == [1, 0]
    assert looking.found(WANTED) == [Lacking(1), Lacking(2)]
    assert looking.next_deadline is None


def test_nobody_is_asked_for_what_he_asks_for() -> None:
    near, far = Peer(1), Peer(2)
    looking = searches(near, far)
    looking.seek(WANTED, asked_by(near), 3, 0.0)
    assert near.asked == []
    assert far.asked == [(WANTED, 3)]
    looking.advance(5.0)
    assert near.asked == []


def test_when_the_last_one_has_left_it_is_over() -> None:
    near = Peer(1)
    looking = searches(near)
    looking.seek(WANTED, Lacking(1), 0, 0.0)
    looking.seek(WANTED, Lacking(2), 0, 0.0)
    looking.give_up(WANTED, Lacking(1))
    assert looking.next_deadline is not None
    looking.give_up(WANTED, Lacking(2))
    assert looking.next_deadline is None


def test_who_asked_and_left_waits_no_more() -> None:
    requester, near = Peer(1), Peer(2)
    looking = searches(requester, near)
    looking.seek(WANTED, asked_by(requester), 1, 0.0)
    looking.leave(requester, 0.1)
    assert looking.next_deadline is None


def test_when_whom_we_ask_has_left_the_next_is_due() -> None:
    near, far = Peer(1), Peer(2)
    looking = searches(near, far)
    looking.seek(WANTED, Lacking(1), 0, 0.0)
    looking.leave(near, 0.1)
    assert looking.next_deadline == 0.1
    looking.advance(0.1)
    assert far.asked == [(WANTED, 0)]


def test_who_comes_is_asked_where_nobody_is_left() -> None:
    looking = searches()
    looking.seek(WANTED, Lacking(1), 0, 0.0)
    near = Peer(1)
    looking.join(near, 2.0)
    assert looking.next_deadline == 2.0
    looking.advance(2.0)
    assert near.asked == [(WANTED, 0)]


def test_of_who_asks_without_end_the_oldest_are_forgotten() -> None:
    greedy, other = Peer(1), Peer(2)
    looking = searches(greedy, other)
    count = SEARCHES_MAX + 100
    addresses = [number.to_bytes(32, "big") for number in range(count)]
    looking.seek(b"\xff" * 32, Lacking(1), 0, 0.0)
    for each in addresses:
        looking.seek(each, asked_by(greedy), 1, 0.0)
    left = [each for each in addresses if looking.found(each)]
    assert left == addresses[-SEARCHES_MAX:]
    assert looking.found(b"\xff" * 32) == [Lacking(1)]


def test_who_does_not_read_is_not_asked_until_he_does() -> None:
    near, far = Peer(1), Peer(2)
    near.has_room = far.has_room = False
    looking = searches(near, far)
    looking.seek(WANTED, Lacking(1), 0, 0.0)
    assert [len(each.asked) for each in (near, far)] == [0, 0]
    far.has_room = True
    looking.advance(1.0)
    assert [len(each.asked) for each in (near, far)] == [0, 1]
    near.has_room = True
    looking.advance(2.0)
    assert [len(each.asked) for each in (near, far)] == [1, 1]


def test_many_searches_cost_what_is_due() -> None:
    near = Peer(1)
    looking = searches(near)
    addresses = [number.to_bytes(32, "big") for number in range(3_000)]
    for at, each in enumerate(addresses):
        looking.seek(each, Lacking(at), 0, at / 1_000)
    assert looking.next_deadline == 1.0
    assert looking.advance(1.0) == []
    ended = looking.advance(11.0)
    assert {waiter for _, waiter in ended} == {Lacking(at) for at in range(1_001)}
    for each in addresses:
        looking.found(each)
    assert looking.next_deadline is None
