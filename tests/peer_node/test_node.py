"""A node calls, listens, tells what happens, and ends in good order."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from logstore import FULL, NewEntry, PolicyKind, Store, StoreFull, Subscription
from peer.node import (
    Address,
    CannotConnectError,
    CannotListenError,
    ConnectionState,
    Limits,
    Node,
    NodeConfig,
    memory_link,
    running_node,
)
from peer.node.interests import Wanted
from tests.records import replace
from wire import LogKey, Setup, SignatureLibraryError, encode_setup

from .support import PATIENCE_S, Author

SETUP = Setup(send_greedily=False, accept_greedily=False, send_window=0, receive_window=0)
CONFIG = NodeConfig(workers=0, poll_s=0.001)
SILENT_S = CONFIG.session.close_step_s
ANYWHERE = Address("127.0.0.1", 0)


class Events:
    """What a node told, and waiting for it."""

    def __init__(self) -> None:
        self.all: list[Mapping[str, object]] = []
        self._told = trio.lowlevel.ParkingLot()

    def take(self, event: Mapping[str, object]) -> None:
        self.all.append(event)
        self._told.unpark_all()

    async def wait_for(self, name: str, count: int = 1) -> Mapping[str, object]:
        with trio.fail_after(PATIENCE_S):
            while len(found := [e for e in self.all if e["event"] == name]) < count:
                await self._told.park()
        return found[-1]


@asynccontextmanager
async def node(
    events: Events | None = None, config: NodeConfig = CONFIG, store: Store | None = None
) -> AsyncIterator[Node]:
    with store or Store.memory() as held:
        observer = (events or Events()).take
        async with running_node(held, config, observer=observer, rng=random.Random(1)) as running:
            yield running


async def hang_up_at_once(listener: trio.SocketListener) -> None:
    while True:
        await (await listener.accept()).aclose()


async def test_events_tell_of_a_connection_from_both_ends() -> None:
    here, there = Events(), Events()
    async with node(there) as one, node(here) as other:
        [address] = await one.listen(ANYWHERE)
        assert there.all == [{"event": "listening", "address": str(address), "tls": False}]
        other.connect(address)
        connected = await here.wait_for("connected")
        assert connected == {
            "event": "connected",
            "address": str(address),
            "peer_id": None,
            "direction": "outgoing",
        }
        assert (await there.wait_for("connected"))["direction"] == "incoming"
        [info] = other.connections()
        assert info.state is ConnectionState.ESTABLISHED
        other.hang_up(str(address))
        ended = await there.wait_for("disconnected")
        assert (ended["kind"], ended["reason"]) == ("closed", "closed")
        await here.wait_for("disconnected")
        assert other.connections() == []


async def test_events_tell_how_far_a_log_has_come_and_of_a_fork() -> None:
    events, author, forger = Events(), Author(), Author()
    author.sign(1, b"honest")
    forger.sign(1, b"forged")
    async with node(events) as running:
        store = running.host.store
        for each in (author, forger):
            entry = NewEntry(1, each.encoded[1], each.hash(1), None)
            await running.host.call(lambda e=entry: store.put_entries(author.log, [e], source=""))  # type: ignore[misc]
        await running.host.call(lambda: None, also=[author.log])
        name = {"author": author.log.author.hex(), "log_id": 0}
        fork = await events.wait_for("fork")
        assert events.all[0] == {"event": "log_advanced", **name, "height": 1, "newest": 1}
        assert fork == {"event": "fork", **name, "seq": 1}
        await running.host.call(lambda: None, also=[author.log])
        assert [event["event"] for event in events.all].count("fork") == 1


async def test_who_calls_again_and_again_and_is_no_peer_is_told_of_once_a_minute() -> None:
    events = Events()
    async with node(events) as amy:
        [address] = await amy.listen(ANYWHERE)
        for _ in range(20):
            async with await trio.open_tcp_stream(address.host, address.port) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some(100):
                        pass
        await until(lambda: len(amy.ended) == 20)
        await events.wait_for("disconnected")
    assert len([each for each in events.all if each["event"] == "disconnected"]) == 1


async def test_calls_that_come_to_nothing_are_told_once_for_each_reason() -> None:
    events, attempts = Events(), []
    failures = ["busy", "busy", "gone"]

    async def connect() -> trio.abc.Stream:
        attempts.append(trio.current_time())
        if not failures:
            await trio.sleep_forever()
        raise CannotConnectError(failures.pop(0))

    async with node(events) as running:
        running.dial("nobody", connect)
        await events.wait_for("connect_failed", 2)
        reasons = [e["reason"] for e in events.all if e["event"] == "connect_failed"]
        assert reasons == ["busy", "gone"]
        assert running.connections()[0].attempts >= 3


async def test_calls_come_later_and_later(mock_clock: MockClock) -> None:
    attempts: list[float] = []

    async def connect() -> trio.abc.Stream:
        attempts.append(trio.current_time())
        raise CannotConnectError("nobody there")

    async with node(config=replace(CONFIG, poll_s=1e9)) as running:
        dialler = running.dial("nobody", connect)
        for _ in range(9):
            await wait_all_tasks_blocked()
            retry_at = dialler.info().retry_at_s
            assert retry_at is not None
            mock_clock.jump(retry_at - trio.current_time())
        pauses = [later - earlier for earlier, later in pairwise(attempts)]
        assert len(pauses) >= 8
        for pause, step in zip(pauses, [0.5, 1, 2, 4, 8, 16, 32, 60], strict=False):
            assert step / 2 <= pause <= step + 0.001


async def test_who_hangs_up_is_called_again() -> None:
    events = Events()
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with listener, node(events) as running, trio.open_nursery() as nursery:
        nursery.start_soon(hang_up_at_once, listener)
        running.connect(Address("127.0.0.1", port))
        failed = await events.wait_for("connect_failed")
        assert "hung up" in str(failed["reason"]) or "connection lost" in str(failed["reason"])
        nursery.cancel_scope.cancel()


async def test_a_stream_of_the_callers_ends_with_the_other_side() -> None:
    here, there = memory_link()
    async with node() as running:
        await there.send_all(b"\x16\x03\x01\x02\x00\x01")
        with trio.fail_after(PATIENCE_S):
            ending = await running.serve_stream(here, proactive=False, name="stranger")
        assert ending.reason == "the other side wants TLS"


async def test_of_too_many_connections_the_one_that_says_nothing_gives_way_to_a_newer_one() -> None:
    limits = Limits(connections_max=3, outgoing_reserved=2)
    async with node(config=replace(CONFIG, limits=limits)) as running:
        [address] = await running.listen(ANYWHERE)
        streams = []
        with trio.fail_after(PATIENCE_S):
            for _ in range(3):
                streams.append(await trio.open_tcp_stream(address.host, address.port))
                assert await streams[-1].receive_some(1)
            for stream in streams[:2]:
                while await stream.receive_some(4096):
                    pass
        assert running.gate.gave_way == 2
        assert len(running.members) == 1
        for stream in streams:
            await stream.aclose()


async def test_who_hangs_up_before_he_says_anything_takes_nothing_from_his_address() -> None:
    # A hundredth of a call a second for the first eight, loopback has as much as eight addresses.
    limits = Limits(accepts_burst=1, accepts_per_s=0.00125)
    async with node(config=replace(CONFIG, limits=limits)) as running:
        [address] = await running.listen(ANYWHERE)
        with trio.fail_after(PATIENCE_S):
            for _ in range(100):
                stream = await trio.open_tcp_stream(address.host, address.port)
                await trio.aclose_forcefully(stream)
            answered = 0
            for _ in range(9):
                stream = await trio.open_tcp_stream(address.host, address.port)
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(encode_setup(SETUP))
                    answered += len(await stream.receive_some(1))
                await stream.aclose()
        # Of those who do say something the ninth comes too often.
        assert answered == 8
        assert running.gate.hits == {"accepts": 1}


async def test_an_address_that_is_taken_is_one_clear_line() -> None:
    async with node() as running:
        [address] = await running.listen(ANYWHERE)
        line = rf"^cannot listen on {address}: Address already in use$"
        with pytest.raises(CannotListenError, match=line):
            await running.listen(address)


async def test_a_name_with_several_addresses_gets_one_port() -> None:
    async with node() as running:
        found = await running.listen(Address("localhost", 0))
        assert len({address.port for address in found}) == 1


async def test_a_connection_without_setup_ends_after_ten_seconds(mock_clock: MockClock) -> None:
    events = Events()
    here, there = memory_link()
    quiet = replace(CONFIG, poll_s=1e9)
    async with node(events, quiet) as running, trio.open_nursery() as nursery:
        nursery.start_soon(partial(running.serve_stream, here, proactive=False, name="slow"))
        await wait_all_tasks_blocked()
        mock_clock.jump(9)
        await there.send_all(b"\x03")
        await wait_all_tasks_blocked()
        assert running.connections()[0].state is ConnectionState.SETUP
        mock_clock.jump(1)
        ended = await events.wait_for("disconnected")
        assert ended["reason"] == "setup not finished after 10 s"


async def test_a_follow_that_a_failing_disk_kept_all_the_same_is_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller gets the error, and `follow` would find nothing to change when called again."""
    author = Author()
    async with node() as running:
        keep, load = running.host.store.follow, Wanted.load
        fails = iter([True])

        def keep_and_fail(target: LogKey, subscription: Subscription | None) -> bool:
            keep(target, subscription)
            raise StoreFull("the disk is full", "here", "free space")

        def fail_once(store: Store) -> Wanted:
            if next(fails, False):
                raise StoreFull("the disk is full", "here", "free space")
            return load(store)

        monkeypatch.setattr(running.host.store, "follow", keep_and_fail)
        monkeypatch.setattr(Wanted, "load", fail_once)
        monkeypatch.setattr("peer.node.node.LOOK_AGAIN_S", 0.001)
        with pytest.raises(StoreFull):
            await running.follow(author.log)
        with trio.fail_after(PATIENCE_S):
            while running.follows != [author.log]:
                await trio.lowlevel.checkpoint()


