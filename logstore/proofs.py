"""Evidence against a log: fork proofs, and payloads of the right hash and the wrong size."""

from typing import TYPE_CHECKING, Final

import apsw

from wire import EntryError, LogKey, decode_entry

from .errors import NotAFork
from .files import detach_file
from .records import ForkProof
from .rows import LogRow, check_ascending, pack_u64, row_tag, unpack_u64
from .runs import limit_log

if TYPE_CHECKING:
    from .database import Transaction

FORK: Final = "fork"
SIZE: Final = "size"
SIZE_FILE: Final = "size in file"
"""Like SIZE; `second` is the id of a payload file."""


def check_fork(key: LogKey, first: bytes, second: bytes) -> ForkProof:
    """The proof that two encodings are; raises NotAFork, saying why they are none."""
    try:
        entries = decode_entry(first), decode_entry(second)
    except EntryError as error:
        raise NotAFork(f"one does not parse ({error})", str(key), "nothing was recorded") from error
    for entry in entries:
        if entry.key != key:
            raise NotAFork(f"one is of log {entry.key}", str(key), "nothing was recorded")
    if entries[0].seq != entries[1].seq:
        raise NotAFork(
            f"they are entries {entries[0].seq} and {entries[1].seq}",
            str(key),
            "nothing was recorded",
        )
    if first == second:
        raise NotAFork("they are the same", str(key), "nothing was recorded")
    # It loads libsodium, which few commands need.
    from wire import signature_is_valid

    for encoded in (first, second):
        if not signature_is_valid(encoded):
            raise NotAFork("one has a wrong signature", str(key), "nothing was recorded")
    return ForkProof(key, entries[0].seq, first, second)


def store_fork(transaction: "Transaction", row: LogRow, proof: ForkProof) -> bool:
    """Keeps the proof if it is the earliest of its log, and limits the log; the caller saves it."""
    if row.fork_seq is not None and row.fork_seq <= proof.seq:
        return False
    _store(transaction, row, FORK, proof.seq, proof.first, proof.second)
    row.fork_seq = proof.seq
    limit_log(transaction.db, row)
    return True


def store_wrong_size(
    transaction: "Transaction",
    row: LogRow,
    seq: int,
    encoded: bytes,
    payload: bytes,
    *,
    in_file: bool,
) -> bool:
    """Keeps a payload that invalidates its log from `seq` on, and limits the log.

    Instead of what did so from a later entry on; False if the log was invalid before `seq`.
    """
    if row.invalid_seq is not None and row.invalid_seq <= seq:
        return False
    db = transaction.db
    old = db.execute("SELECT second FROM proofs WHERE log = ? AND kind = ?", (row.id, SIZE_FILE))
    for (id_,) in list(old):
        detach_file(db, id_)
    db.execute("DELETE FROM proofs WHERE log = ? AND kind IN (?, ?)", (row.id, SIZE, SIZE_FILE))
    _store(transaction, row, SIZE_FILE if in_file else SIZE, seq, encoded, payload)
    row.invalid_seq = seq
    limit_log(db, row)
    return True


def _store(
    transaction: "Transaction", row: LogRow, kind: str, seq: int, first: bytes, second: bytes
) -> None:
    blob = pack_u64(seq)
    transaction.db.execute(
        "INSERT INTO proofs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (log, kind) DO UPDATE SET"
        " seq = excluded.seq, first = excluded.first, second = excluded.second, tag = excluded.tag",
        (row.id, kind, blob, first, second, row_tag(row.id, kind, blob, first, second)),
    )
    row.changed = transaction.take_ingest()


def load_fork(db: apsw.Connection, row: LogRow) -> ForkProof | None:
    """The log's fork proof, None if it is not known to be forked."""
    found = db.execute(
        "SELECT seq, first, second FROM proofs WHERE log = ? AND kind = ?", (row.id, FORK)
    ).fetchone()
    return None if found is None else ForkProof(row.key, unpack_u64(found[0]), *found[1:])


def load_forks(db: apsw.Connection, after: LogKey | None, limit: int) -> list[ForkProof]:
    """The next fork proofs in the order of author and log id."""
    low = (b"", b"") if after is None else (after.author, pack_u64(after.log_id))
    rows = db.execute(
        "SELECT author, log_id, proofs.seq, first, second FROM logs JOIN proofs"
        " ON proofs.log = logs.id AND kind = ? WHERE (author, log_id) > (?, ?)"
        " AND fork_seq IS NOT NULL ORDER BY author, log_id LIMIT ?",
        (FORK, *low, limit),
    )
    found = [
        ForkProof(LogKey(author, unpack_u64(log_id)), unpack_u64(seq), first, second)
        for author, log_id, seq, first, second in rows
    ]
    check_ascending([proof.key for proof in found], after)
    return found
