"""What `serve` prints: at levels, for people and for scripts, and progress now and then."""

import json
import logging
import sys
from argparse import Namespace
from collections.abc import Mapping

import pytest
import trio
import trio.testing

from bamboo_cli.events import LOG_PROGRESS_S, NAMED_MAX, PROGRESS_S, Events, Progress
from bamboo_cli.levels import Level, level_of
from bamboo_cli.terminal import Terminal

Capture = pytest.CaptureFixture[str]
LISTENING: dict[str, object] = {"event": "listening", "address": "a:1", "tls": False}
FAILED: dict[str, object] = {"event": "storage_failed", "reason": "full"}
LOST: dict[str, object] = {
    "event": "disconnected",
    "address": "a:1",
    "kind": "lost",
    "reason": "lost",
}


def advanced(author: str, height: int) -> dict[str, object]:
    return {
        "event": "log_advanced",
        "author": author,
        "log_id": 0,
        "height": height,
        "newest": height,
        "name": None,
    }


def events(*, as_json: bool = False, level: Level | None = None) -> Events:
    return Events(Terminal(as_json=as_json), trio.Event(), 0, level)


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (None, ["listening on a:1", "disconnected a:1: lost", "storage failed: full"]),
        (Level.DEBUG, ["listening on a:1", "disconnected a:1: lost", "storage failed: full"]),
        (Level.WARNING, ["disconnected a:1: lost", "storage failed: full"]),
        (Level.ERROR, ["storage failed: full"]),
    ],
)
async def test_people_see_what_matters_enough(
    capsys: Capture, level: Level | None, shown: list[str]
) -> None:
    printed = events(level=level)
    for event in (LISTENING, LOST, FAILED):
        printed.take(event)
    assert capsys.readouterr().out.splitlines() == shown


async def test_scripts_get_every_event_at_once_unless_they_name_a_level(capsys: Capture) -> None:
    printed = events(as_json=True)
    told: list[Mapping[str, object]] = [LISTENING, advanced("ab", 1), advanced("ab", 2), FAILED]
    for event in told:
        printed.take(event)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == told


async def test_with_a_level_each_line_says_its_own(
    capsys: Capture, autojump_clock: trio.testing.MockClock
) -> None:
    printed = events(as_json=True, level=Level.INFO)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printed.run)
        for event in (advanced("ab", 1), advanced("cd", 5), FAILED):
            printed.take(event)
        await trio.sleep(1.5 * PROGRESS_S)
        # The second log's line is due a second after the first one's; all those of a crowd in one.
        await trio.sleep(PROGRESS_S)
        for number in range(NAMED_MAX + 1):
            printed.take(advanced(f"{number:02x}", 1))
        await trio.sleep(2 * PROGRESS_S)
        nursery.cancel_scope.cancel()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        FAILED | {"level": "error"},
        advanced("ab", 1) | {"more_logs": 0, "level": "info"},
        advanced("cd", 5) | {"more_logs": 0, "level": "info"},
        advanced("00", 1) | {"more_logs": NAMED_MAX, "level": "info"},
    ]


async def test_the_level_can_be_changed(capsys: Capture) -> None:
    printed = events(level=Level.ERROR)
    printed.take(LISTENING)
    await printed.apply_level(Namespace(log_level=Level.INFO))
    printed.take(LISTENING)
    assert capsys.readouterr().out.splitlines() == ["listening on a:1"]


