"""Entries that are asked for once, with their payloads: what `fetch` is waiting for.

A want is taken back by whoever recorded it, by `drop`, or by itself: in the transaction that brings
the last of what it names. While it stands, deleted payloads in its range count as missing.
"""

from typing import TYPE_CHECKING

from wire import LogKey

from .errors import LogClosed
from .missing import ask_again, ask_no_more, is_missing
from .rows import LogRow, load_log, pack_u64, row_tag, unpack_u64
from .runs import Run, is_held

if TYPE_CHECKING:
    import apsw

    from .database import Transaction


def want(transaction: "Transaction", key: LogKey, first: int, last: int) -> bool:
    """Records a range; False, and nothing is recorded, if all of it that may exist is held.

    Raises LogClosed if none of it may.
    """
    db = transaction.db
    row = load_log(db, key)
    if row is not None and first > row.servable:
        raise LogClosed.behind(row.servable, row.state, key, "fetch what is before that")
    names = (key.author, pack_u64(key.log_id), pack_u64(first), pack_u64(last))
    db.execute(
        "INSERT INTO wants VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (*names, row_tag(*names))
    )
    transaction.wants_nothing = False
    if row is None:
        return True
    ask_again(db, row, first, last)
    settle(transaction, row)
    return (first, last) in load_wants_of(db, key)


def unwant(db: "apsw.Connection", key: LogKey, first: int, last: int) -> bool:
    """Takes a range back; False if exactly that was not wanted."""
    db.execute(
        "DELETE FROM wants WHERE author = ? AND log_id = ? AND first = ? AND last = ?",
        (key.author, pack_u64(key.log_id), pack_u64(first), pack_u64(last)),
    )
    found = bool(db.changes())
    row = load_log(db, key)
    if found and row is not None:
        ask_no_more(db, row, first, last)
        for low, high in load_wants_of(db, key):
            ask_again(db, row, max(low, first), min(high, last))
    return found


def unwant_overlapping(db: "apsw.Connection", key: LogKey, first: int, last: int) -> None:
    """Takes back all that is wanted of a range."""
    for low, high in load_wants_of(db, key):
        if max(low, first) <= min(high, last):
            unwant(db, key, low, high)


def settle(transaction: "Transaction", row: LogRow) -> None:
    """Takes back what is held by now, and what can never be."""
    if transaction.wants_nothing:
        return
    db = transaction.db
    if db.execute("SELECT 1 FROM wants LIMIT 1").get is None:
        transaction.wants_nothing = True
        return
    for first, last in load_wants_of(db, row.key):
        high = min(last, row.servable)
        held = high < first or is_held(db, row, first, high)
        if held and not is_missing(db, row, first, high):
            transaction.changes_wishes = True
            unwant(db, row.key, first, last)


def load_wants(db: "apsw.Connection") -> dict[LogKey, list[Run]]:
    """Everything that is wanted, in order."""
    found: dict[LogKey, list[Run]] = {}
    for author, log_id, first, last in db.execute(
        "SELECT author, log_id, first, last FROM wants ORDER BY author, log_id, first, last"
    ):
        key = LogKey(author, unpack_u64(log_id))
        found.setdefault(key, []).append((unpack_u64(first), unpack_u64(last)))
    return found


def load_wants_of(db: "apsw.Connection", key: LogKey) -> list[Run]:
    """What is wanted of one log."""
    rows = db.execute(
        "SELECT first, last FROM wants WHERE author = ? AND log_id = ? ORDER BY first, last",
        (key.author, pack_u64(key.log_id)),
    )
    return [(unpack_u64(first), unpack_u64(last)) for first, last in rows]
