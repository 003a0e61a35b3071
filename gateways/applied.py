"""How far a side table has come in the change feed of a store.

A number of that feed alone would not do: the table may stand beside a store that it was not derived
from, or one that was put back and has grown again past the same number. So whose store it is, and
the newest entry that was applied, stand beside it.
"""

from typing import Final

from logstore import Store
from wire import LogKey

from .prefix import holds_still
from .side_table import pack_u64, unpack_u64

APPLIED_COLUMNS: Final = (
    "store BLOB",
    "ingest INTEGER",
    "author BLOB",
    "log_id BLOB",
    "seq BLOB",
    "hash BLOB",
)
"""Of an `AppliedRow`, with their types."""
AppliedRow = tuple[bytes | None, int | None, bytes | None, bytes | None, bytes | None, bytes | None]


def applied_row(store: Store, ingest: int) -> AppliedRow:
    """What is to be remembered once the feed was applied up to a number. Blocks.

    The entry at that place, and None of each where there is none that may be served. Raises
    StoreError.
    """
    for change in store.changes(ingest - 1, 1):
        hash_ = store.hashes(change.key, [change.seq]).get(change.seq)
        if hash_ is not None:
            key, seq = change.key, change.seq
            return store.author, ingest, key.author, pack_u64(key.log_id), pack_u64(seq), hash_
    return store.author, ingest, None, None, None, None


def applied_ingest(store: Store, row: AppliedRow) -> int | None:
    """The number that a row says; None if it says nothing of this store. Blocks.

    Raises StoreError.
    """
    whose, ingest, author, log_id, seq, hash_ = row
    if whose != store.author or ingest is None or ingest > store.position():
        return None
    if author is None or log_id is None or seq is None or hash_ is None:
        return ingest
    key, number = LogKey(author, unpack_u64(log_id)), unpack_u64(seq)
    for change in store.changes(ingest - 1, 1):
        # No number is given twice. An entry that came again, with its payload, left its place;
        # where another one has it, the store was put back, and took what came in another order.
        if change.ingest == ingest and (change.key, change.seq) != (key, number):
            return None
    holds = holds_still(store, key, number, hash_) or _is_taken_away(store, key, number)
    return ingest if holds else None


def _is_taken_away(store: Store, key: LogKey, seq: int) -> bool:
    """Whether an entry is behind a fork: of other logs that says nothing."""
    info = store.log(key)
    return info is not None and info.servable < seq
