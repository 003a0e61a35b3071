"""The whole pipeline: reads exports, writes tables and the report page, says what each stage did.

Tables in OUT, as Parquet: faults, forks, logs, activity, delay (where there are several nodes),
payloads and payloads_rejected (where a schema is given); and report.html.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .auditing import audit
from .describe import describe_activity, describe_delay, describe_logs, entries, payloads
from .errors import BadInput, SparkFailed
from .layout import MANIFESTS, disk_errors
from .reading import read_export, read_log_states
from .report import write_report
from .report_data import collect_report

if TYPE_CHECKING:
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
) -> Iterator[Stage]:
    """Runs the stages one by one; each is done when its `Stage` comes.

    Raises AnalyticsError for input that cannot be used, before anything is written.
    """
    target = Path(out)
    if (target / MANIFESTS).is_dir():
        raise BadInput("the results would be written into an export", target, "name another OUT")
    frame = read_export(spark, roots)
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    states = read_log_states(spark, roots)
    return _Analysis(spark, frame, states, target, window, payload_schema).stages()


@contextmanager
def _spark_errors(stage: str, out: Path) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise SparkFailed(
            f"the stage {stage} failed ({reason})", out, "look at the input, and at Spark's log"
        ) from error


class _Analysis:
    """One analysis; keeps the rows that several stages use."""

    def __init__(
        self,
        spark: "SparkSession",
        frame: "DataFrame",
        states: "DataFrame",
        out: Path,
        window: str,
        payload_schema: str | None,
    ) -> None:
        self._spark = spark
        self._frame = frame
        self._states = states
        self._out = out
        self._window = window
        self._payload_schema = payload_schema
        self._entries = entries(frame).persist()

    def stages(self) -> Iterator[Stage]:
        try:
            yield self._timed("audit", self._audit)
            yield self._timed("logs", self._logs)
            yield self._timed("activity", self._activity)
            yield self._timed("delay", self._delay)
            if self._payload_schema is not None:
                yield self._timed("payloads", self._payloads)
            yield self._timed("report", self._report)
        finally:
            self._entries.unpersist()

    def _timed(self, name: str, work: "object") -> Stage:
        assert callable(work)
        start = time.monotonic()
        with _spark_errors(name, self._out):
            found = work()
        summary, faults = found if isinstance(found, tuple) else (found, [])
        return Stage(name, time.monotonic() - start, summary, faults)

    def _write(self, frame: "DataFrame", name: str) -> "DataFrame":
        path = str((self._out / name).absolute())
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def _audit(self) -> tuple[dict[str, int | dict[str, int]], list[str]]:
        found = audit(self._frame)
        try:
            faults = self._write(found.faults.coalesce(1), "faults")
            by_kind = {
                row["kind"]: row["count"] for row in faults.groupBy("kind").count().collect()
            }
            forks = 0
            if by_kind.get("fork"):
                forks = self._write(found.forks.coalesce(1), "forks").count()
            else:
                self._write(self._spark.createDataFrame([], found.forks.schema), "forks")
            rows = found.checked.count()
        finally:
            found.close()
        listed = faults.orderBy("author", "log_id", "seq", "kind").limit(FAULTS_LISTED).collect()
        lines = [
            f"{row['kind']}: {row['author']}/{row['log_id']}/{row['seq']}: {row['detail']}"
            for row in listed
        ]
        summary = {
            "rows": rows,
            "faults": sum(by_kind.values()),
            "by_kind": dict(sorted(by_kind.items())),
            "fork_entries": forks,
        }
        return summary, lines

    def _logs(self) -> dict[str, int]:
        from pyspark.sql import functions as f

        logs = self._write(describe_logs(self._entries, self._states).coalesce(1), "logs")
        [row] = logs.agg(
            f.count("*").alias("logs"),
            f.sum("entries").alias("entries"),
            f.sum("payloads").alias("payloads"),
            f.sum("bytes").alias("bytes"),
        ).collect()
        return {name: int(row[name] or 0) for name in ("logs", "entries", "payloads", "bytes")}

    def _activity(self) -> dict[str, int]:
        activity = self._write(
            describe_activity(self._entries, self._window).coalesce(1), "activity"
        )
        return {
            "windows": activity.select("start").distinct().count(),
            "authors": activity.select("author").distinct().count(),
        }

    def _delay(self) -> dict[str, int]:
        nodes = self._entries.select("node").distinct().count()
        if nodes < 2:
            return {"nodes": nodes, "pairs": 0}
        delay = self._write(describe_delay(self._entries).coalesce(1), "delay")
        return {"nodes": nodes, "pairs": delay.select("from_node", "to_node").distinct().count()}

    def _payloads(self) -> dict[str, int]:
        assert self._payload_schema is not None
        found = payloads(self._frame, self._payload_schema)
        return {
            "decoded": self._write(found.decoded, "payloads").count(),
            "rejected": self._write(found.rejected, "payloads_rejected").count(),
        }

    def _report(self) -> dict[str, str]:
        path = self._out / REPORT
        with disk_errors(path):
            path.write_text(write_report(collect_report(self._spark, self._entries, self._out)))
        return {"page": str(path.absolute())}
