"""A session that may not fetch a log asks for notifications only, and can be told to fetch."""

from collections.abc import Iterator
from random import Random

import pytest
from nacl.signing import SigningKey

from peer.planner.rests import Kind, Outcome
from peer.planner.source_book import SourceBook
from peer.planner.sourcing import Claim, Fetches, claim_all
from peer.protocol.events import Interests, InterestsChanged, SourceChanged
from peer.protocol.notices import (
    Arriving,
    EntriesReceived,
    FetchEnded,
    PayloadsReceived,
    PeerHolds,
    RequestCancelled,
)
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    encode_request_cancelled,
    encode_switch,
)

from .desk import Shown
from .impolite import LOG as THEIRS
from .impolite import Impolite, entry_packets, log_of, propose
from .rig import Author, Held, Pair, Store, claim_none

AUTHOR = Author(SigningKey(b"s" * 32))
LOG = LogKey(AUTHOR.id, 0)
FOLLOWS = Interests(logs=frozenset((LOG,)))
SIZE = 40


def store_of(count: int) -> Store:
    store = Store()
    for seq in range(1, count + 1):
        store.append(AUTHOR, 0, b"%d" % (seq % 10) * SIZE)
    return store


class Node:
    """One store with links to others; `source` is the link that may fetch."""

    def __init__(self, store: Store, *others: Store, side: int = 0) -> None:
        """`side` of each link is the node's own."""
        self.store = store
        self.side = side
        self.source: int | None = None
        self.links: list[Pair] = []
        self.denied = [0] * len(others)
        for number, other in enumerate(others):
            stores = (other, store) if side else (store, other)
            self.links.append(Pair(stores=stores))
            claims = (claim_all, self.claim(number)) if side else (self.claim(number), claim_all)
            self.links[number].connect((FOLLOWS, FOLLOWS), claims=claims)

    def claim(self, number: int) -> Claim:
        def claim(_: LogKey, brought: int = 0, /) -> bool:
            if self.source is None:
                self.source = number
            self.denied[number] += self.source != number
            return self.source == number or brought > 0

        return claim

    def change(self, number: int) -> None:
        old, self.source = self.source, number
        if old is not None and old < len(self.links):
            self.tell(old, fetch=False)
        self.tell(number, fetch=True)

    def tell(self, number: int, *, fetch: bool) -> None:
        self.links[number].hosts[self.side].todo.append(SourceChanged(LOG, fetch))

    def run(self, rounds: int = 12) -> None:
        for _ in range(rounds):
            for link in self.links:
                link.run(advance_s=0.5)

    def notices(self, number: int, kind: type) -> list[object]:
        return [n for n in self.links[number].hosts[self.side].notices if isinstance(n, kind)]

    def payload_bytes(self, number: int) -> int:
        got: Iterator[EntriesReceived | PayloadsReceived] = (
            notice
            for notice in self.links[number].hosts[self.side].notices
            if isinstance(notice, EntriesReceived | PayloadsReceived)
        )
        return sum(notice.payload_bytes for notice in got)


@pytest.mark.parametrize("side", [0, 1])
def test_one_source_sends_and_the_other_notifies(side: int) -> None:
    node = Node(Store(), store_of(20), store_of(20), side=side)
    node.source = 0
    node.links[1].run()
    assert node.store.height(LOG) == 0
    node.run()
    assert node.store.logs[LOG] == store_of(20).logs[LOG]
    assert [node.payload_bytes(0), node.payload_bytes(1)] == [20 * SIZE, 0]
    assert PeerHolds(LOG, 20, 0) in node.notices(1, PeerHolds)
    assert node.notices(1, Arriving) == []
    assert node.notices(0, Arriving) != []


@pytest.mark.parametrize("side", [0, 1])
def test_what_was_taken_from_a_session_before_it_had_an_answer_is_not_fetched(side: int) -> None:
    """There was no request in force yet that could have been lowered."""
    others = store_of(1), store_of(1)
    node = Node(store_of(1), *others, side=side)
    node.source, link = 0, node.links[0]
    for each in (1 - side, side):
        while link.hosts[each].step():
            pass
        link.pump(each)
        if each != side:
            link.deliver_control(each, len(link.control[each]))
    assert link.engine(side)._table.of_log(LOG)
    node.source = 1
    node.tell(0, fetch=False)
    node.run()
    for store in others:
        store.append(AUTHOR, 0, b"2" * SIZE)
    node.run()
    assert [node.payload_bytes(0), node.payload_bytes(1)] == [0, SIZE]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("first", [0, 1])
