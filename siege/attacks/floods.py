"""What is legal, free for whoever sends it, and work for the node."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from siege.attack import Attack, Scope
from siege.hostile import Hostile, entries_of, packets_of
from siege.line import CONTROL, DATA, PING_ALL, Line, offer
from tests.bymux.factory import CREDIT, packet, write
from wire import Grant, LogKey, encode_control

BLOCK_BYTES: Final = 48 * 1024
IDLE_BETWEEN: Final = 400
"""Packets of no effect for each entry: two times fit into what ends a connection (1,000)."""

USEFUL_EVERY_S: Final = 0.1


def _block(piece: bytes) -> bytes:
    return piece * (BLOCK_BYTES // len(piece))


GRANTS: Final = _block(write(CONTROL, encode_control(Grant(1)) * 8000))
CREDITS: Final = _block(packet(CREDIT, DATA, 1))
WRITES: Final = _block(
    b"".join(write(CONTROL, bytes((byte,))) for byte in encode_control(Grant(2**40)))
)
PINGS: Final = _block(PING_ALL)
EMPTY: Final = _block(write(CONTROL, b""))
KINDS: Final = (GRANTS, CREDITS, WRITES, PINGS, EMPTY)


def _flood(*blocks: bytes, listens: bool = True) -> Callable[[Hostile], Awaitable[None]]:
    """Each connection sends one of these again and again, until it is closed, and comes back."""

    async def play(line: Line, index: int) -> None:
        await line.begin()
        while True:
            await line.send(blocks[index % len(blocks)])
            line.counts["blocks"] += 1

    async def run(hostile: Hostile) -> None:
        await hostile.crowd(play, listens=listens)

    return run


async def _prepare_useful(hostile: Hostile) -> None:
    """Valid entries, each with idle work behind it."""
    # The attack is played twice, and may last longer than it should.
    each = 100 + int(hostile.orders.seconds * 4 / USEFUL_EVERY_S)
    # What bymux itself counts is excused by nothing.
    idle = write(CONTROL, encode_control(Grant(1)) * IDLE_BETWEEN)
    for _ in range(hostile.connections):
        key = hostile.stranger()
        made = [packets_of(entry) for entry in entries_of(key, each, lambda seq: b"%d" % seq)]
        hostile.prepared.append([bytes(key.verify_key), idle, *made])


async def _useful(hostile: Hostile) -> None:
    async def play(line: Line, index: int) -> None:
        author, idle, *entries = hostile.prepared[index]
        await line.begin()
        await line.open(offer(LogKey(author, 0)))
        for entry in entries:
            await line.data(entry)
            await line.send(idle)
            line.counts["entries"] += 1
            # Until it is verified it excuses nothing.
            await trio.sleep(USEFUL_EVERY_S)
        line.counts["used_up"] += 1
        await line.until(lambda: False)

    await hostile.crowd(play, again=False)


NEEDS: Final = {"sent_bytes": 10_000, "opened": 1}
ATTACKS: Final = (
    Attack("grants", "grant of 1 unit, again and again", _flood(GRANTS), share=0.5, needs=NEEDS),
    Attack("credits", "credit of 1 byte", _flood(CREDITS), share=0.5, needs=NEEDS),
    Attack("small-writes", "Writes of 1 byte", _flood(WRITES), share=0.5, needs=NEEDS),
    Attack(
        "pings",
        "pings, and nobody reads the pongs",
        _flood(PINGS, listens=False),
        share=0.5,
        needs=NEEDS,
    ),
    Attack("empty-writes", "Writes of no bytes", _flood(EMPTY), share=0.5, needs=NEEDS),
    Attack(
        "floods",
        "all of these from 20 connections, back as soon as one address may come",
        _flood(*KINDS, listens=False),
        connections=20,
        tls=True,
        scope=Scope(),
        needs={"sent_bytes": 200_000, "opened": 20},
        node_reads=20_000,
    ),
    Attack(
        "useful-floods",
        f"20 connections, {IDLE_BETWEEN} grants of 1 unit for each valid entry",
        _useful,
        prepare=_prepare_useful,
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        # A node that lets it wait reads less of it: that is what is to be shown.
        needs={"entries": 40, "confirmed": 20, "sent_bytes": 40_000},
        node_reads=20_000,
    ),
)
