"""Calling another system's server, again and again; and the tasks of one connection.

Servers of other systems are called as nodes are: with the node's way to connect, and after a while
that grows and is never the same as others', so that not all clients of one that was started again
come at once. What moves something brings us on, however soon it is lost.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import trio

from peer.node import Backoff, CannotConnectError

log = logging.getLogger(__name__)

T = TypeVar("T")


async def again(
    connect: Callable[[], Awaitable[T]],
    talk: Callable[[T], Awaitable[bool]],
    backoff: Backoff,
    *,
    timeout_s: float | None = None,
) -> NoReturn:
    """Connects and talks, and does so again after each end, until cancelled.

    `connect` raises CannotConnectError while nobody answers. `talk` returns once the connection is
    lost, and closes it: whether it has moved anything, by which the delays begin anew. `timeout_s`:
    for how long nothing may move behind the first loss, None for ever. Raises CannotConnectError
    once that is over, and what the two raise otherwise.
    """
    lost_at_s: float | None = None
    while True:
        has_moved = False
        try:
            connection = await connect()
        except CannotConnectError as error:
            log.info("%s", error)
        else:
            has_moved = await talk(connection)
        now = trio.current_time()
        if has_moved:
            backoff.begin_anew()
        if has_moved or lost_at_s is None:
            lost_at_s = now
        if timeout_s is not None and now >= lost_at_s + timeout_s:
            raise CannotConnectError(f"no answer in {timeout_s:g} s")
        await trio.sleep(backoff.next_delay_s())


async def beside(*tasks: Callable[[], Awaitable[object]]) -> None:
    """Runs tasks until one of them ends, by which the others are cancelled.

    Raises what that one has raised as itself and not in a group: of one connection the reason is
    one, whichever task has met it.
    """
    failures: list[Exception] = []

    async def run(task: Callable[[], Awaitable[object]]) -> None:
        try:
            await task()
        except Exception as error:  # noqa: BLE001 - it is raised below
            failures.append(error)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(run, task)
    if failures:
        # What others raise while they are cancelled says nothing.
        raise failures[0]
