"""Upstream's own server, client and relay against ours, where a build of them is at hand."""

import json
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from gateways.datastream import DataStreamClient, DataStreamServer, export_file, import_file, relay
from gateways.datastream.logs import StreamLog
from logstore import Store
from wire import LogKey

from .streams import Model, declare
from .test_datastream_kills import run_and_kill
from .test_datastream_logs import check

DRIVER = os.environ.get("DATASTREAM_UPSTREAM", "")
pytestmark = pytest.mark.skipif(
    not DRIVER, reason="no build of upstream: tests/gateways/upstream/README.md says how"
)
PATIENCE_S = 60


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Upstream:
    """A running driver."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def commit(self, model: Model, entries: list[tuple[int, bytes]]) -> None:
        """One operation."""
        assert self.process.stdin is not None
        found = []
        for type_, data in entries:
            model.add(type_, data)
            key = {"bookmark": data.hex()} if type_ == 176 else {"type": type_, "data": data.hex()}
            found.append(key)
        self.process.stdin.write(json.dumps({"entries": found}) + "\n")
        self.process.stdin.flush()
        assert self.line() == str(len(model.entries))


@contextmanager
def driver(*argv: object, cwd: Path) -> Iterator[Upstream]:
    with subprocess.Popen(
        [DRIVER, *map(str, argv)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
    ) as process:
        try:
            yield Upstream(process)
        finally:
            process.kill()


def some(count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = [(176, count.to_bytes(9, "big"))]
    return found + [(number % 5, bytes([number % 256]) * (number * 37)) for number in range(count)]


async def test_our_relay_takes_upstream_s_server_and_exports_its_file(tmp_path: Path) -> None:
    model = Model()
    port = free_port()
    with driver("server", port, "up.bin", cwd=tmp_path) as upstream, Store.memory() as store:
        assert upstream.line() == "ready"
        for count in (3, 40, 200, 1):
            upstream.commit(model, some(count))
        address = f"127.0.0.1:{port}"
        async with DataStreamClient(address) as client:
            header = await client.header()
            assert (header.total_entries, header.total_length) == (len(model.entries), model.length)
        with trio.fail_after(PATIENCE_S):
            await relay(store, address, once=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay, store, address)
            stream = StreamLog(store, LogKey(store.author, 0))
            for count in (5, 6, 7):
                await trio.to_thread.run_sync(upstream.commit, model, some(count))
                with trio.fail_after(PATIENCE_S):
                    while stream.update().total_entries != len(model.entries):  # noqa: ASYNC110
                        await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        check(stream, model)
        stream.close()
        export_file(store, LogKey(store.author, 0), tmp_path / "ours.bin")
        theirs = (tmp_path / "up.bin").read_bytes()
        assert (tmp_path / "ours.bin").read_bytes() == theirs
        imported = await import_file(store, tmp_path / "up.bin", log_id=1)
        assert (imported.added, imported.relaid) == (len(model.entries), False)


async def test_a_relay_that_is_killed_while_upstream_writes_exports_its_file(
    tmp_path: Path,
) -> None:
    rng = random.Random(4)
    model = Model()
    port = free_port()
    address = f"127.0.0.1:{port}"
    path = tmp_path / "relay"
    Store.create(path).close()
    with driver("server", port, "up.bin", cwd=tmp_path) as upstream:
        assert upstream.line() == "ready"
        stop = trio.Event()

        async def produce() -> None:
            while not stop.is_set():
                await trio.to_thread.run_sync(upstream.commit, model, some(rng.randrange(1, 40)))

        held = [0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            for _ in range(4):
                await trio.to_thread.run_sync(
                    lambda: run_and_kill(rng, "relay", str(path), address, seconds=2)
                )
                with Store.open(path) as store:
                    stream = StreamLog(store, LogKey(store.author, 0))
                    held.append(stream.update().total_entries)
                    stream.close()
            stop.set()
        assert held == sorted(held)
        assert held[-1] > 0
        with Store.open(path) as store:
            with trio.fail_after(PATIENCE_S):
                await relay(store, address, once=True)
            stream = StreamLog(store, LogKey(store.author, 0))
            check(stream, model)
            stream.close()
            export_file(store, LogKey(store.author, 0), tmp_path / "ours.bin")
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "up.bin").read_bytes()


async def test_upstream_s_client_and_relay_take_our_server(tmp_path: Path) -> None:
    model = Model()
    with Store.memory() as store:
        key = declare(store)
        for count in (3, 40, 200, 1):
            store.append([b"".join(model.add(*entry) for entry in some(count))])
        async with DataStreamServer(store, key, listen="127.0.0.1:0") as server:
            total = len(model.entries)
            with driver("client", server.address, 0, total + 2, cwd=tmp_path) as client:
                first = await trio.to_thread.run_sync(client.line)
                assert first == f"{total} {model.length}"
                lines = [await trio.to_thread.run_sync(client.line) for _ in range(total)]
                live = model.add(1, b"live") + model.add(2, b"")
                await trio.to_thread.run_sync(store.append, [live])
                lines += [await trio.to_thread.run_sync(client.line) for _ in range(2)]
            assert lines == [
                f"{number} {type_} {data.hex()}".strip()
                for number, (type_, data) in enumerate(model.entries)
            ]
            port = free_port()
            with driver("relay", server.address, port, "relay.bin", cwd=tmp_path) as relaying:
                assert await trio.to_thread.run_sync(relaying.line) == "ready"
                async with DataStreamClient(f"127.0.0.1:{port}") as found:
                    with trio.fail_after(PATIENCE_S):
                        while (await found.header()).total_entries != len(model.entries):  # noqa: ASYNC110
                            await trio.sleep(0.05)
                    entries = await found.entries(list(range(len(model.entries))))
            assert [(each.type, each.data) for each in entries if each] == model.entries
