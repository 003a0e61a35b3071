"""Runs a fuzz target: a function that takes any bytes and fails if its one invariant does.

    python -m fuzz.wire_control                           # seeded mutations, 20,000 runs
    python -m fuzz.wire_control --runs 1000 --seed 7      # the same 1,000 runs every time
    python -m fuzz.wire_control --atheris -runs=1000000   # guided by coverage, if atheris is there

A target's module has `check(data)` and `CORPUS`, whole inputs to begin with. Without atheris,
inputs are made from those by a few random changes each; a failing one is printed in hex, and
`--input <hex>` runs it alone.
"""

import argparse
import importlib
import random
import sys
from collections.abc import Callable, Sequence

Check = Callable[[bytes], None]

# Bytes at which formats branch: lengths of VarU64 and LZFoo, flags, tags, the yamf prefix.
_TELLING = bytes.fromhex("00 01 02 40 77 78 7f 80 81 f7 f8 f9 ff 08 09 20")
_CHANGES_MAX = 6
_INPUT_BYTES_MAX = 4096


def mutate(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """An input from the corpus, or several joined, with a few changes."""
    data = bytearray(b"".join(rng.choices(corpus, k=rng.choice((1, 1, 1, 2, 3)))))
    for _ in range(rng.randrange(_CHANGES_MAX)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice(_TELLING)
            case 2:
                data[at:at] = bytes(rng.choices(_TELLING, k=rng.randrange(1, 10)))
            case 3:
                del data[at : at + rng.randrange(1, 20)]
            case 4:
                data[at:at] = rng.choice(corpus)
            case _:
                del data[at:]
    return bytes(data[:_INPUT_BYTES_MAX])


def run_seeded(check: Check, corpus: Sequence[bytes], *, runs: int, seed: int) -> None:
    """Runs `check` on the corpus and on `runs` mutations of it, the same ones for a seed."""
    rng = random.Random(seed)
    for data in corpus:
        check_loudly(check, data)
    for _ in range(runs):
        check_loudly(check, mutate(rng, corpus))


def check_loudly(check: Check, data: bytes) -> None:
    """Runs `check`, and shows the input that it fails on."""
    try:
        check(data)
    except BaseException:
        print(f"failed on --input {data.hex()}", file=sys.stderr)
        raise


def main(check: Check, corpus: Sequence[bytes]) -> None:
    """The command line of every target."""
    parser = argparse.ArgumentParser(description="fuzzes one invariant")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", help="hex of the one input to run")
    parser.add_argument("--atheris", action="store_true", help="what follows is for atheris")
    options, rest = parser.parse_known_args()
    if options.atheris:
        # No dependency: most people, and every test, run the seeded loop.
        atheris = importlib.import_module("atheris")
        atheris.instrument_all()
        atheris.Setup([sys.argv[0], *rest], check)
        atheris.Fuzz()
    elif options.input is not None:
        check(bytes.fromhex(options.input))
    else:
        run_seeded(check, corpus, runs=options.runs, seed=options.seed)
        print(f"{options.runs} runs with seed {options.seed}: no failure")
