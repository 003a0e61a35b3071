"""What is missing of a log with respect to what is wanted of it, and what is held."""

from typing import TYPE_CHECKING, NamedTuple

from wire import lower_pool

from .missing import count_askable, count_missing
from .reading import load_partials
from .rows import LogRow
from .runs import count_held, is_held
from .subscriptions import PolicyKind, Subscription

if TYPE_CHECKING:
    import apsw


class Shortfall(NamedTuple):
    """What a subscription wants and is not held, up to the newest entry that is."""

    entries: int
    payloads: int
    """Payloads of entries that are held."""


class Holding(NamedTuple):
    """How much of a range is held, while it is wanted."""

    entries: int
    payloads: int
    partial_bytes: int
    """Bytes of payloads that have not come whole."""


def count_holding(db: "apsw.Connection", row: LogRow, first: int, last: int) -> Holding:
    """Counts it. Deleted payloads of a range that nobody wants count as held."""
    entries = count_held(db, row, first, last)
    payloads = entries - count_askable(db, row, first, min(last, row.newest))
    partials = load_partials(db, row.key).items()
    return Holding(entries, payloads, sum(size for seq, size in partials if first <= seq <= last))


def count_shortfall(
    db: "apsw.Connection", row: LogRow, wanted: Subscription, now_us: int
) -> Shortfall:
    """Counts it, from what is counted already. What a rule would delete at once is not missing."""
    first, last = wanted.bounds(row.newest)
    if wanted.kind is PolicyKind.SPARSE:
        path = lower_pool(row.newest) if row.newest else []
        entries = sum(not is_held(db, row, seq, seq) for seq in path)
    else:
        entries = max(0, last - first + 1 - count_held(db, row, first, last))
    age_us = None if wanted.kept is None else wanted.kept.age_us
    since_us = None if age_us is None else now_us - age_us
    return Shortfall(entries, count_missing(db, row, wanted, since_us))
