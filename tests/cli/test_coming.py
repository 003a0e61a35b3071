"""How far a fetch is: whoever looks is told, and it moves as long as a byte comes."""

from collections.abc import Iterator
from typing import Any

import pytest

from bamboo_cli import coming
from bamboo_cli.coming import LATE_S, Coming
from bamboo_cli.terminal import Terminal
from logstore import Store
from tests.cli.harness import Stream
from wire import LogKey

LOG = LogKey(bytes(32), 0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(coming, "time", made)
    return made


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.memory() as made:
        yield made


def said(screen: Stream) -> str:
    return screen.bytes.getvalue().decode()


def arriving(here: int, seq: int = 1) -> dict[str, Any]:
    payload = {"seq": seq, "bytes": here, "payload_bytes": 4 << 20, "address": "a:1"}
    return {"arriving": [{"author": LOG.author.hex(), "log_id": 0} | payload]}


def test_bytes_of_a_payload_are_a_move_and_silence_is_counted(
    clock: Clock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Stream(terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    watched = Coming(store, LOG, (1, 2), Terminal())
    assert watched.look() == 0
    clock.now += 5
    assert watched.look() == 5
    assert watched.look(arriving(1 << 20)) == 0
    clock.now += 2
    assert watched.look(arriving(2 << 20)) == 0
    clock.now += 9
    # What the node says of a payload under way may be late.
    assert watched.look(arriving(2 << 20)) == 9 - LATE_S
    how_far = "0 of 2 entries held, 0 with payloads, 2.0 MiB of 4.0 MiB on the way (50 %)"
    assert watched.words() == how_far
    assert said(screen).endswith("on the way (50 %), 512.0 KiB/s, 4 s left")
    watched.clear()
    assert said(screen).endswith("\r\x1b[K")


def test_a_payload_outside_of_the_range_is_no_move(clock: Clock, store: Store) -> None:
    watched = Coming(store, LOG, (1, 2), Terminal())
    watched.look(arriving(1, seq=3))
    clock.now += 5
    assert watched.look(arriving(2, seq=3)) == 5
    assert watched.words() == "0 of 2 entries held, 0 with payloads"


@pytest.mark.parametrize(("verbose", "lines"), [(True, 2), (False, 0)])
def test_without_a_terminal_lines_are_seldom_and_only_on_request(
    clock: Clock, store: Store, monkeypatch: pytest.MonkeyPatch, *, verbose: bool, lines: int
) -> None:
    screen = Stream()
    monkeypatch.setattr("sys.stderr", screen)
    watched = Coming(store, LOG, (1, 1), Terminal(verbose=verbose))
    for here in range(12):
        watched.look(arriving(here << 10))
        clock.now += 1
    watched.clear()
    told = said(screen).splitlines()
    assert len(told) == lines
    assert all("KiB of 4.0 MiB on the way (0 %), 1.0 KiB/s, " in each for each in told)