def test_another_session_takes_over_what_comes_later(side: int, first: int) -> None:
    """The other one is lowered, and nothing is missed in either direction."""
    one, other = store_of(5), store_of(5)
    node = Node(Store(), one, other, side=side)
    node.source = first
    node.run()
    node.change(1 - first)
    node.run()
    assert FetchEnded(LOG) in node.notices(first, FetchEnded)
    assert node.links[first].engine(side).reads.may_fetch(LOG)
    before = node.payload_bytes(first)
    for _ in range(3):
        one.append(AUTHOR, 0, b"n" * SIZE)
    other.logs[LOG].update(one.logs[LOG])
    other.changed(LOG)
    node.run()
    assert node.payload_bytes(1 - first) == 3 * SIZE
    assert node.payload_bytes(first) == before
    node.store.append(AUTHOR, 0, b"mine")
    node.run()
    assert node.store.logs[LOG] == one.logs[LOG] == other.logs[LOG]


@pytest.mark.parametrize("side", [0, 1])
def test_a_raised_request_is_cancelled_with_128_and_proposed_anew(side: int) -> None:
    node = Node(Store(), Store(), store_of(9), side=side)
    node.source = 0
    node.run()
    assert node.store.height(LOG) == 0
    node.change(1)
    node.run()
    assert node.store.height(LOG) == 9
    host = node.links[1].hosts[side]
    reasons = [n.reason for n in host.notices if isinstance(n, RequestCancelled) and n.by_us]
    assert CancelReason.NOT_WANTED in reasons
    [request] = node.links[1].engine(side).actor.requests_of(LOG)
    assert request.our_interest.eagerness is Eagerness.ALL


@pytest.mark.parametrize("side", [0, 1])
def test_a_large_payload_goes_on_where_the_other_one_left_it(side: int) -> None:
    one, other = Store(), Store()
    for store in (one, other):
        store.append(AUTHOR, 0, Random(1).randbytes(5000))
    node = Node(Store(), one, other, side=side)
    node.source = 0
    link = node.links[0]
    for _ in range(30):
        for each in (0, 1):
            while link.hosts[each].step():
                pass
            link.pump(each, data_max=100)
            link.deliver_control(each, 1 << 20)
            link.deliver_data(each, 100)
    sunk = sum(len(sink.data) for sink in node.links[0].hosts[side].sinks.values())
    assert 0 < sunk < 5000
    node.change(1)
    node.run()
    assert node.store.logs[LOG] == one.logs[LOG]
    came = sum(n.data_bytes for n in node.notices(1, Arriving) if isinstance(n, Arriving))
    assert came < 5000 - sunk + 300


@pytest.mark.parametrize("side", [0, 1])
def test_a_log_that_has_ended_is_listened_to_once(side: int) -> None:
    """No proposals go round while another session fetches, and the last one takes over."""
    one, other = store_of(9), store_of(9)
    for store in (one, other):
        store.append(AUTHOR, 0, b"end" * 9, is_end=True)
    node = Node(Store(), one, other, side=side)
    node.source = 2
    node.run(40)
    assert node.store.height(LOG) == 0
    assert max(node.denied) < 9
    node.change(1)
    node.run()
    assert node.store.logs[LOG] == one.logs[LOG]


def test_the_wishes_of_the_other_side_are_served_without_a_claim() -> None:
    node = Node(store_of(12), Store())
    node.source = 5
    node.run()
    assert node.links[0].hosts[1].store.logs[LOG] == node.store.logs[LOG]


def test_a_claim_ends_with_the_request() -> None:
    node = Node(Store(), store_of(3))
    node.run()
    assert node.notices(0, FetchEnded) == []
    there = node.links[0].engine(1)
    [request] = there.actor.requests_of(LOG)
    there.actor.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
    node.links[0].run()
    assert FetchEnded(LOG) in node.notices(0, FetchEnded)
    assert not node.links[0].engine(0).reads.may_fetch(LOG)


def test_a_claim_does_not_end_before_what_came_is_stored() -> None:
    """Another session would ask for all of it again."""
    fetches = Fetches(lambda _: [])
    fetches.declined(LOG)
    assert fetches.take_ended(lambda _: True) == []
    assert fetches.take_ended(lambda _: False) == [FetchEnded(LOG)]
    assert fetches.take_ended(lambda _: False) == []


