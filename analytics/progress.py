"""How far a stage of an analysis is, while Spark's jobs run.

Spark counts what its tasks have read, and executors send what they have counted with each heartbeat
(HEARTBEAT), so a task that runs for minutes is seen to advance. The jobs of a stage are found by
their job group: stages of Spark that begin and end between two looks count too.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .java import java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS_S: Final = 2.0
HEARTBEAT: Final = "2s"
"""For `spark.executor.heartbeatInterval`: with Spark's own 10 s most looks see nothing new."""
_GROUP: Final = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is."""

    stage: str
    seconds: float
    """Since it began."""
    rows: int
    """Read from the exports so far; of results that are kept, as Spark counts them, by batches."""
    rows_total: int | None
    """To be read in all; None where that is not known, or it reads none."""
    tasks: int
    """Of Spark, done so far."""
    tasks_total: int
    """That Spark knows of so far; they become more."""

    @property
    def rows_per_s(self) -> float:
        """Since the stage began."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the rate so far; None before there is one, and once all is read: nothing tells how
        long the work after that takes."""
        if self.rows_total is None or not 0 < self.rows < self.rows_total:
            return None
        return (self.rows_total - self.rows) / self.rows_per_s


Report = Callable[[StageProgress], None]


@contextmanager
def reported(
    spark: "SparkSession",
    stage: str,
    rows_total: int | None,
    report: Report | None,
    every_s: float,
) -> Iterator[None]:
    """Says every `every_s` seconds how far the jobs are that run in this thread meanwhile.

    `report` is called in a thread of its own, and no more after the end.
    """
    if report is None:
        yield
        return
    start, ended = time.monotonic(), threading.Event()
    group = f"{stage} {threading.get_ident()} {start}"

    def look() -> None:
        while not ended.wait(every_s):
            counts = count_group(spark, group)
            if counts is None:
                return
            rows, tasks, tasks_total = counts
            passed = time.monotonic() - start
            report(StageProgress(stage, passed, rows, rows_total, tasks, tasks_total))

    spark.sparkContext.setJobGroup(group, stage)
    watcher = threading.Thread(target=look, name=f"progress of {stage}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        spark.sparkContext.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]


def count_group(spark: "SparkSession", group: str) -> tuple[int, int, int] | None:
    """Rows that a group's jobs have read, its tasks that are done, and all of them.

    None where the session has ended.
    """
    from py4j.protocol import Py4JError

    rows = tasks = tasks_total = 0
    try:
        context = java_context(spark.sparkContext).sc()
        tracker = spark.sparkContext.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        # A stage that several jobs share is done, and counted, once.
        stages = {stage for info in infos if info is not None for stage in info.stageIds}
    except (Py4JError, AttributeError):
        return None
    for stage in stages:
        try:
            data = context.statusStore().lastStageAttempt(stage)
            rows += data.inputRecords()
            tasks += data.numCompleteTasks()
            tasks_total += data.numTasks()
        except Py4JError:
            # It has not begun, or is skipped since its results are there.
            continue
    return rows, tasks, tasks_total
