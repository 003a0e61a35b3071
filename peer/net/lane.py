"""A thread for blocking work, with a queue: everything that waits goes over in one hop.

Way and return cost about 100 microseconds, so a lane takes all jobs that are there (up to
`batch_max`) at once, runs them in order in one thread, and hands the outcomes back in order. A job
that has begun is never abandoned: cancelling a lane waits for the thread (half a transaction must
not stay behind).
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import trio

T = TypeVar("T")


Settle = Callable[[], None]
RunSync = Callable[[Callable[[], list[Settle]]], Awaitable[list[Settle]]]
"""Runs a blocking function where it blocks nobody: a thread, or, in a test, on the spot."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do in the thread. Both outcomes are settled in the event loop.

    `work` returns what is to be called there when it is done; `failed` gets its exception.
    """

    work: Callable[[], Settle]
    failed: Callable[[Exception], None]


class Lane:
    """Runs jobs in threads, at most `threads` at a time; with one thread, strictly in order."""

    def __init__(
        self, *, threads: int = 1, batch_max: int = 64, run_sync: RunSync | None = None
    ) -> None:
        self._threads = threads
        self._batch_max = batch_max
        limiter = trio.CapacityLimiter(threads)
        self._run_sync = run_sync or partial(trio.to_thread.run_sync, limiter=limiter)
        self._jobs: deque[Job] = deque()
        self._waiting = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._running = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        return not self._jobs and not self._running

    def put(self, job: Job) -> None:
        """Queues a job."""
        self._jobs.append(job)
        self._waiting.unpark()

    async def call(self, work: Callable[[], T]) -> T:
        """Runs `work` in its turn and returns its result, or raises what it raised.

        When the caller is cancelled the work is done all the same, or will be.
        """
        results: list[T] = []
        errors: list[Exception] = []
        finished = trio.Event()

        def tell() -> Settle:
            results.append(work())
            return finished.set

        def fail(error: Exception) -> None:
            errors.append(error)
            finished.set()

        self.put(Job(tell, fail))
        await finished.wait()
        if errors:
            raise errors[0]
        return results[0]

    async def wait_idle(self) -> None:
        """Returns once nothing is queued or running."""
        while not self.idle:
            await self._drained.park()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the lane until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._threads):
                nursery.start_soon(self._serve)
            task_status.started()

    async def _serve(self) -> None:
        while True:
            while not self._jobs:
                await self._waiting.park()
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), self._batch_max))]
            self._running += 1
            try:
                # Shielded: what was taken out of the queue is done, and its outcome is heard of.
                with trio.CancelScope(shield=True):
                    outcomes = await self._run_sync(partial(_do_all, jobs))
            finally:
                self._running -= 1
            for settle in outcomes:
                settle()
            if self.idle:
                self._drained.unpark_all()


def _do_all(jobs: list[Job]) -> list[Settle]:
    outcomes: list[Settle] = []
    for job in jobs:
        try:
            outcomes.append(job.work())
        except Exception as error:  # noqa: BLE001 - the job's owner judges it
            outcomes.append(partial(job.failed, error))
    return outcomes
