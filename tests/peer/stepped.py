"""A pair of engines whose hosts and four byte streams take their steps as Hypothesis draws them."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from .rig import Pair

SIDES = st.integers(0, 1)


class SteppedPair(RuleBasedStateMachine):
    """What is common to machines that change something while messages are in flight."""

    pair: Pair

    @rule(side=SIDES, choices=st.lists(st.integers(0, 20), min_size=1, max_size=8))
    def carry_out(self, side: int, choices: list[int]) -> None:
        for choice in choices:
            self.pair.hosts[side].step(choice)

    @rule(side=SIDES, data_max=st.integers(0, 900))
    def send(self, side: int, data_max: int) -> None:
        self.pair.pump(side, data_max=data_max)

    @rule(side=SIDES, size=st.integers(1, 600))
    def deliver_control(self, side: int, size: int) -> None:
        self.pair.deliver_control(side, size)

    @rule(side=SIDES, size=st.integers(1, 900))
    def deliver_data(self, side: int, size: int) -> None:
        self.pair.deliver_data(side, size)

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.pair.tick(seconds)
