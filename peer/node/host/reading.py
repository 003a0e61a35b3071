"""What sessions read: carried out in a reading thread, one short snapshot each."""

from collections.abc import Collection, Container, Iterable
from typing import Final, NamedTuple

from logstore import (
    Arrived,
    HeldLog,
    LogInfo,
    LogState,
    PayloadReader,
    PayloadState,
    PayloadUnavailable,
    Store,
    StoreDamaged,
    StoredEntry,
)
from peer import (
    EntriesRead,
    HeldEntry,
    LogChanged,
    LogView,
    LookedUp,
    LookUp,
    PayloadRead,
    ReadEntries,
    ReadPayload,
)
from wire import U64_MAX, LogKey, lipmaa

RUNS_NAMED: Final = 64
BEHIND_BYTES_MAX: Final = 1 << 20
"""Entries behind one that is looked up are read with their small payloads, up to so many bytes."""

Arriving = Container[tuple[LogKey, int]]
"""The payloads that some session of this node is receiving."""


class Fresh(NamedTuple):
    """All entries that the change feed has between two places."""

    after: int
    up_to: int
    entries: tuple[StoredEntry, ...]


def look_up(store: Store, command: LookUp, arriving: Arriving) -> LookedUp:
    """What is held of a log, at one moment; a damaged entry counts as not held.

    Of several it may be the same moment: inside of a `snapshot` each takes half the time.
    """
    with store.snapshot():
        return LookedUp(command.ticket, _view(store, command, arriving))


def _view(store: Store, command: LookUp, arriving: Arriving) -> LogView:
    log = command.log
    held = store.held_log(log)
    if held is None:
        return LogView(log)
    info = held.info
    proof = store.fork(log) if info.state is LogState.FORKED else None
    wanted = None if command.entry is None else _entry(held, command.entry)
    runs = _runs(held, command.runs_from)
    tail_partial_bytes, missing, begun, unnamed_above = _missing(held, command)
    arrived = Arrived((), 0)
    if command.arrived_after is not None:
        arrived = store.arrived(log, command.arrived_after, command.arrived_among)
    here = {seq for seq in missing if command.leave_arriving and (log, seq) in arriving}
    named = _named_in_view(command, info.height)
    # Who answers a proposal asks for both of one entry, which was checked when it was read.
    known = {wanted.seq: wanted.hash} if wanted is not None and wanted.seq in named else {}
    tail_arriving = tail_partial_bytes is not None and (log, info.height) in arriving
    return LogView(
        log=log,
        height=info.height,
        newest=info.newest,
        end=info.end_seq,
        fork=info.fork_seq,
        fork_proof=None if proof is None else (proof.first, proof.second),
        invalid=info.invalid_seq,
        hashes=known | _hashes(held, named - known.keys()),
        entry=None if wanted is None else held_entry(wanted, arriving),
        behind=_behind(store, command),
        tail_partial_bytes=tail_partial_bytes,
        missing_payloads=_as_runs(seq for seq in missing if seq not in here),
        begun_payloads=tuple(each for each in begun if each[0] not in here),
        unnamed_above=unnamed_above,
        tail_arriving=tail_arriving,
        some_arriving=tail_arriving or bool(here),
        runs=runs[:RUNS_NAMED],
        runs_complete=len(runs) <= RUNS_NAMED,
        range_held=command.held is not None and _is_held(held, *command.held),
        arrived=arrived,
    )


def read_entries(store: Store, command: ReadEntries, arriving: Arriving) -> EntriesRead:
    """The entries of a range, or those named, up to the first that is not held."""
    with store.snapshot():
        place = store.position()
        if command.seqs is None:
            found = _consecutive(store, command)
        else:
            found = _named(store, command, command.seqs)
    entries = (held_entry(entry, arriving, payload=command.payloads) for entry in found)
    return EntriesRead(command.request, tuple(entries), place)


def from_fresh(command: ReadEntries, fresh: Fresh, arriving: Arriving) -> EntriesRead | None:
    """The same from what has just been stored; None if it does not begin there.

    Fewer than there are may come of it: whoever reads goes on behind them.
    """
    if command.seqs is not None:
        return None
    found: list[HeldEntry] = []
    room = command.bytes_max
    seq = command.first
    for entry in fresh.entries:
        if entry.key != command.log or entry.seq != seq:
            continue
        room -= len(entry.encoded) + len(entry.payload or b"")
        if seq > command.last or len(found) >= command.entries_max or (found and room < 0):
            break
        found.append(held_entry(entry, arriving, payload=command.payloads))
        seq += 1
    return EntriesRead(command.request, tuple(found), fresh.up_to) if found else None


def read_payload(
    store: Store, command: ReadPayload, reader: PayloadReader | None
) -> tuple[PayloadRead, PayloadReader | None]:
    """Payload bytes, and the reader to go on with, which the caller keeps.

    `reader` is the one that the last call for this request returned, if it is of this payload. A
    payload that is not held any more reads as no bytes.
    """
    if reader is not None and (reader.key, reader.seq) != (command.log, command.seq):
        reader.close()
        reader = None
    try:
        if reader is None:
            reader = store.open_payload(command.log, command.seq)
        data = reader.read(command.offset, command.bytes_max)
    except PayloadUnavailable:
        data = b""
    except BaseException:
        if reader is not None:
            reader.close()
        raise
    if reader is not None and command.offset + len(data) >= reader.payload_bytes:
        reader.close()
        reader = None
    return PayloadRead(command.request, command.seq, command.offset, data), reader


