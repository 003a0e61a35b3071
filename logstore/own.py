"""Appending to one's own logs: tail, signature and insert in one transaction of one writer.

The tail is read from the entries themselves each time, never from what this process remembers or
from a cached column, so that two processes, or a process after a failed write, cannot sign a number
twice. The entries reach the caller only after the commit has been synced.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from wire import U64_MAX, LogKey, yamf_hash

from .errors import LogClosed, LogMoved, StoreDamaged
from .files import Staged, attach_file
from .records import Appended
from .rows import LogRow, create_log, entry_tag, insert_entries, load_tails, pack_u64, save_logs
from .runs import add_run
from .schema import PAYLOAD_FILE, PAYLOAD_INLINE

if TYPE_CHECKING:
    import apsw
    from nacl.signing import SigningKey

    from .database import Transaction

_READ_LOGS: Final = 100
OWN_SOURCE = "own"
"""The `newest_from` of entries that were signed here."""


@dataclass(slots=True)
class _Draft:
    """An own log that is appended to, and what it is in the end."""

    row: LogRow
    seq: int
    back: bytes | None
    encoded: bytes | None
    """The newest entry, until it is known to be sound."""
    hashes: dict[int, bytes] = field(default_factory=dict)
    """Of what was appended, for links to it."""

    def check(self) -> None:
        """Raises StoreDamaged where the newest entry is not what the log's row says, or itself."""
        if self.encoded is None:
            is_sound = self.seq == self.row.newest
        else:
            is_sound = self.seq == self.row.newest and yamf_hash(self.encoded) == self.back
        if not is_sound:
            where = f"{self.row.key}/{self.seq}"
            raise StoreDamaged("the newest own entry is damaged", where, "run verify")
        self.encoded = None
        if self.back is not None:
            self.hashes[self.seq] = self.back


class Drafts:
    """Entries of own logs that are signed in one transaction, and inserted together: `write`.

    Of many logs an entry each is what gateways append. A statement for each of them to read the
    log, one for its tail, one to insert and one to save it cost as much as its signature.
    """

    def __init__(self, transaction: "Transaction", signing_key: "SigningKey") -> None:
        self._transaction = transaction
        # It needs libsodium, which nobody loads who only reads.
        from wire import Signer

        self._signer = Signer(signing_key)
        self._author = bytes(signing_key.verify_key)
        self._drafts: dict[int, _Draft] = {}
        self._rows: list[tuple[apsw.SQLiteValue, ...]] = []

    def read(self, log_ids: Sequence[int]) -> None:
        """Reads logs that are to be appended to; those that there are not are made then."""
        for start in range(0, len(log_ids), _READ_LOGS):
            some = log_ids[start : start + _READ_LOGS]
            for row, seq, hash_, encoded in load_tails(self._transaction.db, self._author, some):
                self._drafts[row.key.log_id] = _Draft(row, seq, hash_, encoded)

    def append(
        self,
        log_id: int,
        payloads: Sequence[Staged],
        *,
        end_of_log: bool,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """Signs one entry for each payload, the last one ending the log if asked to.

        Raises LogClosed if the log cannot go on, LogMoved if the first is not to be `expected_seq`,
        StoreDamaged.
        """
        key = LogKey(self._author, log_id)
        db, draft = self._transaction.db, self._drafts.get(log_id)
        if draft is None:
            draft = self._drafts[log_id] = _Draft(create_log(db, key), 0, None, None)
        row = draft.row
        _check_open(row, len(payloads))
        draft.check()
        first = draft.seq + 1
        if expected_seq is not None and expected_seq != first:
            raise LogMoved(
                f"the log holds {draft.seq} entries, and {expected_seq - 1} were expected",
                str(key),
                "read what was appended meanwhile, then append again",
            )
        signed = self._signer.sign_run(
            log_id,
            first,
            draft.back,
            payloads,
            partial(_link, db, row, draft.hashes),
            is_end=end_of_log,
        )
        ingest = self._transaction.take_ingest(len(payloads))
        now = self._transaction.now_us
        appended = []
        encoded_bytes = 0
        for index, (payload, (encoded, hash_)) in enumerate(zip(payloads, signed, strict=True)):
            seq = first + index
            draft.hashes[seq] = hash_
            state, column = PAYLOAD_INLINE, payload.inline
            if column is None:
                state, column = PAYLOAD_FILE, payload.id
                attach_file(db, key, seq, payload)
            number = ingest + index
            tag = entry_tag(number, row.id, now, state)
            self._rows.append(
                (number, row.id, pack_u64(seq), now, state, tag, hash_, encoded, column)
            )
            appended.append(Appended(key, seq, hash_))
            encoded_bytes += len(encoded)
        draft.seq, draft.back = appended[-1].seq, appended[-1].hash
        _count(row, payloads, encoded_bytes)
        row.changed = ingest + len(payloads) - 1
        add_run(db, row, first, draft.seq)
        row.newest_at, row.newest_from = now, OWN_SOURCE
        if end_of_log:
            row.end_seq = draft.seq
        return appended

    def write(self) -> None:
        """Inserts what was signed. Nothing may be appended behind it."""
        db = self._transaction.db
        insert_entries(db, self._rows)
        save_logs(db, [draft.row for draft in self._drafts.values()])
        self._transaction.count_authored(len(self._rows))


def append_entries(
    transaction: "Transaction",
    signing_key: "SigningKey",
    log_id: int,
    payloads: Sequence[Staged],
    *,
    end_of_log: bool,
    expected_seq: int | None = None,
) -> list[Appended]:
    """Signs and inserts entries of one log. Raises as `Drafts.append` does."""
    drafts = Drafts(transaction, signing_key)
    drafts.read((log_id,))
    appended = drafts.append(log_id, payloads, end_of_log=end_of_log, expected_seq=expected_seq)
    drafts.write()
    return appended


def _count(row: LogRow, payloads: Sequence[Staged], encoded_bytes: int) -> None:
    payload_bytes = sum(payload.payload_bytes for payload in payloads)
    row.encoded_bytes += encoded_bytes
    row.payload_bytes += payload_bytes
    row.bytes += encoded_bytes + payload_bytes
    row.entries += len(payloads)
    row.payloads += len(payloads)


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
