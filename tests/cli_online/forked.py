"""`bamboo-peer` in processes of its own that do not begin with loading Python and the program.

That takes far longer than the work which a test has for such a process. So a program that has
loaded everything (this file, run as one) forks whenever a process is wanted. What is forked has a
process id, standard streams, an environment and signals of its own, and ends as any process does.
"""

import atexit
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Timer
from types import TracebackType
from typing import IO, Any, Self

REQUEST_BYTES_MAX = 1 << 17


class Forked:
    """Such a process; its methods are those of `subprocess.Popen`.

    `delays`: what is not as in `SHORTER`, of `SessionConfig`.
    """

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        stdin: bytes,
        delays: dict[str, float],
    ) -> None:
        # A file, so that nobody has to write it while the output is read.
        given = os.memfd_create("stdin")
        os.write(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
        out, its_out = os.pipe()
        error, its_error = os.pipe()
        told, its_told = os.pipe()
        theirs = [given, its_out, its_error, its_told]
        request = json.dumps({"arguments": arguments, "environment": environment, "delays": delays})
        socket.send_fds(_forking(), [request.encode()], theirs)
        for each in theirs:
            os.close(each)
        self.args = arguments
        self.stdout: IO[str] = os.fdopen(out, encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(error, encoding="utf-8")
        self._told = os.fdopen(told)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stdout.close()
        self.stderr.close()
        self._end()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises TimeoutExpired, and then the process is killed."""
        with self._patience(timeout):
            return self._end()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The output that nobody has read, to its end. Raises TimeoutExpired likewise."""
        with self._patience(timeout), self, ThreadPoolExecutor(1) as beside:
            error = beside.submit(_rest, self.stderr)
            return _rest(self.stdout), error.result()

    def _end(self) -> int:
        if self.returncode is None:
            with self._told:
                self.returncode = int(self._told.readline())
        return self.returncode

    @contextmanager
    def _patience(self, seconds: float | None) -> Iterator[None]:
        if seconds is None:
            yield
            return
        patience = Timer(seconds, self.kill)
        patience.start()
        try:
            yield
        finally:
            lost = not patience.is_alive()
            patience.cancel()
        if lost:
            raise subprocess.TimeoutExpired(self.args, seconds)


def _rest(stream: IO[str]) -> str:
    return "" if stream.closed else stream.read()


@cache
def _forking() -> socket.socket:
    """Where to ask the program that forks; one for all tests, which ends with them."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-P", __file__, str(its.fileno())]
        program = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)

    def end() -> None:
        ours.close()
        program.wait()

    atexit.register(end)
    return ours


SHORTER = {
    "retry_first_s": 0.1,
    "retry_max_s": 6.0,
    "keep_again_s": 0.05,
    "look_again_s": 0.1,
    "sync_settle_s": 0.2,
}
"""Delays of a session that nearly every test would sit out in full, as nothing else is under way.

Nothing that somebody is given up after: on a busy machine that is needed.
"""


def _load() -> None:
    """All that a command would load when it is run."""
    from bamboo_cli.registry import COMMANDS

    for name in ("analytics", "peer.api", "bamboo_cli.dispatch"):
        import_module(name)
    for command in COMMANDS.values():
        command.load()
    # What all have in common is not looked through again at the end of each of them.
    gc.freeze()


def _shorten(delays: dict[str, float]) -> None:
    """Has every configuration of a session begin with these, and nodes tell how they are soon.

    With that `fetch` and `wait` hear of it sooner, and allow for less that they have not heard of.
    """
    from bamboo_cli import coming, waiting
    from peer import SessionConfig
    from peer.node import spread
    from peer.node.status import status_file

    status_file.INTERVAL_S = spread.REMEMBER_S = coming.TELLING_S = 0.1  # type: ignore[misc]
    coming.LATE_S, coming.LINE_S = 1.0, 2.5  # type: ignore[misc]
    waiting.SETTLE_S = 0.4  # type: ignore[misc]
    first = inspect.signature(SessionConfig).parameters
    assert delays.keys() <= first.keys()
    SessionConfig.__init__.__defaults__ = tuple(
        delays.get(name, parameter.default) for name, parameter in first.items()
    )


def _fork_when_asked(asked: socket.socket) -> int:
    """Until nobody can ask any more. In what is forked it returns that one's exit status."""
    _load()
    # Those that wait (below) are nobody's business.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, streams, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 4)
        if not request:
            return 0
        if os.fork() == 0:
            asked.close()
            return _run(json.loads(request), *streams)
        for each in streams:
            os.close(each)


def _run(request: dict[str, Any], given: int, out: int, error: int, told: int) -> int:
    """Two processes: the program, and one that tells how it ends, which only a parent learns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for each in (given, out, error):
            os.close(each)
        with os.fdopen(told, "w", buffering=1) as telling:
            telling.write(f"{pid}\n")
            _, status = os.waitpid(pid, 0)
            telling.write(f"{os.waitstatus_to_exitcode(status)}\n")
        os._exit(0)
    os.close(told)
    for number, each in enumerate((given, out, error)):
        os.dup2(each, number)
        os.close(each)
    _shorten(SHORTER | request["delays"])
    os.environ.clear()
    os.environ.update(request["environment"])

    from bamboo_cli import main

    return main(request["arguments"])


if __name__ == "__main__":
    sys.exit(_fork_when_asked(socket.socket(fileno=int(sys.argv[1]))))
