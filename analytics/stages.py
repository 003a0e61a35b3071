"""The whole pipeline: reads exports, writes tables and the report page, says what each stage did.

Tables in OUT, as Parquet: faults, forks, logs, activity, delay (where there are several nodes),
payloads and payloads_rejected (where a schema is given), those of systems that are asked for
(systems.py); and report.html. Workers write what is as large as the export, so that alone needs an
OUT that all see; the driver writes the others, part by part as they come.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .auditing import cut_for_all_cores, find_faults
from .chains import FAULTS_DDL, FILE, ROWS
from .collecting import collected
from .connect import refuse_connect
from .describe import describe_activity, describe_delay, describe_logs, entries, payloads
from .errors import BadInput
from .failures import spark_errors, unless_java_ended
from .fork_table import ForkTable
from .forks import known_forks
from .inputs import files_hashed_meanwhile, rows_promised
from .layout import MANIFESTS, disk_errors
from .probing import Workers, ask_workers
from .progress import PROGRESS_S, Report, reported
from .reading import read_export, read_log_states
from .report import write_report
from .report_data import collect_report
from .results import remove_table, table_writer
from .schema import arrow_of_ddl
from .summaries import DelaySummary, DistinctCounts, FaultSummary, LogSummary, fault_place
from .systems import SYSTEMS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage did."""

    name: str
    seconds: float
    summary: dict[str, int | str | dict[str, int]]
    faults: list[str] = field(default_factory=list)
    """The first faults, a line each; of the stage `audit` only."""


FAULTS_LISTED = 20


def analyze(
    spark: "SparkSession",
    roots: Sequence[Path | str],
    out: Path | str,
    *,
    window: str = "1 hour",
    payload_schema: str | None = None,
    systems: Sequence[str] = (),
    progress: Report | None = None,
) -> Iterator[Stage]:
    """Runs the stages one by one; each is done when its `Stage` comes.

    `systems`: names of `SYSTEMS`, whose tables are wanted too. `progress` is told every two
    seconds, in a thread of its own, how far the stage is that runs.

    Raises AnalyticsError for input that cannot be used, for workers that cannot do their part, and
    for a session of Spark Connect, before any table is written.
    """
    refuse_connect(spark)
    target = Path(out)
    if (target / MANIFESTS).is_dir():
        raise BadInput("the results would be written into an export", target, "name another OUT")
    frame = read_export(spark, roots)
    for name in systems:
        if name not in SYSTEMS:
            raise BadInput(f"no system, which is one of {', '.join(SYSTEMS)}", name, "name one")
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    workers_write = payload_schema is not None or bool(systems)
    with spark_errors("probe", spark, target):
        workers = ask_workers(spark, roots, target if workers_write else None)
        states = read_log_states(spark, roots)
    return _Analysis(
        spark, roots, frame, states, workers, target, window, payload_schema, systems, progress
    ).stages()


