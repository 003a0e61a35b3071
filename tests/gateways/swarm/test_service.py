"""Nodes over sockets: syncing, looking up, and what ends a connection or does not."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from gateways.swarm import PREFIX, SwarmServer, Wish, neighbour, retrieval, wanting, wish_name
from gateways.swarm.bmt import content_chunk
from gateways.swarm.commands import Read
from gateways.swarm.conversation import Conversation
from gateways.swarm.files import ChunkMissingError
from gateways.swarm.hub import READS_MAX
from gateways.swarm.key_file import known_overlay
from logstore import Store, StoreLocked
from peer.api import NodeConfig, Peer
from wire import LogKey

from .endpoint import NO_PROOF, Endpoint
from .nodes import PATIENCE_S, chunk_entries, data_of, held, made_node, put, served, until_held

pytestmark = pytest.mark.trio


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    return [made_node(tmp_path / name) for name in ("amy", "ben", "cat")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for in vain is waited for less long."""
    monkeypatch.setattr(retrieval, "SEARCH_S", 1.0)
    for each in (neighbour, wanting):
        monkeypatch.setattr(each, "QUIET_S", 0.5)


async def read(server: SwarmServer, root: bytes, **range_: int) -> bytes:
    return b"".join([part async for part in server.get(root, **range_)])


async def test_both_have_what_either_has(stores: list[Store]) -> None:
    amy, ben, _ = stores
    one, other = data_of(300, 1), data_of(200, 2)
    roots = put(amy, one), put(ben, other)
    async with served(amy) as (at_amy, enode, seen), served(ben) as (at_ben, _, _):
        at_ben.connect(enode)
        everything = held(amy) | held(ben)
        for each in (at_amy, at_ben):
            await until_held(each, len(everything))
        connected = await seen.wait("connected")
        assert connected["bamboo"] is False
        assert connected["light"] is False
        for each in (at_amy, at_ben):
            assert await read(each, roots[0]) == one
            assert await read(each, roots[1], first=5_000, last=9_999) == other[5_000:10_000]
    assert held(amy) == held(ben) == everything
    # Once each: those that were put and those that came.
    assert chunk_entries(amy) == chunk_entries(ben) == len(everything)


async def test_what_comes_later_is_synced_too(stores: list[Store]) -> None:
    amy, ben, _ = stores
    async with served(amy) as (at_amy, enode, _), served(ben) as (at_ben, _, seen):
        at_ben.connect(enode)
        await seen.wait("connected")
        # As another process does it, and by the node itself.
        put(amy, data_of(20, 1))
        await until_held(at_ben, 21)
        path = ben.path
        assert path is not None
        (path / "file").write_bytes(data_of(5, 2))
        root = await at_ben.put(path / "file")
        await until_held(at_amy, 27)
        assert await read(at_amy, root) == data_of(5, 2)


async def test_it_is_told_when_all_is_here(stores: list[Store]) -> None:
    amy, ben, _ = stores
    put(amy, data_of(10))
    async with served(amy) as (_, enode, _), served(ben) as (at_ben, _, seen):
        assert not at_ben.is_synced
        at_ben.connect(enode)
        await at_ben.wait_synced()
        synced = await seen.wait("synced")
        assert synced["chunks"] == 11
        assert synced["bins"] == 17
        assert len(seen.of("fully_synced")) == 1


async def test_a_light_node_looks_up_and_is_never_synced(stores: list[Store]) -> None:
    amy, ben, _ = stores
    data = data_of(40)
    root = put(amy, data)
    own = put(ben, data_of(3, 7))
    async with (
        served(amy) as (at_amy, enode, _),
        served(ben, light=True) as (at_ben, _, seen),
    ):
        at_ben.connect(enode)
        await seen.wait("connected")
        assert await read(at_ben, root, first=70_000, last=70_010) == data[70_000:70_011]
        # Root and one leaf, no more.
        await until_held(at_ben, 4 + 2)
        assert at_ben.chunks == 4 + 2
        assert await read(at_ben, root) == data
        assert at_amy.chunks == 41
        with pytest.raises(ChunkMissingError):
            await read(at_amy, own)


