"""How fast exports are audited on Spark, beside what the same cores check without it.

    python bench/audit.py [--rounds 3] [--keep DIR] [--large 1000000] [--payload-gib 2]

One JSON object a line, the best of the rounds; `floor` is what it has to reach. `checks_alone` is
the yardstick of the same round: as many processes as cores, each with its share of the row groups
read, check encodings, signatures, hashes and payloads and do nothing else; `ratio` is ours to that.

- an audit of 100,000 rows in four logs, in a session that has just started, and once it is warm;
- one of 1,000,000 rows in one log, with the share of the cores' time that was used;
- `bamboo-peer analyze` in all, of 12,000 and of 100,000 rows, with its stages;
- `bamboo-peer sql` in all, each view of 12,000 rows and of the one log;
- two executors of a standalone cluster against one, each with a core;
- peak memory of a cluster's worker, executor and Pythons, with payloads of 1 MiB (`--payload-gib`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from nacl.signing import SigningKey

from bench.support.logs import signed_log
from bench.support.output import report
from bench.support.processes import (
    BAMBOO_PEER,
    ENVIRONMENT,
    descendants,
    peak_bytes,
    play_role,
    read_record,
    start,
    tell,
    used_cpu_s,
)
from logstore import Store
from wire import LogKey

CORES = 2
LOOK_S = 0.1
MASTER = f"local[{CORES}]"
PAYLOAD_BYTES = 100
SMALL = (3_000, 3_000, 3_000, 3_000)
MIDDLE = (85_000, 5_000, 5_000, 5_000)
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}


def main() -> int:
    """Runs what the arguments ask for."""
    if play_role({"check": check, "session": session}):
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="use and keep the exports in this directory")
    parser.add_argument(
        "--large", type=int, default=1_000_000, help="rows of the log that is alone"
    )
    parser.add_argument("--payload-gib", type=float, default=2.0)
    args = parser.parse_args()
    with folder(args.keep) as path:
        small, middle = export_of(path, "12k", SMALL), export_of(path, "100k", MIDDLE)
        bench_analyze(small, args.rounds, floor=6)
        audits = bench_analyze(middle, args.rounds, floor=12)
        bench_audit(middle, args.rounds, audits)
        large = export_of(path, "large", (args.large,))
        bench_one_log(large, args.rounds)
        bench_sql(small, args.rounds, floor=1)
        bench_sql(large, args.rounds, floor=10)
        bench_executors(middle, args.rounds)
        if args.payload_gib:
            bench_memory(payload_export(path, args.payload_gib))
    return 0


@contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """Where everything is made."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        yield Path(name)


def export_of(path: Path, name: str, logs: Sequence[int]) -> Path:
    """An export of logs of so many entries, made by the program itself."""
    root = path / name
    if not root.exists():
        with Store.create(path / f"{name}-store") as store:
            for log_id, count in enumerate(logs):
                key = SigningKey.generate()
                payloads = (os.urandom(PAYLOAD_BYTES) for _ in range(count))
                made = signed_log(key, log_id, payloads)
                log = LogKey(bytes(key.verify_key), log_id)
                for at in range(0, count, 1000):
                    store.put_entries(log, made[at : at + 1000], source="bench")
        run("export", root, "--store", path / f"{name}-store")
    return root


def payload_export(path: Path, gib: float) -> Path:
    """An export whose payload column has so many GiB, a MiB in each row."""
    root = path / "payloads"
    if not root.exists():
        with Store.create(path / "payloads-store") as store:
            for _ in range(round(gib * 64)):
                store.append([os.urandom(1 << 20) for _ in range(16)])
        run("export", root, "--store", path / "payloads-store")
    return root


def run(*argv: str | Path) -> tuple[float, list[dict[str, Any]]]:
    """A command in a process of its own: seconds, and its lines."""
    began = time.perf_counter()
    command = [*BAMBOO_PEER, *map(str, argv), "--json"]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=False)
    passed = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"{argv} ended with {done.returncode}")
    return passed, [json.loads(line) for line in done.stdout.splitlines()]


def rows_of(root: Path) -> int:
    """How many rows an export has."""
    return sum(pq.read_metadata(path).num_rows for path in root.glob("date=*/*.parquet"))


def bench_analyze(root: Path, rounds: int, floor: float) -> list[float]:
    """`analyze` in all; the seconds of the audit in each round."""
    with tempfile.TemporaryDirectory() as out:
        found = [run("analyze", root, "--to", out, "--master", MASTER) for _ in range(rounds)]
    best, stages = min(found, key=lambda each: each[0])
    seconds = {stage["stage"]: stage["seconds"] for stage in stages}
    report(f"analyze, {rows_of(root):,} rows", best, "s", floor=floor, **seconds)
    return [lines[0]["seconds"] for _, lines in found]


QUESTIONS = {
    "entries": "SELECT count(*), sum(payload_size) FROM entries",
    "entries_latest": "SELECT count(*), sum(payload_size) FROM entries_latest",
    "logs": "SELECT * FROM logs",
    "forks": "SELECT * FROM forks",
}


def bench_sql(root: Path, rounds: int, floor: float) -> None:
    """Each view of `sql`, in processes of their own."""
    for view, question in QUESTIONS.items():
        best = min(run("sql", root, question)[0] for _ in range(rounds))
        report(f"sql, {view}, {rows_of(root):,} rows", best, "s", floor=floor)


