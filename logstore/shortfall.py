"""What is missing of a log with respect to what is wanted of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wire import lower_pool

from .missing import count_missing
from .rows import LogRow
from .runs import count_held, is_held
from .subscriptions import PolicyKind, Subscription

if TYPE_CHECKING:
    import apsw


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a subscription wants and is not held, up to the newest entry that is."""

    entries: int
    payloads: int
    """Payloads of entries that are held."""


def count_shortfall(db: "apsw.Connection", row: LogRow, wanted: Subscription) -> Shortfall:
    """Counts it, from what is counted already."""
    first, last = wanted.bounds(row.newest)
    if wanted.kind is PolicyKind.SPARSE:
        path = lower_pool(row.newest) if row.newest else []
        entries = sum(not is_held(db, row, seq, seq) for seq in path)
    else:
        entries = max(0, last - first + 1 - count_held(db, row, first, last))
    return Shortfall(entries, count_missing(db, row, wanted))