async def test_a_chunk_through_a_node_that_holds_nothing(stores: list[Store]) -> None:
    amy, ben, cat = stores
    data = data_of(4)
    root = put(cat, data)
    async with (
        served(ben, chunks_max=0) as (at_ben, enode, middle),
        served(amy, light=True) as (at_amy, _, _),
        served(cat) as (at_cat, _, _),
    ):
        at_amy.connect(enode)
        at_cat.connect(enode)
        await middle.wait("connected", 2)
        assert await read(at_amy, root) == data
        assert at_ben.chunks == 0


async def test_what_nobody_has(stores: list[Store]) -> None:
    async with served(stores[0]) as (at_amy, _, _):
        with pytest.raises(ChunkMissingError) as missing:
            await read(at_amy, bytes(32))
        assert missing.value.address == bytes(32)


async def test_a_wish_of_another_process(stores: list[Store]) -> None:
    amy, ben, _ = stores
    data = data_of(6)
    root = put(amy, data)
    async with served(amy) as (_, enode, _), served(ben, chunks_max=0) as (at_ben, _, _):
        ben.remember(wish_name(), Wish(root, 0, None, enode).encode())
        # What is no wish is taken out too.
        ben.remember(f"{PREFIX}x", b"{}")
        while ben.recall_all(PREFIX):
            await at_ben.moved()
    assert len(held(ben)) == 7


async def test_full(stores: list[Store]) -> None:
    amy, ben, _ = stores
    put(amy, data_of(500))
    async with served(amy) as (_, enode, _), served(ben, chunks_max=100) as (at_ben, _, seen):
        at_ben.connect(enode)
        assert (await seen.wait("full"))["chunks"] == 100
        assert at_ben.chunks == 100
        # What is wanted here comes all the same.
        path = ben.path
        assert path is not None
        (path / "file").write_bytes(data_of(3, 5))
        await at_ben.put(path / "file")
    assert len(held(ben)) == 104


async def test_only_one_serves_a_store(stores: list[Store]) -> None:
    async with served(stores[0]):
        with pytest.raises(StoreLocked):
            async with SwarmServer(stores[0]):
                pass


async def test_no_enode_and_our_own(stores: list[Store]) -> None:
    async with served(stores[0]) as (server, enode, _):
        with pytest.raises(ValueError, match="this node itself"):
            server.connect(enode)
        with pytest.raises(ValueError, match="no enode"):
            server.connect("127.0.0.1:7017")


async def test_calling_again(stores: list[Store]) -> None:
    amy, ben, _ = stores
    put(amy, data_of(3))
    async with served(ben) as (at_ben, _, seen):
        async with served(amy) as (_, enode, _):
            port = enode.rpartition(":")[2]
            at_ben.connect(enode)
            await seen.wait("connected")
        assert "quitting" in (await seen.wait("disconnected"))["reason"]
        async with SwarmServer(amy) as again:
            assert await again.listen(f"127.0.0.1:{port}") == enode
            await seen.wait("connected", 2)
            await until_held(at_ben, 4)


async def test_two_that_call_each_other_are_connected_once(stores: list[Store]) -> None:
    amy, ben, _ = stores
    put(amy, data_of(3))
    async with (
        served(amy) as (at_amy, at_amys, amys),
        served(ben) as (at_ben, at_bens, bens),
    ):
        at_amy.connect(at_bens)
        at_ben.connect(at_amys)
        await until_held(at_ben, 4)
        await at_ben.wait_synced()
        for seen in (amys, bens):
            # Where both have called at once neither may have been taken, and then one is.
            assert len(seen.of("connected")) - len(seen.of("disconnected")) <= 1


async def test_an_end_in_the_middle_of_a_handshake(stores: list[Store]) -> None:
    began = trio.current_time()
    async with served(stores[0]) as (_, enode, seen):
        host, port = enode.rpartition("@")[2].split(":")
        silent = await trio.open_tcp_stream(host, int(port))
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert "this node ends" in (await seen.wait("disconnected"))["reason"]
    assert trio.current_time() - began < 4
    await silent.aclose()


