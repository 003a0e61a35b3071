"""Reads for sessions, in threads: look-ups, entries, payload bytes.

Look-ups have a thread of their own. A session that has thousands of logs to offer asks for 64 of
them at a time, and what the other side has asked for would stand behind them in one line.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from logstore import PayloadReader, Store, StoreDamaged, StoreError
from peer import (
    EntriesRead,
    Event,
    LogChanged,
    LookUp,
    PayloadRead,
    ReadEntries,
    ReadPayload,
    StopReading,
    StorageFailed,
)
from peer.node.fairness import Account

from .arrivals import Arrivals, Reading
from .lane import JOBS_MAX, Gathering, Job, Lane, Settle, Start
from .port import Port, Replies
from .reading import Fresh, from_fresh, look_up, read_entries, read_payload

if TYPE_CHECKING:
    from wire import LogKey

FRESH_S: Final = 1.0
"""So long: another process may drop what is read here, and is noticed within a second."""
LANES: Final = 3
"""The first one is for look-ups."""

Read = LookUp | ReadEntries | ReadPayload | StopReading


class ReadHost:
    """Carries out the commands that read."""

    def __init__(
        self, store: Store, arrivals: Arrivals, *, start: Start, gathering: Gathering
    ) -> None:
        # A look-up takes 50 microseconds, half of what a hop costs: with four in one, fifty peers
        # that are offered ten thousand logs wait for hops. Reads may take milliseconds each.
        lanes = partial(Lane, start=start, settled=self.deliver, gathering=gathering)
        # All look-ups of a hop are of one moment, and none of them is older than the hop: a
        # transaction for each took half of the time of answering a proposal.
        look_ups = lanes(contested_max=JOBS_MAX, around=store.snapshot)
        self.lanes = [look_ups, *(lanes() for _ in range(LANES - 1))]
        self._store = store
        self._arrivals = arrivals
        # Payload files stay open between two reads of the same request; None: a thread has it.
        self._readers: dict[tuple[Port, int], PayloadReader | None] = {}
        self._replies: Replies = {}
        """What each session gets once all outcomes of a hop are there: it thinks once of them."""
        self._under_way = 0
        self._number = 0
        self._news: dict[LogKey, tuple[int, LogChanged]] = {}
        self._fresh: Fresh | None = None
        """What the latest news are about. Whatever has changed since is in the next ones."""
        self._fresh_at = 0.0

    def submit(self, port: Port, command: Read, payer: Account | None = None) -> EntriesRead | None:
        """Begins a read for a session. `payer`: who pays for a look-up, if not the session.

        Returns the answer if there is no need to read: what is asked for was stored just now.
        """
        work: Callable[[], Settle]
        if isinstance(command, LookUp):
            work = partial(self._look_up, port, command, self._number)
            self._put(0, port, work, payer or port.account)
            return None
        if isinstance(command, ReadEntries):
            if (answer := self._from_fresh(command)) is not None:
                return answer
            work = partial(self._read_entries, port, command)
        elif isinstance(command, StopReading):
            self._stop(port, command.request)
            return None
        elif self._arrivals.join(port, command):
            return None
        else:
            place = (port, command.request)
            reader = self._readers.get(place)
            self._readers[place] = None
            work = partial(self._read_payload, port, command, reader)
        self._read(port, work)
        return None

    def _from_fresh(self, command: ReadEntries) -> EntriesRead | None:
        """What was stored just now, if that is asked for."""
        if self._fresh is None or trio.current_time() - self._fresh_at > FRESH_S:
            return None
        return from_fresh(command, self._fresh, self._arrivals)

    def read_behind(self, reading: Reading, command: ReadPayload, count: int) -> None:
        """Begins to read bytes of a payload that is arriving; `Arrivals` asks for it."""
        self._read(reading.port, partial(self._read_arriving, reading, command, count))

    def _read(self, port: Port, work: Callable[[], Settle]) -> None:
        self._put(1 + port.number % (LANES - 1), port, work, port.account)

    def _put(self, lane: int, port: Port, work: Callable[[], Settle], payer: Account) -> None:
        self._under_way += 1
        self.lanes[lane].put(Job(work, partial(self._failed, port)), payer)

    def _stop(self, port: Port, request: int) -> None:
        self._arrivals.stop(port, request)
        self._stop_reader((port, request))

    def _stop_reader(self, place: tuple[Port, int]) -> None:
        reader = self._readers.pop(place, None)
        if reader is not None:
            reader.close()

    def note_changes(self, changes: Iterable[LogChanged], fresh: Fresh | None = None) -> None:
        """Remembers news that a look-up under way may have missed, and what is fresh."""
        self._fresh, self._fresh_at = fresh, trio.current_time()
        if self._under_way:
            self._number += 1
            self._news.update((change.log, (self._number, change)) for change in changes)

    def forget(self, port: Port) -> None:
        """Closes what was open for a session that has ended."""
        self._arrivals.forget(port)
        for place in [place for place in self._readers if place[0] is port]:
            self._stop(*place)

    # In a thread

    def _look_up(self, port: Port, command: LookUp, number: int) -> Settle:
        looked_up = look_up(self._store, command, self._arrivals)

        def settle() -> None:
            # A look-up that began before the latest news may say less than they did.
            noted, change = self._news.get(command.log, (0, None))
            later = (change,) if change is not None and noted > number else ()
            self._done(port, looked_up, *later)

        return settle

    def _read_entries(self, port: Port, command: ReadEntries) -> Settle:
        try:
            event: Event = read_entries(self._store, command, self._arrivals)
        except StoreError as error:
            self._note_damage(error)
            event = StorageFailed(command.request, str(error))
        return partial(self._done, port, event)

    def _read_payload(
        self, port: Port, command: ReadPayload, reader: PayloadReader | None
    ) -> Settle:
        event: PayloadRead | StorageFailed
        try:
            event, reader = read_payload(self._store, command, reader)
        except StoreError as error:
            self._note_damage(error)
            event, reader = StorageFailed(command.request, str(error)), None
        return partial(self._payload_read, port, event, reader)

    def _note_damage(self, error: StoreError) -> None:
        """Has whoever looks how this store stands find what was met here."""
        if isinstance(error, StoreDamaged) and error.fault is not None:
            with suppress(StoreError):
                self._store.alarms.note(error.fault)

    def _read_arriving(self, reading: Reading, command: ReadPayload, count: int) -> Settle:
        try:
            data = reading.read(command.offset, count)
        except (OSError, StoreError) as error:
            return partial(self._cannot_read, reading, str(error))

        def settle() -> None:
            self._finish()
            self._arrivals.was_read(reading, command, data)

        return settle

    # In the event loop

    def _payload_read(
        self, port: Port, event: PayloadRead | StorageFailed, reader: PayloadReader | None
    ) -> None:
        place = (port, event.request)
        if reader is None:
            self._stop_reader(place)
        elif self._readers.get(place, reader) is None:
            self._readers[place] = reader
        else:
            # The request, or its session, has ended meanwhile, or reads two at once.
            reader.close()
        self._done(port, event)

    def _cannot_read(self, reading: Reading, detail: str) -> None:
        told = not reading.over
        self._arrivals.cannot_read(reading)
        self._done(reading.port, *((StorageFailed(reading.request, detail),) if told else ()))

    def _done(self, port: Port, *events: Event) -> None:
        self._finish()
        self._replies.setdefault(port, []).extend(events)

    def deliver(self) -> None:
        """Hands out what the outcomes of one hop have brought."""
        replies, self._replies = self._replies, {}
        for port, events in replies.items():
            port.deliver(*events)

    def _failed(self, port: Port, error: Exception) -> None:
        self._finish()
        port.fail(error)

    def _finish(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._news.clear()
