"""Payloads of which only a part comes: each of them is a file that the node keeps open."""

from collections import deque
from typing import Final

from siege.attack import Attack, Scope
from siege.hostile import Hostile
from siege.line import Line, offer
from wire import Adjust, LogKey, encode_payload_header, encode_switch

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
        proposed: deque[tuple[int, bytes]] = deque()
        for made in hostile.prepared[index]:
            number = await line.next_number()
            await line.control(offer(LogKey(made[:32], 0))(number))
            line.counts["proposals"] += 1
            proposed.append((number, made[32:]))
        for number, raw in proposed:
            if isinstance(await line.answer(number), Adjust):
                await line.data(encode_switch(number) + raw)
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
