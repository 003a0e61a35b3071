"""Three nodes in a row: what the first one sends reaches the last before the middle has it all."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from logstore import NewEntry, PayloadFile, PayloadState, Store
from peer import SessionConfig, default_setup
from peer.node import Node, NodeConfig, memory_link, running_node
from peer.node.host.sinks import Sink
from tests.records import replace
from wire import LogKey

from .support import PATIENCE_S

PAYLOAD = random.Random(5).randbytes(3 << 20)
CONFIG = NodeConfig(workers=0, poll_s=0.001)
SAFE = replace(CONFIG, session=SessionConfig(setup=replace(default_setup(), send_greedily=False)))


class Held(trio.abc.Stream):
    """A stream that gives away so many bytes and no more until it is let go."""

    def __init__(self, inner: trio.abc.Stream, bytes_max: int) -> None:
        self._inner = inner
        self._left = bytes_max
        self._let_go = trio.Event()

    def let_go(self) -> None:
        self._let_go.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._let_go.is_set():
            return await self._inner.receive_some(max_bytes)
        if self._left == 0:
            await self._let_go.wait()
            return await self._inner.receive_some(max_bytes)
        data = await self._inner.receive_some(min(self._left, max_bytes or self._left))
        self._left -= len(data)
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def node(log: LogKey, config: NodeConfig = CONFIG) -> AsyncIterator[Node]:
    with Store.memory() as store:
        store.follow(log)
        async with running_node(store, config, rng=random.Random(1)) as running:
            yield running


async def connect(
    nursery: trio.Nursery, left: Node, right: Node, *, bytes_max: int | None = None
) -> Held:
    here, there = memory_link()
    held = Held(there, 1 << 60 if bytes_max is None else bytes_max)

    async def run(node: Node, stream: trio.abc.Stream, *, proactive: bool) -> None:
        await node.serve_stream(stream, proactive=proactive, name="test")

    nursery.start_soon(lambda: run(left, here, proactive=True))
    nursery.start_soon(lambda: run(right, held, proactive=False))
    return held


class Watch:
    """Waiting for what becomes of a payload at a node."""

    def __init__(self, node: Node, log: LogKey) -> None:
        self.node = node
        self._place = (log, 2)
        self._changed = trio.lowlevel.ParkingLot()
        self.written = 0
        """How much of it has come and was not found wrong."""
        arrivals = node.host.arrivals
        for name in ("grew", "spoiled"):
            setattr(arrivals, name, self._noting(getattr(arrivals, name)))
        node.host.watchers.add(self._look_again)

    def _look_again(self, _news: object = None) -> None:
        self._changed.unpark_all()

    def _noting(self, do: Callable[..., None]) -> Callable[..., None]:
        def noted(sink: Sink, *stored: int) -> None:
            do(sink, *stored)
            if (sink.log, sink.seq) == self._place:
                self.written = stored[0] if stored else 0
            self._look_again()

        return noted

    @property
    def is_whole(self) -> bool:
        return whole(self.node, *self._place)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await self._changed.park()

    async def until_written(self, count: int) -> None:
        await self.until(lambda: self.written >= count)


def whole(node: Node, log: LogKey, seq: int) -> bool:
    entry = node.host.store.entry(log, seq)
    return entry is not None and entry.payload_state is PayloadState.PRESENT


@pytest.mark.parametrize("greedy", [True, False])
async def test_a_relay_passes_on_what_has_come_if_both_sides_agree(greedy: bool) -> None:
    with Store.memory() as authored:
        [_, big] = authored.append([b"small", PAYLOAD])
        async with (
            running_node(authored, CONFIG) as source,
            node(big.key, CONFIG if greedy else SAFE) as relay,
            node(big.key) as far,
            trio.open_nursery() as nursery,
        ):
            at_relay, at_far = Watch(relay, big.key), Watch(far, big.key)
            await connect(nursery, relay, far)
            held = await connect(nursery, source, relay, bytes_max=len(PAYLOAD) // 2)
            await at_relay.until_written(len(PAYLOAD) // 3)
            if greedy:
                await at_far.until_written(len(PAYLOAD) // 3)
            else:
                await relay.host.wait_idle()
                assert at_far.written == 0
            assert not at_relay.is_whole
            assert not at_far.is_whole
            held.let_go()
            await at_far.until(lambda: at_far.is_whole)
            # Verified is soon, and kept is later: the far end may be the first.
            await at_relay.until(lambda: at_relay.is_whole)
            for each in (relay, far):
                with each.host.store.open_payload(big.key, 2) as reader:
                    assert reader.read(0, len(PAYLOAD)) == PAYLOAD
            assert relay.host.arrivals.readings == 0
            nursery.cancel_scope.cancel()


async def test_wrong_bytes_are_taken_back_and_the_right_ones_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of them is kept anywhere, and the far end does not break with the relay."""
    with Store.memory() as authored, Store.memory() as lying:
        [_, big] = authored.append([b"small", PAYLOAD])
        copy(authored, lying, big.key)
        monkeypatch.setattr(lying, "open_payload", LyingReader)
        async with (
            running_node(authored, CONFIG) as good,
            running_node(lying, CONFIG) as bad,
            node(big.key) as relay,
            node(big.key) as far,
            trio.open_nursery() as nursery,
        ):
            at_relay, at_far = Watch(relay, big.key), Watch(far, big.key)
            await connect(nursery, relay, far)
            held = await connect(nursery, bad, relay, bytes_max=len(PAYLOAD) // 2)
            await at_far.until_written(len(PAYLOAD) // 3)
            held.let_go()
            await at_far.until(lambda: at_far.written == 0)
            assert at_relay.written == 0
            assert not at_relay.is_whole
            assert not at_far.is_whole
            await held.aclose()
            await connect(nursery, good, relay)
            await at_far.until(lambda: at_far.is_whole)
            assert len(far.connections()) == 1
            nursery.cancel_scope.cancel()


class LyingReader:
    """Reads `PAYLOAD` with another last byte."""

    def __init__(self, key: LogKey, seq: int) -> None:
        self.key = key
        self.seq = seq
        self.payload_bytes = len(PAYLOAD)

    def read(self, offset: int, bytes_max: int) -> bytes:
        wrong = PAYLOAD[:-1] + bytes([PAYLOAD[-1] ^ 1])
        return wrong[offset : offset + bytes_max]

    def close(self) -> None:
        """Nothing is open."""


def copy(source: Store, target: Store, key: LogKey) -> None:
    """Give a store the entries of another one."""
    for entry in source.read(key, 1, entries_max=9, bytes_max=1 << 30, with_payload=False):
        payload: bytes | PayloadFile = entry.payload or PAYLOAD
        if entry.payload is None:
            digest = entry.encoded[-130:-64]
            sink = target.payload_sink(key, entry.seq, len(PAYLOAD), digest, source="copy")
            sink.write(PAYLOAD)
            payload = sink.finish()
        new = NewEntry(entry.seq, entry.encoded, entry.hash, payload)
        target.put_entries(key, [new], source="copy")
