"""The pool of verification processes: right verdicts, replacement, idleness, small batches."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from nacl.signing import SigningKey
from trio.testing import MockClock

from peer.node.host import verifier as verifiers
from peer.node.host import worker_process
from peer.node.host.verifier import (
    BATCH_ENTRIES_MAX,
    COLD_ENTRIES_MAX,
    INLINE_BUCKET,
    INLINE_ENTRIES_MAX,
)
from peer.node.host.worker_process import Ticket, WorkerProcess, frame
from wire import SignatureLibraryError, sign_entry, yamf_hash

KEY = SigningKey(bytes(32))
BATCH = [
    sign_entry(
        KEY,
        log_id=n,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=0,
        payload_hash=yamf_hash(b""),
    )
    for n in range(BATCH_ENTRIES_MAX)
]

# Without the native core, whose threads test_verify_threads.py is about.
Verifier = partial(verifiers.Verifier, core=None)
ALL_VALID = b"\x01" * len(BATCH)


@asynccontextmanager
async def running(verifier: verifiers.Verifier) -> AsyncIterator[verifiers.Verifier]:
    async with trio.open_nursery() as nursery:
        await nursery.start(verifier.run)
        yield verifier
        nursery.cancel_scope.cancel()


async def verdicts(ticket: Ticket) -> bytes:
    with trio.fail_after(30):
        await ticket.done.wait()
    return ticket.verdicts


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProcess]:
    """Every process that the test started, in order."""
    found: list[WorkerProcess] = []
    start = WorkerProcess.start.__func__  # type: ignore[attr-defined]

    async def remember(*args: object, **options: float) -> WorkerProcess:
        worker: WorkerProcess = await start(WorkerProcess, *args, **options)
        found.append(worker)
        return worker

    monkeypatch.setattr(WorkerProcess, "start", remember)
    return found


async def test_processes_judge_each_entry_in_order(started: list[WorkerProcess]) -> None:
    spoiled = [*BATCH[:5], BATCH[5][:-1] + b"\x00", *BATCH[6:]]
    async with running(Verifier(2)) as verifier:
        tickets = [verifier.start(BATCH), verifier.start(spoiled), verifier.start(BATCH[:40])]
        assert not any(ticket.done.is_set() for ticket in tickets)
        assert await verdicts(tickets[0]) == ALL_VALID
        assert await verdicts(tickets[1]) == ALL_VALID[:5] + b"\x00" + ALL_VALID[6:]
        assert await verdicts(tickets[2]) == ALL_VALID[:40]
        assert len(started) == 2
    assert [worker.process.returncode for worker in started] == [0, 0]


async def test_no_process_is_started_without_work(started: list[WorkerProcess]) -> None:
    async with running(Verifier(2)):
        await trio.testing.wait_all_tasks_blocked()
    assert started == []


async def test_a_few_entries_are_checked_on_the_spot(started: list[WorkerProcess]) -> None:
    async with running(Verifier(2)) as verifier:
        ticket = verifier.start([*BATCH[: COLD_ENTRIES_MAX - 1], BATCH[0][:-1]])
        assert ticket.done.is_set()
        assert ticket.verdicts == ALL_VALID[: COLD_ENTRIES_MAX - 1] + b"\x00"
    assert started == []


async def test_beside_running_processes_only_the_smallest_batches_are_checked_on_the_spot() -> None:
    async with running(Verifier(1)) as verifier:
        await verdicts(verifier.start(BATCH))
        assert verifier.start(BATCH[:INLINE_ENTRIES_MAX]).done.is_set()
        larger = verifier.start(BATCH[: INLINE_ENTRIES_MAX + 1])
        assert not larger.done.is_set()
        # What comes behind it does not overtake it.
        assert not verifier.start(BATCH[:1]).done.is_set()
        assert await verdicts(larger) == ALL_VALID[: INLINE_ENTRIES_MAX + 1]


async def test_many_small_batches_go_to_the_processes(mock_clock: MockClock) -> None:
    verifier = Verifier(2)
    assert mock_clock.rate == 0
    allowed = int(INLINE_BUCKET) // INLINE_ENTRIES_MAX
    on_the_spot = [verifier.start(BATCH[:8]).done.is_set() for _ in range(allowed + 1)]
    assert on_the_spot == [True] * allowed + [False]


async def test_the_allowance_for_small_batches_comes_back_with_time(mock_clock: MockClock) -> None:
    verifier = Verifier(2)
    for _ in range(int(INLINE_BUCKET)):
        assert verifier.start(BATCH[:1]).done.is_set()
    mock_clock.jump(0.001)
    assert verifier.start(BATCH[:1]).done.is_set()
    assert not verifier.start(BATCH[:1]).done.is_set()


async def test_a_killed_process_is_replaced_and_its_batches_are_done_again(
    started: list[WorkerProcess],
) -> None:
    async with running(Verifier(1)) as verifier:
        await verdicts(verifier.start(BATCH))
        os.kill(started[0].process.pid, signal.SIGSTOP)
        tickets = [verifier.start(BATCH) for _ in range(4)]
        await trio.testing.wait_all_tasks_blocked()
        os.kill(started[0].process.pid, signal.SIGKILL)
        for ticket in tickets:
            assert await verdicts(ticket) == ALL_VALID
        assert len(started) == 2
        assert verifier.crashes == 1


async def test_a_batch_that_two_processes_died_of_is_checked_in_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    program = "import os; os.write(1, bytes(4)); os.read(0, 1)"
    monkeypatch.setattr(worker_process, "verify_worker", _Program(program, str(tmp_path)))
    async with running(Verifier(1)) as verifier:
        assert await verdicts(verifier.start(BATCH)) == ALL_VALID
        assert verifier.crashes == 2


async def test_answers_that_come_together_with_the_greeting_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    length = len(frame(BATCH))
    program = f"""
