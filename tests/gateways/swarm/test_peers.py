"""Whole nodes in memory: what each machine of a node does to the others, under any schedule."""

import random
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateways.swarm.bmt import Chunk
from gateways.swarm.codec import (
    RETRIEVE_REQUEST,
    SYNC,
    Message,
    OfferedHashes,
    RetrieveDelivery,
    RetrieveRequest,
    Stream,
    WantedHashes,
    bin_key,
    decode_message,
)
from gateways.swarm.commands import Keep, Read, Save, Send
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.intervals import Intervals, decode_intervals
from gateways.swarm.neighbour import Known, Neighbour
from gateways.swarm.peers import (
    PASSING_BYTES_MAX,
    PEERS_MAX,
    Arrived,
    Dropped,
    Passing,
    Peers,
    Synced,
)
from gateways.swarm.proximity import proximity

from .memory import CHUNKS, Bins, Items

FEW = CHUNKS[:60]


def overlay_of(number: int) -> bytes:
    return random.Random(f"overlay {number}").randbytes(32)


class Node:
    """A node and its disk, which is done when the schedule says so."""

    def __init__(self, number: int, *, is_light: bool = False) -> None:
        self.number = number
        self.overlay = overlay_of(number)
        self.is_light = is_light
        self.held: dict[bytes, bytes] = {}
        self.items = [Items() for _ in range(17)]
        self.bins = Bins(**{bin_key(at): each for at, each in enumerate(self.items)})
        self.peers = Peers(
            self.overlay, {SYNC: self.bins.open}, self.held.__contains__, is_light=is_light
        )
        self.intervals: dict[bytes, dict[str, str]] = {}
        self.pending: list[Chunk] = []
        self.times: Counter[bytes] = Counter()
        self.reads: deque[tuple[Neighbour, Read]] = deque()
        self.arrived: dict[object, bytes | None] = {}
        self.synced: list[bytes] = []
        self.links: dict[bytes, tuple[Node, Neighbour]] = {}

    @property
    def known(self) -> Known:
        return Known(self.overlay * 2, self.overlay, "", has_bamboo=False, is_light=self.is_light)

    def store(self, *chunks: Chunk) -> None:
        for each in chunks:
            if each.address not in self.held:
                self.held[each.address] = each.encoded
                self.items[proximity(self.overlay, each.address)].items.append(each.address)

    def join(self, other: "Node", now: float) -> None:
        recorded = self.intervals.setdefault(other.overlay, {})
        decoded = {key: decode_intervals(text) for key, text in recorded.items()}
        self.links[other.overlay] = other, self.peers.join(other.known, decoded, now)

    def collect(self, now: float) -> None:
        for neighbour, done in self.peers.commands(now):
            match done:
                case Send(priority, message):
                    assert neighbour is not None
                    neighbour.queue.put(priority, message)
                case Read():
                    assert neighbour is not None
                    self.reads.append((neighbour, done))
                case Keep(address, chunk):
                    assert address not in self.held
                    self.pending.append(Chunk(address, chunk))
                    self.times[address] += 1
                case Save(_, key, text):
                    assert neighbour is not None
                    self.intervals[neighbour.overlay][key] = text
                case Arrived(tag, _, chunk):
                    self.arrived[tag] = chunk
                case Dropped(error):
                    raise error
                case Synced():
                    assert neighbour is not None
                    self.synced.append(neighbour.overlay)

    def write(self, now: float) -> None:
        written, self.pending = self.pending, []
        self.store(*written)
        self.peers.recorded([each.address for each in written], now)
        self.peers.grown(now)

    def read(self, now: float) -> None:
        neighbour, asked = self.reads.popleft()
        found = [self.held.get(each) or self.peers.passing.get(each) for each in asked.addresses]
        self.peers.read(neighbour, asked.number, found, now)


