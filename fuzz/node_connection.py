"""Whatever comes over a connection, it ends soon behind its end, and quietly.

An input is what a peer sends before it ends its direction of the stream; what inputs are made of is
recorded from whole conversations. The node ends its own direction within seconds, of a clock that
goes on only while nobody has anything to do, and writes no traceback and few bytes into its log.
"""

import io
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

import trio
from nacl.signing import SigningKey
from outcome import capture
from trio.testing import MockClock

from fuzz.harness import main
from logstore import ALL, Store
from peer import SessionConfig
from peer.node import Direction, MemoryStream, memory_link
from peer.node.doors.admission import Admission, Doors
from peer.node.host.lane import Came, Settle
from peer.node.host.store_host import StoreHost
from peer.node.host.verifier import Verifier
from peer.node.interests import InterestBook
from peer.node.links.roster import Roster

END_S_MAX: Final = 4.0
"""The node's end of the stream follows ours within that time."""
LOG_BYTES_MAX: Final = 200

_PAYLOADS: Final = (b"one", b"x" * 3000, random.Random(1).randbytes(66_000), b"", b"five")
_SETUP_BYTES: Final = 3
_PIECES: Final = 8
_TALK_S: Final = 0.5
"""How long a conversation is recorded, without its good end."""


def _at_once(work: Callable[[], list[Settle]], came: Came) -> None:
    """Stands in for threads, beside which the clock must not jump."""
    trio.lowlevel.current_trio_token().run_sync_soon(came, capture(work))


class _Node:
    """The connections of a node without threads."""

    def __init__(self, number: int) -> None:
        self.store = Store.memory(signing_key=SigningKey(bytes([number]) * 32))
        self.store.append(list(_PAYLOADS[: number + 2]))
        self.store.follow(ALL)
        self._verifier = Verifier(0)
        self._host = StoreHost(self.store, self._verifier, poll_s=1e9, start=_at_once)
        book = InterestBook(self.store.author).load(self.store)
        self._roster = Roster(
            self._host,
            SessionConfig(),
            lambda: book.current,
            lambda _: None,
            admission=Admission(self.store.author, Doors(), {}),
            spread=lambda _, __: None,
        )

    async def run(self, stream: MemoryStream, direction: Direction) -> None:
        """Runs one connection to its end, and that of the node."""
        with self.store:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._verifier.run)
                await nursery.start(self._host.run)
                await self._roster.run(self._roster.make(stream, direction, "a peer"))
                nursery.cancel_scope.cancel()
            await self._host.end()

    async def close(self) -> None:
        """Ends its connections in good order."""
        await self._roster.close(END_S_MAX)


async def _record(ends_well: bool) -> bytes:
    """What the caller of a conversation has sent."""
    caller, called = _Node(3), _Node(1)
    sent = bytearray()

    async def pass_on(source: MemoryStream, target: MemoryStream, record: bytearray) -> None:
        while data := await source.receive_some():
            record += data
            await target.send_all(data)
        await target.send_eof()

    async with trio.open_nursery() as nursery:
        (here, near), (far, there) = memory_link(), memory_link()
        nursery.start_soon(caller.run, here, Direction.OUTGOING)
        nursery.start_soon(called.run, there, Direction.INCOMING)
        nursery.start_soon(pass_on, near, far, sent)
        nursery.start_soon(pass_on, far, near, bytearray())
        await trio.sleep(_TALK_S)
        if ends_well:
            await caller.close()
        nursery.cancel_scope.cancel()
    return bytes(sent)


@cache
def corpus() -> list[bytes]:
    """Conversations, whole and in part, behind the byte that says how they are cut."""
    clock = MockClock(autojump_threshold=0)
    whole = [trio.run(_record, ends_well, clock=clock) for ends_well in (False, True)]
    setup = whole[0][:_SETUP_BYTES]
    words = [setup + bytes.fromhex(word) for word in ("200102", "3001", "8000a0008001a001")]
    parts = [whole[0][:end] for end in (_SETUP_BYTES, 200, 600, 2000)]
    return [bytes([cut]) + data for cut, data in enumerate((*whole, *parts, *words, *words))]


async def _talk(data: bytes, pieces: int) -> float:
    """Sends, ends that direction, and reads to the end; returns how long the end took."""
    here, there = memory_link()
    node = _Node(1)
    ended_at = 0.0

    async def send() -> None:
        nonlocal ended_at
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            for piece in _cut(data, pieces):
                await here.send_all(piece)
                # What is sent next meets a node that is doing something, or one that waits.
                for _ in range(pieces):
                    await trio.lowlevel.checkpoint()
        ended_at = trio.current_time()
        await here.send_stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run, there, Direction.INCOMING)
        nursery.start_soon(send)
        while await here.receive_some():
            pass
    return trio.current_time() - ended_at


def _cut(data: bytes, pieces: int) -> list[bytes]:
    """The setup, and the rest in so many pieces."""
    rest = data[_SETUP_BYTES:]
    step = max(1, -(-len(rest) // max(1, pieces)))
    behind = [rest[at : at + step] for at in range(0, len(rest), step)]
    return [data[:_SETUP_BYTES], *behind] if pieces else [data]


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    logging.getLogger().addHandler(handler)
    try:
        clock = MockClock(autojump_threshold=0)
        took_s = trio.run(_talk, data[1:], data[0] % _PIECES if data else 0, clock=clock)
    finally:
        logging.getLogger().removeHandler(handler)
    assert took_s <= END_S_MAX
    assert "Traceback" not in told.getvalue()
    assert len(told.getvalue()) <= LOG_BYTES_MAX


fuzz_one = check
"""The name by which atheris harnesses know it."""


if __name__ == "__main__":
    main(check, corpus())