async def test_what_another_process_follows_is_followed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("stores") / "store"
    log = LogKey(bytes(32), 5)
    with Store.create(path) as store, Store.open(path) as elsewhere:
        async with running_node(store, CONFIG) as running:
            assert running.follows == []
            await trio.to_thread.run_sync(elsewhere.follow, log)
            await until(lambda: running.follows == [log])


async def test_what_another_process_wants_of_a_log_is_wanted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("stores") / "store"
    log, sparse = LogKey(bytes(32), 5), Subscription(PolicyKind.SPARSE)
    with Store.create(path) as store, Store.open(path) as elsewhere:
        store.follow(log)
        store.want(log, 7, 8)
        async with running_node(store, CONFIG) as running:
            assert running.is_wanted(log, 7, 8)
            await trio.to_thread.run_sync(elsewhere.follow, log, sparse)
            await until(lambda: running.interests.subscription(log) == sparse)
            assert running.subscriptions == {log: sparse}
            await trio.to_thread.run_sync(elsewhere.unwant, log, 7, 8)
            await until(lambda: not running.interests.fetches)
            await trio.to_thread.run_sync(elsewhere.want, log, 1, 2)
            await until(lambda: running.interests.fetches == {log: ((1, 2),)})


async def test_what_is_wanted_of_a_log_can_be_changed_while_the_node_runs() -> None:
    log, told = LogKey(bytes(32), 5), []
    async with node() as running:
        running.want_watchers.add(lambda: told.append(running.subscriptions))
        latest = Subscription(PolicyKind.LATEST, count=3)
        assert await running.follow(log)
        assert await running.follow(log, latest)
        assert not await running.follow(log)
        assert told == [{log: FULL}, {log: latest}]
        assert await running.unfollow(log)
        assert running.subscriptions == {}


