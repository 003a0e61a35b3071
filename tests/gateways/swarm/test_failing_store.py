"""Machines over a store that fails for a moment: nothing is left out, nobody else is held up."""

import pytest

from gateways.swarm.codec import (
    SYNC,
    OfferedHashes,
    Range,
    Stream,
    StreamDelivery,
    Subscribe,
    WantedHashes,
)
from gateways.swarm.commands import Save, Send
from gateways.swarm.devp2p import Reason
from gateways.swarm.neighbour import Neighbour
from gateways.swarm.peers import Dropped, Peers
from gateways.swarm.server import Server
from gateways.swarm.sources import FailedError

from .memory import ADDRESSES, CHUNKS, Bins, Items
from .test_peers import Node

LIVE = Stream(SYNC, "0", live=True)
HISTORY = Stream(SYNC, "0", live=False)


class Disk:
    """Says what is held, and fails when it is told to."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self.asked = 0
        self.fails_at: int | None = None

    def holds(self, address: bytes) -> bool:
        self.asked += 1
        if self.asked == self.fails_at:
            raise FailedError("the disk does not answer")
        return address in self.held

    def fail(self, after: int = 0) -> None:
        """The next question fails, or a later one."""
        self.fails_at = self.asked + after + 1


class Failing(Items):
    """Items whose chunks a disk has."""

    def __init__(self, disk: Disk, count: int) -> None:
        super().__init__(ADDRESSES[:count])
        self._disk = disk
        disk.held = {*ADDRESSES[:count]}

    def holds(self, address: bytes) -> bool:
        return self._disk.holds(address)


def offer(first: int, last: int) -> OfferedHashes:
    return OfferedHashes(HISTORY, first, last, b"".join(ADDRESSES[first - 1 : last]))


def syncing(disk: Disk, peers: int) -> tuple[Peers, list[Neighbour]]:
    node = Peers(Node(0).overlay, {}, disk.holds)
    joined = [node.join(Node(number).known, {}, 0.0) for number in range(1, peers + 1)]
    node.commands(0.0)
    return node, joined


def test_an_offer_that_could_not_be_looked_at_is_offered_whole_later() -> None:
    disk = Disk()
    items = Failing(disk, 300)
    server = Server({SYNC: Bins(**{"0": items}).open}, disk.holds, lambda _: True)
    disk.fail(after=5)
    with pytest.raises(FailedError):
        server.receive(Subscribe(HISTORY, Range(0, 0), 1), 0.0)
    server.advance(1.0)
    [sent] = [each.message for each in server.commands() if isinstance(each, Send)]
    assert isinstance(sent, OfferedHashes)
    assert (sent.start, sent.end) == (0, 128)
    assert sent.hashes == b"".join(ADDRESSES[:128])


def test_one_peer_that_could_not_be_offered_anything_goes_and_the_others_are() -> None:
    disk = Disk()
    items = Failing(disk, 10)
    node = Peers(Node(0).overlay, {SYNC: Bins(**{"0": items}).open}, disk.holds)
    joined = [node.join(Node(number).known, {}, 0.0) for number in (1, 2)]
    for each in joined:
        node.receive(each, Subscribe(LIVE, None, 2), 0.0)
    node.commands(0.0)
    items.items += ADDRESSES[10:138]
    disk.held |= {*ADDRESSES}
    disk.fail()
    node.grown(1.0)
    done = node.commands(1.0)
    [(dropped, reason)] = [(who, each) for who, each in done if isinstance(each, Dropped)]
    assert dropped is joined[0]
    assert reason.error.reason is Reason.REQUESTED
    offered = [who for who, each in done if isinstance(each, Send)]
    assert offered == [joined[1]]


def test_a_batch_is_known_whole_or_not_at_all() -> None:
    disk = Disk()
    node, [peer] = syncing(disk, 1)
    disk.fail(after=2)
    with pytest.raises(FailedError):
        node.receive(peer, offer(1, 4), 1.0)
    node.leave(peer, 1.0)
    assert node.next_deadline(1.0) is None
    assert [each for _, each in node.commands(1.0) if isinstance(each, Save)] == []


def test_what_comes_is_there_for_all_who_wait_whoever_fails_then() -> None:
    disk = Disk()
    node, [one, other] = syncing(disk, 2)
    for peer in (one, other):
        node.receive(peer, offer(1, 2), 1.0)
        # The next offer, which is answered when the first one is here.
        node.receive(peer, offer(3, 4), 1.0)
    for chunk in CHUNKS[:2]:
        node.receive(one, StreamDelivery(chunk.address, chunk.encoded), 2.0)
    node.commands(2.0)
    disk.held = {each.address for each in CHUNKS[:2]}
    disk.fail()
    node.recorded(disk.held, 3.0)
    done = node.commands(3.0)
    # Both have it on record; of the first the next offer could not be answered.
    assert {who for who, each in done if isinstance(each, Save)} == {one, other}
    assert [who for who, each in done if isinstance(each, Dropped)] == [one]
    answers = [
        (who, each.message)
        for who, each in done
        if isinstance(each, Send) and isinstance(each.message, WantedHashes)
    ]
    assert [who for who, _ in answers] == [other]


def test_what_came_by_another_way_is_owed_by_nobody() -> None:
    disk = Disk()
    node, [peer] = syncing(disk, 1)
    node.receive(peer, offer(1, 2), 0.0)
    node.commands(0.0)
    disk.held = {*ADDRESSES[:2]}
    node.advance(31.0)
    done = node.commands(31.0)
    assert [each for _, each in done if isinstance(each, Dropped)] == []
    assert [each.text for _, each in done if isinstance(each, Save)] == ["0;0,2"]
