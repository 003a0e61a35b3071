"""What `serve` tells people, and that a signal ends it in good order however early it comes."""

import signal
import sys
from typing import NoReturn

import pytest
import trio
import trio.testing

from bamboo_cli.serve import PROGRESS_S, Events
from bamboo_cli.terminal import Terminal
from tests.cli.harness import CommandLine, Stream


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("argv", "module", "status"),
    [
        (("serve", "--no-listen"), "serve", 0),
        (("sync", "localhost"), "sync", 130),
        (("wait",), "waiting", 130),
        (("fetch", "ab" * 32, "1"), "fetching", 130),
    ],
)
def test_sigterm_is_like_ctrl_c_and_no_failure_of_serve(
    own: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    argv: tuple[str, ...],
    module: str,
    status: int,
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        signal.raise_signal(number)
        raise AssertionError

    monkeypatch.setattr(f"bamboo_cli.{module}.opened_store", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    result = own(*argv)
    assert (result.status, result.out, result.err) == (status, b"", "")
    assert signal.getsignal(signal.SIGTERM) is before


def test_how_old_a_file_gets_is_said_of_an_export(own: CommandLine) -> None:
    result = own("serve", "--no-listen", "--max-file-age", "5")
    assert (result.status, result.out, result.err) == (
        2,
        b"",
        "bamboo-peer: --max-file-age is about --export: name a directory\n",
    )


def test_people_are_told_once_how_far_a_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Stream()
    monkeypatch.setattr(sys, "stdout", out)
    log = {"event": "log_advanced", "author": "ab", "log_id": 0}

    async def tell() -> None:
        events = Events(Terminal(), trio.Event(), allowed=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events.run)
            # The second one is about a payload that came later.
            for height in (1, 2, 2, 3):
                events.take(log | {"height": height, "newest": height})
                await trio.sleep(PROGRESS_S * 2)
            nursery.cancel_scope.cancel()

    trio.run(tell, clock=trio.testing.MockClock(autojump_threshold=0))
    assert out.bytes.getvalue() == b"ab/0: 1 entry\nab/0: 2 entries\nab/0: 3 entries\n"
