"""Positions and trims of this node, written to its ledger and merged with others' (4.3)."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateways import NewestState, Said
from gateways.ockam.ledger import EPOCH_MAX, Position, Record, Subject, Trim, payloads_of
from logstore import Dropped, ExplainedError
from wire import LogKey

from .logs import Catalog
from .side import Saved, Stream

log = logging.getLogger(__name__)

POSITIONS_MAX: Final = 1_000_000
WAITING_MAX: Final = 10_000
"""Positions that wait to be written. Who saves another one is not read from meanwhile."""

Asked = tuple[str, str, int]
"""Client, name and partition, as a request has them."""


class Book(NewestState[Asked, int]):
    """The positions of consumers at this node. `share`: authors whose ledgers count as its own."""

    def __init__(
        self, catalog: Catalog, share: Iterable[bytes] = (), positions_max: int = POSITIONS_MAX
    ) -> None:
        super().__init__(catalog.store, catalog.sign, WAITING_MAX)
        self._catalog = catalog
        self._side = catalog.side
        self._ledgers = tuple(dict.fromkeys((catalog.own, *share)))
        self._positions_max = positions_max

    # Saves ---------------------------------------------------------------------------------------

    def _is_newer(self, value: int, known: int) -> bool:
        return value > known

    def _write(self, values: Mapping[Asked, int]) -> None:
        # Behind what others wrote: an epoch that is stale would lose the save.
        self._catalog.refresh()
        records = self._records(values)
        if records:
            self._append(records)

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
        self._append([record])
        return record

    # Trims ---------------------------------------------------------------------------------------

    def trim(self, stream: Stream, earliest: int) -> None:
        """Says of an own stream that nothing is kept below an index."""
        self._append([Trim(stream.key.log_id, earliest)])

    # The ledger ----------------------------------------------------------------------------------

    def _append(self, records: Sequence[Record]) -> None:
        key = self._catalog.ledger()
        self._catalog.sign([(key.log_id, list(payloads_of(records)))])
        self._catalog.refresh()

    def _said(self) -> Said | None:
        self._catalog.refresh()
        return self._side.ledger(self._catalog.own)

    def _state(self) -> list[bytes]:
        return list(payloads_of(self._side.records_of(self._catalog.own)))

    def _dropped(self, key: LogKey, dropped: Dropped) -> None:
        self._side.count_down(key, dropped.bytes)
