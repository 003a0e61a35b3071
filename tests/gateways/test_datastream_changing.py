"""Clients that are connected while the stream ends, breaks, forks, or loses a payload (4.2)."""

from typing import Any

import trio
from nacl.signing import SigningKey

from gateways.datastream import DataStreamServer
from logstore import Store
from wire import LogKey, sign_entry, yamf_hash

from .streams import Model, declare, raw
from .test_datastream_logs import copy
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

HEADER = request(3)
STOP = request(2)


async def header_totals(stream: trio.SocketStream) -> tuple[int, int]:
    """TotalLength and TotalEntries, asked for."""
    await stream.send_all(HEADER)
    reply = await receive(stream, len(OK) + 38)
    assert reply.startswith(OK)
    return int.from_bytes(reply[-16:-8], "big"), int.from_bytes(reply[-8:], "big")


async def stop(stream: trio.SocketStream) -> None:
    """Ends a stream of which nothing was on its way."""
    await stream.send_all(STOP)
    assert await receive(stream, len(OK)) == OK


async def test_an_ended_stream_leaves_its_connections_open() -> None:
    model = Model()
    with Store.memory() as store:
        declare(store)
        store.append([model.add(1, b"0")])
        async with served(store) as server, await connect(server) as stream:
            await stream.send_all(start(0))
            assert await receive(stream, 11 + len(model.wire)) == OK + model.wire
            last = model.add(1, b"last")
            await trio.to_thread.run_sync(lambda: store.append([last], end_of_log=True))
            assert await receive(stream, len(last)) == last
            await stop(stream)
            assert await header_totals(stream) == (model.length, 2)
            async with await connect(server) as late:
                await late.send_all(start(2))
                assert await receive(late, 11) == OK
                await stop(late)


async def test_a_stream_that_breaks_leaves_its_connections_open_and_is_said_once() -> None:
    model = Model()
    events: list[Any] = []
    with Store.memory() as store:
        declare(store)
        store.append([model.add(1, b"0")])
        async with (
            served(store, observer=events.append) as server,
            await connect(server) as stream,
        ):
            await stream.send_all(start(0))
            assert await receive(stream, 11 + len(model.wire)) == OK + model.wire
            behind = raw(1, 1, b"behind what breaks")
            await trio.to_thread.run_sync(store.append, [b"hello", behind])
            with trio.fail_after(PATIENCE_S):
                while not any(event["event"] == "broken" for event in events):  # noqa: ASYNC110
                    await trio.sleep(0.01)
            await stop(stream)
            assert await header_totals(stream) == (model.length, 1)
            await stream.send_all(start(2))
            assert (await receive(stream, 23))[5:9] == b"\x00\x00\x00\x03"
        [broken] = [event for event in events if event["event"] == "broken"]
        assert broken["reason"].startswith("log entry 3: first byte 104")


async def test_a_fork_ends_those_who_were_sent_what_is_gone_and_no_others() -> None:
    signing_key = SigningKey.generate()
    with Store.memory(signing_key=signing_key) as source, Store.memory() as store:
        key = declare(source)
        source.append([raw(0, 1, b"0"), raw(1, 1, b"1"), raw(2, 1, b"2")])
        copy(source, store, key)
        async with (
            DataStreamServer(store, key, listen="127.0.0.1:0") as server,
            await connect(server) as beyond,
            await connect(server) as waiting,
            await connect(server) as stopped,
        ):
            await beyond.send_all(start(1))
            assert await receive(beyond, 11 + 36) == OK + raw(1, 1, b"1") + raw(2, 1, b"2")
            await waiting.send_all(start(3))
            assert await receive(waiting, 11) == OK
            assert (await header_totals(stopped))[1] == 3
            await trio.to_thread.run_sync(fork, store, key, signing_key)
            assert await is_closed(beyond)
            assert await is_closed(waiting)
            assert (await header_totals(stopped))[1] == 1
            await stopped.send_all(start(0))
            assert await receive(stopped, 11 + 18) == OK + raw(0, 1, b"0")
            await stop(stopped)


def fork(store: Store, key: LogKey, signing_key: SigningKey) -> None:
    """Another entry 3 of the log, with its signature."""
    rows = store.read(key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False)
    other = raw(1, 1, b"another")
    encoded = sign_entry(
        signing_key,
        log_id=0,
        seq=3,
        is_end=False,
        lipmaalink=None,
        backlink=rows[1].hash,
        payload_bytes=len(other),
        payload_hash=yamf_hash(other),
    )
    store.record_fork(key, rows[2].encoded, encoded)


async def test_clients_before_at_and_behind_a_truncation() -> None:
    model = Model()
    with Store.memory() as store:
        declare(store)
        store.append([b"".join(model.add(1, bytes([number])) for number in range(10))])
        gone: list[Any] = []
        async with (
            served(store, observer=gone.append) as server,
            await connect(server) as behind,
            await connect(server) as at,
            await connect(server) as stopped,
        ):
            await behind.send_all(start(9))
            assert await receive(behind, 11 + 18) == OK + raw(9, 1, b"\x09")
            await trio.to_thread.run_sync(store.append, [model.truncate(9)])
            assert await is_closed(behind)
            # One that waits for entry 9 has nothing that is gone, when the next cut is at 9.
            await at.send_all(start(9))
            assert await receive(at, 11) == OK
            assert (await header_totals(stopped))[1] == 9
            added = model.add(1, b"anew")
            await trio.to_thread.run_sync(store.append, [added])
            assert await receive(at, len(added)) == added
            await trio.to_thread.run_sync(store.append, [model.truncate(9)])
            assert await is_closed(at)
            async with await connect(server) as next_:
                await next_.send_all(start(9))
                assert await receive(next_, 11) == OK
                await trio.to_thread.run_sync(store.append, [model.truncate(8)])
                assert await is_closed(next_)
            await stopped.send_all(start(0))
            assert await receive(stopped, 11 + len(model.wire)) == OK + model.wire


async def test_what_is_waited_for_comes_through_a_truncation_to_just_there() -> None:
    """A stream that goes back to the number that is waited for goes on for whoever waits."""
    model = Model()
    with Store.memory() as store:
        declare(store)
        store.append([b"".join(model.add(1, bytes([number])) for number in range(4))])
        async with served(store) as server, await connect(server) as stream:
            await stream.send_all(start(4))
            assert await receive(stream, 11) == OK
            both = [model.add(1, b"gone at once"), model.truncate(4)]
            anew = model.add(1, b"stays")
            await trio.to_thread.run_sync(store.append, [*both, anew])
            assert await receive(stream, len(anew)) == anew


async def test_a_payload_that_is_dropped_ends_who_gets_there_and_nobody_else() -> None:
    model = Model()
    with Store.memory() as store:
        key = declare(store)
        for number in range(3):
            store.append([model.add(1, bytes([number]))])
        async with (
            served(store) as server,
            await connect(server) as behind,
            await connect(server) as before,
        ):
            await behind.send_all(start(3))
            assert await receive(behind, 11) == OK
            store.drop(key, 3, 3)
            await before.send_all(start(0))
            wanted = OK + raw(0, 1, b"\x00")
            assert await receive(before, len(wanted)) == wanted
            assert await is_closed(before)
            added = model.add(1, b"goes on")
            await trio.to_thread.run_sync(store.append, [added])
            assert await receive(behind, len(added)) == added