async def test_one_address_is_called_once_however_many_want_it(stores: list[Store]) -> None:
    amy, ben, _ = stores
    root = put(amy, data_of(3))
    async with served(ben, chunks_max=0) as (at_ben, _, seen):
        async with served(amy) as (_, enode, _):
            for _ in range(2):
                at_ben.connect(enode)
            for last in range(3):
                ben.remember(wish_name(), Wish(root, 0, last, enode).encode())
            await seen.wait("connected")
            while ben.recall_all(PREFIX):
                await at_ben.moved()
        await seen.wait("disconnected")
        # The node is still there, and calls on.
        assert at_ben.chunks == 2
    assert len(seen.of("connected")) == 1


async def test_more_wishes_than_are_granted_at_once(stores: list[Store]) -> None:
    ben = stores[1]
    async with served(ben) as (at_ben, _, _):
        for number in range(20):
            ben.remember(wish_name(), Wish(bytes([number]) * 32).encode())
        while ben.recall_all(PREFIX):
            await at_ben.moved()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[" * 100_000,
        b'{"hash": "00", "first": 0, "last": null, "enode": null}',
        b'{"hash": "%s", "first": Infinity, "last": null, "enode": null}' % (b"00" * 32),
        b'{"hash": "%s", "first": true, "last": null, "enode": null}' % (b"00" * 32),
        b'{"hash": "%s", "first": 0, "last": null, "enode": "enode://%s@127.0.0.1:1"}'
        % (b"00" * 32, b"ff" * 64),
    ],
)
async def test_a_wish_that_is_none_is_taken_out(stores: list[Store], value: bytes) -> None:
    ben = stores[1]
    async with served(ben) as (at_ben, _, _):
        ben.remember(wish_name(), value)
        while ben.recall_all(PREFIX):
            await at_ben.moved()
        assert not at_ben.is_synced


async def test_who_gives_up_a_search_disturbs_nobody(stores: list[Store]) -> None:
    amy, ben, _ = stores
    root = put(amy, data_of(3))
    async with served(amy) as (_, enode, _), served(ben, light=True) as (at_ben, _, seen):
        at_ben.connect(enode)
        await seen.wait("connected")
        for number in range(30):
            with trio.move_on_after(0.002 * number):
                await read(at_ben, bytes([number]) * 32)
        assert await read(at_ben, root) == data_of(3)


async def test_who_claims_the_address_of_another_hides_nothing_of_it(stores: list[Store]) -> None:
    amy, ben, _ = stores
    put(amy, data_of(20))
    overlay = known_overlay(amy.path)
    lie = content_chunk(1, b"x")
    async with served(ben) as (at_ben, at_bens, seen), served(amy) as (_, at_amys, _):
        async with Endpoint.connected(at_bens, overlay=overlay) as liar:
            while (await liar.hear(4))[0] != [b"SYNC", b"0", b"\1"]:
                pass
            last = (1 << 64) - 2
            await liar.say(1, [["SYNC", "0", True], 1, last, lie.address, NO_PROOF])
            await liar.hear(2)
            await liar.say(10, [lie.address, lie.encoded])
            await until_held(at_ben, 1)
        await seen.wait("disconnected")
        at_ben.connect(at_amys)
        await until_held(at_ben, 22)


async def test_pings_without_end_take_no_memory(stores: list[Store]) -> None:
    async with served(stores[0]) as (server, enode, _), Endpoint.connected(enode) as peer:
        ping = b"".join(peer.frame(b"\x02\xc0") for _ in range(2_000))
        await peer.send(ping)
        await peer.base(2, [])
        assert await peer.heard(3) == []
        hub = server._hub
        assert hub is not None
        [talk] = hub._talks.values()
        assert isinstance(talk, Conversation)
        assert len(talk._leaving) < 10_000


