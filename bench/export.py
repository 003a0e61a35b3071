"""How fast a store is exported and analysed, and what it takes.

    python bench/export.py [--entries 1000000] [--logs 1000] [--keep DIR] [--no-spark]

One JSON object per line. Builds a store of small entries in many logs, then: an export (rate, peak
memory, files), a second one after 1,000 more entries, and the same two questions (count, bytes per
author) asked of the Parquet files, of the data source, and of the store by plain Python, side by
side; then the whole pipeline on `local[2]` with its times by stage.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nacl.signing import SigningKey

from bench.support.logs import signed_log
from bench.support.output import report
from bench.support.processes import BAMBOO_PEER, ENVIRONMENT
from logstore import Store
from wire import LogKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

PAYLOAD_BYTES = 256
AUTHORS = 50


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and the result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def build_store(path: Path, entries: int, logs: int) -> None:
    """Logs that grew side by side: their entries arrived in turns of ten."""
    keys = [SigningKey.generate() for _ in range(AUTHORS)]
    each = entries // logs
    with Store.create(path) as store:
        for base in range(0, logs, 50):
            made = {
                LogKey(bytes(keys[n % AUTHORS].verify_key), n): signed_log(
                    keys[n % AUTHORS], n, (os.urandom(PAYLOAD_BYTES) for _ in range(each))
                )
                for n in range(base, min(base + 50, logs))
            }
            for at in range(0, each, 10):
                store.put_many(
                    [(key, log[at : at + 10]) for key, log in made.items()], source="bench"
                )


def run_command(store: Path, *argv: str) -> tuple[float, int, dict[str, object]]:
    """A command in a process of its own: seconds, peak memory in bytes, its last JSON line."""
    command = [*BAMBOO_PEER, *argv, "--store", str(store), "--json"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    passed = time.perf_counter() - start
    if process.returncode != 0:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return passed, usage.ru_maxrss * 1024, json.loads(out.splitlines()[-1])


def bench_export(store: Path, export: Path, entries: int) -> None:
    """The first export, and one after 1,000 more entries."""
    passed, memory, result = run_command(store, "export", str(export))
    files = sorted(path.stat().st_size for path in export.glob("date=*/*.parquet"))
    report("export", entries / passed, "rows/s", seconds=round(passed, 2), rows=result["rows"])
    report("export, peak memory", memory / 1e6, "MB")
    report("export, files", len(files), "files", mean_mb=round(sum(files) / len(files) / 1e6, 1))
    with Store.open(store) as opened:
        opened.append([os.urandom(PAYLOAD_BYTES) for _ in range(1000)])
    passed, memory, result = run_command(store, "export", str(export))
    report("export of 1,000 more", passed, "s", rows=result["rows"], peak_mb=round(memory / 1e6))


def naive_rows(store: Path) -> Iterator[tuple[bytes, int]]:
    """Every entry through the store's Python API."""
    with Store.open(store, readonly=True) as opened:
        for info in opened.logs():
            start = 1
            while rows := opened.read(
                info.key, start, entries_max=1000, bytes_max=1 << 20, with_payload=False
            ):
                for row in rows:
                    yield row.key.author, row.payload_bytes
                start = rows[-1].seq + 1


def count_rows(frame: "Callable[[], DataFrame]") -> int:
    """How many rows there are."""
    return frame().count()


def group_by_author(frame: "Callable[[], DataFrame]") -> "list[Row]":
    """Bytes per author."""
    return frame().groupBy("author").sum("payload_size").collect()


def bench_questions(store: Path, export: Path) -> None:
    """`count` and a group-by, three ways."""
    from analytics import read_export, start_spark

    with start_spark("local[2]", "bamboo-bench") as spark:
        frames = {
            "parquet": lambda: read_export(spark, [export]),
            "data source": lambda: spark.read.format("bamboo").load(str(store)),
            "data source, no payloads": lambda: (
                spark.read.format("bamboo").option("payload", "false").load(str(store))
            ),
        }
        spark.range(1000).count()
        for name, frame in frames.items():
            seconds, count = timed(partial(count_rows, frame))
            report(f"count, {name}", seconds, "s", rows=count)
            seconds, groups = timed(partial(group_by_author, frame))
            report(f"group by author, {name}", seconds, "s", groups=len(groups))  # type: ignore[arg-type]
    seconds, count = timed(lambda: sum(1 for _ in naive_rows(store)))
    report("count, plain Python", seconds, "s", rows=count)

    def group() -> Counter[bytes]:
        sums: Counter[bytes] = Counter()
        for author, size in naive_rows(store):
            sums[author] += size
        return sums

    seconds, sums = timed(group)
    report("group by author, plain Python", seconds, "s", groups=len(sums))  # type: ignore[arg-type]


def bench_pipeline(export: Path, out: Path) -> None:
    """The whole of `analyze`."""
    from analytics import analyze, start_spark

    start = time.perf_counter()
    with start_spark("local[2]", "bamboo-bench") as spark:
        for stage in analyze(spark, [export], out):
            report(f"analyze: {stage.name}", stage.seconds, "s", **stage.summary)
    report("analyze", time.perf_counter() - start, "s")


@contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """Where everything is made."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        yield Path(name)


def main() -> int:
    """Runs what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--logs", type=int, default=1_000)
    parser.add_argument("--keep", type=Path, help="use and keep what is in this directory")
    parser.add_argument("--no-spark", action="store_true")
    arguments = parser.parse_args()
    with folder(arguments.keep) as path:
        store, export = path / "store", path / "export"
        if not store.exists():
            seconds, _ = timed(lambda: build_store(store, arguments.entries, arguments.logs))
            report("store built", arguments.entries / seconds, "entries/s")
        if not export.exists():
            bench_export(store, export, arguments.entries)
        if not arguments.no_spark:
            bench_questions(store, export)
            bench_pipeline(export, path / "out")
    report("own peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, "MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
