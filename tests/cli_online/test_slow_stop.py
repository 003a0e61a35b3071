"""A process that ends over a slow link, however it ends, leaves what came for the next one."""

import random
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logstore import Store
from wire import LogKey

from .forked import Forked
from .running import PATIENCE_S, run, serving, started, until

PAYLOAD = random.Random(1).randbytes(3_000_000)
LITTLE, MUCH = 900_000, 2_200_000
"""So much comes before the way stands still, as it does for long on a link of 60 kB/s."""
ON_THE_WAY = 50_000
"""What of that is no payload, or not written yet."""


class Proxy:
    """Passes connections on to an address; from there so many bytes come, and then none."""

    def __init__(self, target: str, bytes_max: int) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._left = bytes_max
        self.passed = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listening]
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(far, near), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def _pass_back(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while self._left and (data := far.recv(min(self._left, 65536))):
                self._left -= len(data)
                near.sendall(data)
                # Behind that: what is not sent yet nobody could have read.
                self.passed += len(data)
            if self._left:
                near.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self._sockets:
            each.close()


@contextmanager
def proxy(target: str, bytes_max: int = 1 << 40) -> Iterator[Proxy]:
    found = Proxy(target, bytes_max)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def giver(tmp_path: Path) -> Iterator[tuple[str, LogKey]]:
    """The address of a node, and its log of one entry."""
    author = run(tmp_path / "giver", "init").stdout.strip()
    run(tmp_path / "giver", "append", stdin=PAYLOAD)
    with serving(tmp_path / "giver", "--listen", "127.0.0.1:0", "--json") as node:
        yield node.event()["address"], LogKey.parse(f"{author}/0")


def unread(address: str) -> int:
    """Bytes from this address that are on their way, or have arrived, and that nobody has read.

    They never came: on a busy machine a process may not have had its turn yet. Elsewhere than on
    Linux: 0.
    """
    port, table = int(address.rpartition(":")[2]), Path("/proc/net/tcp")
    rows = [row.split() for row in table.read_text().splitlines()[1:]] if table.exists() else []
    arrived = sum(int(row[4][9:], 16) for row in rows if int(row[2][9:], 16) == port)
    return arrived + sum(int(row[4][:8], 16) for row in rows if int(row[1][9:], 16) == port)


def kept(store: Path, log: LogKey) -> int:
    """How much of the payload the next process goes on behind."""
    with Store.open(store, readonly=True) as held:
        entry = held.entry(log, 1)
        return 0 if entry is None else entry.partial_bytes


@contextmanager
def taking(store: Path, giver: tuple[str, LogKey], came: int, *command: str) -> Iterator[Forked]:
    """A process that has got so much of the payload, and waits for more."""
    run(store, "init")
    address, log = giver
    with proxy(address, came) as way:
        # The way stands still at the end, too: whoever ends waits for it as long as it would.
        delays = {"close_timeout_s": 1.0}
        process = started(store, *command, way.address, "--follow", str(log), delays=delays)
        try:
            until(lambda: way.passed == came and not unread(way.address))
            yield process
        finally:
            process.kill()
            process.communicate()


SERVE = ("serve", "--no-listen", "--connect")
WAYS = {
    "serve-SIGTERM": (SERVE, signal.SIGTERM, LITTLE, 0),
    "serve-SIGKILL": (SERVE, signal.SIGKILL, MUCH, -signal.SIGKILL),
    "sync-SIGINT": (("sync",), signal.SIGINT, LITTLE, 130),
}


@pytest.mark.parametrize(("command", "number", "came", "status"), WAYS.values(), ids=WAYS)
def test_what_came_over_a_slow_link_is_where_the_next_process_goes_on(
    command: tuple[str, ...],
    number: signal.Signals,
    came: int,
    status: int,
    giver: tuple[str, LogKey],
    tmp_path: Path,
) -> None:
    store, (address, log) = tmp_path / "taker", giver
    with taking(store, giver, came, *command) as process:
        if number is signal.SIGKILL:
            # Nothing comes any more, and what came is on disk when a second has passed; and not
            # only when the connection has been silent for a minute.
            until(lambda: kept(store, log) > came - ON_THE_WAY, patience_s=PATIENCE_S / 2)
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status
    if command == ("sync",):
        assert "goes on; still missing: 0 entries and 1 payload of 1 log" in str(said)
    assert kept(store, log) > came - ON_THE_WAY
    with proxy(address) as way:
        done = run(store, "sync", way.address)
        assert done.returncode == 0, done.stderr
        assert way.passed < len(PAYLOAD) - came + 2 * ON_THE_WAY
    with Store.open(store, readonly=True) as held, held.open_payload(log, 1) as payload:
        assert payload.read(0, len(PAYLOAD) + 1) == PAYLOAD
