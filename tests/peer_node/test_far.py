"""Two nodes at both ends of a long pipe, in virtual time: how full it is, and how soon.

Time passes only when neither node has anything left to do, so that nothing but windows and round
trips counts: whatever the machine is busy with, the outcome is the same.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from bench.support.pipe import LONG, Pipe
from logstore import ALL, All, Store
from peer.node import Node, NodeConfig, memory_link, running_node
from wire import LogKey

from .support import PATIENCE_S

QUIET = NodeConfig(workers=0, poll_s=1e9)
TURN_S = 1e-4
"""What a few steps of the clock that are rounded up may add."""


@asynccontextmanager
async def joined(caller: Store, called: Store) -> AsyncIterator[tuple[Sequence[Node], Pipe]]:
    """Two nodes, the first of which calls the second one now."""
    (here, to_caller), (there, to_called) = memory_link(), memory_link()
    async with (
        running_node(caller, QUIET, rng=random.Random(1)) as calling,
        running_node(called, QUIET, rng=random.Random(2)) as answering,
        trio.open_nursery() as nursery,
    ):
        pipe = Pipe()

        async def call() -> trio.abc.HalfCloseableStream:
            answer = partial(answering.serve_stream, there, proactive=False, name="caller")
            nursery.start_soon(answer)
            return to_called

        async def begin() -> None:
            # TCP's handshake: the caller's session begins a round trip after the call.
            await trio.sleep_until(pipe.called_at + LONG.round_trip_s)
            await calling.serve_stream(here, proactive=True, name="called")

        nursery.start_soon(begin)
        nursery.start_soon(pipe.run, to_caller, call)
        yield (calling, answering), pipe
        nursery.cancel_scope.cancel()


async def pass_time(
    nodes: Sequence[Node], clock: MockClock, done: Callable[[], bool], most_s: float = 10.0
) -> None:
    """Lets one thing after another happen until something is so."""
    with trio.fail_after(PATIENCE_S):
        end_s = trio.current_time() + most_s
        while True:
            await wait_all_tasks_blocked()
            if not all(node.host.idle for node in nodes):
                for node in nodes:
                    await node.host.wait_idle()
                continue
            if done():
                return
            assert trio.current_time() < end_s
            # Not nothing: a time that is rounded down would never come.
            clock.jump(trio.lowlevel.current_statistics().seconds_to_next_deadline + 1e-9)


@pytest.mark.parametrize("followed", ["log", "author", "everything"])
async def test_the_first_entry_is_there_after_three_round_trips(
    followed: str, mock_clock: MockClock
) -> None:
    """One for TCP's handshake, one until the other side has said how much may be proposed and which
    logs it has, and one from the proposal to what it asks for."""
    with Store.memory() as giver, Store.memory() as taker:
        log = LogKey(giver.author, 0)
        giver.append([b"first"])
        target = {"log": log, "author": giver.author, "everything": ALL}[followed]
        assert isinstance(target, LogKey | bytes | All)
        taker.follow(target)
        async with joined(taker, giver) as (nodes, pipe):
            await pass_time(nodes, mock_clock, lambda: taker.log(log) is not None)
            took_s = trio.current_time() - pipe.called_at
    assert took_s == pytest.approx(3 * LONG.round_trip_s, abs=TURN_S)


async def test_who_is_called_has_the_first_entry_half_a_round_trip_sooner(
    mock_clock: MockClock,
) -> None:
    """What it may propose is said with the first that it hears."""
    with Store.memory() as giver, Store.memory() as taker:
        log = LogKey(giver.author, 0)
        giver.append([b"first"])
        taker.follow(log)
        async with joined(giver, taker) as (nodes, pipe):
            await pass_time(nodes, mock_clock, lambda: taker.log(log) is not None)
            took_s = trio.current_time() - pipe.called_at
    assert took_s == pytest.approx(2.5 * LONG.round_trip_s, abs=TURN_S)


@pytest.mark.parametrize(
    ("logs", "entries", "payload_bytes", "from_s"),
    [(1, 20, 1 << 20, 1.0), (1, 20_000, 256, 0.5), (600, 3, 4096, 0.8)],
    ids=["large payloads", "small payloads", "many logs"],
)
async def test_a_long_pipe_is_filled(
    logs: int, entries: int, payload_bytes: int, from_s: float, mock_clock: MockClock
) -> None:
    """To nine tenths after 2 s at the latest: large payloads come from files, small ones with their
    entries, and of many logs no more than were proposed."""
    rng = random.Random(payload_bytes)
    with Store.memory() as giver, Store.memory() as taker:
        taker.follow(giver.author)
        for log_id in range(logs):
            giver.append([rng.randbytes(payload_bytes) for _ in range(entries)], log_id=log_id)
        total = logs * entries * payload_bytes
        async with joined(taker, giver) as (nodes, pipe):

            def done() -> bool:
                return bool(pipe.back.arrived) and pipe.back.arrived[-1][1] > total

            await pass_time(nodes, mock_clock, done)
            took_s = trio.current_time() - pipe.called_at
    assert took_s > from_s + LONG.round_trip_s
    assert pipe.bytes_per_s(from_s) >= 0.9 * LONG.bytes_per_s