async def test_what_was_wanted_is_wanted_no_more_once_it_is_held() -> None:
    author = Author(1)
    author.sign(1, b"one")
    entry = NewEntry(1, author.encoded[1], author.hash(1), b"one")
    async with node() as running:
        assert await running.want(author.log, 1, 1)
        assert running.is_wanted(author.log, 1, 1)
        store = running.host.store
        await running.host.call(partial(store.put_entries, author.log, [entry], source="test"))
        await until(lambda: not running.is_wanted(author.log, 1, 1))
        assert not await running.want(author.log, 1, 1)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not condition():
            await trio.lowlevel.checkpoint()


async def test_a_node_with_the_wrong_signature_library_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise SignatureLibraryError("wrong rule")

    monkeypatch.setattr("peer.node.node.signature_self_test", fail)
    with pytest.raises(SignatureLibraryError):
        async with node():
            pytest.fail("it started")


@pytest.mark.parametrize("hurried", [True, False])
async def test_leaving_waits_a_moment_for_a_silent_peer_unless_in_a_hurry(
    hurried: bool, mock_clock: MockClock
) -> None:
    here, there = memory_link()
    await there.send_all(b"\x00\x00\x00")
    events, leave, ended = Events(), trio.Event(), list[float]()

    async def run(task_status: trio.TaskStatus[Node]) -> None:
        async with node(events, replace(CONFIG, poll_s=1e9)) as running:
            task_status.started(running)
            await leave.wait()
        ended.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        running = await nursery.start(run)
        nursery.start_soon(partial(running.serve_stream, here, proactive=False, name="silent"))
        await events.wait_for("connected")
        leave.set()
        await wait_all_tasks_blocked(0.01)
        state = running.connections()[0].state
        if hurried:
            running.hurry()
        else:
            mock_clock.jump(SILENT_S)
    assert state is ConnectionState.CLOSING
    assert ended == [0 if hurried else SILENT_S]
