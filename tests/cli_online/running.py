"""Runs `bamboo-peer` in processes of its own, as a shell does."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

EXECUTABLE = str(Path(sys.executable).with_name("bamboo-peer"))
PATIENCE_S = 60


def run(store: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [EXECUTABLE, *arguments, "--store", str(store)],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def started(
    store: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """A command that goes on, its output in pipes."""
    return subprocess.Popen(
        [EXECUTABLE, *arguments, "--store", str(store)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


class Serving:
    """A `serve` process; its events are read one by one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.line())
        return found

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and standard error after a signal."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, error


@contextmanager
def serving(
    store: Path, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[Serving]:
    process = started(store, "serve", *arguments, environment=environment)
    # Whoever waits for a line that never comes reads the end of the output instead.
    patience = Timer(2 * PATIENCE_S, process.kill)
    patience.start()
    try:
        yield Serving(process)
    finally:
        patience.cancel()
        if process.returncode is None:
            process.kill()
            process.communicate()


def until(done: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Returns once something is true that another process brings about."""
    deadline = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
