"""As many clients as a hub takes, and one more, where a process may usually open as many files."""

import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from gateways.ockam import codec
from logstore import Store
from tests.gateways.hubs import gateway

from .test_service import Client

CLIENTS = 1_024
USUAL_OPEN_FILES = 1_024
PATIENCE_S = 120


@pytest.fixture
def _open_files() -> Iterator[None]:
    """This process has all of the clients' ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CLIENTS
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{hard} files may be open at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_open_files")
async def test_a_hub_serves_1024_clients_and_closes_one_more(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Store.create(path).close()
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE_S))
        serving = gateway(path, "ockam", "serve", open_files=USUAL_OPEN_FILES)
        host, _, port = (await stack.enter_async_context(serving)).address.rpartition(":")

        async def come() -> Client:
            stream = await trio.open_tcp_stream(host, int(port))
            return Client(await stack.enter_async_context(stream))

        clients = []
        for _ in range(CLIENTS):
            clients.append(await come())
            await clients[-1].ask("stream", codec.Create("orders"))
        workers = set()
        for client in clients:
            replied = await client.reply()
            assert replied is not None
            workers.add(replied[0])
        [worker] = workers
        assert await (await come()).reply() is None

        async def push(client: Client) -> None:
            await client.ask(worker, codec.Push(1, b"tea"))
            replied = await client.reply()
            assert replied is not None
            assert isinstance(replied[1], codec.Pushed)
            assert replied[1].is_stored

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(push, client)
        # There is room again for who comes when somebody has gone.
        await clients.pop().stream.aclose()
        while True:
            client = await come()
            try:
                await push(client)
                break
            except (AssertionError, trio.BrokenResourceError):
                continue
