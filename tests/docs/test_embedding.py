"""docs/embedding.md works as it stands: every program is run and prints what is shown."""

from collections.abc import Mapping
from pathlib import Path

import trio

from logstore import Store
from peer.api import NodeConfig, Peer
from tests.docs.pages import blocks, page, table
from tests.docs.tour import Tour
from wire import LogKey

PATIENCE_S = 30


def test_every_program_of_the_page_does_what_it_shows(tmp_path: Path) -> None:
    found = blocks(page("docs/embedding.md"))
    assert len(found) == 16
    with Tour(tmp_path) as tour:
        for block in found:
            tour.follow(block)


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
