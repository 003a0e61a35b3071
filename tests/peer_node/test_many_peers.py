"""Several peers offer the same log: each payload comes once, and who goes quiet is replaced."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from logstore import ALL, Store
from peer.node import Node, NodeConfig, SourceInfo, memory_link, running_node
from wire import LogKey

from .support import PATIENCE_S

QUIET = NodeConfig(workers=0, poll_s=1e9)
CHUNK_BYTES = 16 * 1024
MIB = 1 << 20


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[list[Node]]:
    """Nodes that follow everything and are not connected."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            store = stack.enter_context(Store.memory())
            store.follow(ALL)
            running = running_node(store, QUIET, rng=random.Random(number))
            found.append(await stack.enter_async_context(running))
        yield found


@dataclass
class Link:
    """A connection over which bytes go from `giver` to `taker`, and back.

    `stall_after`: so many bytes reach the taker and no more. `spoil_after`: the byte behind so many
    is wrong.
    """

    giver: Node
    taker: Node
    name: str
    stall_after: float = float("inf")
    spoil_after: float = float("inf")
    carried: int = 0
    _stalled: trio.Event = field(default_factory=trio.Event)
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        (here, to_giver), (there, to_taker) = memory_link(), memory_link()
        with self._scope:
            async with trio.open_nursery() as nursery:
                serve = partial(self.giver.serve_stream, here, proactive=False, name="taker")
                nursery.start_soon(serve)
                call = partial(self.taker.serve_stream, there, proactive=True, name=self.name)
                nursery.start_soon(call)
                nursery.start_soon(self._carry, to_taker, to_giver)
                nursery.start_soon(self._give, to_giver, to_taker)

    async def _carry(self, source: trio.abc.ReceiveStream, sink: trio.abc.SendStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(CHUNK_BYTES):
                await sink.send_all(data)
        await sink.aclose()

    async def _give(self, source: trio.abc.ReceiveStream, sink: trio.abc.SendStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := bytearray(await source.receive_some(CHUNK_BYTES)):
                if self.carried <= self.spoil_after < self.carried + len(data):
                    data[int(self.spoil_after) - self.carried] ^= 1
                self.carried += len(data)
                if self.carried > self.stall_after:
                    await self._stalled.wait()
                await sink.send_all(data)
        await sink.aclose()

    def cut(self) -> None:
        self._scope.cancel()


@asynccontextmanager
async def linked(*links: Link) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(link.run)
        yield
        nursery.cancel_scope.cancel()


async def settle(running: Sequence[Node]) -> None:
    """Lets everything happen that needs no time to pass."""
    with trio.fail_after(PATIENCE_S):
        while True:
            await wait_all_tasks_blocked(0.002)
            if all(node.host.idle for node in running):
                return
            for node in running:
                await node.host.wait_idle()


async def wait(running: Sequence[Node], clock: MockClock, done: Callable[[], bool]) -> float:
    """Lets time pass until something is so; returns the seconds that it took."""
    began = trio.current_time()
    await settle(running)
    while not done():
        assert trio.current_time() < began + 30
        clock.jump(0.25)
        await settle(running)
    return trio.current_time() - began


async def append(node: Node, payloads: list[bytes]) -> LogKey:
    appended = await node.host.call(partial(node.host.store.append, payloads))
    return appended[-1].key


def holds(node: Node, log: LogKey, count: int) -> bool:
    """Whether a node holds so many entries with their payloads."""
    info = node.host.store.log(log)
    return info is not None and info.height == count and not info.missing_payloads


def assert_same(node: Node, log: LogKey, payloads: list[bytes]) -> None:
    store = node.host.store
    for seq, payload in enumerate(payloads, 1):
        with store.open_payload(log, seq) as reader:
            assert reader.read(0, len(payload) + 1) == payload


def received(node: Node) -> int:
    return sum(info.payload_bytes_received for info in node.connections())


def source_of(node: Node, log: LogKey) -> SourceInfo:
    [source] = [info for info in node.log_sources(log) if info.fetching]
    return source


async def fetches(node: Node, log: LogKey) -> None:
    """Returns as soon as a node has a source of a log, before all has come."""
    while not any(info.fetching for info in node.log_sources(log)):
        await trio.lowlevel.checkpoint()


def some(count: int, size: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for _ in range(count)]


def mesh(running: list[Node]) -> list[Link]:
    """All with all."""
    return [
        Link(one, other, f"{a} of {b}")
        for a, one in enumerate(running)
        for b, other in enumerate(running[:a])
    ]


@asynccontextmanager
async def two_holders(
    clock: MockClock, payloads: list[bytes]
) -> AsyncIterator[tuple[list[Node], LogKey]]:
    """Three nodes that are not connected, and a log that the first two of them hold."""
    async with nodes(3) as running:
        async with linked(Link(running[0], running[1], "copy")):
            log = await append(running[0], payloads)
            await wait(running, clock, lambda: holds(running[1], log, len(payloads)))
        yield running, log


async def test_in_a_mesh_each_payload_crosses_once_to_each_node(mock_clock: MockClock) -> None:
    payloads = some(150, 300)
    async with nodes(5) as running, linked(*mesh(running)):
        await settle(running)
        log = await append(running[2], payloads[:50])
        await settle(running)
        for at in range(50, 150, 10):
            await append(running[2], payloads[at : at + 10])
            await settle(running)
        await wait(running, mock_clock, lambda: all(holds(n, log, 150) for n in running))
        for number, node in enumerate(running):
            assert_same(node, log, payloads)
            assert received(node) == (0 if number == 2 else 150 * 300)


async def test_all_write_at_once_and_each_payload_crosses_once(mock_clock: MockClock) -> None:
    payloads = some(30, 200)
    async with nodes(4) as running, linked(*mesh(running)):
        await settle(running)
        for at in range(0, 30, 10):
            logs = [await append(node, payloads[at : at + 10]) for node in running]
        await wait(
            running,
            mock_clock,
            lambda: all(holds(node, log, 30) for node in running for log in logs),
        )
        assert sum(map(received, running)) == 4 * 3 * 30 * 200


async def test_a_source_that_goes_silent_is_replaced_within_seconds(mock_clock: MockClock) -> None:
    payloads = some(60, 40_000)
    async with two_holders(mock_clock, payloads) as (running, log):
        one, other, taker = running
        first = Link(one, taker, "first", stall_after=MIB)
        second = Link(other, taker, "second")
        async with linked(first):
            await fetches(taker, log)
            async with linked(second):
                await settle(running)
                names = {info.address for info in taker.log_sources(log)}
                assert names == {"first", "second"}
                assert source_of(taker, log).address == "first"
                took_s = await wait(running, mock_clock, lambda: holds(taker, log, 60))
                assert source_of(taker, log).address == "second"
                assert 1 <= took_s <= 4
                assert_same(taker, log, payloads)
                # What was under way when it changed came twice.
                assert received(taker) <= 60 * 40_000 + 2 * MIB


async def test_a_large_payload_goes_on_at_another_source(mock_clock: MockClock) -> None:
    payloads = some(1, 6 * MIB)
    async with two_holders(mock_clock, payloads) as (running, log):
        one, other, taker = running
        first, second = Link(one, taker, "first", stall_after=4 * MIB), Link(other, taker, "second")
        async with linked(first):
            await settle(running)
            async with linked(second):
                await settle(running)
                assert source_of(taker, log).address == "first"
                first.cut()
                await wait(running, mock_clock, lambda: holds(taker, log, 1))
                assert_same(taker, log, payloads)
                assert second.carried < 2.2 * MIB


async def test_a_large_payload_goes_on_while_the_silent_source_is_still_there(
    mock_clock: MockClock,
) -> None:
    payloads = some(1, 6 * MIB)
    async with two_holders(mock_clock, payloads) as (running, log):
        one, other, taker = running
        first, second = Link(one, taker, "first", stall_after=4 * MIB), Link(other, taker, "second")
        async with linked(first):
            await settle(running)
            async with linked(second):
                took_s = await wait(running, mock_clock, lambda: holds(taker, log, 1))
                assert took_s <= 4
                assert_same(taker, log, payloads)
                assert second.carried < 2.2 * MIB


async def test_a_source_that_lies_is_left_and_nothing_is_lost(mock_clock: MockClock) -> None:
    payloads = some(100, 5_000)
    async with two_holders(mock_clock, payloads) as (running, log):
        one, other, taker = running
        liar = Link(one, taker, "liar", spoil_after=250_000)
        async with linked(liar):
            await fetches(taker, log)
            async with linked(Link(other, taker, "honest")):
                await wait(running, mock_clock, lambda: holds(taker, log, 100))
                assert_same(taker, log, payloads)
                assert [info.address for info in taker.log_sources(log)] == ["honest"]


async def test_a_peer_that_does_not_read_slows_nobody_else(mock_clock: MockClock) -> None:
    payloads = some(200, 20_000)
    async with nodes(3) as running:
        giver, stuck, quick = running
        async with linked(Link(giver, stuck, "stuck", stall_after=10_000), Link(giver, quick, "q")):
            await settle(running)
            log = await append(giver, payloads)
            await settle(running)
            assert trio.current_time() == 0
            assert holds(quick, log, 200)
            assert not holds(stuck, log, 200)
