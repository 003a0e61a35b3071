"""Runs simulated worlds: one seed again, or many new ones."""

# ruff: noqa: T201 - a program for the terminal
import argparse
import sys
import time
from pathlib import Path

from . import restoring
from .figures import line_of
from .plan import TROUBLES, draw_plan
from .run import SimulationFailed, run_world


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed, or the only one")
    parser.add_argument("--runs", type=int, default=None, help="how many seeds (default 1)")
    parser.add_argument("--minutes", type=float, default=None, help="as many seeds as fit")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--nodes", type=int, default=None, help="at most so many nodes")
    parser.add_argument("--events", type=int, default=None, help="so many events")
    parser.add_argument("--hours", type=int, default=0, help="it lives so long, with strangers")
    parser.add_argument("--without", action="append", default=[], choices=TROUBLES)
    parser.add_argument("--only", action="append", default=[], choices=TROUBLES)
    parser.add_argument("--keep-going", action="store_true", help="do not end at a failure")
    parser.add_argument(
        "--restores", action="store_true", help="stores are put back (restoring.py)"
    )
    parser.add_argument("--figures", type=Path, help="writes what each world costs (figures.py)")
    options = parser.parse_args()
    restored = restoring.Outcome()
    seed, steps, virtual_s, failures = options.seed, 0, 0.0, 0
    lies: dict[str, str] = {}
    began = time.monotonic()
    while True:
        plan = draw_plan(
            seed,
            nodes=options.nodes,
            events=options.events,
            without=tuple(options.without),
            only=tuple(options.only),
            hours=options.hours,
        )
        try:
            if options.restores:
                restored.add(restoring.run_restoring(plan, trace=options.trace))
                outcome = None
            else:
                outcome = run_world(plan, trace=options.trace)
        except SimulationFailed as failed:
            failures += 1
            print(failed)
            if not options.keep_going:
                return 1
        else:
            if outcome is not None:
                steps += outcome.steps
                virtual_s += outcome.virtual_s
                lies |= outcome.lies
                if outcome.age is not None:
                    print(f"seed {seed}: {outcome.age}")
                if options.figures is not None:
                    with options.figures.open("a") as file:
                        print(line_of(seed, outcome.figures), file=file)
        seed += 1
        done = seed - options.seed
        elapsed_s = time.monotonic() - began
        if options.minutes is not None and elapsed_s >= 60 * options.minutes:
            break
        if options.minutes is None and done >= (options.runs or 1):
            break
    print(
        f"{done} worlds, {failures} failed, {steps} steps, {virtual_s:.0f} virtual seconds,"
        f" {elapsed_s:.1f} s, {steps / elapsed_s:.0f} steps a second"
    )
    if options.restores:
        print(restored)
    for lie, rule in sorted(lies.items()):
        print(f"found out: {lie} ({rule})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
