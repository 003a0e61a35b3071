"""Who asks, and does not read the answers."""

from typing import Final

import trio

from siege.attack import Attack, Scope
from siege.hostile import Hostile
from siege.line import Line, offer

READ_EVERY_S: Final = 0.02
READ_BYTES: Final = 256
"""It reads a little, or it had no more credit for requests than the node gives at first."""
WRONG_HASH: Final = b"\x00\x40" + bytes(64)


async def _asks(hostile: Hostile) -> None:
    """Proposals that are each answered with a whole entry."""

    async def play(line: Line, _: int) -> None:
        await line.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sip, line)
            while True:
                number = await line.next_number_of_many()
                wrong = offer(hostile.held, start=5, lower_info=5, starting_hash=WRONG_HASH)
                await line.control(wrong(number))
                line.counts["proposals"] += 1

    await hostile.crowd(play, listens=False)


async def _sip(line: Line) -> None:
    is_open = True
    while is_open:
        is_open = await line.sip(READ_BYTES)
        await trio.sleep(READ_EVERY_S)


async def _downloads(hostile: Hostile) -> None:
    """All that there is, with credit for all of it, and the socket is never read again."""

    async def play(line: Line, _: int) -> None:
        await line.begin()
        while not line.granted:
            if not await line.sip(READ_BYTES):
                return
        for request in range(0, 128, 2):
            await line.control(offer(hostile.held)(request))
            line.counts["proposals"] += 1
        await trio.sleep_forever()

    await hostile.crowd(play, listens=False)


ATTACKS: Final = (
    Attack(
        "unread-answers",
        "20 connections ask for answers of 300 bytes, and read next to nothing",
        _asks,
        connections=20,
        tls=True,
        scope=Scope(),
        needs={"proposals": 20 * 80},
        node_reads=50_000,
    ),
    Attack(
        "unread-data",
        "20 connections ask 64 times for all that there is, and read nothing",
        _downloads,
        connections=20,
        tls=True,
        scope=Scope(),
        needs={"proposals": 20 * 64},
        node_reads=50_000,
    ),
)
