"""How much memory a data stream takes: one operation of a GiB, and a hundred clients at a million.

    python bench/datastream_memory.py [--mib 1024] [--entries 1000000] [--clients 100]

One JSON object per line. The largest resident size of each process (VmHWM, MB), each role in a
process of its own: before is when it has done the same with an operation of 1 KiB, above is what
the large operation adds. Its entries have 1 MiB, and in a second run 256 bytes.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

from bench.datastream import fill, our_server, receive_history, request, rss_mb
from bench.support.output import show
from gateways.datastream import DataStream, DataStreamSource
from gateways.datastream.logs import StreamLog
from logstore import Store
from wire import LogKey

LARGE = 1_048_559
SMALL = 239
HEAD = 17


def own_mb() -> float:
    """Of this process."""
    return rss_mb("self")


async def write(store: Store, total: int, data: int) -> tuple[float, float]:
    """A source: before and after an operation of `total` bytes with entries of `data` bytes."""
    async with DataStreamSource(store) as source:
        async with source.atomic() as op:
            op.event(1, b"x" * 1000)
        before = own_mb()
        async with source.atomic() as op:
            for _ in range(total // (data + HEAD)):
                op.event(1, b"x" * data)
    return before, own_mb()


def apply(store: Store) -> tuple[float, float]:
    """The index, made anew."""
    before = own_mb()
    assert store.path is not None
    for path in store.path.glob("datastream.sqlite3*"):
        path.unlink()
    log = StreamLog(store, LogKey(store.author, 0))
    log.update()
    log.close()
    return before, own_mb()


async def read(store: Store) -> tuple[float, float]:
    """A program that reads all of it."""
    stream = DataStream(store, LogKey(store.author, 0))
    await stream.header()
    before = own_mb()
    async for _ in stream.entries():
        pass
    stream.close()
    return before, own_mb()


def role(name: str, folder: Path, total: int, data: int) -> None:
    """What runs in a process of its own: prints both figures."""
    with Store.open(folder) as store:
        if name == "source":
            found = trio.run(write, store, total, data)
        elif name == "index":
            found = apply(store)
        else:
            found = trio.run(read, store)
    print(*found)


def in_process(name: str, folder: Path, total: int, data: int) -> tuple[float, float]:
    """Both figures of a role."""
    command = [sys.executable, "-m", "bench.datastream_memory", "--role", name]
    command += ["--folder", str(folder), "--total", str(total), "--data", str(data)]
    before, after = subprocess.check_output(command, text=True).split()
    return float(before), float(after)


def serve(folder: Path, total: int) -> tuple[float, float]:
    """A server that sends all of it to one client."""
    with our_server(folder) as (port, pid):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(request(5, 0))
            client.recv(11 + HEAD + 1000, socket.MSG_WAITALL)
            before = rss_mb(pid)
            client.sendall(request(1, 1))
            left = 11 + total
            while left:
                left -= len(client.recv(min(left, 1 << 20)))
        return before, rss_mb(pid)


def tell(name: str, before: float, after: float) -> None:
    """One line."""
    fields = {"before": round(before, 1), "after": round(after, 1)}
    show({"name": name, "unit": "MB", **fields, "above": round(after - before, 1)})


def main() -> None:
    """Runs all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--role")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--total", type=int)
    parser.add_argument("--data", type=int)
    options = parser.parse_args()
    if options.role:
        role(options.role, options.folder, options.total, options.data)
        return
    with tempfile.TemporaryDirectory() as scratch:
        for data in (LARGE, SMALL):
            folder = Path(scratch) / f"of{data}"
            with Store.create(folder) as store:
                trio.run(DataStreamSource.create, store)
            total = (options.mib << 20) // (data + HEAD) * (data + HEAD)
            label = f"{options.mib} MiB in entries of {data} bytes"
            for name in ("source", "index", "reader"):
                tell(f"{name}, {label}", *in_process(name, folder, total, data))
            tell(f"server, {label}", *serve(folder, total))
        folder = Path(scratch) / "million"
        trio.run(fill, folder, options.entries)
        with our_server(folder) as (port, pid):
            before = rss_mb(pid)
            receive_history(port, options.clients, options.entries)
            tell(
                f"server, {options.entries} entries to {options.clients} clients",
                before,
                rss_mb(pid),
            )


if __name__ == "__main__":
    main()
