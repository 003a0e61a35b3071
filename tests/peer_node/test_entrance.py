"""Who gets in over TLS, who does not, and what each of them is told."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import perf_counter

import pytest
import trio
from nacl.signing import SigningKey
from trio.testing import MockClock, memory_stream_pair

from logstore import ALL, PeerState, RuleChange, Store, WriteScope, read_scope
from peer import SessionConfig
from peer.api import CannotConnectError, Peer, SyncError
from peer.node import (
    Address,
    ConnectionState,
    Doors,
    Limits,
    Node,
    NodeConfig,
    PeerAddress,
    running_node,
)
from peer.node.doors.tls import Identity, TlsStream
from peer.node.links import entrance, parting
from tests.records import replace
from wire import LogKey

from .support import PATIENCE_S
from .test_node import Events

# ruff: noqa: ASYNC110, PT012 - other threads and processes bring about what is waited for

AMY, BEN, EVE = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))
AMY_ID, BEN_ID, EVE_ID = (bytes(key.verify_key) for key in (AMY, BEN, EVE))
TLS = NodeConfig(workers=0, poll_s=0.001, doors=Doors(tls=True))
PLAIN = replace(TLS, doors=Doors())
HERE = Address("127.0.0.1", 0)


class Told(Events):
    """What a node told; of one event by what it says."""

    async def of_kind(self, name: str, kind: str) -> Mapping[str, object]:
        with trio.fail_after(PATIENCE_S):
            while True:
                for event in self.all:
                    if (event["event"], event.get("kind")) == (name, kind):
                        return event
                await self._told.park()


@asynccontextmanager
async def node(
    key: SigningKey, config: NodeConfig = TLS, *, told: Told | None = None
) -> AsyncIterator[Node]:
    with Store.memory(signing_key=key) as store:
        observer = (told or Told()).take
        async with running_node(store, config, observer=observer, rng=random.Random(1)) as running:
            yield running


def called(address: Address, who: bytes | str | None = None) -> PeerAddress:
    return PeerAddress(address, peer=who.hex() if isinstance(who, bytes) else who)


async def seen(running: Node) -> dict[bytes, PeerState]:
    await running.entrance.sightings.flush()
    return {each.peer_id: each.state for each in running.host.store.peers.known()}


async def until_gone(running: Node) -> None:
    with trio.fail_after(PATIENCE_S):
        while running.members:
            await trio.sleep(0.01)


async def test_nobody_is_let_in_whom_nobody_has_allowed() -> None:
    amys, bens = Told(), Told()
    async with node(AMY, told=amys) as amy, node(BEN, told=bens) as ben:
        [address] = await amy.listen(HERE)
        assert amys.all == [{"event": "listening", "address": str(address), "tls": True}]
        ben.connect(called(address, AMY_ID))
        failed = await bens.of_kind("connect_failed", "denied")
        assert failed["peer_id"] == AMY_ID.hex()
        assert failed["reason"] == f"{AMY_ID.hex()} has not allowed this node yet"
        refused = await amys.of_kind("refused", "unknown")
        assert (refused["peer_id"], refused["count"]) == (BEN_ID.hex(), 1)
        assert await seen(amy) == {BEN_ID: PeerState.WAITING}
        assert amy.host.store.peers.rules() == {}
        assert not any(event["event"] == "connected" for event in (*amys.all, *bens.all))


async def test_who_is_allowed_gets_in_with_the_next_call_and_both_know_whom_they_have() -> None:
    amys, bens = Told(), Told()
    async with node(AMY, told=amys) as amy, node(BEN, told=bens) as ben:
        [address] = await amy.listen(HERE)
        ben.connect(called(address, AMY_ID))
        await bens.of_kind("connect_failed", "denied")
        await amy.host.call(partial(amy.host.store.peers.allow, BEN_ID))
        connected = await bens.wait_for("connected")
        assert (connected["peer_id"], connected["direction"]) == (AMY_ID.hex(), "outgoing")
        assert (await amys.wait_for("connected"))["peer_id"] == BEN_ID.hex()
        [info] = ben.connections()
        assert (info.state, info.peer_id) == (ConnectionState.ESTABLISHED, AMY_ID.hex())
        assert ben.called_as(info) == f"{AMY_ID.hex()}@{address}"


@pytest.mark.parametrize("how", ["remove", "block"])
async def test_who_is_sent_away_loses_its_connections_at_once(how: str) -> None:
    amys, bens = Told(), Told()
    async with node(AMY, told=amys) as amy, node(BEN, told=bens) as ben:
        peers = amy.host.store.peers
        peers.allow(BEN_ID)
        [address] = await amy.listen(HERE)
        ben.connect(called(address, AMY_ID))
        await amys.wait_for("connected")
        # As another process does it: the node is told nothing.
        await trio.to_thread.run_sync(getattr(peers, how), BEN_ID)
        with trio.fail_after(2):
            gone = await amys.of_kind("disconnected", "removed")
        assert gone["peer_id"] == BEN_ID.hex()
        assert gone["reason"] == f"{BEN_ID.hex()} is allowed no longer"
        await until_gone(amy)
        await bens.wait_for("disconnected")
        kind = {"remove": "denied", "block": "certificate"}[how]
        failed = await bens.of_kind("connect_failed", kind)
        if how == "block":
            assert "perhaps your certificate was refused" in str(failed["reason"])
            assert (await amys.of_kind("refused", "blocked"))["peer_id"] is None
            assert await seen(amy) == {BEN_ID: PeerState.BLOCKED}


async def test_who_is_removed_is_gone_although_it_is_called_by_its_id() -> None:
    """By that it would get the defaults, which are more than its row has given it."""
    bens = Told()
    async with node(AMY) as amy, node(BEN, told=bens) as ben:
        amys, bens_peers = amy.host.store.peers, ben.host.store.peers
        amys.allow(BEN_ID)
        bens_peers.allow(AMY_ID, RuleChange(read=frozenset(), write=WriteScope.NONE))
        [address] = await amy.listen(HERE)
        with trio.fail_after(PATIENCE_S):
            while AMY_ID not in ben.entrance.admission.rules:
                await trio.sleep(0.01)
        ben.connect(called(address, AMY_ID))
        await bens.wait_for("connected")
        await trio.to_thread.run_sync(bens_peers.remove, AMY_ID)
        await bens.of_kind("disconnected", "removed")
        failed = await bens.of_kind("connect_failed", "denied")
        assert "whom this node has not allowed" in str(failed["reason"])
        await trio.to_thread.run_sync(bens_peers.allow, AMY_ID)
        bens.all.clear()
        await bens.wait_for("connected")


async def test_a_row_with_fewer_connections_ends_those_that_are_there() -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy, node(BEN) as ben:
        amy.host.store.peers.allow(BEN_ID, RuleChange(connections=3))
        [address] = await amy.listen(HERE)
        with trio.fail_after(PATIENCE_S):
            while BEN_ID not in amy.entrance.admission.rules:
                await trio.sleep(0.01)
        streams = [await ben.entrance.call(called(address, AMY_ID)) for _ in range(3)]
        for stream in streams:
            assert await stream.receive_some(1)
        await trio.to_thread.run_sync(
            partial(amy.host.store.peers.allow, BEN_ID, RuleChange(connections=1))
        )
        with trio.fail_after(PATIENCE_S):
            while len(amy.members) != 1:
                await trio.sleep(0.01)
        assert amy.limit_hits == {"peer-connections": 2}
        for stream in streams:
            await stream.aclose()


@pytest.mark.parametrize("where", ["admit", "knows"])
async def test_a_fault_while_somebody_comes_in_ends_that_connection_alone(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(AMY) as amy, node(BEN) as ben, node(EVE) as eve:
        for each in (BEN_ID, EVE_ID):
            amy.host.store.peers.allow(each)
        [address] = await amy.listen(HERE)
        with trio.fail_after(PATIENCE_S):
            while len(amy.entrance.admission.rules) < 2:
                await trio.sleep(0.01)
        ben.connect(called(address, AMY_ID))
        with trio.fail_after(PATIENCE_S):
            while not amy.members:
                await trio.sleep(0.01)
        with monkeypatch.context() as changed:

            def fail(*_: object) -> None:
                raise RuntimeError("nobody foresaw this")

            changed.setattr(amy.entrance, where, fail)
            with suppress(CannotConnectError, trio.BrokenResourceError):
                async with await eve.entrance.call(called(address, AMY_ID)) as stream:
                    assert not await stream.receive_some(1)
        assert "nobody foresaw this" in caplog.text
        assert len(amy.members) == 1
        stream = await eve.entrance.call(called(address, AMY_ID))
        assert await stream.receive_some(1)
        await stream.aclose()


async def test_a_fault_in_a_call_is_told_and_it_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bens = Told()
    async with node(AMY) as amy, node(BEN, told=bens) as ben:
        amy.host.store.peers.allow(BEN_ID)
        [address] = await amy.listen(HERE)
        call = ben.entrance.call

        async def fail(_: PeerAddress) -> trio.abc.Stream:
            monkeypatch.setattr(ben.entrance, "call", call)
            raise RuntimeError("nobody foresaw this")

        monkeypatch.setattr(ben.entrance, "call", fail)
        dialler = ben.connect(called(address, AMY_ID))
        failed = await bens.of_kind("connect_failed", "internal error")
        assert "nobody foresaw this" in str(failed["reason"])
        with trio.fail_after(PATIENCE_S):
            while dialler.info().retry_at_s is None:
                await trio.sleep(0.01)


async def test_who_has_another_key_than_expected_is_named_and_not_called_for_a_minute() -> None:
    bens = Told()
    async with node(AMY) as amy, node(BEN, told=bens) as ben:
        amy.host.store.peers.allow(BEN_ID)
        [address] = await amy.listen(HERE)
        dialler = ben.connect(called(address, EVE_ID))
        failed = await bens.of_kind("connect_failed", "wrong peer")
        assert AMY_ID.hex() in str(failed["reason"])
        assert EVE_ID.hex() in str(failed["reason"])
        with trio.fail_after(PATIENCE_S):
            while (info := dialler.info()).retry_at_s is None:
                await trio.sleep(0.01)
        assert info.retry_at_s - info.since_s >= 60
        assert amy.members == []


@pytest.mark.parametrize("listens_on", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("config", [TLS, replace(PLAIN, doors=Doors(insecure=True))])
async def test_a_node_does_not_call_itself(listens_on: str, config: NodeConfig) -> None:
    amys = Told()
    async with node(AMY, config, told=amys) as amy, node(BEN, config) as ben:
        [address] = await amy.listen(Address(listens_on, 0))
        amy.connect(PeerAddress(Address("127.0.0.1", address.port)))
        failed = await amys.of_kind("connect_failed", "wrong peer")
        assert "this store itself is served there" in str(failed["reason"])
        assert all(event["event"] != "connected" for event in amys.all)
        ben.host.store.peers.allow(AMY_ID)
        amy.host.store.peers.allow(BEN_ID)
        [other] = await ben.listen(Address(listens_on, 0))
        amy.connect(PeerAddress(Address("127.0.0.1", other.port)))
        await amys.wait_for("connected")


async def test_any_peer_that_is_allowed_may_answer_and_no_other() -> None:
    bens = Told()
    async with node(AMY) as amy, node(BEN, told=bens) as ben:
        amy.host.store.peers.allow(BEN_ID)
        [address] = await amy.listen(HERE)
        ben.connect(called(address))
        failed = await bens.of_kind("connect_failed", "denied")
        assert f"{AMY_ID.hex()} answers, whom this node has not allowed" in str(failed["reason"])
        assert await seen(ben) == {AMY_ID: PeerState.WAITING}
        await ben.host.call(partial(ben.host.store.peers.allow, AMY_ID))
        await bens.wait_for("connected")


async def test_who_is_called_by_its_id_is_let_in_unless_it_is_blocked() -> None:
    bens = Told()
    async with node(AMY) as amy, node(BEN, told=bens) as ben:
        amy.host.store.peers.allow(BEN_ID)
        [address] = await amy.listen(HERE)
        ben.connect(called(address, AMY_ID))
        await bens.wait_for("connected")
        await ben.host.call(partial(ben.host.store.peers.block, AMY_ID))
        assert (await bens.of_kind("disconnected", "removed"))["peer_id"] == AMY_ID.hex()
        await bens.of_kind("connect_failed", "blocked")


async def test_a_name_stands_for_a_peer() -> None:
    bens = Told()
    async with node(AMY) as amy, node(BEN, told=bens) as ben:
        amy.host.store.peers.allow(BEN_ID)
        ben.host.store.peers.allow(AMY_ID, RuleChange(name="amy"))
        [address] = await amy.listen(HERE)
        ben.connect(called(address, "nobody"))
        assert "no peer is called nobody" in str((await bens.wait_for("connect_failed"))["reason"])
        ben.hang_up(str(address))
        ben.connect(called(address, "amy"))
        assert (await bens.wait_for("connected"))["peer_id"] == AMY_ID.hex()


async def test_the_own_key_is_always_let_in() -> None:
    told = Told()
    async with node(AMY) as one, node(AMY, told=told) as other:
        [address] = await one.listen(HERE)
        other.connect(called(address))
        assert (await told.wait_for("connected"))["peer_id"] == AMY_ID.hex()


async def test_an_archive_lets_in_whoever_is_not_blocked() -> None:
    config = replace(TLS, doors=Doors(tls=True, allow_any=True, any_read=read_scope("none")))
    bens, eves = Told(), Told()
    async with node(AMY, config) as amy, node(BEN, told=bens) as ben, node(EVE, told=eves) as eve:
        amy.host.store.peers.block(EVE_ID)
        [address] = await amy.listen(HERE)
        ben.connect(called(address, AMY_ID))
        await bens.wait_for("connected")
        eve.connect(called(address, AMY_ID))
        await eves.of_kind("connect_failed", "certificate")


async def test_both_ends_say_it_if_one_speaks_tls_and_the_other_does_not() -> None:
    amys, bens, eves = Told(), Told(), Told()
    async with node(AMY, told=amys) as amy, node(BEN, PLAIN, told=bens) as ben:
        [secure] = await amy.listen(HERE)
        ben.connect(PeerAddress(secure))
        failed = await bens.of_kind("connect_failed", "wants tls")
        assert failed["reason"] == "the other side wants TLS"
        refused = await amys.of_kind("refused", "no tls")
        assert refused["reason"] == "the caller does not speak TLS"
        [open_door] = await ben.listen(HERE)
        async with node(EVE, told=eves) as eve:
            eve.connect(called(open_door, BEN_ID))
            failed = await eves.of_kind("connect_failed", "no tls")
            assert "the other side does not speak TLS" in str(failed["reason"])
            await bens.of_kind("disconnected", "wants tls")


async def test_one_call_says_yes_or_no_to_tls_for_itself() -> None:
    told = Told()
    async with node(AMY, PLAIN) as amy, node(BEN, TLS, told=told) as ben:
        [address] = await amy.listen(HERE)
        ben.connect(PeerAddress(address, tls=False))
        assert (await told.wait_for("connected"))["peer_id"] is None
        assert ben.called_as(ben.connections()[0]) == f"{address},tls=no"


async def test_a_sync_says_by_whom_it_was_refused() -> None:
    with Store.memory(signing_key=AMY) as one, Store.memory(signing_key=BEN) as other:
        doors = Doors(tls=True)
        async with Peer(one, doors=doors) as amy, Peer(other, doors=doors) as ben:
            address = await amy.listen()
            with pytest.raises(SyncError, match=f"refused by .*{AMY_ID.hex()} has not allowed"):
                await ben.sync(f"{AMY_ID.hex()}@{address}")
            with pytest.raises(CannotConnectError, match="whom this node has not allowed"):
                await ben.sync(address)
            one.peers.allow(BEN_ID)
            await amy.append([b"hello"])
            await ben.follow(AMY_ID)
            received = 0
            with trio.fail_after(PATIENCE_S):
                while not received:
                    # Refused until the node has read what was written beside it, on a busy machine
                    # some time after that.
                    with suppress(SyncError):
                        received = (await ben.sync(f"{AMY_ID.hex()}@{address}")).entries_received
                    await trio.sleep(0.05)
            assert received == 1


async def test_who_knocks_often_is_told_of_once() -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy, node(BEN) as ben:
        [address] = await amy.listen(HERE)
        for _ in range(5):
            stream = await ben.entrance.call(called(address, AMY_ID))
            assert await stream.receive_some(100) == b"denied\n"
            assert await stream.receive_some(100) == b""
            await stream.aclose()
        assert len([each for each in amys.all if each["event"] == "refused"]) == 1
        await seen(amy)
        [known] = amy.host.store.peers.known()
        assert known.seen is not None
        assert known.seen.count == 5


async def test_who_goes_on_talking_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(parting.turn_away, ours, b"denied\n"))
        assert await theirs.receive_some(100) == b"denied\n"
        started = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await theirs.send_all(b"x")
                await trio.sleep(0.1)
        assert trio.current_time() - started <= parting.LINGER_S + 0.2
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(parting.turn_away, ours))
        started = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await theirs.send_all(bytes(parting.LINGER_BYTES))
                await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == started


@pytest.mark.parametrize("handshake", [False, True])
async def test_a_caller_that_says_nothing_has_ten_seconds_in_all(
    mock_clock: MockClock, handshake: bool
) -> None:
    """The handshake and the setup have one deadline between them, from when it was taken."""
    told = Told()
    config = replace(TLS, poll_s=1e9)
    async with node(AMY, config, told=told) as amy, _going_on_by_itself(mock_clock):
        await amy.host.call(partial(amy.host.store.peers.allow, BEN_ID))
        await _until(lambda: BEN_ID in amy.entrance.admission.rules)
        ours, theirs = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            reception = amy._reception
            nursery.start_soon(partial(reception.run, ours, "192.0.2.1", "192.0.2.1:5", tls=True))
            await _until(lambda: amy.gate.incoming == 1)
            mock_clock.jump(7)
            if handshake:
                tls = TlsStream(theirs, Identity(BEN), server=False)
                await tls.do_handshake()
                await _until(lambda: len(amy.members) == 1)
            mock_clock.jump(2.9)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert amy.gate.incoming == 1
            mock_clock.jump(0.2)
            await _until(lambda: amy.gate.incoming == 0)
        wanted = ("disconnected", "timeout") if handshake else ("refused", "no tls")
        assert wanted in [(each["event"], each.get("kind")) for each in told.all]


@asynccontextmanager
async def _going_on_by_itself(clock: MockClock) -> AsyncIterator[None]:
    """Lets time pass at the end: a node whose test has failed would wait for ever to be left."""
    try:
        yield
    finally:
        clock.autojump_threshold = 0.01


async def _until(is_so: Callable[[], bool]) -> None:
    """Waits while no time passes: a busy machine may take a while for what threads do."""
    began = perf_counter()
    while not is_so():
        assert perf_counter() < began + PATIENCE_S
        await trio.testing.wait_all_tasks_blocked(0.01)


async def test_what_is_no_setup_over_tls_is_no_peer() -> None:
    told = Told()
    async with node(AMY, told=told) as amy:
        amy.host.store.peers.allow(BEN_ID)
        [address] = await amy.listen(HERE)
        stream = TlsStream(
            await trio.open_tcp_stream(address.host, address.port), Identity(BEN), server=False
        )
        # The store has been read: what is decided is told within a second.
        with trio.fail_after(PATIENCE_S):
            while amy.entrance.admission.rules.get(BEN_ID) is None:
                await trio.sleep(0.01)
        await stream.send_all(b"\xff\x00\x01GET / HTTP/1.0\r\n")
        assert "no setup" in str((await told.of_kind("disconnected", "not a peer"))["reason"])
        await stream.aclose()


def test_by_which_addresses_tls_is_spoken() -> None:
    def made(doors: Doors) -> entrance.Entrance:
        found = entrance.Entrance.__new__(entrance.Entrance)
        found._doors = doors
        return found

    loopback, far = Address("localhost", 1), Address("0.0.0.0", 1)
    named = called(loopback, AMY_ID)
    for doors, near, away in (
        (Doors(), False, True),
        (Doors(tls=True), True, True),
        (Doors(insecure=True), False, False),
    ):
        ways = made(doors)
        assert ways.listens_with_tls(loopback) is near
        assert ways.listens_with_tls(far) is away
        assert ways.calls_with_tls(PeerAddress(loopback)) is near
        assert ways.calls_with_tls(PeerAddress(far)) is away
        assert ways.calls_with_tls(PeerAddress(far, tls=not away)) is not away
        assert ways.calls_with_tls(named)
    with pytest.raises(ValueError, match="nothing is left"):
        Doors(tls=True, insecure=True)


async def test_a_scope_holds_for_a_connection_and_changes_while_it_lasts() -> None:
    with Store.memory(signing_key=AMY) as one, Store.memory(signing_key=BEN) as other:
        doors = Doors(tls=True)
        public, private = LogKey(AMY_ID, 1), LogKey(AMY_ID, 2)
        change = RuleChange(read=frozenset((public,)), write=WriteScope.NONE)
        one.peers.allow(BEN_ID, change)
        one.follow(BEN_ID)
        other.follow(AMY_ID)
        async with Peer(one, doors=doors) as amy, Peer(other, doors=doors) as ben:
            ben.connect(f"{AMY_ID.hex()}@{await amy.listen()}")
            await ben.append([b"of ben"])
            await amy.append([b"for ben"], log_id=1)
            await amy.append([b"not for ben"], log_id=2)
            with trio.fail_after(PATIENCE_S):
                await ben.wait_for(public, 1)
                assert other.log(private) is None
                assert one.log(LogKey(BEN_ID, 0)) is None
                one.peers.allow(BEN_ID, RuleChange(write=WriteScope.OWN))
                await amy.wait_for(LogKey(BEN_ID, 0), 1)
                assert other.log(private) is None
                one.peers.allow(BEN_ID, RuleChange(read=read_scope("all")))
                await ben.wait_for(private, 1)


async def test_of_a_peer_with_too_many_connections_the_one_silent_longest_gives_way() -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy, node(BEN) as ben:
        amy.host.store.peers.allow(BEN_ID, RuleChange(connections=2))
        [address] = await amy.listen(HERE)
        with trio.fail_after(PATIENCE_S):
            while amy.entrance.admission.rules.get(BEN_ID) is None:
                await trio.sleep(0.01)
        streams = []
        for count in range(3):
            streams.append(await ben.entrance.call(called(address, AMY_ID)))
            assert await streams[-1].receive_some(1)
            with trio.fail_after(PATIENCE_S):
                while len(amy.members) != min(count + 1, 2):
                    await trio.sleep(0.01)
        gone = await amys.of_kind("disconnected", "lost")
        assert "as many as its row allows" in str(gone["reason"])
        assert amy.limit_hits == {"peer-connections": 1}
        for stream in streams:
            await stream.aclose()


async def test_new_logs_of_a_peer_are_counted_over_all_its_connections() -> None:
    """Else it would bring as many again with each, and no quota of bytes counts empty logs."""
    session = SessionConfig(offered_logs_per_s=0.0)
    config = replace(TLS, session=session, limits=Limits(offered_logs_max=3))
    async with node(AMY, config) as amy, node(BEN) as ben:
        store, hits = amy.host.store, amy.limit_hits

        async def until(condition: Callable[[], bool]) -> None:
            with trio.fail_after(PATIENCE_S):
                while not condition():
                    await trio.sleep(0.01)

        await amy.follow(ALL)
        await amy.host.call(partial(store.peers.allow, BEN_ID))
        for number in range(10):
            ben.host.store.append([b"x"], log_id=number)
        [address] = await amy.listen(HERE)
        for most in (3, 3, 5):
            amy.change_limits(Limits(offered_logs_max=most))
            refused = amy.limit_hits["offered-logs"]
            dialler = ben.connect(called(address, AMY_ID))
            # All that are over are refused again, those that are held are not counted.
            await until(lambda n=refused, m=most: amy.limit_hits["offered-logs"] >= n + 10 - m)  # type: ignore[misc]
            await until(lambda m=most: len([*store.logs()]) == m)  # type: ignore[misc]
            ben.hang_up(dialler.address)
            await until_gone(amy)
        assert len([*store.logs()]) == 5
        assert hits.keys() <= {"offered-logs"}


async def test_what_a_peer_may_send_a_second_is_its_own() -> None:
    async with node(AMY) as amy, node(BEN) as ben:
        amy.host.store.peers.allow(BEN_ID, RuleChange(rate_in=50_000, rate_out=70_000))
        [address] = await amy.listen(HERE)
        ben.connect(called(address, AMY_ID))
        with trio.fail_after(PATIENCE_S):
            while not (amy.members and amy.members[0].established.is_set()):
                await trio.sleep(0.01)
        terms = amy.members[0].terms()
        assert terms is not None
        assert terms.sending is not None
        assert terms.receiving is not None
        before = amy.members[0]
        amy.host.store.peers.allow(BEN_ID, RuleChange(rate_in=0, rate_out=0))
        with trio.fail_after(PATIENCE_S):
            while before in amy.members or not amy.members:
                await trio.sleep(0.01)
        assert amy.members[0].rates == (None, None)
