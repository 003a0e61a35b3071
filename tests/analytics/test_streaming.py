"""Streams over a directory that grows count every entry once, also when they are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import (
    NotAnExport,
    activity,
    read_export,
    read_export_stream,
    stream_entries,
    stream_windows,
    sum_windows,
    write_stream,
)
from tests.analytics.makers import NOON, Clock, export, filled_store, held, make_store, put
from tests.logstore.authors import AuthorLog

TOP = Path(__file__).resolve().parents[2]
HOUR_US = 3_600_000_000


def test_each_entry_comes_once_though_it_has_several_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, table = tmp_path / "out", tmp_path / "table"

    def run() -> None:
        stream = stream_entries(read_export_stream(spark, out))
        query = write_stream(stream, table, tmp_path / "checkpoint", available_now=True)
        query.awaitTermination(120)
        assert query.exception() is None

    with filled_store(tmp_path / "s") as store:
        export(store, out)
        run()
        store.drop(AuthorLog(1).key, 1, 4)
        put(store, AuthorLog(8), range(1, 6))
        export(store, out)
        run()
        everything = held(store)
    assert read_export(spark, [out]).count() == 39
    rows = spark.read.parquet(str(table)).select("author", "log_id", "seq").collect()
    found = sorted((row["author"], int(row["log_id"]), row["seq"]) for row in rows)
    assert found == everything


def test_windows_of_a_stream_add_up_to_the_batch_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock()
    with make_store(tmp_path / "s", clock=clock) as store:
        for hour in range(4):
            clock.now = NOON + hour * HOUR_US
            for number in (1, 2):
                log = AuthorLog(number)
                log.add_all(range(1, 5 * hour + 6))
                new = [log.entries[seq] for seq in range(5 * hour + 1, 5 * hour + 6)]
                store.put_entries(log.key, new, source="test")
            export(store, tmp_path / "out")
    stream = stream_windows(
        read_export_stream(spark, tmp_path / "out", files_per_trigger_max=1), watermark="10 minutes"
    )
    query = write_stream(stream, tmp_path / "table", tmp_path / "check", available_now=True)
    query.awaitTermination(120)
    windows = spark.read.parquet(str(tmp_path / "table"))
    logs, active = sum_windows(windows)
    # A window is open until time, less ten minutes, has passed its end.
    assert {(row["entries"], row["newest"]) for row in logs.collect()} == {(10, 10)}
    batch = activity(read_export(spark, [tmp_path / "out"])).where("start < '2026-09-21 14:00'")
    columns = ["node", "author", "start", "end", "entries", "bytes"]
    assert active.select(columns).exceptAll(batch.select(columns)).count() == 0
    assert active.count() == batch.count() == 4


def test_a_directory_without_an_export_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAnExport, match="holds no export"):
        read_export_stream(spark, tmp_path)


STREAM = """
import sys
from analytics import read_export_stream, start_spark, stream_entries, write_stream
out, table, checkpoint = sys.argv[1:]
with start_spark("local[1]", "stream", {"spark.driver.memory": "512m"}) as spark:
    stream = stream_entries(read_export_stream(spark, out, files_per_trigger_max=2))
    query = write_stream(stream, table, checkpoint, every="0 seconds")
    print("begin", flush=True)
    query.awaitTermination()
"""


@pytest.mark.long
@pytest.mark.jvm
def test_a_stream_over_a_serving_nodes_export_that_is_killed_counts_every_entry_once(
    tmp_path: Path,
) -> None:
    out, table = tmp_path / "out", tmp_path / "table"
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    with make_store(tmp_path / "s") as store:
        store.append([b"first"])
        export(store, out)
        program = "from bamboo_cli import main; raise SystemExit(main())"
        serve = [sys.executable, "-c", program, "serve", "--store", str(tmp_path / "s")]
        flags = ["--no-listen", "--export", str(out), "--max-file-age", "1"]
        exporter = subprocess.Popen([*serve, *flags], env=environment)
        command = [sys.executable, "-c", STREAM, str(out), str(table), str(tmp_path / "check")]
        for round_ in range(3):
            stream = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, start_new_session=True
            )
            assert stream.stdout is not None
            stream.stdout.readline()
            for _ in range(20):
                store.append([b"entry"] * 10, log_id=round_)
                time.sleep(0.5)
            os.killpg(stream.pid, signal.SIGKILL)
            stream.wait()
            stream.stdout.close()
        exporter.send_signal(signal.SIGTERM)
        assert exporter.wait(60) == 0
        everything = held(store)
    assert len(everything) == 601
    finish = STREAM.replace('every="0 seconds"', "available_now=True")
    subprocess.run([command[0], "-c", finish, *command[3:]], env=environment, check=True)
    import pyarrow.dataset as ds

    # Spark's own table of files says which of them count.
    from tests.analytics.sink import committed

    rows = ds.dataset(committed(table)).to_table().select(["author", "log_id", "seq"]).to_pylist()
    assert sorted((r["author"], int(r["log_id"]), r["seq"]) for r in rows) == everything
