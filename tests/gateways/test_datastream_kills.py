"""`kill -9` of source, server, relay, importer: what was acknowledged is there, and it goes on."""

import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from gateways.datastream import DataStreamServer, DataStreamSource, export_file, import_file, relay
from gateways.datastream.codec import PacketReader, decode_entries
from gateways.datastream.logs import StreamLog
from logstore import Store
from wire import LogKey

from .streams import Model, declare, raw
from .test_datastream_logs import check, read_all
from .test_datastream_server import OK, start

KILLS = [pytest.param(4), pytest.param(200, marks=pytest.mark.long)]
SCRIPT = "tests.gateways.killed"


def run_and_kill(rng: random.Random, *argv: str, seconds: float, lines: int = 1) -> list[str]:
    """Starts a process, kills it some time after so many lines, and returns the whole ones.

    The first line says that it has begun: how long that takes is the machine's business.
    """
    with subprocess.Popen(
        [sys.executable, "-m", SCRIPT, *argv], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        begun = [process.stdout.readline() for _ in range(lines)]
        time.sleep(rng.uniform(0, seconds))
        process.kill()
        out = "".join(begun) + process.stdout.read()
    return out[: out.rfind("\n") + 1].splitlines()[1:]


@pytest.mark.parametrize("kills", KILLS)
async def test_a_source_that_is_killed_has_lost_nothing(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    path = tmp_path / "store"
    with Store.create(path) as store:
        key = await DataStreamSource.create(store)
    acknowledged = -1
    for _ in range(kills):
        told = 1 + rng.randrange(1, 30)
        lines = run_and_kill(rng, "source", str(path), seconds=0.02, lines=told)
        acknowledged = max(acknowledged, int(lines[-1]) if lines else -1)
        if rng.random() < 0.3:
            (path / "datastream.sqlite3").unlink(missing_ok=True)
        with Store.open(path) as store:
            stream = StreamLog(store, key)
            state = stream.update()
            assert not state.broken
            assert state.total_entries > acknowledged
            for entry in decode_entries(read_all(stream)):
                first = entry.number & ~1
                data = first.to_bytes(8, "big")
                assert entry.data == (data if entry.is_bookmark else data * (first % 9000))
            stream.close()
    assert acknowledged > 0


def take_some(port: int, number: int, wanted: bytes) -> bytes:
    """What a server sends from an entry on, checked, until it is gone or all has come."""
    received = b""
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(60)
        client.sendall(start(number))
        while len(received) < 11 + len(wanted) and (more := client.recv(1 << 16)):
            received += more
    assert (OK + wanted).startswith(received)
    return received[len(OK) :]


@pytest.mark.parametrize("kills", KILLS)
def test_a_server_that_is_killed_has_sent_nothing_wrong(tmp_path: Path, kills: int) -> None:
    """A client that comes again with the number it has got to has the stream once, without gap."""
    rng = random.Random(kills)
    model = Model()
    path = tmp_path / "store"
    got = 0
    with Store.create(path) as store:
        key = declare(store)
        for kill in range(kills):
            added = [model.add(1, rng.randbytes(rng.choice((10, 5000, 300_000)))) for _ in range(5)]
            store.append([b"".join(added[:2]), b"".join(added[2:])])
            with subprocess.Popen(
                [sys.executable, "-m", SCRIPT, "serve", str(path)],
                stdout=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                port = int(process.stdout.readline())
                timer = threading.Timer(rng.uniform(0, 0.05), process.kill)
                timer.start()
                wanted = b"".join(
                    raw(number, *model.entries[number]) for number in range(got, len(model.entries))
                )
                received = take_some(port, got, wanted)
                timer.join()
            reader = PacketReader()
            reader.feed(received)
            while reader.next() is not None:
                got += 1
            if rng.random() < 0.3:
                (path / "datastream.sqlite3").unlink(missing_ok=True)
            if kill % 10 == 0:
                stream = StreamLog(store, key)
                check(stream, model)
                stream.close()
        stream = StreamLog(store, key)
        check(stream, model)
        stream.close()
    assert got > 0


@pytest.mark.parametrize("kills", KILLS)
async def test_a_relay_that_is_killed_goes_on_from_its_log(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    model = Model()
    path = tmp_path / "relay"
    Store.create(path).close()
    with Store.create(tmp_path / "upstream") as upstream:
        key = declare(upstream)
        async with DataStreamServer(upstream, key, listen="127.0.0.1:0") as server:
            address = str(server.address)
            done = trio.Event()

            async def produce() -> None:
                while not done.is_set():
                    added = [model.add(176, b"a") + model.add(1, b"x" * rng.randrange(5000))]
                    await trio.to_thread.run_sync(upstream.append, added)
                    await trio.sleep(0.005)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                for _ in range(kills):
                    await trio.to_thread.run_sync(
                        lambda: run_and_kill(rng, "relay", str(path), address, seconds=1.0)
                    )
                done.set()
            await server.feed.refresh()
            with Store.open(path) as store:
                await relay(store, address, once=True)
                stream = StreamLog(store, LogKey(store.author, 0))
                check(stream, model)
                stream.close()
                for each, source in (("ours", store), ("upstream", upstream)):
                    found = LogKey(source.author, 0)
                    export_file(source, found, tmp_path / f"{each}.bin", with_bookmarks=False)
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "upstream.bin").read_bytes()


@pytest.mark.parametrize("kills", KILLS)
async def test_an_importer_that_is_killed_is_run_again(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    model = Model()
    with Store.memory() as source:
        key = declare(source)
        for _ in range(60):
            source.append([model.add(1, rng.randbytes(400_000))])
        export_file(source, key, tmp_path / "s.bin", with_bookmarks=False)
    path = tmp_path / "store"
    Store.create(path).close()
    for kill in range(kills):
        run_and_kill(rng, "import", str(path), str(tmp_path / "s.bin"), seconds=0.8)
        with Store.open(path) as store:
            info = store.log(LogKey(store.author, 0))
            is_done = info is not None and info.height == 1 + len(model.entries)
        if is_done and kill < kills - 1:  # one that has nothing left to do cannot be interrupted
            path = tmp_path / f"store{kill}"
            Store.create(path).close()
    with Store.open(path) as store:
        done = await import_file(store, tmp_path / "s.bin")
        assert done.total_entries == 60
        stream = StreamLog(store, done.key)
        check(stream, model)
        stream.close()
