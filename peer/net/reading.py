"""What sessions read: carried out in a reading thread, one short snapshot each."""

from collections.abc import Container, Iterable
from typing import Final

from logstore import (
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
from wire import LogKey, lipmaa

MISSING_NAMED: Final = 16

Arriving = Container[tuple[LogKey, int]]
"""The payloads that some session of this node is receiving."""


def look_up(store: Store, command: LookUp, arriving: Arriving) -> LookedUp:
    """What is held of a log; a damaged entry counts as not held."""
    log = command.log
    info = store.log(log)
    if info is None:
        return LookedUp(command.ticket, LogView(log))
    proof = store.fork(log) if info.state is LogState.FORKED else None
    wanted = None if command.entry is None else _entry(store, log, command.entry)
    view = LogView(
        log=log,
        height=info.height,
        newest=info.newest,
        end=info.end_seq,
        fork=info.fork_seq,
        fork_proof=None if proof is None else (proof.first, proof.second),
        hashes=_hashes(store, log, _named_in_view(command, info.height)),
        entry=None if wanted is None else held_entry(wanted, arriving),
        tail_partial_bytes=_tail_partial_bytes(store, info),
        missing_payloads=_missing_payloads(store, info, command.missing_above),
        runs=((1, info.height),) if command.runs_from <= info.height else (),
        runs_complete=info.height == info.newest,
        range_held=command.held is not None and command.held[1] <= info.height,
    )
    return LookedUp(command.ticket, view)


def read_entries(store: Store, command: ReadEntries, arriving: Arriving) -> EntriesRead:
    """The entries of a range, or those named, up to the first that is not held."""
    if command.seqs is None:
        found = _consecutive(store, command)
    else:
        found = _named(store, command, command.seqs)
    entries = (held_entry(entry, arriving, payload=command.payloads) for entry in found)
    return EntriesRead(command.request, tuple(entries))


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
    return LogChanged(info.key, info.height, info.newest, info.end_seq, info.fork_seq)


def _named_in_view(command: LookUp, height: int) -> set[int]:
    """The entries whose hashes a view carries (events.LogView): those that a proposal names."""
    tail = {height, lipmaa(height), lipmaa(height + 1)} if height else set()
    return {*command.hashes_of, *tail} - {0}


def _entry(store: Store, log: LogKey, seq: int) -> StoredEntry | None:
    try:
        return store.entry(log, seq)
    except StoreDamaged:
        return None


def _wanted_hashes(height: int, named: Iterable[int]) -> set[int]:
    """Those that were named, and those that a request which goes on from here needs."""
    always = (height, lipmaa(height), lipmaa(height + 1)) if height else ()
    return {*named, *always} - {0}


def _hashes(store: Store, log: LogKey, seqs: Iterable[int]) -> dict[int, bytes]:
    try:
        return store.hashes(log, seqs)
    except StoreDamaged:
        found = {seq: _entry(store, log, seq) for seq in seqs}
        return {seq: entry.hash for seq, entry in found.items() if entry is not None}


def _tail_partial_bytes(store: Store, info: LogInfo) -> int | None:
    if not info.height or not info.missing_payloads:
        return None
    tail = _entry(store, info.key, info.height)
    if tail is None or tail.payload_state in (PayloadState.PRESENT, PayloadState.DELETED):
        return None
    return _resumable_bytes(tail)


def _resumable_bytes(entry: StoredEntry) -> int:
    """Where to go on; a payload whose bytes are all there, and unproved, begins anew.

    No request may begin at the end of a payload (point2point.md 3).
    """
    return entry.partial_bytes if entry.partial_bytes < entry.payload_bytes else 0


def _missing_payloads(store: Store, info: LogInfo, above: int) -> tuple[tuple[int, int], ...]:
    """The first few entries below the height whose payloads are incomplete, and what is held."""
    found: list[tuple[int, int]] = []
    seq = above
    while info.missing_payloads and len(found) < MISSING_NAMED:
        missing = store.first_incomplete_payload(info.key, seq + 1)
        if missing is None or missing >= info.height:
            break
        seq = missing
        entry = _entry(store, info.key, seq)
        found.append((seq, 0 if entry is None else _resumable_bytes(entry)))
    return tuple(found)


def _consecutive(store: Store, command: ReadEntries) -> list[StoredEntry]:
    found = store.read(
        command.log,
        command.first,
        entries_max=command.entries_max,
        bytes_max=command.bytes_max,
        end=command.last,
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
