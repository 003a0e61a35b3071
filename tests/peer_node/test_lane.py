"""A lane runs jobs in order in a thread, many in one hop, and loses none that has begun."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial

import pytest
import trio
from outcome import Value
from trio.testing import wait_all_tasks_blocked

from peer.node.host.lane import JOBS_MAX, Came, Gathering, Job, Lane, Settle

from .support import PATIENCE_S

WHO: ContextVar[str] = ContextVar("who", default="nobody")


class Hops:
    """Stands in for threads: runs at once, tells of it in a later pass, and counts."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, work: Callable[[], list[Settle]], came: Came) -> None:
        outcomes = work()
        self.sizes.append(len(outcomes))
        trio.lowlevel.current_trio_token().run_sync_soon(came, Value(outcomes))


@asynccontextmanager
async def running(lane: Lane) -> AsyncIterator[Lane]:
    async with trio.open_nursery() as nursery:
        await nursery.start(lane.run)
        yield lane
        nursery.cancel_scope.cancel()


async def run_until_it_ends(lane: Lane, last: Job) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(lane):
            lane.put(last)
            lane.begin()
            lane.begin()
            await trio.sleep_forever()


def job(done: list[int], number: int) -> Job:
    return Job(lambda: partial(done.append, number), lambda error: done.append(-number))


async def test_jobs_are_settled_in_the_order_in_which_they_were_put() -> None:
    done: list[int] = []
    async with running(Lane()) as lane:
        for number in range(200):
            lane.put(job(done, number))
        await lane.wait_idle()
    assert done == list(range(200))


async def test_what_waits_goes_over_in_one_hop_up_to_a_limit() -> None:
    hops, done = Hops(), list[int]()
    async with running(Lane(start=hops)) as lane:
        for number in range(JOBS_MAX + 10):
            lane.put(job(done, number))
        await lane.wait_idle()
    assert hops.sizes == [JOBS_MAX, 10]


async def test_what_has_begun_at_once_waits_for_no_other_task() -> None:
    hops, done = Hops(), list[int]()
    async with running(Lane(start=hops)) as lane:
        lane.put(job(done, 1))
        lane.put(job(done, 2))
        assert hops.sizes == []
        lane.begin()
        assert hops.sizes == [2]
        lane.put(job(done, 3))
        lane.begin()
        assert hops.sizes == [2], "one hop at a time"
        await lane.wait_idle()
    assert done == [1, 2, 3]
    assert hops.sizes == [2, 1]


