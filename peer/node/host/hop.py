"""One hop into a thread and back, for who makes thousands of them a second.

`trio.to_thread.run_sync` does more: it takes a limiter's token, copies the context, lets the thread
call back, and names the thread for whoever looks at it, before the work and behind it. Each naming
is a call that lets go of the interpreter's lock, and the thread has to have it back from the event
loop twice more than it needs to. A lane has one job under way at a time, calls nothing back and is
never abandoned.

Nor does a task wait for the outcome. It would begin a pass of the event loop after somebody had
asked for the work, and go on a pass after the outcome was there, each time behind other tasks.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from outcome import Outcome

T = TypeVar("T")


def in_thread(work: Callable[[], T], came: "Callable[[Outcome[T]], object]") -> None:
    """Begins to run `work` in a thread; `came` is called in the event loop with what came of it.

    The event loop has to run until then. Raises RuntimeError if the system has no thread to give.
    """
    token = trio.lowlevel.current_trio_token()

    def deliver(result: "Outcome[T]") -> None:
        token.run_sync_soon(came, result)

    trio.lowlevel.start_thread_soon(work, deliver)
