"""The server, by raw sockets: every exchange of the vectors, pieces, limits, truncations."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gateways.datastream import DataStreamServer, NotAStream
from gateways.datastream.feed import Feed
from gateways.datastream.logs import State
from logstore import Store

from .streams import VECTORS, Model, data_of, declare, raw

EXCHANGES = [
    pytest.param(wire, exchange, id=f"{wire['name']} {exchange['what']}")
    for wire in VECTORS["wire"]
    for exchange in wire["exchanges"]
]
OK = bytes.fromhex("ff0000000b000000004f4b")
STARTED = bytes.fromhex("ff0000001800000001416c72656164792073746172746564")
BAD_ENTRY = bytes.fromhex("ff00000017000000034261642066726f6d20656e747279")
BAD_BOOKMARK = bytes.fromhex("ff0000001a000000044261642066726f6d20626f6f6b6d61726b")
PATIENCE_S = 120
"""How long anything may take; it takes this long only if it never comes."""
NOT_FOUND = bytes.fromhex("fe00000011ffffffff0000000000000000")


def request(command: int, rest: bytes = b"", stream_type: int = 1) -> bytes:
    return command.to_bytes(8, "big") + stream_type.to_bytes(8, "big") + rest


def start(number: int) -> bytes:
    return request(1, number.to_bytes(8, "big"))


def bookmark(command: int, mark: bytes) -> bytes:
    return request(command, len(mark).to_bytes(4, "big") + mark)


@asynccontextmanager
async def served(
    store: Store,
    **options: Any,  # noqa: ANN401
) -> AsyncIterator[DataStreamServer]:
    from wire import LogKey

    key = LogKey(store.author, 0)
    async with DataStreamServer(store, key, listen="127.0.0.1:0", **options) as server:
        yield server


async def connect(server: DataStreamServer) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", server.address.port)


async def receive(stream: trio.abc.ReceiveStream, count: int) -> bytes:
    """Exactly so many bytes, or what came before the end."""
    data = bytearray()
    with trio.fail_after(PATIENCE_S):
        while len(data) < count and (more := await stream.receive_some(count - len(data))):
            data += more
    return bytes(data)


async def is_closed(stream: trio.SocketStream) -> bool:
    try:
        with trio.fail_after(PATIENCE_S):
            return await stream.receive_some(1) == b""
    except trio.BrokenResourceError:
        return True


def vector_store(wire: dict[str, Any]) -> Store:
    store = Store.memory()
    declare(
        store,
        stream_type=wire["stream_type"],
        system_id=int(wire["system_id"]),
        file_version=wire["file_version"],
    )
    model = Model()
    for operation in wire["operations"]:
        added = [model.add(each["type"], data_of(each)) for each in operation["entries"]]
        store.append([b"".join(added)])
    return store


@pytest.mark.parametrize(("wire", "exchange"), EXCHANGES)
async def test_replies_are_upstream_s(wire: dict[str, Any], exchange: dict[str, Any]) -> None:
    with vector_store(wire) as store:
        async with served(store) as server, await connect(server) as stream:
            await stream.send_all(bytes.fromhex(exchange["request"]))
            wanted = bytes.fromhex(exchange["reply"])
            assert await receive(stream, len(wanted)) == wanted
            if exchange["what"] == "another stream type":
                assert await is_closed(stream)
                return
            # Nothing more came: the next reply follows at once.
            follow = request(99, stream_type=wire["stream_type"])
            await stream.send_all(follow)
            invalid = bytes.fromhex("ff0000001800000009496e76616c696420636f6d6d616e64")
            assert await receive(stream, len(invalid)) == invalid


async def test_requests_come_a_byte_at_a_time_and_forty_in_one_piece() -> None:
    with vector_store(VECTORS["wire"][0]) as store:
        async with served(store) as server, await connect(server) as stream:
            one = request(5, (1).to_bytes(8, "big"))
            reply = OK + b"\xfe" + raw(1, 1, b"hello")[1:]
            for byte in one:
                await stream.send_all(bytes([byte]))
            assert await receive(stream, len(reply)) == reply
            await stream.send_all(one * 40)
            assert await receive(stream, 40 * len(reply)) == reply * 40


async def test_a_refused_start_gives_up_its_parameters_and_leaves_the_connection_usable() -> None:
    with vector_store(VECTORS["wire"][0]) as store:
        async with served(store) as server, await connect(server) as stream:
            asked = start(4) + bookmark(4, b"zz") + bookmark(4, b"") + bookmark(6, b"x" * 65536)
            await stream.send_all(asked + start(3) + bookmark(4, b"zz") + request(2))
            wanted = BAD_ENTRY + BAD_BOOKMARK * 2 + OK + NOT_FOUND + OK + STARTED + OK
            assert await receive(stream, len(wanted)) == wanted


async def test_a_bookmark_of_claimed_length_ends_the_connection_at_once() -> None:
    with vector_store(VECTORS["wire"][0]) as store:
        async with served(store) as server, await connect(server) as stream:
            await stream.send_all(request(6, b"\xff" * 4))
            assert await is_closed(stream)


async def test_history_turns_into_live_without_gap() -> None:
    with Store.memory() as store:
        declare(store)
        model = Model()
        for number in range(300):
            store.append([b"".join(model.add(1, bytes([number % 256]) * 400) for _ in range(5))])
        async with served(store) as server, await connect(server) as stream:
            await stream.send_all(start(7))
            history = model.wire[7 * 417 :]
            assert await receive(stream, 11 + len(history)) == OK + history
            for number in range(5):
                added = model.add(176, bytes([number])) + model.add(2, b"x" * 100_000)
                await trio.to_thread.run_sync(store.append, [added])
                assert await receive(stream, len(added)) == added
            assert len(server.feed._pieces) > 0


async def test_a_large_operation_is_sent_whole() -> None:
    with Store.memory() as store:
        declare(store)
        model = Model()
        sizes = (1_048_559, 3, 700_000, 0, 262_144, 262_100, 5)
        operation = b"".join(model.add(1, b"z" * size) for size in sizes)
        store.append([operation])
        async with served(store) as server, await connect(server) as stream:
            await stream.send_all(start(1))
            wanted = operation[17 + sizes[0] :]
            assert await receive(stream, 11 + len(wanted)) == OK + wanted


async def test_a_truncation_ends_those_who_were_sent_more() -> None:
    with Store.memory() as store:
        declare(store)
        model = Model()
        store.append([b"".join(model.add(1, b"x") for _ in range(10))])
        gone: list[Any] = []
        async with (
            served(store, observer=gone.append) as server,
            await connect(server) as behind,
            await connect(server) as at,
        ):
            # One that was sent all, one that is stopped, one that waits below what is left.
            await behind.send_all(start(0))
            assert await receive(behind, 11 + len(model.wire)) == OK + model.wire
            await at.send_all(request(3))
            assert len(await receive(at, 49)) == 49
            await trio.to_thread.run_sync(store.append, [model.truncate(4)])
            assert await is_closed(behind)
            added = model.add(7, b"new")
            await trio.to_thread.run_sync(store.append, [added])
            await server.feed.refresh()
            await at.send_all(start(3))
            wanted = raw(3, 1, b"x") + added
            assert await receive(at, 11 + len(wanted)) == OK + wanted
        reasons = [event["reason"] for event in gone if event["event"] == "client_gone"]
        assert "the stream was truncated to 4 entries" in reasons


async def test_one_client_too_many_is_closed_without_a_byte() -> None:
    with vector_store(VECTORS["wire"][0]) as store:
        async with served(store, clients_max=1) as server, await connect(server) as first:
            await first.send_all(request(3))
            await receive(first, 49)
            async with await connect(server) as second:
                assert await is_closed(second)
            await first.send_all(request(2))
            assert len(await receive(first, 24)) == 24


async def test_a_stuck_client_is_let_go_and_delays_nobody() -> None:
    with Store.memory() as store:
        declare(store)
        model = Model()
        for _ in range(40):
            store.append([model.add(1, b"y" * 1_000_000)])
        gone: list[Any] = []
        async with (
            served(store, write_timeout_s=0.3, observer=gone.append) as server,
            await connect(server) as stuck,
            await connect(server) as good,
        ):
            await stuck.send_all(start(0))
            await good.send_all(start(0))
            assert len(await receive(good, 11 + len(model.wire))) == 11 + len(model.wire)
            with trio.fail_after(PATIENCE_S):
                while not any(event["event"] == "client_gone" for event in gone):  # noqa: ASYNC110
                    await trio.sleep(0.02)
        reasons = [event["reason"] for event in gone if event["event"] == "client_gone"]
        assert "its socket has taken nothing for 0.3 s" in reasons


@pytest.mark.parametrize("sent", [b"", request(5, b"\x00")])
async def test_who_is_silent_or_does_not_finish_is_let_go(sent: bytes) -> None:
    with vector_store(VECTORS["wire"][0]) as store:
        async with (
            served(store, inactivity_timeout_s=0.2) as server,
            await connect(server) as streaming,
            await connect(server) as silent,
        ):
            await streaming.send_all(start(3))
            await silent.send_all(sent)
            assert await is_closed(silent)
            await trio.to_thread.run_sync(store.append, [raw(3, 1, b"later")])
            assert await receive(streaming, 33) == OK + raw(3, 1, b"later")


async def test_a_declaration_that_comes_while_it_is_asked_why_there_is_none_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = DataStreamServer._why_waiting

    async def ask_long(server: DataStreamServer, feed: Feed, state: State) -> str:
        reason = await ask(server, feed, state)
        declare(store)
        await feed.refresh()
        return reason

    monkeypatch.setattr(DataStreamServer, "_why_waiting", ask_long)
    events: list[object] = []
    with trio.fail_after(PATIENCE_S), Store.memory() as store:
        async with served(store, observer=events.append):
            found = [event["event"] for event in events if isinstance(event, dict)]
        assert found[:2] == ["waiting", "listening"]


async def test_what_is_no_stream_is_not_served() -> None:
    with Store.memory() as store:
        store.append([b"hello"])
        with pytest.raises(NotAStream, match="canonical JSON"):
            async with served(store):
                pass


async def test_a_deleted_payload_is_refused_at_start_and_ends_who_gets_there() -> None:
    with Store.memory() as store:
        key = declare(store)
        store.append([raw(0, 1, b"0"), raw(1, 1, b"1"), raw(2, 1, b"2")])
        async with served(store) as server:
            store.drop(key, 3, 3)
            async with await connect(server) as stream:
                await stream.send_all(start(1) + request(5, (1).to_bytes(8, "big")) + start(0))
                wanted = BAD_ENTRY + OK + NOT_FOUND + OK + raw(0, 1, b"0")
                assert await receive(stream, len(wanted)) == wanted
                assert await is_closed(stream)
