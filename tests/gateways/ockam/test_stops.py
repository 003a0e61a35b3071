"""A hub as a process of its own that is told to end, or killed, while clients push."""

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import trio

from gateways.ockam import Catalog, Side, codec
from logstore import Store
from tests.cli_online.running import EXECUTABLE

from .test_service import Client


async def started(path: Path) -> tuple[trio.Process, Client]:
    """A hub on a store, and a client of it."""
    argv = [EXECUTABLE, "--store", str(path), "--json", "ockam", "serve", "--listen", "127.0.0.1:0"]
    process = await trio.lowlevel.open_process(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    event = json.loads(bytes(await process.stdout.receive_some()).partition(b"\n")[0])
    host, _, port = event["address"].rpartition(":")
    return process, Client(await trio.open_tcp_stream(host, int(port)))


async def test_all_that_was_stored_is_confirmed_when_the_hub_is_told_to_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    Store.create(path).close()
    process, client = await started(path)
    worker = await client.create("orders")
    confirmed: list[int] = []

    async def push() -> None:
        try:
            for first in range(0, 1_000_000, 100):
                await client.ask(worker, *(codec.Push(first + n, b"tea") for n in range(100)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push)
        while (replied := await client.reply()) is not None:
            assert isinstance(replied[1], codec.Pushed)
            confirmed.append(replied[1].index)
            if len(confirmed) == 300:
                process.send_signal(signal.SIGTERM)
        nursery.cancel_scope.cancel()
    assert await process.wait() == 0
    await client.stream.aclose()
    with Store.open(path) as store:
        side = Side(store)
        catalog = Catalog(store, side)
        catalog.refresh()
        stream = catalog.find("orders", 0)
        assert stream is not None
        assert confirmed == list(range(catalog.next_index(stream)))
        side.close()


async def test_all_that_was_confirmed_is_there_when_the_hub_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Store.create(path).close()
    process, client = await started(path)
    worker = await client.create("orders")
    confirmed: dict[int, int] = {}

    async def push() -> None:
        with suppress(trio.BrokenResourceError):
            await client.ask(worker, *(codec.Push(n, b"tea %d" % n) for n in range(4_000)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push)
        # What has left the hub before its end counts as well.
        with suppress(trio.BrokenResourceError):
            while (replied := await client.reply()) is not None:
                assert isinstance(replied[1], codec.Pushed)
                assert replied[1].is_stored
                confirmed[replied[1].request] = replied[1].index
                if len(confirmed) == 300:
                    process.kill()
        nursery.cancel_scope.cancel()
    assert await process.wait() == -signal.SIGKILL
    assert len(confirmed) >= 300
    await client.stream.aclose()
    # Another one serves them, from the same store under the same address.
    process, client = await started(path)
    assert await client.create("orders") == worker
    found: dict[int, bytes] = {}
    while True:
        await client.ask(worker, codec.Pull(1, len(found), 1_000))
        replied = await client.reply()
        assert replied is not None
        assert isinstance(replied[1], codec.Pulled)
        if not replied[1].messages:
            break
        for index, data in replied[1].messages:
            assert index == len(found), "without holes"
            found[index] = data
    assert len(found) >= len(confirmed)
    assert all(found[index] == b"tea %d" % request for request, index in confirmed.items())
    await client.stream.aclose()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
