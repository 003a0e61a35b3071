"""Rows of the data source: the store's entries in record batches, checked as far as was asked."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from logstore import PayloadUnavailable, Store, StoreDamaged, StoredEntry
from wire import EntryError, LogKey, decode_entry, lipmaa, signature_is_valid, verify_links

from .errors import BadInput
from .feed import load_payload
from .rows import RowBuilder, UnfitEntryError, check_fits
from .source_options import Options, Verify

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 8 << 20
_PAYLOAD_BYTES_MAX: Final = 1 << 30


def read_log(
    store: Store, options: Options, key: LogKey, first: int, last: int
) -> Iterator["pa.RecordBatch"]:
    """The entries of a stretch of one log."""
    builder = _builder(store, options)
    start = first
    while start <= last:
        entries = store.read(
            key,
            start,
            entries_max=_BATCH_ROWS,
            bytes_max=_BATCH_BYTES,
            end=last,
            with_payload=False,
        )
        if not entries:
            return
        yield from _batches(store, options, builder, entries)
        start = entries[-1].seq + 1


def read_range(store: Store, options: Options, first: int, last: int) -> Iterator["pa.RecordBatch"]:
    """The entries of a range of the ingest sequence that have not moved out of it."""
    builder = _builder(store, options)
    after = first - 1
    while after < last:
        entries = store.read_changes(
            after, entries_max=min(_BATCH_ROWS, last - after), bytes_max=_BATCH_BYTES
        )
        if not entries:
            return
        wanted = [
            each for each in entries if each.ingest <= last and options.wants(each.key, each.seq)
        ]
        yield from _batches(store, options, builder, wanted)
        after = entries[-1].ingest


def _builder(store: Store, options: Options) -> RowBuilder:
    return RowBuilder(
        store.author.hex(),
        payloads=options.payload,
        payload_bytes_max=_PAYLOAD_BYTES_MAX,
        partition=True,
    )


def _batches(
    store: Store, options: Options, builder: RowBuilder, entries: list[StoredEntry]
) -> Iterator["pa.RecordBatch"]:
    rows: list[StoredEntry] = []
    size = 0
    for entry in _checked(store, options, entries):
        if builder.wants_payload(entry):
            rows.append(_with_payload(store, entry))
            size += entry.payload_bytes
        else:
            rows.append(entry)
        if size >= _BATCH_BYTES:
            yield builder.batch(rows)
            rows, size = [], 0
    if rows:
        yield builder.batch(rows)


def _with_payload(store: Store, entry: StoredEntry) -> StoredEntry:
    try:
        return entry._replace(payload=load_payload(store, entry))
    except PayloadUnavailable:
        # Dropped between the two; the entry says so now, and keeps its place in this reading.
        now = store.entry(entry.key, entry.seq)
        return entry if now is None else now._replace(ingest=entry.ingest)


def _checked(store: Store, options: Options, entries: list[StoredEntry]) -> Iterable[StoredEntry]:
    for entry in entries:
        try:
            check_fits(entry)
        except UnfitEntryError as error:
            raise BadInput(
                str(error), f"{entry.key}/{entry.seq}", "leave it out with the option 'to'"
            ) from None
    if options.verify is not Verify.NONE:
        _check_links(store, entries)
    if options.verify is Verify.FULL:
        for entry in entries:
            if not signature_is_valid(entry.encoded):
                raise _damaged(entry, "the signature is wrong")
    return entries


def _check_links(store: Store, entries: list[StoredEntry]) -> None:
    here = {(entry.key, entry.seq): entry.hash for entry in entries}
    wanted: dict[LogKey, set[int]] = {}
    for entry in entries:
        for target in (entry.seq - 1, lipmaa(entry.seq)):
            if target > 0 and (entry.key, target) not in here:
                wanted.setdefault(entry.key, set()).add(target)
    for key, seqs in wanted.items():
        for seq, hash_ in store.hashes(key, sorted(seqs)).items():
            here[key, seq] = hash_
    for entry in entries:
        try:
            verify_links(
                decode_entry(entry.encoded),
                here.get((entry.key, lipmaa(entry.seq))),
                here.get((entry.key, entry.seq - 1)),
            )
        except EntryError as error:
            raise _damaged(entry, str(error)) from error


def _damaged(entry: StoredEntry, what: str) -> StoreDamaged:
    return StoreDamaged(what, f"{entry.key}/{entry.seq}", "run verify")
