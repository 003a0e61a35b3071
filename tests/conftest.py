"""Hypothesis profiles: quick by default, the same examples in CI, `make fuzz` for more.

And tests that need Java, and are left out where there is none.
"""

import gc
import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from analytics import JavaMissing, ensure_java
from peer.node import fairness
from tests.scheduling import GroupedScheduling

# For what is made outside of a test, by fixtures of a module.
os.environ["BAMBOO_PEER_STATE"] = tempfile.mkdtemp(prefix="bamboo-state-")
# No archive of Java's classes that happens to be there decides what is tested.
os.environ["BAMBOO_PEER_CACHE"] = str(Path(os.environ["BAMBOO_PEER_STATE"], "cache"))

SPARK_GAVE_UP = "Python worker failed to connect back"

# A shell starts what it runs in the background with Ctrl-C ignored, and so would every process that
# tests start and mean to end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Neither deadlines nor complaints of slowness: a slow moment of the machine is not a failure.
settings.register_profile(
    "fast",
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    max_examples=5000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fast")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupedScheduling:
    """Tests that share something costly stay in one process."""
    return GroupedScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark are left out where there is no Java, with the reason.

    Not so with BAMBOO_JAVA=1.
    """
    found = [item for item in items if needs_java(item)]
    if not found:
        return
    try:
        ensure_java()
        missing = None
    except JavaMissing as error:
        missing = None if os.environ.get("BAMBOO_JAVA") == "1" else str(error)
    for item in found:
        # pyspark uses what pandas, numpy and Python have deprecated, and leaves sockets open.
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        # Spark gives a Python worker ten seconds to start, which cannot be set: beside six busy
        # processes on two cores it takes that. It says nothing of what the test is for.
        item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=[SPARK_GAVE_UP]))
        if missing is not None:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests lie in memory as long as the run takes: the collector passes over them."""
    gc.collect()
    gc.freeze()


def needs_java(item: pytest.Item) -> bool:
    """Whether a test asks Spark, in the session that all share or in a process of its own."""
    return "spark" in getattr(item, "fixturenames", ()) or bool(item.get_closest_marker("jvm"))


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for state directories. `mktemp` would look through those of all tests before, for a
    number that is free: milliseconds, thousands of times."""
    folder = tmp_path_factory.mktemp("states")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def state_folder(state_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory for each test: nothing of the user's, and no author of another test."""
    folder = next(state_folders)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("BAMBOO_PEER_STATE", str(folder))
    return folder


@pytest.fixture
def mock_clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """A clock that stands still until it is told to jump.

    Nobody rests meanwhile for having had more than others (fairness.py): what was spent is measured
    in seconds of the machine, and a rest would end only with a jump, for which tests wait until all
    is at rest. A busy machine makes anybody greedy.
    """
    monkeypatch.setattr(fairness, "REST_TIMES", 0.0)
    return trio.testing.MockClock()


@pytest.fixture
def autojump_clock(monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """A clock that jumps to the next deadline when nothing is left to do, in no thread either.

    To pytest-trio's clock of this name everybody who waits for a thread is idle, so a deadline of
    ten seconds has passed before a busy machine has read a row of the store.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    threads: Any = trio._threads  # its own threads are started by a name that it has there
    working = 0
    jump, start = clock._autojump, threads.start_thread_soon

    def jump_if_idle() -> None:
        if working:
            time.sleep(0.0005)  # whoever works needs the interpreter
        else:
            jump()

    def start_counted(
        work: Callable[[], Any], deliver: Callable[[Any], object], *names: str | None
    ) -> None:
        nonlocal working
        token = trio.lowlevel.current_trio_token()

        def end() -> None:
            nonlocal working
            working -= 1

        def deliver_first(result: object) -> None:
            deliver(result)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(end)  # behind the result, which is then in somebody's hands

        working += 1
        start(work, deliver_first, *names)

    monkeypatch.setattr(clock, "_autojump", jump_if_idle)
    for of in (threads, trio.lowlevel):
        monkeypatch.setattr(of, "start_thread_soon", start_counted)
    return clock
