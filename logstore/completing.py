"""Payloads that have come whole become parts of their entries, many in one transaction.

A commit takes as long for one payload as for a hundred. So whoever receives them hands over all
that have come whole while the last transaction was under way. What one of them breaks is its own
affair: each is added behind a savepoint, and its error stands beside the outcomes of the others.
Only what the disk does fails all of them.

A large one comes *sealed* (sink.py): its file is synced, and still locked by its sink, so that
nobody goes on with it between the sync and the commit, and its row says that it is a part. The
commit says that it is whole and the entry's, in one: a state between the two, and a transaction for
it, would keep nothing that the sync has not kept, but for a power cut in between, after which it is
gone on with from its last checkpoint.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wire import LogKey

from . import wants
from .errors import EntryRejected, PayloadDropped, StoreError
from .payloads import (
    GivenPayload,
    PayloadGoneError,
    WrongPayloadError,
    WrongSizeError,
    fill_payload,
)
from .rows import LogRow, load_log, save_log

if TYPE_CHECKING:
    from .database import Transaction
    from .quotas import Ledger


@dataclass(frozen=True, slots=True)
class Completion:
    """The payload of an entry that is held: its bytes, a file, or what a sink has sealed."""

    key: LogKey
    seq: int
    payload: GivenPayload


@dataclass(frozen=True, slots=True)
class Completed:
    """`added`: False if the entry has its payload already, or `error` says why it has none."""

    added: bool
    error: StoreError | None = None


def complete_all(
    transaction: "Transaction",
    ledger: "Ledger | None",
    completions: Iterable[Completion],
    *,
    undeletes: bool = True,
) -> list[Completed]:
    """Adds payloads to their entries; returns what became of each, in order.

    `undeletes`: payloads that were deleted here are taken too.
    """
    rows: dict[LogKey, LogRow] = {}
    outcomes: list[Completed] = []
    for completion in completions:
        key = completion.key
        row = rows.get(key) or load_log(transaction.db, key)
        if row is None:
            missing = StoreError("the log is not held", str(key), "store its entries first")
            outcomes.append(Completed(added=False, error=missing))
            continue
        before = replace(row)
        try:
            with transaction.db:
                completed = _complete(transaction, ledger, row, completion, undeletes=undeletes)
        except StoreError as error:
            # What was written of it is undone, and so is what the row counts.
            row = before
            completed = Completed(added=False, error=error)
        else:
            if ledger is not None:
                ledger.grew(key, row.bytes - before.bytes, (completion.payload,))
        outcomes.append(completed)
        rows[key] = row
    for row in rows.values():
        wants.settle(transaction, row)
        save_log(transaction.db, row)
    return outcomes


def _complete(
    transaction: "Transaction",
    ledger: "Ledger | None",
    row: LogRow,
    completion: Completion,
    *,
    undeletes: bool,
) -> Completed:
    key, seq, payload = completion.key, completion.seq, completion.payload
    if ledger is not None and isinstance(payload, bytes):
        # There is room for what has a file: that was declared when the file was made.
        ledger.check(key, seq, len(payload))
    try:
        added = fill_payload(transaction, row, seq, payload, undeletes=undeletes)
    except WrongSizeError as wrong:
        # The evidence against the log is kept.
        return Completed(added=False, error=EntryRejected(key, seq, str(wrong)))
    except PayloadGoneError as gone:
        # No error of the savepoint: what came of one that was deleted here is garbage with it.
        dropped = PayloadDropped(str(gone), f"{key}/{seq}", "fetch it again")
        return Completed(added=False, error=dropped)
    except WrongPayloadError as wrong:
        raise EntryRejected(key, seq, str(wrong)) from None
    return Completed(added=added)
