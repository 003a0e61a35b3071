"""Pushes of all connections, gathered: while one append is on its way the next is collected."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from gateways import LogHost
from gateways.ockam.outcomes import Outcome
from logstore import StoreError

from .logs import Catalog, Push

MESSAGES_MAX: Final = 1_000
BYTES_MAX: Final = 1 << 20

Tell = Callable[[Sequence[int | Outcome]], None]


class _Job(NamedTuple):
    pushes: Sequence[Push]
    tell: Tell


class Writer:
    """Appends what is `put`, in order, many at a time. `run` has to be running.

    `stored` is told the addresses of messages that are on disk; `failed` what a store says that
    stores nothing.
    """

    def __init__(
        self,
        host: LogHost,
        catalog: Catalog,
        stored: Callable[[Sequence[str]], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._stored = stored
        self._failed = failed
        self._jobs: deque[_Job] = deque()
        self._wake = trio.Event()

    def put(self, pushes: Sequence[Push], tell: Tell) -> None:
        """Has some messages appended; `tell` gets what became of each."""
        self._jobs.append(_Job(pushes, tell))
        self._wake.set()

    async def run(self) -> None:
        """Appends until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._jobs:
                await self._append(self._gather())

    def _gather(self) -> list[_Job]:
        jobs = [self._jobs.popleft()]
        count, size = len(jobs[0].pushes), _size(jobs[0])
        while self._jobs:
            count += len(self._jobs[0].pushes)
            size += _size(self._jobs[0])
            if count > MESSAGES_MAX or size > BYTES_MAX:
                break
            jobs.append(self._jobs.popleft())
        return jobs

    async def _append(self, jobs: Sequence[_Job]) -> None:
        pushes = [push for job in jobs for push in job.pushes]
        outcomes, error = await self._host.call(partial(self._catalog.append, pushes))
        if error is not None:
            self._failed(error)
        at = 0
        for job in jobs:
            job.tell(outcomes[at : at + len(job.pushes)])
            at += len(job.pushes)
        self._stored(
            [
                push.address
                for push, outcome in zip(pushes, outcomes, strict=True)
                if not isinstance(outcome, Outcome)
            ]
        )


def _size(job: _Job) -> int:
    return sum(len(push.data or b"") for push in job.pushes)