def test_a_claim_does_not_end_before_what_is_complete_has_come() -> None:
    """That is said on the control channel, and may be ahead of all of it."""
    logs, held = frozenset((THEIRS, LOG)), log_of(2)
    side = Impolite(proactive=True, logs=logs)
    side.control(Grant(3))
    [asked] = [each for each in side.messages() if isinstance(each, Propose) and each.log == THEIRS]
    told = Adjust(asked.request, eagerness=Eagerness.NOTIFY, allow_skip=True, end=2)
    side.control(told, Cancel(asked.request, CancelReason.COMPLETE))
    ended = FetchEnded(THEIRS)
    assert ended not in side.host.notices
    side.sent()
    switch = encode_switch(asked.request)
    side.data(switch, entry_packets(held, (1, 2), 1), encode_request_cancelled(asked.request))
    assert side.store.logs[THEIRS].keys() == held.keys()
    side.sent()
    assert ended in side.host.notices


def test_who_would_ask_if_it_were_the_source_can_be_asked() -> None:
    """A payload that it brought, since nobody else did, is over: that says nothing of the rest."""
    stores = (store_of(4), store_of(9))
    pair = Pair(stores=stores)
    pair.connect((FOLLOWS, FOLLOWS), claims=(claim_none, claim_all))
    for _ in range(4):
        pair.run(advance_s=0.5)
    here = pair.engine(0)
    for request in list(here.actor.requests_of(LOG)):
        here.actor.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
    here._fetches.declined(LOG)
    pair.run()
    assert FetchEnded(LOG) in pair.hosts[0].notices
    assert here.reads.may_fetch(LOG)


def test_a_listener_that_is_refused_listens_no_more() -> None:
    node = Node(Store(), store_of(3))
    node.source = 7
    node.run()
    there = node.links[0].engine(1)
    [request] = there.actor.requests_of(LOG)
    there.actor.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
    node.links[0].run()
    assert FetchEnded(LOG) in node.notices(0, FetchEnded)
    assert not node.links[0].engine(0).reads.may_fetch(LOG)


def test_a_listener_that_cannot_fetch_is_not_asked_in_turns() -> None:
    """Its peer has refused to send the log, and only notifies."""
    node = Node(Store(), store_of(3))
    node.source = 7
    node.run()
    here = node.links[0].engine(0)
    [request] = here.actor.requests_of(LOG)
    here._planner._rests.note(LOG, Kind.RANGE, Outcome.REFUSED, here.now)
    node.tell(0, fetch=True)
    node.links[0].run()
    assert FetchEnded(LOG) in node.notices(0, FetchEnded)
    assert not node.links[0].engine(0).reads.may_fetch(LOG)
    assert here.actor.requests_of(LOG) == [request]


def test_who_asks_for_what_is_behind_a_payload_holds_it() -> None:
    """Its proposal begins behind the payload that another session is still to bring here."""
    node = Node(store_of(4), store_of(4))
    held = node.store.logs[LOG][4]
    node.store.logs[LOG][4] = Held(held.encoded, held.hash, None)
    node.source = 7
    node.links[0].hosts[0].todo.clear()
    node.links[0].hosts[0].todo.append(InterestsChanged(FOLLOWS, ()))
    node.run()
    assert PeerHolds(LOG, 4, 3) in node.notices(0, PeerHolds)


@pytest.mark.parametrize(("start", "height", "told"), [(38, 1, None), (5, 4, (4, 3)), (4, 4, None)])
def test_what_is_missing_at_the_gap_says_nothing_of_the_newest_entry(
    start: int, height: int, told: tuple[int, int] | None
) -> None:
    """The payload of `height` has still to come, and a log in parts has newer entries."""
    held = log_of(height)
    held[height] = Held(held[height].encoded, held[height].hash, None)
    if height == 1:
        held |= {seq: each for seq, each in log_of(40).items() if seq >= start}
    side = Impolite(held)
    side.engine.actor.claim = claim_none
    side.control(Grant(3), propose(side.number, start))
    expected = set() if told is None else {PeerHolds(THEIRS, *told)}
    assert {each for each in side.host.notices if isinstance(each, PeerHolds)} == expected


def test_a_one_time_sync_is_not_held_back() -> None:
    """What it brings is kept although another session fetches the log."""
    pair = Pair(stores=(store_of(7), Store()))
    pair.connect((FOLLOWS, FOLLOWS), policy="sync", claims=(claim_none, claim_none))
    for _ in range(12):
        pair.run(advance_s=1.0)
    assert pair.hosts[1].store.logs[LOG] == store_of(7).logs[LOG]