async def test_on_peers_that_replicate_the_log_and_each_other(stores: list[Store]) -> None:
    amy, ben, cat = stores
    config = NodeConfig(workers=0)
    data = data_of(30)
    with trio.fail_after(PATIENCE_S):
        async with (
            Peer(amy, config=config) as amys,
            Peer(ben, config=config) as bens,
            SwarmServer(amys) as at_amy,
            SwarmServer(bens) as at_ben,
            SwarmServer(cat) as at_cat,
        ):
            # Ben has it as a log, and gives it to Cat chunk by chunk.
            await bens.follow(LogKey(amy.author, 7_000))
            bens.connect(await amys.listen())
            assert amy.path is not None
            (amy.path / "file").write_bytes(data)
            root = await at_amy.put(amy.path / "file")
            at_cat.connect(await at_ben.listen("127.0.0.1:0"))
            await until_held(at_cat, 31)
            assert await read(at_cat, root) == data
    assert chunk_entries(ben) == 0


# --- peers that do what none may ------------------------------------------------------------------


async def test_a_broken_rule_ends_one_connection_with_its_reason(stores: list[Store]) -> None:
    amy, ben, _ = stores
    put(amy, data_of(3))
    async with served(amy) as (_, enode, seen), served(ben) as (at_ben, _, _):
        async with Endpoint.connected(enode) as peer:
            # An answer to an offer that there is not.
            await peer.say(2, [["SYNC", "0", True], b"\0", 1, 0])
            assert await peer.farewell() == 16
        assert "no open offer" in (await seen.wait("disconnected"))["reason"]
        at_ben.connect(enode)
        await until_held(at_ben, 4)


async def test_refused_subscriptions_end_nothing(stores: list[Store]) -> None:
    put(stores[0], data_of(3))
    async with served(stores[0]) as (_, enode, _), Endpoint.connected(enode) as peer:
        for name, key, text in (
            ("NONE", "", b"stream NONE not registered"),
            ("SYNC", "z", b"bad key"),
        ):
            await peer.say(4, [[name, key, True], [], 2])
            assert await peer.hear(7) == [text]


async def test_too_many_unfinished_handshakes(stores: list[Store]) -> None:
    async with served(stores[0]) as (_, enode, seen):
        host, port = enode.rpartition("@")[2].split(":")
        waiting = [await trio.open_tcp_stream(host, int(port)) for _ in range(8)]
        await trio.testing.wait_all_tasks_blocked(0.05)
        async with await trio.open_tcp_stream(host, int(port)) as one_more:
            assert await one_more.receive_some(100) == b""
        assert "handshakes" in (await seen.wait("disconnected"))["reason"]
        for each in waiting:
            await each.aclose()
        async with Endpoint.connected(enode):
            pass


async def test_fifty_peers_and_one_more(stores: list[Store]) -> None:
    async with served(stores[0]) as (_, enode, seen), trio.open_nursery() as nursery:

        async def stay(number: int) -> None:
            async with Endpoint.connected(enode, number.to_bytes(32, "big")):
                await trio.sleep_forever()

        for number in range(1, 51):
            nursery.start_soon(stay, number)
            await seen.wait("connected", number)
        async with Endpoint.connected(enode, b"\1" * 32) as one_more:
            assert await one_more.farewell() == 4
        nursery.cancel_scope.cancel()


async def test_nonsense_is_closed_without_a_word(stores: list[Store]) -> None:
    async with served(stores[0]) as (_, enode, seen):
        host, port = enode.rpartition("@")[2].split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(b"\x01\x00" + bytes(256))
            assert await stream.receive_some(100) == b""
        assert "no RLPx" in (await seen.wait("disconnected"))["reason"]


async def test_chunks_are_read_for_few_peers_at_once(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, most, done = 0, 0, 0

    def read(_: list[bytes]) -> list[bytes | None]:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        time.sleep(0.02)
        reading -= 1
        return [b"chunk"]

    def taken(*_: object) -> None:
        nonlocal done
        done += 1

    async with served(stores[0]) as (server, _, _), trio.open_nursery() as nursery:
        hub = server._hub
        assert hub is not None
        monkeypatch.setattr(hub, "_read", read)
        monkeypatch.setattr(hub._peers, "read", taken)
        for number in range(10):
            peer: Any = SimpleNamespace(sent=0)
            nursery.start_soon(hub.read, peer, Read(number, 2, [bytes(32)]))
    assert done == 10
    assert 1 <= most <= READS_MAX
