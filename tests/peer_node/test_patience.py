"""A time limit of a call says what the call was waiting for."""

import pytest
import trio

from logstore import Store
from peer.api import NodeConfig, Peer, memory_link
from wire import LogKey

CONFIG = NodeConfig(workers=0, poll_s=0.001)
NOBODYS = LogKey(bytes(32), 0)


async def test_who_waits_too_long_hears_why() -> None:
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer:
            for waiting in (
                peer.wait_for(NOBODYS, 3, timeout_s=0.01),
                peer.fetch(NOBODYS, 3, timeout_s=0.01),
            ):
                with pytest.raises(TimeoutError, match=r"3 within 0\.01 s; nothing of it"):
                    await waiting
            assert store.wants() == {}


async def test_a_peer_that_does_not_answer_is_named() -> None:
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            where = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            for waiting in (
                peer.sync(where, timeout_s=0.01),
                peer.newest(where, [NOBODYS], timeout_s=0.01),
            ):
                with pytest.raises(TimeoutError, match=f"within 0.01 s; .*{where}"):
                    await waiting
            peer.connect(where)
            with pytest.raises(TimeoutError, match=r"^no being in step within 0\.01 s; "):
                await peer.wait_in_sync(timeout_s=0.01)
            here, _there = memory_link()
            with pytest.raises(TimeoutError, match=r"^no end of the sync within 0 s$"):
                await peer.sync(here, timeout_s=0)
            await listener.aclose()


async def test_a_limit_that_is_not_met_changes_nothing() -> None:
    with Store.memory() as store:
        store.append([b"one"])
        async with Peer(store, config=CONFIG) as peer:
            assert (await peer.wait_for(LogKey(store.author, 0), 1, timeout_s=30)).height == 1
            for limit in (-1.0, float("nan")):
                with pytest.raises(ValueError, match="timeout_s="):
                    await peer.wait_for(NOBODYS, 1, timeout_s=limit)
