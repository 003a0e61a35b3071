"""Appending to one's own logs: tail, signature and insert in one transaction of one writer.

The tail is read from the entries themselves each time, never from what this process remembers or
from a cached column, so that two processes, or a process after a failed write, cannot sign a number
twice. The entries reach the caller only after the commit has been synced.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nacl.signing import SigningKey

from wire import U64_MAX, LogKey, lipmaa, sign_entry, yamf_hash

from .errors import LogClosed, LogMoved, StoreDamaged
from .files import Staged, attach_file
from .records import Appended
from .rows import LogRow, create_log, entry_tag, load_log, pack_u64, save_log, unpack_u64
from .runs import add_run
from .schema import PAYLOAD_FILE, PAYLOAD_INLINE

if TYPE_CHECKING:
    import apsw

    from .database import Transaction

OWN_SOURCE = "own"
"""The `newest_from` of entries that were signed here."""


def append_entries(
    transaction: "Transaction",
    signing_key: SigningKey,
    log_id: int,
    payloads: Sequence[Staged],
    *,
    end_of_log: bool,
    expected_seq: int | None = None,
) -> list[Appended]:
    """Signs and inserts one entry for each payload, the last one ending the log if asked to.

    Raises LogClosed if the log cannot go on, LogMoved if the first is not to be `expected_seq`.
    """
    key = LogKey(bytes(signing_key.verify_key), log_id)
    db = transaction.db
    row = load_log(db, key) or create_log(db, key)
    _check_open(row, len(payloads))
    seq, back = _tail(db, row)
    if expected_seq is not None and expected_seq != seq + 1:
        raise LogMoved(
            f"the log holds {seq} entries, and {expected_seq - 1} were expected",
            str(key),
            "read what was appended meanwhile, then append again",
        )
    hashes = {seq: back} if back is not None else {}
    ingest = transaction.take_ingest(len(payloads))
    now = transaction.now_us
    rows = []
    appended = []
    last = len(payloads) - 1
    for index, payload in enumerate(payloads):
        seq += 1
        target = lipmaa(seq)
        encoded = sign_entry(
            signing_key,
            log_id=log_id,
            seq=seq,
            is_end=end_of_log and index == last,
            lipmaalink=_link(db, row, hashes, target) if target and target != seq - 1 else None,
            backlink=back,
            payload_bytes=payload.payload_bytes,
            payload_hash=payload.payload_hash,
        )
        hashes[seq] = back = yamf_hash(encoded)
        state, column = PAYLOAD_INLINE, payload.inline
        if column is None:
            state, column = PAYLOAD_FILE, payload.id
            attach_file(db, column, key, seq, payload.payload_hash, payload.payload_bytes)
        number = ingest + index
        tag = entry_tag(number, row.id, now, state)
        rows.append((number, row.id, pack_u64(seq), now, state, tag, back, encoded, column))
        appended.append(Appended(key, seq, back))
        row.bytes += len(encoded) + payload.payload_bytes
    db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    row.entries += len(rows)
    row.payloads += len(rows)
    row.changed = ingest + last
    add_run(db, row, appended[0].seq, seq)
    row.newest_at, row.newest_from = now, OWN_SOURCE
    if end_of_log:
        row.end_seq = seq
    save_log(db, row)
    transaction.count_authored(len(rows))
    return appended


def _check_open(row: LogRow, count: int) -> None:
    where = str(row.key)
    if row.fork_seq is not None:
        raise LogClosed(f"the log is forked at entry {row.fork_seq}", where, "use another log id")
    if row.invalid_seq is not None:
        raise LogClosed(
            f"the log is invalid from entry {row.invalid_seq} on", where, "use another log id"
        )
    if row.end_seq is not None:
        raise LogClosed(f"the log ended with entry {row.end_seq}", where, "use another log id")
    if row.newest + count > U64_MAX:
        raise LogClosed("the log has no numbers left", where, "use another log id")


def _tail(db: "apsw.Connection", row: LogRow) -> tuple[int, bytes | None]:
    found = db.execute(
        "SELECT seq, hash, encoded FROM entries WHERE log = ? ORDER BY seq DESC LIMIT 1", (row.id,)
    ).fetchone()
    seq, hash_ = (0, None) if found is None else (unpack_u64(found[0]), found[1])
    if seq != row.newest or (found is not None and yamf_hash(found[2]) != hash_):
        raise StoreDamaged("the newest own entry is damaged", f"{row.key}/{seq}", "run verify")
    return seq, hash_


def _link(db: "apsw.Connection", row: LogRow, hashes: dict[int, bytes], target: int) -> bytes:
    hash_ = hashes.get(target)
    if hash_ is not None:
        return hash_
    found = db.execute(
        "SELECT hash, encoded FROM entries WHERE log = ? AND seq = ?", (row.id, pack_u64(target))
    ).fetchone()
    # What the next entry links to lies on every path from the tail to entry 1, so it is held.
    if found is None or yamf_hash(found[1]) != found[0]:
        raise StoreDamaged("an own entry is damaged", f"{row.key}/{target}", "run verify")
    link: bytes = found[0]
    return link