async def test_many_appends_to_many_logs_are_a_handful_of_lines(
    capsys: Capture, autojump_clock: trio.testing.MockClock
) -> None:
    printed = events()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printed.run)
        for number in range(600):
            printed.take(advanced(f"{number % 200:02x}", number // 200 + 1))
            await trio.sleep(0.01)
        await trio.sleep(2 * LOG_PROGRESS_S)
        nursery.cancel_scope.cancel()
    lines = capsys.readouterr().out.splitlines()
    assert 2 <= len(lines) <= 12
    assert all("; " in line and line.endswith(" logs more advanced") for line in lines[:2])


async def test_one_log_is_told_once_a_minute(
    capsys: Capture, autojump_clock: trio.testing.MockClock
) -> None:
    printed = events()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printed.run)
        # The second 2 is about a payload that came later.
        for height in (1, 2, 2, 3):
            printed.take(advanced("ab", height))
            await trio.sleep(5 * PROGRESS_S)
        await trio.sleep(3 * LOG_PROGRESS_S)
        nursery.cancel_scope.cancel()
    assert capsys.readouterr().out.splitlines() == ["ab/0: 1 entry", "ab/0: 3 entries"]


async def test_a_log_that_waits_for_its_minute_does_not_hold_up_another(
    capsys: Capture, autojump_clock: trio.testing.MockClock
) -> None:
    printed = events()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(printed.run)
        for author, height in (("ab", 1), ("ab", 2), ("cd", 1)):
            printed.take(advanced(author, height))
            await trio.sleep(2 * PROGRESS_S)
        assert capsys.readouterr().out.splitlines() == ["ab/0: 1 entry", "cd/0: 1 entry"]
        await trio.sleep(LOG_PROGRESS_S)
        assert capsys.readouterr().out.splitlines() == ["ab/0: 2 entries"]
        nursery.cancel_scope.cancel()


def test_progress_is_due_a_minute_after_it_was_told() -> None:
    progress = Progress()
    assert progress.due_s() is None
    assert progress.note(advanced("ab", 1))
    assert progress.take(100.0) == advanced("ab", 1) | {"more_logs": 0}
    assert not progress.note(advanced("ab", 1))
    assert progress.note(advanced("ab", 2))
    assert progress.due_s() == 100.0 + LOG_PROGRESS_S
    assert progress.take(100.0 + LOG_PROGRESS_S - 1) is None
    assert progress.take(100.0 + LOG_PROGRESS_S) == advanced("ab", 2) | {"more_logs": 0}


async def test_nobody_who_reads_ends_the_node_and_what_the_layers_say_is_no_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    printed = events()
    printed.take(LISTENING)
    assert printed.failure is not None
    assert printed._ending.is_set()
    printed.take(LISTENING)
    printed.take_log(logging.ERROR, "x")
    assert capsys.readouterr().err == ""


async def test_what_the_layers_below_say_is_printed_by_level(capsys: Capture) -> None:
    log = logging.getLogger("peer.node.test")
    before = logging.getLogger().level
    printed = events(level=Level.WARNING)
    with printed.logging():
        log.info("too little")
        await trio.to_thread.run_sync(log.warning, "from %s", "a thread\x1b[2J")
        await trio.testing.wait_all_tasks_blocked()
    assert tuple(capsys.readouterr()) == ("", "from a thread\\x1b[2J\n")
    scripts = events(as_json=True, level=Level.DEBUG)
    with scripts.logging():
        log.debug("x")
        await trio.testing.wait_all_tasks_blocked()
    told = [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if "peer.node" not in line
    ]
    assert {"event": "log", "level": "debug", "reason": "x"} in told
    assert logging.getLogger().level == before


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ({"event": "disconnected", "kind": "closed"}, Level.INFO),
        ({"event": "disconnected", "kind": "timeout"}, Level.WARNING),
        ({"event": "config_reloaded", "error": None, "needs_restart": []}, Level.INFO),
        ({"event": "config_reloaded", "error": None, "needs_restart": ["x"]}, Level.WARNING),
        ({"event": "config_reloaded", "error": "x", "needs_restart": []}, Level.ERROR),
        ({"event": "contested"}, Level.ERROR),
        ({"event": "a new one"}, Level.INFO),
    ],
)
def test_an_event_has_a_level(event: dict[str, object], level: Level) -> None:
    assert level_of(event) is level


def test_another_word_is_no_level() -> None:
    assert Level.parse("Debug") is Level.DEBUG
    with pytest.raises(ValueError, match="'loud' is none of debug, info, warning and error"):
        Level.parse("loud")
