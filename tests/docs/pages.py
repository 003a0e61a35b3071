"""Reads the pages of docs/: fenced blocks with their info strings, and tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\|.*(?:\n\|.*)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: what stands behind the opening fence, and the text between the fences."""

    info: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def page(name: str) -> str:
    """The text of a page, by its path from the top of the repository."""
    return (ROOT / name).read_text("utf-8")


def blocks(text: str) -> list[Block]:
    return [Block(info.strip(), body) for info, body in _FENCE.findall(text)]


def blocks_of(text: str, info: str) -> list[str]:
    """The texts of all blocks with exactly this info string; at least one."""
    found = [block.text for block in blocks(text) if block.info == info]
    assert found, f"no block {info!r}"
    return found


def tables(text: str) -> Iterator[Table]:
    for lines in _TABLE.findall(_FENCE.sub("", text)):
        header, rule, *rows = (
            tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
            for line in lines.splitlines()
        )
        assert all(set(cell) <= set("-: ") for cell in rule), f"no table: {header}"
        yield Table(header, tuple(rows))


def table(text: str, first: str) -> Table:
    """The one table whose first column has this heading."""
    [found] = [each for each in tables(text) if each.header[0] == first]
    return found
