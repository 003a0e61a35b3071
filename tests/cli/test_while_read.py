"""What prints as it comes ends once nobody reads it. bamboo_cli/online.py."""

from functools import partial

import pytest
import trio

from bamboo_cli.online import run_trio, while_read
from bamboo_cli.terminal import OutputClosed, Terminal


class Unread(Terminal):
    """A terminal that is read for a while."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def check_read(self) -> None:
        self._looks -= 1
        if self._looks < 0:
            raise OutputClosed


async def test_work_that_waits_ends_when_nobody_reads(autojump_clock: object) -> None:
    with trio.fail_after(60), pytest.raises(ExceptionGroup) as raised:
        await while_read(Unread(10), trio.sleep_forever)
    assert [type(error) for error in raised.value.exceptions] == [OutputClosed]


async def test_what_work_returns_is_returned(autojump_clock: object) -> None:
    async def work() -> int:
        await trio.sleep(3)
        return 7

    with trio.fail_after(60):
        assert await while_read(Unread(1000), work) == 7


def test_it_comes_out_as_itself() -> None:
    with pytest.raises(OutputClosed):
        run_trio(partial(while_read, Unread(0), trio.sleep_forever))
