"""The visible prefix of a log: contiguous from entry 1, servable, with payloads.

What may be served as verified is the store's to say (below a fork or an invalid entry, up to an
end); here it ends too where an entry or its payload is not held.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from logstore import LogInfo, PayloadState, Store, StoreDamaged, StoredEntry
from logstore import LogState as State
from wire import LogKey

_PAGE_ENTRIES: Final = 256
_PAGE_BYTES: Final = 4 << 20
_PAGE_BYTES_SURE: Final = _PAGE_BYTES - (1 << 17)
"""A page of less was not ended by its bytes: no entry has so many, since large payloads are not in
it."""


class Standing(StrEnum):
    """How it stands with a gateway's log."""

    WAITING = "waiting"
    """Entry 1 or its payload is not here."""
    LIVE = "live"
    ENDED = "ended"
    BROKEN = "broken"
    """An entry breaks the rules of the gateway's system; nothing behind it is ever visible."""
    FORKED = "forked"
    INVALID = "invalid"


class Prefix(NamedTuple):
    """Where the visible part of a log ends, and why."""

    standing: Standing
    reason: str
    """Why nothing more is visible; empty if what is held of the log is visible."""
    height: int
    """Entries held without a gap from 1, payloads not counted."""


def entries_from(
    store: Store, key: LogKey, seq: int, *, entries_max: int, bytes_max: int
) -> list[StoredEntry]:
    """The next visible entries from `seq` on, none if that one is not; limits as `Store.read`.

    The caller has all from 1 to `seq - 1`. Payloads above 64 KiB are opened by the caller. Raises
    StoreDamaged if the first of them is damaged, and gives what comes before it otherwise.
    """
    found: list[StoredEntry] = []
    for entry in read_to_damage(store, key, seq, entries_max=entries_max, bytes_max=bytes_max):
        if entry.seq != seq or entry.payload_state is not PayloadState.PRESENT:
            break
        found.append(entry)
        seq += 1
    return found


def read_to_damage(
    store: Store, key: LogKey, seq: int, *, entries_max: int, bytes_max: int
) -> list[StoredEntry]:
    """`Store.read`, but for what is damaged and what is behind it, or behind a gap before it.

    Raises StoreDamaged if the entry `seq` is damaged.
    """
    try:
        return store.read(
            key, seq, entries_max=entries_max, bytes_max=bytes_max, with_payload=False
        )
    except StoreDamaged:
        # One of them is. Which one shows when each is asked for alone.
        page: list[StoredEntry] = []
        while len(page) < entries_max and bytes_max > 0:
            try:
                entry = store.entry(key, seq + len(page))
            except StoreDamaged:
                if not page:
                    raise
                break
            if entry is None:
                break
            bytes_max -= len(entry.encoded) + len(entry.payload or b"")
            page.append(entry)
        return page


def sound_entries(
    store: Store, key: LogKey, first: int, damaged: Callable[[StoreDamaged], object]
) -> Iterator[StoredEntry]:
    """All entries that are held from `first` on, but for damaged ones, of which `damaged` is told.

    For who reads a log to know what it says: one entry that is lost keeps nobody from the rest.
    """
    while True:
        try:
            page = store.read(
                key, first, entries_max=_PAGE_ENTRIES, bytes_max=_PAGE_BYTES, with_payload=False
            )
        except StoreDamaged:
            info = store.log(key)
            if info is None:
                return
            # Which entry it is that fails the page shows when each is asked for alone.
            last = min(first + _PAGE_ENTRIES - 1, info.newest)
            for seq in range(first, last + 1):
                entry = sound_entry(store, key, seq, damaged)
                if entry is not None:
                    yield entry
            first = last + 1
        else:
            if not page:
                return
            yield from page
            first = page[-1].seq + 1
            # To ask for what is behind the newest costs as much as to read a few entries.
            if len(page) < _PAGE_ENTRIES and sum(map(_size, page)) < _PAGE_BYTES_SURE:
                return


def _size(entry: StoredEntry) -> int:
    return len(entry.encoded) + len(entry.payload or b"")


def sound_entry(
    store: Store, key: LogKey, seq: int, damaged: Callable[[StoreDamaged], object]
) -> StoredEntry | None:
    """One entry; None if it is not held, or damaged, of which `damaged` is told."""
    try:
        return store.entry(key, seq)
    except StoreDamaged as error:
        damaged(error)
        return None


def holds_still(store: Store, key: LogKey, seq: int, hash_: bytes) -> bool:
    """Whether an entry that was applied before is still what the log says: no fork below it."""
    return store.hashes(key, [seq]).get(seq) == hash_


def standing_of(store: Store, key: LogKey, applied: int) -> Prefix:
    """How it stands with a log of which `applied` entries are visible."""
    info = store.log(key)
    if info is None or info.height == 0:
        return Prefix(Standing.WAITING, "entry 1 is not held", 0)
    if applied < info.height:
        due = applied + 1
        try:
            entry = store.entry(key, due)
        except StoreDamaged as error:
            standing = Standing.WAITING if applied == 0 else _state(info)[0]
            return Prefix(standing, f"{error.what}: {error.where}", info.height)
        if entry is not None and entry.payload_state is not PayloadState.PRESENT:
            gone = "was deleted here" if entry.payload_state is PayloadState.DELETED else "is not"
            rest = "" if gone == "was deleted here" else " held"
            return Prefix(
                Standing.WAITING if applied == 0 else _state(info)[0],
                f"the payload of entry {due} {gone}{rest}",
                info.height,
            )
    standing, reason = _state(info)
    if not reason and info.newest > info.height:
        reason = f"entry {info.height + 1} is not held"
    return Prefix(standing, reason, info.height)


def _state(info: LogInfo) -> tuple[Standing, str]:
    match info.state:
        case State.FORKED:
            return Standing.FORKED, f"the log is forked at entry {info.fork_seq}"
        case State.INVALID:
            return Standing.INVALID, f"the log is invalid from entry {info.invalid_seq} on"
        case State.ENDED if info.end_seq == info.height:
            return Standing.ENDED, f"the log ended with entry {info.end_seq}"
        case _:
            return Standing.LIVE, ""
