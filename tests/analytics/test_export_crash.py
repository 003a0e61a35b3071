"""Wherever an export ends, readers see whole files only, and the next one repeats nothing."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from analytics import ExportBusy, Exporter, ExportFailed, layout
from logstore import Store
from tests.analytics.makers import (
    DAY_US,
    NOON,
    Clock,
    export,
    files,
    filled_store,
    held,
    keys,
    make_store,
    put,
)
from tests.logstore.authors import AuthorLog

TOP = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """The process is gone: no handler of the program's own runs after it."""


@contextmanager
def dies_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Ends everything before the given step on the disk; lists the steps that were taken."""
    steps: list[str] = []

    def counted(name: str, real: object) -> object:
        def call(*args: object, **kwargs: object) -> object:
            if len(steps) >= step:
                raise Killed
            steps.append(name)
            return real(*args, **kwargs)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counted("rename", Path.replace))
        patch.setattr(os, "fsync", counted("sync", os.fsync))
        # A dead process tidies nothing up either.
        patch.setattr(Path, "unlink", counted("unlink", Path.unlink))
        yield steps


def three_days(path: Path) -> Store:
    """A store whose entries arrived on three days, so that a range has three files."""
    clock = Clock()
    store = make_store(path, clock=clock)
    for day in range(3):
        clock.now = NOON + day * DAY_US
        put(store, AuthorLog(day + 1), range(1, 5))
    return store


def test_killed_at_any_step_the_next_run_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with three_days(tmp_path / "s") as store:
        step = 0
        while True:
            root = tmp_path / f"out{step}"
            with dies_at(step, monkeypatch):
                try:
                    export(store, root)
                except Killed:
                    pass
                else:
                    break
            seen = keys(root)
            assert len(set(seen)) == len(seen)
            assert set(seen) <= set(held(store))
            export(store, root)
            assert keys(root) == held(store)
            assert not list(root.rglob("*.tmp"))
            assert export(store, root).rows == 0
            step += 1
    assert step > 20


def test_killed_between_two_files_of_a_range_while_payloads_go_on_moving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with three_days(tmp_path / "s") as store:
        for step in range(3, 40):
            root = tmp_path / f"out{step}"
            with dies_at(step, monkeypatch), suppress(Killed):
                export(store, root)
            store.drop(AuthorLog(1 + step % 3).key, 1 + step % 4, 1 + step % 4)
            before = files(root)
            export(store, root)
            assert set(before) <= set(files(root))
            assert set(keys(root)) == set(held(store))


def test_without_any_manifest_the_names_of_the_files_are_the_bookmark(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with three_days(tmp_path / "s") as store:
        export(store, root)
        put(store, AuthorLog(8), range(1, 5))
        export(store, root)
        for path in (root / "_manifests").iterdir():
            path.unlink()
        assert export(store, root).rows == 0
        assert keys(root) == held(store)


def test_a_full_disk_is_said_and_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "out"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with filled_store(tmp_path / "s") as store:
        export(store, root)
        put(store, AuthorLog(9), range(1, 5))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(ExportFailed, match="the disk is full"):
                export(store, root)
        assert not list(root.rglob("*.tmp"))
        assert len(keys(root)) == 30
        assert export(store, root).rows == 4


LIMITED = """
import resource, sys
from analytics import ExportFailed, Exporter
from logstore import Store
with Store.open(sys.argv[1], readonly=True) as store:
    exporter = Exporter(store, sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        exporter.run()
    except ExportFailed as error:
        print(error)
"""


def test_a_write_that_is_refused_halfway_leaves_whole_files(tmp_path: Path) -> None:
    root = tmp_path / "out"
    random = Random(3)
    with make_store(tmp_path / "s") as store:
        store.append([b"first"])
        export(store, root)
        store.append([random.randbytes(50_000) for _ in range(10)])
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(tmp_path / "s"), str(root)],
            env=os.environ | {"PYTHONPATH": str(TOP)},
            capture_output=True,
            check=True,
        )
        assert b"the disk is full" in done.stdout
        assert len(keys(root)) == 1
        assert not list(root.rglob("*.tmp"))
        assert export(store, root).rows == 10


def test_two_exports_into_one_directory_exclude_each_other(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        export(store, root)
        put(store, AuthorLog(9), range(1, 2))

        def second(_: object) -> None:
            with pytest.raises(ExportBusy, match="another process is exporting"):
                Exporter(store, root).run()

        assert Exporter(store, root).run(second).rows == 1


PROGRAM = """
import sys
from pathlib import Path
from analytics import Exporter
from logstore import Store
with Store.open(sys.argv[1], readonly=True) as store:
    exporter = Exporter(store, sys.argv[2], file_bytes_max=20_000)
    print("begin", flush=True)
    exporter.run()
"""


def kill_exports(tmp_path: Path, kills: int, seed: int) -> int:
    """Kills real exports at random moments; how many of them were not done yet."""
    random = Random(seed)
    root = tmp_path / "out"
    died = 0
    with make_store(tmp_path / "s") as store:
        for round_ in range(kills):
            store.append([random.randbytes(50_000) for _ in range(60)], log_id=round_ % 5)
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(tmp_path / "s"), str(root)],
                env=os.environ | {"PYTHONPATH": str(TOP)},
                stdout=subprocess.PIPE,
            )
            with process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(random.random() * 0.25)
                process.send_signal(signal.SIGKILL)
            died += process.returncode == -signal.SIGKILL
            seen = keys(root)
            assert len(set(seen)) == len(seen)
            assert set(seen) <= set(held(store))
        export(store, root)
        assert keys(root) == held(store)
    return died


def test_killed_processes_leave_what_the_next_one_goes_on_with(tmp_path: Path) -> None:
    assert kill_exports(tmp_path, kills=4, seed=1) > 0


@pytest.mark.long
def test_five_hundred_kills(tmp_path: Path) -> None:
    assert kill_exports(tmp_path, kills=500, seed=2) > 100


def test_temporary_names_are_hidden_from_readers() -> None:
    assert layout.is_hidden(".part-x.parquet.tmp")
    assert layout.is_hidden("_manifests")
    assert not layout.is_hidden("part-x.parquet")
