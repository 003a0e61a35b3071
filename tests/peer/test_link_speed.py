"""When compressing is worth it, on links in virtual time (peer/data/link_speed.py)."""

from dataclasses import dataclass, field

import pytest

from peer.data.link_speed import LinkSpeed, Pull

PIECE = 65536
CREDIT = 1 << 20
RAW_SPEED = 400e6


@dataclass
class Link:
    """A sender with payload without end, a link, and a receiver that gives credit back.

    Speeds are in bytes a second; `shrinks_to` is what compression makes of one byte.
    """

    link_speed: float
    compress_speed: float = 20e6
    shrinks_to: float = 0.5
    speed: LinkSpeed = field(default_factory=LinkSpeed)
    now: float = 0.0
    sent: int = 0
    arrived: float = 0.0
    granted: int = CREDIT
    payload: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    changes: list[float] = field(default_factory=list)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.arrived = min(self.sent, self.arrived + seconds * self.link_speed)
        left, restorable = self.granted - self.sent, int(self.arrived) + CREDIT - self.granted
        if restorable >= max(left, 1):
            self.granted += restorable

    def step(self) -> None:
        """Send one piece, as soon as there is credit for it."""
        compressing = self.speed.compressing
        size = int(PIECE * self.shrinks_to) if compressing else PIECE
        while self.granted < self.sent + size:
            self.speed.pulled(self.now, Pull(0, self.granted - CREDIT, blocked=True))
            self.pass_time(max((self.sent - self.arrived) / 16, 1.0) / self.link_speed)
        pulled_at = self.now
        self.speed.packed(PIECE, size, shrinking=True)
        self.pass_time(PIECE / (self.compress_speed if compressing else RAW_SPEED))
        self.sent += size
        self.payload[compressing] += PIECE
        self.speed.pulled(pulled_at, Pull(size, self.granted - CREDIT))
        if self.speed.compressing != compressing:
            self.changes.append(self.now)

    def run(self, payload_bytes: int) -> float:
        """Send so much; returns how much of it was compressed, 0 to 1."""
        before = dict(self.payload)
        for _ in range(payload_bytes // PIECE):
            self.step()
        return (self.payload[True] - before[True]) / payload_bytes


@pytest.mark.parametrize("link_speed", [20e3, 500e3, 1.9e6])
def test_a_slow_link_gets_nearly_everything_compressed(link_speed: float) -> None:
    link = Link(link_speed)
    assert link.run(15 << 20) == 1.0
    assert link.speed.slow
    assert link.run(240 << 20) > 0.95


def test_a_machine_that_compresses_slowly_is_told_from_a_slow_link() -> None:
    link = Link(100e6, compress_speed=1e6)
    link.run(2 << 20)
    assert link.run(1 << 30) == 0.0


def test_a_transport_that_blocks_makes_a_link_slow_as_missing_credit_does() -> None:
    speed = LinkSpeed()
    for n in range(100):
        speed.packed(PIECE, PIECE // 2, shrinking=True)
        speed.pulled(n * 0.1, Pull(PIECE // 2, n * PIECE // 2, waited_s=0.09))
        assert speed.slow == (n > 1)


def test_a_link_of_middling_speed_is_tried_raw_ever_less_often() -> None:
    link = Link(6e6)
    assert link.run(16 << 20) > 0.8
    assert link.run(1 << 30) > 0.97
    assert len(link.changes) < 20


@pytest.mark.parametrize("link_speed", [100e6, 400e6, 4e9])
def test_a_fast_link_soon_gets_everything_raw(link_speed: float) -> None:
    link = Link(link_speed)
    link.run(4 << 20)
    took = link.now
    assert took < 0.25
    assert link.run(1 << 30) == 0.0
    assert link.changes == [link.changes[0]]
    assert not link.speed.slow


def test_what_shrinks_at_the_speed_of_the_link_stays_compressed() -> None:
    """Compression is no bottleneck where it is as fast as the machine copies."""
    link = Link(200e6, compress_speed=390e6, shrinks_to=0.02)
    assert link.run(2 << 30) > 0.9


def test_a_link_that_becomes_slow_is_noticed_and_so_is_one_that_becomes_fast() -> None:
    link = Link(200e6)
    assert link.run(1 << 30) < 0.01
    link.link_speed = 1e6
    assert link.run(16 << 20) > 0.7
    link.link_speed = 200e6
    link.run(64 << 20)
    assert link.run(256 << 20) == 0.0


def test_no_choice_flip_flops_where_both_ways_are_equally_fast() -> None:
    link = Link(20e6, compress_speed=20e6, shrinks_to=0.9)
    link.run(4 << 30)
    assert len(link.changes) < 25


def test_what_trickles_or_does_not_shrink_says_nothing_of_the_link() -> None:
    speed = LinkSpeed()
    for n in range(1000):
        speed.packed(PIECE, 1000, shrinking=True)
        speed.pulled(n * 0.1, Pull(1000, n * 65536, dry=True))
        speed.pulled(n * 0.1 + 0.01, Pull(0, n * 65536, dry=True))
    for n in range(1000, 2000):
        speed.packed(PIECE, PIECE, shrinking=False)
        speed.pulled(100 + n * 0.001, Pull(PIECE, n * 65536))
    assert speed.compressing


def test_a_machine_that_takes_long_for_each_piece_is_not_taken_for_idle() -> None:
    """Each pull takes 60 ms to make, and then the next bytes have to be read."""
    speed = LinkSpeed()
    tried_raw = 0
    for n in range(100):
        tried_raw += not speed.compressing
        speed.packed(PIECE, PIECE // 2, shrinking=True)
        speed.pulled(n * 0.065, Pull(PIECE // 2, n * PIECE // 2, dry=True))
        speed.pulled(n * 0.065 + 0.06, Pull(0, n * PIECE // 2, dry=True))
    assert tried_raw
