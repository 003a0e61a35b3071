"""What of a log is wanted: a policy, and limits on the sizes of payloads (point2point.md 10)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from wire import U64_MAX, LogKey, in_lower_pool

from .keep_rules import KeepRule
from .records import ALL, Follow

_NUMBER: Final = re.compile("0*([1-9][0-9]{0,19})", re.ASCII)
_POLICIES: Final = "full, sparse, metadata, latest:N or range:A..B"


class PolicyKind(StrEnum):
    """Which entries of a log are wanted, and whether their payloads are."""

    FULL = "full"
    """Everything, forever."""
    METADATA = "metadata"
    """Every entry, no payload."""
    SPARSE = "sparse"
    """The path from the newest entry to entry 1."""
    LATEST = "latest"
    """The last `count` entries."""
    RANGE = "range"
    """The entries from `first` to `last`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is wanted of a log. Raises ValueError for what makes no sense.

    Payloads outside `min_bytes` .. `max_bytes` are skipped by the other side (packets 4 and 5), and
    those above `eager_bytes` are only notified of; none of them is ever missing, and `fetch` brings
    any of them.
    """

    kind: PolicyKind = PolicyKind.FULL
    count: int = 0
    """LATEST: how many entries."""
    first: int = 1
    last: int | None = None
    """RANGE: both ends included; None: open."""
    min_bytes: int = 0
    max_bytes: int = U64_MAX
    eager_bytes: int | None = None
    kept: KeepRule | None = None
    """The rule that deletes payloads of the log: what it would delete at once is not wanted. It is
    no part of what people follow, and put there for whoever asks (keeping.py)."""

    def __post_init__(self) -> None:
        if self.kind is PolicyKind.LATEST:
            if not 1 <= self.count <= U64_MAX:
                raise ValueError("latest:N wants at least one entry")
        elif self.count:
            raise ValueError("only latest:N counts entries")
        if self.kind is PolicyKind.RANGE:
            if not 1 <= self.first <= (U64_MAX if self.last is None else self.last) <= U64_MAX:
                raise ValueError("a range begins at entry 1 or later and ends behind that")
        elif (self.first, self.last) != (1, None):
            raise ValueError("only range:A..B names entries")
        if not 0 <= self.min_bytes <= self.max_bytes <= U64_MAX:
            raise ValueError("the smallest payload wanted is larger than the largest")
        if self.eager_bytes is not None and not 0 <= self.eager_bytes <= U64_MAX:
            raise ValueError("a payload's size is a number from 0 to 2^64 - 1")

    @classmethod
    def parse(cls, text: str) -> Self:
        """`full`, `sparse`, `metadata`, `latest:N`, `range:A..B` or `range:A..`; else ValueError.

        `str` is the reverse, but for the limits on sizes.
        """
        name, colon, rest = text.partition(":")
        if name == PolicyKind.LATEST:
            return cls(PolicyKind.LATEST, count=_number(rest, text, "latest:N, as in latest:100"))
        if name == PolicyKind.RANGE:
            form = "range:A..B or range:A.., as in range:10..20"
            low, dots, high = rest.partition("..")
            if not dots:
                raise ValueError(f"{text[:60]!r}: write {form}")
            first = _number(low, text, form) if low else 1
            last = _number(high, text, form) if high else None
            if last is not None and last < first:
                raise ValueError(f"{text[:60]!r} ends before it begins")
            return cls(PolicyKind.RANGE, first=first, last=last)
        if colon or name not in set(PolicyKind):
            raise ValueError(f"{text[:60]!r} is no policy: it is one of {_POLICIES}")
        return cls(PolicyKind(name))

    def __str__(self) -> str:
        if self.kind is PolicyKind.LATEST:
            return f"latest:{self.count}"
        if self.kind is PolicyKind.RANGE:
            return f"range:{self.first}..{'' if self.last is None else self.last}"
        return str(self.kind)

    def wants_payload(self, payload_bytes: int) -> bool:
        """Whether a payload of this size is wanted of an entry that is."""
        low, high = self.payload_limits
        return low <= payload_bytes <= high

    @property
    def payload_limits(self) -> tuple[int, int]:
        """The smallest and the largest payload wanted; the largest is -1 if none is."""
        if self.kind is PolicyKind.METADATA or (self.kept is not None and self.kept.keeps_none):
            return 0, -1
        largest = self.max_bytes
        if self.eager_bytes is not None:
            largest = min(largest, self.eager_bytes)
        if self.kept is not None and self.kept.bytes is not None:
            largest = min(largest, self.kept.bytes)
        return self.min_bytes, largest

    def bounds(self, newest: int) -> tuple[int, int]:
        """The first and the last entry wanted of a log that ends with `newest`.

        Of a sparse subscription, only those on the path. The last may be below the first: nothing
        is wanted yet.
        """
        if self.kind is PolicyKind.LATEST:
            return max(1, newest - self.count + 1), newest
        if self.kind is PolicyKind.RANGE:
            return self.first, newest if self.last is None else min(self.last, newest)
        return 1, newest

    def payload_bounds(self, newest: int) -> tuple[int, int]:
        """`bounds`, of the entries whose payloads are wanted too."""
        first, last = self.bounds(newest)
        if self.kept is not None and self.kept.last is not None:
            first = max(first, newest - self.kept.last + 1)
        return first, last

    def wants_entry(self, seq: int, newest: int) -> bool:
        """Whether an entry is wanted for its own sake, not only for the path of another."""
        first, last = self.bounds(newest)
        if not first <= seq <= last:
            return False
        return self.kind is not PolicyKind.SPARSE or in_lower_pool(seq, newest)


FULL: Final = Subscription()
"""Everything of the log."""


def restored(policy: str, min_bytes: int, max_bytes: int, eager_bytes: int | None) -> Subscription:
    """What was kept as text and numbers; FULL if that is damaged, which `verify` reports."""
    try:
        return replace(
            Subscription.parse(policy),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            eager_bytes=eager_bytes,
        )
    except ValueError:
        return FULL


def subscription_of(found: Mapping[Follow, Subscription], log: LogKey) -> Subscription | None:
    """What is wanted of a log that others write: by its own rule, its author's or that of all.

    None if it is not followed.
    """
    for target in (log, log.author, ALL):
        if target in found:
            return found[target]
    return None


def _number(digits: str, text: str, form: str) -> int:
    match = _NUMBER.fullmatch(digits)
    if match is None or int(match[1]) > U64_MAX:
        raise ValueError(f"{text[:60]!r}: write {form}")
    return int(match[1])
