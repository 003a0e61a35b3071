"""A client that sends what it likes and reads nothing: the hub holds 8 MiB for it at most."""

import tracemalloc
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateways.ockam import OckamServer, Rights, codec
from logstore import Store

from .test_service import Client, connected

MOST_BYTES = 8 << 20


def long_route(number: int) -> tuple[codec.Address, ...]:
    """As long as routes may be, and another one for each number."""
    return tuple(codec.Address(1, number.to_bytes(255, "big")) for _ in range(16))


def flood(what: str, worker: str) -> Iterator[tuple[str, codec.Request, tuple[codec.Address, ...]]]:
    """Three thousand requests: for whom, what, and the way back."""
    for number in range(3_000):
        back = (codec.local("app"),)
        match what:
            case "pulls":
                yield worker, codec.Pull(number, 0, 1_000), back
            case "pulls of small messages":
                yield worker, codec.Pull(number, 200, 1_000), back
            case "pulls with long routes":
                yield worker, codec.Pull(number, 0, 1_000), long_route(number)
            case "pushes that are refused":
                yield worker, codec.Push(number, b"x"), back
            case "creates":
                yield "stream", codec.Create("many", 1_024, codec.CREATE_PARTITIONED), long_route(1)
            case _:
                yield "nobody", codec.Pull(number, 0, 1), back


@pytest.mark.parametrize(
    "what",
    [
        "pulls",
        "pulls of small messages",
        "pulls with long routes",
        "pushes that are refused",
        "creates",
        "for nobody",
    ],
)
async def test_who_reads_nothing_costs_8_mib_at_most(what: str) -> None:
    with Store.memory() as store:
        async with OckamServer(store) as server:
            client = await connected(server)
            if what == "creates":
                await client.ask("stream", codec.Create("many", 1_024, codec.CREATE_PARTITIONED))
                for _ in range(1_024):
                    assert await client.reply() is not None
            worker = await client.create("orders")
            await client.ask(
                worker, *(codec.Push(1, bytes(size)) for size in (600,) * 200 + (1,) * 500)
            )
            for _ in range(700):
                assert await client.reply() is not None
            rights = Rights.READ_ONLY if what == "pushes that are refused" else Rights.ALL
            silent = await connected(server, rights)
            tracemalloc.start()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send_all, silent, what, worker)
                    await wait_all_tasks_blocked(0.3)
                    _, peak = tracemalloc.get_traced_memory()
                    nursery.cancel_scope.cancel()
            finally:
                tracemalloc.stop()
            await silent.stream.aclose()
            await client.stream.aclose()
        assert peak < MOST_BYTES


async def send_all(client: Client, what: str, worker: str) -> None:
    """Sends all of it, as far as the hub takes it."""
    for to, request, back in flood(what, worker):
        payload = codec.encode_request(request)
        message = codec.encode_message((codec.local(to),), back, payload)
        await client.stream.send_all(codec.encode_frame(message))
