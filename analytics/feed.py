"""The store's change feed as an export reads it: what cannot be read is named and left out.

A damaged entry makes a whole page unreadable, so the page is then read one entry at a time. Where
the database itself is damaged even the list of entries ends, so the place where it goes on is
searched for, and everything before it is left out.
"""

from collections.abc import Callable, Iterator
from typing import Final

from logstore import PayloadUnavailable, Store, StoreDamaged, StoredEntry
from wire import LogKey

from .manifest import LeftOut
from .rows import RowBuilder, UnfitEntryError, check_fits

_PAGE_ROWS: Final = 5_000
_PAGE_BYTES: Final = 4 << 20
_PAYLOAD_PIECE: Final = 1 << 20


class Feed:
    """The entries in a range of the ingest sequence, ascending; to be iterated once."""

    def __init__(
        self,
        store: Store,
        builder: RowBuilder,
        after: int,
        until: int,
        wanted: Callable[[LogKey], bool],
    ) -> None:
        self._store = store
        self._builder = builder
        self._wanted = wanted
        self._until = until
        self.position = after
        """Everything up to here was handed out, is not wanted, or is left out."""
        self.left_out: list[LeftOut] = []

    def __iter__(self) -> Iterator[StoredEntry]:
        while self.position < self._until:
            try:
                page = self._store.read_changes(
                    self.position, entries_max=_PAGE_ROWS, bytes_max=_PAGE_BYTES
                )
            except StoreDamaged:
                yield from self._one_by_one()
                continue
            if not page or page[0].ingest > self._until:
                self.position = self._until
            for entry in page:
                if entry.ingest > self._until:
                    self.position = self._until
                    break
                yield from self._taken(entry)
                self.position = entry.ingest

    def _taken(self, entry: StoredEntry) -> Iterator[StoredEntry]:
        if not self._wanted(entry.key):
            return
        try:
            check_fits(entry)
            if self._builder.wants_payload(entry):
                entry = entry._replace(payload=load_payload(self._store, entry))
        except PayloadUnavailable:
            # Deleted just now: the entry comes again, with a larger number.
            return
        except (StoreDamaged, UnfitEntryError) as error:
            what = error.what if isinstance(error, StoreDamaged) else str(error)
            self._leave_out(f"{entry.key}/{entry.seq}", what)
            return
        yield entry

    def _one_by_one(self) -> Iterator[StoredEntry]:
        try:
            changes = self._store.changes(self.position, 100)
        except StoreDamaged as damage:
            self._skip(damage)
            return
        for change in changes:
            if change.ingest > self._until:
                break
            try:
                entry = self._store.entry(change.key, change.seq)
            except StoreDamaged as damage:
                if self._wanted(change.key):
                    self._leave_out(f"{change.key}/{change.seq}", damage.what)
                entry = None
            if entry is not None and entry.ingest == change.ingest:
                yield from self._taken(entry)
            self.position = change.ingest
        if not changes or changes[-1].ingest > self._until:
            self.position = self._until

    def _skip(self, damage: StoreDamaged) -> None:
        """Leaves out what cannot even be listed."""
        bad, step = self.position, 1
        while not self._goes_on(bad + step):
            step *= 2
        good = bad + step
        while good - bad > 1:
            middle = (bad + good) // 2
            good, bad = (middle, bad) if self._goes_on(middle) else (good, middle)
        self._leave_out(f"arrivals {self.position + 1} to {good}", damage.what)
        self.position = min(good, self._until)

    def _goes_on(self, after: int) -> bool:
        if after >= self._until:
            return True
        try:
            self._store.changes(after, 1)
        except StoreDamaged:
            return False
        return True

    def _leave_out(self, where: str, why: str) -> None:
        self.left_out.append(LeftOut(where, why))


def load_payload(store: Store, entry: StoredEntry) -> bytes:
    """A payload that is kept outside of its row. Raises PayloadUnavailable and StoreDamaged."""
    with store.open_payload(entry.key, entry.seq) as reader:
        payload = bytearray()
        while piece := reader.read(len(payload), _PAYLOAD_PIECE):
            payload += piece
    return bytes(payload)
