"""What the processes of a campaign have acknowledged, each in a file of its own.

A line is written with one `write` before and after whatever matters. A process that is killed loses
none that was written, and at most tears its last one. The clock is that of the machine since it was
started, the same for all processes.
"""

import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOREVER: Final = 1 << 62

Name = tuple[str, int, int]
"""An entry: author in hex, log id, number."""


def content(seed: int, size: int) -> bytes:
    """A payload that can be made again."""
    return random.Random(seed).randbytes(size)


class Ledger:
    """What one process writes down."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.note("start")

    def note(self, kind: str, **fields: object) -> int:
        """Writes a line; returns when."""
        now = time.monotonic_ns()
        line = json.dumps({"kind": kind, "at": now} | fields)
        # The line feed before it ends what a process that was killed has torn.
        os.write(self._fd, f"\n{line}\n".encode())
        return now


@dataclass(frozen=True, slots=True)
class Promise:
    """A payload that was acknowledged: which, and its seed and size."""

    name: Name
    seed: int
    size: int
    begun: int
    """When that began: a drop that ended earlier has not taken it."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop of a range, which may have taken anything until it ended."""

    author: str
    log_id: int
    first: int
    last: int
    ended: int


@dataclass
class Ledgers:
    """All that was written down so far."""

    promises: list[Promise]
    drops: list[Drop]
    faults: list[str]
    counts: dict[str, int]

    def may_be_gone(self, promise: Promise) -> bool:
        """Whether somebody may have dropped it."""
        author, log_id, seq = promise.name
        return any(
            (drop.author, drop.log_id) == (author, log_id)
            and drop.first <= seq <= drop.last
            and drop.ended >= promise.begun
            for drop in self.drops
        )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def read_ledgers(folder: Path) -> Ledgers:
    """Reads what all processes have written so far."""
    found = Ledgers([], [], [], {})
    for path in sorted(folder.glob("*.ledger")):
        open_drop: dict[str, Any] | None = None
        for line in _lines(path):
            kind, at = line["kind"], line["at"]
            found.counts[kind] = found.counts.get(kind, 0) + 1
            if open_drop is not None:
                # Whatever the same file says next, the drop has ended, be it with its process.
                found.drops.append(_drop(open_drop, at))
                open_drop = None
            if kind == "drop":
                open_drop = line
            elif kind in {"appended", "fetched"}:
                found.promises += [
                    Promise((line["author"], line["log"], seq), seed, size, line["begun"])
                    for seq, seed, size in line["payloads"]
                ]
            elif kind == "fault":
                found.faults.append(f"{path.stem}: {line['what']}")
        if open_drop is not None:
            found.drops.append(_drop(open_drop, FOREVER))
    return found


def _drop(line: dict[str, Any], ended: int) -> Drop:
    return Drop(line["author"], line["log"], line["first"], line["last"], ended)
