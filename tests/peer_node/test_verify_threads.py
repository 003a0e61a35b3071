"""Threads of the native core check batches beside the event loop."""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from nacl.signing import SigningKey

from peer.node.host.verifier import NATIVE_ENTRIES_MAX, Verifier
from peer.node.host.worker_process import WorkerProcess
from tests.peer_node.test_verifier import ALL_VALID, BATCH, running, verdicts
from wire import NATIVE, NATIVE_STATE, NativeCore

needs_core = pytest.mark.skipif(NATIVE is None, reason=f"native core: {NATIVE_STATE}")
SPOILED = [*BATCH[:5], BATCH[5][:-1] + b"\x00", *BATCH[6:]]


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting one is a fault."""

    async def start(*_: object, **__: float) -> WorkerProcess:
        raise AssertionError("a process was started")

    monkeypatch.setattr(WorkerProcess, "start", start)


def core(**changed: object) -> NativeCore:
    """The native core with some of its parts replaced."""
    assert NATIVE is not None
    parts = {name: getattr(NATIVE, name) for name in dir(NATIVE)}
    return cast("NativeCore", SimpleNamespace(**parts | changed))


def threads() -> int:
    """Those that verify, of whatever pool: other threads of this process come and go."""
    names = Path("/proc/self/task").glob("*/comm")
    return sum(_read(name) == "verify\n" for name in names)


def _read(path: Path) -> str:
    with suppress(OSError):  # it has ended since
        return path.read_text()
    return ""


@needs_core
async def test_threads_judge_each_entry_in_order(no_process: None) -> None:
    async with running(Verifier(2)) as verifier:
        tickets = [verifier.start(BATCH), verifier.start(SPOILED), verifier.start(BATCH[:40])]
        assert not any(ticket.done.is_set() for ticket in tickets)
        assert await verdicts(tickets[0]) == ALL_VALID
        assert await verdicts(tickets[1]) == ALL_VALID[:5] + b"\x00" + ALL_VALID[6:]
        assert await verdicts(tickets[2]) == ALL_VALID[:40]


@needs_core
async def test_what_came_before_the_threads_ran_is_checked_by_them(no_process: None) -> None:
    verifier = Verifier(1)
    early = [verifier.start(BATCH), verifier.start(SPOILED)]
    async with running(verifier):
        assert await verdicts(early[0]) == ALL_VALID
        assert (await verdicts(early[1])).count(0) == 1


@needs_core
async def test_a_few_entries_are_checked_on_the_spot_while_nothing_is_at_work() -> None:
    async with running(Verifier(1)) as verifier:
        few = BATCH[:NATIVE_ENTRIES_MAX]
        assert verifier.start(few).verdicts == ALL_VALID[: len(few)]
        larger = verifier.start(BATCH[: NATIVE_ENTRIES_MAX + 1])
        assert not larger.done.is_set()
        # What comes behind it does not overtake it.
        assert not verifier.start(BATCH[:1]).done.is_set()
        await verdicts(larger)


@needs_core
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
async def test_threads_start_with_work_and_end_with_the_verifier() -> None:
    before = threads()
    async with running(Verifier(2)) as verifier:
        assert threads() == before
        tickets = [verifier.start(BATCH) for _ in range(20)]
        for ticket in tickets:
            await verdicts(ticket)
        # They have their name by now, which each gives itself.
        assert before < threads() <= before + 2
    assert threads() == before


@pytest.fixture
def kept_lock() -> Iterator[None]:
    """Nobody is asked to give up the interpreter's lock."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@needs_core
def test_the_threads_never_take_the_interpreter_s_lock(kept_lock: None) -> None:
    pool = core().Pool(2)
    for number in range(8):
        pool.submit(number, BATCH)
    answers: list[tuple[int, bytes | str]] = []
    for _ in range(3000):
        # Nothing here gives up the lock, and the verdicts come all the same.
        sum(range(100_000))
        answers += pool.take()
        if len(answers) == 8:
            break
    pool.close()
    assert sorted(answers) == [(number, ALL_VALID) for number in range(8)]


