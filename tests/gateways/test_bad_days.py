"""Both gateways on one store, each in a process of its own, on a disk that gets full."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from gateways.datastream import DataStreamClient, ServerFailed
from gateways.ockam import Catalog, Side, codec
from logstore import Store, StoreFull
from tests.gateways.failing import damage
from tests.gateways.streams import Model, declare

from .hubs import Gateway, gateway
from .ockam.test_service import Client

DISK_MB = 16
PATIENCE_S = 60


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, where the test may have one."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return filler


async def push(client: Client, worker: str, request: int, data: bytes) -> codec.Pushed:
    await client.ask(worker, codec.Push(request, data))
    replied = await client.reply()
    assert replied is not None
    assert isinstance(replied[1], codec.Pushed)
    return replied[1]


async def pull(client: Client, worker: str, index: int) -> list[bytes]:
    await client.ask(worker, codec.Pull(1, index, 100))
    replied = await client.reply()
    assert replied is not None
    assert isinstance(replied[1], codec.Pulled)
    return [data for _, data in replied[1].messages]


async def end_under_load(hub: Gateway, server: Gateway, client: Client, worker: str) -> int:
    """Tells both to end while a client pushes; how many pushes were confirmed."""

    async def load() -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            for number in range(1_000):
                await client.ask(worker, *[codec.Push(number, b"load")] * 100)

    confirmed = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        while (replied := await client.reply()) is not None:
            assert isinstance(replied[1], codec.Pushed)
            assert replied[1].is_stored
            confirmed += 1
            if confirmed == 300:
                hub.process.send_signal(signal.SIGTERM)
                server.process.send_signal(signal.SIGTERM)
        nursery.cancel_scope.cancel()
    assert await hub.process.wait() == 0
    assert await server.process.wait() == 0
    return confirmed


async def test_a_full_disk_and_a_damaged_entry_end_nothing_but_the_one_concerned(
    disk: Path,
) -> None:
    path = disk / "store"
    with trio.fail_after(PATIENCE_S), Store.create(path) as store:
        model = Model()
        key = declare(store)
        for number in range(4):
            store.append([model.add(1, b"event %d" % number)])
        async with (
            gateway(path, "ockam", "serve") as hub,
            gateway(path, "datastream", "serve", str(key)) as server,
            DataStreamClient(server.address) as following,
            DataStreamClient(server.address) as asking,
        ):
            host, _, port = hub.address.rpartition(":")
            client = Client(await trio.open_tcp_stream(host, int(port)))
            orders, bills = await client.create("orders"), await client.create("bills")
            for number in range(4):
                assert (await push(client, orders, number, b"order %d" % number)).index == number
            assert (await push(client, bills, 4, b"bill")).is_stored
            await following.start(0)
            assert [(await following.receive()).data for _ in range(4)] == [
                b"event %d" % number for number in range(4)
            ]

            # Full. What is there is given out, what is pushed is refused, and nobody is sent away.
            filler = fill(disk)
            assert not (await push(client, orders, 5, bytes(50_000))).is_stored
            with pytest.raises(StoreFull):
                await trio.to_thread.run_sync(store.append, [bytes(1 << 20)])
            assert await pull(client, orders, 0) == [b"order %d" % number for number in range(4)]
            found = await asking.entry(2)
            assert found is not None
            assert found.data == b"event 2"

            # And free again: on the same connections.
            filler.unlink()
            assert await push(client, orders, 6, b"order 4") == codec.Pushed(6, True, 4)
            await trio.to_thread.run_sync(store.append, [model.add(1, b"event 4")])
            assert (await following.receive()).data == b"event 4"

            # Damaged: a pull ends before it; who asks for such an entry of the other ends alone.
            side = Side(store)
            catalog = Catalog(store, side)
            catalog.refresh()
            stream = catalog.find("orders", 0)
            assert stream is not None
            side.close()
            damage(store, stream.key, 4)
            damage(store, key, 4)
            with pytest.raises(ServerFailed):
                await asking.entry(2)
            assert await pull(client, orders, 0) == [b"order 0", b"order 1"]
            assert await pull(client, orders, 3) == [b"order 3", b"order 4"]
            assert await pull(client, bills, 0) == [b"bill"]
            await trio.to_thread.run_sync(store.append, [model.add(1, b"event 5")])
            assert (await following.receive()).data == b"event 5"

            confirmed = 5 + await end_under_load(hub, server, client, orders)
            await client.stream.aclose()
        info = store.log(stream.key)
        assert info is not None
        assert info.newest == 1 + confirmed
