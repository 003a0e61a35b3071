"""Two nodes at a distance: how full a pipe of 100 ms and 100 Mbit/s is, and how soon.

    python bench/delay.py [--rounds N] [--only WORD]... [--near]

One process with full logs and one that follows them, both stores on disk, and the pipe between them
(bench/support/pipe.py). One JSON line for each workload, the median of its rounds: megabytes a
second that went through the pipe from 2 s after the call until the last byte, as a share of its
rate; the time until all was verified and durable; and the time until the first entry was, in round
trips, TCP's handshake included. `--near` does the same without the pipe: where that is no faster,
it is no window that holds the nodes up. What the protocol alone needs is counted by
tests/peer_node/test_far.py, in virtual time.
"""

import argparse
import statistics
from functools import partial

from bench import suite
from bench.support.output import show
from bench.support.pipe import LONG
from bench.support.processes import play_role
from bench.support.records import Figures

WORKLOADS = {
    "one small entry": suite.Size(1, 100),
    "payloads of 1 MiB": suite.Size(64, suite.MIB),
    "entries of 256 bytes": suite.Size(100_000, 256),
    "1,000 logs of 20 entries of 256 bytes": suite.Size(20, 256, logs=1000),
    "1,000 logs of 20 entries of 4 KiB": suite.Size(20, 4096, logs=1000),
}


def main() -> None:
    if play_role(suite.ROLES):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="workloads with this word")
    parser.add_argument("--near", action="store_true", help="without the pipe")
    args = parser.parse_args()
    for name, size in WORKLOADS.items():
        if not args.only or any(word in name for word in args.only):
            measure(name, size, args.rounds, far=not args.near)


def measure(name: str, size: suite.Size, rounds: int, *, far: bool) -> None:
    """One line."""
    figures = [suite.replica(size, far=far) for _ in range(rounds)]
    median = partial(median_of, figures)
    record: dict[str, object] = {
        "name": name,
        "far": far,
        "seconds": round(median("seconds"), 2),
        "mb_per_s": round(median("mb_per_s"), 2),
        "cpu_us": round(median("cpu_us")),
    }
    if far:
        record["first_round_trips"] = round(median("first_round_trips"), 2)
        if rate := median("pipe_mb_per_s"):
            record["share"] = round(rate / (LONG.bytes_per_s / 1e6), 3)
    show(record)


def median_of(figures: list[Figures], name: str) -> float:
    return statistics.median(each[name] for each in figures)


if __name__ == "__main__":
    main()
