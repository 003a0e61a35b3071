"""Positions that many save at once: each is on disk before anybody is told so, and none is lost."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateways.ockam import Book, Catalog, OckamServer, Side, book, codec
from logstore import Store, StoreFailed, StoreFull
from peer.api import Peer

from .test_service import Client, connected

CLIENTS = 45
"""More than trio has threads."""


def positions(store: Store, *clients: str) -> list[int | None]:
    """What somebody who opens the store later knows."""
    side = Side(store)
    try:
        known = Book(Catalog(store, side))
        return [known.get((client, "orders", 0)) for client in clients]
    finally:
        side.close()


@pytest.mark.parametrize("what", ["positions", "streams"])
async def test_threads_are_left_to_a_peer_that_asks_before_it_signs(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.memory() as store:
        async with Peer(store) as peer, OckamServer(peer) as server:
            threads = trio.to_thread.current_default_thread_limiter()
            waiting = []

            append: Callable[..., object] = store.append_many

            async def ask_first(*given: object, **named: object) -> object:
                await wait_all_tasks_blocked()
                if not threads.available_tokens:
                    raise StoreFailed("it would wait for ever", "here", "use other threads")
                waiting.append(server._host._threads.borrowed_tokens)
                return await trio.to_thread.run_sync(lambda: append(*given, **named))

            monkeypatch.setattr(peer, "append_many", ask_first)
            clients = [await connected(server) for _ in range(CLIENTS)]
            for number, client in enumerate(clients):
                if what == "streams":
                    await client.ask("stream", codec.Create(f"s{number}"))
                    continue
                save = codec.SaveIndex(f"c{number}", "orders", 1)
                await client.ask("stream_index", save, codec.GetIndex(f"c{number}", "orders"))
            for number, client in enumerate(clients):
                replied = await client.reply()
                assert replied is not None
                if what == "streams":
                    assert replied[1] == codec.Created(f"s{number}")
                else:
                    assert replied[1] == codec.Index(f"c{number}", "orders", 1)
                await client.stream.aclose()
            # Who waits for its turn holds no thread, which others need to read.
            assert max(waiting) <= 3


async def test_who_saves_faster_than_is_written_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(book, "WAITING_MAX", 10)
    with Store.memory() as store:
        async with OckamServer(store) as server:
            client = await connected(server)
            names = [f"c{number}" for number in range(100)]
            saves = [codec.SaveIndex(name, "orders", 3) for name in names]
            await client.ask("stream_index", *saves, codec.GetIndex("c99", "orders"))
            assert await client.reply() == ("stream_index", codec.Index("c99", "orders", 3))
            await client.stream.aclose()
        assert positions(store, *names) == [3] * 100


async def test_saves_wait_for_a_disk_that_is_full_and_it_is_not_asked_all_the_time(
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    monkeypatch.setattr(book, "WAITING_MAX", 2)
    with Store.memory() as store:
        events: list[Any] = []
        async with OckamServer(store, observer=events.append) as server:
            client, other = await connected(server), await connected(server)
            failed: list[float] = []

            def fail(*_: object, **__: object) -> None:
                failed.append(trio.from_thread.run_sync(trio.current_time))
                raise StoreFull("the disk is full", "here", "free space")

            with monkeypatch.context() as patched:
                patched.setattr(store, "append_many", fail)
                saves = [codec.SaveIndex(f"c{number}", "orders", 1) for number in range(4)]
                await client.ask("stream_index", *saves, codec.GetIndex("c3", "orders"))
                await pulled_on(other)
                mock_clock.autojump_threshold = 0.1
                await trio.sleep(3.5)
                mock_clock.autojump_threshold = float("inf")
            assert 1 <= len(failed) <= 5
            mock_clock.autojump_threshold = 0.1
            assert await client.reply() == ("stream_index", codec.Index("c3", "orders", 1))
            mock_clock.autojump_threshold = float("inf")
            for each in (client, other):
                await each.stream.aclose()
        assert [each["event"] for each in events].count("storage_failed") == 1
        assert positions(store, "c0", "c1", "c2", "c3") == [1, 1, 1, 1]


async def pulled_on(client: Client) -> None:
    """Others are answered."""
    await client.ask("stream_index", codec.GetIndex("nobody", "orders"))
    assert await client.reply() == ("stream_index", codec.Index("nobody", "orders", None))
