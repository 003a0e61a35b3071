"""Received entries on their way to disk: signatures in batches, then transactions in groups.

    sessions' queues -> batches at the verifier -> checked, in order -> one transaction

Who has had least of late comes first (`fairness.py`), so that nobody waits for another's backlog.
Within a session everything stays in order: what an entry links to is held, or came before it in the
same session. While one group is being committed the next batches are being checked.

A transaction begins as soon as nothing is being checked that could join it; otherwise when it has
256 entries, or 20 ms after its first. So a lone live append waits for nothing, and for no task
either: where its signature is checked on the spot, its transaction is on its way to the writing
thread before the session that handed it in goes on. Tasks only wait for other verdicts, and for
the time.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

import trio
from msgspec import Struct

from peer import INGEST_ENTRIES_MAX, IngestItem
from peer.node.fairness import Line

from .groups import Checked, Group, grouped
from .port import Handed, Port
from .verifier import BATCH_ENTRIES_MAX, Verifier
from .worker_process import Ticket

GROUP_ENTRIES: Final = 256
GROUP_ENTRIES_MAX: Final = 1024
GROUP_WAIT_S: Final = 0.02
TURN_ENTRIES: Final = INGEST_ENTRIES_MAX
"""What a session may put into a batch before it is the next one's turn."""
ENTRY_S: Final = 30e-6
"""What an entry costs, signature and row, as it is charged. Seconds; only its proportion to what is
measured elsewhere matters, and that little."""

Commit = Callable[[list[Group], Callable[[], None]], None]
"""Begins to store groups durably, to tell their sessions, and all sessions what changed; calls what
it was given once that is done."""

Pending = tuple[Handed, IngestItem]
_request_of = attrgetter("request")


class _Batch(Struct, frozen=True):
    entries: list[Pending]
    ticket: Ticket


class Ingestion:
    """The way of received entries; `run` has to be running."""

    def __init__(
        self,
        verifier: Verifier,
        commit: Commit,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._now = now
        self._verifier = verifier
        self._commit = commit
        self._line = Line[Pending]()
        self._batches: deque[_Batch] = deque()
        self._checked: deque[Checked] = deque()
        self._checked_entries = 0
        self._checked_at = 0.0
        self._timer = trio.CancelScope()
        self._committing = False
        self._batch_started = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not (self._line or self._batches or self._checked or self._committing)

    async def wait_idle(self) -> None:
        """Returns once nothing is on its way."""
        while not self.idle:
            await self._drained.park()

    def submit(self, port: Port, items: Sequence[IngestItem]) -> None:
        """Takes received entries of a session."""
        # Most are of one request, and come by hundreds.
        for request, of_request in groupby(items, _request_of):
            some = list(of_request)
            handed = port.handed(request, some[0].log)
            handed.entries += sum(len(item.entries) for item in some)
            self._line.put(port.account, *((handed, item) for item in some))
        self._go_on()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Waits for verdicts, and for the time, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._collect)
            nursery.start_soon(self._keep_time)
            task_status.started()

    def _go_on(self) -> None:
        """Begins what may begin now: batches, and a transaction."""
        self._begin_batches()
        while self._is_due():
            self._begin_transaction()
            self._begin_batches()
        if self.idle:
            self._drained.unpark_all()

    def _stored(self) -> None:
        self._committing = False
        self._go_on()

    async def _keep_time(self) -> None:
        """Goes on when who rests may, or a transaction has waited long enough."""
        while True:
            with trio.CancelScope() as self._timer:
                self._go_on()
                await trio.sleep_forever()

    def _wake_at(self, until_s: float) -> None:
        self._timer.deadline = min(self._timer.deadline, until_s)

    # To the verifier

    def _begin_batches(self) -> None:
        """Starts batches as long as workers could be idle and the disk keeps up.

        Of those who rest nothing is begun: what was checked is stored, and everybody told of it.
        """
        self._take_answered()
        while (
            self._may_begin()
            and len(self._batches) < self._verifier.in_flight_max
            and self._checked_entries < GROUP_ENTRIES_MAX
        ):
            entries = self._next_batch()
            if entries:
                self._batches.append(_Batch(entries, self._begin_checking(entries)))
                self._take_answered()
        if self._batches:
            self._batch_started.unpark()

    def _begin_checking(self, entries: list[Pending]) -> Ticket:
        # Where only a payload comes, its entry is held, or stands before it in the same request:
        # its signature was checked then, or is, and what it is refused for goes for the payload.
        new = [entry[1] for _, item in entries if item.is_new for entry in item.entries]
        if new:
            return self._verifier.start(new)
        nothing = Ticket(new)
        nothing.resolve(b"")
        return nothing

    def _may_begin(self) -> bool:
        """Whether something waits whose turn it may be; else it is asked again when that is so."""
        if not self._line:
            return False
        now = self._now()
        if (until_s := self._line.rests_until_s(now)) > now:
            self._wake_at(until_s)
            return False
        return True

    def _next_batch(self) -> list[Pending]:
        batch: list[Pending] = []
        now, room = self._now(), BATCH_ENTRIES_MAX
        while self._line and room >= INGEST_ENTRIES_MAX:
            if batch and self._line.rests(now):
                break
            share = min(room, TURN_ENTRIES) if self._line.accounts > 1 else room
            account, waiting = self._line.take(now, share, _size)
            wanted = [pending for pending in waiting if not pending[0].refused]
            entries = sum(map(_size, wanted))
            account.charge(entries * ENTRY_S, now)
            batch += wanted
            room -= entries
        return batch

    async def _collect(self) -> None:
        """Goes on whenever the batch has been checked whose turn it is."""
        while True:
            while not self._batches:
                await self._batch_started.park()
            await self._batches[0].ticket.done.wait()
            self._go_on()

    def _take_answered(self) -> None:
        """Takes the verdicts that are there, in the order of the batches."""
        while self._batches and self._batches[0].ticket.done.is_set():
            if not self._checked:
                self._checked_at = self._now()
            self._take_verdicts(self._batches.popleft())

    def _take_verdicts(self, batch: _Batch) -> None:
        ticket = batch.ticket
        if len(ticket.verdicts) != len(ticket.entries):
            raise ValueError(f"{len(ticket.verdicts)} verdicts on {len(ticket.entries)} entries")
        at = 0
        for handed, item in batch.entries:
            valid = count = len(item.entries)
            if item.is_new:
                wrong = ticket.verdicts.find(0, at, at + count)
                valid = count if wrong < 0 else wrong - at
                at += count
            self._checked.append(Checked(handed, item, valid))
            self._checked_entries += count

    # To the disk

    def _is_due(self) -> bool:
        """Whether a transaction is to begin; if it is only to wait, it is asked again in time."""
        if self._committing or not self._checked:
            return False
        if self._checked_entries >= GROUP_ENTRIES or not self._batches:
            return True
        until_s = self._checked_at + GROUP_WAIT_S
        if until_s <= self._now():
            return True
        self._wake_at(until_s)
        return False

    def _begin_transaction(self) -> None:
        checked: list[Checked] = []
        room = GROUP_ENTRIES_MAX
        while self._checked and room >= INGEST_ENTRIES_MAX:
            checked.append(self._checked.popleft())
            room -= len(checked[-1].item.entries)
        self._checked_entries -= GROUP_ENTRIES_MAX - room
        # There are none if one was refused meanwhile, and all the others come behind it.
        if groups := grouped(checked):
            self._committing = True
            self._commit(groups, self._stored)


def _size(pending: Pending) -> int:
    return len(pending[1].entries)
