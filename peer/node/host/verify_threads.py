"""The native core's verification threads, seen from the event loop: batches in, verdicts out.

The threads hold copies and never take the interpreter's lock. That they have answered shows as a
readable file descriptor, so the event loop wakes up for it as for a socket.
"""

import logging
from typing import Final

import trio

from wire import NativeCore, python_signature_is_valid

from .worker_process import Ticket

log = logging.getLogger(__name__)

SLICE_ENTRIES: Final = 8


class VerifyThreads:
    """A pool of threads; `run` has to be running for the verdicts to come."""

    def __init__(self, core: NativeCore, threads_max: int) -> None:
        """OSError if the system has no file descriptors to give."""
        self._pool = core.Pool(threads_max)
        self._tickets: dict[int, Ticket] = {}
        self._number = 0

    @property
    def at_work(self) -> int:
        """How many batches have not been answered yet."""
        return len(self._tickets)

    def submit(self, ticket: Ticket) -> bool:
        """Begins to check a batch; False if the system has no thread to give."""
        try:
            self._pool.submit(self._number, list(ticket.entries))
        except OSError as error:
            log.warning("cannot start a verification thread: %s", error)
            return False
        self._tickets[self._number] = ticket
        self._number += 1
        return True

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Collects verdicts until cancelled, and then ends the threads."""
        fd = self._pool.fileno()
        try:
            task_status.started()
            while True:
                await trio.lowlevel.wait_readable(fd)
                for number, answer in self._pool.take():
                    ticket = self._tickets.pop(number)
                    if isinstance(answer, bytes):
                        ticket.resolve(answer)
                    else:
                        await _check_anew(ticket, answer)
        finally:
            self._pool.close()


async def _check_anew(ticket: Ticket, fault: str) -> None:
    """Checks a batch without the native core, letting other tasks run in between."""
    log.error("%s; its batch is checked by libsodium", fault)
    verdicts = bytearray()
    for i in range(0, len(ticket.entries), SLICE_ENTRIES):
        verdicts += bytes(map(python_signature_is_valid, ticket.entries[i : i + SLICE_ENTRIES]))
        await trio.lowlevel.checkpoint()
    ticket.resolve(bytes(verdicts))
