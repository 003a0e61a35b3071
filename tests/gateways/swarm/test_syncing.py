"""Servers against clients, in whatever order their messages, reads and writes happen.

Some nodes serve and some sync from all of them, with chunks in common. A schedule is drawn: which
message leaves or comes next, when chunks are read, when they are on disk, when items are added,
and, where things go wrong, which connections break or deliver nothing. Batches and queues are
small here, so that few chunks make many of them.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from gateways.swarm import sending, server
from gateways.swarm.book import Book
from gateways.swarm.client import Client, ClientMessage
from gateways.swarm.codec import (
    SYNC,
    OfferedHashes,
    Range,
    Stream,
    StreamDelivery,
    bin_key,
    decode_message,
)
from gateways.swarm.commands import Ended, Keep, Read, Save, Send
from gateways.swarm.devp2p import RefusedError
from gateways.swarm.intervals import Intervals, decode_intervals
from gateways.swarm.sending import SendingQueue
from gateways.swarm.server import Server, ServerMessage

from .memory import ADDRESSES, CHUNKS, Bins, Items

BY_ADDRESS = {each.address: each.encoded for each in CHUNKS}
BINS = 2
LIVE_PRIORITY = 2
Action = Callable[[], None]


class Serving:
    """A node that has chunks, and more of them by and by."""

    def __init__(self, stored: list[list[int]], later: list[list[int]], gone: set[int]) -> None:
        self.items = [Items(ADDRESSES[at] for at in each) for each in stored]
        self.later = [deque(each) for each in later]
        self.bins = Bins(**{bin_key(at): each for at, each in enumerate(self.items)})
        for each in self.items:
            each.gone = {ADDRESSES[at] for at in gone}

    def readable(self) -> set[bytes]:
        return {each for items in self.items for each in items.items if each not in items.gone}


class Syncing:
    """A node that has none, and its disk."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self.book = Book(self.held.__contains__)
        self.kept: list[bytes] = []
        self.times: Counter[bytes] = Counter()
        self.asked: Counter[bytes] = Counter()


class Link:
    """A connection of one to the other, with all that is under way on it."""

    def __init__(self, world: "World", syncing: Syncing, serving: Serving) -> None:
        self.world, self.syncing, self.serving = world, syncing, serving
        self.intervals = [Intervals(0) for _ in range(BINS)]
        self.is_mute = False
        self.connect()

    def connect(self) -> None:
        self.client = Client(self.syncing.book)
        self.up, self.down = SendingQueue(), SendingQueue()
        holds, has_room = self.serving.items[0].holds, self.down.has_room
        self.server = Server({SYNC: self.serving.bins.open}, holds, has_room)
        self.wires: tuple[deque[tuple[int, bytes]], ...] = (deque(), deque())
        self.reads: deque[Read] = deque()
        self.lacking = {*range(BINS)}
        self.subscribe()

    def subscribe(self) -> None:
        """Subscribes what may be, of what is not subscribed, from the first gap on."""
        for at in sorted(self.lacking):
            if self.free_at(at) <= self.world.now:
                self.lacking.remove(at)
                gap = self.intervals[at].first_gap()
                assert gap is not None
                stream, intervals = Stream(SYNC, bin_key(at), live=True), self.intervals[at]
                asked = Range(gap.first, 0)
                self.client.subscribe(stream, asked, LIVE_PRIORITY, intervals, self.world.now)

    def free_at(self, at: int) -> float:
        twins = (Stream(SYNC, bin_key(at), live) for live in (True, False))
        return max(self.client.free_at(each) or 0.0 for each in twins)

    def give_up(self, at: int) -> None:
        for live in (True, False):
            self.client.unsubscribe(Stream(SYNC, bin_key(at), live), self.world.now)
        self.lacking.add(at)

    def reconnect(self) -> None:
        self.is_mute = False
        self.client.close(self.world.now)
        self.intervals = [decode_intervals(each.encode()) for each in self.intervals]
        self.connect()

    def collect(self) -> None:
        """Does what has been commanded, and can be done at once."""
        for command in self.server.commands():
            match command:
                case Send(priority, message):
                    if isinstance(message, OfferedHashes):
                        assert priority == LIVE_PRIORITY - (not message.stream.live)
                        assert message.hashes
                    self.down.put(priority, message)
                case Read(_, _, addresses):
                    self.syncing.asked.update(addresses)
                    self.reads.append(command)
                case _:
                    raise AssertionError(command)
        for done in self.client.commands():
            match done:
                case Send(priority, message):
                    self.up.put(priority, message)
                case Keep(address, chunk):
                    assert chunk == BY_ADDRESS[address]
                    self.syncing.kept.append(address)
                    self.syncing.times[address] += 1
                case Save(_, key, text):
                    self.check(int(key), decode_intervals(text))
                case Ended(stream):
                    # Its twin is quit as well, and may not have heard of it yet.
                    self.give_up(int(stream.key))
                case _:
                    raise AssertionError(done)

    def check(self, bin_: int, intervals: Intervals) -> None:
        """What is said to be here is here, at any moment."""
        items = self.serving.items[bin_]
        numbers = {n for first, last in intervals.ranges for n in range(first, last + 1)}
        assert {items.items[n - 1] for n in numbers - {0}} <= self.syncing.held | items.gone

    # What may happen next ------------------------------------------------------------------------

    def actions(self) -> Iterator[Action]:
        for queue, wire in zip((self.up, self.down), self.wires, strict=True):
            if any(each.messages for each in queue._levels):
                yield partial(self.leave, queue, wire)
        up, down = self.wires
        if up:
            yield self.serve
        if down:
            yield self.sync
        if self.reads and self.down.has_room(self.reads[0].priority):
            yield self.read

    def leave(self, queue: SendingQueue, wire: deque[tuple[int, bytes]]) -> None:
        highest = next(each for each in reversed(queue._levels) if each.messages)
        expected = highest.messages[0]
        taken = queue.take()
        assert taken == expected
        wire.append(taken)

    def serve(self) -> None:
        message = decode_message(*self.wires[0].popleft())
        assert isinstance(message, ServerMessage)
        self.server.receive(message, self.world.now)

    def sync(self) -> None:
        message = decode_message(*self.wires[1].popleft())
        assert isinstance(message, ClientMessage)
        assert not isinstance(message, StreamDelivery) or message.chunk
        self.client.receive(message, self.world.now)

    def read(self) -> None:
        number, _, addresses = self.reads.popleft()
        chunks = [None if self.is_mute else BY_ADDRESS[each] for each in addresses]
        self.server.read(number, chunks, self.world.now)


