"""Processes that benchmarks start: the program itself, and roles of a benchmark's own file."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BAMBOO_PEER = (sys.executable, "-c", "from bamboo_cli import main; raise SystemExit(main())")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
"""The checkout that the benchmark stands in is what its processes run."""


def play_role(roles: Mapping[str, Callable[..., None]]) -> bool:
    """Whether the command line named a role of this file; it has been played then."""
    if len(sys.argv) < 2 or sys.argv[1] not in roles:
        return False
    roles[sys.argv[1]](*sys.argv[2:])
    return True


def start(*arguments: str | int) -> subprocess.Popen[str]:
    """The benchmark's own file once more, in a role."""
    return subprocess.Popen(
        [sys.executable, sys.argv[0], *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


@contextmanager
def running(*arguments: str | int) -> Iterator[subprocess.Popen[str]]:
    """As `start`; it is killed in the end, whatever has come in between."""
    process = start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def read_record(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it shows next."""
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def tell(process: subprocess.Popen[str], word: str) -> None:
    """One line to its standard input."""
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def descendants(pid: int) -> dict[int, str]:
    """Processes that one has started, and those that they have: their command lines."""
    below: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        below.setdefault(parent, []).append(int(path.parent.name))
        commands[int(path.parent.name)] = command
    found, waiting = {}, [pid]
    while waiting:
        for child in below.get(waiting.pop(), []):
            found[child] = commands[child]
            waiting.append(child)
    return found


def used_cpu_s(pid: int) -> float:
    """Seconds of cores that a process and its descendants have used, ended ones included."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime, stime, and those of children that were waited for.
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had so far; 0 if it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
