"""Runs `bamboo-peer` in processes of its own."""

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

from .forked import Forked

EXECUTABLE = str(Path(sys.executable).with_name("bamboo-peer"))
PATIENCE_S = 60

Process = Forked | subprocess.Popen[str]


def run(
    store: Path, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    process = started(store, *arguments, stdin=stdin, environment=environment)
    out, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def started(
    store: Path,
    *arguments: str,
    stdin: bytes = b"",
    environment: dict[str, str] | None = None,
    delays: dict[str, float] | None = None,
) -> Forked:
    """A command that goes on, its output in pipes."""
    command = [*arguments, "--store", str(store)]
    return Forked(command, {**os.environ, **(environment or {})}, stdin, delays or {})


def loaded(
    store: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Likewise, and the program is loaded anew, as it is by a shell."""
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

    def __init__(self, process: Process) -> None:
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
        assert self.process.returncode is not None
        return self.process.returncode, error


@contextmanager
def serving(
    store: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    start: Callable[..., Process] = started,
    **delays: float,
) -> Iterator[Serving]:
    """`start` is `loaded` where it matters how the process begins; then there are no `delays`."""
    how = {"delays": delays} if delays else {}
    process = start(store, "serve", *arguments, environment=environment, **how)
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
