"""Sets of seqnums as ranges: ascending, both ends included, no two of them touching.

`OPEN_END` as the last seqnum of a range stands for a range without an end.
"""

from collections.abc import Iterable
from itertools import chain

from peer.protocol.request import OPEN_END

Range = tuple[int, int]
Ranges = tuple[Range, ...]

EVERYTHING: Ranges = ((1, OPEN_END),)


def union(*sets: Iterable[Range]) -> Ranges:
    """What is in any of them; the ranges may come in any order and overlap."""
    given = list(chain.from_iterable(sets))
    if len(given) < 2:
        return tuple(given)
    joined: list[Range] = []
    for first, last in sorted(given):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def minus(ranges: Ranges, taken: Ranges) -> Ranges:
    """What is in the first and not in the second."""
    if not ranges or not taken:
        return ranges
    left: list[Range] = []
    for begin, last in ranges:
        first = begin
        for taken_first, taken_last in taken:
            if taken_last < first or taken_first > last:
                continue
            if taken_first > first:
                left.append((first, taken_first - 1))
            first = taken_last + 1
        if first <= last:
            left.append((first, last))
    return tuple(left)


def meet(one: Ranges, other: Ranges) -> Ranges:
    """What is in both."""
    if not one or not other:
        return ()
    return tuple(
        (max(first, other_first), min(last, other_last))
        for first, last in one
        for other_first, other_last in other
        if max(first, other_first) <= min(last, other_last)
    )


def range_with(ranges: Iterable[Range], seq: int) -> Range | None:
    """The range that a seqnum is in."""
    return next(((first, last) for first, last in ranges if first <= seq <= last), None)


def first_of(ranges: Ranges, count: int) -> Ranges:
    """The lowest seqnums of a set, so many at most."""
    found: list[Range] = []
    for first, last in ranges:
        if count <= 0:
            break
        found.append((first, min(last, first + count - 1)))
        count -= last - first + 1
    return tuple(found)


def finite_end(last: int) -> int | None:
    """The end of a range as a proposal has it: None if it is open."""
    return None if last >= OPEN_END else last
