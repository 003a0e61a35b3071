"""Connections keep to their rates, share them fairly, and what is urgent waits for little."""

from collections import Counter
from contextlib import aclosing
from functools import partial

import pytest
import trio
import trio.testing

from logstore import ALL, PayloadState, Store
from peer import SessionConfig
from peer.api import NodeConfig, Peer, memory_link
from peer.node import Limits, Pace
from peer.node.links.rates import BURST_S, PIECE_BYTES_MIN, Pacer, Rate
from wire import LogKey

from .support import PATIENCE_S


def test_turns_are_as_far_apart_as_the_rate_says() -> None:
    rate = Rate(1000)
    times = [rate.turn(100, 10.0) for _ in range(5)]
    assert times == pytest.approx([10 - BURST_S + 0.1 * n for n in range(5)])


def test_what_was_not_used_is_saved_for_a_moment_only() -> None:
    rate = Rate(1000)
    rate.turn(100, 0.0)
    assert rate.turn(100, 100.0) == pytest.approx(100 - BURST_S)


def test_without_a_limit_streams_and_sessions_are_as_they_were() -> None:
    pacer, config = Pacer(Limits()), SessionConfig()
    stream, _ = memory_link()
    assert pacer.stream(stream) is stream
    assert pacer.session(config) is config
    assert pacer.piece_bytes is None


@pytest.mark.parametrize(
    "limits",
    [Limits(bytes_per_s_max=100_000), Limits(peer_bytes_per_s_max=100_000)],
    ids=["node", "peer"],
)
@pytest.mark.parametrize("sending", [True, False])
async def test_a_connection_moves_what_its_rate_allows(
    limits: Limits, sending: bool, autojump_clock: trio.testing.MockClock
) -> None:
    left, right = memory_link()
    writer, reader = left, right
    paced = Pacer(limits).stream(left if sending else right)
    data = bytes(range(256)) * 4000
    received = bytearray()

    async def read() -> None:
        stream = reader if sending else paced
        while len(received) < len(data):
            received.extend(await stream.receive_some(65536))

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await (paced if sending else writer).send_all(data)
    assert received == data
    assert trio.current_time() - started == pytest.approx(len(data) / 100_000, abs=0.2)


async def test_connections_get_equal_shares_of_the_rate_of_their_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pacer = Pacer(Limits(bytes_per_s_max=200_000))
    received: Counter[int] = Counter()

    async def send(stream: trio.abc.Stream, size: int) -> None:
        while True:
            await stream.send_all(bytes(size))

    async def read(number: int, stream: trio.abc.Stream) -> None:
        while True:
            received[number] += len(await stream.receive_some(65536))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            left, right = memory_link()
            # Those that send much at once get no more than those that send little.
            nursery.start_soon(send, pacer.stream(left), 4096 * 16 ** (number % 2))
            nursery.start_soon(read, number, right)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert sum(received.values()) == pytest.approx(2_000_000, rel=0.03)
    for count in received.values():
        assert count == pytest.approx(400_000, rel=0.03)


async def test_what_is_urgent_waits_for_less_than_a_second_behind_twenty_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pacer = Pacer(Limits(bytes_per_s_max=500_000))

    async def flood(stream: trio.abc.Stream) -> None:
        while True:
            await stream.send_all(bytes(256 * 1024))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            left, right = memory_link()
            nursery.start_soon(flood, pacer.stream(left))
            nursery.start_soon(drain, right)
        await trio.sleep(5)
        left, right = memory_link()
        nursery.start_soon(drain, right)
        started = trio.current_time()
        await pacer.stream(left).send_all(b"pong")
        assert trio.current_time() - started < 1
        nursery.cancel_scope.cancel()


async def test_the_end_of_a_stream_passes_through() -> None:
    left, right = memory_link()
    paced = Pacer(Limits(bytes_per_s_max=10**6)).stream(left)
    assert isinstance(paced, trio.abc.HalfCloseableStream)
    await paced.send_eof()
    assert await right.receive_some(10) == b""
    await paced.aclose()