class World:
    """All nodes and connections, and the time."""

    def __init__(self, seed: int, serving: list[Serving], clients: int, faults: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.faults = faults
        self.serving = serving
        self.syncing = [Syncing() for _ in range(clients)]
        self.links = [Link(self, one, other) for one in self.syncing for other in serving]

    def run(self) -> None:
        """Until nothing can happen any more."""
        while True:
            for link in self.links:
                link.server.advance(self.now)
            for link in self.links:
                link.collect()
            actions = [*self.actions()]
            if actions and self.random.random() < 0.98:
                self.random.choice(actions)()
                continue
            deadlines = [link.server.next_deadline for link in self.links]
            deadlines += [link.client.next_deadline for link in self.links]
            deadlines += [each.book.next_deadline for each in self.syncing]
            deadlines += [link.free_at(at) for link in self.links for at in link.lacking]
            due = min((each for each in deadlines if each is not None), default=None)
            if due is not None and not actions:
                self.pass_time(due)
            elif not actions:
                return
            else:
                self.now += 0.01

    def actions(self) -> Iterator[Action]:
        for link in self.links:
            yield from link.actions()
        for syncing in self.syncing:
            if syncing.kept:
                yield partial(self.record, syncing)
        for serving in self.serving:
            for items, later in zip(serving.items, serving.later, strict=True):
                if later:
                    yield partial(self.add, items, later)
        if self.faults:
            yield self.fail

    def record(self, syncing: Syncing) -> None:
        count = self.random.randint(1, len(syncing.kept))
        written, syncing.kept = syncing.kept[:count], syncing.kept[count:]
        syncing.held.update(written)
        syncing.book.recorded(written, self.now)

    def add(self, items: Items, later: deque[int]) -> None:
        items.items.append(ADDRESSES[later.popleft()])

    def fail(self) -> None:
        self.faults -= 1
        link = self.random.choice(self.links)
        at = self.random.randrange(BINS)
        match self.random.randrange(4):
            case 0:
                link.is_mute = True
            case 1:
                link.reconnect()
            case 2:
                link.give_up(at)
            case _:
                link.server.end(SYNC, bin_key(at), self.now)

    def pass_time(self, until: float) -> None:
        self.now = max(self.now, until)
        for syncing in self.syncing:
            syncing.book.advance(self.now)
        for link in self.links:
            link.subscribe()
            try:
                link.client.advance(self.now)
            except RefusedError:
                assert link.is_mute
                link.reconnect()


@st.composite
def _serving(draw: st.DrawFn) -> Serving:
    several = st.lists(st.integers(0, 29), unique=True, max_size=16)
    # A node has a chunk in one bin, and under one index.
    numbers = draw(st.permutations(range(24)))
    ends = sorted(draw(st.lists(st.integers(0, 24), min_size=4, max_size=4)))
    parts = [[*numbers[a:b]] for a, b in zip([0, *ends], ends, strict=False)]
    gone = set(draw(several)) if draw(st.booleans()) else set()
    return Serving(parts[:2], parts[2:4], gone)


@given(
    st.integers(0, 2**32),
    st.lists(_serving(), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 4),
)
def test_everybody_has_everything_in_the_end(
    seed: int, serving: list[Serving], clients: int, faults: int
) -> None:
    with (
        patch.object(server, "BATCH_ITEMS_MAX", 4),
        patch.object(sending, "LEVEL_MESSAGES_MAX", 24),
    ):
        world = World(seed, serving, clients, faults)
        world.run()
    for syncing in world.syncing:
        # Each chunk once; of two over the network only where one of them failed.
        assert syncing.held == {each for node in serving for each in node.readable()}
        assert set(syncing.times.values()) <= {1}
        assert faults or set(syncing.asked.values()) <= {1}
        assert not syncing.book._entries
        assert not syncing.book._due
    for link in world.links:
        assert faults or link.client.ignored == 0
        for items, intervals in zip(link.serving.items, link.intervals, strict=True):
            covered = {n for first, last in intervals.ranges for n in range(first, last + 1)} - {0}
            here = {n for n, each in enumerate(items.items, 1) if each not in items.gone}
            assert here <= covered <= set(range(1, items.newest + 1))
