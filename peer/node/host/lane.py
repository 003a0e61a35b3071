"""A thread for blocking work, with a queue: everything that waits goes over in one hop.

Way and return cost about 100 microseconds, so a lane takes all jobs that are there (up to
`JOBS_MAX`) at once, runs them in order in one thread, and hands the outcomes back in order. A job
that has begun is never abandoned: cancelling a lane waits for the thread (half a transaction must
not stay behind).
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import trio

T = TypeVar("T")

JOBS_MAX: Final = 16
"""What goes over in one hop at most.

More would have two hosts wait for each other: each thinks of what came while the other one reads
what that brings up. With 64, which is what a peer may propose at a time, 2,000 logs in step took a
fifth longer.
"""


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
    owner: object = None
    """Whose turn it takes."""


class _Waiting:
    """Jobs that wait, an owner's behind each other, and the owners in turn."""

    def __init__(self) -> None:
        self._of: dict[object, deque[Job]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __bool__(self) -> bool:
        return bool(self._of)

    def put(self, job: Job) -> None:
        self._of.setdefault(job.owner, deque()).append(job)

    def take(self, jobs_max: int) -> list[Job]:
        """The next ones; whoever has had a turn goes to the end of the line."""
        taken: list[Job] = []
        while self._of and len(taken) < jobs_max:
            owner = next(iter(self._of))
            jobs = self._of.pop(owner)
            taken.append(jobs.popleft())
            if jobs:
                self._of[owner] = jobs
        return taken


class Lane:
    """Runs jobs in a thread, one after another, in the order given or in turns of their owners."""

    def __init__(
        self, *, run_sync: RunSync | None = None, settled: Callable[[], None] | None = None
    ) -> None:
        """`settled` is called in the event loop behind the outcomes of one hop."""
        limiter = trio.CapacityLimiter(1)
        self._run_sync = run_sync or partial(trio.to_thread.run_sync, limiter=limiter)
        self._settled = settled
        self._jobs = _Waiting()
        self._waiting = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._running = False
        self._callers: set[Callable[[Exception], None]] = set()
        """Who waits for the outcome of a call."""
        self._is_over = False

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        return not self._jobs and not self._running

    def put(self, job: Job) -> None:
        """Queues a job."""
        self._jobs.put(job)
        self._waiting.unpark()

    async def call(self, work: Callable[[], T]) -> T:
        """Runs `work` in its turn and returns its result, or raises what it raised.

        When the caller is cancelled the work is done all the same, or will be. Raises
        RuntimeError if the lane runs no more, or ends before the turn has come.
        """
        if self._is_over:
            await trio.lowlevel.checkpoint_if_cancelled()
            raise _ended()
        results: list[T] = []
        errors: list[Exception] = []
        finished = trio.Event()

        def tell() -> Settle:
            results.append(work())
            return finished.set

        def fail(error: Exception) -> None:
            errors.append(error)
            finished.set()

        self._callers.add(fail)
        self.put(Job(tell, fail))
        try:
            await finished.wait()
        finally:
            self._callers.discard(fail)
        if errors:
            # What ended the lane may have cancelled the caller as well, and that comes first.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise errors[0]
        return results[0]

    async def wait_idle(self) -> None:
        """Returns once nothing is queued or running."""
        while not self.idle:
            await self._drained.park()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the lane until cancelled."""
        task_status.started()
        try:
            await self._run()
        finally:
            self._is_over = True
            for fail in list(self._callers):
                fail(_ended())

    async def finish(self) -> None:
        """Does what a lane that has ended was still given, before or behind its end."""
        while self._jobs:
            await self._do_some()

    async def _run(self) -> None:
        while True:
            while not self._jobs:
                await self._waiting.park()
            await self._do_some()
            if self.idle:
                self._drained.unpark_all()

    async def _do_some(self) -> None:
        jobs = self._jobs.take(JOBS_MAX)
        self._running = True
        try:
            # Shielded: what was taken out of the queue is done, and its outcome is heard of.
            with trio.CancelScope(shield=True):
                outcomes = await self._run_sync(partial(_do_all, jobs))
        finally:
            self._running = False
        self._settle(outcomes)

    def _settle(self, outcomes: list[Settle]) -> None:
        for settle in outcomes:
            settle()
        if self._settled is not None:
            self._settled()


def _ended() -> RuntimeError:
    return RuntimeError("the node has ended, and does nothing any more")


def _do_all(jobs: list[Job]) -> list[Settle]:
    outcomes: list[Settle] = []
    for job in jobs:
        try:
            outcomes.append(job.work())
        except Exception as error:  # noqa: BLE001 - the job's owner judges it
            outcomes.append(partial(job.failed, error))
    return outcomes
