"""A replica that serves while it replicates, on a `Peer`; a source on one; many who come and go."""

import socket
import struct
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import trio

from gateways.datastream import DataStreamServer, DataStreamSource
from logstore import Store
from peer.api import NodeConfig, Peer
from wire import LogKey

from .streams import Model, declare
from .test_datastream_server import OK, PATIENCE_S, connect, is_closed, receive, request, start

CONFIG = NodeConfig(workers=0)


async def test_a_replica_serves_what_comes_while_it_comes() -> None:
    model = Model()
    with trio.fail_after(PATIENCE_S), Store.memory() as mine, Store.memory() as yours:
        key = LogKey(mine.author, 0)
        async with Peer(mine, config=CONFIG) as writer, Peer(yours, config=CONFIG) as reader:
            await reader.follow(key)
            reader.connect(await writer.listen())
            assert await DataStreamSource.create(writer, system_id=137) == key
            events: list[object] = []
            async with (
                DataStreamServer(
                    reader, key, listen="127.0.0.1:0", observer=events.append
                ) as server,
                await connect(server) as stream,
                DataStreamSource(writer) as source,
            ):
                await stream.send_all(start(0))
                assert await receive(stream, 11) == OK
                for size in (3, 70_000, 1_000_000, 0):
                    async with source.atomic() as op:
                        op.bookmark(b"b")
                        op.event(1, b"x" * size)
                    added = model.add(176, b"b") + model.add(1, b"x" * size)
                    assert await receive(stream, len(added)) == added
                await source.truncate(1)
                assert await is_closed(stream)


async def test_a_replica_serves_when_its_source_is_switched_off(tmp_path: Path) -> None:
    model = Model()
    with trio.fail_after(PATIENCE_S), Store.create(tmp_path / "yours") as yours:
        with Store.memory() as mine:
            key = LogKey(mine.author, 0)
            async with Peer(mine, config=CONFIG) as writer, Peer(yours, config=CONFIG) as reader:
                await reader.follow(key)
                reader.connect(await writer.listen())
                await DataStreamSource.create(writer, system_id=137)
                async with DataStreamSource(writer) as source:
                    for size in (3, 70_000, 0):
                        async with source.atomic() as op:
                            op.bookmark(b"b")
                            op.event(1, b"x" * size)
                        model.add(176, b"b")
                        model.add(1, b"x" * size)
                await reader.wait_for(key, 4)
        for over in ("peer", "store"):
            peer = Peer(yours, config=CONFIG) if over == "peer" else nullcontext(yours)
            async with (
                peer as host,
                DataStreamServer(host, key, listen="127.0.0.1:0") as server,
                await connect(server) as stream,
            ):
                await stream.send_all(start(0))
                assert await receive(stream, 11 + len(model.wire)) == OK + model.wire


def open_files() -> int:
    """Of this process; 0 where that is not known."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.parametrize("times", [300, pytest.param(10_000, marks=pytest.mark.long)])
async def test_who_comes_and_goes_leaves_nothing_behind(times: int) -> None:
    with Store.memory() as store:
        key = declare(store)
        async with DataStreamServer(store, key, listen="127.0.0.1:0", clients_max=20) as server:
            before = open_files()

            def come_and_go() -> None:
                for number in range(times):
                    with socket.create_connection(("127.0.0.1", server.address.port)) as client:
                        if number % 3:
                            with suppress(ConnectionError):
                                client.sendall(request(3)[: number % 17])
                        if number % 2:  # torn off
                            linger = struct.pack("ii", 1, 0)
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

            await trio.to_thread.run_sync(come_and_go)
            with trio.fail_after(PATIENCE_S):
                while server.clients:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert open_files() <= before + 2
            async with await connect(server) as last:
                await last.send_all(request(3))
                assert len(await receive(last, 49)) == 49


async def test_a_stuck_client_beside_ninety_nine_delays_nobody() -> None:
    model = Model()
    with Store.memory() as store:
        key = declare(store)
        for _ in range(30):
            store.append([model.add(1, b"y" * 200_000)])
        async with (
            DataStreamServer(store, key, listen="127.0.0.1:0", write_timeout_s=0) as server,
            trio.open_nursery() as nursery,
        ):
            stuck = await connect(server)
            await stuck.send_all(start(0))
            seen: list[int] = []

            async def take() -> None:
                async with await connect(server) as stream:
                    await stream.send_all(start(0))
                    wanted = 11 + len(model.wire)
                    seen.append(len(await receive(stream, wanted)))

            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as takers:
                    for _ in range(99):
                        takers.start_soon(take)
            assert seen == [11 + len(model.wire)] * 99
            await stuck.aclose()
            nursery.cancel_scope.cancel()