def bench_audit(root: Path, rounds: int, cold: Sequence[float]) -> None:
    """The audit of a session that has just started, and of one that is warm."""
    rows, alone = rows_of(root), []
    warm: list[dict[str, float]] = []
    for _ in range(rounds):
        alone.append(checks_alone(root))
        warm.append(run_session(MASTER, root, runs=6))
    report(f"audit, {rows:,} rows, cold", min(cold), "s", floor=5)
    best = min(each["seconds"] for each in warm)
    per_s = {"rows_per_s": round(rows / best), "checks_alone": round(max(alone))}
    report(f"audit, {rows:,} rows, warm", best, "s", floor=2, **per_s)


def bench_one_log(root: Path, rounds: int) -> None:
    """One log alone: the audit after a first, and how busy the cores are."""
    rows, found = rows_of(root), []
    for _ in range(rounds):
        alone = checks_alone(root)
        found.append(run_session(MASTER, root, runs=2) | {"checks_alone": round(alone)})
    best = min(found, key=lambda each: each["seconds"])
    per_s = rows / best["seconds"]
    report(
        f"audit, {rows:,} rows in one log",
        per_s,
        "rows/s",
        floor=30_000,
        cores_busy=round(best["cpu_s"] / best["seconds"] / CORES, 3),
        cores_busy_floor=0.85,
        cold_rows_per_s=round(rows / best["first_s"]),
        checks_alone=best["checks_alone"],
        ratio=round(per_s / best["checks_alone"], 2),
    )


def bench_executors(root: Path, rounds: int) -> None:
    """One executor and two, of one core each: their second audit, and the first."""
    from tests.analytics.clusters import cluster

    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as work, cluster(Path(work)) as spark:
        for _ in range(rounds):
            for count, times in found.items():
                settings = SETTINGS | {"spark.cores.max": str(count)}
                times.append(run_session(spark.url, root, runs=3, settings=settings))
    for name, key in (("warm", "seconds"), ("cold", "first_s")):
        one, two = (min(each[key] for each in found[count]) for count in (1, 2))
        report(f"two executors against one, {name}", one / two, "times", floor=1, one=one, two=two)


def bench_memory(root: Path) -> None:
    """What the workers of a cluster need for an audit of large payloads."""
    from tests.analytics.clusters import cluster

    size = sum(path.stat().st_size for path in root.glob("date=*/*.parquet"))
    # Of each worker, the peaks of its processes: the executor's JVM and Pythons.
    peaks: dict[int, dict[int, int]] = {}
    with tempfile.TemporaryDirectory() as work, cluster(Path(work)) as spark:
        process = start("session", spark.url, str(root.absolute()), 1, json.dumps(SETTINGS))
        while process.poll() is None:
            for worker in spark.workers:
                for pid in descendants(worker):
                    known = peaks.setdefault(worker, {})
                    known[pid] = max(known.get(pid, 0), peak_bytes(pid))
            time.sleep(LOOK_S)
        found = read_record(process)
    by_size = [sorted(each.values(), reverse=True) for each in peaks.values()]
    report(
        "peak memory of a worker",
        max(map(sum, by_size)) / 1e6,
        "MB",
        floor=1074,
        payload_gib=round(size / (1 << 30), 1),
        processes_mb=[[round(each / 1e6) for each in sizes] for sizes in by_size],
        mb_per_s=round(size / 1e6 / found["first_s"]),
    )


def run_session(
    master: str, root: Path, *, runs: int, settings: dict[str, str] | None = None
) -> dict[str, float]:
    """The role `session`, in a process of its own."""
    process = start("session", master, str(root.absolute()), runs, json.dumps(settings or {}))
    found = read_record(process)
    process.wait()
    return found


def session(master: str, root: str, runs: str, settings: str) -> None:
    """Audits in one session: seconds of the first and of the best of the rest, and what it took."""
    from analytics import read_export, start_spark
    from analytics.auditing import cut_for_all_cores, find_faults

    taken: list[tuple[float, float]] = []
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with start_spark(master, "bench", json.loads(settings)) as spark:
        for _ in range(int(runs)):
            began, cpu = time.perf_counter(), used_cpu_s(os.getpid())
            with cut_for_all_cores(spark):
                faults = find_faults(read_export(spark, [root]), []).toArrow()
            taken.append((time.perf_counter() - began, used_cpu_s(os.getpid()) - cpu))
            assert sum(faults["seq"].to_pylist()) == rows_of(Path(root))
        seconds, cpu_s = min(taken[1:] or taken)
        told = {"first_s": taken[0][0], "seconds": seconds, "cpu_s": cpu_s}
    print(json.dumps(told), flush=True)


def checks_alone(root: Path) -> float:
    """Rows a second that as many processes as cores check, from rows that they have read."""
    began = [start("check", str(root.absolute()), number) for number in range(CORES)]
    rows = sum(read_record(process)["rows"] for process in began)
    for process in began:
        tell(process, "go")
    seconds = max(read_record(process)["seconds"] for process in began)
    for process in began:
        process.wait()
    return float(rows / seconds)


def check(root: str, number: str) -> None:
    """One of the processes: every CORES-th row group."""
    from analytics.checks import ENCODED_INPUT, INPUT, encoded_or_none, entry_faults, payload_fault

    fields = [name for name in ENCODED_INPUT if name not in {"entry_hash", "node"}]
    batches: list[pa.RecordBatch] = []
    for path in sorted(Path(root).glob("date=*/*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(int(number), file.num_row_groups, CORES):
            batches += file.read_row_group(group, columns=[*INPUT]).to_batches()
    print(json.dumps({"rows": sum(each.num_rows for each in batches)}), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in INPUT}
        encoded = [*map(encoded_or_none, zip(*(columns[name] for name in fields), strict=True))]
        assert not any(entry_faults(encoded, columns["entry_hash"]))
        held = zip(*(columns[n] for n in ("payload", "payload_size", "payload_hash")), strict=True)
        assert not any(payload_fault(*each) for each in held)
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
