"""docs/embedding.md works as it stands: every program is run and prints what is shown."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from logstore import Store
from peer.api import NodeConfig, Peer
from peer.blocking import Peer as BlockingPeer
from peer.bridge import THREAD_NAME
from tests.docs.pages import blocks, blocks_of, page, table
from tests.docs.tour import Tour
from wire import LogKey

PATIENCE_S = 30
CELL = "python cell"


def test_every_program_of_the_page_does_what_it_shows(tmp_path: Path) -> None:
    found = [block for block in blocks(page("docs/embedding.md")) if block.info != CELL]
    assert len(found) == 22
    with Tour(tmp_path) as tour:
        for block in found:
            tour.follow(block)


def test_a_node_lives_from_cell_to_cell_of_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    cells = blocks_of(page("docs/embedding.md"), CELL)
    assert len(cells) == 3
    names: dict[str, Any] = {}

    async def kernel() -> None:
        """Runs each cell as one turn of a loop that runs all the time, as a kernel does."""
        for cell in cells[:-1]:
            exec(compile(cell, "a cell", "exec"), names)
            await asyncio.sleep(0)
        with Store.memory() as other, BlockingPeer(other) as guest:
            guest.follow(names["store"].author)
            guest.connect(names["address"])
            assert next(guest.entries()).payload == b"from a cell"
        exec(compile(cells[-1], "a cell", "exec"), names)

    asyncio.run(kernel())
    assert capsys.readouterr().out == "1 b'from a cell'\n"
    assert not [each for each in threading.enumerate() if each.name == THREAD_NAME]


async def test_every_event_has_the_fields_that_the_page_names() -> None:
    events: list[Mapping[str, object]] = []
    config = NodeConfig(workers=0)
    with trio.fail_after(PATIENCE_S), Store.memory() as mine, Store.memory() as yours:
        async with (
            Peer(mine, config=config, observer=events.append) as writer,
            Peer(yours, config=config, observer=events.append) as reader,
        ):
            await reader.follow(mine.author)
            reader.connect(await writer.listen())
            await writer.append([b"hello"])
            await reader.wait_for(LogKey(mine.author, 0), 1)
    rows = table(page("docs/embedding.md"), "event").rows
    fields = {name: row[1] for row in rows for name in row[0].replace("`", "").split(", ")}
    assert {event["event"] for event in events} == {
        *("listening", "connected", "log_advanced", "disconnected"),
    }
    for event in events:
        shown = fields[str(event["event"])].split(", and")[0]
        assert set(shown.replace("`", "").split(", ")) <= event.keys()
