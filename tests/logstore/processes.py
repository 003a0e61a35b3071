"""Several processes on one store, whose steps a test puts in any order.

Each is a thread with a store of its own: file locks, the write-ahead log and SQLite's locks work
between them as between processes. One runs at a time, and may be stopped in front of everything
that another could notice or prevent: each call to the operating system, each transaction, each
commit. Who waits for a lock lets the others go on. Who is killed gets no further: nothing that it
would have done after that is done, and the system lets go of its locks.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from logstore import PayloadHandle, System
from logstore.database import Database

Switch = tuple[int, int]
"""After how many steps of the one that runs, and to which of those that can go on."""
_STEPS_MAX = 20_000


class KilledError(BaseException):
    """What a process is ended with."""


class Process:
    """One thread that takes its steps when the scheduler says so."""

    def __init__(self, scheduler: "Scheduler", act: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.failure: BaseException | None = None
        self.is_killed = False
        self.is_done = False
        self.waits = False
        """For a lock: it is passed over until another has got further."""
        self.may_go_on = False
        """It was refused a lock and only may try again: it goes on if all others wait."""
        self.waited = False
        """Whether it did so when it last stopped."""
        self.steps = 0
        self._act = act
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def go_on(self) -> None:
        """Lets it take its next step; returns when it stands before the one after that."""
        self.waits = self.may_go_on = False
        self._turn.release()
        self.scheduler.stopped.acquire()
        if self.is_done:
            self._thread.join()

    def step(self, *, waits: bool = False, may_go_on: bool = False) -> None:
        """Called by the thread, in front of what others could notice."""
        if not self.is_killed:
            self.waits, self.may_go_on = waits, may_go_on
            self.scheduler.stopped.release()
            self._turn.acquire()
        if self.is_killed:
            raise KilledError

    def _run(self) -> None:
        _here.process = self
        self._turn.acquire()
        try:
            if not self.is_killed:
                self._act()
        except KilledError:
            pass
        except BaseException as failure:  # noqa: BLE001 (whatever it is, the test raises it)
            self.failure = failure
        self.is_done = True
        self.scheduler.stopped.release()


_here = threading.local()


def step(*, waits: bool = False, may_go_on: bool = False) -> None:
    """A step of the process whose thread this is; nothing for the test itself."""
    process: Process | None = getattr(_here, "process", None)
    if process is not None:
        process.step(waits=waits, may_go_on=may_go_on)


class Scheduler:
    """Says whose turn it is."""

    def __init__(self, acts: Sequence[Callable[[], None]]) -> None:
        self.stopped = threading.Semaphore(0)
        self.processes = [Process(self, act) for act in acts]

    def run(self, switches: Sequence[Switch], kill: tuple[int, int] | None = None) -> None:
        """Runs all to their ends; raises the failure of any. `kill`: whom, before which step.

        Who has to wait is passed over until somebody else has got further. Where a failure ends
        the run, all are killed: their stores could not be closed while they hold locks.
        """
        try:
            self._run(switches, kill)
        except BaseException:
            for process in self.processes:
                process.is_killed = True
                while not process.is_done:
                    process.go_on()
            raise
        for process in self.processes:
            if process.failure is not None:
                raise process.failure

    def _run(self, switches: Sequence[Switch], kill: tuple[int, int] | None) -> None:
        for process in self.processes:
            process.start()
        plan = iter(switches)
        left, _ = next(plan, (_STEPS_MAX, 0))
        running = self.processes[0]
        for _ in range(_STEPS_MAX):
            left_over = [each for each in self.processes if not each.is_done]
            able = [each for each in left_over if not each.waits]
            able = able or [each for each in left_over if each.may_go_on]
            if not able:
                assert not left_over, "they wait for each other"
                break
            if left <= 0:
                left, target = next(plan, (_STEPS_MAX, 0))
                running = able[target % len(able)]
            elif running not in able:
                running = able[0]
            left -= 1
            running.is_killed = kill == (self.processes.index(running), running.steps)
            self._advance(running)
        else:
            raise AssertionError("they never end")

    def _advance(self, running: Process) -> None:
        waited = running.waited
        running.steps += 1
        running.go_on()
        running.waited = running.waits
        if not (waited and running.waits):
            for other in self.processes:
                other.waits = other.waits and other is running


class SteppedSystem(System):
    """The operating system, with a step in front of each call."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def state_folder(self) -> Path:
        return self._state

    def sleep(self, _: float) -> None:
        step()

    def open_file(self, path: Path, *, create: bool = False, write: bool = True) -> PayloadHandle:
        step()
        with super().open_file(path, create=create, write=write) as handle:
            return SteppedHandle(os.dup(handle._fd))

    def make_folder(self, path: Path) -> bool:
        step()
        return super().make_folder(path)

    def sync_folder(self, path: Path) -> None:
        step()

    def remove_file(self, path: Path) -> None:
        step()
        super().remove_file(path)

    def list_folder(self, path: Path) -> list[str]:
        step()
        return super().list_folder(path)

    def file_size(self, path: Path) -> int | None:
        step()
        return super().file_size(path)


class SteppedHandle(PayloadHandle):
    """A file, with a step in front of each call; but the system closes it for who was killed."""

    __slots__ = ()

    def write(self, data: bytes | memoryview, offset: int) -> int:
        step()
        return super().write(data, offset)

    def read(self, bytes_max: int, offset: int) -> bytes:
        step()
        return super().read(bytes_max, offset)

    def size(self) -> int:
        step()
        return super().size()

    def truncate(self, length: int) -> None:
        step()
        super().truncate(length)

    def sync(self) -> None:
        step()

    def try_lock(self) -> bool:
        step()
        if super().try_lock():
            return True
        # Some try again until it is theirs, and others go on without it, perhaps with the database
        # locked: were they to wait, whoever has the file might wait for them.
        step(waits=True, may_go_on=True)
        return False

    def share(self) -> None:
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                step(waits=True)
            else:
                return


@contextmanager
def stepped_databases() -> Iterator[None]:
    """Puts a step in front of each transaction and behind each commit, and into each wait."""
    patch = pytest.MonkeyPatch()
    read, write = Database.read, Database.write

    @contextmanager
    def stepped_read(self: Database) -> Iterator[apsw.Connection]:
        step()
        with read(self) as db:
            yield db
        step()

    @contextmanager
    def stepped_write(self: Database, *, frees: bool = False) -> Iterator[Any]:
        step()
        with write(self, frees=frees) as transaction:
            yield transaction
        step()

    def connect(path: str, flags: int, vfs: str | None = None) -> apsw.Connection:
        db = apsw.Connection(path, flags=flags, vfs=vfs)

        def wait(_attempts: int) -> bool:
            step(waits=True)
            return True

        db.set_busy_handler(wait)
        return db

    try:
        patch.setattr(Database, "read", stepped_read)
        patch.setattr(Database, "write", stepped_write)
        patch.setattr("logstore.database.connect", connect)
        yield
    finally:
        patch.undo()
