"""`put` and `tail` ended by kill -9 at any moment, and a disk that is full for a while."""

import json
import random
import signal
import time
from pathlib import Path

import pytest

from gateways.cardinal.side import FILE_NAME
from tests.processes.node import init, records, run

from .test_cardinal_cli import TOPICS, h
from .test_cardinal_scenes import Chain, block, command


def lines() -> list[bytes]:
    """A chain of 30, taken back to 10 by a channel, and 20 other ones."""
    found = [block(number, h(number - 1)) for number in range(1, 31)]
    found.append(json.dumps({"reorg": {"number": 10, "hash": h(10)}}).encode() + b"\n")
    for number in range(11, 31):
        parent = h(10) if number == 11 else h(("new", number - 1))
        found.append(block(number, parent, ("new", number), number))
    found.append(b'{"reorg_done": true}\n')
    found += [block(number, h(("new", number - 1)), ("new", number)) for number in range(31, 41)]
    return found


EXPECTED = [h(n) for n in range(1, 11)] + [h(("new", n)) for n in range(11, 41)]


def put_some(store: Path, waiting: list[bytes], rng: random.Random) -> int:
    """Feeds lines to a process that is killed; how many it has said to be on disk."""
    with command(store, "put", "demo") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = 0
        for line in waiting[: rng.randrange(1, 12)]:
            process.stdin.write(line)
            process.stdin.flush()
            if rng.random() < 0.7:
                assert process.stdout.readline()
                said += 1
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        return said + len(rest.splitlines())


def is_written(store: Path, line: bytes) -> bool:
    """Whether a line whose answer was not read had been written all the same."""
    fields = json.loads(line)
    if "reorg_done" in fields:
        return any(each["state"] == "ended" for each in records(store, "logs"))
    return False


@pytest.mark.parametrize("seed", range(2))
def test_what_was_said_to_be_written_is_there_and_nothing_twice(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = tmp_path / "store"
    init(store)
    run(store, "cardinal", "create", "demo", *TOPICS)
    waiting = lines()
    state = tmp_path / "state"
    chain = Chain()
    while waiting:
        del waiting[: put_some(store, waiting, rng)]
        if waiting and is_written(store, waiting[0]):
            del waiting[0]
        # Whoever reads along is killed, too, or its table is.
        if rng.random() < 0.3:
            (store / FILE_NAME).unlink(missing_ok=True)
        with command(store, "tail", "demo", "--once", "--no-values") as process:
            time.sleep(rng.random() * 0.6)
            process.send_signal(signal.SIGKILL)
        if rng.random() < 0.5:
            tail = ("cardinal", "tail", "demo", "--once", "--no-values", "--state", str(state))
            chain.read(run(store, "--json", *tail).encode())
    tail = ("cardinal", "tail", "demo", "--once", "--no-values", "--state", str(state))
    chain.read(run(store, "--json", *tail).encode())
    assert chain.hashes == EXPECTED
    run(store, "verify")
    events = records(store, "cardinal", "tail", "demo", "--once", "--no-values")
    assert [each["event"] for each in events].count("reorg") == 1
    fresh = Chain()
    fresh.read("\n".join(map(json.dumps, events)).encode())
    assert fresh.hashes == EXPECTED
