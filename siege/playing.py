"""The hostile process: prepares an attack, and plays it from `go` to `stop`, as often as asked.

    python -m siege.playing ORDERS

ORDERS is JSON (`hostile.Orders`). Whoever starts it reads one JSON line when it is ready, and one
after each `stop`.
"""

import json
import sys
from contextlib import suppress
from itertools import islice

import trio

from bench.support.output import show

from .attacks import ATTACKS
from .hostile import Hostile, Orders


async def _line() -> str:
    return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


async def main(orders: Orders) -> None:
    """Plays until standard input ends."""
    attack = ATTACKS[orders.attack]
    assert attack.play is not None
    hostile = Hostile(orders)
    if attack.prepare is not None:
        await attack.prepare(hostile)
    show({"ready": True})
    while await _line() == "go\n":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(attack.play, hostile)
            await _line()
            nursery.cancel_scope.cancel()
        show(
            {
                "counts": dict(hostile.counts),
                "ends": dict(hostile.ends.most_common(8)),
                "gone_s": [round(each, 3) for each in islice(hostile.gone_s, 1000)],
                "ports": sorted(hostile.ports),
            }
        )


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        trio.run(main, Orders(**json.loads(sys.argv[1])))
