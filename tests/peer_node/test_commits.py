"""When a node asks its store whether another process has committed something."""

from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from logstore import Store
from peer.node.host import commits as commits_module
from peer.node.host.commits import SELDOM_S, Commits

FIRST_S = 0.05


async def _times(commits: Commits, until: float) -> list[float]:
    """When it was time to ask, in seconds from now."""
    began, found = trio.current_time(), list[float]()
    with trio.move_on_after(until):
        while True:
            await commits.wait()
            found.append(round(trio.current_time() - began, 6))
    return found


async def test_nobody_asks_often_while_nothing_is_written(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with Store.create(tmp_path / "store") as store, Commits(store.log_path, FIRST_S) as commits:
        times = await _times(commits, 100.0)
    assert len(times) < 110
    assert times[-1] > 98


async def test_what_another_process_writes_is_noticed_at_once_and_looked_for_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """It counts only once it is synced, of which nobody is told."""
    with Store.create(tmp_path / "store") as store, Commits(store.log_path, FIRST_S) as commits:
        await _times(commits, 10.0)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def write() -> None:
                await trio.sleep(0.31)
                with Store.open(tmp_path / "store") as other:
                    other.append([b"x"])

            times = await _times(commits, 2.0)
    assert 0.31 <= times[0] <= 0.31 + FIRST_S
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] == pytest.approx(2 * FIRST_S)
    assert waits[1] == pytest.approx(4 * FIRST_S)


async def test_other_files_of_the_folder_wake_nobody(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with Store.create(tmp_path / "store") as store, Commits(store.log_path, FIRST_S) as commits:
        await _times(commits, 10.0)
        (tmp_path / "store" / "status.json").write_text("{}")
        await commits.wait()
        began = trio.current_time()
        (tmp_path / "store" / "status.json").write_text("{ }")
        await commits.wait()
        assert trio.current_time() - began == pytest.approx(SELDOM_S)


async def test_without_watches_it_is_asked_as_often_as_it_takes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine has 128 of them for all that a user runs."""
    monkeypatch.setattr(commits_module, "_watch", lambda _: None)
    with Commits(tmp_path / "log", FIRST_S) as commits:
        assert len(await _times(commits, 10.01)) == 200
    with Commits(None, FIRST_S) as commits:
        assert len(await _times(commits, 10.01)) == 200


async def test_a_folder_that_cannot_be_watched_is_asked_for_instead(tmp_path: Path) -> None:
    with Commits(tmp_path / "nowhere" / "log", FIRST_S) as commits:
        await commits.wait()
