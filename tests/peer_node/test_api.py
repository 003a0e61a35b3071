"""Peers in one program replicate over sockets and over links in memory, once and for as long."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from logstore import ALL, Store, StoredEntry, StoreLocked, StoreReadOnly
from peer.api import Address, CannotListenError, NodeConfig, Peer, SyncError, memory_link, sync
from peer.node import CannotConnectError, ConnectionState
from wire import LogKey

CONFIG = NodeConfig(workers=0, poll_s=0.001)
PATIENCE_S = 30


@pytest.fixture
def stores() -> Iterator[tuple[Store, Store]]:
    with Store.memory() as here, Store.memory() as there:
        yield here, there


@asynccontextmanager
async def joined(here: Store, there: Store) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two peers that run, the first connected to the second by a link in memory."""
    one, other = memory_link()
    with trio.fail_after(PATIENCE_S):
        async with (
            Peer(here, config=CONFIG) as first,
            Peer(there, config=CONFIG) as second,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(partial(first.serve_stream, one, proactive=True))
            nursery.start_soon(partial(second.serve_stream, other, proactive=False))
            yield first, second
            nursery.cancel_scope.cancel()


async def take(peer: Peer, count: int, after: int = 0) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    stream = peer.entries(after=after)
    async for entry in stream:
        found.append(entry)
        if len(found) == count:
            break
    await stream.aclose()
    return found


async def test_entries_reach_a_follower_over_a_socket(stores: tuple[Store, Store]) -> None:
    author, follower = stores
    author.append([b"one", b"two"])
    follower.follow(LogKey(author.author, 0))
    async with Peer(author, config=CONFIG) as here, Peer(follower, config=CONFIG) as there:
        there.connect(await here.listen())
        found = await take(there, 2)
        assert [(entry.seq, entry.payload) for entry in found] == [(1, b"one"), (2, b"two")]
        await here.append([b"three"])
        [third] = await take(there, 1, after=found[-1].ingest)
        assert (third.seq, third.payload) == (3, b"three")


async def test_both_directions_of_one_link_carry_logs(stores: tuple[Store, Store]) -> None:
    for store in stores:
        store.follow(ALL)
        store.append([store.author, b"second"])
    one, other = (LogKey(store.author, 0) for store in stores)
    async with joined(*stores) as (here, there):
        assert (await here.wait_for(other, 2)).payloads == 2
        assert (await there.wait_for(one, 2)).payloads == 2


async def test_what_is_appended_without_the_peer_is_noticed(stores: tuple[Store, Store]) -> None:
    author, follower = stores
    follower.follow(author.author)
    async with joined(author, follower) as (_, there):
        # A log that was not there when the connection began, too.
        await trio.to_thread.run_sync(lambda: author.append([b"new log"], log_id=9))
        assert (await there.wait_for(LogKey(author.author, 9), 1)).payloads == 1


async def test_following_begins_at_once(stores: tuple[Store, Store]) -> None:
    author, follower = stores
    author.append([b"one"])
    key = LogKey(author.author, 0)
    async with joined(author, follower) as (_, there):
        assert await there.follow(key)
        await there.wait_for(key, 1)
        assert not await there.follow(key)
        assert await there.unfollow(key)


async def test_a_one_time_sync_moves_both_ways_and_says_how_much(
    stores: tuple[Store, Store],
) -> None:
    here, there = stores
    here.append([b"a", b"bc"])
    there.append([b"d"])
    for store in stores:
        store.follow(ALL)
    async with Peer(there, config=CONFIG) as peer:
        address = await peer.listen()
        summary = await sync(here, address, config=CONFIG)
        assert (summary.entries_received, summary.entries_sent) == (1, 2)
        assert (summary.payload_bytes_received, summary.payload_bytes_sent) == (1, 3)
        assert summary.logs == 2
        again = await sync(here, address, config=CONFIG)
        assert (again.entries_received, again.entries_sent) == (0, 0)
    assert {info.key for info in here.logs()} == {info.key for info in there.logs()}


async def test_a_sync_with_nothing_to_move_ends(stores: tuple[Store, Store]) -> None:
    async with Peer(stores[1], config=CONFIG) as peer:
        summary = await sync(stores[0], await peer.listen(), config=CONFIG)
    assert (summary.logs, summary.entries_received, summary.entries_sent) == (0, 0, 0)


async def test_waiting_in_sync_brings_what_the_others_have(stores: tuple[Store, Store]) -> None:
    author, follower = stores
    author.append([bytes(1000)] * 300)
    follower.follow(ALL)
    async with Peer(author, config=CONFIG) as here, Peer(follower, config=CONFIG) as there:
        there.connect(await here.listen())
        await there.wait_in_sync()
        info = follower.log(LogKey(author.author, 0))
        assert info is not None
        assert (info.height, info.payloads) == (300, 300)


async def test_a_payload_in_pieces_arrives_whole(stores: tuple[Store, Store]) -> None:
    author, follower = stores
    payload = bytes(range(256)) * 4096
    author.append([payload, b"small", payload[1:]])
    follower.follow(ALL)
    async with joined(author, follower) as (_, there):
        entries = await take(there, 3)
        assert sorted(entry.seq for entry in entries) == [1, 2, 3]
        with follower.open_payload(LogKey(author.author, 0), 1) as reader:
            assert reader.read(0, 2 << 20) == payload


async def test_nobody_at_an_address_is_one_clear_line(stores: tuple[Store, Store]) -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with pytest.raises(CannotConnectError, match=rf"^127.0.0.1:{port}: Connection refused$"):
        await sync(stores[0], f"127.0.0.1:{port}", config=CONFIG)


async def test_a_speaker_of_http_is_no_peer(stores: tuple[Store, Store]) -> None:
    here, there = memory_link()
    await there.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(SyncError, match=r"^stream: not a bamboo peer: it speaks HTTP$"):
        await sync(stores[0], here, config=CONFIG)


@pytest.mark.parametrize("address", ["a..b", Address("a..b", 7007), Address("a", 1 << 16)])
async def test_what_is_no_address_is_refused_at_once(
    stores: tuple[Store, Store], address: str | Address
) -> None:
    async with Peer(stores[0], config=CONFIG) as peer:
        with pytest.raises(ValueError, match=r"is no name of a host|up to 65535"):
            peer.connect(address)
        with pytest.raises(ValueError, match=r"is no name of a host|up to 65535"):
            await peer.sync(address)
        assert peer.connections() == []


async def test_a_name_that_no_host_can_have_ends_no_node(stores: tuple[Store, Store]) -> None:
    async with Peer(stores[0], config=CONFIG) as peer:
        peer.connect("\u2603.example:7007")
        while not (called := peer.connections()[0]).last_error:
            await trio.testing.wait_all_tasks_blocked()
        assert called.state is ConnectionState.WAITING
        assert called.last_error == "\u2603.example:7007: no host can have this name"
        [wrong] = [each for each in await peer.why("\u2603.example") if each.wrong]
        assert wrong.advice == "see whether the name is written correctly"
        with pytest.raises(CannotListenError, match="no host can have this name"):
            await peer.listen("\u2603.example:0")


async def test_connections_tell_of_calls_that_come_to_nothing(stores: tuple[Store, Store]) -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    async with Peer(stores[0], config=CONFIG) as peer:
        peer.connect(f"127.0.0.1:{port}")
        while not (info := peer.connections()[0]).last_error:
            await trio.testing.wait_all_tasks_blocked()
        assert info.state is ConnectionState.WAITING
        assert info.last_error == f"127.0.0.1:{port}: Connection refused"
        assert info.retry_at_s is not None
        peer.disconnect(f"127.0.0.1:{port}")
        assert peer.connections() == []


async def test_one_peer_serves_a_store_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("stores") / "store"
    with Store.create(path) as store, Store.open(path) as again:
        async with Peer(store, config=CONFIG):
            with pytest.raises(StoreLocked):
                await Peer(again, config=CONFIG).__aenter__()


async def test_an_exception_of_the_block_comes_out_as_it_is(stores: tuple[Store, Store]) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with Peer(stores[0], config=CONFIG):
            raise LookupError("mine")


async def test_an_exception_of_the_observer_ends_the_peer_and_comes_out_as_it_is(
    stores: tuple[Store, Store],
) -> None:
    def observe(event: Mapping[str, object]) -> None:
        raise LookupError(event["event"])

    with pytest.raises(LookupError, match="log_advanced"):
        async with Peer(stores[0], config=CONFIG, observer=observe) as peer:
            await peer.append([b"one"])


async def test_a_peer_can_be_cancelled(stores: tuple[Store, Store]) -> None:
    with trio.CancelScope() as scope:
        async with Peer(stores[0], config=CONFIG):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_cancelled_peer_ends_its_connections_in_good_order(
    stores: tuple[Store, Store],
) -> None:
    events: list[dict[str, object]] = []
    others: list[dict[str, object]] = []
    here, there = stores
    with trio.fail_after(PATIENCE_S):
        async with Peer(there, config=CONFIG, observer=lambda e: events.append(dict(e))) as peer:
            address = await peer.listen()
            with trio.CancelScope() as scope:
                async with Peer(
                    here, config=CONFIG, observer=lambda e: others.append(dict(e))
                ) as other:
                    other.connect(address)
                    # Who has not read the other one's setup has no session to end in good order.
                    for told in (events, others):
                        while not any(event["event"] == "connected" for event in told):
                            await trio.lowlevel.checkpoint()
                    scope.cancel()
                    await trio.sleep_forever()
            while events[-1]["event"] != "disconnected":
                await trio.lowlevel.checkpoint()
    assert (events[-1]["kind"], events[-1]["direction"]) == ("closed", "incoming")


def test_outside_of_its_block_a_peer_does_nothing(stores: tuple[Store, Store]) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        Peer(stores[0]).connections()


async def test_a_peer_that_has_ended_says_so_and_nothing_hangs() -> None:
    with Store.memory() as store:
        log = LogKey(store.author, 0)
        async with trio.open_nursery() as nursery:
            peer = Peer(store)
            async with peer:
                host = peer.node.host
                await peer.append([b"one"])
            with trio.fail_after(PATIENCE_S), pytest.raises(RuntimeError, match="async with"):
                await peer.append([b"two"])
            with trio.fail_after(PATIENCE_S), pytest.raises(RuntimeError, match="async with"):
                await peer.fetch(log, 1)
            with trio.fail_after(PATIENCE_S), pytest.raises(RuntimeError, match="async with"):
                await peer.wait_for(log, 9)
            with trio.fail_after(PATIENCE_S), pytest.raises(RuntimeError, match="has ended"):
                await host.call(lambda: store.unfollow(log))
            nursery.cancel_scope.cancel()


async def test_why_takes_an_address_as_listen_returns_it() -> None:
    with Store.memory() as store:
        async with Peer(store) as peer:
            address = await peer.listen()
            [reason] = await peer.why(address)
            assert str(address) in str(reason)


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("wait_for", (bytes(32), 1), "a log is a LogKey"),
        ("fetch", (bytes(32), 1), "a log is a LogKey"),
        ("why", (5,), "a log is a LogKey"),
        ("newest", ("[::1]:1", [bytes(32)]), "a log is a LogKey"),
        ("follow", (None,), "an author 32 bytes"),
        ("unfollow", (["x"],), "an author 32 bytes"),
        ("append", ([b"x", 1],), "a payload is bytes"),
        ("sync", (5,), "an address is text"),
    ],
)
async def test_an_argument_of_a_wrong_type_is_named(
    stores: tuple[Store, Store], method: str, arguments: tuple[object, ...], words: str
) -> None:
    """And is not taken for damage of the store."""
    async with Peer(stores[0], config=CONFIG) as peer:
        with pytest.raises(TypeError, match=words):
            await getattr(peer, method)(*arguments)
        assert not list(stores[0].logs())


