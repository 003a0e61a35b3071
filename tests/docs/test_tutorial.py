"""docs/tutorial.md works as it stands: every command is run and prints what is shown."""

from pathlib import Path

from tests.docs.pages import blocks, page
from tests.docs.tour import Tour


def test_every_command_of_the_page_does_what_it_shows(tmp_path: Path) -> None:
    found = blocks(page("docs/tutorial.md"))
    consoles = [block for block in found if block.info.split(" ")[0] == "console"]
    assert sum(block.text.count("$ ") for block in consoles) >= 30
    with Tour(tmp_path) as tour:
        for block in found:
            tour.follow(block)
