"""Entries: valid ones at full speed, and forged ones."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from siege.attack import Attack, Scope, Seen
from siege.hostile import Hostile, entries_of, log_of, metadata_of, packets_of
from siege.line import GREEDY, SAFE, Line, offer
from wire import LogKey, Setup

PER_S: Final = 12_000
"""Entries that are signed ahead for each second: more than a node takes in."""
GONE_S: Final = 5.0
"""How long who breaks the protocol may stay. Twenty of one address share a twentieth of the node
while somebody honest is busy (fairness.py), so what one has sent is read late: then he is gone."""
APOLOGY_S: Final = 10.0
"""So much longer where what was sent may have been wrong by no fault of its sender, who has this
time to say so (point2point.md 8)."""
BATCH: Final = 50


async def _prepare(hostile: Hostile) -> None:
    each = int(PER_S * (hostile.orders.seconds + 1)) // hostile.connections
    for _ in range(hostile.connections):
        key = hostile.stranger()
        entries = entries_of(key, each, lambda seq: b"%d" % seq)
        made = [packets_of(entry) for entry in entries]
        batches = [b"".join(made[at : at + BATCH]) for at in range(0, each, BATCH)]
        hostile.prepared.append([bytes(key.verify_key), *batches])


async def _valid(hostile: Hostile) -> None:
    async def play(line: Line, index: int) -> None:
        author, *batches = hostile.prepared[index]
        await line.begin()
        await line.open(offer(LogKey(author, 0)))
        for batch in batches:
            await line.data(batch)
            line.counts["entries"] += BATCH
        line.counts["used_up"] += 1
        await line.until(lambda: False)

    await hostile.crowd(play, again=False)


def _forged(setup: Setup, gone_s: float) -> Callable[[Hostile], Awaitable[None]]:
    async def run(hostile: Hostile) -> None:
        async def play(line: Line, _: int) -> None:
            key = hostile.stranger()
            [entry] = entries_of(key, 1, lambda _: bytes(100))
            good = metadata_of(entry)
            await line.begin(setup)
            await line.open(offer(log_of(key)))
            await line.data(good[:-1] + bytes((good[-1] ^ 1,)))
            line.counts["forged"] += 1
            with trio.move_on_after(gone_s):
                await line.until(lambda: False)
            line.counts["still_there"] += 1
            await line.until(lambda: False)

        await hostile.crowd(play)

    return run


def _taken_in(seen: Seen) -> list[str]:
    return [] if seen.entries_stored else ["the node has taken in no entry of the attack"]


def _all_gone(seen: Seen) -> list[str]:
    found = []
    if seen.entries_stored:
        found.append(f"{seen.entries_stored} forged entries were taken in")
    left = seen.counts.get("still_there", 0)
    if left:
        found.append(f"{left} who forged are still connected")
    return found


ATTACKS: Final = (
    Attack(
        "valid-entries",
        "20 strangers' valid entries at full speed, beside an honest push",
        _valid,
        prepare=_prepare,
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        pushes=True,
        needs={"entries": 1000, "confirmed": 20},
        node_reads=100_000,
        judge=_taken_in,
    ),
    Attack(
        "forged",
        "metadata with a forged signature, whose payload never comes",
        _forged(GREEDY, GONE_S + APOLOGY_S),
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        share=2.5,
        needs={"forged": 20},
        judge=_all_gone,
    ),
    Attack(
        "forged-safe",
        "the same where nothing may be sent before it is verified",
        _forged(SAFE, GONE_S),
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        share=0.5,
        needs={"forged": 20},
        judge=_all_gone,
    ),
)
