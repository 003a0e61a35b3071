"""A peer is asked for the newest entry of each log, and nothing is moved."""

from collections.abc import Iterable
from functools import partial

import pytest
import trio

from logstore import Store
from peer.api import CannotConnectError, NodeConfig, Peer, memory_link
from wire import LogKey

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=0.001)
STRANGER = LogKey(b"s" * 32, 0)


async def asked(peer: Peer, other: Peer, logs: Iterable[LogKey]) -> dict[LogKey, int]:
    here, there = memory_link()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(other.serve_stream, there, proactive=False))
            return await peer.newest(here, logs)
    raise AssertionError


async def test_the_newest_entry_of_each_log_is_told_and_nothing_is_moved() -> None:
    with Store.memory() as mine, Store.memory() as theirs:
        theirs.append([b"one", b"two", b"three"])
        mine.append([b"mine"])
        log = LogKey(theirs.author, 0)
        async with Peer(mine, config=CONFIG) as peer, Peer(theirs, config=CONFIG) as other:
            found = await asked(peer, other, [log, STRANGER, LogKey(mine.author, 0)])
        assert found == {log: 3}
        assert mine.log(log) is None
        assert theirs.log(LogKey(mine.author, 0)) is None


async def test_a_side_that_hangs_up_is_an_error() -> None:
    with Store.memory() as mine:
        async with Peer(mine, config=CONFIG) as peer:
            here, there = memory_link()
            await there.aclose()
            with pytest.raises(CannotConnectError):
                await peer.newest(here, [STRANGER])
