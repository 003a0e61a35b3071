"""How much of the disk other people's logs may take (doors.md 4).

Theory. An author's id costs nothing to make, a size costs nothing to claim, and whoever follows
everything is offered all of it. So four sums are bounded:

    author-bytes   held of one author who is not followed by name
    peer-bytes     brought by one peer, of authors who are not followed by name (brought.py)
    store-bytes    held in all
    free-bytes     the other way round: what others use on this disk, we do not

What is *held* is the bytes of entries and payloads (`logs.bytes`) and the **declared** sizes of
payloads of which a part is here, from the moment when their file is made: otherwise a peer could
begin a thousand of them while there is room for one. A payload is judged once, before its first
byte, and whoever may begin may end. What a sum does not let in is not taken in; what is held stays,
however much it is.

An entry may be kept without its payload, and the log goes on behind it. But no log that nobody has
named begins like that: its first entry is judged together with the payload that is on its way. Two
hundred bytes of an author who cost nothing would make a log that is looked up in every session,
offered to every peer, and asked of each of them again since it lacks a payload: all of it for one
that there is no room for.

It is decided in the transaction that stores, so that two connections, or two processes, cannot both
take the last room. To add up a store's logs each time would cost more than to store an entry, so
sums are kept between transactions. They are right as long as the store's ingest number is the one
that the last of ours left: every change of `logs.bytes` takes a number, whoever makes it. Files
that are not whole take none; there are few, and they are counted anew each time.

Own logs, logs that are followed by name or whose entries are fetched, and what people import are
bounded by the disk alone. Own entries are not judged at all: they may use the last of it.
"""

from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from wire import LogKey

from .brought import brought_before, note_brought
from .errors import StoreOverQuota
from .files import Staged
from .records import NewEntry, OverQuota, PayloadFile
from .rows import load_log, pack_u64
from .schema import FILE_PARTIAL, FILE_WHOLE
from .system import System

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .database import Transaction
    from .payloads import GivenPayload, ReadyEntry

GIB: Final = 1 << 30
FREE_BYTES_MAX: Final = GIB
"""What is left free on a disk unless something else is said..."""
FREE_PART: Final = 20
"""... or this part of the disk, where that is less."""


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Bytes. `free_bytes`: None for 1 GiB or 5 % of the disk, the smaller; else None: no limit."""

    author_bytes: int | None = GIB
    peer_bytes: int | None = 10 * GIB
    store_bytes: int | None = None
    free_bytes: int | None = None


_Claim = tuple[bytes, bytes, bytes, bytes]
"""Author, log id, sequence number and payload hash, as a row of `files` has them."""


_PART: Final = Struct(">32s8s8s66sQQ")
_UNFINISHED: Final = (
    "SELECT count(*), group_concat(hex(author) || hex(log_id) || hex(seq) || hex(payload_hash)"
    " || hex(payload_bytes) || printf('%016X', synced), '') FROM files"
    " WHERE state <> 3 AND state IN (?, ?)"
)
"""In one row: for each one the interpreter's lock changes hands, and each payload asks this."""


class _Parts(NamedTuple):
    """Payloads that are not an entry's yet."""

    declared: dict[bytes, int]
    """The sizes that they are to have, by their authors."""
    claims: frozenset[_Claim]
    unwritten: int
    """What is still to be written of them."""


class _Room(NamedTuple):
    """What one limit leaves; `key` is its name."""

    bytes: int
    key: str
    reason: str