@pytest.mark.parametrize(
    ("after", "error"), [("x", TypeError), (-1, ValueError), (10**30, ValueError)]
)
async def test_what_is_no_ingest_number_is_refused(
    stores: tuple[Store, Store], after: object, error: type[Exception]
) -> None:
    async with Peer(stores[0], config=CONFIG) as peer:
        with pytest.raises(error, match="after="):
            await anext(peer.entries(after=after))  # type: ignore[call-overload]


async def test_a_store_that_is_only_read_is_not_served(tmp_path: Path) -> None:
    Store.create(tmp_path / "s").close()
    with (
        Store.open(tmp_path / "s", readonly=True) as store,
        pytest.raises(StoreReadOnly, match="for reading only"),
    ):
        async with Peer(store, config=CONFIG):
            raise AssertionError


@pytest.mark.parametrize("which", ["listening", "connected", "log_advanced", "disconnected"])
async def test_an_observer_that_raises_ends_the_node(
    stores: tuple[Store, Store], which: str
) -> None:
    """Whatever the event is, and wherever in the node it comes from."""
    told = []

    def observe(event: Mapping[str, object]) -> None:
        told.append(event["event"])
        if event["event"] == which:
            raise ZeroDivisionError

    async def watched(here: Peer) -> None:
        async with Peer(stores[1], config=CONFIG, observer=observe) as there:
            await there.follow(stores[0].author)
            address = await here.listen()
            await there.listen()
            there.connect(address)
            await here.append([b"1"])
            await there.wait_for(LogKey(stores[0].author, 0), 1)
            there.disconnect(address)
            await trio.sleep_forever()

    with trio.fail_after(PATIENCE_S):
        async with Peer(stores[0], config=CONFIG) as here:
            with pytest.raises(ZeroDivisionError):
                await watched(here)
    assert told.count(which) == 1
