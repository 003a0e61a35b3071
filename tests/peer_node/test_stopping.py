"""However a node ends, what came of a payload is where the next one goes on."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from logstore import PayloadState, Store
from peer import SessionConfig
from peer.api import CannotConnectError, MemoryStream, NodeConfig, Peer, memory_link
from peer.node import running_node
from peer.node.host.lane import EndedError
from peer.node.node import STOP_TIMEOUT_S
from wire import LogKey, SignatureLibraryError

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=1e9)
PAYLOADS = [random.Random(size).randbytes(size) for size in (300_000, 50_000)]
CAME = [200_000, 20_000]
"""How much of each comes, about, before the link stands still without being cut."""


class FaultError(Exception):
    """Nobody expects it."""


class SlowLink:
    """Two streams, and between them a way on which so many bytes come and then none."""

    def __init__(self, bytes_max: int) -> None:
        self.left = bytes_max
        self._taken = False
        self.giving, self._far = memory_link()
        self.near, self.taking = memory_link()

    async def connect(self) -> MemoryStream:
        """The end of who takes, once."""
        if self._taken:
            raise CannotConnectError("called once only")
        self._taken = True
        return self.taking

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_on, self.near, self._far, 1 << 60)
            nursery.start_soon(self._pass_on, self._far, self.near, None)

    async def _pass_on(self, source: MemoryStream, target: MemoryStream, left: int | None) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(1000):
                if left is None:
                    data = data[: self.left]
                    self.left -= len(data)
                if data:
                    await target.send_all(data)


@dataclass
class Ending:
    """A node that has a part of a payload, and how a test brings its end about."""

    clock: MockClock
    link: SlowLink
    store: Store
    must_fail: bool = False
    peer: Peer = field(init=False)

    def observe(self, _: object) -> None:
        if self.must_fail:
            raise FaultError

    async def soon(self, step: Callable[[], object]) -> None:
        """Does something once everybody waits."""
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked(0.01)
            step()

    def give_up(self) -> None:
        """Whoever waits for the other side to end in good order does so no longer."""
        self.clock.jump(STOP_TIMEOUT_S)


async def by_leaving(ending: Ending, nursery: trio.Nursery) -> None:
    nursery.start_soon(ending.soon, ending.give_up)


async def in_a_hurry(ending: Ending, nursery: trio.Nursery) -> None:
    nursery.start_soon(ending.soon, ending.peer.node.hurry)


async def by_an_exception_of_the_block(ending: Ending, nursery: trio.Nursery) -> None:
    nursery.start_soon(ending.soon, ending.give_up)
    raise FaultError


async def by_being_cancelled(ending: Ending, nursery: trio.Nursery) -> None:
    nursery.start_soon(ending.soon, ending.give_up)
    nursery.cancel_scope.cancel()
    await trio.sleep_forever()


async def by_an_observer_that_raises(ending: Ending, nursery: trio.Nursery) -> None:
    ending.must_fail = True
    await ending.peer.append([b"something to tell of"])
    await trio.sleep_forever()


async def by_another_signature_library(ending: Ending, nursery: trio.Nursery) -> None:
    def another() -> None:
        raise SignatureLibraryError("another rule")

    verifier = ending.peer.node.host._ingestion._verifier
    assert verifier._nursery is not None
    verifier._nursery.start_soon(trio.to_thread.run_sync, another)
    await trio.sleep_forever()


async def by_a_connection_that_is_lost(ending: Ending, nursery: trio.Nursery) -> None:
    await ending.link.near.aclose()
    await left_alone(ending)


async def by_a_connection_that_falls_silent(ending: Ending, nursery: trio.Nursery) -> None:
    ending.clock.jump(SessionConfig().ping_after_s)
    await wait_all_tasks_blocked(0.01)
    ending.clock.jump(SessionConfig().idle_timeout_s)
    await left_alone(ending)


async def by_a_connection_that_is_ended_at_once(ending: Ending, nursery: trio.Nursery) -> None:
    [member] = ending.peer.node.members
    member.connection.abort()
    await left_alone(ending)


async def by_a_pause(ending: Ending, nursery: trio.Nursery) -> None:
    await trio.to_thread.run_sync(ending.store.pause)
    while ending.peer.node.members:
        ending.clock.jump(STOP_TIMEOUT_S)
        await wait_all_tasks_blocked(0.01)
    await left_alone(ending)


async def left_alone(ending: Ending) -> None:
    while ending.peer.node.members:
        await wait_all_tasks_blocked()
    # The store is read while the node goes on.
    await ending.peer.node.host.wait_idle()
    assert_kept(ending.store)


IN_GOOD_ORDER = (
    by_leaving,
    by_an_exception_of_the_block,
    by_being_cancelled,
    by_a_connection_that_is_lost,
    by_a_connection_that_falls_silent,
    by_a_connection_that_is_ended_at_once,
    by_a_pause,
)
AT_ONCE = (in_a_hurry, by_an_observer_that_raises, by_another_signature_library)
"""Then the entry of a small payload, which comes with it, may have come in vain."""

LARGE, SMALL = 0, 1
CASES = {
    f"{way.__name__}-{'small' if payload else 'large'}": (way, payload)
    for payload, ways in ((LARGE, IN_GOOD_ORDER + AT_ONCE), (SMALL, IN_GOOD_ORDER))
    for way in ways
}


def assert_kept(store: Store) -> None:
    [log] = [info.key for info in store.logs() if info.key.author != store.author]
    entry = store.entry(log, 1)
    assert entry is not None
    came = CAME[PAYLOADS.index(bytes_of(entry.payload_bytes))]
    assert entry.payload_state is PayloadState.PARTIAL
    assert came - 1000 <= entry.partial_bytes <= came


def bytes_of(payload_bytes: int) -> bytes:
    [found] = [payload for payload in PAYLOADS if len(payload) == payload_bytes]
    return found


@pytest.mark.parametrize(("way", "payload"), CASES.values(), ids=CASES)
async def test_what_came_of_a_payload_is_kept_when_a_node_ends(
    way: Callable[[Ending, trio.Nursery], Awaitable[None]],
    payload: int,
    tmp_path: Path,
    mock_clock: MockClock,
) -> None:
    with Store.memory() as giver, Store.create(tmp_path / "taker") as store:
        giver.append([PAYLOADS[payload]])
        store.follow(LogKey(giver.author, 0))
        ending = Ending(mock_clock, SlowLink(CAME[payload]), store)
        async with trio.open_nursery() as nursery, Peer(giver, config=CONFIG) as other:
            other.node.hurry()
            nursery.start_soon(ending.link.run)
            nursery.start_soon(partial(other.serve_stream, ending.link.giving, proactive=False))
            try:
                async with trio.open_nursery() as inner:
                    await run(ending, partial(way, ending, inner))
            except* (FaultError, SignatureLibraryError):
                pass
            nursery.cancel_scope.cancel()
        assert_kept(store)


async def run(ending: Ending, end: Callable[[], Awaitable[None]]) -> None:
    """A node that takes what comes over the link, and then ends in some way."""
    async with Peer(ending.store, config=CONFIG, observer=ending.observe) as ending.peer:
        node = ending.peer.node
        node.dial("giver", ending.link.connect)
        with trio.fail_after(PATIENCE_S):
            while ending.link.left:
                await wait_all_tasks_blocked(0.005)
                ending.clock.jump(0.1)
        await wait_all_tasks_blocked(0.01)
        await node.host.wait_idle()
        await end()


@pytest.mark.parametrize("other", [None, ValueError("a fault")])
async def test_who_hears_of_the_end_of_a_thread_is_never_why_a_node_ends(
    other: Exception | None,
) -> None:
    async def fails(error: Exception) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    async def run() -> None:
        with Store.memory() as store:
            async with running_node(store) as node:
                for error in (EndedError("the node has ended"), *([other] if other else [])):
                    node._nursery.start_soon(fails, error)
                await wait_all_tasks_blocked()

    with trio.fail_after(PATIENCE_S):
        if other is None:
            await run()
        else:
            with pytest.raises(ValueError, match="a fault"):
                await run()
