"""How fast a data stream is served and written, beside upstream's server where a build is at hand.

    python bench/datastream.py [--entries 100000] [--rounds 3] [--upstream DRIVER]

One JSON object per line: the median of the rounds with the smallest and the largest. Operations of
five entries of 200 bytes. Every figure has a fresh server process, since one that has sent the
stream before sends it from memory; ours and upstream's take turns. DRIVER is built as
tests/gateways/upstream/README.md says. Upstream does not sync what it commits, ours does.
"""

import argparse
import json
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from bench.support.output import show
from gateways.datastream import DataStreamSource
from logstore import Store

DATA = b"x" * 200
ENTRY_BYTES = 217
PER_OPERATION = 5
BATCH = 1000
RECEIVE_BYTES = 1 << 20
PATIENCE_S = 120
WARMING = 5
LIVE_OPERATIONS = 200
"""Enough for the 99th percentile not to be what one operation met."""
LIVE_FIGURES = ("median until all have it", "99th percentile", "99th percentile, once committed")


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def request(command: int, number: int | None = None) -> bytes:
    """The bytes of a request, not by our codec."""
    rest = b"" if number is None else number.to_bytes(8, "big")
    return command.to_bytes(8, "big") + (1).to_bytes(8, "big") + rest


async def fill(path: Path, entries: int) -> float:
    """A store with a stream; entries a second, synced, in batches of a thousand operations."""
    with Store.create(path) as store:
        await DataStreamSource.create(store, system_id=137)
        async with DataStreamSource(store) as source:
            start = time.perf_counter()
            for _ in range(0, entries, BATCH * PER_OPERATION):
                async with source.batch() as batch:
                    for _ in range(BATCH):
                        with batch.atomic() as op:
                            for _ in range(PER_OPERATION):
                                op.event(1, DATA)
            return entries / (time.perf_counter() - start)


