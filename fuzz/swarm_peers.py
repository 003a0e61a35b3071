"""Two nodes under any schedule: nothing is kept twice, and what a connection loses comes again.

An input is a schedule. Its first byte says which chunks either has; each further one lets one thing
happen: a message leaves or is taken, chunks are read or written, time passes, the connection is
lost and made anew, a chunk is put, one is looked for, or a disk is full and has room again. Behind
its end everything happens that can, until nothing is left to be done: then both have all.
"""

from collections import deque

from fuzz.harness import main
from gateways.swarm.bmt import Chunk, content_chunk
from gateways.swarm.codec import SYNC, Message, Stream, decode_message, read_bin_key
from gateways.swarm.commands import Keep, Read, Save, Send
from gateways.swarm.intervals import decode_intervals
from gateways.swarm.keccak import keccak
from gateways.swarm.neighbour import Known, Neighbour
from gateways.swarm.peers import Arrived, Dropped, Peers
from gateways.swarm.proximity import proximity
from tests.gateways.swarm.memory import Items

STEPS_MAX = 400
CHUNKS = [content_chunk(2, number.to_bytes(2, "big")) for number in range(40)]
LEAVE, TAKE, READ, WRITE, TIME, LOSE, PUT, SEEK, PAUSE = range(9)

CORPUS = [
    bytes((7, *(LEAVE, TAKE) * 40, *(READ, LEAVE, TAKE, WRITE) * 20)),
    bytes((7, *(LEAVE, TAKE, READ, WRITE) * 10, LOSE, *(LEAVE, TAKE, READ, WRITE) * 10)),
    bytes((0, *(LEAVE, TAKE) * 20, PUT, PUT | 0x10, *(TIME, LEAVE, TAKE, READ, WRITE) * 20)),
    bytes((3, *(LEAVE, TAKE) * 30, PAUSE, TIME, WRITE, PAUSE, *(LEAVE, TAKE, READ, WRITE) * 20)),
    bytes((1, SEEK, SEEK | 0x10, *(LEAVE, TAKE, READ, WRITE) * 30, LOSE, SEEK, TIME)),
]


class _Node:
    """A node and its disk."""

    def __init__(self, name: str) -> None:
        self.overlay = keccak(name.encode())
        self.held: dict[bytes, bytes] = {}
        self.bins = [Items() for _ in range(17)]
        self.peers = Peers(self.overlay, {SYNC: self._open}, self.held.__contains__)
        self.intervals: dict[str, str] = {}
        self.pending: list[Chunk] = []
        self.reads: deque[Read] = deque()
        self.inbox: deque[Message] = deque()
        self.neighbour: Neighbour | None = None
        self.arrived: dict[object, bytes | None] = {}
        self.sought = 0
        self.is_paused = False

    def _open(self, stream: Stream) -> Items:
        return self.bins[read_bin_key(stream.key)]

    def store(self, chunk: Chunk) -> None:
        if chunk.address not in self.held:
            self.held[chunk.address] = chunk.encoded
            self.bins[proximity(self.overlay, chunk.address)].items.append(chunk.address)


