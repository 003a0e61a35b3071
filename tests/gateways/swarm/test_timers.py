"""What a node waits for, and how long: time moves when a test says so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateways.swarm import SwarmServer
from gateways.swarm.files import ChunkMissingError
from gateways.swarm.keys import Key
from logstore import Store

from .endpoint import HELLO, NO_PROOF, PING, Endpoint
from .nodes import Watched, data_of, made_node, put

pytestmark = pytest.mark.trio

TIMEOUT = 11
SETTLED_S = 0.03


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made_node(tmp_path / "amy")


@asynccontextmanager
async def served(store: Store) -> AsyncIterator[tuple[SwarmServer, str, Watched]]:
    watched = Watched()
    async with SwarmServer(store, observer=watched.take) as server:
        yield server, await server.listen("127.0.0.1:0"), watched


async def moved(clock: MockClock, seconds: float) -> None:
    """Lets so much time pass, and then all that it leads to happen."""
    await wait_all_tasks_blocked(SETTLED_S)
    clock.jump(seconds)
    await wait_all_tasks_blocked(SETTLED_S)


async def test_who_says_nothing_is_closed_after_five_seconds(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (_, enode, seen):
        host, port = enode.rpartition("@")[2].split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await moved(mock_clock, 4.9)
            assert seen.of("disconnected") == []
            await moved(mock_clock, 0.2)
            assert await stream.receive_some(100) == b""
        assert "handshakes took too long" in (await seen.wait("disconnected"))["reason"]


async def test_who_does_not_say_of_which_network_is_told_after_three(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (_, enode, _), Endpoint.connected(enode, greet=False) as peer:
        await peer.heard(HELLO)
        await peer.hello()
        await moved(mock_clock, 2.9)
        await moved(mock_clock, 0.2)
        assert await peer.farewell() == TIMEOUT


async def test_silence_is_asked_after_15_seconds_and_an_end_after_30(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (_, enode, seen), Endpoint.connected(enode) as peer:
        await moved(mock_clock, 15.1)
        # It answers by itself, and that counts as a sign of life.
        assert await peer.heard(PING) == []
        await moved(mock_clock, 15.1)
        assert await peer.heard(PING) == []
        peer.is_mute = True
        await moved(mock_clock, 15.1)
        assert await peer.heard(PING) == []
        await moved(mock_clock, 14.8)
        assert seen.of("disconnected") == []
        await moved(mock_clock, 0.2)
        assert await peer.farewell() == TIMEOUT


async def test_what_nobody_has_is_over_after_ten_seconds(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (server, enode, _), trio.open_nursery() as nursery:
        over = trio.Event()

        async def look() -> None:
            with pytest.raises(ChunkMissingError):
                await anext(server.get(bytes(32)))
            over.set()

        async with Endpoint.connected(enode) as peer:
            nursery.start_soon(look)
            # Asked by its address, without a check, by who has not passed it on.
            assert await peer.hear(5) == [bytes(32), b"\1", b""]
            await moved(mock_clock, 9.9)
            assert not over.is_set()
            await moved(mock_clock, 0.2)
            await over.wait()


async def test_what_is_not_delivered_ends_the_connection_after_30_seconds(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (_, enode, seen):
        await owes_a_chunk(enode, seen, mock_clock)
        assert "did not come in 30 s" in (await seen.wait("disconnected"))["reason"]


async def owes_a_chunk(enode: str, seen: Watched, mock_clock: MockClock) -> None:
    async with Endpoint.connected(enode) as peer:
        while (await peer.hear(4))[0] != [b"SYNC", b"0", b"\1"]:
            pass
        await peer.say(1, [["SYNC", "0", True], 1, 1, bytes(32), NO_PROOF])
        assert (await peer.hear(2))[1] == b"\1"
        await moved(mock_clock, 14)
        # Neither a sign of life nor another peer's slowness is what it owes.
        await peer.base(PING, [])
        await moved(mock_clock, 15.9)
        assert seen.of("disconnected") == []
        await moved(mock_clock, 0.2)
        assert await peer.farewell() == 16


async def test_a_peer_is_in_step_when_it_has_offered_nothing_for_five_seconds(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (server, enode, seen), Endpoint.connected(enode):
        await moved(mock_clock, 4.8)
        assert seen.of("synced") == []
        await moved(mock_clock, 0.3)
        assert (await seen.wait("synced"))["bins"] == 17
        assert server.is_synced


async def test_who_does_not_answer_is_called_less_and_less_often(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (server, _, seen):
        # Nothing listens at a port that was given back.
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        stranger = Key(bytes(31) + b"\x05").public
        server.connect(f"enode://{stranger.hex()}@127.0.0.1:{port}")
        await seen.wait("disconnected")
        for _ in range(20):
            await moved(mock_clock, 0.5)
        early = len(seen.of("disconnected"))
        assert 4 <= early <= 8
        for _ in range(6):
            await moved(mock_clock, 20)
        # Half a second at first, up to a minute at last.
        assert early + 2 <= len(seen.of("disconnected")) <= early + 5


async def test_a_batch_that_is_not_full_waits_a_tenth_of_a_second(
    store: Store, mock_clock: MockClock
) -> None:
    async with served(store) as (_, enode, _), Endpoint.connected(enode) as peer:
        for bin_ in "0123456789abcdefg":
            await peer.say(4, [["SYNC", bin_, True], [], 2])
        await wait_all_tasks_blocked(SETTLED_S)
        put(store, data_of(1))
        heard = []

        async def listen() -> None:
            heard.append(await peer.hear(1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            while not heard:
                await moved(mock_clock, 0.02)
        stream, first, last, hashes, _ = heard[0]
        assert (first, last) == (b"\1", b"\1")
        assert len(hashes) == 32
        assert isinstance(stream, list)
