"""Two honest engines under any interleaving: both stores end equal (point2point.md 1).

Hypothesis chooses, step by step, which of the four byte streams delivers how many bytes, which host
carries out its next command, who appends what, and when the connection is lost. The two channels of
a direction are independent, as the specification demands.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from nacl.signing import SigningKey

from peer.protocol.events import Interests
from wire import LogKey

from .rig import Author, Pair

pytestmark = pytest.mark.rule("P2P-1.20", roles="both")
AUTHORS = (Author(SigningKey(b"a" * 32)), Author(SigningKey(b"b" * 32)))
SIDES = st.integers(0, 1)
PAYLOADS = st.one_of(
    st.binary(max_size=8), st.integers(0, 400).map(lambda n: b"x" * n), st.just(b"y" * 64)
)


class Interleavings(RuleBasedStateMachine):
    """Each side authors two logs and follows all of the other's."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(credit=700)
        self.ended: set[LogKey] = set()
        self.connected = False

    @initialize(counts=st.tuples(*[st.integers(0, 6)] * 4))
    def histories(self, counts: tuple[int, ...]) -> None:
        for side in (0, 1):
            for log_id in (0, 1):
                for n in range(counts[side * 2 + log_id]):
                    self.pair.hosts[side].store.append(AUTHORS[side], log_id, b"h" * n * 20)
        self.connect()

    def connect(self) -> None:
        logs = [[LogKey(author.id, n) for n in (0, 1)] for author in AUTHORS]
        self.pair.connect(
            (
                Interests(own=frozenset(logs[0]), logs=frozenset(logs[1])),
                Interests(own=frozenset(logs[1]), logs=frozenset(logs[0])),
            )
        )
        self.connected = True

    @rule(side=SIDES, log_id=SIDES, payload=PAYLOADS)
    def append(self, side: int, log_id: int, payload: bytes) -> None:
        if LogKey(AUTHORS[side].id, log_id) not in self.ended:
            self.pair.hosts[side].store.append(AUTHORS[side], log_id, payload)

    @rule(side=SIDES, log_id=SIDES)
    def end_log(self, side: int, log_id: int) -> None:
        log = LogKey(AUTHORS[side].id, log_id)
        if log not in self.ended:
            self.ended.add(log)
            self.pair.hosts[side].store.append(AUTHORS[side], log_id, b"the end", is_end=True)

    @rule(side=SIDES, count=st.integers(1, 5))
    def carry_out(self, side: int, count: int) -> None:
        for _ in range(count):
            self.pair.hosts[side].step()

    @rule(side=SIDES, data_max=st.integers(0, 400))
    def send(self, side: int, data_max: int) -> None:
        self.pair.pump(side, data_max=data_max)

    @rule(side=SIDES, size=st.integers(1, 300))
    def deliver_control(self, side: int, size: int) -> None:
        self.pair.deliver_control(side, size)

    @rule(side=SIDES, size=st.integers(1, 400))
    def deliver_data(self, side: int, size: int) -> None:
        self.pair.deliver_data(side, size)

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.pair.tick(seconds)

    @rule()
    def reconnect(self) -> None:
        self.pair.disconnect()
        self.connect()

    @invariant()
    def memory_is_bounded_by_the_credit(self) -> None:
        if not self.connected:
            return
        for side in (0, 1):
            in_flight = self.pair.credit - self.pair.data_credit[side] - len(self.pair.data[side])
            assert 0 <= in_flight <= self.pair.credit

    def teardown(self) -> None:
        if not self.connected:
            return
        self.pair.run(advance_s=6.0)
        self.pair.run()
        left, right = (host.store for host in self.pair.hosts)
        for author in AUTHORS:
            for log_id in (0, 1):
                log = LogKey(author.id, log_id)
                assert left.logs[log] == right.logs[log], f"{log} differs"
                assert all(held.payload is not None for held in left.logs[log].values())
        live = 4 - len(self.ended)
        for side in (0, 1):
            engine = self.pair.engine(side)
            empty = sum(not left.logs[LogKey(author.id, n)] for author in AUTHORS for n in (0, 1))
            assert engine.requests <= live + empty
            assert engine.drained
            assert not self.pair.hosts[side].sinks


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(stateful_step_count=60)
