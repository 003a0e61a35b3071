"""Strangers who ask for everything, and for what there is not."""

from typing import Final

import trio

from siege.attack import Attack, Scope, Seen
from siege.hostile import Hostile
from siege.line import Line, offer
from wire import Eagerness, LogKey

WAYS: Final[tuple[dict[str, object], ...]] = (
    {},
    {"end": 3, "upper_info": 3},
    {"eagerness": Eagerness.NOTIFY},
    {"eagerness": Eagerness.LIMITED, "eager_bytes": 0},
    {"eagerness": Eagerness.NOTIFY, "sparse": True},
    {"sparse": True},
    {"payloads_only": True},
    {"mandatory": True},
    {"start": 5, "lower_info": 4, "starting_hash": b"\x00\x40" + bytes(64)},
    {"start": 1 << 40, "lower_info": 1 << 40, "starting_hash": b"\x00\x40" + bytes(64)},
)
"""Every kind of proposal."""


def _unknown(hostile: Hostile) -> LogKey:
    return LogKey(hostile.rng.randbytes(32), hostile.rng.randrange(1000))


async def _ask(hostile: Hostile, line: Line) -> None:
    """Asks, and ends whatever is answered, so that its number and credit come back."""
    await line.begin()
    for count in range(1 << 40):
        number = await line.next_number_of_many()
        log = hostile.held if count % 2 else _unknown(hostile)
        await line.control(offer(log, **WAYS[count // 2 % len(WAYS)])(number))
        line.counts["proposals"] += 1


async def _everything(hostile: Hostile) -> None:
    async def play(line: Line, _: int) -> None:
        await _ask(hostile, line)

    await hostile.crowd(play)


async def _knocks(hostile: Hostile) -> None:
    """Strangers at a node with TLS, with a key that nobody has allowed."""

    async def play(line: Line, _: int) -> None:
        await line.begin()
        await line.control(offer(hostile.held)(0))
        line.counts["proposals"] += 1
        await line.until(lambda: False)

    await hostile.crowd(play)
    await trio.sleep_forever()


def _got_nothing(seen: Seen) -> list[str]:
    """Of a peer that may neither read nor write: refusals (128), and nothing else."""
    found = [
        f"{name} {seen.counts[name]}, of what may not be read"
        for name in ("heard_entries", "heard adjust", "heard propose")
        if seen.counts.get(name, 0)
    ]
    reasons = {name for name in seen.counts if name.startswith("heard cancel ")}
    others = reasons - {"heard cancel 128", "heard cancel 131"}
    found += [f"{name}, which says more than that it may not be read" for name in sorted(others)]
    return found


def _not_let_in(seen: Seen) -> list[str]:
    return ["a stranger was set up"] if seen.counts.get("set_up", 0) else []


ATTACKS: Final = (
    Attack(
        "asks-everything",
        "20 strangers ask for each log in every way, and cancel what they get",
        _everything,
        connections=20,
        tls=True,
        scope=Scope(),
        needs={"proposals": 500, "heard adjust": 1},
        node_reads=50_000,
    ),
    Attack(
        "asks-without-scope",
        "the same over TLS by a peer that may read and write nothing",
        _everything,
        connections=20,
        tls=True,
        scope=Scope(read="none", write="none"),
        needs={"proposals": 200, "heard cancel 128": 200},
        node_reads=20_000,
        judge=_got_nothing,
    ),
    Attack(
        "knocks",
        "20 strangers at a door with TLS, again and again",
        _knocks,
        connections=20,
        tls=True,
        needs={"opened": 20},
        node_reads=0,
        judge=_not_let_in,
    ),
)
