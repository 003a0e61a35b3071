"""Taking in a bundle (bundle_records.py): by the checks, and the ways into the store, of a peer's.

An entry is decoded, its signature checked, and then put where what peers bring is put (foreign.py):
there its links are judged, and a fork is found and kept. So a bundle may lie about anything, and
be damaged anywhere: what is wrong is named by the offset of its record and passed over. Only where
the records themselves cannot be told apart nothing more is read.

Entries with small payloads gather until there are a few hundred, for one transaction. A large
payload goes through a sink (sink.py) behind its entry, which is stored first, so that there is
something to go on with whoever ends this, and whenever. What is here of it already, from a bundle
or a peer, is passed over, and whole it is judged by its hash as it is for a peer; if that is wrong
all of it goes, as it does there, and the next import begins it anew.

A payload that was deleted here, by `drop` or a rule, is not taken, unless it is fetched: a bundle
is another peer and no wish, unlike a dump that somebody has imported on purpose. Quotas do not go
for it, as they do not for a dump: whoever may run this may write to the store.

A bundle that ends before its end record has brought what is whole of it, and the whole one later
goes on from there: what is held is passed over.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from wire import Entry, EntryError, LogKey, decode_entry, signatures_are_valid, yamf_hash

from .bundle_records import (
    END,
    ENTRY,
    LOG,
    PAYLOAD,
    BundleDecoder,
    BundleError,
    LogRange,
    Record,
    decode_log,
    decode_proof,
)
from .completing import Completion
from .errors import NotAFork, PayloadBusy, PayloadDropped, PayloadMismatch, PayloadUnavailable
from .records import INLINE_BYTES_MAX, BundleImported, ForkProof, NewEntry, PayloadState, PutResult

if TYPE_CHECKING:
    from .sink import PayloadSink
    from .store import Store

SOURCE: Final = "bundle"
"""From whom entries came that came in a bundle."""
READ_BYTES: Final = 1 << 18
BATCH_ENTRIES, BATCH_BYTES = 256, 4 << 20

Report = Callable[[int, str], None]
"""Told of what was passed over: the offset of its record, and why."""


class Readable(Protocol):
    """Hands out what is there, b"" at the end: standard input, a file, a pipe."""

    def read1(self, size: int, /) -> bytes: ...


def import_bundle(store: "Store", stream: Readable, report: Report) -> BundleImported:
    """See `Store.import_bundle`."""
    decoder, logs, may_be_list = BundleDecoder(), 0, True
    with _Importer(store, report) as importer:
        try:
            while data := stream.read1(READ_BYTES):
                decoder.feed(data)
                while (record := decoder.next_record()) is not None:
                    importer.take(record)
                    logs += record.type == LOG
                    may_be_list &= record.type in (LOG, END)
        except BundleError as error:
            importer.name(error.offset, str(error))
            return importer.end(cut_short=False)
        if logs and may_be_list and decoder.is_complete:
            # In its form it is a bundle; nobody would carry one in which no log has anything.
            importer.name(0, "no bundle, but what `bundle have` writes, for `bundle export --have`")
        return importer.end(cut_short=not decoder.is_complete)


@dataclass(slots=True)
class _Candidate:
    """An entry, and the payload that follows it."""

    offset: int
    entry: Entry
    encoded: bytes
    hash: bytes
    payload_offset: int | None = None
    """Of its first record; None: nothing of it has come."""
    came: int = 0
    """How many bytes of it."""
    pieces: list[bytes] = field(default_factory=list)
    payload: bytes | None = None
    """A small one that is whole and right."""
    is_settled: bool = False
    """Whether nothing more of the payload is wanted: it is here, or is not to be, or is wrong."""
    is_bad: bool = False

    @property
    def is_small(self) -> bool:
        return self.entry.payload_bytes <= INLINE_BYTES_MAX


class _Importer:
    """One import."""

    def __init__(self, store: "Store", report: Report) -> None:
        self._store = store
        self._report = report
        self._log: LogRange | None = None
        self._seq = 0
        """The last entry of the log."""
        self._current: _Candidate | None = None
        """The entry before; None behind a bad one, of which the payload is passed over."""
        self._follows_entry = False
        self._sink: PayloadSink | None = None
        self._batch: list[_Candidate] = []
        self._batch_bytes = 0
        self._entries = 0
        self._payloads = 0
        self._held = 0
        self._bad = 0
        self._forks: dict[LogKey, ForkProof] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sink is not None:
            self._sink.suspend()

    def name(self, offset: int, reason: str) -> None:
        """Tells of something that is wrong."""
        self._bad += 1
        self._report(offset, reason)

    def take(self, record: Record) -> None:
        """The next record. Raises BundleError, StoreError."""
        if record.type == PAYLOAD:
            self._take_piece(record)
            return
        self._end_payload(is_last=False)
        self._current = None
        if record.type == ENTRY:
            self._follows_entry = True
            self._take_entry(record)
        elif record.type == LOG:
            self._follows_entry = False
            self._take_log(record)
        elif record.type != END:
            self._follows_entry = False
            self._take_proof(record)

    def end(self, *, cut_short: bool) -> BundleImported:
        """Stores what is left; what came of all."""
        self._end_payload(is_last=True)
        self._flush()
        forks = tuple(self._forks.values())
        return BundleImported(
            self._entries, self._payloads, self._held, self._bad, cut_short, forks
        )

    def _take_log(self, record: Record) -> None:
        meant = decode_log(record)
        if self._log is not None and meant.key <= self._log.key:
            what = f"log {meant.key} comes behind {self._log.key}: logs have to ascend"
            raise BundleError(record.offset, what)
        self._log = meant
        self._seq = 0

    # --- entries --------------------------------------------------------------------------------

    def _take_entry(self, record: Record) -> None:
        try:
            entry = decode_entry(record.body)
        except EntryError as error:
            self.name(record.offset, f"no entry: {error}")
            return
        where = f"{entry.key}/{entry.seq}"
        if self._log is None or entry.key != self._log.key:
            self.name(record.offset, f"{where}: it is not of the log that is told before it")
            return
        if entry.seq < self._seq:
            self.name(record.offset, f"{where}: it comes behind entry {self._seq}")
            return
        if entry.seq == self._seq:
            # Of two that differ the store has to see the one before the other.
            self._flush()
        self._seq = entry.seq
        hash_ = yamf_hash(record.body)
        self._current = _Candidate(record.offset, entry, record.body, hash_)
        self._batch.append(self._current)
        self._batch_bytes += len(record.body)
        if len(self._batch) > BATCH_ENTRIES or self._batch_bytes > BATCH_BYTES:
            last = self._batch.pop()
            self._flush()
            self._batch.append(last)
            self._batch_bytes = len(record.body)

    def _flush(self) -> None:
        """Stores what has gathered, or names what is wrong with it."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if not batch:
            return
        verdicts = signatures_are_valid([each.encoded for each in batch])
        left: dict[LogKey, list[_Candidate]] = {}
        for each, is_valid in zip(batch, verdicts, strict=True):
            if is_valid:
                left.setdefault(each.entry.key, []).append(each)
            else:
                self._name_entry(each, "its signature is wrong")
        while left:
            before = {key: self._before(key, group) for key, group in left.items()}
            results = self._store.put_many(
                [(key, [_new(each) for each in group]) for key, group in left.items()],
                source=SOURCE,
                undeletes=False,
            )
            groups, left = left, {}
            for result in results:
                rest = self._judge(groups[result.key], before[result.key], result)
                if rest:
                    left[result.key] = rest

    def _before(self, key: LogKey, group: list[_Candidate]) -> "_Before":
        """What is held of it, before it is put; as few bytes are read as tell."""
        held = self._store.hashes(key, [each.entry.seq for each in group])
        lacking: set[int] = set()
        for each in group:
            if each.payload is None:
                continue
            if each.entry.seq not in held or self._takes(key, each.entry.seq):
                lacking.add(each.entry.seq)
                self._forget_part(each.entry)
        return _Before(lacking, self._store.fork(key))

    def _forget_part(self, entry: Entry) -> None:
        """What began to come of a small payload that is here as a whole."""
        stored = self._store.entry(entry.key, entry.seq)
        if stored is not None and stored.payload_state is PayloadState.PARTIAL:
            with suppress(PayloadBusy):
                self._sink_for(entry).discard()

    def _takes(self, key: LogKey, seq: int) -> bool:
        """Whether an entry that is held lacks its payload, and may have it from a bundle."""
        stored = self._store.entry(key, seq)
        if stored is None or stored.payload_state is PayloadState.PRESENT:
            return False
        if stored.payload_state is PayloadState.DELETED:
            return self._store.missing_payloads(key, seq, limit=1) == [seq]
        return True

    def _judge(
        self, group: list[_Candidate], before: "_Before", result: PutResult
    ) -> list[_Candidate]:
        """Counts what was stored; what comes behind an entry that was refused is to be put again.

        What is valid no more, since the log is forked, is neither held nor bad.
        """
        self._entries += result.stored
        self._held += result.known
        if result.fork is not None:
            self._note_fork(before.fork, result.fork)
        for place, each in enumerate(group):
            seq = each.entry.seq
            if result.fork is not None and seq >= result.fork.seq:
                break
            if result.rejected is not None and seq == result.rejected.seq:
                self._name_entry(each, result.rejected.reason)
                return group[place + 1 :]
            self._payloads += seq in before.lacking
        return []

    def _note_fork(self, before: ForkProof | None, now: ForkProof) -> None:
        if before is None or now.seq < before.seq:
            self._forks[now.key] = now

    def _name_entry(self, each: _Candidate, reason: str) -> None:
        each.is_settled = each.is_bad = True
        self.name(each.offset, f"{each.entry.key}/{each.entry.seq}: {reason}")

    def _take_proof(self, record: Record) -> None:
        try:
            key, first, second = decode_proof(record.body)
        except EntryError as error:
            self.name(record.offset, f"no proof of a fork: {error}")
            return
        if self._log is None or key != self._log.key:
            self.name(record.offset, f"{key}: the proof is not of the log that is told before it")
            return
        self._flush()
        before = self._store.fork(key)
        try:
            self._store.record_fork(key, first, second, source=SOURCE)
        except NotAFork as error:
            self.name(record.offset, f"{key}: no proof of a fork: {error.what}")
            return
        now = self._store.fork(key)
        if now is not None:
            self._note_fork(before, now)

    # --- payloads -------------------------------------------------------------------------------

    def _take_piece(self, record: Record) -> None:
        current = self._current
        if current is None:
            if not self._follows_entry:
                self.name(record.offset, "a payload without an entry before it")
                self._follows_entry = True
            return
        if current.payload_offset is None:
            current.payload_offset = record.offset
        size = current.entry.payload_bytes
        before, current.came = current.came, current.came + len(record.body)
        if current.came > size and not current.is_bad:
            # What has come whole before stays: it was the payload.
            self._name_payload(f"more than the {size} bytes of the payload")
        if current.is_settled:
            return
        if current.is_small:
            current.pieces.append(record.body)
        elif not self._pass_on(current, before, record.body):
            return
        if current.came == size:
            self._complete(current)

    def _pass_on(self, current: _Candidate, at: int, data: bytes) -> bool:
        """Writes what is not here yet of a large payload; False if none of it is to be."""
        try:
            if self._sink is None and not self._open_sink(current):
                return False
            sink = self._sink
            assert sink is not None
            if at + len(data) > sink.offset:
                sink.write(memoryview(data)[sink.offset - at :])
        except PayloadBusy as busy:
            self._name_payload(str(busy))
        except PayloadDropped:
            # Somebody does not want it.
            self._settle(current)
        else:
            return True
        return False

    def _open_sink(self, current: _Candidate) -> bool:
        """Stores the entry, and begins to receive its payload or goes on with it."""
        self._flush()
        entry = current.entry
        held = self._store.hashes(entry.key, [entry.seq]).get(entry.seq)
        if current.is_settled or held != current.hash or not self._takes(entry.key, entry.seq):
            self._settle(current)
            return False
        self._sink = self._sink_for(entry)
        return True

    def _sink_for(self, entry: Entry) -> "PayloadSink":
        return self._store.payload_sink(
            entry.key, entry.seq, entry.payload_bytes, entry.payload_hash, source=SOURCE
        )

    def _complete(self, current: _Candidate) -> None:
        """All bytes have come."""
        entry = current.entry
        if current.is_small:
            payload = b"".join(current.pieces)
            if yamf_hash(payload) != entry.payload_hash:
                self._name_payload("the payload is not the one whose hash the entry has")
                return
            current.payload = payload
            self._batch_bytes += len(payload)
            self._settle(current)
            return
        sink = self._sink
        assert sink is not None
        try:
            sealed = sink.seal()
            (completed,) = self._store.complete_payloads(
                [Completion(entry.key, entry.seq, sealed)], undeletes=False
            )
            sink.release()
            self._payloads += completed.added
            error = completed.error
            # That it was dropped, or its log forgotten, meanwhile is nobody's fault.
            if error is not None and not isinstance(error, PayloadDropped | PayloadUnavailable):
                self._name_payload(str(error))
        except PayloadMismatch as mismatch:
            again = " (a part of it was here before, and is gone too: import it again)"
            reason = "the payload is not the one whose hash the entry has"
            self._name_payload(reason + again * mismatch.resumed)
        finally:
            self._settle(current)

    def _settle(self, current: _Candidate) -> None:
        current.is_settled = True
        current.pieces.clear()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.suspend()

    def _name_payload(self, reason: str) -> None:
        current = self._current
        assert current is not None
        assert current.payload_offset is not None
        self._settle(current)
        current.is_bad = True
        self.name(current.payload_offset, f"{current.entry.key}/{current.entry.seq}: {reason}")

    def _end_payload(self, *, is_last: bool) -> None:
        """Something else follows, or nothing: what has come of a payload is kept to go on with."""
        current = self._current
        if current is None or current.payload_offset is None or current.is_settled:
            return
        if current.pieces and is_last:
            self._keep_small(current)
        if is_last:
            self._settle(current)
        else:
            size = current.entry.payload_bytes
            self._name_payload(f"{current.came} of the {size} bytes of the payload, not taken")

    def _keep_small(self, current: _Candidate) -> None:
        """A small payload in several pieces that was cut off."""
        data = b"".join(current.pieces)
        try:
            if not self._open_sink(current):
                return
            sink = self._sink
            assert sink is not None
            sink.write(memoryview(data)[sink.offset :])
        except (PayloadBusy, PayloadDropped):
            return


@dataclass(frozen=True, slots=True)
class _Before:
    """What was held of the entries of a log."""

    lacking: set[int]
    """Those of which the payload is new."""
    fork: ForkProof | None


def _new(each: _Candidate) -> NewEntry:
    return NewEntry(each.entry.seq, each.encoded, each.hash, each.payload)