@needs_core
def test_a_closed_pool_takes_nothing_and_closes_again() -> None:
    pool = core().Pool(1)
    for number in range(50):
        pool.submit(number, BATCH)
    pool.close()
    pool.close()
    with pytest.raises(OSError, match="the pool is closed"):
        pool.submit(50, BATCH)
    with pytest.raises(ValueError, match="a pool needs a thread"):
        core().Pool(0)


class _Faulty:
    """A pool whose every batch ends in a fault."""

    def __init__(self, threads_max: int) -> None:
        assert NATIVE is not None
        self._pool = NATIVE.Pool(threads_max)
        self.fileno = self._pool.fileno
        self.submit = self._pool.submit
        self.close = self._pool.close

    def take(self) -> list[tuple[int, bytes | str]]:
        return [
            (number, "a fault in the native core: on purpose") for number, _ in self._pool.take()
        ]


@needs_core
async def test_a_fault_costs_time_and_no_verdict(
    caplog: pytest.LogCaptureFixture, no_process: None
) -> None:
    async with running(Verifier(1, core=core(Pool=_Faulty))) as verifier:
        for batch, invalid in ((BATCH, 0), (SPOILED, 1)):
            assert (await verdicts(verifier.start(batch))).count(0) == invalid
    assert "on purpose; its batch is checked by libsodium" in caplog.text


@needs_core
async def test_where_no_pool_can_be_had_processes_do_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(_: int) -> None:
        raise OSError(24, "Too many open files")

    async with running(Verifier(1, core=core(Pool=full))) as verifier:
        assert await verdicts(verifier.start(SPOILED)) == ALL_VALID[:5] + b"\x00" + ALL_VALID[6:]
        assert verifier.workers == 1
    assert "cannot start verification threads: [Errno 24] Too many open files" in caplog.text


class _Threadless(_Faulty):
    """A pool for which the system has no thread."""

    def __init__(self, threads_max: int) -> None:
        super().__init__(threads_max)
        self.submit = self._refuse

    def _refuse(self, number: int, entries: list[bytes]) -> None:
        raise OSError(11, "Resource temporarily unavailable")


@needs_core
async def test_where_no_thread_can_be_had_processes_do_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(Verifier(1, core=core(Pool=_Threadless))) as verifier:
        assert await verdicts(verifier.start(BATCH)) == ALL_VALID
    assert "cannot start a verification thread" in caplog.text


@needs_core
async def test_cancelling_does_not_wait_for_what_is_queued() -> None:
    verifier = Verifier(1)
    with trio.fail_after(20):
        async with running(verifier):
            tickets = [verifier.start(BATCH) for _ in range(200)]
    assert not tickets[-1].done.is_set()


def forked(work: Callable[[], object], limit_s: int = 20) -> int:
    """The exit status of a forked process that does some work: 0 if it came to its end in time."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(limit_s)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_core
def test_a_forked_process_leaves_the_threads_alone_and_can_have_its_own() -> None:
    def child() -> None:
        with pytest.raises(OSError, match="before the fork"):
            pool.submit(1, BATCH)
        # The bell that rings for the parent rings on.
        assert pool.take() == []
        pool.close()
        own = core().Pool(1)
        own.submit(2, BATCH)
        assert select.select([own.fileno()], [], [], 10)[0]
        assert own.take() == [(2, ALL_VALID)]
        own.close()

    pool = core().Pool(1)
    pool.submit(0, BATCH)
    assert select.select([pool.fileno()], [], [], 10)[0]
    assert forked(child) == 0
    assert select.select([pool.fileno()], [], [], 0)[0]
    assert pool.take() == [(0, ALL_VALID)]
    pool.close()


@needs_core
def test_a_process_forked_while_threads_look_authors_up_can_check_signatures() -> None:
    authors = [SigningKey(bytes([i]) * 32).verify_key.encode() for i in range(64)]
    # Each is another author than the one before, and so looked up; nearly always a thread is at it.
    strange = [b"\x00" + author + bytes(100) for author in authors] * 50
    pool = core().Pool(2)
    for number in range(20):
        for half in range(2):
            pool.submit(2 * number + half, strange)
        assert forked(lambda: core().signatures_are_valid(BATCH)) == 0, number
    pool.close()
