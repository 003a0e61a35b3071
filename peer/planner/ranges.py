"""Sets of seqnums as ranges: ascending, both ends included, no two of them touching.

`OPEN_END` as the last seqnum of a range stands for a range without an end.
"""

from collections.abc import Iterable

from peer.protocol.request import OPEN_END

Range = tuple[int, int]
Ranges = tuple[Range, ...]

EVERYTHING: Ranges = ((1, OPEN_END),)


def union(*sets: Iterable[Range]) -> Ranges:
    """What is in any of them; the ranges may come in any order and overlap."""
    given = [each for ranges in sets for each in ranges]
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
    # One walk through both, here and in `meet`: a log may lack thousands of payloads, each of them
    # a range, and as many be asked for one by one.
    if not ranges or not taken:
        return ranges
    left: list[Range] = []
    at = 0
    for begin, last in ranges:
        first = begin
        while at < len(taken) and taken[at][1] < first:
            at += 1
        here = at
        while here < len(taken) and taken[here][0] <= last:
            if taken[here][0] > first:
                left.append((first, taken[here][0] - 1))
            first = taken[here][1] + 1
            here += 1
        # The last of them may reach into the next range.
        at = max(at, here - 1)
        if first <= last:
            left.append((first, last))
    return tuple(left)


def meet(one: Ranges, other: Ranges) -> Ranges:
    """What is in both."""
    if not one or not other:
        return ()
    both: list[Range] = []
    here = there = 0
    while here < len(one) and there < len(other):
        first, last = one[here]
        begin, end = other[there]
        if last < end:
            here += 1
        else:
            there += 1
            last = end
        first = max(first, begin)
        if first <= last:
            both.append((first, last))
    return tuple(both)


def range_with(ranges: Iterable[Range], seq: int) -> Range | None:
    """The range that a seqnum is in."""
    for found in ranges:
        if found[0] <= seq <= found[1]:
            return found
    return None


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