@contextmanager
def our_server(folder: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a fresh server of the store in `folder`."""
    port = free_port()
    with Store.open(folder) as store:
        log = store.author.hex()
    program = Path(sys.executable).with_name("bamboo-peer")
    command = [str(program), "--store", str(folder), "datastream", "serve"]
    with subprocess.Popen(
        [*command, log, "--listen", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening")
        try:
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)


class Driver:
    """Upstream's server in a process."""

    def __init__(self, driver: Path, folder: Path) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [driver, "server", str(self.port), "up.bin"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.line()

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def commit(self, count: int) -> None:
        """Some operations."""
        assert self.process.stdin is not None
        entry = {"type": 1, "data": DATA.hex()}
        text = json.dumps({"entries": [entry] * PER_OPERATION}) + "\n"
        for _ in range(count):
            self.process.stdin.write(text)
            self.process.stdin.flush()
            self.line()

    def end(self) -> None:
        """Ends it; what it has committed is in its file."""
        self.process.kill()
        self.process.wait()


@contextmanager
def their_server(driver: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of upstream's server on the file in `folder`."""
    running = Driver(driver, folder)
    try:
        yield running.port, running.process.pid
    finally:
        running.end()


def receive_history(port: int, clients: int, entries: int) -> float:
    """MB a second that all clients together take of the whole history."""
    wanted = 11 + entries * ENTRY_BYTES
    with selectors.DefaultSelector() as selector:
        left: dict[socket.socket, int] = {}
        start = time.perf_counter()
        for _ in range(clients):
            each = socket.create_connection(("127.0.0.1", port))
            each.sendall(request(1, 0))
            each.setblocking(False)  # noqa: FBT003
            selector.register(each, selectors.EVENT_READ)
            left[each] = wanted
        buffer = bytearray(RECEIVE_BYTES)
        deadline = start + PATIENCE_S
        while left:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(left)} clients lack something")
            for key, _ in selector.select(1):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                count = client.recv_into(buffer)
                left[client] -= count
                if not count or left[client] <= 0:
                    if left[client] > 0:
                        raise ConnectionError("the server has let a client go")
                    selector.unregister(client)
                    client.close()
                    del left[client]
        return clients * wanted / (time.perf_counter() - start) / 1e6


def receive_live(port: int, start_at: int, commit: Callable[[], None]) -> list[float]:
    """Seconds until a hundred clients have an operation, one for each of LIVE_FIGURES.

    The median is of the operations, each as the last of the clients has it; the percentiles are of
    all clients and operations. The first operations are not counted, on neither side.
    """
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    for each in sockets:
        each.sendall(request(1, start_at))
        each.recv(11, socket.MSG_WAITALL)
    waits: list[float] = []
    after: list[float] = []
    lasts: list[float] = []
    for at in range(WARMING + LIVE_OPERATIONS):
        start = time.perf_counter()
        commit()
        committed = time.perf_counter() - start
        found = []
        for each in sockets:
            each.recv(PER_OPERATION * ENTRY_BYTES, socket.MSG_WAITALL)
            found.append(time.perf_counter() - start)
        if at >= WARMING:
            waits += found
            after += [max(0.0, each - committed) for each in found]
            lasts.append(found[-1])
    for each in sockets:
        each.close()
    tails = [statistics.quantiles(each, n=100)[98] for each in (waits, after)]
    return [statistics.median(lasts), *tails]


def our_live(folder: Path, entries: int) -> list[float]:
    """Live from a source in this process to a server in another."""
    with our_server(folder) as (port, _), Store.open(folder) as store:
        number = entries

        def commit() -> None:
            nonlocal number
            head = b"\x02" + ENTRY_BYTES.to_bytes(4, "big") + (1).to_bytes(4, "big")
            store.append(
                [
                    b"".join(
                        head + (number + at).to_bytes(8, "big") + DATA
                        for at in range(PER_OPERATION)
                    )
                ]
            )
            number += PER_OPERATION

        return receive_live(port, entries, commit)


def rss_mb(pid: int | str) -> float:
    """The largest resident size of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def tell(name: str, unit: str, values: dict[str, list[float]]) -> None:
    """One line: of each side the median and the spread, and the ratio of the medians."""
    fields: dict[str, object] = {"name": name, "unit": unit}
    for side, found in values.items():
        if found:
            fields[side] = round(statistics.median(found), 4)
            fields[f"{side}_spread"] = [round(min(found), 4), round(max(found), 4)]
    if values.get("ours") and values.get("upstream"):
        ratio = statistics.median(values["ours"]) / statistics.median(values["upstream"])
        fields["ratio"] = round(ratio, 2)
    show(fields)


def main() -> None:
    """Runs all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--upstream", type=Path)
    options = parser.parse_args()
    entries: int = options.entries
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        appended: dict[str, list[float]] = {"ours": [], "upstream": []}
        for round_ in range(options.rounds):
            appended["ours"].append(trio.run(fill, folder / f"ours{round_}", entries))
            if options.upstream:
                (folder / f"up{round_}").mkdir()
                running = Driver(options.upstream.absolute(), folder / f"up{round_}")
                start = time.perf_counter()
                running.commit(entries // PER_OPERATION)
                appended["upstream"].append(entries / (time.perf_counter() - start))
                running.end()
        tell("append, through a pipe to upstream", "entries/s", appended)
        for clients in (1, 10, 50):
            found: dict[str, list[float]] = {"ours": [], "upstream": []}
            memory = []
            for _ in range(options.rounds):
                with our_server(folder / "ours0") as (port, pid):
                    found["ours"].append(receive_history(port, clients, entries))
                    memory.append(rss_mb(pid))
                if options.upstream:
                    with their_server(options.upstream.absolute(), folder / "up0") as (port, _):
                        found["upstream"].append(receive_history(port, clients, entries))
            tell(f"history to {clients}", "MB/s", found)
            tell(f"memory of the server, {clients} clients", "MB", {"ours": memory})
        live: dict[str, list[list[float]]] = {"ours": [], "upstream": []}
        for round_ in range(options.rounds):
            live["ours"].append(our_live(folder / f"ours{round_}", entries))
            if options.upstream:
                running = Driver(options.upstream.absolute(), folder / f"up{round_}")
                live["upstream"].append(
                    receive_live(running.port, entries, lambda at=running: at.commit(1))  # type: ignore[misc]
                )
                running.end()
        for which, name in enumerate(LIVE_FIGURES):
            tell(
                f"live to 100, {name}",
                "s",
                {side: [each[which] for each in found] for side, found in live.items()},
            )


if __name__ == "__main__":
    main()
