"""Results come to the driver in parts: the same rows, of which few are there at once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import SparkFailed, analyze, collecting, fork_table, summaries
from analytics.collecting import collected
from analytics.results import TableWriter, table_writer
from analytics.summaries import DistinctCounts, FirstRows
from tests.analytics.faulty import plant, write_rows
from tests.analytics.makers import export, make_store, put
from tests.analytics.test_verdict import forked_export
from tests.logstore.authors import AuthorLog

TABLES = ("faults", "forks", "logs", "activity", "delay")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets everything be too large; of each part that is written, how many rows it has."""
    monkeypatch.setattr(collecting, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(collecting, "PARTITION_ROWS", 50)
    monkeypatch.setattr(collecting, "PART_ROWS", 50)
    monkeypatch.setattr(fork_table, "FORKS_AT_ONCE", 1)
    monkeypatch.setattr(summaries, "DISTINCT_MAX", 1)
    written: list[int] = []
    write = TableWriter.write

    def count(writer: TableWriter, part: pa.Table) -> None:
        written.append(len(part))
        write(writer, part)

    monkeypatch.setattr(TableWriter, "write", count)
    return written


def results(spark: SparkSession, roots: list[Path], out: Path) -> tuple[object, ...]:
    """What the stages say, the rows of each table in some order, and the page."""
    said = [
        (each.name, sorted(each.faults), {**each.summary, "page": ""})
        for each in analyze(spark, roots, out)
    ]
    tables = {
        name: sorted(map(repr, pq.read_table(out / name).to_pylist()))
        for name in TABLES
        if (out / name).exists()
    }
    return said, tables, (out / "report.html").read_text()


def exports(folder: Path) -> list[Path]:
    """Two nodes' exports with forks of each kind, many faults, several authors and delays."""
    rows, _ = plant(entries_in_each=9, logs=10)
    write_rows(folder / "planted", rows)
    forked_export(folder / "s", folder / "known", AuthorLog(21))
    with make_store(folder / "s2", node=98) as store:
        put(store, AuthorLog(21), range(1, 4))
        export(store, folder / "other")
    return [folder / "planted", folder / "known", folder / "other"]


def test_a_large_analysis_finds_what_a_small_one_does(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    roots = exports(tmp_path)
    at_once = results(spark, roots, tmp_path / "at once")
    written = request.getfixturevalue("small_parts")
    assert results(spark, roots, tmp_path / "in parts") == at_once
    assert len(written) > len(TABLES) + 2
    assert set(at_once[1]) == set(TABLES)  # type: ignore[call-overload]


@pytest.mark.usefixtures("small_parts")
def test_parts_are_no_larger_than_they_may_be(spark: SparkSession) -> None:
    frame = spark.range(200).selectExpr("id", "timestamp_seconds(id) AS at")
    parts = [*collected(frame, 200)]
    assert sorted(row["id"] for part in parts for row in part.to_pylist()) == [*range(200)]
    assert parts[0].schema == frame.toArrow().schema
    assert max(map(len, parts)) < 2 * collecting.PART_ROWS
    [empty] = collected(frame.where("id > 200"), 200)
    assert (len(empty), empty.schema) == (0, parts[0].schema)


@pytest.mark.usefixtures("small_parts")
def test_what_fails_between_parts_leaves_the_earlier_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    with table_writer(tmp_path / "t") as writer:
        writer.write(pa.table({"a": [1]}))

    def fail() -> None:
        with table_writer(tmp_path / "t") as writer:
            writer.write(pa.table({"a": [2]}))
            raise SparkFailed("it failed", "here", "try again")

    with pytest.raises(SparkFailed):
        fail()
    assert pq.read_table(tmp_path / "t")["a"].to_pylist() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_the_first_rows_are_kept_however_parts_come() -> None:
    def parts() -> Iterator[pa.Table]:
        for numbers in ([5, 1], [], [4, 2, 9], [3]):
            yield pa.table({"n": pa.array(numbers, pa.int64())})

    first = FirstRows([("n", "descending")], 3)
    assert first.rows == []
    for part in parts():
        first.take(part)
    assert [row["n"] for row in first.rows] == [9, 5, 4]


@pytest.mark.usefixtures("small_parts")
def test_what_is_too_much_to_keep_is_counted_by_spark(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table({"start": [moment] * 5, "author": ["a", "b", "c", "a", "b"]})
    distinct = DistinctCounts("start", "author")
    for at in range(5):
        distinct.take(table.slice(at, 1))
    # Only Spark sees that there is a fourth author.
    whole = spark.createDataFrame(pa.concat_tables([table, table.slice(0, 1)]))
    assert distinct.counts(whole.replace({"b": "d"}).unionByName(whole)) == [1, 4]