@pytest.mark.parametrize("rate", [1000, 500_000, 10**9])
def test_pieces_and_credit_fit_the_rate(rate: int) -> None:
    pacer = Pacer(Limits(bytes_per_s_max=rate, peer_bytes_per_s_max=2 * rate))
    config = pacer.session(SessionConfig())
    assert pacer.piece_bytes is not None
    assert pacer.piece_bytes <= max(rate // 50, PIECE_BYTES_MIN)
    assert config.data_credit_bytes <= max(rate // 4, 32 * 1024)
    assert 2 * config.small_payload_bytes_max <= config.data_credit_bytes


async def test_nodes_with_a_low_rate_still_bring_payloads_of_every_size() -> None:
    config = NodeConfig(workers=0, poll_s=0.001, limits=Limits(bytes_per_s_max=400_000))
    with Store.memory() as left, Store.memory() as right:
        left.append([b"", bytes(20_000), bytes(70_000)])
        right.follow(ALL)
        async with (
            Peer(left, config=config) as giver,
            Peer(right, config=config) as taker,
            trio.open_nursery() as nursery,
        ):
            here, there = memory_link()
            nursery.start_soon(partial(giver.serve_stream, here, proactive=True))
            nursery.start_soon(partial(taker.serve_stream, there, proactive=False))
            with trio.fail_after(PATIENCE_S):
                async with aclosing(taker.entries(LogKey(left.author, 0))) as entries:
                    async for entry in entries:
                        if entry.seq == 3:
                            break
            nursery.cancel_scope.cancel()
        stored = right.read(
            LogKey(left.author, 0), 1, entries_max=9, bytes_max=1 << 20, with_payload=False
        )
        assert [entry.payload_bytes for entry in stored] == [0, 20_000, 70_000]
        assert {entry.payload_state for entry in stored} == {PayloadState.PRESENT}


async def test_a_paced_stream_tells_what_it_moved_and_whether_it_had_to_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    left, right = memory_link()
    paced = Pacer(Limits(peer_bytes_per_s_max=100_000)).stream(left)

    def pace() -> tuple[Pace | None, Pace | None]:
        return Pacer.paces(paced, trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain, right)
        assert pace() == (Pace(0, waits=False), Pace(0, waits=False))
        await paced.send_all(bytes(300_000))
        sending, receiving = pace()
        assert sending is not None
        assert sending.bytes_per_s == pytest.approx(100_000, rel=0.1)
        assert sending.waits
        assert receiving == Pace(0, waits=False)
        await trio.sleep(3)
        assert pace()[0] == Pace(0, waits=False)
        nursery.cancel_scope.cancel()
    assert Pacer.paces(right, trio.current_time()) == (None, None)


async def drain(stream: trio.abc.Stream) -> None:
    while await stream.receive_some(65536):
        pass


async def test_other_rates_go_for_connections_that_begin_afterwards() -> None:
    pacer = Pacer(Limits())
    stream, _ = memory_link()
    pacer.change(Limits(peer_bytes_per_s_max=50_000))
    assert pacer.bytes_per_s == 50_000
    assert pacer.stream(stream) is not stream
    pacer.change(Limits())
    assert pacer.stream(stream) is stream


async def test_connections_begin_again_when_a_node_gets_other_rates() -> None:
    config = NodeConfig(workers=0)
    with trio.fail_after(PATIENCE_S), Store.memory() as here, Store.memory() as there:
        async with Peer(here, config=config) as giver, Peer(there, config=config) as taker:
            taker.connect(await giver.listen())
            while not giver.node.members:
                await trio.lowlevel.checkpoint()
            [before] = giver.node.members
            await before.established.wait()
            giver.node.change_limits(Limits(bytes_per_s_max=100_000))
            await before.ended.wait()
            while not giver.node.members:
                await trio.lowlevel.checkpoint()
            [after] = giver.node.members
            await after.established.wait()
            terms = after.terms()
            assert terms is not None
            assert terms.sending is not None
