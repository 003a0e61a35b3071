"""Positions and trims of this node: gathered, written to its ledger, merged with others' (4.3).

Blocks, but for `save`, which only remembers. For any thread, and nothing here waits for another
one: who writes may have to wait for the event loop, and that for a thread.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateways.ockam.ledger import (
    EPOCH_MAX,
    SUMMARY_FACTOR,
    SUMMARY_FLOOR_BYTES,
    Position,
    Record,
    Subject,
    Trim,
    encode_record,
    payloads_of,
    wants_summary,
)
from logstore import ExplainedError, LogMoved
from wire import LogKey

from .logs import Catalog
from .side import Saved, Stream

log = logging.getLogger(__name__)

POSITIONS_MAX: Final = 1_000_000
WAITING_MAX: Final = 10_000
"""Positions that wait to be written. Who saves another one is not read from meanwhile."""
_SUMMARY_BATCH: Final = 200
_ATTEMPTS: Final = 20

Asked = tuple[str, str, int]
"""Client, name and partition, as a request has them."""


class Book:
    """The positions of consumers at this node. `share`: authors whose ledgers count as its own."""

    def __init__(
        self, catalog: Catalog, share: Iterable[bytes] = (), positions_max: int = POSITIONS_MAX
    ) -> None:
        self._catalog = catalog
        self._side = catalog.side
        self._ledgers = tuple(dict.fromkeys((catalog.own, *share)))
        self._positions_max = positions_max
        self._waiting: dict[Asked, int] = {}
        self._taking = threading.Lock()
        self._summary_at = SUMMARY_FLOOR_BYTES

    # Saves ---------------------------------------------------------------------------------------

    def save(self, asked: Asked, index: int) -> bool:
        """Remembers a position until `flush`; False if there is no room. Does not block."""
        with self._taking:
            known = self._waiting.get(asked)
            if known is None and len(self._waiting) >= WAITING_MAX:
                return False
            if known is None or known < index:
                self._waiting[asked] = index
            return True

    @property
    def waiting(self) -> int:
        """How many positions are not on disk."""
        return len(self._waiting)

    def is_waiting(self, asked: Asked) -> bool:
        """Whether a position has been saved and is not on disk."""
        return asked in self._waiting

    def flush(self) -> None:
        """Writes what was saved; by one caller at a time. What fails is to be written again.

        Raises StoreError.
        """
        with self._taking:
            taken = dict(self._waiting)
        if not taken:
            return
        # Behind what others wrote: an epoch that is stale would lose the save.
        self._catalog.refresh()
        records = self._records(taken)
        if records:
            self._write(records)
        with self._taking:
            for asked, index in taken.items():
                if self._waiting.get(asked) == index:
                    del self._waiting[asked]
        self._summarize_if_due()

    def _records(self, saves: Mapping[Asked, int]) -> list[Position]:
        """What is to be written of saves: those that change something, new ones while they fit.

        How many there are is asked of the table, where only what was committed counts: a number
        beside it would go on counting what a full disk has refused.
        """
        room: int | None = None
        records = []
        for (client, name, partition), index in saves.items():
            subject = Subject(self._catalog.owner(name), name, partition, client)
            known = self.position(subject)
            if known is not None and index <= known.place.index:
                continue
            if self._side.position(subject, (self._catalog.own,)) is None:
                if room is None:
                    room = self._positions_max - self._side.count_positions(self._catalog.own)
                if room <= 0:
                    self._catalog.seldom.warn(
                        log,
                        "positions",
                        f"{self._positions_max} positions are kept, a new one is ignored",
                    )
                    continue
                room -= 1
            records.append(Position(*subject, 0 if known is None else known.place.epoch, index))
        return records

    def get(self, asked: Asked) -> int | None:
        """The position that is known, which survives any crash. Raises StoreError.

        What `is_waiting` is not known yet.
        """
        self._catalog.refresh()
        client, name, partition = asked
        found = self.position(Subject(self._catalog.owner(name), name, partition, client))
        return None if found is None else found.place.index

    def position(self, subject: Subject) -> Saved | None:
        """A position as the ledgers that count say it, merged."""
        return self._side.position(subject, self._counting(subject.author))

    def positions(self, author: bytes) -> list[Saved]:
        """All positions in an author's streams, merged."""
        return self._side.positions(author, self._counting(author))

    def _counting(self, author: bytes) -> Sequence[bytes]:
        return (*self._ledgers, author)

    def rewind(self, subject: Subject, index: int) -> Position:
        """Moves a position, also down: its epoch is one above the one that is known.

        Raises ExplainedError where somebody's ledger says that it is the last one.
        """
        self._catalog.refresh()
        known = self.position(subject)
        epoch = 1 if known is None else known.place.epoch + 1
        if epoch > EPOCH_MAX:
            raise ExplainedError(
                f"the position has been moved {EPOCH_MAX} times, and cannot be moved again",
                f"{subject.name}/{subject.partition} of {subject.client}",
                "use another client id",
            )
        record = Position(*subject, epoch, index)
        self._write([record])
        return record

    # Trims ---------------------------------------------------------------------------------------

    def trim(self, stream: Stream, earliest: int) -> None:
        """Says of an own stream that nothing is kept below an index."""
        self._write([Trim(stream.key.log_id, earliest)])

    # The ledger ----------------------------------------------------------------------------------

    def _write(self, records: Sequence[Record]) -> None:
        key = self._catalog.ledger()
        self._catalog.sign([(key.log_id, list(payloads_of(records)))])
        self._catalog.refresh()

    def _summarize_if_due(self) -> None:
        """Writes the state of the ledger anew where what it says takes several times as much."""
        found = self._side.ledger(self._catalog.own)
        if found is None or found.bytes <= self._summary_at:
            return
        records = self._side.records_of(self._catalog.own)
        size = sum(len(encode_record(each)) for each in records)
        if wants_summary(found.bytes, size):
            self._summarize(found.key)
        # Not looked at again before it may be due.
        self._summary_at = max(SUMMARY_FLOOR_BYTES, SUMMARY_FACTOR * size)

    def _summarize(self, key: LogKey) -> None:
        for _ in range(_ATTEMPTS):
            self._side.refresh()
            found = self._side.ledger(self._catalog.own)
            assert found is not None
            payloads = list(payloads_of(self._side.records_of(self._catalog.own)))
            first = found.seq + 1
            try:
                # What another process has written meanwhile would be dropped with the old ones.
                self._catalog.sign([(key.log_id, payloads[:_SUMMARY_BATCH])], expected_seqs=[first])
            except LogMoved:
                continue
            for start in range(_SUMMARY_BATCH, len(payloads), _SUMMARY_BATCH):
                part = payloads[start : start + _SUMMARY_BATCH]
                self._catalog.sign([(key.log_id, part)])
            self._side.refresh()
            dropped = self._catalog.store.drop(key, 2, first - 1)
            self._side.count_down(key, dropped.bytes)
            log.info("the ledger %s was summarized in %d entries", key, len(payloads))
            return
