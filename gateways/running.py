"""What runs inside an `async with` block, and how it ends: in order and in time, as itself."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Self

import trio

from peer.node import alone

ENDS_WITHIN_S: Final = 5.0


class Running(ABC):
    """An object that runs inside an `async with` block, once.

    What fails alone comes out as itself and not in a group of one: who uses it need not know that
    there are tasks in it.
    """

    def __init__(self) -> None:
        self._running: AbstractAsyncContextManager[None] | None = None

    @abstractmethod
    def _run(self) -> AbstractAsyncContextManager[None]:
        """What lasts as long as the block."""

    async def __aenter__(self) -> Self:
        self._running = self._run()
        try:
            await self._running.__aenter__()
        except BaseExceptionGroup as group:
            raise alone(group) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._running is not None
        try:
            return await self._running.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            found = alone(group)
            if found is error:
                return False
            raise found from None


@asynccontextmanager
async def outlasting(
    end: Callable[[], Awaitable[object]], within_s: float = ENDS_WITHIN_S
) -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks outlast a block that is cancelled, for `end` to bring them to an end.

    A signal, or the program around it, cancels the block and everything that it has begun at once.
    What was stored by then is still to be confirmed, so the tasks go on until `end` has returned,
    `within_s` at most. One that fails cancels the block, and `end` is not called.
    """
    over = trio.Event()

    async def run(task_status: trio.TaskStatus[trio.Nursery]) -> None:
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as nursery:
                task_status.started(nursery)
                await over.wait()
                scope.deadline = trio.current_time() + within_s
                await end()
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as outer:
        try:
            yield await outer.start(run)
        finally:
            # Also where the block is cancelled before it has begun: nobody else ends the tasks.
            over.set()
