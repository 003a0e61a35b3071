"""Which payloads are asked for together, which alone, and how many of them at once."""

from hypothesis import given
from hypothesis import strategies as st

from peer.planner.payloads import GROUPS_MAX, asks_for
from peer.planner.ranges import Ranges, union

SETS = st.frozensets(st.integers(1, 30))


def ranges_of(seqs: frozenset[int]) -> Ranges:
    return union((n, n) for n in seqs)


@given(SETS, st.dictionaries(st.integers(1, 30), st.integers(1, 9)), SETS, SETS, st.integers(0, 31))
def test_each_is_asked_for_once_and_begins_where_it_is_to(
    missing: frozenset[int],
    begun: dict[int, int],
    taken: frozenset[int],
    singly: frozenset[int],
    asked_up_to: int,
) -> None:
    asks = asks_for(
        ranges_of(missing), begun, ranges_of(taken), ranges_of(singly), asked_up_to=asked_up_to
    )
    asked = [seq for ask in asks for seq in range(ask.start, ask.last + 1)]
    assert sorted(asked) == sorted(missing - taken)
    for ask in asks:
        if ask.start < ask.last:
            inside = {*range(ask.start, ask.last + 1)}
            assert ask.offset is None
            assert not inside & (singly | begun.keys())
        else:
            assert ask.offset == (0 if ask.start in singly else begun.get(ask.start, 0))
    # Neighbours that may be are asked for together.
    alone = singly | begun.keys()
    ends = {ask.last for ask in asks if ask.last not in alone}
    starts = {ask.start for ask in asks if ask.start not in alone}
    assert not {end + 1 for end in ends} & starts
    # And those behind the last one that was asked for before.
    behind = [ask.start > asked_up_to for ask in asks]
    assert behind == sorted(behind, reverse=True)


def test_of_very_many_that_stand_alone_some_are_asked_for_at_a_time() -> None:
    missing = tuple((seq, seq) for seq in range(1, 8192, 2))
    for begun, singly in (({}, ()), (dict.fromkeys(range(1, 8192, 2), 3), ()), ({}, missing)):
        first = asks_for(missing, begun, (), singly)
        assert [ask.start for ask in first] == list(range(1, 2 * GROUPS_MAX, 2))
        behind = asks_for(missing, begun, (), singly, asked_up_to=8000)
        assert [ask.start for ask in behind[:97]] == [*range(8001, 8192, 2), 1]
