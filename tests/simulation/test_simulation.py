"""Worlds of many seeds; what found something once stays here as a seed of its own."""

import os
import subprocess
import sys
import time
from itertools import count

import pytest

from tests.records import replace

from .lies import CONTROL_LIES, DATA_LIES
from .plan import DOORS, WISHES, draw_plan
from .restoring import Outcome, run_restoring
from .run import SEEDS, SimulationFailed, replay_command, run_world

FOUND_SOMETHING = (
    *(30, 40, 5290, 31310, 70263, 140050, 140562, 140572, 190233, 260574, 270989, 300128, 310035),
    1_000_531,
)
"""Seeds whose worlds failed once; what they failed over has tests of its own beside the code."""

FOUND_IN_LARGE_WORLDS = (
    *(4, 748, 3020, 3035, 7153, 7322, 30336, 30623, 31290, 31296, 31531, 50067, 70143, 90034),
    *(1_000_032, 1_000_084, 1_000_527, 70264, 90454, 100370, 100428, 110875, 120011, 130175),
    *(140052, 170678, 171608, 181080, 190105, 200668, 220124, 252090, 260630, 271103, 310098),
    *(330052, 1_002_001, 7_200_063, 34, 71, 99, 541, 830, 1028, 7239, 20298, 70255, 90292, 261282),
    *(29, 64, 85, 20089, 20345, 30556, 30704, 31491, 50363, 60313, 70146, 100016, 230461, 270810),
    1_030_448,
)
"""The same, of worlds that take longer than all tests of such a fault together."""

FOUND_WITH_DOORS = (500029, 500076, 510138, 510143, 860_340, 870_333, 96_040_023)
"""Seeds of worlds with scopes, removals or quotas that failed once."""

FOUND_IN_LARGE_WORLDS_WITH_DOORS = (
    *(510129, 510263, 520119, 92_000_029, 96_580_007),
    *(820_405, 840_041, 850_493, 95_520_016, 102_640_011, 104_080_019),
)

FOUND_WITH_ALL = (41_309, 52_099)
"""Seeds of worlds with every kind of trouble."""

LARGE_AMONG_THE_FIRST = frozenset({13, 16, 20, 24})
"""Of the first seeds, those whose worlds take a third of the time of all."""

SOAK_MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))

LARGE = [pytest.param(seed, marks=pytest.mark.long) for seed in FOUND_IN_LARGE_WORLDS]

LARGE_WITH_DOORS = [
    pytest.param(seed, marks=pytest.mark.long) for seed in FOUND_IN_LARGE_WORLDS_WITH_DOORS
]

LARGE_AMONG = [pytest.param(seed, marks=pytest.mark.long) for seed in sorted(LARGE_AMONG_THE_FIRST)]

FIRST = [seed for seed in SEEDS if seed not in LARGE_AMONG_THE_FIRST]


@pytest.mark.parametrize("seed", [*FIRST, *FOUND_WITH_ALL, *LARGE_AMONG])
def test_a_world_keeps_its_invariants_and_settles(seed: int) -> None:
    assert run_world(draw_plan(seed)).steps > 0


@pytest.mark.parametrize("seed", [*FOUND_WITH_DOORS, *LARGE_WITH_DOORS])
def test_a_world_with_doors_that_found_something_is_what_it_was(seed: int) -> None:
    assert run_world(draw_plan(seed, without=WISHES)).steps > 0


@pytest.mark.parametrize("seed", [*FOUND_SOMETHING, *LARGE])
def test_a_world_that_found_something_is_what_it_was(seed: int) -> None:
    """They are older than the newest kinds of trouble, and other worlds with these."""
    assert run_world(draw_plan(seed, without=(*DOORS, *WISHES))).steps > 0


@pytest.mark.parametrize("seed", [31, 47])
def test_the_same_seed_is_the_same_world_whatever_the_hashes_are(seed: int) -> None:
    """In another process, in which sets and dictionaries of bytes are gone through differently."""
    script = (
        "from tests.simulation.plan import draw_plan\n"
        "from tests.simulation.run import run_world\n"
        f"print(run_world(draw_plan({seed}, nodes=4, events=10)).digest)"
    )
    digests = {run_world(draw_plan(seed, nodes=4, events=10)).digest}
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, check=True, capture_output=True
        )
        digests.add(done.stdout.decode().strip())
    assert len(digests) == 1


def test_another_seed_is_another_world() -> None:
    assert run_world(draw_plan(7)).digest != run_world(draw_plan(23)).digest


def test_what_made_a_world_smaller_is_part_of_the_command_that_shows_it_again() -> None:
    plan = draw_plan(3, nodes=2, without=("cuts", "kills"))
    options = "--seed 3 --nodes 2 --without cuts --without kills"
    assert replay_command(plan).endswith(f"-m tests.simulation {options}")
    assert replay_command(draw_plan(3, only=("appends",))).endswith("--seed 3 --only appends")


@pytest.mark.parametrize("seed", [3, 8, 800498, 5000008, 5000022, 5000032, 5000047])
def test_a_store_that_is_put_back_signs_nothing_twice(seed: int) -> None:
    """The last five have found something."""
    assert run_restoring(draw_plan(seed)).restores > 0


@pytest.mark.long
def test_stores_that_are_put_back_sign_nothing_twice() -> None:
    """As many seeds as fit into SOAK_MINUTES."""
    until = time.monotonic() + 60 * SOAK_MINUTES
    seeds = count(time.time_ns() // 10**9 * 1000)
    counted = Outcome()
    while time.monotonic() < until:
        counted.add(run_restoring(draw_plan(next(seeds))))
    assert counted.behind > 0


@pytest.mark.long
def test_many_worlds_keep_their_invariants() -> None:
    """As many seeds as fit into SOAK_MINUTES (5 unless set); all failures are told at the end."""
    until = time.monotonic() + 60 * SOAK_MINUTES
    failures = []
    for seed in count(1_000_000):
        if time.monotonic() >= until:
            break
        try:
            run_world(draw_plan(seed))
        except SimulationFailed as failed:
            failures.append(str(failed))
    assert not failures, "\n\n".join(failures)


@pytest.mark.long
def test_each_lie_is_told_and_found_out() -> None:
    """In 300 worlds of nothing but appends and lies, every kind that can be said is said."""
    found: set[str] = set()
    for seed in range(300):
        plan = draw_plan(seed)
        troubles = ("appends", "lies", "lies", "lies")
        found |= run_world(replace(plan, troubles=troubles, split=True)).lies.keys()
    assert found == {*CONTROL_LIES, *DATA_LIES}
