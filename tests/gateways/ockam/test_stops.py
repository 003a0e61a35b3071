"""A hub as a process of its own that is told to end while clients push."""

import json
import signal
import subprocess
from pathlib import Path

import trio

from gateways.ockam import Catalog, Side, codec
from logstore import Store
from tests.cli_online.running import EXECUTABLE

from .test_service import Client


async def test_all_that_was_stored_is_confirmed_when_the_hub_is_told_to_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    Store.create(path).close()
    argv = [EXECUTABLE, "--store", str(path), "--json", "ockam", "serve", "--listen", "127.0.0.1:0"]
    process = await trio.lowlevel.open_process(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    event = json.loads(bytes(await process.stdout.receive_some()).partition(b"\n")[0])
    host, _, port = event["address"].rpartition(":")
    client = Client(await trio.open_tcp_stream(host, int(port)))
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
