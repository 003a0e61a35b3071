"""Servers are called again after delays that grow and begin anew; tasks end each other as one."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise

import pytest
import trio
import trio.testing

from gateways import again, beside
from peer.node import Backoff, CannotConnectError


class _Steady(random.Random):
    """Draws the upper end of each step, so that delays are known."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


class _Server:
    """Answers or not, and moves something or not, as it was told for each attempt."""

    def __init__(self, *attempts: bool | None) -> None:
        self.attempts = list(attempts)
        self.called_at_s: list[float] = []

    async def connect(self) -> int:
        self.called_at_s.append(trio.current_time())
        if self.attempts[0] is None:
            self.attempts.pop(0)
            raise CannotConnectError("nobody is there")
        return len(self.attempts)

    async def talk(self, connection: int) -> bool:
        assert connection == len(self.attempts)
        if connection == 1:
            await trio.sleep_forever()
        return bool(self.attempts.pop(0))

    @property
    def delays_s(self) -> list[float]:
        return [round(b - a, 6) for a, b in pairwise(self.called_at_s)]


async def test_delays_grow_to_the_most_and_begin_anew_behind_what_moved(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = _Server(None, False, None, True, False, None, False, False, False, False)
    with trio.move_on_after(60):
        await again(server.connect, server.talk, Backoff(_Steady(), 3))
    assert server.delays_s == [0.5, 1, 2, 0.5, 1, 2, 3, 3, 3]


async def test_nothing_that_moves_for_too_long_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = _Server(False, False, True, None, False, None, None, False, False)
    start = trio.current_time()
    with pytest.raises(CannotConnectError, match=r"^no answer in 3 s$"):
        await again(server.connect, server.talk, Backoff(_Steady()), timeout_s=3)
    # What moved at 1.5 s counts, and from then on 0.5, 1 and 2 s are waited.
    assert trio.current_time() - start == pytest.approx(1.5 + 3.5)


def failing(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        await trio.sleep(1)
        raise error

    return fail


async def test_what_ends_one_task_ends_all_as_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    error = ValueError("this one")

    async def ends_badly() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("while it is cancelled")

    with pytest.raises(ValueError, match="this one") as caught:
        await beside(trio.sleep_forever, failing(error), ends_badly)
    assert caught.value is error
    await beside(trio.sleep_forever, partial(trio.sleep, 1))


async def test_who_is_cancelled_from_outside_is_not_told_of_an_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.move_on_after(1) as scope:
        await beside(trio.sleep_forever, trio.sleep_forever)
        raise AssertionError
    assert scope.cancelled_caught
