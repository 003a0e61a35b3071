"""A thread for blocking work, with a queue: everything that waits goes over in one hop.

Way and return cost about 100 microseconds, so a lane takes all jobs that are there (up to
`JOBS_MAX`) at once, runs them in order in one thread, and hands the outcomes back in order. A job
that has begun is never abandoned: cancelling a lane waits for the thread (half a transaction must
not stay behind). Jobs of one account are done in order; whose are done first `fairness.py` says.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import Final, TypeVar

import trio
from msgspec import Struct

from peer.node.fairness import Account, Line

from .hop import in_thread

T = TypeVar("T")

JOBS_MAX: Final = 16
"""What goes over in one hop at most.

More would have two hosts wait for each other: each thinks of what came while the other one reads
what that brings up. With 64, which is what a peer may propose at a time, 2,000 logs in step took a
fifth longer.
"""
JOBS_CONTESTED_MAX: Final = 4
"""Where several wait: who has had least waits for no more jobs of others than these."""


Settle = Callable[[], None]
RunSync = Callable[[Callable[[], list[Settle]]], Awaitable[list[Settle]]]
"""Runs a blocking function where it blocks nobody: a thread, or, in a test, on the spot."""


class Job(Struct, frozen=True):
    """Something to do in the thread. Both outcomes are settled in the event loop.

    `work` returns what is to be called there when it is done; `failed` gets its exception.
    """

    work: Callable[[], Settle]
    failed: Callable[[Exception], None]


class Lane:
    """Runs jobs in a thread, one after another."""

    def __init__(
        self,
        *,
        run_sync: RunSync | None = None,
        settled: Callable[[], None] | None = None,
        contested_max: int = JOBS_CONTESTED_MAX,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`settled` is called in the event loop behind the outcomes of one hop. `contested_max`:
        what goes over in one where several wait; more where all jobs are short. `around`: what the
        thread does all jobs of a hop inside of; where it fails, those fail that were not done."""
        self._run_sync = run_sync or in_thread
        self._settled = settled
        self._contested_max = contested_max
        self._around = around
        self._own = Account()
        """Of what the node does for itself: never charged, and before all others."""
        self._jobs = Line[Job](self._own)
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

    def put(self, job: Job, account: Account | None = None) -> None:
        """Queues a job, for an account or for the node itself."""
        self._jobs.put(account or self._own, job)
        self._waiting.unpark()

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls `then`, in the event loop, once all that was queued until now is done."""
        left = 1  # behind what is running

        def reached() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        def failed(_: Exception) -> None:
            reached()

        left += self._jobs.put_behind_all(lambda: Job(lambda: reached, failed))
        self.put(Job(lambda: reached, failed))

    async def call(self, work: Callable[[], T], heed: Callable[[T], None] | None = None) -> T:
        """Runs `work` in its turn and returns its result, or raises what it raised.

        When the caller is cancelled the work is done all the same, or will be. `heed` is called
        with the result in the event loop, in the lane's order and though the caller was cancelled:
        of callers that wait for one hop the last may go on first. Raises RuntimeError if the lane
        runs no more, or ends before the turn has come.
        """
        if self._is_over:
            await trio.lowlevel.checkpoint_if_cancelled()
            raise _ended()
        results: list[T] = []
        errors: list[Exception] = []
        finished = trio.Event()

        def tell() -> Settle:
            results.append(work())
            return done

        def done() -> None:
            if heed is not None:
                heed(results[0])
            finished.set()

        def fail(error: Exception) -> None:
            errors.append(error)
            finished.set()

        self._callers.add(fail)
        self.put(Job(tell, fail))
        try:
            await finished.wait()
        finally:
            self._callers.discard(fail)
        # The lane may have ended since: what was done before was done all the same.
        if errors and not results:
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
            now = trio.current_time()
            if (until_s := self._jobs.rests_until_s(now)) > now:
                # Whoever has something to be done meanwhile does not wait for that.
                with trio.move_on_at(until_s):
                    await self._waiting.park()
                continue
            await self._do_some()
            if self.idle:
                self._drained.unpark_all()

    async def _do_some(self) -> None:
        most = JOBS_MAX if self._jobs.accounts == 1 else self._contested_max
        jobs: list[Job] = []
        accounts: list[Account] = []
        now = trio.current_time()
        while self._jobs and len(jobs) < most:
            if jobs and self._jobs.rests(now):
                break
            account, taken = self._jobs.take(now, most - len(jobs))
            jobs += taken
            accounts += [account] * len(taken)
        seconds: list[float] = []
        self._running = True
        try:
            # Shielded: what was taken out of the queue is done, and its outcome is heard of.
            with trio.CancelScope(shield=True):
                outcomes = await self._run_sync(partial(_do_all, self._around, jobs, seconds))
        finally:
            self._running = False
        now = trio.current_time()
        # Once for each account: most hops are of one, and a charge costs as much as a small job.
        costs: dict[Account, float] = {}
        for account, cost in zip(accounts, seconds, strict=True):
            costs[account] = costs.get(account, 0.0) + cost
        costs.pop(self._own, None)
        for account, cost in costs.items():
            account.charge(cost, now)
        self._settle(outcomes)

    def _settle(self, outcomes: list[Settle]) -> None:
        for settle in outcomes:
            settle()
        if self._settled is not None:
            self._settled()


class EndedError(RuntimeError):
    """A lane runs no more. That is never why a node ends: something else has ended the lane."""


def _ended() -> EndedError:
    return EndedError("the node has ended, and does nothing any more")


def _do_all(
    around: Callable[[], AbstractContextManager[None]], jobs: list[Job], seconds: list[float]
) -> list[Settle]:
    """What came of each, and into `seconds` how long it took."""
    outcomes: list[Settle] = []
    try:
        with around():
            for job in jobs:
                began = perf_counter()
                try:
                    outcomes.append(job.work())
                except Exception as error:  # noqa: BLE001 - the job's owner judges it
                    outcomes.append(partial(job.failed, error))
                seconds.append(perf_counter() - began)
    except Exception as error:  # noqa: BLE001 - as above
        left = jobs[len(outcomes) :]
        outcomes += [partial(job.failed, error) for job in left]
        seconds += [0.0] * len(left)
    return outcomes
