"""A thread for blocking work, with a queue: everything that waits goes over in one hop.

Way and return cost about 100 microseconds, so a lane takes all jobs that are there (up to
`JOBS_MAX`) at once, runs them in order in one thread, and hands the outcomes back in order. A job
that has begun is never abandoned: cancelling a lane waits for the thread (half a transaction must
not stay behind). Jobs of one account are done in order; whose are done first `fairness.py` says.

What is put into a lane at rest goes over in the next pass of the event loop, together with what
else is put in this one; or at once, when whoever has put it has put all and calls `begin`. What
comes while a hop is under way waits for its end. No task of the lane is needed for either: it only
begins what nobody has begun, watches the time, and raises what has gone wrong. Nor is it woken
where somebody begins anyway (`Gathering`, `put_now`): a task that wakes up to find nothing to do
costs a sixth of a hop.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from msgspec import Struct

from peer.node.fairness import Account, Line

from .hop import in_thread

if TYPE_CHECKING:
    from outcome import Outcome

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
Came = Callable[["Outcome[list[Settle]]"], object]
"""Called in the event loop with what has come of a hop."""
Start = Callable[[Callable[[], list[Settle]], Came], None]
"""Begins to run a blocking function where it blocks nobody: in a thread, or in a test on the spot.
The outcome is told in a later pass of the event loop."""


class Job(Struct, frozen=True):
    """Something to do in the thread. Both outcomes are settled in the event loop.

    `work` returns what is to be called there when it is done; `failed` gets its exception.
    """

    work: Callable[[], Settle]
    failed: Callable[[Exception], None]


class Gathering(Struct):
    """Lanes of one owner, who puts jobs into several of them and begins them when all are put."""

    is_on: bool = False


class Lane:
    """Runs jobs in a thread, one after another."""

    def __init__(
        self,
        *,
        start: Start = in_thread,
        settled: Callable[[], None] | None = None,
        contested_max: int = JOBS_CONTESTED_MAX,
        gathering: Gathering | None = None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`settled` is called in the event loop behind the outcomes of one hop. `contested_max`:
        what goes over in one where several wait; more where all jobs are short. `gathering`: while
        that is on, what is put is begun with by its owner. `around`: what the thread does all jobs
        of a hop inside of; where it fails, those fail that were not done."""
        self._start = start
        self._settled = settled
        self._contested_max = contested_max
        self.gathering = gathering or Gathering()
        self._around = around
        self._own = Account()
        """Of what the node does for itself: never charged, and before all others."""
        self._jobs = Line[Job](self._own)
        self._context = Context()
        """Of who runs the lane: what he has set in it is so for whoever hears of an outcome."""
        self._wakes = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._came_back = trio.lowlevel.ParkingLot()
        self._runs = False
        """Whether it may begin anything by itself."""
        self._running = False
        """Whether a hop is under way."""
        self.is_due = False
        """Whether `begin` may have something to begin: cheaper to ask, where eight lanes are."""
        self._fault: BaseException | None = None
        """What ends the lane."""
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
        if not self._running:
            self.is_due = True
            if not self.gathering.is_on:
                self._wakes.unpark()

    def put_now(self, job: Job) -> None:
        """As `put` for the node itself, then `begin`."""
        self._jobs.put(self._own, job)
        self.begin()

    def begin(self) -> None:
        """Takes what waits over now, if nothing is under way; else it goes behind that."""
        if self._begin() is not None:
            # Whoever has something to be done meanwhile does not wait for that.
            self._wakes.unpark()

    def _begin(self) -> float | None:
        """As `begin`; returns when it can, if all that waits has to rest until then."""
        if self._running or not self._runs or not self._jobs or self._fault is not None:
            return None
        now = trio.current_time()
        if (until_s := self._jobs.rests_until_s(now)) > now:
            return until_s
        self._hop(now)
        return None

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
        self.put_now(Job(tell, fail))
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
        self._context = copy_context()
        self._runs = True
        try:
            task_status.started()
            await self._watch()
        finally:
            self._runs = False
            try:
                await self._until_settled()
            finally:
                self._is_over = True
                for fail in list(self._callers):
                    fail(_ended())

    async def finish(self) -> None:
        """Does what a lane that has ended was still given, before or behind its end."""
        self._context = copy_context()
        while self._jobs:
            self._hop(trio.current_time())
            await self._until_settled()

    async def _watch(self) -> None:
        """Begins what nobody has begun, and what had to rest."""
        while True:
            self._raise_fault()
            until_s = self._begin()
            if until_s is None:
                # It is woken for each hop, and a scope takes four times as long as all the rest.
                await self._wakes.park()
            else:
                with trio.move_on_at(until_s):
                    await self._wakes.park()

    async def _until_settled(self) -> None:
        """Shielded: what was taken out of the queue is done, and its outcome is heard of."""
        with trio.CancelScope(shield=True):
            while self._running:
                await self._came_back.park()
        self._raise_fault()

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _hop(self, now: float) -> None:
        """Takes some of what waits over to the thread."""
        most = JOBS_MAX if self._jobs.accounts == 1 else self._contested_max
        jobs: list[Job] = []
        accounts: list[Account] = []
        while self._jobs and len(jobs) < most:
            if jobs and self._jobs.rests(now):
                break
            account, taken = self._jobs.take(now, most - len(jobs))
            jobs += taken
            accounts += [account] * len(taken)
        seconds: list[float] = []

        def came(result: "Outcome[list[Settle]]") -> None:
            self._context.run(self._came, accounts, seconds, result)

        self._running, self.is_due = True, False
        try:
            self._start(partial(_do_all, self._around, jobs, seconds), came)
        except Exception as error:  # noqa: BLE001 - it ends the lane, and not who asked for a job
            self._running = False
            self._fault = error
            self._wakes.unpark()

    def _came(
        self, accounts: list[Account], seconds: list[float], result: "Outcome[list[Settle]]"
    ) -> None:
        """What has come of a hop; goes on to what has been queued meanwhile."""
        try:
            outcomes = result.unwrap()
            self._charge(accounts, seconds)
            self._settle(outcomes)
        except BaseException as error:  # noqa: BLE001 - the task raises it: here it would end Trio
            self._fault = error
            self._wakes.unpark()
        self._running = False
        self._came_back.unpark_all()
        self.begin()
        if self.idle:
            self._drained.unpark_all()

    def _charge(self, accounts: list[Account], seconds: list[float]) -> None:
        """Each once: most hops are of one account, and a charge costs as much as a small job."""
        now = trio.current_time()
        costs: dict[Account, float] = {}
        for account, cost in zip(accounts, seconds, strict=True):
            costs[account] = costs.get(account, 0.0) + cost
        costs.pop(self._own, None)
        for account, cost in costs.items():
            account.charge(cost, now)

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
