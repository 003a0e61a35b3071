"""No connection is made or taken during a pause, and those there are end in good order."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from peer.api import CannotConnectError
from peer.node import ConnectionState, Node
from peer.node.doors.pausing import Pausing
from peer.node.links.dialling import PausedError

from .support import PATIENCE_S
from .test_entrance import AMY, AMY_ID, BEN, BEN_ID, EVE, EVE_ID, HERE, PLAIN, Told, called, node

# ruff: noqa: ASYNC110 - other threads bring about what is waited for


async def until(true: Callable[[], object]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not true():
            await trio.sleep(0.01)


def states(node: Node) -> list[ConnectionState]:
    return [each.state for each in node.connections() if each.direction == "outgoing"]


async def test_waiting_lasts_until_the_end_and_no_longer(autojump_clock: MockClock) -> None:
    def now_us() -> int:
        return round(trio.current_time() * 1e6)

    pausing = Pausing({None: now_us() + 90_000_000, AMY_ID: now_us() + 100_000_000}, now_us)
    began = trio.current_time()
    await pausing.until_over()
    assert 90 <= trio.current_time() - began < 91
    assert pausing.holds(AMY_ID)
    assert not pausing.holds(BEN_ID)
    await pausing.until_over(BEN_ID)
    assert trio.current_time() - began < 91
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pausing.until_over, AMY_ID)
        await trio.sleep(1)
        pausing.take({})
    assert trio.current_time() - began < 93


async def test_a_pause_of_all_ends_connections_in_good_order_and_makes_and_takes_none() -> None:
    amys, bens = Told(), Told()
    async with node(AMY, PLAIN, told=amys) as amy, node(BEN, PLAIN, told=bens) as ben:
        [address] = await amy.listen(HERE)
        ben.connect(called(address))
        await amys.wait_for("connected")
        # As another process does it: the node is told nothing.
        await trio.to_thread.run_sync(ben.host.store.pause)
        with trio.fail_after(2):
            assert (await amys.wait_for("disconnected"))["kind"] == "closed"
            assert (await bens.wait_for("disconnected"))["kind"] == "closed"
        await until(lambda: states(ben) == [ConnectionState.PAUSED])
        # Nor is one taken: who calls is hung up on, and says that he was.
        [listening] = await ben.listen(HERE)
        amy.connect(called(listening))
        await amys.wait_for("connect_failed")
        assert not ben.members
        # What asks for a connection by itself is told why there is none.
        with pytest.raises(PausedError, match="all connections are paused"):
            await ben.entrance.call(called(address))
        await trio.to_thread.run_sync(ben.host.store.resume)
        await until(lambda: states(ben) == [ConnectionState.ESTABLISHED])


async def test_a_pause_of_a_peer_goes_for_who_has_proved_to_be_it_and_nobody_else() -> None:
    amys, bens = Told(), Told()
    async with node(AMY, told=amys) as amy, node(BEN, told=bens) as ben:
        amy.host.store.peers.allow(BEN_ID)
        ben.host.store.peers.allow(AMY_ID)
        amy.host.store.pause(BEN_ID)
        [address] = await amy.listen(HERE)
        ben.connect(called(address, AMY_ID))
        await bens.wait_for("connect_failed")
        assert not amy.members
        [other] = await ben.listen(HERE)
        for who in (BEN_ID, None):
            with pytest.raises(CannotConnectError, match=f"{BEN_ID.hex()} is paused"):
                await amy.entrance.call(called(other, who))
        dialler = amy.connect(called(other, BEN_ID))
        await until(lambda: states(amy) == [ConnectionState.PAUSED])
        assert dialler.info().attempts == 0
        async with node(EVE, told=Told()) as eve:
            amy.host.store.peers.allow(EVE_ID)
            eve.connect(called(address, AMY_ID))
            await until(lambda: {each.peer_id for each in amy.members} == {EVE_ID})
        await trio.to_thread.run_sync(amy.host.store.resume, BEN_ID)
        await until(lambda: states(amy) == [ConnectionState.ESTABLISHED])


async def test_a_pause_of_a_peer_leaves_the_others_connected() -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy, node(BEN) as ben, node(EVE) as eve:
        for peer_id in (BEN_ID, EVE_ID):
            amy.host.store.peers.allow(peer_id)
        [address] = await amy.listen(HERE)
        for each in (ben, eve):
            each.connect(called(address, AMY_ID))
        await until(lambda: {each.peer_id for each in amy.members} == {BEN_ID, EVE_ID})
        await trio.to_thread.run_sync(amy.host.store.pause, EVE_ID)
        gone = await amys.wait_for("disconnected")
        assert (gone["peer_id"], gone["kind"]) == (EVE_ID.hex(), "closed")
        await until(lambda: {each.peer_id for each in amy.members} == {BEN_ID})
