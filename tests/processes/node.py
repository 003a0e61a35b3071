"""Real `bamboo-peer` processes on loopback, driven as a shell or a supervisor would."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cli_online.forked import Forked

EXECUTABLE = (str(Path(sys.executable).with_name("bamboo-peer")),)
PATIENCE_S = 60.0
"""How long anything may take before a test calls it stuck; nothing waits for it to pass."""


def wait_until(condition: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Poll a condition that other processes bring about."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {patience_s:.0f} s: {what}")
        time.sleep(0.01)


def run(store: Path, *arguments: str, stdin: bytes = b"", status: int = 0) -> str:
    """Run one command to its end and return its stdout. How it is loaded is `Node`'s business."""
    done = Forked([*arguments, "--store", str(store)], dict(os.environ), stdin, {})
    out, error = done.communicate(timeout=PATIENCE_S * 3)
    assert done.returncode == status, (arguments, done.returncode, out, error)
    return out


def init(store: Path) -> str:
    """Make a store; returns its author."""
    return run(store, "init").strip()


def records(store: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(store, *arguments, "--json").splitlines()]


def held(store: Path, author: str) -> dict[str, Any]:
    """What a store holds of an author's log 0; height 0 if nothing."""
    for record in records(store, "logs"):
        if record["author"] == author and record["log_id"] == 0:
            return record
    return {"height": 0, "payloads": 0}


class Node:
    """A `bamboo-peer serve --json` process and its events."""

    command: tuple[str, ...] = ("serve",)

    def __init__(self, store: Path, *arguments: str) -> None:
        self.store = store
        self.arguments = arguments
        self.events: list[dict[str, Any]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            [*EXECUTABLE, *self.command, "--json", "--store", str(store), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._errors: list[str] = []
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._collect, args=(self._process.stdout, self._lines.put)),
            threading.Thread(target=self._collect, args=(self._process.stderr, self._note)),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _collect(lines: Iterable[str], put: Callable[[str], None]) -> None:
        for line in lines:
            put(line)

    def _note(self, line: str) -> None:
        self._errors.append(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        return "".join(self._errors)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def seen(self) -> list[dict[str, Any]]:
        """All events so far."""
        while not self._lines.empty():
            self.events.append(json.loads(self._lines.get_nowait()))
        return self.events

    def wait_for(self, kind: str) -> dict[str, Any]:
        """The first event of a kind, once it is there."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [event for event in self.seen() if event["event"] == kind]
            if not found and not self.running:
                raise AssertionError(f"serve ended: {self.stderr}")
            return bool(found)

        wait_until(there, f"event {kind!r}")
        return found[0]

    @property
    def address(self) -> str:
        """HOST:PORT where it listens."""
        return str(self.wait_for("listening")["address"])

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._reap()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        self._reap()
        return self._process.returncode

    def _reap(self) -> None:
        self._process.wait(timeout=PATIENCE_S)
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def peak_memory_bytes(self) -> int:
        """The largest resident size so far (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self._process.kill()
        self._reap()


def connect(address: str) -> socket.socket:
    """A plain connection, for those who speak something else."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.settimeout(PATIENCE_S)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """What the other side sends until it hangs up, however it does."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        return data
    return data
