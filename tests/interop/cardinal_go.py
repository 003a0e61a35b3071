"""Upstream's own producer and consumer of Cardinal streams: a Go program of ours on its source.

    CARDINAL_UPSTREAM=FOLDER python -m tests.interop.cardinal_go

builds it, which takes a minute the first time and no time after that: FOLDER has upstream's source,
which is no module that Go could fetch; what that needs comes from where Go is set to. Where there
is no Go, or no folder is named, it says so and is content: who needs the program is left out then.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "cardinal"
BUILT = SOURCE / "build"
PROGRAM = BUILT / "cardinal"
FOLDER = "CARDINAL_UPSTREAM"
UPSTREAM = "github.com/openrelayxyz/cardinal-streams/v2"
PATIENCE_S = 300

Line = dict[str, Any]


class UpstreamFailed(Exception):  # noqa: N818 - what happened to it
    """Upstream's program has ended with an error; the text is what it said."""


def build(folder: Path) -> None:
    """Builds the program on upstream's source in `folder`. Raises CalledProcessError."""
    BUILT.mkdir(exist_ok=True)
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(SOURCE / name, BUILT / name)
    replaced = f"-replace={UPSTREAM}={folder.absolute()}"
    for arguments in (
        ("mod", "edit", replaced, BUILT / "go.mod"),
        ("build", f"-modfile={BUILT / 'go.mod'}", "-o", PROGRAM, "."),
    ):
        subprocess.run(["go", *arguments], cwd=SOURCE, check=True)


def produce(lines: Iterable[Line], default: str, patterns: Iterable[Sequence[str]]) -> list[Line]:
    """The messages that upstream makes of blocks. Raises UpstreamFailed."""
    return _lines(_run(lines, "produce", *_topics(default, patterns)).stdout)


def time_producing(lines: Iterable[Line], default: str, patterns: Iterable[Sequence[str]]) -> Line:
    """How many `messages` upstream makes of so many `blocks` in how many `seconds`, in memory."""
    return _report(_run(lines, "produce", "-time", *_topics(default, patterns)))


def consume(
    messages: Iterable[Line],
    number: int,
    hash_: bytes,
    weight: int,
    threshold: int,
    tracked: Iterable[str] = (),
) -> list[Line]:
    """The updates that upstream's consumer makes of messages. Raises UpstreamFailed."""
    options = (each for pattern in tracked for each in ("-track", pattern))
    done = _run(messages, "consume", *options, number, hash_.hex(), weight, threshold)
    return _lines(done.stdout)


def time_consuming(
    messages: Iterable[Line], number: int, hash_: bytes, weight: int, threshold: int
) -> Line:
    """How many `blocks` upstream adds of so many `messages` in how many `seconds`, in memory."""
    return _report(_run(messages, "consume", "-time", number, hash_.hex(), weight, threshold))


def _topics(default: str, patterns: Iterable[Sequence[str]]) -> list[str]:
    return [default, *(f"{pattern}={topic}" for pattern, topic in patterns)]


def _lines(text: str) -> list[Line]:
    return [json.loads(each) for each in text.splitlines()]


def _report(done: "subprocess.CompletedProcess[str]") -> Line:
    # What upstream warns of stands before it.
    found: Line = json.loads(done.stderr.splitlines()[-1])
    return found


def _run(lines: Iterable[Line], *arguments: object) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [str(PROGRAM), *map(str, arguments)],
        input="".join(json.dumps(each) + "\n" for each in lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if done.returncode:
        raise UpstreamFailed(done.stderr)
    return done


def main() -> None:
    """Builds it where that is possible."""
    folder = os.environ.get(FOLDER, "")
    if shutil.which("go") is None:
        missing = "there is no Go here"
    elif not folder:
        missing = f"{FOLDER} names no folder"
    else:
        build(Path(folder))
        return
    sys.stdout.write(f"upstream's Cardinal streams are left out: {missing}\n")


if __name__ == "__main__":
    main()
