"""Small networks of relays under long random schedules, with liars and lost connections."""

import random

import pytest

from .relay import SAFE, Link, RelayStore
from .rig import SETUP
from .test_greedy_chains import (
    LOG,
    WHOLE,
    assert_sound,
    converge,
    history,
    liar_of,
    payloads_of,
    play,
    small,
    store_of,
)

ACTIONS = ["host", "host", "host", "pump", "pump", "control", "data", "data"]


class World:
    """Three relays in a row, two sources at the first, and perhaps short cuts.

    Liars are at the links whose numbers are in `liars`.
    """

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        lies = rng.random() < 0.7
        honest, first, second, third = store_of(history()), *(RelayStore() for _ in range(3))
        doubtful = liar_of(history()) if lies else store_of(history())
        pairs = [(doubtful, first), (honest, first), (first, second), (second, third)]
        pairs += [(doubtful, second)] if rng.random() < 0.3 else []
        pairs += [(first, third)] if rng.random() < 0.3 else []
        self.relays = [first, second, third]
        self.liars = {i for i, pair in enumerate(pairs) if pair[0] is doubtful and lies}
        self.links = [self._link(*pair) for pair in pairs]
        self._cut_chance = rng.choice([0, 0.002, 0.02])

    def _link(self, left: RelayStore, right: RelayStore) -> Link:
        rng = self._rng
        config = small(compression=rng.choice(["auto", "always", "never"]))
        setups = (SAFE if rng.random() < 0.2 else SETUP, SETUP)
        link = Link(left, right, config=config, setups=setups, credit=rng.choice([300, 4096]))
        if rng.random() < 0.8:
            link.open(LOG)
        return link

    def run(self) -> None:
        rng = self._rng
        for _ in range(rng.choice([200, 600, 1500])):
            link = rng.choice(self.links)
            action, size = rng.choice(ACTIONS), rng.choice([1, 30, 100, 700, 5000])
            if rng.random() < self._cut_chance:
                action, size = "cut", 1
            elif not link.is_open and rng.random() < 0.05:
                action = "open"
            play(link, action, rng.randrange(2), size)
            for store in self.relays:
                assert_sound(store)
        blamed = {i for i, link in enumerate(self.links) if link.violation is not None}
        assert blamed <= self.liars

    def settle(self) -> None:
        """The liars leave; what a session does not ask for again comes in a later one."""
        good = [link for i, link in enumerate(self.links) if i not in self.liars]
        for index in self.liars:
            self.links[index].close()
        for _ in range(5):
            for link in good:
                if not link.is_open:
                    link.open(LOG)
            converge(good)
            assert [link.violation for link in good] == [None] * len(good)
            if all(payloads_of(store) == WHOLE for store in self.relays):
                break
            for link in good:
                link.close()
        assert [payloads_of(store) for store in self.relays] == [WHOLE] * 3
        assert not any(store.arrivals for store in self.relays)


def live_through(seed: int) -> None:
    world = World(seed)
    world.run()
    world.settle()


@pytest.mark.parametrize("seed", range(16))
def test_only_liars_are_blamed_and_everybody_gets_the_right_payloads(seed: int) -> None:
    live_through(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(16, 1016, 50))
def test_the_same_in_many_more_worlds(first: int) -> None:
    for seed in range(first, first + 50):
        live_through(seed)
