"""A node's export runs beside it, tells what it did, and ends with everything exported."""

from collections.abc import Mapping

import trio
import trio.testing

from peer.node.exporting import run_export


class Recorded:
    """An export that only counts."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.concluded = 0

    def attempt(self, now: float) -> Mapping[str, object] | None:
        self.times.append(now)
        return {"event": "exported", "rows": len(self.times)} if len(self.times) != 2 else None

    def conclude(self) -> Mapping[str, object] | None:
        self.concluded += 1
        return {"event": "exported", "rows": 0}


async def test_steps_come_regularly_and_the_end_concludes() -> None:
    export, events = Recorded(), list[Mapping[str, object]]()
    third = trio.Event()

    def observe(event: Mapping[str, object]) -> None:
        events.append(event)
        if len(export.times) == 3:
            third.set()

    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await run_export(export, observe, poll_s=0.001)

        nursery.start_soon(run)
        await third.wait()
        nursery.cancel_scope.cancel()
    assert export.times == sorted(export.times)
    assert export.concluded == 1
    assert [event["rows"] for event in events][:2] == [1, 3]
    assert events[-1]["rows"] == 0