def held_entry(entry: StoredEntry, arriving: Arriving, *, payload: bool = True) -> HeldEntry:
    """A stored entry as the engine takes it."""
    held = entry.payload_state is PayloadState.PRESENT
    return HeldEntry(
        entry.seq,
        entry.encoded,
        entry.hash,
        entry.payload if payload else None,
        held,
        not held and (entry.key, entry.seq) in arriving,
        entry.partial_bytes,
    )


def log_changed(info: LogInfo) -> LogChanged:
    """The news of a log."""
    lacks = info.missing_payloads > 0
    return LogChanged(info.key, info.height, info.newest, info.end_seq, info.fork_seq, lacks)


def _named_in_view(command: LookUp, height: int) -> set[int]:
    """The entries whose hashes a view carries (events.LogView): those that a proposal names."""
    named = set(command.hashes_of)
    if command.tail_hashes and height:
        named |= {height, lipmaa(height), lipmaa(height + 1)}
    named.discard(0)
    return named


def _behind(store: Store, command: LookUp) -> tuple[HeldEntry, ...]:
    if command.entry is None or not command.behind:
        return ()
    first, last = command.entry + 1, command.entry + command.behind
    wanted = ReadEntries(
        0, command.log, first, last, None, command.behind, BEHIND_BYTES_MAX, payloads=False
    )
    try:
        return tuple(held_entry(each, (), payload=False) for each in _consecutive(store, wanted))
    except StoreDamaged:
        return ()


def _entry(held: HeldLog, seq: int) -> StoredEntry | None:
    try:
        return held.entry(seq)
    except StoreDamaged:
        return None


def _hashes(held: HeldLog, seqs: Collection[int]) -> dict[int, bytes]:
    if not seqs:
        return {}
    try:
        return held.hashes(seqs)
    except StoreDamaged:
        found = {seq: _entry(held, seq) for seq in seqs}
        return {seq: entry.hash for seq, entry in found.items() if entry is not None}


def _runs(held: HeldLog, runs_from: int) -> tuple[tuple[int, int], ...]:
    """What is held, one run more than a view names; asked for only where there are gaps."""
    info = held.info
    first = ((1, info.height),) if info.height and runs_from <= info.height else ()
    if info.height == info.newest:
        return first
    found = held.runs(max(runs_from, info.height + 1), limit=RUNS_NAMED + 1)
    return (*first, *(run for run in found if run[0] > info.height + 1))


def _is_held(held: HeldLog, first: int, last: int) -> bool:
    info = held.info
    return last <= info.height or (last <= info.newest and held.is_held(first, last))


def _as_runs(ascending: Iterable[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for seq in ascending:
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return tuple(runs)


def _missing(
    held: HeldLog, command: LookUp
) -> tuple[int | None, list[int], list[tuple[int, int]], int | None]:
    """What is held of the tail's payload if that is incomplete; the first few others, and what is
    held of those of them that were begun.

    Also the last one of those if there are more.
    """
    if not held.lacks_any:
        return None, [], [], None
    info = held.info
    sizes, above = (command.min_bytes, command.max_bytes), command.missing_above
    most = command.missing_max
    if command.missing_of_newest is not None:
        above = max(above, info.newest - command.missing_of_newest)
    # One more than are named tells that there are more, and the tail may be among them.
    limit = most + 2
    seqs = held.missing_payloads(above + 1, sizes=sizes, limit=limit)
    height, told_up_to = info.height, seqs[-1] if len(seqs) == limit else info.newest
    told = above < height <= told_up_to
    if any(first <= height <= last for first, last in command.any_size):
        sizes, told = (0, U64_MAX), False
    if command.any_size:
        seqs = sorted({*seqs, *_missing_of_any_size(held, command, limit)})[:limit]
    incomplete = height in seqs
    if not (incomplete or told):
        incomplete = height in held.missing_payloads(height, sizes=sizes, limit=1)
    others = [seq for seq in seqs if seq != height]
    named = others[:most]
    # Thousands may be named, and hardly any of them has been begun.
    begun = held.begun_payloads() if others or incomplete else {}
    tail = _partial_bytes(held, height, begun) if incomplete else None
    parts = [(seq, count) for seq in named if (count := _partial_bytes(held, seq, begun))]
    return tail, named, parts, named[-1] if len(others) > most else None


def _missing_of_any_size(held: HeldLog, command: LookUp, limit: int) -> list[int]:
    """The first few of the ranges in which sizes do not matter."""
    found: list[int] = []
    for first, last in command.any_size:
        most = limit - len(found)
        if most <= 0:
            break
        seqs = held.missing_payloads(first, limit=most)
        found += [seq for seq in seqs if seq <= last]
    return found


def _partial_bytes(held: HeldLog, seq: int, begun: Container[int]) -> int:
    entry = _entry(held, seq) if seq in begun else None
    return 0 if entry is None else _resumable_bytes(entry)


def _resumable_bytes(entry: StoredEntry) -> int:
    """Where to go on; a payload whose bytes are all there, and unproved, begins anew.

    No request may begin at the end of a payload (point2point.md 3).
    """
    return entry.partial_bytes if entry.partial_bytes < entry.payload_bytes else 0


def _consecutive(store: Store, command: ReadEntries) -> list[StoredEntry]:
    found = store.read(
        command.log,
        command.first,
        entries_max=command.entries_max,
        bytes_max=command.bytes_max,
        end=command.last,
        with_payload=False,
    )
    for index, entry in enumerate(found):
        if entry.seq != command.first + index:
            return found[:index]
    return found


def _named(store: Store, command: ReadEntries, seqs: Iterable[int]) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    room = command.bytes_max
    for seq in seqs:
        entry = store.entry(command.log, seq)
        if entry is None or len(found) >= command.entries_max:
            break
        room -= len(entry.encoded) + len(entry.payload or b"")
        if room < 0 and found:
            break
        found.append(entry)
    return found
