"""Checks signatures on all cores: batches of entries for worker processes.

A signature costs 46 microseconds of somebody's core. Threads do not help: beside a busy event loop
a verifying thread waits a whole switch interval for the interpreter lock after each call. So the
work goes to processes, as plain bytes over pipes (verify_worker.py): nothing is forked and nothing
of the host program is imported again.

Workers are started when work is waiting and end when they were idle for a while. One that dies is
replaced, and what it had not answered is done again. A few entries while nothing is waiting, the
live appends of other peers, are checked on the spot, which is faster than the way there and back.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from wire import signature_is_valid

from .worker_process import IN_WORKER_MAX, Ticket, TicketQueue, WorkerProcess

log = logging.getLogger(__name__)

BATCH_ENTRIES_MAX: Final = 128
# On the spot: so many while workers run, and while none does, for a start takes 70 ms.
INLINE_ENTRIES_MAX: Final = 8
COLD_ENTRIES_MAX: Final = 32
# In the long run a twentieth of a core.
INLINE_BUCKET: Final = 64.0
INLINE_REFILL_PER_S: Final = 1000.0
CRASHES_MAX: Final = 2
RETRY_PAUSE_S: Final = 0.5


def default_workers() -> int:
    """One process for each core that this one may run on, at least two."""
    return max(2, len(os.sched_getaffinity(0)))


class Verifier:
    """Checks batches of entries; `run` has to be running for those not checked on the spot.

    `workers` is the largest number of processes, one for each core unless given; with 0 everything
    is checked in the event loop, a few entries at a time. A worker ends after `idle_s` seconds
    without work.
    """

    def __init__(self, workers: int | None = None, *, idle_s: float = 30.0) -> None:
        self.workers_max = default_workers() if workers is None else workers
        if not sys.executable:  # embedded in a program that says nothing of where Python is
            self.workers_max = 0
        self.workers = 0
        self.crashes = 0
        self._idle_s = idle_s
        self._queue = TicketQueue()
        self._inline_left = INLINE_BUCKET
        self._inline_at = 0.0
        self._nursery: trio.Nursery | None = None

    @property
    def in_flight_max(self) -> int:
        """How many batches keep every worker busy."""
        return max(1, self.workers_max) * IN_WORKER_MAX + 1

    def start(self, entries: Sequence[bytes]) -> Ticket:
        """Begins to check the encodings of some entries, at most `BATCH_ENTRIES_MAX`."""
        ticket = Ticket(entries)
        if self._may_check_inline(len(entries)):
            ticket.resolve(check(entries))
            return ticket
        self._queue.put(ticket)
        self._start_worker()
        return ticket

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the workers until cancelled.

        Raises SignatureLibraryError, in a group, if a worker's signature library fails its test.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                self._start_worker()
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _may_check_inline(self, count: int) -> bool:
        if count > (INLINE_ENTRIES_MAX if self.workers else COLD_ENTRIES_MAX):
            return False
        if self._queue.waiting or self._queue.at_work:
            return False
        now = trio.current_time()
        left = self._inline_left + (now - self._inline_at) * INLINE_REFILL_PER_S
        self._inline_left = min(INLINE_BUCKET, left)
        self._inline_at = now
        if self._inline_left < count:
            return False
        self._inline_left -= count
        return True

    def _start_worker(self) -> None:
        """Starts one more worker if those that run do not suffice for what is waiting."""
        if self._nursery is None or not self._queue.waiting:
            return
        wanted = len(self._queue.waiting) + self._queue.at_work
        if self.workers < min(max(self.workers_max, 1), wanted):
            self.workers += 1
            self._nursery.start_soon(self._worker)

    async def _worker(self) -> None:
        """One process after another, or the event loop, until there is no work."""
        try:
            if self.workers_max:
                while await self._one_process():
                    pass
            else:
                while (ticket := await self._queue.take(self._idle_s)) is not None:
                    await check_in_slices(ticket)
        finally:
            self.workers -= 1
        # What came while this one was ending.
        self._start_worker()

    async def _one_process(self) -> bool:
        """Runs one process until it is idle (False) or dies (True)."""
        try:
            worker = await WorkerProcess.start(self._queue, idle_s=self._idle_s)
        except OSError as error:
            log.warning("cannot start a verification process: %s", error)
            await self._do_without()
            return True
        try:
            died = await worker.run()
        finally:
            await worker.stop()
        if died:
            self.crashes += 1
            log.warning("a verification process ended with %s", worker.process.returncode)
            await self._retry(worker.pending)
        return died

    async def _retry(self, unanswered: deque[Ticket]) -> None:
        """What a dead worker left goes to another; what two died of is checked in the loop."""
        if not unanswered:
            # It died before it had anything to do: perhaps the next one does too.
            await self._do_without()
        for ticket in reversed(unanswered):
            ticket.crashes += 1
            if ticket.crashes < CRASHES_MAX:
                self._queue.put(ticket, first=True)
            else:
                await check_in_slices(ticket)

    async def _do_without(self) -> None:
        """No process can be had now: checks one batch in the loop, then lets another try."""
        if self._queue.waiting:
            await check_in_slices(self._queue.waiting.popleft())
        else:
            await trio.sleep(RETRY_PAUSE_S)


def check(entries: Sequence[bytes]) -> bytes:
    """The verdicts on some entries, at once."""
    return bytes(signature_is_valid(encoded) for encoded in entries)


async def check_in_slices(ticket: Ticket) -> None:
    """Checks a batch in the event loop, letting other tasks run in between."""
    verdicts = b""
    for i in range(0, len(ticket.entries), INLINE_ENTRIES_MAX):
        verdicts += check(ticket.entries[i : i + INLINE_ENTRIES_MAX])
        await trio.lowlevel.checkpoint()
    ticket.resolve(verdicts)
