"""One hop into a thread and back, for who makes thousands of them a second.

`trio.to_thread.run_sync` does more: it takes a limiter's token, copies the context, lets the thread
call back, and names the thread for whoever looks at it, before the work and behind it. Each naming
is a call that lets go of the interpreter's lock, and the thread has to have it back from the event
loop twice more than it needs to. A lane has one job under way at a time, calls nothing back and is
never abandoned.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

if TYPE_CHECKING:
    import outcome

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread; returns what it returns, raises what it raises.

    Not to be cancelled: that is delivered at the next checkpoint behind the work.
    """
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()

    def deliver(result: "outcome.Outcome[T]") -> None:
        # The run cannot be over: the task is in it, and waits.
        token.run_sync_soon(trio.lowlevel.reschedule, task, result)

    def abort(_: object) -> trio.lowlevel.Abort:
        return trio.lowlevel.Abort.FAILED

    trio.lowlevel.start_thread_soon(work, deliver)
    result: Any = await trio.lowlevel.wait_task_rescheduled(abort)
    done: T = result
    return done