class Steps(trio.abc.Instrument):
    """Counts the steps of the task that runs a lane."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == "peer.node.host.lane.Lane.run"


async def test_who_puts_and_begins_wakes_no_task() -> None:
    hops, done, steps = Hops(), list[int](), Steps()
    gathering = Gathering()
    async with running(Lane(start=hops, gathering=gathering)) as lane:
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        gathering.is_on = True
        for number in (1, 2):
            lane.put(job(done, number))
        await wait_all_tasks_blocked()
        assert hops.sizes == []
        gathering.is_on = False
        lane.begin()
        await lane.wait_idle()
        lane.put_now(job(done, 3))
        assert hops.sizes == [2, 1]
        await lane.wait_idle()
        assert steps.count == 0
        lane.put(job(done, 4))
        await lane.wait_idle()
        trio.lowlevel.remove_instrument(steps)
    assert done == [1, 2, 3, 4]
    assert steps.count == 1


async def test_outcomes_are_settled_in_the_context_of_who_runs_the_lane() -> None:
    seen: list[str] = []
    WHO.set("who runs it")
    async with running(Lane()) as lane:
        WHO.set("who puts the job")
        lane.put(Job(lambda: lambda: seen.append(WHO.get()), lambda error: None))
        await lane.wait_idle()
    assert seen == ["who runs it"]


@pytest.mark.parametrize("fault", [ZeroDivisionError(), SystemExit(3)])
async def test_what_an_outcome_raises_ends_the_lane(fault: BaseException) -> None:
    done: list[int] = []

    def settle() -> None:
        raise fault

    lane = Lane()
    with pytest.raises(BaseExceptionGroup) as raised:
        await run_until_it_ends(lane, Job(lambda: settle, lambda error: None))
    assert raised.value.exceptions == (fault,)
    lane.put(job(done, 1))
    await lane.finish()
    assert done == [1]


async def test_without_a_thread_to_have_the_lane_ends() -> None:
    tried: list[int] = []

    def none_left(work: object, came: object) -> None:
        tried.append(1)
        raise RuntimeError("can't start new thread")

    lane = Lane(start=none_left)
    for number in range(JOBS_MAX):
        lane.put(job([], number))
    with pytest.raises(BaseExceptionGroup) as raised:
        await run_until_it_ends(lane, job([], JOBS_MAX))
    assert [str(error) for error in raised.value.exceptions] == ["can't start new thread"]
    assert tried == [1], "nothing is begun behind what ends it"


async def test_a_job_that_raises_is_told_so_and_the_others_are_done() -> None:
    done: list[int] = []

    def fail() -> Settle:
        raise ValueError

    async with running(Lane()) as lane:
        lane.put(job(done, 1))
        lane.put(Job(fail, lambda error: done.append(type(error) is ValueError)))
        lane.put(job(done, 2))
        await lane.wait_idle()
    assert done == [1, True, 2]


async def test_a_call_returns_the_result_or_raises_the_exception() -> None:
    async with running(Lane()) as lane:
        assert await lane.call(lambda: 5) == 5
        assert await lane.call(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await lane.call(lambda: 1 // 0)


async def test_what_a_cancelled_caller_asked_for_is_done_all_the_same() -> None:
    done: list[int] = []
    async with running(Lane()) as lane:
        with trio.CancelScope() as scope:
            scope.cancel()
            await lane.call(lambda: done.append(1))
        assert scope.cancelled_caught
        await lane.wait_idle()
    assert done == [1]


async def test_a_lane_that_is_cancelled_waits_for_the_job_that_runs() -> None:
    entered, leave, done = threading.Event(), threading.Event(), list[int]()

    def work() -> Settle:
        entered.set()
        leave.wait()
        return lambda: done.append(1)

    async with trio.open_nursery() as nursery:
        lane = Lane()
        await nursery.start(lane.run)
        lane.put(Job(work, lambda error: None))
        await trio.to_thread.run_sync(entered.wait)
        assert not lane.idle
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert done == []
            leave.set()
    assert done == [1]


async def test_a_call_after_the_end_says_so() -> None:
    async with running(Lane(start=Hops())) as lane:
        assert await lane.call(lambda: 7) == 7
    with pytest.raises(RuntimeError, match="has ended"):
        await lane.call(lambda: 7)


async def test_who_is_cancelled_with_the_lane_is_cancelled() -> None:
    for _ in range(50):
        lane = Lane(start=Hops())
        async with trio.open_nursery() as nursery:
            await nursery.start(lane.run)
            for _ in range(3):
                nursery.start_soon(lane.call, lambda: None)
            nursery.cancel_scope.cancel()


async def test_results_are_heeded_in_order_though_who_called_has_gone() -> None:
    heeded: list[int] = []
    hops, gone = Hops(), trio.CancelScope()

    async def call(lane: Lane, number: int) -> None:
        await lane.call(lambda: number, heeded.append)

    async def leave(lane: Lane) -> None:
        with gone:
            await call(lane, 1)

    lane = Lane(start=hops)
    async with trio.open_nursery() as nursery:
        for begin in (partial(call, lane, 0), partial(leave, lane), partial(call, lane, 2)):
            nursery.start_soon(begin)
            await wait_all_tasks_blocked()
        gone.cancel()
        await wait_all_tasks_blocked()
        async with running(lane):
            await lane.wait_idle()
    assert heeded == [0, 1, 2]
    assert hops.sizes == [3]
