"""What a world costs, and the same worlds under two versions of the code side by side.

A seed is not the same world for both: delays are drawn as jobs come. So sums and quantiles over
many worlds are compared, never one world with another.
"""

# ruff: noqa: T201 - a program for the terminal
import argparse
import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

QUANTILES = (50, 95, 100)


@dataclass(slots=True)
class Figures:
    """Counts over all nodes of one world.

    `payload_bytes`: bytes of the data channel that came, whatever became of them; `rest_s`:
    virtual seconds from the end of the trouble until everyone had everything.
    """

    proposals: int = 0
    look_ups: int = 0
    payload_bytes: int = 0
    rest_s: float = 0.0


def compare(before: list[Figures], after: list[Figures]) -> list[str]:
    """A table in lines: for each figure sum and quantiles of both, and the second by the first."""
    lines = [f"{len(before)} worlds before, {len(after)} after"]
    for field in fields(Figures):
        values = [
            sorted(float(getattr(each, field.name)) for each in one) for one in (before, after)
        ]
        rows = [("sum", sum(values[0]), sum(values[1]))]
        rows += [
            (f"{share} %", _quantile(values[0], share), _quantile(values[1], share))
            for share in QUANTILES
        ]
        for name, old, new in rows:
            ratio = f"{new / old:.3f}" if old else "-"
            lines.append(f"{field.name:14} {name:>6} {old:14.1f} {new:14.1f} {ratio:>8}")
    return lines


def _quantile(ascending: list[float], share: int) -> float:
    if not ascending:
        return 0.0
    return ascending[min(len(ascending) - 1, len(ascending) * share // 100)]


def line_of(seed: int, figures: Figures) -> str:
    """One world as a line of a file that `read` takes."""
    return json.dumps({"seed": seed, **asdict(figures)})


def read(path: Path) -> dict[int, Figures]:
    """The worlds of a file by their seeds."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row.pop("seed"): Figures(**row) for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.figures", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    before, after = read(options.before), read(options.after)
    both = sorted(before.keys() & after.keys())
    print("\n".join(compare([before[s] for s in both], [after[s] for s in both])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
