"""Worlds of many seeds; what found something once stays here as a seed of its own."""

import os
import subprocess
import sys
import time

import pytest

from .plan import draw_plan
from .run import run_world

SEEDS = range(5, 25)
REGRESSIONS = (
    5,  # an entry that contradicts held ones was blamed on the peer who sent it
    115,  # a payload whose entry was refused kept its file open for ever
    129,  # a deadline that fell due was taken for one still to come
    122,
)
SOAK_MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))


@pytest.mark.parametrize("seed", [*SEEDS, *sorted({*REGRESSIONS} - {*SEEDS})])
def test_a_world_keeps_its_invariants_and_settles(seed: int) -> None:
    assert run_world(draw_plan(seed)).steps > 0


def test_the_same_seed_is_the_same_world_whatever_the_hashes_are() -> None:
    """In another process, in which sets and dictionaries of bytes are gone through differently."""
    plan = draw_plan(31)
    script = (
        "from tests.simulation.plan import draw_plan\n"
        "from tests.simulation.run import run_world\n"
        "print(run_world(draw_plan(31)).digest)"
    )
    digests = {run_world(plan).digest}
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, check=True, capture_output=True
        )
        digests.add(done.stdout.decode().strip())
    assert len(digests) == 1


def test_another_seed_is_another_world() -> None:
    assert run_world(draw_plan(1)).digest != run_world(draw_plan(2)).digest


@pytest.mark.long
def test_many_worlds_keep_their_invariants() -> None:
    """As many seeds as fit into SOAK_MINUTES (5 unless set)."""
    until = time.monotonic() + 60 * SOAK_MINUTES
    seed = 1_000_000
    while time.monotonic() < until:
        run_world(draw_plan(seed))
        seed += 1
    assert seed > 1_000_000
