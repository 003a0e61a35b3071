"""A store that fails ends no server, and no connection but the one that asks for damage."""

from pathlib import Path
from typing import Any

import pytest
import trio

from gateways.datastream.logs import State, StreamLog
from logstore import Store, StoreFailed
from wire import LogKey

from .failing import damage, fill_disk_once
from .streams import Model, declare
from .test_datastream_server import (
    OK,
    PATIENCE_S,
    connect,
    is_closed,
    receive,
    request,
    served,
    start,
)


def stream_of(store: Store, model: Model, operations: int) -> LogKey:
    """Operations of one entry each: entry n is the payload of log entry n + 2."""
    key = declare(store)
    for number in range(operations):
        store.append([model.add(1, bytes([number]) * 50)])
    return key


def reasons(events: list[Any], name: str) -> list[str]:
    return [event["reason"] for event in events if event["event"] == name]


async def test_who_asks_for_what_is_damaged_ends_alone() -> None:
    with Store.memory() as store:
        model = Model()
        key = stream_of(store, model, 4)
        events: list[Any] = []
        async with (
            served(store, observer=events.append) as server,
            await connect(server) as asking,
            await connect(server) as streaming,
            await connect(server) as other,
        ):
            damage(store, key, 4)
            await asking.send_all(request(5, (2).to_bytes(8, "big")))
            assert await is_closed(asking)
            # Whoever comes to it gets what is before it.
            await streaming.send_all(start(0))
            before = model.wire[: 2 * 67]
            assert await receive(streaming, 11 + len(before)) == OK + before
            assert await is_closed(streaming)
            await other.send_all(start(3))
            assert await receive(other, 11 + 67) == OK + model.wire[3 * 67 :]
            added = model.add(1, b"later")
            await trio.to_thread.run_sync(store.append, [added])
            assert await receive(other, len(added)) == added
        assert [f"{key}/4" in each for each in reasons(events, "storage_failed")] == [True]
        assert sum(f"{key}/4" in each for each in reasons(events, "client_gone")) == 2


async def test_an_index_that_cannot_be_written_once_is_written_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Store.create(tmp_path / "store") as store:
        model = Model()
        stream_of(store, model, 1)
        events: list[Any] = []
        async with served(store, observer=events.append) as server, await connect(server) as client:
            await client.send_all(start(1))
            assert await receive(client, 11) == OK
            fill_disk_once(monkeypatch)
            added = model.add(1, b"later")
            await trio.to_thread.run_sync(store.append, [added])
            assert await receive(client, len(added)) == added
        assert [each.partition(":")[0] for each in reasons(events, "storage_failed")] == [
            "the disk is full"
        ]


async def test_a_server_starts_whose_index_cannot_be_written_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Store.memory() as store:
        model = Model()
        stream_of(store, model, 2)
        update = StreamLog.update
        failures = [StoreFailed("the side table failed", "here", "look at the disk")]

        def fail_once(stream: StreamLog) -> State:
            if failures:
                raise failures.pop()
            return update(stream)

        monkeypatch.setattr(StreamLog, "update", fail_once)
        events: list[Any] = []
        async with served(store, observer=events.append) as server, await connect(server) as client:
            await client.send_all(start(0))
            assert await receive(client, 11 + len(model.wire)) == OK + model.wire
        assert len(reasons(events, "storage_failed")) == 1


async def test_a_stream_ends_before_what_is_damaged_until_it_comes_anew() -> None:
    with Store.memory() as store:
        model = Model()
        key = stream_of(store, model, 4)
        damage(store, key, 4)
        async with served(store) as server, await connect(server) as client:
            await client.send_all(start(0))
            before = model.wire[: 2 * 67]
            assert await receive(client, 11 + len(before)) == OK + before
            store.drop(key, 4, 4)
            store.want(key, 4, 4)
            store.complete_payload(key, 4, model.wire[2 * 67 : 3 * 67])
            assert await receive(client, 2 * 67) == model.wire[2 * 67 :]


async def test_no_entry_ends_half_when_the_program_is_cancelled() -> None:
    with Store.memory() as store:
        declare(store)
        model = Model()
        size = len(model.add(1, bytes(1_000_000)))
        store.append([model.wire, *(model.add(1, bytes(1_000_000)) for _ in range(19))])
        got = bytearray()

        async def read_on(client: trio.SocketStream) -> None:
            with trio.fail_after(PATIENCE_S):
                while data := await client.receive_some(1 << 16):
                    got.extend(data)

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as program:
                async with served(store) as server:
                    client = await connect(server)
                    await client.send_all(start(0))
                    got += await receive(client, 11 + 1000)
                    nursery.start_soon(read_on, client)
                    program.cancel()
        assert len(got) > 11
        assert (len(got) - 11) % size == 0
        await client.aclose()
