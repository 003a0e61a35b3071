"""Delays grow from half a second to a minute, differ between peers, and start anew."""

import random

from peer.node.links.backoff import GOOD_AFTER_BYTES, GOOD_AFTER_S, Backoff

STEPS = [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_each_delay_lies_in_the_upper_half_of_its_step() -> None:
    for seed in range(200):
        backoff = Backoff(random.Random(seed))
        for step in STEPS:
            assert step / 2 <= backoff.next_delay_s() <= step


def test_no_step_is_above_the_most_that_is_wanted() -> None:
    backoff = Backoff(random.Random(1), 3)
    for step in (0.5, 1, 2, 3, 3):
        assert step / 2 <= backoff.next_delay_s() <= step
    backoff.begin_anew()
    assert backoff.next_delay_s() <= 0.5


def test_peers_do_not_come_back_in_step() -> None:
    delays = {Backoff(random.Random(seed)).next_delay_s() for seed in range(100)}
    assert len(delays) == 100


def test_only_a_connection_that_lasted_starts_the_delays_anew() -> None:
    backoff = Backoff(random.Random(1))
    for _ in STEPS:
        backoff.next_delay_s()
    backoff.connected_for(GOOD_AFTER_S - 0.1)
    assert backoff.next_delay_s() >= 30
    backoff.connected_for(GOOD_AFTER_S)
    assert backoff.next_delay_s() <= 0.5


def test_a_lost_connection_that_moved_something_counts_as_a_success_however_short() -> None:
    backoff = Backoff(random.Random(1))
    for _ in STEPS:
        backoff.next_delay_s()
    backoff.connected_for(0.2, GOOD_AFTER_BYTES - 1)
    assert backoff.next_delay_s() >= 30
    backoff.connected_for(0.2, GOOD_AFTER_BYTES)
    assert backoff.next_delay_s() <= 0.5
