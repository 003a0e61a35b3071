"""Writing bundles (bundle_records.py): of all that is held, or of some logs, what is not there yet.

What goes into a bundle is decided in one snapshot: which logs, up to which entry, which entries of
a log with gaps, and, as the place in the ingest sequence, which payloads: a row that changed behind
that place has a payload that came later, or has none any more. Nothing else is remembered, and the
snapshot is over at once: to hold it for as long as a stick takes to fill would keep the write-ahead
log of a busy node from being emptied. The entries are read a page at a time. What was deleted
meanwhile is left out; what came meanwhile, too: in a log with gaps an entry that came late may
lead to others that the bundle has passed already.

Nobody answers here, unlike where a session waits for what the other side holds of an own log
(peer/planner/withholding.py). So own entries count as shared from before the first byte on
(sharing.py), and an own log that is contested goes up to where it was shared before, as it does to
peers.

Payloads are read twice, as by `dump`: what has left cannot be taken back, so whether one is damaged
is found out before. What is damaged is told and left out, and the rest is brought.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from wire import U64_MAX, LogKey

from .bundle_records import (
    END,
    ENTRY,
    HEADER,
    LOG,
    PAYLOAD,
    PIECE_BYTES,
    PROOF,
    BundleDecoder,
    BundleError,
    LogRange,
    Record,
    decode_log,
    encode_end,
    encode_log,
    encode_record,
)
from .errors import BundleRefused, PayloadUnavailable, StoreDamaged, StoreFailed
from .records import ALL, BundleExported, Follow, LogInfo, PayloadState
from .subscriptions import FULL, Subscription, subscription_of

if TYPE_CHECKING:
    from .reader import PayloadReader
    from .records import StoredEntry
    from .store import Store
    from .view import StoreView

READ_ENTRIES, READ_BYTES = 256, 1 << 20
_RUNS_AT_ONCE: Final = 1000

_DAMAGE: Final = (StoreDamaged, StoreFailed)
Run = tuple[int, int]
Held = Mapping[LogKey, int]
"""Up to which entry the receiver holds each log, with the payloads that it wants."""
Report = Callable[[str], None]
"""Told of what is damaged and left out."""


class Writable(Protocol):
    """Takes bytes: standard output, a file, a pipe."""

    def write(self, data: bytes, /) -> object: ...


class Readable(Protocol):
    """Hands out what is there, b"" at the end."""

    def read1(self, size: int, /) -> bytes: ...


class PlannedLog(NamedTuple):
    """What a bundle is to have of a log."""

    meant: LogRange
    runs: tuple[Run, ...]
    """The entries of it that are held."""
    has_gaps: bool
    proof: bytes
    """Both encodings of its fork, if it has one."""


class Plan(NamedTuple):
    """What a bundle is to have."""

    logs: list[PlannedLog]
    """Ascending."""
    position: int
    """What was changed behind this place is as it was before, or left out."""
    payloads: bool


class Begun(NamedTuple):
    """How much of a log is there, of which the log record and the proof are."""

    last: int
    """Up to which entry the log record says that it goes."""
    seq: int = 0
    """The last entry that is there."""
    payload_bytes: int | None = None
    """How much there is of its payload, which goes on; None: as much as was to be."""


class Place(NamedTuple):
    """How far a bundle has been written."""

    log: int = 0
    """The log that is under way, by its place in the plan, or the next one."""
    begun: Begun | None = None
    """What of it is there."""


class Sums(NamedTuple):
    """What a bundle has so far."""

    logs: int = 0
    entries: int = 0
    payloads: int = 0


def plan_export(
    store: "StoreView", targets: Iterable[Follow] | None, held: Held, *, payloads: bool
) -> Plan:
    """Decides it, in one snapshot."""
    chosen = None if targets is None else frozenset(targets)
    with store.snapshot():
        shared = store.shared()
        limits = {each.key: shared.get(each.key, 0) for each in store.contested()}
        position = store.position()
        logs = []
        for info in store.logs():
            key = info.key
            if chosen is not None and chosen.isdisjoint((key, key.author, ALL)):
                continue
            planned = _plan_log(store, info, held.get(key, 0), limits.get(key))
            if planned is not None:
                logs.append(planned)
    return Plan(logs, position, payloads)


def note_export(store: "Store", plan: Plan) -> None:
    """To be called before the first byte leaves: others may have own logs that far from now on."""
    own = {each.meant.key: each.meant.last for each in plan.logs if each.runs}
    own = {key: last for key, last in own.items() if key.author == store.author}
    if own and not store.readonly:
        store.note_shared(own)


def _plan_log(store: "StoreView", info: LogInfo, held: int, limit: int | None) -> PlannedLog | None:
    """None: there is nothing to bring."""
    key, first = info.key, held + 1
    last = info.newest if limit is None else min(info.newest, limit)
    fork = None if info.fork_seq is None else store.fork(key)
    proof = b"" if fork is None else fork.first + fork.second
    runs = tuple(_runs(store, key, first, last))
    if not runs and not proof:
        return None
    meant = LogRange(key, first, max(last, held))
    return PlannedLog(meant, runs, info.height < last, proof)


def _runs(store: "StoreView", key: LogKey, first: int, last: int) -> Iterator[Run]:
    at = first
    while at <= last:
        found = store.runs(key, at, limit=_RUNS_AT_ONCE)
        for low, high in found:
            if low > last:
                return
            yield max(low, first), min(high, last)
        if len(found) < _RUNS_AT_ONCE:
            return
        at = found[-1][1] + 1


class BundleWriter:
    """Writes a bundle, or the rest of one."""

    def __init__(self, store: "StoreView", plan: Plan, report: Report, sums: Sums) -> None:
        """`sums`: what is there already."""
        self._store = store
        self._plan = plan
        self._report = report
        self._logs, self._entries, self._payloads = sums
        self._damaged = 0

    def run(
        self, out: Writable, place: Place, *, hasher: blake2b, resumed_at: int | None
    ) -> BundleExported:
        """From a place on to the end record. `hasher` was fed with what is there."""
        size = resumed_at or 0
        for data in self._records(place, is_new=not size):
            out.write(data)
            hasher.update(data)
            size += len(data)
        end = encode_end(hasher)
        out.write(end)
        size += len(end)
        sums = self._logs, self._entries, self._payloads
        return BundleExported(*sums, size, resumed_at, self._damaged)

    def _records(self, place: Place, *, is_new: bool) -> Iterator[bytes]:
        if is_new:
            yield HEADER
        for number in range(place.log, len(self._plan.logs)):
            log = self._plan.logs[number]
            if number == place.log and place.begun is not None:
                yield from self._log(log, place.begun)
                continue
            self._logs += 1
            yield encode_log(log.meant)
            if log.proof:
                yield encode_record(PROOF, log.proof)
            yield from self._log(log, Begun(log.meant.last))

    def _log(self, log: PlannedLog, begun: Begun) -> Iterator[bytes]:
        key = log.meant.key
        if begun.payload_bytes is not None:
            yield from self._payload(key, begun.seq, None, begun.payload_bytes)
        for low, high in log.runs:
            for stored in self._read(key, max(low, begun.seq + 1), min(high, begun.last)):
                self._entries += 1
                yield encode_record(ENTRY, stored.encoded)
                if brings_payload(self._plan, stored):
                    yield from self._payload(key, stored.seq, stored.payload, 0)

    def _read(self, key: LogKey, first: int, last: int) -> Iterator["StoredEntry"]:
        """The entries of a run, one by one where one of them is damaged."""
        while first <= last:
            try:
                page = read_page(self._store, key, first, last)
            except _DAMAGE:
                for seq in range(first, min(last, first + READ_ENTRIES - 1) + 1):
                    try:
                        yield from read_page(self._store, key, seq, seq)
                    except _DAMAGE as error:
                        self._leave_out(str(error))
                first += READ_ENTRIES
                continue
            if not page:
                return  # forgotten, or valid no more
            yield from page
            first = page[-1].seq + 1

    def _payload(self, key: LogKey, seq: int, inline: bytes | None, offset: int) -> Iterator[bytes]:
        if inline is not None:
            yield from _in_pieces(lambda at: inline[at : at + PIECE_BYTES], len(inline), offset)
            self._payloads += 1
            return
        try:
            reader = self._store.open_payload(key, seq)
        except PayloadUnavailable:
            return  # deleted meanwhile
        except _DAMAGE as error:
            self._leave_out(str(error))
            return
        with reader:
            size = reader.payload_bytes
            try:
                for _ in _in_pieces(lambda at: read_piece(reader, at), size, 0):
                    pass
            except _DAMAGE as error:
                self._leave_out(str(error))
                return
            yield from _in_pieces(lambda at: read_piece(reader, at), size, offset)
        self._payloads += 1

    def _leave_out(self, why: str) -> None:
        self._damaged += 1
        self._report(why)


def brings_payload(plan: Plan, stored: "StoredEntry") -> bool:
    """Whether the payload of an entry was decided on."""
    is_there = stored.payload_state is PayloadState.PRESENT
    return plan.payloads and is_there and stored.ingest <= plan.position


def read_page(store: "StoreView", key: LogKey, first: int, last: int) -> list["StoredEntry"]:
    """The next entries that are held."""
    return store.read(
        key, first, entries_max=READ_ENTRIES, bytes_max=READ_BYTES, end=last, with_payload=False
    )


def read_piece(reader: "PayloadReader", offset: int) -> bytes:
    """As much of a payload as one record has, less only at its end."""
    data = reader.read(offset, PIECE_BYTES)
    while len(data) < PIECE_BYTES:
        more = reader.read(offset + len(data), PIECE_BYTES - len(data))
        if not more:
            break
        data += more
    return data


def _in_pieces(read: Callable[[int], bytes], size: int, offset: int) -> Iterator[bytes]:
    """The records of a payload from an offset on: one at least, if that is its beginning."""
    at = offset
    while at < size or at == 0 == size:
        data = read(at)
        yield encode_record(PAYLOAD, data)
        at += len(data)
        if not size:
            return


# What the receiver holds


def held_logs(store: "StoreView") -> list[tuple[LogKey, int]]:
    """Up to which entry each log is held with the payloads that are wanted, in order."""
    found = []
    with store.snapshot():
        followed = store.subscriptions()
        wants = store.wants()
        for info in store.logs():
            wanted = (
                None if info.key.author == store.author else subscription_of(followed, info.key)
            )
            last = _held_up_to(store, info, wanted or FULL, wants.get(info.key, []))
            if last > 0:
                found.append((info.key, last))
    return found


def _held_up_to(store: "StoreView", info: LogInfo, wanted: Subscription, fetched: list[Run]) -> int:
    """Of what is wanted nothing is missing up to there; what is not wanted may be."""
    key, last = info.key, info.newest
    short = store.shortfall(key, wanted)
    if short.entries:
        last = min(last, info.height)
    spans = [(*wanted.payload_bounds(info.newest), wanted.payload_limits)] if short.payloads else []
    spans += [(first, end, (0, U64_MAX)) for first, end in fetched]
    for first, end, sizes in spans:
        missing = store.missing_payloads(key, first, sizes=sizes, limit=1)
        if missing and missing[0] <= end:
            last = min(last, missing[0] - 1)
    return last


def write_have(store: "StoreView", out: Writable) -> int:
    """See `Store.write_have`."""
    hasher = blake2b()
    logs = held_logs(store)

    def write(data: bytes) -> None:
        hasher.update(data)
        out.write(data)

    write(HEADER)
    for key, last in logs:
        write(encode_log(LogRange(key, 1, last)))
    out.write(encode_end(hasher))
    return len(logs)


def read_have(store: "StoreView", stream: Readable) -> dict[LogKey, int]:
    """What a `have` says of the logs that are held here. Raises BundleRefused.

    Of others there may be any number, which take no memory.
    """
    decoder, held, last = BundleDecoder(), dict[LogKey, int](), None
    name = getattr(stream, "name", None)
    where = name if isinstance(name, str) else "have"
    is_empty = True
    try:
        while data := stream.read1(READ_BYTES):
            is_empty = False
            decoder.feed(data)
            while (record := decoder.next_record()) is not None:
                if record.type != END:
                    told = _told(record, last)
                    last = told.key
                    if store.log(told.key) is not None:
                        held[told.key] = told.last
    except BundleError as error:
        what = f"it is no list of what is held (offset {error.offset}: {error})"
        raise BundleRefused(what, where, "make it anew with `bundle have`") from None
    if is_empty:
        what = "nothing is in there, and what `bundle have` has written is wanted"
        raise BundleRefused(what, where, "make it with `bundle have` on the receiver")
    if not decoder.is_complete:
        what = "the list of what is held, which `bundle have` has written, was cut short"
        raise BundleRefused(what, where, "copy it again")
    return held


def _told(record: Record, before: LogKey | None) -> LogRange:
    """What a `have` says of a log. Raises BundleError."""
    if record.type != LOG:
        raise BundleError(record.offset, "a bundle, and not what is held")
    told = decode_log(record)
    if before is not None and told.key <= before:
        raise BundleError(record.offset, "logs that do not ascend")
    if told.first != 1:
        raise BundleError(record.offset, f"a log from entry {told.first} on, not 1")
    return told
