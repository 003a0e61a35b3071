"""Intervals: upstream's, and a set of numbers as their measure."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.reading import CodecError
from gateways.swarm.intervals import Gap, Intervals, decode_intervals
from wire import U64_MAX

from .vectors import VECTORS

RANGES = st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda each: (each[0], sum(each)))


@pytest.mark.parametrize("vector", VECTORS["intervals"], ids=lambda each: str(each["text"]))
def test_intervals_of_upstream(vector: dict[str, Any]) -> None:
    intervals = Intervals(vector["start"])
    added = vector["added"]
    for first, last in zip(added[::2], added[1::2], strict=True):
        intervals.add(first, last)
    gap = intervals.first_gap()
    assert gap is not None
    assert [gap.first, gap.last or 0] == vector["next"]
    assert intervals.last == vector["last"]
    assert intervals.encode() == vector["text"]
    assert decode_intervals(vector["text"]).ranges == intervals.ranges


@given(st.integers(0, 12), st.lists(RANGES, max_size=12))
def test_they_are_a_set_of_numbers(start: int, added: list[tuple[int, int]]) -> None:
    intervals, covered = Intervals(start), set[int]()
    for first, last in added:
        intervals.add(first, last)
        covered |= {each for each in range(first, last + 1) if each >= start}
        told = intervals.ranges
        assert {n for first, last in told for n in range(first, last + 1)} == covered
        assert all(one[1] + 1 < other[0] for one, other in pairwise(told))
        assert intervals.last == max(covered, default=0)
        gap = intervals.first_gap()
        assert gap is not None
        lacking = next(each for each in range(start, 99) if each not in covered)
        behind = min((each for each in covered if each > lacking), default=None)
        assert gap == Gap(lacking, None if behind is None else behind - 1)
        again = decode_intervals(intervals.encode())
        assert (again.start, again.ranges) == (start, told)


def test_a_gap_of_the_first_index_is_not_an_open_one() -> None:
    intervals = Intervals(0)
    intervals.add(1, 5)
    assert intervals.first_gap() == Gap(0, 0)


def test_they_end_with_the_last_number() -> None:
    intervals = Intervals(1)
    intervals.add(7, U64_MAX)
    assert intervals.first_gap() == Gap(1, 6)
    intervals.add(1, 6)
    assert intervals.first_gap() is None
    assert intervals.encode() == "1;1,3w5e11264sgsf"
    assert decode_intervals(intervals.encode()).ranges == [(1, U64_MAX)]


@pytest.mark.parametrize(("first", "last"), [(2, 1), (-1, 3), (0, U64_MAX + 1)])
def test_what_is_no_range_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="no range of indexes"):
        Intervals(0).add(first, last)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "-5",
        "-1a",
        "+1",
        " 1",
        "1_0",
        "01",
        "A",
        "ä",
        "1;",
        "1;1",
        "1;1,",
        "1;,1",
        "1;1,2,3",
        "1;2,1",
        "1;5,6;1,2",
        "1;1,2;3,4",
        "1;1,3;2,4",
        "1;0,4",
        "1;0,0",
        "3w5e11264sgsg",
        "1;1,3w5e11264sgsg",
        "1" * 1_000_000,
    ],
    ids=lambda text: text[:20],
)
def test_texts_that_we_do_not_write_are_refused(text: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_intervals(text)
    assert len(str(caught.value)) < 300


@given(st.text(alphabet="0123456789abcz;,-_ ", max_size=20))
def test_any_text_is_read_as_it_is_written_or_refused(text: str) -> None:
    try:
        found = decode_intervals(text)
    except CodecError:
        return
    assert found.encode() == text
