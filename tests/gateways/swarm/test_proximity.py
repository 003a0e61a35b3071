"""Proximity and depth: upstream's table, and the rules in their plainest form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.swarm.proximity import depth, proximity

from .vectors import VECTORS

ADDRESSES = st.binary(min_size=32, max_size=32)


@pytest.mark.parametrize("vector", VECTORS["proximity"])
def test_proximities_of_upstream(vector: dict[str, Any]) -> None:
    one, other = bytes.fromhex(vector["a"]), bytes.fromhex(vector["b"])
    assert proximity(one, other) == proximity(other, one) == vector["proximity"]


@given(ADDRESSES, ADDRESSES, st.integers(0, 32))
def test_it_is_the_number_of_leading_bits_in_common(one: bytes, end: bytes, same: int) -> None:
    other = one[:same] + end[same:]
    bits = [f"{int.from_bytes(each, 'big'):0256b}" for each in (one, other)]
    expected = 0
    while expected < 16 and bits[0][expected] == bits[1][expected]:
        expected += 1
    assert proximity(one, other) == expected


@pytest.mark.parametrize(
    ("proximities", "expected"),
    [
        ([], 0),
        ([16], 0),
        ([7, 3], 0),
        ([0, 1, 2], 1),
        ([3, 4, 5], 0),
        ([0, 0, 1, 1, 2, 3, 3], 3),
        ([16, 0, 16, 16], 1),
        ([*range(17), 16], 16),
        ([0, 0, 0], 0),
    ],
)
def test_depths(proximities: list[int], expected: int) -> None:
    assert depth(proximities) == expected


@given(st.lists(st.integers(0, 16), min_size=3, max_size=40))
def test_above_the_depth_all_bins_have_peers_and_at_it_two_are_left(proximities: list[int]) -> None:
    found = depth(iter(proximities))
    assert set(range(found)) <= set(proximities)
    assert sum(each >= found for each in proximities) >= 2
    deeper = sum(each > found for each in proximities)
    assert found not in proximities or deeper < 2
