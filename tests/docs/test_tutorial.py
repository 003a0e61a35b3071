"""README.md and docs/tutorial.md work as they stand: each command prints what is shown."""

from pathlib import Path

import pytest

from tests.docs.pages import blocks, page
from tests.docs.tour import Tour


@pytest.mark.parametrize(("name", "commands"), [("README.md", 6), ("docs/tutorial.md", 30)])
def test_every_command_of_the_page_does_what_it_shows(
    name: str, commands: int, tmp_path: Path
) -> None:
    found = blocks(page(name))
    consoles = [block for block in found if block.info.split(" ")[0] == "console"]
    assert sum(block.text.count("$ ") for block in consoles) >= commands
    with Tour(tmp_path) as tour:
        for block in found:
            tour.follow(block)


def test_the_readme_names_two_commands_to_begin_with() -> None:
    lines = page("README.md").splitlines()
    assert [line.strip() for line in lines if line.startswith("    make ")] == [
        "make demo",
        "make test",
    ]
