"""How far the side table has applied the change feed, and whether it was this store's.

The number alone does not say so: where a store's database is put back and grows again, it comes to
be one that this store has as well, of other entries. So the newest entry stands beside it.
"""

from typing import Final

import apsw

from gateways import holds_still
from logstore import Store
from wire import LogKey

STATEMENT: Final = (
    "CREATE TABLE applied(store BLOB NOT NULL, ingest INTEGER NOT NULL, author BLOB, log_id BLOB,"
    " seq INTEGER, hash BLOB)"
)


def load(db: apsw.Connection, store: Store) -> int | None:
    """The ingest number that was applied last; None if the table says nothing of this store."""
    row = db.execute("SELECT * FROM applied").fetchone()
    if row is None:
        return None
    whose, ingest, author, log_id, seq, hash_ = row
    if whose != store.author or ingest > store.position():
        return None
    if hash_ is not None:
        key = LogKey(author, int.from_bytes(log_id, "big"))
        if not holds_still(store, key, seq, hash_) and not _is_taken_away(store, key, seq):
            return None
    return int(ingest)


def save(db: apsw.Connection, store: Store, ingest: int) -> None:
    """Notes that all up to an ingest number is applied."""
    db.execute("DELETE FROM applied")
    db.execute(
        "INSERT INTO applied VALUES (?, ?, ?, ?, ?, ?)",
        (store.author, ingest, *_newest(store, ingest)),
    )


def _is_taken_away(store: Store, key: LogKey, seq: int) -> bool:
    """Whether an entry is behind a fork: of other logs that says nothing."""
    info = store.log(key)
    return info is not None and info.servable < seq


def _newest(store: Store, ingest: int) -> tuple[bytes | int | None, ...]:
    """Author, log, number and hash of the entry at a place of the ingest sequence.

    None of each where there is none that may be served.
    """
    for change in store.changes(ingest - 1, 1):
        hash_ = store.hashes(change.key, [change.seq]).get(change.seq)
        if hash_ is not None:
            return change.key.author, change.key.log_id.to_bytes(8, "big"), change.seq, hash_
    return (None,) * 4
