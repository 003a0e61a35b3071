"""Which indexes of a peer's stream are here: disjoint ranges of numbers (spec section 3.4).

Live syncing takes what is newest, history what was before, and connections end in the middle of
both: so what was taken has gaps, and the first of them is where history goes on. One record is
written by both, and kept as a short text. It is a claim about the past and about nothing else: a
record that is lost costs that hashes are offered again.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from gateways.reading import CodecError
from wire import U64_MAX

_BASE: Final = 36
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_U64_DIGITS_MAX: Final = 13


class Gap(NamedTuple):
    """Indexes that are not covered, both ends among them."""

    first: int
    last: int | None
    """None if everything from `first` on is open."""


class Intervals:
    """The indexes of one stream that are covered: from `start` on, as unsigned 64-bit numbers."""

    __slots__ = ("_ranges", "start")

    def __init__(self, start: int) -> None:
        """Nothing is covered. `start` is the first index that the stream can have: 1, or 0."""
        self.start = start
        self._ranges: list[tuple[int, int]] = []

    @property
    def last(self) -> int:
        """The highest index that is covered; 0 if none is."""
        return self._ranges[-1][1] if self._ranges else 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """First and last index of each range, ascending; no two of them touch."""
        return [*self._ranges]

    def add(self, first: int, last: int) -> None:
        """Covers a range, both ends among it; what of it lies below `start` does not count.

        Raises ValueError for one that ends before it begins, or is not of 64-bit numbers.
        """
        if not 0 <= first <= last <= U64_MAX:
            raise ValueError(f"{first} to {last} is no range of indexes")
        if last < self.start:
            return
        first = max(first, self.start)
        # All that it overlaps or touches becomes one with it.
        low = bisect_left(self._ranges, first - 1, key=lambda each: each[1])
        high = bisect_right(self._ranges, last + 1, key=lambda each: each[0])
        if low < high:
            first = min(first, self._ranges[low][0])
            last = max(last, self._ranges[high - 1][1])
        self._ranges[low:high] = [(first, last)]

    def first_gap(self) -> Gap | None:
        """Where history goes on; None if it is at the end of all numbers."""
        if not self._ranges:
            return Gap(self.start, None)
        begin, end = self._ranges[0]
        if begin > self.start:
            return Gap(self.start, begin - 1)
        if end == U64_MAX:
            return None
        return Gap(end + 1, self._ranges[1][0] - 1 if len(self._ranges) > 1 else None)

    def encode(self) -> str:
        """`start;first,last;...` in base 36."""
        told = (f"{_digits(first)},{_digits(last)}" for first, last in self._ranges)
        return ";".join((_digits(self.start), *told))


def decode_intervals(text: str) -> Intervals:
    """Raises CodecError for a text that `encode` would not write."""
    head, *told = text.split(";")
    try:
        found = Intervals(_number(head))
        for each in told:
            first, _, last = each.partition(",")
            found.add(_number(first), _number(last))
    except ValueError as error:
        raise CodecError(f"intervals {text[:80]!r}: {error}") from error
    # Ranges that touch or are out of order, other digits and needless zeros would be second texts.
    if found.encode() != text:
        raise CodecError(f"intervals {text[:80]!r}: their text is {found.encode()[:80]!r}")
    return found


def _digits(number: int) -> str:
    digits = ""
    while number >= _BASE:
        number, digit = divmod(number, _BASE)
        digits = _DIGITS[digit] + digits
    return _DIGITS[number] + digits


def _number(digits: str) -> int:
    # Before it is a number: of a million digits that takes minutes.
    if len(digits) > _U64_DIGITS_MAX:
        raise ValueError(f"a number of {len(digits)} digits: 2^64 has {_U64_DIGITS_MAX}")
    number = int(digits, _BASE)
    if not 0 <= number <= U64_MAX:
        raise ValueError(f"{digits!r} is not from 0 to 2^64 - 1")
    return number
