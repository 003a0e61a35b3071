"""Payloads of which only a part comes: each of them is a file that the node keeps open."""

from typing import Final

from siege.attack import Attack, Scope
from siege.hostile import Hostile
from siege.line import Line, RefusedError, offer
from wire import LogKey, encode_payload_header

from .bombs import claim

PAYLOADS: Final = 64
SIZE: Final = 100 * 1024
"""Above what is gathered in memory (64 KiB)."""
PART: Final = 512


async def _prepare(hostile: Hostile) -> None:
    part = encode_payload_header(PART) + bytes(PART)
    for _ in range(hostile.connections):
        keys = [hostile.stranger() for _ in range(PAYLOADS)]
        hostile.prepared.append([bytes(key.verify_key) + claim(key, SIZE) + part for key in keys])


async def _run(hostile: Hostile) -> None:
    async def play(line: Line, index: int) -> None:
        """All is proposed as far as there is credit: with one at a time it were no attack."""
        await line.begin()
        proposed: list[tuple[int, bytes]] = []
        for made in hostile.prepared[index]:
            number = await line.propose(offer(LogKey(made[:32], 0)))
            proposed.append((number, made[32:]))
        for number, raw in proposed:
            try:
                await line.confirmed(number)
            except RefusedError:
                continue
            await line.data(raw)
            line.counts["partials"] += 1
        await line.until(lambda: False)

    await hostile.crowd(play)


ATTACKS: Final = (
    Attack(
        "partials",
        f"20 connections, parts of {PAYLOADS} payloads each; the node has 1,024 descriptors",
        _run,
        prepare=_prepare,
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        descriptors=1024,
        needs={"partials": 100, "opened": 20},
        node_reads=50_000,
    ),
)
