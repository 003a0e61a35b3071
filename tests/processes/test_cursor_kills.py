"""A reader by a cursor that is killed at any moment misses nothing (everyday.md 2)."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logstore import Store

ENTRIES = 20_000
READER = (sys.executable, "-m", "peer", "tail", "--cursor", "mine", "--json")


def read_until_killed(store: Path, seconds: float) -> list[int]:
    """The numbers of the whole lines that a reader has passed on before it was killed."""
    with subprocess.Popen((*READER, "--store", str(store)), stdout=subprocess.PIPE) as reader:
        try:
            out, _ = reader.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            reader.send_signal(signal.SIGKILL)
            out, _ = reader.communicate()
    # A line that was cut off is one that nobody could read.
    return [json.loads(line)["seq"] for line in out.split(b"\n")[:-1]]


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.long)])
def test_nothing_is_lost_and_little_comes_twice(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    with Store.create(tmp_path / "store") as store:
        for at in range(0, ENTRIES, 1000):
            store.append([b"%d" % n for n in range(at, at + 1000)])
    seen: list[int] = []
    for _ in range(kills):
        # Python alone takes a third of a second to begin; all of it is read in one more.
        seen += read_until_killed(tmp_path / "store", rng.uniform(0.2, 1.2))
        if seen and max(seen) == ENTRIES:
            with Store.open(tmp_path / "store") as store:
                store.cursors.reset("mine", rng.randrange(ENTRIES))
    with Store.open(tmp_path / "store") as store:
        # On a busy machine none of them may have come so far that it made the cursor.
        position = sum(cursor.position for cursor in store.cursors.all())
    # What was acknowledged was passed on: each entry up to there was read, if no reset passed over.
    assert set(range(1, position + 1)) <= set(seen)
    rest = read_until_killed(tmp_path / "store", 60)
    assert rest == list(range(position + 1, ENTRIES + 1))
