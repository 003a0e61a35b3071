"""The relay against our server, and against an upstream that does each of the wrong things."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from gateways.datastream import (
    DataStreamServer,
    HistoryDiffers,
    ServerFailed,
    StreamMismatch,
    relay,
    relaying,
)
from gateways.datastream.codec import (
    Code,
    Command,
    Entry,
    Header,
    RequestReader,
    encode_entry,
    encode_header,
    encode_response,
    encode_result,
)
from gateways.datastream.logs import StreamLog
from logstore import LogClosed, LogMoved, Store, StoreBusy, StoreError, StoreFailed, StoreFull
from wire import LogKey

from .streams import Model, declare, raw
from .test_datastream_logs import read_all


def relayed(store: Store) -> bytes:
    stream = StreamLog(store, LogKey(store.author, 0))
    stream.update()
    data = read_all(stream)
    stream.close()
    return data


async def test_a_relay_holds_what_upstream_has_and_follows_it() -> None:
    model = Model()
    with Store.memory() as upstream, Store.memory() as store:
        key = declare(upstream)
        for number in range(50):
            upstream.append([model.add(176, bytes([number])) + model.add(1, b"x" * 3000)])
        async with DataStreamServer(upstream, key, listen="127.0.0.1:0") as server:
            await relay(store, server.address, once=True)
            assert relayed(store) == model.wire
            async with trio.open_nursery() as nursery:
                nursery.start_soon(relay, store, server.address)
                for _ in range(5):
                    upstream.append([model.add(2, b"live") + model.add(2, b"")])
                    await until(store, model.wire)
                nursery.cancel_scope.cancel()
            declare(store, log_id=1, origin="source")
            with pytest.raises(StreamMismatch):
                await relay(store, server.address, once=True, log_id=1)


@pytest.mark.parametrize("follow", [False, True])
async def test_another_history_is_noticed_and_followed_if_asked_to(follow: bool) -> None:
    model = Model()
    with Store.memory() as upstream, Store.memory() as store:
        key = declare(upstream)
        upstream.append([model.add(1, bytes([number])) for number in range(9)])
        async with DataStreamServer(upstream, key, listen="127.0.0.1:0") as server:
            await relay(store, server.address, once=True)
            upstream.append([model.truncate(4)])
            upstream.append([model.add(1, bytes([number + 100])) for number in range(7)])
            await server.feed.refresh()
            if follow:
                await relay(store, server.address, once=True, follow_truncation=True)
                assert relayed(store) == model.wire
            else:
                with pytest.raises(HistoryDiffers, match="from entry 4 on"):
                    await relay(store, server.address, once=True)


class Upstream:
    """A scripted server: `stored` is what it answers with, `stream` what it sends as Data."""

    def __init__(self, stored: list[Entry], stream: Callable[..., Awaitable[None]]) -> None:
        self.stored = stored
        self.stream = stream
        self.started: list[int] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        reader = RequestReader(1)
        try:
            while data := await stream.receive_some(65536):
                reader.feed(bytes(data))
                while (asked := reader.next()) is not None:
                    match asked.command:
                        case Command.HEADER:
                            header = Header(1, 137, 1, 4096, len(self.stored))
                            await stream.send_all(encode_result(Code.OK) + encode_header(header))
                        case Command.ENTRY:
                            found = None
                            if asked.number < len(self.stored):
                                found = self.stored[asked.number]
                            await stream.send_all(encode_result(Code.OK) + encode_response(found))
                        case _:
                            await stream.send_all(encode_result(Code.OK))
                            self.started.append(asked.number)
                            await self.stream(self, stream, asked.number)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


@asynccontextmanager
async def scripted(upstream: Upstream) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, upstream.serve, 0, host="127.0.0.1")
        listeners = await nursery.start(serve)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def entries(count: int, mark: bytes = b"") -> list[Entry]:
    return [Entry(number, 1, mark + bytes([number])) for number in range(count)]


def wire(found: list[Entry]) -> bytes:
    return b"".join(map(encode_entry, found))


async def until(store: Store, wanted: bytes) -> None:
    with trio.fail_after(30):
        while relayed(store) != wanted:  # noqa: ASYNC110
            await trio.sleep(0.02)


async def test_what_is_sent_before_it_is_committed_is_asked_for_again() -> None:
    """The last entry of the history is rolled back, and another one is committed in its place."""

    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        await to.send_all(wire(entries(4)[number:]))
        await trio.sleep(0.2)
        upstream.stored.append(Entry(3, 9, b"what was committed"))

    upstream = Upstream(entries(3), stream)
    with Store.memory() as store:
        async with scripted(upstream) as address, trio.open_nursery() as nursery:
            nursery.start_soon(relay, store, address)
            await until(store, wire(upstream.stored[:3]))
            await until(store, wire([*entries(3), Entry(3, 9, b"what was committed")]))
            nursery.cancel_scope.cancel()


async def test_entries_that_come_twice_are_stored_once() -> None:
    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        await to.send_all(wire(entries(5)[number:] + entries(6)[3:] + entries(6)[5:]))

    with Store.memory() as store:
        async with scripted(Upstream(entries(6), stream)) as address:
            await relay(store, address, once=True)
        assert relayed(store) == wire(entries(6))


@pytest.mark.parametrize(
    "wrong",
    [
        wire(entries(9)[2:]),
        b"\x02" + b"\xff" * 4,
        b"\x07",
        encode_header(Header(1, 137, 1, 4096, 4)),
        encode_entry(Entry(0, 1, b""))[:9],
    ],
    ids=["skips", "lies about a length", "unknown first byte", "header unasked", "cut"],
)
async def test_an_upstream_that_does_wrong_ends_the_connections(wrong: bytes) -> None:
    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        await to.send_all(wrong)
        await to.aclose()

    with Store.memory() as store:
        async with scripted(Upstream(entries(9), stream)) as address:
            with pytest.raises(ServerFailed):
                await relay(store, address, once=True)
        assert relayed(store) == b""


async def test_an_upstream_that_says_ok_and_sends_nothing_is_called_again() -> None:
    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        if len(upstream.started) > 1:
            await to.send_all(wire(entries(3)[number:]))

    upstream = Upstream(entries(3), stream)
    events: list[Any] = []
    with Store.memory() as store:
        async with scripted(upstream) as address, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: relay(store, address, observer=events.append))
            await until(store, wire(entries(3)))
            nursery.cancel_scope.cancel()
    [gone] = [event for event in events if event["event"] == "disconnected"]
    assert gone["reason"] == "upstream counts 3 entries and sends none"


@pytest.mark.parametrize("follow", [False, True])
async def test_an_upstream_that_repeats_an_entry_with_other_content(follow: bool) -> None:
    """It was truncated, and its numbers come again; nobody is told."""

    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        if len(upstream.started) == 1:
            await to.send_all(wire(entries(6)[number:]))
            await trio.sleep(0.3)
            upstream.stored[3:] = entries(7, b"other")[3:]
            await to.send_all(wire(upstream.stored[3:]))
        else:
            await to.send_all(wire(upstream.stored[number:]))

    upstream = Upstream(entries(6), stream)
    with Store.memory() as store:
        async with scripted(upstream) as address:
            if not follow:
                with pytest.raises(HistoryDiffers, match="from entry 3 on"), trio.fail_after(20):
                    await relay(store, address)
                assert relayed(store) == wire(entries(6))
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(relay, store, address, follow_truncation=True))
                await until(store, wire(entries(3) + entries(7, b"other")[3:]))
                nursery.cancel_scope.cancel()


async def test_what_comes_again_and_upstream_does_not_hold_changes_nothing() -> None:
    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        await to.send_all(wire(entries(4)[number:]))
        await trio.sleep(0.3)
        await to.send_all(wire([Entry(1, 9, b"never held"), entries(6)[4], entries(6)[5]]))
        upstream.stored += entries(6)[4:]

    upstream = Upstream(entries(4), stream)
    with Store.memory() as store:
        async with scripted(upstream) as address, trio.open_nursery() as nursery:
            nursery.start_soon(relay, store, address)
            await until(store, wire(entries(6)))
            nursery.cancel_scope.cancel()
    assert upstream.started == [0]


async def test_a_start_that_is_refused_and_silence_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relaying, "ANSWER_S", 0.2)
    reasons: list[Any] = []

    def observe(event: Any) -> None:  # noqa: ANN401
        if event["event"] == "disconnected":
            reasons.append(event["reason"])

    class Reluctant(Upstream):
        calls = 0

        async def serve(self, stream: trio.SocketStream) -> None:
            self.calls += 1
            if self.calls <= 2:  # nothing is ever answered
                await trio.sleep_forever()
            elif self.calls <= 4:
                await self.refuse(stream)
            else:
                await super().serve(stream)

        async def refuse(self, to: trio.SocketStream) -> None:
            header = encode_header(Header(1, 137, 1, 4096, len(self.stored)))
            while data := await to.receive_some(65536):
                code = Code.OK if data[7] == Command.HEADER else Code.BAD_ENTRY
                await to.send_all(encode_result(code) + (b"" if code else header))

    async def stream(upstream: Upstream, to: trio.SocketStream, number: int) -> None:
        await to.send_all(wire(entries(3)[number:]))

    upstream = Reluctant(entries(3), stream)
    with Store.memory() as store:
        async with scripted(upstream) as address, trio.open_nursery() as nursery:
            nursery.start_soon(partial(relay, store, address, observer=observe))
            await until(store, wire(entries(3)))
            nursery.cancel_scope.cancel()
    assert reasons[0] == "no answer to Header for 0.2 s"
    assert "the server refuses (3 Bad from entry)" in reasons[1]


class _Hurried(random.Random):
    """Draws delays of a hundredth of their step."""

    def uniform(self, a: float, b: float) -> float:
        return super().uniform(a, b) / 100


@pytest.mark.parametrize("error", [StoreFull, LogMoved, StoreFailed, StoreBusy])
async def test_a_store_that_fails_is_said_and_tried_again(
    error: type[StoreError], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    events: list[Any] = []
    with Store.memory() as upstream, Store.memory() as store:
        key = declare(upstream)
        upstream.append([model.add(1, b"x")])
        async with (
            DataStreamServer(upstream, key, listen="127.0.0.1:0") as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(
                partial(relay, store, server.address, observer=events.append, rng=_Hurried())
            )
            await until(store, model.wire)
            append = store.append
            left = [1, 2, 3]

            def fail(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - those of append
                if left:
                    left.pop()
                    raise error("it does not go on", "here", "try again")
                return append(*given, **named)

            monkeypatch.setattr(store, "append", fail)
            upstream.append([model.add(2, b"live")])
            await until(store, model.wire)
            nursery.cancel_scope.cancel()
    names = [event["event"] for event in events]
    assert names.count("storage_failed") == 1
    assert names.count("disconnected") == 3


async def test_a_log_that_has_ended_ends_its_relay() -> None:
    with Store.memory() as upstream, Store.memory() as store:
        upstream_key = declare(upstream)
        upstream.append([Model().add(1, b"x")])
        declare(store, origin="relay")
        store.append([b""], end_of_log=True)
        async with DataStreamServer(upstream, upstream_key, listen="127.0.0.1:0") as server:
            with pytest.raises(LogClosed):
                await relay(store, server.address)


def test_raw_and_codec_agree() -> None:
    assert raw(3, 9, b"x") == encode_entry(Entry(3, 9, b"x"))
