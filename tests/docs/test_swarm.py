"""docs/swarm.md works as it stands: every command is run."""

from pathlib import Path

from tests.docs.pages import blocks, page
from tests.docs.tour import Tour


def test_every_command_of_the_page_does_what_it_shows(tmp_path: Path) -> None:
    found = blocks(page("docs/swarm.md"))
    assert len(found) == 12
    with Tour(tmp_path) as tour:
        for block in found:
            tour.follow(block)
