"""Bymux streams behave as Trio's streams, over every transport."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import check_half_closeable_stream, lockstep_stream_pair, memory_stream_pair

from bymux import INFINITE, Config, InitialStream, RemoteProtocolError, Role
from bymux.trio_streams import MultiplexedStream, Multiplexer

Pair = tuple[trio.abc.Stream, trio.abc.Stream]
TRANSPORTS = [memory_stream_pair, lockstep_stream_pair]
CONTROL_AND_DATA = Config(
    initial_streams=(InitialStream(0, INFINITE, INFINITE), InitialStream(1)),
    streams_creatable=False,
)

over_each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


@asynccontextmanager
async def multiplexers(
    transport: Callable[[], Pair], config: Config | None = None, **options: int
) -> AsyncIterator[tuple[Multiplexer, Multiplexer]]:
    """Two that talk to each other and run until the end of the block."""
    left, right = transport()
    one = Multiplexer(left, Role.PROACTIVE, config, **options)
    two = Multiplexer(right, Role.REACTIVE, config, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        nursery.start_soon(two.run)
        yield one, two
        nursery.cancel_scope.cancel()


async def open_pair(
    one: Multiplexer, two: Multiplexer
) -> tuple[MultiplexedStream, MultiplexedStream]:
    return await one.open_stream(), await two.accept_stream()


async def clog(stream: MultiplexedStream) -> None:
    """Writes until nothing more goes."""
    with trio.move_on_after(1000) as scope:
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                while True:
                    await stream.send_all(b"x" * 1000)

            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()


@over_each_transport
async def test_streams_pass_trios_conformance_suite(transport: Callable[[], Pair]) -> None:
    async with multiplexers(transport, receive_window_bytes=4096) as (one, two):

        async def make() -> tuple[MultiplexedStream, MultiplexedStream]:
            return await open_pair(one, two)

        async def make_clogged() -> tuple[MultiplexedStream, MultiplexedStream]:
            pair = await open_pair(one, two)
            for stream in pair:
                await clog(stream)
            return pair

        await check_half_closeable_stream(make, make_clogged)
        await trio.testing.wait_all_tasks_blocked()
        assert one.statistics().streams == two.statistics().streams == 0


@over_each_transport
async def test_agreed_streams_pass_it_too(transport: Callable[[], Pair]) -> None:
    """Each pair is the one stream of two multiplexers of its own, without creation."""
    config = Config(initial_streams=(InitialStream(0),), streams_creatable=False)
    async with trio.open_nursery() as nursery:

        async def make() -> tuple[MultiplexedStream, MultiplexedStream]:
            left, right = transport()
            one = Multiplexer(left, Role.PROACTIVE, config, receive_window_bytes=4096)
            two = Multiplexer(right, Role.REACTIVE, config, receive_window_bytes=4096)
            nursery.start_soon(one.run)
            nursery.start_soon(two.run)
            return one.stream(0), two.stream(0)

        async def make_clogged() -> tuple[MultiplexedStream, MultiplexedStream]:
            pair = await make()
            for stream in pair:
                await clog(stream)
            return pair

        await check_half_closeable_stream(make, make_clogged)
        # Both streams of each pair were closed, so every `run` ends by itself.


@over_each_transport
async def test_both_sides_full_do_not_block_each_other(transport: Callable[[], Pair]) -> None:
    """Everybody writes everything before reading anything, on streams that are clogged as well."""
    body = bytes(range(256)) * 4096
    async with multiplexers(transport) as (one, two):
        clogged = await open_pair(one, two)
        for stream in clogged:
            await clog(stream)
        ends = await open_pair(one, two)
        received: dict[MultiplexedStream, bytes] = {}

        async def write(stream: MultiplexedStream) -> None:
            await stream.send_all(body)
            await stream.send_eof()

        async def read(stream: MultiplexedStream) -> None:
            await trio.testing.wait_all_tasks_blocked()
            parts = [part async for part in stream]
            received[stream] = b"".join(parts)

        async with trio.open_nursery() as nursery:
            for stream in ends:
                nursery.start_soon(write, stream)
                nursery.start_soon(read, stream)
        assert received == dict.fromkeys(ends, body)


async def test_a_reader_that_does_not_read_bounds_what_is_buffered() -> None:
    async with multiplexers(memory_stream_pair, receive_window_bytes=5000) as (one, two):
        sender, receiver = await open_pair(one, two)
        await clog(sender)
        assert receiver._received_bytes == 5000
        assert one.connection.queued(sender.id) == 0


async def test_unread_data_under_infinite_credit_is_bounded_too() -> None:
    left, right = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    two = Multiplexer(right, Role.REACTIVE, CONTROL_AND_DATA, unread_bytes_max=10000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)

        async def run_two() -> None:
            with pytest.raises(RemoteProtocolError, match="stream 0: over 10000 bytes unread"):
                await two.run()

        nursery.start_soon(run_two)
        with pytest.raises(trio.BrokenResourceError):
            await one.stream(0).send_all(bytes(10**6))
        with pytest.raises(trio.BrokenResourceError, match="over 10000"):
            await two.stream(1).receive_some()


@over_each_transport
async def test_closing_multiplexers_ends_both_in_good_order(transport: Callable[[], Pair]) -> None:
    left, right = transport()
    one, two = Multiplexer(left, Role.PROACTIVE), Multiplexer(right, Role.REACTIVE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        nursery.start_soon(two.run)
        sender, receiver = await open_pair(one, two)
        await sender.send_all(b"kept")
        await one.aclose()
        assert await receiver.receive_some() == b"kept"
        assert await receiver.receive_some() == b""
        with pytest.raises(trio.EndOfChannel):
            await two.accept_stream()
        await two.aclose()
        await two.aclose()
    assert one.failure is two.failure is None
    for multiplexer in (one, two):
        assert multiplexer.connection.is_finished
        with pytest.raises(trio.BrokenResourceError):
            await multiplexer.open_stream()
        with pytest.raises(trio.BrokenResourceError):
            await multiplexer.ping()


async def test_a_cancelled_close_ends_the_connection_at_once() -> None:
    left, _ = lockstep_stream_pair()
    alone = Multiplexer(left, Role.PROACTIVE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alone.run)
        with trio.move_on_after(0):
            await alone.aclose()
    assert isinstance(alone.failure, trio.ClosedResourceError)


async def test_aclose_waits_until_the_transport_has_taken_everything() -> None:
    left, right = lockstep_stream_pair()
    config = Config(initial_streams=(InitialStream(0, 100, 100),), streams_creatable=False)
    one = Multiplexer(left, Role.PROACTIVE, config, receive_window_bytes=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        stream = one.stream(0)
        await stream.send_all(b"abc")
        with trio.move_on_after(0) as scope:
            await stream.aclose()
        assert scope.cancelled_caught
        taken = bytearray()
        nursery.start_soon(stream.aclose)
        while len(taken) < 10:
            taken += await right.receive_some()
        assert bytes(taken) == bytes.fromhex("a0 00 20 00 03 616263 80 00")
        nursery.cancel_scope.cancel()


async def test_a_transport_that_is_cut_breaks_the_streams_and_run_returns() -> None:
    left, right = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await right.send_all(bytes.fromhex("20 00 03 616263"))
        await right.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await one.stream(0).receive_some() == b"abc"
        with pytest.raises(trio.BrokenResourceError, match=r"was closed|ended before"):
            await one.stream(0).receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await one.stream(0).send_all(b"x")
        await one.stream(0).aclose()
    assert isinstance(one.failure, trio.BrokenResourceError)


async def test_a_transport_that_ends_early_says_so() -> None:
    left, right = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await right.send_eof()
        with pytest.raises(trio.BrokenResourceError, match="ended before the streams did"):
            await one.stream(0).receive_some()


async def test_a_violation_is_raised_by_run_after_the_data_before_it_was_given_out() -> None:
    left, right = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    await right.send_all(bytes.fromhex("20 00 03 616263 c0"))
    with pytest.raises(RemoteProtocolError, match="no packet has type 110"):
        await one.run()
    assert await one.stream(0).receive_some() == b"abc"
    with pytest.raises(trio.BrokenResourceError, match="no packet has type 110"):
        await one.stream(0).receive_some()
    with trio.fail_after(1):
        async for _ in right:
            pass  # until the end, which is there


async def test_a_cancelled_run_wakes_everybody() -> None:
    left, _ = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.BrokenResourceError, match="stopped"):
                await one.stream(0).receive_some()

        nursery.start_soon(read)
        with trio.move_on_after(0):
            await one.run()


async def test_a_transport_that_is_closed_under_it_breaks_the_streams() -> None:
    left, _ = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.testing.wait_all_tasks_blocked()
        await left.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await one.stream(0).receive_some()
    assert isinstance(one.failure, trio.ClosedResourceError)


async def test_nobody_waits_for_a_peer_that_lets_no_more_streams_be_created() -> None:
    left, right = memory_stream_pair()
    one = Multiplexer(left, Role.PROACTIVE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)

        async def say_no() -> None:
            await trio.testing.wait_all_tasks_blocked()
            await right.send_all(b"\xb0")

        nursery.start_soon(say_no)
        with pytest.raises(trio.BrokenResourceError, match="no more streams"):
            await one.open_stream()
        nursery.cancel_scope.cancel()


async def test_a_ping_waits_for_its_pong() -> None:
    async with multiplexers(lockstep_stream_pair) as (one, two):
        async with trio.open_nursery() as nursery:
            for multiplexer in (one, two, one):
                nursery.start_soon(multiplexer.ping)
        assert one.statistics().pongs_owed == two.statistics().pongs_owed == 0


async def test_the_peer_may_create_as_many_streams_at_a_time_as_it_is_let() -> None:
    async with multiplexers(memory_stream_pair, peer_streams_max=2) as (one, two):
        first = await one.open_stream()
        await one.open_stream()
        with trio.move_on_after(0.01) as scope:
            await one.open_stream()
        assert scope.cancelled_caught
        await first.aclose()
        await one.open_stream()
        await trio.testing.wait_all_tasks_blocked()
        assert len(two.connection.active_streams) == 2


async def test_a_stream_that_ended_before_it_was_accepted_is_read_to_its_end() -> None:
    config = Config(creator_credit=100)
    async with multiplexers(memory_stream_pair, config) as (one, two):
        stream = await one.open_stream()
        await stream.send_all(b"early")
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        late = await two.accept_stream()
        assert await late.receive_some(3) == b"ear"
        assert await late.receive_some() == b"ly"
        assert await late.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError, match="stopped reading"):
            await late.send_eof()
        await late.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await late.send_eof()


async def test_importing_bymux_does_not_import_trio() -> None:
    code = "import sys, bymux; raise SystemExit('trio' in sys.modules)"
    done = await trio.run_process([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


async def test_a_transport_that_only_takes_nothing_more_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    left, right = memory_stream_pair()
    right.receive_stream.close()
    one = Multiplexer(left, Role.PROACTIVE, CONTROL_AND_DATA)
    await one.run()
    assert trio.current_time() == pytest.approx(2.0)
    assert str(one.failure) == "MemoryReceiveStream was closed"
