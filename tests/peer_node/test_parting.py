"""How long a node that ends waits for those whom it sends away, and what is known of the way."""

import socket
import sys
from functools import partial

import pytest
import trio
from nacl.signing import SigningKey
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from peer.api import memory_link
from peer.node import NodeConfig
from peer.node.doors.tls import Identity, TlsStream
from peer.node.links.limits import Limits
from peer.node.links.parting import turn_away, under_way
from peer.node.links.rates import Pacer

from .support import PATIENCE_S
from .test_node import node

CONFIG = NodeConfig(workers=0, poll_s=1e9)


async def test_a_node_that_ends_does_not_wait_for_who_is_no_peer(autojump_clock: MockClock) -> None:
    here, there = memory_link()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, node(config=CONFIG) as running:
            serve = partial(running.serve_stream, here, proactive=False, name="no peer")
            nursery.start_soon(serve)
            await there.send_all(b"GET / HTTP/1.1\r\n\r\n")
            await wait_all_tasks_blocked(0.01)
            assert running.members
    assert trio.current_time() == 0


async def test_who_is_sent_away_keeps_nobody_who_is_cancelled(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn_away, ours, b"denied\n")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == 0
    assert await theirs.receive_some(100) == b"denied\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell in other ways")
async def test_of_a_socket_it_is_known_what_has_not_arrived() -> None:
    one, other = map(trio.SocketStream, trio.socket.socketpair(socket.AF_UNIX))
    async with one, other:
        tls = TlsStream(one, Identity(SigningKey(b"k" * 32)), server=False)
        paced = Pacer(Limits(bytes_per_s_max=1000)).stream(tls)
        assert under_way(paced) == 0
        await one.send_all(bytes(1000))
        held = under_way(paced)
        assert held is not None
        assert held >= 1000
        assert under_way(one) == held
        await other.receive_some(1000)
        assert under_way(paced) == 0
    assert under_way(one) is None
    assert under_way(memory_link()[0]) is None
