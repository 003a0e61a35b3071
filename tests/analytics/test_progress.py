"""What is said of a stage while it runs."""

import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import StageProgress, analyze, collecting
from analytics.progress import count_group, reported
from bamboo_cli.analyzing import progress_lines, progress_words
from bamboo_cli.terminal import Terminal
from tests.analytics.makers import export, filled_store

WAIT_S = 60


def progress(rows: int, rows_total: int | None, tasks: int = 2) -> StageProgress:
    """After ten seconds of an audit."""
    return StageProgress("audit", 10.0, rows, rows_total, tasks, 7)


def test_a_line_has_rows_their_rate_and_an_estimate() -> None:
    assert (
        progress_words(progress(250, 1000))
        == "audit        10.0 s  250 of 1000 rows, 25 rows/s, 30 s left"
    )
    # Nothing is read yet, and all is read: nothing says how long the rest takes.
    assert progress_words(progress(0, 1000)).endswith("  0 of 1000 rows, 2 of 7 tasks")
    assert progress_words(progress(1002, 1000)).endswith("  1000 of 1000 rows, 2 of 7 tasks")
    assert progress_words(progress(5, None)).endswith(" s  2 of 7 tasks")


def test_rows_and_tasks_are_those_of_the_stages_own_jobs(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(5).write.parquet(str(tmp_path / "rows"))
    said: list[StageProgress] = []
    heard = threading.Event()

    def report(now: StageProgress) -> None:
        said.append(now)
        if now.rows == 5:
            heard.set()

    with reported(spark, "audit", 5, report, every_s=0.01):
        assert spark.read.parquet(str(tmp_path / "rows")).where("id >= 0").count() == 5
        assert heard.wait(WAIT_S)
    assert {(each.stage, each.rows_total) for each in said} == {("audit", 5)}
    assert 0 < said[-1].tasks <= said[-1].tasks_total
    count = len(said)
    spark.range(1000).count()
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert len(said) == count
    assert [each.name for each in threading.enumerate() if "progress of" in each.name] == []


def test_jobs_of_a_result_in_parts_are_the_stages_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(collecting, "PARTITION_ROWS", 2)
    spark.range(5).write.parquet(str(tmp_path / "rows"))
    heard = threading.Event()

    def report(now: StageProgress) -> None:
        # Each partition is fetched by a task of its own, after those that read.
        if now.rows >= 5 and now.tasks >= 3:
            heard.set()

    with reported(spark, "audit", 5, report, every_s=0.01):
        rows = spark.read.parquet(str(tmp_path / "rows")).where("id >= 0")
        assert sum(map(len, collecting.collected(rows, 5))) == 5
        assert heard.wait(WAIT_S)


def test_nothing_is_said_of_jobs_that_nobody_knows(spark: SparkSession) -> None:
    assert count_group(spark, "nobody's") == (0, 0, 0)


def test_an_analysis_reports_the_stage_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s", logs=2, entries=6) as store:
        export(store, tmp_path / "out")
    said: list[StageProgress] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analytics.stages.PROGRESS_S", 0.001)
        stages = [
            each.name
            for each in analyze(spark, [tmp_path / "out"], tmp_path / "to", progress=said.append)
        ]
    assert stages == ["audit", "logs", "activity", "delay", "report"]
    assert {"audit", "logs"} <= {each.stage for each in said} <= set(stages)
    totals = {each.stage: each.rows_total for each in said}
    assert (totals["audit"], totals["logs"]) == (12, 12)


def test_lines_are_for_who_looks_or_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        closed = False
        lines: list[str] = []  # noqa: RUF012 - of one test

        def __init__(self, *, looked_at: bool) -> None:
            self.looked_at = looked_at

        def isatty(self) -> bool:
            return self.looked_at

        def write(self, text: str) -> None:
            self.lines.append(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Screen(looked_at=False))
    assert progress_lines(Terminal()) is None
    assert progress_lines(Terminal(verbose=True)) is not None
    monkeypatch.setattr(sys, "stderr", Screen(looked_at=True))
    say = progress_lines(Terminal())
    assert say is not None
    say(progress(250, 1000))
    assert Screen.lines == ["audit        10.0 s  250 of 1000 rows, 25 rows/s, 30 s left\n"]