class _Analysis:
    """One analysis; keeps the rows that several stages use."""

    def __init__(
        self,
        spark: "SparkSession",
        roots: Sequence[Path | str],
        frame: "DataFrame",
        states: "DataFrame",
        workers: Workers,
        out: Path,
        window: str,
        payload_schema: str | None,
        systems: Sequence[str],
        progress: Report | None,
    ) -> None:
        self._spark = spark
        self._roots = roots
        self._frame = frame
        self._states = states
        self._workers = workers
        self._out = out
        self._window = window
        self._payload_schema = payload_schema
        self._systems = tuple(dict.fromkeys(systems))
        self._progress = progress
        self._promised = rows_promised(frame.inputFiles())
        self._entries = entries(frame).persist()
        # For how large results can be; where files are elsewhere, by their footers.
        self._rows = frame.count() if self._promised is None else self._promised
        self._faults, self._logs, self._delay = FaultSummary(), LogSummary(), DelaySummary()

    def stages(self) -> Iterator[Stage]:
        try:
            yield self._timed("audit", self._audit, reads=1)
            # The rows that the next stages need too are kept from here on.
            yield self._timed("logs", self._describe_logs, reads=1)
            yield self._timed("activity", self._activity)
            yield self._timed("delay", self._describe_delay)
            if self._payload_schema is not None:
                # Each of the two tables is of the latest rows, which Spark looks for first.
                yield self._timed("payloads", self._payloads, reads=4)
            for name in self._systems:
                yield self._timed(name, partial(self._system, name))
            yield self._timed("report", self._report)
        finally:
            with unless_java_ended():
                self._entries.unpersist()

    def _timed(self, name: str, work: "object", reads: int = 0) -> Stage:
        """`reads`: how many times it reads each row of the exports."""
        assert callable(work)
        start = time.monotonic()
        known = reads > 0 and self._promised is not None
        rows = reads * (self._promised or 0) if known else None
        with (
            spark_errors(name, self._spark, self._out),
            reported(self._spark, name, rows, self._progress, PROGRESS_S),
        ):
            found = work()
        summary, faults = found if isinstance(found, tuple) else (found, [])
        return Stage(name, time.monotonic() - start, summary, faults)

    def _save(
        self,
        name: str,
        frame: "DataFrame",
        take: "Callable[[pa.Table], pa.Table]" = lambda part: part,
    ) -> int:
        """Writes a table of results as it comes; how many rows that were."""
        rows = 0
        with table_writer(self._out / name) as writer:
            for part in collected(frame, self._rows):
                writer.write(take(part))
                rows += len(part)
        return rows

    def _audit(self) -> tuple[dict[str, int | dict[str, int]], list[str]]:
        known = known_forks(self._roots)
        found = self._faults
        with (
            files_hashed_meanwhile(self._roots) as changed,
            table_writer(self._out / "faults") as faults,
            table_writer(self._out / "forks") as writer,
        ):
            forks = ForkTable(self._frame, known, writer)
            with cut_for_all_cores(self._spark):
                for part in collected(find_faults(self._frame, known), self._rows):
                    some = found.take(part)
                    faults.write(some)
                    forks.take(some)
            faults.write(found.take(self._more_faults(changed.result())))
            fork_entries = forks.finish()
        lines = [
            ": ".join(text for text in (row["kind"], fault_place(row), row["detail"]) if text)
            for row in found.first[:FAULTS_LISTED]
        ]
        summary: dict[str, int | dict[str, int]] = {
            "rows": found.rows,
            "faults": found.by_kind.total(),
            "by_kind": found.counts,
            "forked_logs": len(found.forked),
            "fork_entries": fork_entries,
            "workers": self._workers.count,
            "native_workers": self._workers.native,
        }
        return summary, lines

    def _more_faults(self, changed: list[Path]) -> "pa.Table":
        """One for each file that has changed, and one if not all rows were checked."""
        import pyarrow as pa

        more = [
            {"kind": FILE, "detail": f"by its SHA-256 the file is not what was written: {path}"}
            for path in changed
        ]
        promised, rows = self._promised, self._faults.rows
        if promised is not None and promised != rows:
            detail = f"{rows} rows were checked, and the export says that there are {promised}"
            more.append({"kind": ROWS, "detail": detail})
        return pa.Table.from_pylist(more, arrow_of_ddl(FAULTS_DDL))

    def _describe_logs(self) -> dict[str, int]:
        self._save("logs", describe_logs(self._entries, self._states), self._logs.take)
        return {"logs": self._logs.logs, **self._logs.figures}

    def _activity(self) -> dict[str, int]:
        activity = describe_activity(self._entries, self._window)
        distinct = DistinctCounts("start", "author")
        self._save("activity", activity, distinct.take)
        windows, authors = distinct.counts(activity)
        return {"windows": windows, "authors": authors}

    def _describe_delay(self) -> dict[str, int]:
        nodes = len(self._logs.nodes)
        if nodes < 2:
            with disk_errors(self._out):
                remove_table(self._out / "delay")
        else:
            delay = describe_delay(self._entries, with_pairs=True)
            self._save("delay", delay, self._delay.take)
        return {"nodes": nodes, "pairs": len(self._delay.pairs)}

    def _payloads(self) -> dict[str, int]:
        assert self._payload_schema is not None
        found = payloads(self._frame, self._payload_schema)
        return {
            "decoded": self._write("payloads", found.decoded),
            "rejected": self._write("payloads_rejected", found.rejected),
        }

    def _system(self, system: str) -> dict[str, int]:
        """How many rows each table of a system has."""
        counts = {}
        for table in SYSTEMS[system]:
            write = self._write if table.is_large else self._save
            counts[table.name] = write(table.name, table.make(self._frame))
        return counts

    def _write(self, name: str, frame: "DataFrame") -> int:
        """Lets the workers write a table; how many rows those who wrote it have counted."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        written = Observation(name)
        observed = frame.observe(written, f.count(f.lit(1)).alias("rows"))
        observed.write.mode("overwrite").parquet(str((self._out / name).absolute()))
        return int(written.get["rows"])

    def _report(self) -> dict[str, str]:
        path = self._out / REPORT
        with disk_errors(path):
            data = collect_report(self._entries, self._faults, self._logs, self._delay)
            path.write_text(write_report(data))
        return {"page": str(path.absolute())}