import os, sys
left = 2 * {length}
while left:
    left -= len(os.read(0, left))
os.write(1, bytes(4) + bytes([1]) * {2 * len(BATCH)})
os.read(0, 1)
"""
    monkeypatch.setattr(worker_process, "verify_worker", _Program(program, str(tmp_path)))
    async with running(Verifier(1)) as verifier:
        tickets = [verifier.start(BATCH), verifier.start(BATCH)]
        assert [await verdicts(ticket) for ticket in tickets] == [ALL_VALID, ALL_VALID]


async def test_without_any_process_batches_are_checked_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def none_left(*args: object, **options: object) -> WorkerProcess:
        raise OSError("no more processes")

    monkeypatch.setattr(WorkerProcess, "start", none_left)
    async with running(Verifier(1)) as verifier:
        tickets = [verifier.start(BATCH), verifier.start(BATCH[:70])]
        assert [await verdicts(ticket) for ticket in tickets] == [ALL_VALID, ALL_VALID[:70]]


async def test_zero_workers_check_in_the_loop(started: list[WorkerProcess]) -> None:
    async with running(Verifier(0)) as verifier:
        assert await verdicts(verifier.start(BATCH)) == ALL_VALID
    assert started == []


async def test_a_wrong_signature_library_ends_the_pool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    program = "import os; os.write(1, b'\\0\\0\\0\\x05wrong'); os.read(0, 1)"
    monkeypatch.setattr(worker_process, "verify_worker", _Program(program, str(tmp_path)))
    with pytest.raises(ExceptionGroup) as caught:
        async with running(Verifier(1)) as verifier:
            await verdicts(verifier.start(BATCH))
    assert caught.group_contains(SignatureLibraryError, match="wrong")


async def test_an_idle_process_ends(started: list[WorkerProcess]) -> None:
    async with running(Verifier(1, idle_s=0.0)) as verifier:
        ticket = verifier.start(BATCH)
        assert await verdicts(ticket) == ALL_VALID
        with trio.fail_after(30):
            await started[0].process.wait()
            while verifier.workers:
                await trio.testing.wait_all_tasks_blocked()
        assert await verdicts(verifier.start(BATCH)) == ALL_VALID
        assert len(started) == 2


def test_a_worker_for_each_core_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4})
    assert Verifier().workers_max == 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert Verifier().workers_max == 2
    monkeypatch.setattr(sys, "executable", "")
    assert Verifier().workers_max == 0


class _Program:
    """Stands in for the module verify_worker: another program in its place."""

    def __init__(self, text: str, folder: str) -> None:
        self.__file__ = f"{folder}/program.py"
        Path(self.__file__).write_text(text)