class World:
    """Nodes that are connected with each other."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes
        self.now = 0.0
        self.wires: dict[tuple[int, int], deque[Message]] = {}
        self.crossed = 0
        self.offers: list[OfferedHashes] = []
        self.rng = random.Random(0)

    def connect(self, one: Node, other: Node) -> None:
        for here, there in ((one, other), (other, one)):
            here.join(there, self.now)
            self.wires[here.number, there.number] = deque()
            here.collect(self.now)

    def actions(self) -> Iterator[tuple[str, Node, Node]]:
        for node in self.nodes:
            if node.pending:
                yield "write", node, node
            if node.reads:
                yield "read", node, node
            for other, neighbour in node.links.values():
                if self.wires[other.number, node.number]:
                    yield "receive", node, other
                if any(neighbour.queue._levels[each].messages for each in range(4)):
                    yield "send", node, other

    def run(self, until: float = 60.0) -> None:
        while True:
            actions = [*self.actions()]
            if actions:
                self.act(*self.rng.choice(actions))
                continue
            due = [each.peers.next_deadline(self.now) for each in self.nodes]
            deadline = min((each for each in due if each is not None), default=until)
            if deadline >= until:
                self.now = until
                return
            self.now = max(self.now + 0.001, deadline)
            for each in self.nodes:
                each.peers.advance(self.now)
                each.collect(self.now)

    def act(self, what: str, node: Node, other: Node) -> None:
        neighbour = node.links[other.overlay][1] if other is not node else None
        match what:
            case "write":
                node.write(self.now)
            case "read":
                node.read(self.now)
            case "send":
                assert neighbour is not None
                taken = neighbour.queue.take()
                assert taken is not None
                self.wires[node.number, other.number].append(decode_message(*taken))
            case _:
                assert neighbour is not None
                message = self.wires[other.number, node.number].popleft()
                if isinstance(message, OfferedHashes):
                    self.offers.append(message)
                self.crossed += type(message).__name__.endswith("Delivery")
                node.peers.receive(neighbour, message, self.now)
        node.collect(self.now)


@settings(max_examples=25)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.sets(st.integers(0, len(FEW) - 1)), min_size=2, max_size=3),
)
def test_all_have_all_in_the_end_and_nothing_crosses_twice(
    rng: random.Random, stored: list[set[int]]
) -> None:
    nodes = [Node(at) for at in range(len(stored))]
    world = World(*nodes)
    world.rng = rng
    for node, chunks in zip(nodes, stored, strict=True):
        node.store(*(FEW[at] for at in chunks))
    for at, node in enumerate(nodes):
        for other in nodes[at + 1 :]:
            world.connect(node, other)
    world.run()
    everything = {FEW[at].address for each in stored for at in each}
    for node in nodes:
        assert {*node.held} == everything
        assert all(count == 1 for count in node.times.values())
        assert node.peers.is_synced
        assert {*node.synced} == {each.overlay for each in nodes if each is not node}
    assert world.crossed == sum(
        len(everything - {FEW[at].address for at in each}) for each in stored
    )


def test_a_chunk_is_found_through_a_node_that_holds_nothing() -> None:
    asking, middle, holding = Node(0, is_light=True), Node(1), Node(2)
    # Bins that are not synced, so that the middle stays empty.
    world = World(asking, middle, holding)
    world.connect(asking, middle)
    world.connect(middle, holding)
    world.run(1.0)
    chunk = CHUNKS[7]
    holding.held[chunk.address] = chunk.encoded
    asking.peers.seek(chunk.address, "me", world.now)
    asking.collect(world.now)
    world.run(3.0)
    assert asking.arrived == {"me": chunk.encoded}
    assert middle.held == {}
    assert middle.peers.passing.get(chunk.address) == chunk.encoded


def test_what_nobody_has_is_over_in_ten_seconds() -> None:
    asking, other = Node(0), Node(1)
    world = World(asking, other)
    world.connect(asking, other)
    asking.peers.seek(CHUNKS[0].address, "me", world.now)
    asking.collect(world.now)
    world.run(9.9)
    assert asking.arrived == {}
    world.run(10.1)
    assert asking.arrived == {"me": None}


def test_a_request_goes_no_further_than_twenty_nodes() -> None:
    nodes = [Node(at, is_light=at == 0) for at in range(24)]
    world = World(*nodes)
    for one, other in pairwise(nodes):
        world.connect(one, other)
    nodes[-1].held[CHUNKS[0].address] = CHUNKS[0].encoded
    nodes[0].peers.seek(CHUNKS[0].address, "me", world.now)
    nodes[0].collect(world.now)
    world.run(10.5)
    assert nodes[0].arrived == {"me": None}


def test_a_light_node_is_asked_for_nothing_and_takes_no_part() -> None:
    light, full = Node(0, is_light=True), Node(1)
    full.store(*FEW)
    light.held[CHUNKS[99].address] = CHUNKS[99].encoded
    world = World(light, full)
    world.connect(light, full)
    world.run(20.0)
    [(_, neighbour)] = light.links.values()
    assert neighbour.server.streams == []
    assert light.held == {CHUNKS[99].address: CHUNKS[99].encoded}
    assert CHUNKS[99].address not in full.held
    assert full.peers.depth == 0


def test_who_is_one_too_many_or_here_already() -> None:
    node = Node(0)
    with pytest.raises(RefusedError) as itself:
        node.peers.join(node.known, {}, 0.0)
    assert itself.value.reason is Reason.SELF
    for number in range(1, PEERS_MAX + 1):
        node.peers.join(Node(number).known, {}, 0.0)
    with pytest.raises(RefusedError) as one_more:
        node.peers.join(Node(PEERS_MAX + 1).known, {}, 0.0)
    assert one_more.value.reason is Reason.TOO_MANY_PEERS
    with pytest.raises(RefusedError) as again:
        node.peers.join(Node(1).known, {}, 0.0)
    assert again.value.reason is Reason.ALREADY_CONNECTED


def test_a_peer_that_comes_moves_the_share_of_the_others() -> None:
    node = Node(0)
    joined = [node.peers.join(Node(number).known, {}, 0.0) for number in range(1, 9)]
    depth = node.peers.depth
    assert depth > 0
    for each in joined:
        expected = {each.proximity} if each.proximity < depth else {*range(depth, 17)}
        assert each.wanting.bins == expected
    for each in joined[1:]:
        node.peers.leave(each, 1.0)
    assert node.peers.depth == 0
    assert joined[0].wanting.bins == {*range(17)}


def test_full_nothing_more_is_wanted_until_there_is_room() -> None:
    one, other = Node(0), Node(1)
    other.store(*FEW)
    world = World(one, other)
    one.peers.pause(True, 0.0)
    world.connect(one, other)
    world.run(10.0)
    assert one.held == {}
    one.peers.pause(False, world.now)
    one.collect(world.now)
    world.run(60.0)
    assert {*one.held} == {each.address for each in FEW}


def test_what_was_paused_goes_on_though_nothing_else_happens() -> None:
    one, other = Node(0), Node(1)
    other.store(*FEW)
    world = World(one, other)
    world.now = 100.0
    world.connect(one, other)
    one.peers.pause(True, world.now)
    one.collect(world.now)
    world.run(101.0)
    assert {*one.held} < {each.address for each in FEW}
    one.peers.pause(False, world.now)
    one.collect(world.now)
    # As long as what was on its way could be taken for an answer to what is asked for again.
    assert one.peers.next_deadline(world.now) == 130.0
    world.run(140.0)
    assert {*one.held} == {each.address for each in FEW}


def test_what_could_not_be_kept_is_asked_for_again() -> None:
    one, other = Node(0), Node(1)
    other.store(CHUNKS[0])
    world = World(one, other)
    world.connect(one, other)
    while not one.pending:
        world.act(*next(iter(world.actions())))
    one.pending.clear()
    one.peers.lost([CHUNKS[0].address], world.now)
    [(_, neighbour)] = one.links.values()
    # Nobody else has offered it, and its peer owes it no longer than any other.
    world.now = 31.0
    one.peers.advance(world.now)
    dropped = [done for _, done in one.peers.commands(world.now)]
    assert any(type(each).__name__ == "Dropped" for each in dropped)
    one.peers.leave(neighbour, world.now)
    other.peers.leave(other.links[one.overlay][1], world.now)
    assert one.peers.next_deadline(world.now) is None
    assert decode_intervals(Intervals(0).encode()).first_gap() is not None
    world.connect(one, other)
    world.run(60.0)
    assert {*one.held} == {CHUNKS[0].address}


def test_passing_chunks_are_bounded() -> None:
    passing = Passing()
    chunk = bytes(4104)
    count = PASSING_BYTES_MAX // len(chunk)
    addresses = [number.to_bytes(32, "big") for number in range(count + 10)]
    for each in addresses:
        passing.put(each, chunk)
        passing.put(each, chunk)
    assert sum(passing.get(each) is not None for each in addresses) == count
    assert passing.get(addresses[0]) is None
    assert passing.get(addresses[-1]) == chunk


def test_the_stream_of_a_bin_is_served_by_its_key() -> None:
    node = Node(0)
    assert node.bins.open(Stream(SYNC, "g", live=True)) is node.items[16]


def test_a_pause_and_a_third_peer_leave_nothing_undone() -> None:
    one, other, third = Node(0), Node(1), Node(2)
    other.store(*FEW)
    world = World(one, other, third)
    one.peers.pause(True, 0.0)
    world.connect(one, other)
    one.peers.pause(False, 1.0)
    world.now = 1.0
    # When what was unsubscribed is free again is known, whatever else happens or does not.
    assert one.peers.next_deadline(1.0) is not None
    world.run(60.0)
    assert {*one.held} == {each.address for each in FEW}
    assert one.peers.is_synced


def test_a_node_that_takes_nothing_more_is_not_in_step() -> None:
    one, other = Node(0), Node(1)
    other.store(*FEW)
    world = World(one, other)
    one.peers.pause(True, 0.0)
    world.connect(one, other)
    world.run(30.0)
    assert not one.peers.is_synced
    assert one.synced == []


def test_a_search_that_is_over_when_a_peer_comes_is_told() -> None:
    asking, other = Node(0), Node(1)
    asking.peers.seek(CHUNKS[0].address, "me", 0.0)
    asking.peers.join(other.known, {}, 10.0)
    asking.collect(10.0)
    assert asking.arrived == {"me": None}


def test_what_is_found_for_a_peer_that_wants_offers_is_offered() -> None:
    middle, asking, holding = Node(0), Node(1, is_light=True), Node(2)
    world = World(middle, asking, holding)
    world.connect(middle, asking)
    world.connect(middle, holding)
    world.run(1.0)
    chunk = CHUNKS[7]
    holding.held[chunk.address] = chunk.encoded
    neighbour = middle.links[asking.overlay][1]
    # Its own nodes are subscribed to answers, all of them; and upstream's ask for a check.
    middle.peers.receive(neighbour, RetrieveRequest(chunk.address, False, 0), world.now)
    middle.collect(world.now)
    before = len(world.offers)
    world.run(3.0)
    assert [each.hashes for each in world.offers[before:]] == [chunk.address]


def test_a_chunk_that_is_of_no_file_ends_no_search() -> None:
    asking, lying, honest = Node(0), Node(1), Node(2)
    world = World(asking, lying, honest)
    world.connect(asking, lying)
    world.connect(asking, honest)
    world.run(1.0)
    chunk = CHUNKS[7]
    neighbour = asking.links[lying.overlay][1]
    asking.peers.seek(chunk.address, "me", world.now)
    padded = RetrieveDelivery(chunk.address, chunk.encoded + bytes(9))
    asking.peers.receive(neighbour, padded, world.now)
    asking.collect(world.now)
    assert asking.arrived == {}
    honest.held[chunk.address] = chunk.encoded
    world.run(5.0)
    assert asking.arrived == {"me": chunk.encoded}


def test_of_what_is_offered_as_an_answer_and_was_not_asked_for_nothing_is_wanted() -> None:
    light, other = Node(0, is_light=True), Node(1)
    world = World(light, other)
    world.connect(light, other)
    neighbour = light.links[other.overlay][1]
    answers = Stream(RETRIEVE_REQUEST, "", live=True)
    hashes = b"".join(each.address for each in FEW)
    light.peers.receive(neighbour, OfferedHashes(answers, 0, len(FEW), hashes), 0.0)
    [wanted] = [
        done.message
        for _, done in light.peers.commands(0.0)
        if isinstance(done, Send) and isinstance(done.message, WantedHashes)
    ]
    assert not any(wanted.bits)