class Quotas:
    """The limits of one store, and the sums that it was seen to have. With the write lock only."""

    def __init__(
        self, limits: QuotaLimits, author: bytes, system: System, folder: Path | None
    ) -> None:
        """`author`: whose store it is. `folder`: None for a store in memory, without a disk."""
        self.limits = limits
        self.author = author
        self._system = system
        self._folder = folder
        self.sums: dict[bytes | None, int] = {}
        """Of `logs.bytes`: of an author, and of all (None)..."""
        self.ingest = -1
        """... when this was the store's ingest number."""
        self.declared: dict[_Claim, tuple[bytes, int]] = {}
        """Who began payloads that are not whole, and how large they are to be. Not kept: after a
        restart such a payload counts for its author and the store, and no more for its giver."""

    def begin(self, transaction: "Transaction", giver: bytes) -> "Ledger":
        """The books of a transaction in which `giver` (a peer id, b"": unknown) brings something.

        `settle` is to be called once it has been committed.
        """
        if transaction.ingest != self.ingest:
            self.sums.clear()
        self.ingest = -1  # until it is committed nothing is certain
        return Ledger(self, transaction, giver)

    def settle(self, ledger: "Ledger") -> None:
        """A transaction was committed."""
        self.ingest = ledger.ingest

    def free_bytes(self) -> int | None:
        """What may still be written to the disk; None where that cannot be said."""
        if self._folder is None:
            return None
        disk = self._system.disk_bytes(self._folder)
        if not disk:
            return None  # a file system that says nothing of its size
        kept = self.limits.free_bytes
        if kept is None:
            kept = min(FREE_BYTES_MAX, disk // FREE_PART)
        return self._system.free_bytes(self._folder) - kept


@dataclass(slots=True)
class Ledger:
    """What one transaction may take in, and has."""

    quotas: Quotas
    transaction: "Transaction"
    giver: bytes
    _parts: _Parts | None = None
    _free: int | None = None
    _named: dict[LogKey, bool] = field(default_factory=dict)

    @property
    def ingest(self) -> int:
        """The store's ingest number by now."""
        return self.transaction.ingest

    # What is taken in

    def admit(
        self, key: LogKey, entries: "Sequence[NewEntry | ReadyEntry]"
    ) -> "tuple[Sequence[NewEntry | ReadyEntry], OverQuota | None]":
        """Those that there is room for, up to the first for which there is none, and why."""
        room = self._least(self._rooms(key))
        if room is None:
            return entries, None
        begins = self._beginning(key, entries)
        if begins + sum(map(_bytes_of, entries)) <= room.bytes:
            return entries, None
        # Near the limit it counts which of them are held already.
        left = room.bytes - begins
        ordered = sorted(entries, key=lambda entry: entry.seq)
        for index, entry in enumerate(ordered):
            left -= self._growth(key, entry)
            if left < 0:
                return ordered[:index], self._over(key, entry.seq, room)
        return entries, None

    def check(self, key: LogKey, seq: int, payload_bytes: int) -> None:
        """Raises StoreOverQuota if there is no room for a payload of this size."""
        room = self._least(self._rooms(key))
        if room is not None and payload_bytes > room.bytes:
            raise StoreOverQuota(self._over(key, seq, room))

    def declare(self, payload: PayloadFile) -> None:
        """A payload's file is about to be made. Raises StoreOverQuota."""
        self.check(payload.key, payload.seq, payload.payload_bytes)
        key = payload.key
        claim = (
            key.author,
            pack_u64(key.log_id),
            pack_u64(payload.seq),
            payload.payload_hash,
        )
        self.quotas.declared[claim] = (self.giver, payload.payload_bytes)

    def grew(self, key: LogKey, count: int, payloads: "Iterable[GivenPayload | None]") -> None:
        """So many bytes of a log are held that were not, these payloads among them."""
        sums = self.quotas.sums
        for of in (key.author, None):
            if of in sums:
                sums[of] += count
        if count > 0 and not self._is_named(key):
            note_brought(self.transaction.db, self.giver, count)
        if any(payload is not None and not isinstance(payload, bytes) for payload in payloads):
            # What has a file was under way until now.
            self._free = self._parts = None
        elif self._free is not None:
            # Not asked of the disk again: a transaction of forty short logs did so for each.
            self._free -= max(count, 0)

    # What there is room for

    def _rooms(self, key: LogKey) -> list[_Room]:
        limits = self.quotas.limits
        rooms: list[_Room] = []
        free = self._free_bytes()
        if free is not None:
            rooms.append(_Room(free, "free-bytes", "what is left of the disk is to stay free"))
        if limits.store_bytes is not None:
            held = self._sum(None) + sum(self._unfinished().declared.values())
            reason = f"{limits.store_bytes:,} bytes may be held in all"
            rooms.append(_Room(limits.store_bytes - held, "store-bytes", reason))
        if self._is_named(key):
            return rooms
        if limits.author_bytes is not None:
            held = self._sum(key.author) + self._unfinished().declared.get(key.author, 0)
            reason = (
                f"{limits.author_bytes:,} bytes may be held of an author who is not followed by"
                " name"
            )
            rooms.append(_Room(limits.author_bytes - held, "author-bytes", reason))
        if limits.peer_bytes is not None:
            held = brought_before(self.transaction.db, self.giver) + self._under_way()
            reason = (
                f"{limits.peer_bytes:,} bytes may be brought by one peer, of authors who are not"
                " followed by name"
            )
            rooms.append(_Room(limits.peer_bytes - held, "peer-bytes", reason))
        return rooms

    @staticmethod
    def _least(rooms: list[_Room]) -> _Room | None:
        return min(rooms, key=lambda room: room.bytes, default=None)

    def _over(self, key: LogKey, seq: int, room: _Room) -> OverQuota:
        return OverQuota(room.key, key, seq, self.giver, room.reason)

    def _beginning(self, key: LogKey, entries: "Sequence[NewEntry | ReadyEntry]") -> int:
        """The size of the payload that a log would begin with, if that is on its way."""
        first = min(entries, key=_seq_of, default=None)
        if first is None or not first.due_bytes or self._is_named(key):
            return 0
        if load_log(self.transaction.db, key) is not None:
            return 0
        # Else its file was made already, and counts since then.
        place = (key.author, pack_u64(key.log_id), pack_u64(first.seq))
        is_declared = any(claim[:3] == place for claim in self._unfinished().claims)
        return 0 if is_declared else first.due_bytes

    def _growth(self, key: LogKey, entry: "NewEntry | ReadyEntry") -> int:
        """What storing an entry, or a payload that it lacked, adds."""
        row = load_log(self.transaction.db, key)
        held = None
        if row is not None and entry.seq <= row.newest:
            held = self.transaction.db.execute(
                "SELECT payload_state FROM entries WHERE log = ? AND seq = ?",
                (row.id, pack_u64(entry.seq)),
            ).get
        if held is None:
            return _bytes_of(entry)
        return 0 if held else _payload_bytes_of(entry)

    def _is_named(self, key: LogKey) -> bool:
        """Whether somebody has asked for just this log, or all of just this author."""
        found = self._named.get(key)
        if found is None:
            log_id = pack_u64(key.log_id)
            found = self._named[key] = key.author == self.quotas.author or bool(
                self.transaction.db.execute(
                    "SELECT EXISTS (SELECT 1 FROM follows WHERE author = ? AND log_id IN (?, ?))"
                    " OR EXISTS (SELECT 1 FROM wants WHERE author = ? AND log_id = ?)",
                    (key.author, log_id, b"", key.author, log_id),
                ).get
            )
        return found

    def _sum(self, author: bytes | None) -> int:
        sums = self.quotas.sums
        found = sums.get(author)
        if found is None:
            db = self.transaction.db
            if author is None:
                found = db.execute("SELECT total(bytes) FROM logs").get
            else:
                found = db.execute("SELECT total(bytes) FROM logs WHERE author = ?", (author,)).get
            found = sums[author] = int(found)
        return found

    def _free_bytes(self) -> int | None:
        if self._free is None:
            free = self.quotas.free_bytes()
            if free is None:
                return None
            self._free = free - self._unfinished().unwritten
        return self._free

    def _under_way(self) -> int:
        """What the giver has begun, and others may end, in bytes."""
        declared, claims = self.quotas.declared, self._unfinished().claims
        for claim in [claim for claim in declared if claim not in claims]:
            del declared[claim]  # it is whole, given up or dropped, by whomever
        return sum(size for giver, size in declared.values() if giver == self.giver)

    def _unfinished(self) -> _Parts:
        if self._parts is None:
            declared: dict[bytes, int] = {}
            claims: list[_Claim] = []
            unwritten = 0
            count, rows = self.transaction.db.execute(_UNFINISHED, (FILE_PARTIAL, FILE_WHOLE)).get
            parts = bytes.fromhex(rows or "")
            if len(parts) != count * _PART.size:
                raise ValueError("a file under way without all that tells what it is for")
            for author, log_id, seq, payload_hash, size, synced in _PART.iter_unpack(parts):
                declared[author] = declared.get(author, 0) + size
                claims.append((author, log_id, seq, payload_hash))
                unwritten += size - synced
            self._parts = _Parts(declared, frozenset(claims), unwritten)
        return self._parts


_seq_of = attrgetter("seq")


def _bytes_of(entry: "NewEntry | ReadyEntry") -> int:
    return len(entry.encoded) + _payload_bytes_of(entry)


def _payload_bytes_of(entry: "NewEntry | ReadyEntry") -> int:
    """A payload that comes in a file of its own was judged when the file was made."""
    payload = entry.payload
    if isinstance(payload, bytes):
        return len(payload)
    return payload.payload_bytes if isinstance(payload, Staged) else 0
