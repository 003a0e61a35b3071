"""A bundle in a file: begun, or gone on with behind the last whole record (bundle_export.py).

Theory. A stick is pulled, a disk is full, a process ends: the same export again goes on where FILE
stops. The bundle says nothing of which export it is of, so FILE is read from its beginning (as it
has to be for the hash at its end) and held against what this export would have written. What it
has of each log has to begin where this export begins and end where the log is now or was before;
each entry has to be held here, each payload has to have its hash. So what a power cut has left in
FILE is found as well: behind the last record that is right it is cut off.

What is held may have grown meanwhile, and FILE lack some of it. That is in order if all that FILE
lacks has come later than all that it has, by the ingest sequence: then it is what the same export
would have written at the time. If it is not, FILE is another export's (of other logs, another
`have`, without payloads), and is left as it is. Of a log with gaps in which an entry has come
meanwhile what was begun is written anew, since what follows may lead to that entry.

A bundle that has its end is never written to: if all is in it there is nothing to do, and if there
is more by now, that is refused, so that nobody carries an old bundle for a new one.

To keep beside FILE what it is of was not taken: a second file is lost, or copied without the first.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from wire import EntryError, LogKey, PayloadHasher, decode_entry, signature_is_valid

from .bundle_export import (
    Begun,
    BundleWriter,
    Place,
    Plan,
    PlannedLog,
    Report,
    Sums,
    brings_payload,
    note_export,
    read_page,
    read_piece,
)
from .bundle_records import (
    END,
    ENTRY,
    HEADER,
    LOG,
    PROOF,
    BundleDecoder,
    BundleError,
    LogRange,
    Record,
    decode_log,
)
from .errors import (
    BundleRefused,
    PayloadUnavailable,
    StoreDamaged,
    StoreFailed,
    StoreLocked,
    translated,
)
from .records import BundleExported, PayloadState
from .usual import PAYLOAD_HASH

if TYPE_CHECKING:
    from .bundle_export import Writable
    from .records import StoredEntry
    from .store import Store
    from .view import StoreView

_READ_BYTES: Final = 1 << 18
_WRITE_BYTES: Final = 1 << 20
_ANOTHER: Final = "it is not of this export, of which nothing was written"
_REMEDY: Final = "name another file, or remove it"


def export_to_stream(store: "Store", plan: Plan, out: "Writable", report: Report) -> BundleExported:
    """Writes all of a bundle."""
    note_export(store, plan)
    writer = BundleWriter(store, plan, report, Sums())
    return writer.run(out, Place(), hasher=blake2b(), resumed_at=None)


def export_to_file(store: "Store", plan: Plan, path: Path, report: Report) -> BundleExported:
    """Begins a bundle, or goes on with it; on disk when this returns."""
    with translated(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as pipe:
                return export_to_stream(store, plan, pipe, report)
        with _opened(path) as file:
            found = _resumed(store, plan, file, path)
            if found.is_complete:
                return BundleExported(*found.sums, found.offset, found.offset, 0)
            file.seek(found.offset)
            file.truncate()
            note_export(store, plan)
            writer = BundleWriter(store, plan, report, found.sums)
            done = writer.run(
                file, found.place, hasher=found.hasher, resumed_at=found.offset or None
            )
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(path)
        return done


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, for this process alone. Raises StoreLocked, OSError."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BundleRefused("it is no file", path, "name another")
    with os.fdopen(number, "r+b", buffering=_WRITE_BYTES) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked("another export is writing there", path, "wait for it") from None
        yield file


def _sync_folder(path: Path) -> None:
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Point(NamedTuple):
    """A place behind a record of the file, where it may be gone on with."""

    offset: int
    hasher: blake2b
    """Was fed with all that is before it."""
    place: Place
    sums: Sums
    is_complete: bool = False


def _resumed(store: "StoreView", plan: Plan, file: BinaryIO, path: Path) -> _Point:
    """Where to go on. Raises BundleRefused, and reads the file no further than it is right."""
    decoder = BundleDecoder()
    comparison = _Comparison(store, plan, path)
    try:
        while data := file.read(_READ_BYTES):
            decoder.feed(data)
            while (record := decoder.next_record()) is not None:
                if not comparison.take(record, decoder):
                    return comparison.result()
            if decoder.offset and not comparison.good.offset:
                comparison.begin()
    except BundleError as error:
        if not decoder.offset or decoder.is_complete:
            what = f"something else is there (offset {error.offset}: {error})"
            raise BundleRefused(what, path, _REMEDY) from None
        if not comparison.good.offset:
            comparison.begin()
    return comparison.result()


class _Comparison:
    """What a file has, against what an export writes."""

    def __init__(self, store: "StoreView", plan: Plan, path: Path) -> None:
        self._store = store
        self._plan = plan
        self._path = path
        self._numbers = {each.meant.key: number for number, each in enumerate(plan.logs)}
        self.good = _Point(0, blake2b(), Place(), Sums())
        """Behind the last record that is right."""
        self._before_log = self.good
        self._behind_entry = self.good
        self._log: PlannedLog | None = None
        self._foreign: LogRange | None = None
        """A log of another export, if what follows shows that it is no damage."""
        self._number = -1
        self._last = 0
        self._walk: Iterator[StoredEntry] = iter(())
        self._stored: StoredEntry | None = None
        """The last entry that the file has."""
        self._came = 0
        self._pieces = 0
        self._hasher = PayloadHasher()
        self._newest_in = 0
        """What the file has came up to this place of the ingest sequence..."""
        self._oldest_out: int | None = None
        """... and what it lacks, from this one on."""
        self._lacks_payload = False
        self._lacks_entry = False
        """Of the log that is under way."""

    def begin(self) -> None:
        """The header is there."""
        self.good = _Point(len(HEADER), blake2b(HEADER), Place(), Sums())

    def take(self, record: Record, decoder: BundleDecoder) -> bool:
        """The next record; False if it is not right, and nothing behind it counts."""
        if not self.good.offset:
            self.begin()
        if record.type == LOG:
            return self._take_log(record, decoder)
        if record.type == END:
            if self._foreign is not None:
                raise self._refused(f"log {self._foreign.key}")
            return self._take_end(record)
        if self._foreign is not None:
            return self._take_foreign(self._foreign, record)
        if self._log is None:
            return False
        if record.type == PROOF:
            return self._take_proof(record, decoder)
        if record.type == ENTRY:
            return self._take_entry(record, decoder)
        return self._take_piece(record, decoder)

    def result(self) -> _Point:
        """Where to go on. Raises BundleRefused."""
        good = self.good
        begun = good.place.begun
        if not good.is_complete and begun is not None and self._log is not None:
            is_short = self._last < self._log.meant.last
            if (self._lacks_entry and self._log.has_gaps) or (is_short and not begun.seq):
                # That it is short may be damage, as long as no entry shows that it is this log.
                good = self._before_log
            elif begun.seq:
                good = self._behind_payload(good, begun)
                self._leave_out_newer()
        self._check_age()
        return good

    def _behind_payload(self, good: _Point, begun: Begun) -> _Point:
        """Whether what there is of the payload is the store's: else it is begun anew."""
        stored = self._stored
        assert stored is not None
        if begun.payload_bytes is not None and self._has_prefix(stored, begun.payload_bytes):
            return good
        if begun.payload_bytes is None and self._pieces:
            return good
        point = self._behind_entry
        count = 0 if brings_payload(self._plan, stored) else None
        now = Begun(begun.last, stored.seq, count)
        return point._replace(place=Place(self._number, now))

    def _has_prefix(self, stored: "StoredEntry", count: int) -> bool:
        hasher = PayloadHasher()
        try:
            with self._store.open_payload(stored.key, stored.seq) as reader:
                for at in range(0, count, 1 << 16):
                    hasher.update(read_piece(reader, at)[: count - at])
        except (PayloadUnavailable, StoreDamaged, StoreFailed):
            return False
        return hasher.digest_yamf() == self._hasher.digest_yamf()

    # --- records --------------------------------------------------------------------------------

    def _take_log(self, record: Record, decoder: BundleDecoder) -> bool:
        try:
            meant = decode_log(record)
        except BundleError:
            return False
        if not self._end_log():
            return False
        number = self._numbers.get(meant.key)
        log = None if number is None else self._plan.logs[number]
        if (
            number is None
            or log is None
            or meant.first != log.meant.first
            or meant.last > log.meant.last
        ):
            self._foreign = meant
            return True
        if number <= self._number:
            return False
        self._leave_out_logs(self._number + 1, number)
        self._log, self._number, self._last = log, number, meant.last
        self._walk = self._entries(log, meant.first, meant.last)
        self._stored, self._lacks_entry = None, False
        self._before_log = self.good._replace(place=Place(number))
        logs, entries, payloads = self.good.sums
        point = self._point(
            decoder, Place(number, Begun(meant.last)), Sums(logs + 1, entries, payloads)
        )
        self._behind_entry = point
        # Behind the proof, if there is to be one.
        self.good = self._before_log if log.proof else point
        return True

    def _take_foreign(self, meant: LogRange, record: Record) -> bool:
        """What follows a log that this export does not have so: damage, unless it is signed."""
        if record.type == ENTRY and _is_signed(record.body, meant.key):
            raise self._refused(f"entries {meant.first} to {meant.last} of log {meant.key}")
        return False

    def _take_proof(self, record: Record, decoder: BundleDecoder) -> bool:
        if self._log is None or self._stored is not None or record.body != self._log.proof:
            return False
        point = self._behind_entry
        self.good = self._point(decoder, point.place, point.sums)
        return True

    def _take_entry(self, record: Record, decoder: BundleDecoder) -> bool:
        if self.good.place.begun is None or not self._end_entry():
            return False
        try:
            seq = decode_entry(record.body).seq
        except EntryError:
            return False
        for stored in self._walk:
            if stored.seq >= seq:
                break
            self._leave_out(stored.ingest)
            self._lacks_entry = True
        else:
            return self._take_foreign(self._plan.logs[self._number].meant, record)
        if stored.encoded != record.body:
            return self._take_foreign(self._plan.logs[self._number].meant, record)
        self._stored = stored
        self._came, self._pieces, self._hasher = 0, 0, PayloadHasher()
        logs, entries, payloads = self.good.sums
        place = Place(self._number, Begun(self._last, seq))
        self.good = self._point(decoder, place, Sums(logs, entries + 1, payloads))
        self._behind_entry = self.good
        return True

    def _take_piece(self, record: Record, decoder: BundleDecoder) -> bool:
        stored = self._stored
        if stored is None:
            return False
        if not self._plan.payloads:
            raise self._refused("payloads")
        self._came += len(record.body)
        self._pieces += 1
        self._hasher.update(record.body)
        logs, entries, payloads = self.good.sums
        count: int | None = self._came
        if self._came >= stored.payload_bytes:
            is_right = self._hasher.digest_yamf() == stored.encoded[PAYLOAD_HASH]
            if self._came > stored.payload_bytes or not is_right:
                self.good, self._pieces = self._behind_entry, 0
                return False
            count, payloads = None, payloads + 1
        place = Place(self._number, Begun(self._last, stored.seq, count))
        self.good = self._point(decoder, place, Sums(logs, entries, payloads))
        return True

    def _take_end(self, record: Record) -> bool:
        if not self._end_log():
            return False
        self._leave_out_logs(self._number + 1, len(self._plan.logs))
        if self._oldest_out is not None:
            what = "it is complete, and this export has something else, or more by now"
            raise BundleRefused(what, self._path, _REMEDY)
        self.good = self.good._replace(offset=record.end, is_complete=True)
        return True

    # --- what the file lacks --------------------------------------------------------------------

    def _end_log(self) -> bool:
        """The log before is over, in the file."""
        if self._log is None:
            return True
        if self.good.place.begun is None or not self._end_entry():
            return False
        for stored in self._walk:
            self._leave_out(stored.ingest)
        self._leave_out_newer()
        return True

    def _leave_out_newer(self) -> None:
        """What has come of the log since the file says how far it goes."""
        if self._log is not None and self._last < self._log.meant.last:
            self._leave_out_entry(self._log, self._last + 1)

    def _end_entry(self) -> bool:
        """The entry before is over, in the file; False if its payload is not."""
        stored = self._stored
        if stored is None:
            return True
        if self._pieces and self._came < stored.payload_bytes:
            self.good, self._pieces = self._behind_entry, 0
            return False
        state = stored.payload_state
        if brings_payload(self._plan, stored) and not self._pieces:
            self._leave_out(stored.ingest)
            self._lacks_payload = True
        elif not self._plan.payloads or (
            # Unless its payload has come or gone since, which counts as an arrival.
            state is not PayloadState.DELETED
            and (state is PayloadState.PRESENT) == bool(self._pieces)
        ):
            self._newest_in = max(self._newest_in, stored.ingest)
        return True

    def _leave_out(self, ingest: int) -> None:
        if self._oldest_out is None or ingest < self._oldest_out:
            self._oldest_out = ingest

    def _leave_out_logs(self, first: int, end: int) -> None:
        for log in self._plan.logs[first:end]:
            self._leave_out_entry(log, log.meant.first)

    def _leave_out_entry(self, log: PlannedLog, first: int) -> None:
        """The first one that there is from a number on; for all that follow it."""
        found = next(self._entries(log, first, log.meant.last), None)
        self._leave_out(0 if found is None else found.ingest)

    def _check_age(self) -> None:
        """Raises BundleRefused unless all that the file lacks is newer than what it has."""
        if self._oldest_out is None:
            return
        has_none = self._lacks_payload and not self.good.sums.payloads
        if has_none or not 0 < self._newest_in < self._oldest_out:
            raise self._refused("less than this export would have written there")

    def _entries(self, log: PlannedLog, start: int, last: int) -> Iterator["StoredEntry"]:
        for low, high in log.runs:
            first = max(low, start)
            while first <= min(high, last):
                page = read_page(self._store, log.meant.key, first, min(high, last))
                if not page:
                    return
                yield from page
                first = page[-1].seq + 1

    def _point(self, decoder: BundleDecoder, place: Place, sums: Sums) -> _Point:
        return _Point(decoder.offset, decoder.hasher(), place, sums)

    def _refused(self, has: str) -> BundleRefused:
        return BundleRefused(f"{_ANOTHER} (it has {has})", self._path, _REMEDY)


def _is_signed(encoded: bytes, key: LogKey) -> bool:
    """Whether bytes are an entry of a log, as its author has made it."""
    try:
        return decode_entry(encoded).key == key and signature_is_valid(encoded)
    except EntryError:
        return False
