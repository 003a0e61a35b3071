"""A hub over sockets: what it does when it ends, and on bad days."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateways import LogHost
from gateways.ockam import Book, Catalog, OckamServer, Rights, Side, codec
from logstore import Store, StoreFailed

PATIENCE_S = 120
"""How long anything may take; it takes this long only if it never comes."""
OWN = codec.local("app")


class Client:
    """A client that sends frames, and reads replies one by one."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._frames = codec.FrameDecoder()

    async def ask(self, worker: str, *requests: codec.Request) -> None:
        """Sends requests to a worker, all in one piece."""
        onward = (codec.local(worker),)
        await self.stream.send_all(
            b"".join(
                codec.encode_frame(codec.encode_message(onward, (OWN,), codec.encode_request(each)))
                for each in requests
            )
        )

    async def reply(self) -> tuple[str, codec.Response] | None:
        """Who answers, and what; None at the end."""
        with trio.fail_after(PATIENCE_S):
            while (frame := self._frames.next_frame()) is None:
                data = bytes(await self.stream.receive_some(1 << 16))
                if not data:
                    return None
                self._frames.feed(data)
        message = codec.decode_message(frame)
        response = codec.decode_response(*codec.decode_payload(message.payload))
        return message.back[0].value.decode(), response

    async def create(self, name: str) -> str:
        """The address of a stream."""
        await self.ask("stream", codec.Create(name))
        replied = await self.reply()
        assert replied is not None
        return replied[0]

    async def replies(self) -> list[codec.Response]:
        """All that comes until the end."""
        found = []
        while (replied := await self.reply()) is not None:
            found.append(replied[1])
        return found


async def connected(server: OckamServer, rights: Rights = Rights.ALL) -> Client:
    """A client of a server, on a listener of its own."""
    address = await server.listen("127.0.0.1:0", rights=rights)
    return Client(await trio.open_tcp_stream(address.host, address.port))


def hold_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, begun: trio.Event, go_on: threading.Event
) -> None:
    """Appends wait, each once it has begun, until they may go on."""
    append: Callable[..., object] = store.append_many

    def append_later(*given: object, **named: object) -> object:
        trio.from_thread.run_sync(begun.set)
        assert go_on.wait(PATIENCE_S)
        return append(*given, **named)

    monkeypatch.setattr(store, "append_many", append_later)


async def test_what_is_being_stored_is_confirmed_when_the_program_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Store.memory() as store:
        found: list[codec.Response] = []
        begun, go_on = trio.Event(), threading.Event()

        async def push(client: Client, worker: str) -> None:
            await client.ask(worker, *(codec.Push(number, b"tea") for number in range(1, 4)))
            found.extend(await client.replies())

        async def cancel(program: trio.CancelScope) -> None:
            await begun.wait()
            program.cancel()
            await wait_all_tasks_blocked()
            go_on.set()

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as program:
                async with OckamServer(store) as server:
                    client = await connected(server)
                    worker = await client.create("orders")
                    hold_up(store, monkeypatch, begun, go_on)
                    nursery.start_soon(push, client, worker)
                    nursery.start_soon(cancel, program)
                    await trio.sleep_forever()
            assert program.cancelled_caught
        assert found == [codec.Pushed(number, True, number - 1) for number in range(1, 4)]
        await client.stream.aclose()


async def test_a_client_that_takes_nothing_costs_an_end_4_s_and_no_position(
    mock_clock: MockClock,
) -> None:
    with Store.memory() as store:
        async with OckamServer(store) as server:
            client = await connected(server)
            worker = await client.create("orders")
            client.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 1 << 12)
            for number in range(100):
                await client.ask(worker, codec.Push(number, bytes(60_000)))
                assert await client.reply() is not None
            await client.ask("stream_index", codec.SaveIndex("web", "orders", 7))
            await client.ask(worker, *(codec.Pull(number, 0, 1) for number in range(100)))
            await wait_all_tasks_blocked(0.01)
            mock_clock.autojump_threshold = 0.1
        assert 4 <= trio.current_time() <= 5
        await client.stream.aclose()
        side = Side(store)
        assert Book(Catalog(store, side)).get(("web", "orders", 0)) == 7
        side.close()


async def test_a_message_that_is_stored_while_a_pull_is_read_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def watch_nothing(*_: object) -> None:
        await trio.sleep_forever()

    # Who hears of all commits would hear of this one as well, a moment later.
    monkeypatch.setattr(LogHost, "watch", watch_nothing)
    with Store.memory() as store:
        async with OckamServer(store, hold_s=5) as server:
            puller, pusher = await connected(server), await connected(server)
            worker = await puller.create("orders")
            begun, go_on = trio.Event(), threading.Event()
            read = Catalog.read

            def read_slowly(*given: Any) -> Any:  # noqa: ANN401 - those of read
                found = read(*given)
                trio.from_thread.run_sync(begun.set)
                assert go_on.wait(PATIENCE_S)
                return found

            monkeypatch.setattr(Catalog, "read", read_slowly)
            await puller.ask(worker, codec.Pull(1, 0, 10))
            await begun.wait()
            await pusher.ask(worker, codec.Push(1, b"tea"))
            assert await pusher.reply() == (worker, codec.Pushed(1, True, 0))
            go_on.set()
            assert await puller.reply() == (worker, codec.Pulled(1, ((0, b"tea"),)))
            for each in (puller, pusher):
                await each.stream.aclose()


async def test_a_create_at_a_stream_makes_nothing() -> None:
    with Store.memory() as store:
        events: list[Any] = []
        async with OckamServer(store, observer=events.append) as server:
            client = await connected(server)
            worker = await client.create("orders")
            for name in ("another", None):
                await client.ask(worker, codec.Create(name, 2, codec.CREATE_PARTITIONED))
                created = codec.Created("orders", 0, codec.CREATE_PARTITIONED)
                assert await client.reply() == (worker, created)
            await client.stream.aclose()
        assert [each["stream"] for each in events if each["event"] == "stream"] == ["orders"]


async def test_who_makes_a_stream_is_answered_though_it_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise StoreFailed("the side table failed", "here", "look at the disk")

    monkeypatch.setattr(Catalog, "all", fail)
    with Store.memory() as store:
        async with OckamServer(store) as server:
            client = await connected(server)
            worker = await client.create("orders")
            assert await client.create("orders") == worker
            await client.stream.aclose()


async def test_a_hub_starts_whose_side_table_cannot_be_brought_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Store.memory() as store:
        refresh = Side.refresh
        failures = [StoreFailed("the side table failed", "here", "look at the disk")]

        def fail_once(side: Side) -> bool:
            if failures:
                raise failures.pop()
            return refresh(side)

        monkeypatch.setattr(Side, "refresh", fail_once)
        async with OckamServer(store) as server:
            client = await connected(server)
            worker = await client.create("orders")
            await client.ask(worker, codec.Push(1, b"tea"))
            assert await client.reply() == (worker, codec.Pushed(1, True, 0))
            await client.stream.aclose()


async def test_what_the_block_raises_comes_out_as_itself() -> None:
    with Store.memory() as store, pytest.raises(KeyError):
        async with OckamServer(store):
            raise KeyError
