"""One verification process, seen from its parent: starting it, feeding it, noticing its end."""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import nacl
import trio

import wire
from wire import SignatureLibraryError

from . import verify_worker

# One batch at work and one in the pipe keep a worker busy.
IN_WORKER_MAX: Final = 2
STOP_TIMEOUT_S: Final = 1.0


class Ticket:
    """A batch that is being checked; `verdicts` has one byte for each entry once `done` is set."""

    __slots__ = ("crashes", "done", "entries", "verdicts")

    def __init__(self, entries: Sequence[bytes]) -> None:
        self.entries = entries
        self.verdicts = b""
        self.done = trio.Event()
        self.crashes = 0

    def resolve(self, verdicts: bytes) -> None:
        """The batch has been checked."""
        self.verdicts = verdicts
        self.done.set()


class TicketQueue:
    """The batches that wait for a worker, and how many the workers have."""

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self.at_work = 0
        self._idle_workers = trio.lowlevel.ParkingLot()

    def put(self, ticket: Ticket, *, first: bool = False) -> None:
        """Queues a batch at the end, or in front of all others."""
        if first:
            self.waiting.appendleft(ticket)
        else:
            self.waiting.append(ticket)
        self._idle_workers.unpark()

    async def take(self, timeout_s: float) -> Ticket | None:
        """The next batch, or None if there is none for `timeout_s` seconds."""
        with trio.move_on_after(timeout_s):
            while not self.waiting:
                await self._idle_workers.park()
        return self.waiting.popleft() if self.waiting else None


class WorkerProcess:
    """One running process: its pipes, and the batches it has not answered, in order."""

    def __init__(self, process: trio.Process, queue: TicketQueue, *, idle_s: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.pending: deque[Ticket] = deque()
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._queue = queue
        self._idle_s = idle_s
        self._received = bytearray()
        self._has_room = trio.lowlevel.ParkingLot()
        self._died = False

    @classmethod
    async def start(cls, queue: TicketQueue, *, idle_s: float) -> "WorkerProcess":
        """Starts a process; OSError if the system has none to give."""
        process = await trio.lowlevel.open_process(
            # Without `site`: the path in the environment holds what it would find.
            [sys.executable, "-S", "-P", verify_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            # Ctrl-C in a terminal is for the program that started us.
            process_group=0,
        )
        return cls(process, queue, idle_s=idle_s)

    async def run(self) -> bool:
        """Feeds the process; True if it died, False if it has had nothing to do for a while.

        Raises SignatureLibraryError, in a group, if its signature library is the wrong one.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._collect, nursery.cancel_scope)
            await self._feed()
            nursery.cancel_scope.cancel()
        self._queue.at_work -= len(self.pending)
        return self._died

    async def stop(self) -> None:
        """Lets the process end by closing its input; kills it if it does not."""
        with trio.CancelScope(shield=True):
            await self._stdin.aclose()
            await self._stdout.aclose()
            with trio.move_on_after(STOP_TIMEOUT_S):
                await self.process.wait()
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()

    async def _feed(self) -> None:
        while True:
            while len(self.pending) >= IN_WORKER_MAX:
                await self._has_room.park()
            ticket = await self._queue.take(self._idle_s)
            if ticket is None:
                if self.pending:
                    continue
                return
            self.pending.append(ticket)
            self._queue.at_work += 1
            try:
                await self._stdin.send_all(frame(ticket.entries))
            except trio.BrokenResourceError:
                await trio.sleep_forever()  # `_collect` sees the end of its output

    async def _collect(self, scope: trio.CancelScope) -> None:
        try:
            await self._check_library()
            # Answers may have come together with the greeting.
            self._resolve()
            while await self._receive():
                self._resolve()
        except trio.BrokenResourceError:
            pass
        self._died = True
        scope.cancel()

    def _resolve(self) -> None:
        while self.pending and len(self._received) >= len(self.pending[0].entries):
            ticket = self.pending.popleft()
            self._queue.at_work -= 1
            ticket.resolve(self._take(len(ticket.entries)))
            self._has_room.unpark()

    async def _check_library(self) -> None:
        while len(self._received) < 4 and await self._receive():
            pass
        length = int.from_bytes(self._take(4), "big")
        while len(self._received) < length and await self._receive():
            pass
        if text := self._take(length):
            raise SignatureLibraryError(text.decode(errors="replace"))

    async def _receive(self) -> bool:
        data = await self._stdout.receive_some()
        self._received += data
        return bool(data)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


def frame(entries: Sequence[bytes]) -> bytes:
    """A batch as verify_worker.py reads it."""
    parts = []
    for encoded in entries:
        parts.append(len(encoded).to_bytes(2, "big"))
        parts.append(encoded)
    body = b"".join(parts)
    return len(body).to_bytes(4, "big") + body


def environment() -> dict[str, str]:
    """This program's environment, and its module path with the libraries that a worker needs."""
    libraries = [str(Path(path).parent.parent) for path in (wire.__file__, nacl.__file__)]
    path = dict.fromkeys([*libraries, *(entry for entry in sys.path if entry)])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
