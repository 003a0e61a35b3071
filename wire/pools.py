"""Lipmaalinks, shortest paths and certificate pools (bamboo.md), exact for every seqnum.

Theory. The spine numbers S(k) = (3^k - 1) / 2 cut the seqnums into blocks; between two of them the
pattern of the blocks below repeats three times: S(k) = 3 * S(k-1) + 1. A number n that is no spine
number links back by S(g(n)), where g(n) is found by subtracting the largest spine number below n
until a spine number S(g) is left. Subtracting S(k-1) as often as possible is taking the remainder,
so g costs one division per level. The low levels are one look-up: the string of g(1..S(k)) is
three times that of g(1..S(k-1)) and then k, 29,524 bytes for k = 10. A cache of results was not
taken: the look-up costs hardly more than asking a cache.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from .varu64 import U64_MAX

# S(0) = 0 to S(42). S(41) is the last one below 2^64; S(42) heads the upper pools above it.
_POWERS: Final[list[int]] = [3**k for k in range(43)]
_SPINE: Final = [(power - 1) // 2 for power in _POWERS]
_SPINE_LINKS: Final = {_SPINE[k]: _SPINE[k] - _POWERS[k - 1] for k in range(1, 43)}

_TABLE_LEVEL: Final = 10
_TABLE_MAX: Final = _SPINE[_TABLE_LEVEL]


def _g_table() -> bytes:
    table = b"\x00"
    for k in range(1, _TABLE_LEVEL + 1):
        table += table[1:] * 2 + bytes((k,))
    return table


_G: Final = _g_table()


def lipmaa(n: int) -> int:
    """The seqnum that entry `n` (at least 1) links back to; 0, no link, for n = 1."""
    link = _SPINE_LINKS.get(n)
    if link is not None:
        return link
    if n <= _TABLE_MAX:
        return n - _SPINE[_G[n]]
    rest = n
    for k in range(bisect_left(_SPINE, n) - 1, _TABLE_LEVEL, -1):
        rest %= _SPINE[k]
        if rest == 0:
            return n - _SPINE[k]
    if rest <= _TABLE_MAX:
        return n - _SPINE[_G[rest]]
    rest %= _TABLE_MAX
    return n - _SPINE[_G[rest] if rest else _TABLE_LEVEL]


def has_distinct_lipmaalink(n: int) -> bool:
    """Whether entry `n` carries a lipmaalink beside its backlink."""
    return n > 1 and lipmaa(n) != n - 1


def shortest_path(a: int, b: int) -> list[int]:
    """The shortest path from `a` down to `b`, both included, descending.

    Raises ValueError unless a >= b >= 1.
    """
    if not a >= b >= 1:
        raise ValueError(f"there is no path from {a} to {b}")
    return list(_path(a, b))


def lower_pool(x: int) -> list[int]:
    """The lower certificate pool of `x`: x and its chain of lipmaalinks down to 1, descending.

    Raises ValueError if x is below 1.
    """
    return shortest_path(x, 1)


def upper_pool(x: int) -> list[int]:
    """The upper certificate pool of `x`: the path from the next spine number to x, descending.

    Above the last spine number below 2^64 the path begins with numbers that no entry can have;
    they are left out. Raises ValueError unless 1 <= x <= 2^64 - 1.
    """
    if not 1 <= x <= U64_MAX:
        raise ValueError(f"{x} is not a seqnum")
    return [n for n in _path(_SPINE[bisect_left(_SPINE, x)], x) if n <= U64_MAX]


def in_lower_pool(n: int, x: int) -> bool:
    """Whether `n` is in the lower pool of `x`."""
    while x > n >= 1:
        x = lipmaa(x)
    return x == n >= 1


def in_upper_pool(n: int, x: int) -> bool:
    """Whether `n` is in the upper pool of `x`."""
    return 1 <= x <= n <= U64_MAX and n in _path(_SPINE[bisect_left(_SPINE, x)], x)


def _path(a: int, b: int) -> Iterator[int]:
    yield a
    while a > b:
        link = lipmaa(a)
        a = link if link >= b else a - 1
        yield a