def test_who_only_listens_hears_of_more_although_its_own_piece_is_not_whole() -> None:
    """It waits for a payload that another session was to bring, and that one is gone."""
    node = Node(store_of(3), store_of(5))
    held = node.store.logs[LOG][3]
    node.store.logs[LOG][3] = Held(held.encoded, held.hash, None)
    node.source = 7
    there = node.links[0].hosts[1]
    there.store.logs[LOG].clear()
    node.run()
    there.store.logs[LOG].update(store_of(5).logs[LOG])
    there.store.changed(LOG)
    node.run()
    assert max(n.newest for n in node.notices(0, PeerHolds) if isinstance(n, PeerHolds)) == 5


def test_what_a_request_brings_is_not_taken_from_another_one_too() -> None:
    """The other side asks us as well once it may, for what is behind what both hold."""
    node = Node(store_of(4), Store())
    node.source = 7
    node.run()
    node.source = 0
    node.links[0].engine(0)._planner._turns.mark(LOG)
    node.run()
    there = node.links[0].engine(1)
    requests = there.actor.requests_of(LOG)
    assert sorted(request.ours for request in requests) == [False, True]
    taken = [request.our_interest.eagerness for request in requests]
    assert sorted(taken, key=str) == [Eagerness.NOTIFY, Eagerness.ALL]
    node.store.append(AUTHOR, 0, b"5" * SIZE)
    node.store.changed(LOG)
    node.run()
    assert set(node.links[0].hosts[1].store.logs[LOG]) == {1, 2, 3, 4, 5}


def test_what_was_told_of_a_log_before_it_was_wanted_is_known() -> None:
    """A fetch of what another session cannot bring goes to who has said that it holds it."""
    pair = Pair(stores=(Store(), store_of(3)))
    pair.connect((Interests(serve_held=True), FOLLOWS), claims=(claim_none, claim_all))
    for _ in range(4):
        pair.run(advance_s=0.5)
    wish = InterestsChanged(Interests(serve_held=True, fetches={LOG: ((1, 9),)}), ())
    pair.hosts[0].todo.append(wish)
    before = len(pair.hosts[0].notices)
    for _ in range(4):
        pair.run(advance_s=0.5)
    assert PeerHolds(LOG, 3, 0) in pair.hosts[0].notices[before:]


def test_a_fetch_goes_to_who_has_said_nothing_when_the_source_brings_nothing() -> None:
    """Nobody tells of what is wanted once only."""
    pair = Pair(stores=(store_of(4), store_of(9)))
    wish = Interests(serve_held=True, fetches={LOG: ((3, 6),)})
    pair.connect((wish, Interests(serve_held=True)), claims=(claim_none, claim_all))
    for _ in range(4):
        pair.run(advance_s=0.5)
    assert set(pair.hosts[0].store.logs[LOG]) == set(range(1, 5))
    for _ in range(10):
        pair.run(advance_s=0.5)
    assert set(pair.hosts[0].store.logs[LOG]) == set(range(1, 7))


@pytest.mark.parametrize("side", [0, 1])
def test_a_payload_that_the_source_lacks_is_brought_by_who_listens(side: int) -> None:
    """It skips the payload, and is the one that would be asked for it again."""
    giver, relay, node = store_of(0), store_of(0), Store()
    fetching = Node(node, relay, giver, side=side)
    fetching.run(2)
    assert fetching.source == 0
    for _ in range(3):
        giver.append(AUTHOR, 0, b"x" * SIZE)
    for seq, held in giver.logs[LOG].items():
        relay.logs[LOG][seq] = Held(held.encoded, held.hash, None)
    relay.changed(LOG)
    fetching.run(60)
    assert node.logs[LOG] == giver.logs[LOG]


def test_what_is_brought_is_taken_unless_it_has_come_to_another_session() -> None:
    book, shown = SourceBook(), [Shown(), Shown()]
    source, other = (book.join("peer", lambda each=each: each) for each in shown)  # type: ignore[misc]
    assert book.claim(source, LOG, 0.0)
    assert not book.claim(other, LOG, 0.0)
    assert book.claim(other, LOG, 0.0, 10)
    book.took(source, shown[0].brings(LOG, 500, 10), 0.0)
    assert not book.claim(other, LOG, 0.0, 10)
    assert book.claim(other, LOG, 0.0, 11)
    assert book.claim(source, LOG, 0.0, 10)
    # Of a payload a part has come, and it may be all that comes.
    book.took(source, shown[0].brings(LOG, 500, 12, inside=True), 0.0)
    assert book.claim(other, LOG, 0.0, 12)
    assert not book.claim(other, LOG, 0.0, 11)
