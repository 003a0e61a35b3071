"""Runs worlds and says how to run one again."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from .ageing import Age
from .clock import Clock
from .figures import Figures
from .plan import Plan
from .world import World

SEEDS = range(7, 27)
"""Those of the default tests."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world."""

    seed: int
    steps: int
    virtual_s: float
    digest: str
    reconnected: bool
    """Whether something needed another connection at the end."""
    lies: dict[str, str]
    """The lies that were found out, and the rules that were named."""
    figures: Figures
    age: Age | None
    """Of a life of hours."""


class SimulationFailed(AssertionError):  # noqa: N818 - what a test reports
    """A seed found something. The message says how to see it again."""


def run_world(plan: Plan, *, trace: bool = False) -> Outcome:
    """Runs the world of a plan to its end. Raises SimulationFailed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        World(plan, Path(folder)) as world,
        small_steps(world.clock),
    ):
        world.printing = trace
        try:
            world.run()
        except Exception as error:
            raise SimulationFailed(report(world, error)) from error
        return Outcome(
            plan.seed,
            world.steps,
            world.clock.now,
            world.digest,
            world.reconnected,
            world.lies_found,
            world.figures,
            world.ageing.age(),
        )


def report(world: World, error: Exception, *options: str) -> str:
    """What went wrong, what came before it, and the command that shows it again."""
    plan = world.plan
    return "\n".join(
        (
            f"seed {plan.seed}, step {world.steps}, {world.clock.now:.6f} s: {error!r}",
            *world.lines,
            " ".join((f"again: {replay_command(plan)}", *options)),
        )
    )


def replay_command(plan: Plan) -> str:
    """What runs the same world again."""
    return " ".join((f".venv/bin/python -m tests.simulation --seed {plan.seed}", *plan.options))


@contextmanager
def small_steps(clock: Clock) -> Iterator[None]:
    """Checkpoints and syncs of partial payloads come often, and the time is that of the world."""
    with (
        mock.patch("trio.current_time", clock.read),
        mock.patch("logstore.schema.WAL_PAGES", 12),
        mock.patch("logstore.sink.SYNC_BYTES", 10_000),
    ):
        yield
