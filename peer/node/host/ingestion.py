"""Received entries on their way to disk: signatures in batches, then transactions in groups.

    sessions' queues -> batches at the verifier -> checked, in order -> one transaction

Who has had least of late comes first (`fairness.py`), so that nobody waits for another's backlog.
Within a session everything stays in order: what an entry links to is held, or came before it in the
same session. While one group is being committed the next batches are being checked.

A transaction begins as soon as nothing is being checked that could join it; otherwise when it has
256 entries, or 20 ms after its first. So a lone live append waits for nothing.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

import trio
from msgspec import Struct

from peer import IngestItem
from peer.node.fairness import Line

from .groups import Checked, Group, grouped
from .port import Handed, Port
from .verifier import BATCH_ENTRIES_MAX, Verifier
from .worker_process import Ticket

GROUP_ENTRIES: Final = 256
GROUP_ENTRIES_MAX: Final = 1024
GROUP_WAIT_S: Final = 0.02
TURN_ENTRIES: Final = 32
"""What a session may put into a batch before it is the next one's turn."""
ENTRY_S: Final = 30e-6
"""What an entry costs, signature and row, as it is charged. Seconds; only its proportion to what is
measured elsewhere matters, and that little."""

Commit = Callable[[list[Group]], Awaitable[None]]
"""Stores groups durably, tells their sessions, and tells all sessions what changed."""

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
        self._checked_at = 0.0
        self._timer = trio.CancelScope()
        self._committing = False
        self._batch_started = trio.lowlevel.ParkingLot()
        self._batch_checked = trio.lowlevel.ParkingLot()
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
            handed.items += len(some)
            self._line.put(port.account, *((handed, item) for item in some))
        self._dispatch()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Collects verdicts and commits until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._collect)
            nursery.start_soon(self._store)
            nursery.start_soon(self._go_on)
            task_status.started()

    # To the verifier

    def _dispatch(self) -> None:
        """Starts batches as long as workers could be idle and the disk keeps up.

        Of those who rest nothing is begun: what was checked is stored, and everybody told of it.
        """
        while (
            self._may_begin()
            and len(self._batches) < self._verifier.in_flight_max
            and len(self._checked) < GROUP_ENTRIES_MAX
        ):
            entries = self._next_batch()
            if entries:
                self._batches.append(_Batch(entries, self._begin_checking(entries)))
                self._batch_started.unpark()

    def _begin_checking(self, entries: list[Pending]) -> Ticket:
        # Where only a payload comes, its entry is held, or stands before it in the same request:
        # its signature was checked then, or is, and what it is refused for goes for the payload.
        new = [item.encoded for _, item in entries if item.is_new]
        if new:
            return self._verifier.start(new)
        nothing = Ticket(new)
        nothing.resolve(b"")
        return nothing

    def _may_begin(self) -> bool:
        """Whether something waits whose turn it may be; else `_go_on` asks when that is so."""
        if not self._line:
            return False
        now = self._now()
        if (until_s := self._line.rests_until_s(now)) > now:
            self._timer.deadline = until_s
            return False
        return True

    async def _go_on(self) -> None:
        """Begins what had to rest."""
        while True:
            with trio.CancelScope() as self._timer:
                self._dispatch()
                await trio.sleep_forever()

    def _next_batch(self) -> list[Pending]:
        entries: list[Pending] = []
        now = self._now()
        while self._line and len(entries) < BATCH_ENTRIES_MAX:
            if entries and self._line.rests(now):
                break
            room = BATCH_ENTRIES_MAX - len(entries)
            share = min(room, TURN_ENTRIES) if self._line.accounts > 1 else room
            account, waiting = self._line.take(now, share)
            wanted = [pending for pending in waiting if not pending[0].refused]
            account.charge(len(wanted) * ENTRY_S, now)
            entries += wanted
        return entries

    async def _collect(self) -> None:
        """Takes the verdicts in the order of the batches."""
        while True:
            while not self._batches:
                await self._batch_started.park()
            batch = self._batches[0]
            await batch.ticket.done.wait()
            if not self._checked:
                self._checked_at = trio.current_time()
            self._take_verdicts(batch)
            self._batches.popleft()
            self._dispatch()
            self._batch_checked.unpark()

    def _take_verdicts(self, batch: _Batch) -> None:
        ticket = batch.ticket
        if len(ticket.verdicts) != len(ticket.entries):
            raise ValueError(f"{len(ticket.verdicts)} verdicts on {len(ticket.entries)} entries")
        verdicts = iter(ticket.verdicts)
        for handed, item in batch.entries:
            self._checked.append(Checked(handed, item, not item.is_new or bool(next(verdicts))))

    # To the disk

    async def _store(self) -> None:
        while True:
            await self._wait_for_group()
            count = min(len(self._checked), GROUP_ENTRIES_MAX)
            groups = grouped(self._checked.popleft() for _ in range(count))
            self._committing = True
            try:
                if groups:
                    # A commit is never left half way, and its sessions hear of it.
                    with trio.CancelScope(shield=True):
                        await self._commit(groups)
            finally:
                self._committing = False
            self._dispatch()
            if self.idle:
                self._drained.unpark_all()

    async def _wait_for_group(self) -> None:
        while len(self._checked) < GROUP_ENTRIES:
            wait_s = float("inf")
            if self._checked:
                wait_s = self._checked_at + GROUP_WAIT_S - trio.current_time()
                if not self._batches or wait_s <= 0:
                    break
            with trio.move_on_after(wait_s):
                await self._batch_checked.park()
