"""Lipmaalinks, paths and pools against the definitions of bamboo.md, stated again here."""

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import (
    U64_MAX,
    has_distinct_lipmaalink,
    in_lower_pool,
    in_upper_pool,
    lipmaa,
    lower_pool,
    shortest_path,
    upper_pool,
)

POWERS: list[int] = [3**k for k in range(43)]
SPINE = [(power - 1) // 2 for power in POWERS]
FIRST_VALUES = (
    "0 1 2 1 4 5 6 4 8 9 10 8 4 13 14 15 13 17 18 19 17 21 22 23 21 13 26 27 28 26 30 31 32 30 34 "
    "35 36 34 26 13 40"
)
LAST_SPINE_NUMBER = SPINE[41]
SEQNUMS = st.one_of(
    st.integers(1, 1000),
    st.integers(1, U64_MAX),
    st.builds(
        lambda k, d: min(max(1, SPINE[k] + d), U64_MAX), st.integers(1, 41), st.integers(-3, 3)
    ),
    st.builds(lambda k, m: min(SPINE[k] * m, U64_MAX), st.integers(1, 41), st.integers(1, 3)),
)


def defined_g(n: int) -> int:
    """The definition, word by word."""
    k = next(k for k in range(1, 43) if SPINE[k] >= n)
    return k if SPINE[k] == n else defined_g(n - SPINE[k - 1])


def defined_lipmaa(n: int) -> int:
    if n in SPINE:
        return n - POWERS[SPINE.index(n) - 1]
    return n - SPINE[defined_g(n)]


def breadth_first_distance(a: int, b: int) -> int:
    """Edges of a shortest path from a down to b, found without the greedy rule."""
    distance = {a: 0}
    queue = deque([a])
    while b not in distance:
        n = queue.popleft()
        for target in (n - 1, defined_lipmaa(n)):
            if target >= b and target not in distance:
                distance[target] = distance[n] + 1
                queue.append(target)
    return distance[b]


def test_lipmaa_has_the_first_values_of_the_specification() -> None:
    assert [lipmaa(n) for n in range(1, 42)] == [int(word) for word in FIRST_VALUES.split()]


def test_lipmaa_equals_its_definition_where_the_table_ends() -> None:
    for edge in (SPINE[10], 2 * SPINE[10], 3 * SPINE[10], SPINE[11], 2 * SPINE[11], SPINE[12]):
        for n in range(edge - 50, edge + 51):
            assert lipmaa(n) == defined_lipmaa(n), n
    for n in range(1, 3000):
        assert lipmaa(n) == defined_lipmaa(n), n


@given(SEQNUMS)
def test_lipmaa_equals_its_definition_up_to_the_largest_seqnum(n: int) -> None:
    assert lipmaa(n) == defined_lipmaa(n)


def test_lipmaa_is_exact_at_the_upper_boundary() -> None:
    assert lipmaa(U64_MAX) == defined_lipmaa(U64_MAX)
    assert lipmaa(LAST_SPINE_NUMBER) == SPINE[40]
    assert lipmaa(LAST_SPINE_NUMBER + 1) == LAST_SPINE_NUMBER


def test_a_lipmaalink_is_distinct_if_it_names_another_entry_than_the_backlink() -> None:
    distinct = [n for n in range(1, 15) if has_distinct_lipmaalink(n)]
    assert distinct == [4, 8, 12, 13]


def test_the_greedy_path_is_a_shortest_one() -> None:
    for a in range(1, 140):
        for b in range(1, a + 1):
            path = shortest_path(a, b)
            assert path[0] == a
            assert path[-1] == b
            assert all(y in (x - 1, lipmaa(x)) for x, y in pairwise(path))
            assert len(path) - 1 == breadth_first_distance(a, b), (a, b)


@pytest.mark.parametrize(("a", "b"), [(3, 4), (3, 0), (0, 0)])
def test_there_is_no_path_upwards_or_to_zero(a: int, b: int) -> None:
    with pytest.raises(ValueError, match="no path"):
        shortest_path(a, b)


def test_pools_are_the_paths_that_define_them() -> None:
    for x in range(1, 200):
        chain = [x]
        while chain[-1] > 1:
            chain.append(defined_lipmaa(chain[-1]))
        assert lower_pool(x) == chain
        spine_number = next(s for s in SPINE if s >= x)
        assert upper_pool(x) == shortest_path(spine_number, x)


def test_membership_tells_what_the_pools_hold() -> None:
    for x in range(-1, 130):
        lower = lower_pool(x) if x > 0 else []
        upper = upper_pool(x) if x > 0 else []
        for n in range(-1, 130):
            assert in_lower_pool(n, x) == (n in lower), (n, x)
            assert in_upper_pool(n, x) == (n in upper), (n, x)


def test_the_pools_of_two_entries_hold_a_path_between_them() -> None:
    for y in range(1, 120):
        for x in range(1, y):
            union = {*lower_pool(x), *upper_pool(x), *lower_pool(y), *upper_pool(y)}
            reached = {y}
            for n in sorted(union, reverse=True):
                if n in reached:
                    reached |= {n - 1, lipmaa(n)} & union
            assert x in reached, (x, y)


def test_fact_1_links_out_of_a_range_lead_into_the_lower_pool_of_its_start() -> None:
    for start in range(1, 201):
        pool = set(lower_pool(start))
        for s in range(max(start, 2), 201):
            if lipmaa(s) < start:
                assert lipmaa(s) in pool, (start, s)


def test_fact_2_links_of_sparse_ranges_and_upper_pools_are_always_rebuilt() -> None:
    for start in range(1, 121):
        pool = set(lower_pool(start))
        for end in range(start, 121):
            held = set(pool)
            for n in sorted(shortest_path(end, start)) + sorted(upper_pool(end)):
                assert n == 1 or lipmaa(n) in held, (start, end, n)
                held.add(n)


@pytest.mark.parametrize("x", [U64_MAX, U64_MAX - 1, LAST_SPINE_NUMBER + 1, LAST_SPINE_NUMBER])
def test_pools_at_the_upper_boundary_are_short_and_hold_only_seqnums(x: int) -> None:
    for pool in (lower_pool(x), upper_pool(x)):
        assert x in pool
        assert len(pool) <= 130
        assert all(1 <= n <= U64_MAX for n in pool)
        assert pool == sorted(pool, reverse=True)
    assert in_upper_pool(x, x)
    assert not in_upper_pool(U64_MAX + 1, x)


def test_the_path_that_an_upper_pool_leaves_out_lies_above_all_seqnums() -> None:
    x = LAST_SPINE_NUMBER + 1
    whole = shortest_path(SPINE[42], x)
    assert upper_pool(x) == [n for n in whole if n <= U64_MAX]
    assert len(whole) > len(upper_pool(x))


@pytest.mark.parametrize("x", [0, U64_MAX + 1])
def test_upper_pools_are_those_of_seqnums(x: int) -> None:
    with pytest.raises(ValueError, match="is not a seqnum"):
        upper_pool(x)