class _World:
    """Two nodes that are connected."""

    def __init__(self, stored: int) -> None:
        self.now = 1_000.0
        self.nodes = (_Node("one"), _Node("other"))
        for number, chunk in enumerate(CHUNKS[:30]):
            for at, node in enumerate(self.nodes):
                if (number * (stored + 1) >> at) % 3:
                    node.store(chunk)
        self.connect()

    def connect(self) -> None:
        for node, other in (self.nodes, self.nodes[::-1]):
            known = Known(other.overlay * 2, other.overlay, "", has_bamboo=False, is_light=False)
            recorded = {key: decode_intervals(text) for key, text in node.intervals.items()}
            node.neighbour = node.peers.join(known, recorded, self.now)
            self.collect(node)

    def lose(self) -> None:
        for node in self.nodes:
            assert node.neighbour is not None
            node.peers.leave(node.neighbour, self.now)
            node.neighbour = None
            node.reads.clear()
            node.inbox.clear()
            self.collect(node)
        self.connect()

    def collect(self, node: _Node) -> None:
        kept = {each.address for each in node.pending}
        for neighbour, done in node.peers.commands(self.now):
            match done:
                case Send(priority, message):
                    if neighbour is node.neighbour and neighbour is not None:
                        neighbour.queue.put(priority, message)
                case Read():
                    node.reads.append(done)
                case Keep(address, chunk):
                    assert address not in node.held
                    assert address not in kept
                    kept.add(address)
                    node.pending.append(Chunk(address, chunk))
                case Save(_, key, text):
                    node.intervals[key] = text
                    self.check_record(node, key)
                case Arrived(tag, address, found):
                    assert found in {None, _ENCODED[address]}
                    node.arrived[tag] = found
                case Dropped(error):
                    raise error
                case _:
                    pass

    def check_record(self, node: _Node, key: str) -> None:
        """What is on record is on disk."""
        other = self.nodes[node is self.nodes[0]]
        items = other.bins[read_bin_key(key)].items
        gap = decode_intervals(node.intervals[key]).first_gap()
        assert gap is not None
        assert all(each in node.held for each in items[: max(0, gap.first - 1)])

    def act(self, told: int) -> None:
        node = self.nodes[told >> 4 & 1]
        other = self.nodes[node is self.nodes[0]]
        assert node.neighbour is not None
        match told & 15:
            case 0:
                taken = node.neighbour.queue.take()
                if taken is not None:
                    other.inbox.append(decode_message(*taken))
            case 1:
                if node.inbox:
                    node.peers.receive(node.neighbour, node.inbox.popleft(), self.now)
            case 2:
                if node.reads:
                    asked = node.reads.popleft()
                    chunks = [node.held.get(each) for each in asked.addresses]
                    node.peers.read(node.neighbour, asked.number, chunks, self.now)
            case 3:
                written, node.pending = node.pending, []
                for each in written:
                    node.store(each)
                node.peers.recorded([each.address for each in written], self.now)
                node.peers.grown(self.now)
            case _:
                self._happen(told, node)
        self.collect(node)

    def _happen(self, told: int, node: _Node) -> None:
        """What is no message."""
        match told & 15:
            case 4:
                self.pass_time(0.05 + (told >> 5) * 0.4)
            case 5:
                self.lose()
            case 6:
                chunk = CHUNKS[30 + (told >> 5)]
                if chunk.address not in {each.address for each in node.pending}:
                    node.store(chunk)
                    node.peers.recorded([chunk.address], self.now)
                    node.peers.grown(self.now)
            case 7:
                address = CHUNKS[told >> 5].address
                if address not in node.held:
                    node.sought += 1
                    node.peers.seek(address, node.sought, self.now)
            case 8:
                node.is_paused = not node.is_paused
                node.peers.pause(node.is_paused, self.now)
            case _:
                pass

    def pass_time(self, seconds: float) -> None:
        """Nobody is late here: what is on its way comes before anybody gives up."""
        self.now += seconds
        for node in self.nodes:
            node.peers.advance(self.now)
            self.collect(node)

    @property
    def is_idle(self) -> bool:
        for each in self.nodes:
            assert each.neighbour is not None
            levels = each.neighbour.queue._levels  # noqa: SLF001 - nothing else says so
            if any(level.messages for level in levels) or each.inbox or each.reads or each.pending:
                return False
        return True

    def settle(self) -> None:
        for _ in range(STEPS_MAX * 10):
            if self.is_idle:
                return
            for step in (LEAVE, TAKE, READ, WRITE):
                for node in (0, 0x10):
                    self.act(step | node)
        raise AssertionError("there is no end of it")


_ENCODED = {each.address: each.encoded for each in CHUNKS}


def check(data: bytes) -> None:
    """The invariant, for any schedule."""
    world = _World(data[0] if data else 0)
    for told in data[1:STEPS_MAX]:
        world.act(told)
        # Less than whatever is too late, so that nobody is to blame.
        if (told & 15) == TIME:
            world.settle()
    for at, node in enumerate(world.nodes):
        if node.is_paused:
            world.act(PAUSE | at << 4)
    # What is due is done when the machines have said so, and not otherwise.
    for _ in range(STEPS_MAX):
        world.settle()
        due = [each.peers.next_deadline(world.now) for each in world.nodes]
        left = [each for each in due if each is not None]
        if not left:
            break
        world.pass_time(max(0.001, min(left) - world.now))
    everything = {address for node in world.nodes for address in node.held}
    for node in world.nodes:
        assert node.held.keys() == everything
        assert node.peers.is_synced
        assert {*node.arrived} == {*range(1, node.sought + 1)}


if __name__ == "__main__":
    main(check, CORPUS)
