"""Checks signatures on all cores: batches of entries for threads, or for worker processes.

With the native core they go to threads that never take the interpreter's lock (verify_threads.py).

Without it a signature costs 46 microseconds of somebody's core, and threads do not help: beside a
busy event loop a verifying thread waits a whole switch interval for the lock after each call. So
the work goes to processes, as plain bytes over pipes (verify_worker.py): nothing is forked and
nothing of the host program is imported again. Workers are started when work is waiting and end when
they were idle for a while. One that dies is replaced, and what it had not answered is done again.

A few entries while nothing is waiting, the live appends of other peers, are checked on the spot,
which is faster than the way there and back.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from wire import NATIVE, NativeCore, signatures_are_valid

from .verify_threads import VerifyThreads
from .worker_process import IN_WORKER_MAX, Ticket, TicketQueue, WorkerProcess

log = logging.getLogger(__name__)

BATCH_ENTRIES_MAX: Final = 128
# On the spot: so many while workers run, and while none does, for a start takes 70 ms. Threads
# start at once, and with the native core twice as many take no longer.
INLINE_ENTRIES_MAX: Final = 8
NATIVE_ENTRIES_MAX: Final = 16
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

    `workers` is the largest number of threads of the native `core`, or without one of processes,
    one for each core of the machine unless given; with 0 everything is checked in the event loop, a
    few entries at a time. A process ends after `idle_s` seconds without work.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        idle_s: float = 30.0,
        core: NativeCore | None = NATIVE,
    ) -> None:
        self.workers_max = default_workers() if workers is None else workers
        if core is None and not sys.executable:
            # Embedded in a program that says nothing of where Python is.
            self.workers_max = 0
        self._core = core if self.workers_max else None
        self._threads: VerifyThreads | None = None
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
            ticket.resolve(signatures_are_valid(entries))
            return ticket
        if self._threads is None or not self._threads.submit(ticket):
            self._queue.put(ticket)
            self._start_worker()
        return ticket

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the threads or the processes until cancelled.

        Raises SignatureLibraryError, in a group, if a worker's signature library fails its test.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await self._start_threads(nursery)
                self._start_worker()
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None
                self._threads = None

    async def _start_threads(self, nursery: trio.Nursery) -> None:
        """Hands what waits to threads, if there can be some."""
        if self._core is None:
            return
        try:
            threads = VerifyThreads(self._core, self.workers_max)
        except OSError as error:
            log.warning("cannot start verification threads: %s", error)
            return
        await nursery.start(threads.run)
        while self._queue.waiting and threads.submit(self._queue.waiting[0]):
            self._queue.waiting.popleft()
        self._threads = threads

    def _may_check_inline(self, count: int) -> bool:
        entries_max = INLINE_ENTRIES_MAX if self.workers else COLD_ENTRIES_MAX
        if self._core is not None:
            entries_max = NATIVE_ENTRIES_MAX
        if count > entries_max or self._queue.waiting or self._queue.at_work:
            return False
        if self._threads is not None and self._threads.at_work:
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


async def check_in_slices(ticket: Ticket) -> None:
    """Checks a batch in the event loop, letting other tasks run in between."""
    verdicts = b""
    for i in range(0, len(ticket.entries), INLINE_ENTRIES_MAX):
        verdicts += signatures_are_valid(ticket.entries[i : i + INLINE_ENTRIES_MAX])
        await trio.lowlevel.checkpoint()
    ticket.resolve(verdicts)
