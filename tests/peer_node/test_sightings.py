"""Who was seen at the door, and when it is written down."""

from collections.abc import Mapping

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from logstore import Sighting
from peer.node.doors.sightings import Sightings

BEN, EVE = b"b" * 32, b"e" * 32


class Table:
    """Writes down what it is given, as slowly as the test lets it."""

    def __init__(self) -> None:
        self.rows: list[dict[bytes, int]] = []
        self.may_end = trio.Event()

    async def keep(self, seen: Mapping[bytes, Sighting]) -> None:
        await self.may_end.wait()
        self.rows.append({each: sighting.count for each, sighting in seen.items()})


async def test_a_flush_waits_for_what_is_being_written(nursery: trio.Nursery) -> None:
    table = Table()
    sightings = Sightings(nursery, table.keep, lambda: 7)
    sightings.note(BEN, "here", "place")
    await wait_all_tasks_blocked()
    flushed: list[bool] = []

    async def flush() -> None:
        await sightings.flush()
        flushed.append(True)

    nursery.start_soon(flush)
    await wait_all_tasks_blocked()
    assert flushed == []
    assert table.rows == []
    table.may_end.set()
    await wait_all_tasks_blocked()
    assert flushed == [True]
    assert table.rows == [{BEN: 1}]


async def test_the_first_is_written_at_once_and_the_rest_once_a_second(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    table = Table()
    table.may_end.set()
    sightings = Sightings(nursery, table.keep, lambda: 7)
    sightings.note(BEN, "here", "place")
    await trio.sleep(0.01)
    assert table.rows == [{BEN: 1}]
    for each in (EVE, BEN, EVE):
        sightings.note(each, "here", "place")
    await trio.sleep(0.9)
    assert len(table.rows) == 1
    await trio.sleep(0.2)
    assert table.rows[1:] == [{BEN: 1, EVE: 2}]
