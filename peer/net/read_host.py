"""Reads for sessions, in threads: look-ups, entries, payload bytes."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from logstore import PayloadReader, Store, StoreError
from peer import Event, LogChanged, LookUp, PayloadRead, ReadEntries, ReadPayload, StorageFailed

from .lane import Job, Lane, RunSync, Settle
from .port import Port
from .reading import Arriving, look_up, read_entries, read_payload

if TYPE_CHECKING:
    from wire import LogKey

LANES: Final = 2

Read = LookUp | ReadEntries | ReadPayload


class ReadHost:
    """Carries out the commands that read."""

    def __init__(self, store: Store, arriving: Arriving, *, run_sync: RunSync | None) -> None:
        self.lanes = [Lane(run_sync=run_sync) for _ in range(LANES)]
        self._store = store
        self._arriving = arriving
        # Payload files stay open between two reads of the same request.
        self._readers: dict[tuple[Port, int], PayloadReader] = {}
        self._under_way = 0
        self._number = 0
        self._news: dict[LogKey, tuple[int, LogChanged]] = {}

    def submit(self, port: Port, command: Read) -> None:
        """Begins a read for a session."""
        work: Callable[[], Settle]
        if isinstance(command, LookUp):
            work = partial(self._look_up, port, command, self._number)
        elif isinstance(command, ReadEntries):
            work = partial(self._read_entries, port, command)
        else:
            reader = self._readers.pop((port, command.request), None)
            work = partial(self._read_payload, port, command, reader)
        self._under_way += 1
        self.lanes[port.number % LANES].put(Job(work, partial(self._failed, port)))

    def note_changes(self, changes: Iterable[LogChanged]) -> None:
        """Remembers news that a look-up under way may have missed."""
        if self._under_way:
            self._number += 1
            self._news.update((change.log, (self._number, change)) for change in changes)

    def forget(self, port: Port) -> None:
        """Closes what was open for a session that has ended."""
        for place in [place for place in self._readers if place[0] is port]:
            self._readers.pop(place).close()

    # In a thread

    def _look_up(self, port: Port, command: LookUp, number: int) -> Settle:
        looked_up = look_up(self._store, command, self._arriving)

        def settle() -> None:
            # A look-up that began before the latest news may say less than they did.
            noted, change = self._news.get(command.log, (0, None))
            later = (change,) if change is not None and noted > number else ()
            self._done(port, looked_up, *later)

        return settle

    def _read_entries(self, port: Port, command: ReadEntries) -> Settle:
        try:
            event: Event = read_entries(self._store, command, self._arriving)
        except StoreError as error:
            event = StorageFailed(command.request, str(error))
        return partial(self._done, port, event)

    def _read_payload(
        self, port: Port, command: ReadPayload, reader: PayloadReader | None
    ) -> Settle:
        try:
            event, reader = read_payload(self._store, command, reader)
        except StoreError as error:
            return partial(self._done, port, StorageFailed(command.request, str(error)))
        return partial(self._payload_read, port, event, reader)

    # In the event loop

    def _payload_read(self, port: Port, event: PayloadRead, reader: PayloadReader | None) -> None:
        place = (port, event.request)
        if reader is not None and (not port.is_open or place in self._readers):
            reader.close()
        elif reader is not None:
            self._readers[place] = reader
        self._done(port, event)

    def _done(self, port: Port, *events: Event) -> None:
        self._finish()
        port.deliver(*events)

    def _failed(self, port: Port, error: Exception) -> None:
        self._finish()
        port.fail(error)

    def _finish(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._news.clear()
