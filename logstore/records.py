"""The values that go in and out of a store.

Numbers called `seq`, `log_id` and `payload_bytes` take all of u64. Hashes are 66-byte yamf hashes.
Tuples, nearly all: each command loads them, and the class of a dataclass takes long to make.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from wire import U64_MAX, LogKey

INLINE_BYTES_MAX: Final = 65536
"""Payloads up to this size live in the entry's row, larger ones in files."""


class LogState(StrEnum):
    """What may still happen to a log (bamboo.md Verified)."""

    LIVE = "live"
    ENDED = "ended"
    FORKED = "forked"
    INVALID = "invalid"
    """A payload's hash matches and its size does not."""


class PayloadState(StrEnum):
    """How much of an entry's payload is held."""

    MISSING = "missing"
    PARTIAL = "partial"
    PRESENT = "present"
    DELETED = "deleted"


class All(Enum):
    """The type of `ALL`."""

    ALL = "all"


ALL: Final = All.ALL
"""Follow every log that anybody offers."""

Follow = LogKey | bytes | All
"""A log, an author (32 bytes) or everything."""


class Appended(NamedTuple):
    """An own entry that is on disk."""

    key: LogKey
    seq: int
    hash: bytes


class PayloadFile(NamedTuple):
    """A whole, verified and synced payload that waits for its entry to be stored."""

    id: bytes
    key: LogKey
    seq: int
    payload_bytes: int
    payload_hash: bytes


class NewEntry(NamedTuple):
    """A foreign entry whose signature has been checked by the caller."""

    seq: int
    encoded: bytes
    hash: bytes
    """The yamf hash of `encoded`."""
    payload: bytes | PayloadFile | None = None
    due_bytes: int = 0
    """The size of its payload if that is on its way; only quotas go by it (quotas.py)."""


class ForkProof(NamedTuple):
    """Two valid encodings of one entry (bamboo.md Fork); `first` is the one that was held."""

    key: LogKey
    seq: int
    first: bytes
    second: bytes


class Contested(NamedTuple):
    """An own log of which somebody else holds an entry that contradicts what was signed here.

    What was signed here from `seq` on has not been given to anybody. `encoded`: the other entry;
    `source`: whom it came from; `confirmed`: whether the operator has let the other logs go on.
    """

    key: LogKey
    seq: int
    encoded: bytes
    source: str
    confirmed: bool

    @property
    def what(self) -> str:
        """What has happened, in words."""
        return (
            f"entry {self.seq} of log {self.key.log_id} was signed elsewhere too, and is another"
            f" one there (from {self.source or 'a peer'})"
        )


class PutResult(NamedTuple):
    """What became of the entries of one log that were put."""

    key: LogKey
    stored: int
    """Entries that are new."""
    known: int
    """Entries that were held already; a payload that was missing has been added."""
    fork: ForkProof | None
    """The log's fork proof. Entries at or after it are not taken in."""
    height: int
    newest: int
    rejected: "EntryRejectedInfo | None" = None
    """The first entry that breaks a rule; it and what followed it was not stored."""
    contested: bool = False
    """Of an own log: that entry contradicts what was signed here and has reached nobody."""
    grown_bytes: int = 0
    """How many bytes of the log are held that were not."""
    over_quota: "OverQuota | None" = None
    """Why there was no room for one of them, which was not stored, nor what followed it."""


class OverQuota(NamedTuple):
    """What was not taken in, for want of room (quotas.py).

    `key`: the limit that is reached, by the name that it is set by. `giver`: the id of the peer
    who brought it, b"" where that is not known.
    """

    key: str
    log: LogKey
    seq: int
    giver: bytes
    reason: str


class EntryRejectedInfo(NamedTuple):
    """Which entry was refused and why.

    `contradicts`: it does not go with entries that are held. If its signature is right that is the
    author's doing, and not that of who brought it.
    """

    seq: int
    reason: str
    contradicts: bool = False


class LogInfo(NamedTuple):
    """What is held of a log."""

    key: LogKey
    height: int
    """Entries without a gap from 1; payloads do not count."""
    newest: int
    """The largest sequence number held that may be served, 0 if there is none."""
    entries: int
    payloads: int
    """Payloads held whole."""
    missing_payloads: int
    """Payloads that are neither held whole nor deleted."""
    bytes: int
    """Bytes of all encodings and of all payloads held whole."""
    state: LogState
    end_seq: int | None
    fork_seq: int | None
    invalid_seq: int | None
    """The entry whose payload has the right hash and the wrong size."""
    newest_at: int | None
    """When the newest entry was stored, microseconds since 1970 by this node's clock."""
    newest_from: str | None
    """The `source` it came from."""
    payload_bytes_held: int
    """Bytes of the payloads that are held whole."""
    payload_bytes_total: int
    """Bytes of the payloads of all entries held, as these say: an author may claim any size."""

    @property
    def servable(self) -> int:
        """The largest sequence number that is valid by what is held, 2^64 - 1 without a limit."""
        limit = U64_MAX if self.end_seq is None else self.end_seq
        for seq in (self.fork_seq, self.invalid_seq):
            if seq is not None:
                limit = min(limit, seq - 1)
        return limit


