"""A limit for what a program waits for, that says what it has waited for in vain.

Trio's own limits do as well where Trio is; facades for others have none, and none of them knows the
reason. It is asked for when the time is over, and so tells how things are then.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from peer.node.status.reasons import Reason

from .arguments import check_timeout

T = TypeVar("T")


async def within(
    timeout_s: float | None,
    what: str,
    call: Callable[[], Awaitable[T]],
    whys: Sequence[Callable[[], Awaitable[Sequence[Reason]]]],
) -> T:
    """What a call returns, within so many seconds; None: without a limit.

    Raises TimeoutError with the reasons, once the call has tidied up behind itself; TypeError and
    ValueError for what is no time.
    """
    check_timeout(timeout_s)
    if timeout_s is None:
        return await call()
    found: list[T] = []
    with trio.move_on_after(timeout_s):
        found.append(await call())
    if found:
        return found[0]
    reasons = [reason for why in whys for reason in await why()]
    told = [reason for reason in reasons if reason.wrong] or reasons
    raise TimeoutError("; ".join([f"no {what} within {timeout_s:g} s", *map(str, told)]))