class StoredEntry(NamedTuple):
    """An entry as it is held. A tuple: hundreds of thousands are made a second."""

    key: LogKey
    seq: int
    ingest: int
    """This store's arrival number; larger once the payload arrives later or is deleted."""
    encoded: bytes
    hash: bytes
    received_at: int
    """Microseconds since 1970 by this node's clock."""
    payload_state: PayloadState
    payload: bytes | None
    """The payload if it is present and lives in the row; see `Store.open_payload`."""
    payload_bytes: int
    """The payload's size, held or not."""
    partial_bytes: int
    """Bytes of a partial payload that are held, in no way verified."""


class Arrivals(NamedTuple):
    """Entries of the change feed, and up to which place there are no others."""

    entries: list[StoredEntry]
    position: int


class Change(NamedTuple):
    """One step of the change feed."""

    ingest: int
    key: LogKey
    seq: int
    payload_state: PayloadState


@dataclass(frozen=True, slots=True)
class Dropped:
    """What `drop` deleted: payloads, and what was here of them."""

    count: int
    bytes: int
    freed: int = 0
    """Bytes that the disk has back: of payloads in files. The database keeps its pages for what
    comes next, until `Store.compact`."""


class Forgotten(NamedTuple):
    """What there was of a log that was forgotten; `bytes` as of `LogInfo`."""

    key: LogKey
    entries: int
    payloads: int
    bytes: int


class Compacted(NamedTuple):
    """What `compact` has come to: what the store takes on the disk, in allocated bytes."""

    bytes_before: int
    bytes_after: int
    bytes_left: int
    """What it would give back as well where no node serves the store and there is room."""


class CompactProgress(NamedTuple):
    """How far `compact` is: what has been given back, of what is to be, or what is written anew."""

    bytes_done: int
    bytes_total: int
    is_anew: bool
    """Whether all that is in use is written once more, in one go: nothing is told meanwhile."""


class Fault(NamedTuple):
    """Something that `verify` found to be wrong."""

    where: str
    what: str
    key: LogKey | None = None
    seq: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class LogVerdict(NamedTuple):
    """The outcome of `verify` for one log."""

    info: LogInfo
    entries: int
    """Entries rechecked."""
    payloads: int
    """Payloads rechecked."""
    faults: int


class Arrived(NamedTuple):
    """Payloads that came behind a place in the change feed, as far as `up_to`."""

    runs: tuple[tuple[int, int], ...]
    """Entries, both ends included; between two arrivals in a run no payload is missing."""
    up_to: int
    complete: bool = True
    """Whether that is all there is until now."""


class Statistics(NamedTuple):
    """Sizes of the whole store."""

    logs: int
    entries: int
    payloads: int
    missing_payloads: int
    bytes: int
    partial_payloads: int
    partial_bytes: int
    forked_logs: int
    position: int
    database_bytes: int
    wal_bytes: int


class BackedUp(NamedTuple):
    """What a backup took."""

    incremental: bool
    """Whether an earlier one was brought up to date."""
    bytes_written: int
    """To its directory, as far as the process can know: database, journal, payloads and keys."""
    entries: int
    """Entries that are new in it, or have changed."""


class BundleExported(NamedTuple):
    """What a bundle has, from its first byte on, whoever wrote which part of it."""

    logs: int
    entries: int
    payloads: int
    bytes: int
    """Of the bundle."""
    resumed_at: int | None
    """How many bytes of it were there before; None if it was begun."""
    damaged: int
    """Entries and payloads that were left out, as they could not be read."""


class BundleImported(NamedTuple):
    """What came of a bundle."""

    entries: int
    """Entries that were stored."""
    payloads: int
    """Payloads that were stored, also of entries that were held already."""
    already_held: int
    """Entries that were held before."""
    bad: int
    """Records that were named: skipped, or the last one that could be read."""
    cut_short: bool
    """Whether it ended before its end, and nothing was wrong up to there."""
    forks: tuple[ForkProof, ...]
    """Of logs that were not known to be forked, or not so early."""
