"""Data streams in Spark say what the streams themselves say."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import (
    BadInput,
    datastream_current,
    datastream_entries,
    datastreams,
    read_export,
    read_export_stream,
)
from gateways.datastream.logs import StreamLog
from logstore import Store
from tests.analytics.makers import DAY_US, NOON, Clock, export, make_store
from tests.gateways.streams import Model, declare, raw
from tests.gateways.test_datastream_logs import copy


def test_entries_and_what_is_visible_are_the_stream_s(spark: SparkSession, tmp_path: Path) -> None:
    model = Model()
    with make_store(tmp_path / "s") as store:
        key = declare(store, system_id=2**64 - 1)
        broken = declare(store, log_id=1)
        store.append([b"no stream", raw(0, 1, b"x")], log_id=2)
        store.append([model.add(176, b"a") + model.add(1, b"hello") + model.add(2, b"")])
        store.append([model.add(1, b"x") + model.add(1, b"y")])
        store.append([model.truncate(2)])
        store.append([model.add(7, b"new")], end_of_log=True)
        store.append([raw(0, 1, b"seen"), raw(5, 1, b"wrong"), b"foreign"], log_id=1)
        stream = StreamLog(store, key)
        total = stream.update().total_entries
        stream.close()
        export(store, tmp_path / "out")
    frame = read_export(spark, [tmp_path / "out"])
    rows = datastream_entries(frame).where("log_id = 0").orderBy("seq", "position").collect()
    assert [(row["seq"], row["position"], row["kind"], row["number"]) for row in rows] == [
        (2, 0, "bookmark", 0),
        (2, 1, "event", 1),
        (2, 2, "event", 2),
        (3, 0, "event", 3),
        (3, 1, "event", 4),
        (4, 0, "truncate", 2),
        (5, 0, "event", 2),
    ]
    assert (rows[1]["type"], bytes(rows[1]["data"])) == (1, b"hello")
    current = datastream_current(frame).where("log_id = 0").orderBy("number").collect()
    assert [(row["type"], bytes(row["data"])) for row in current] == model.entries
    found = {int(row["log_id"]): row for row in datastreams(frame).collect()}
    assert set(found) == {0, 1}
    assert (found[0]["entries"], found[0]["state"], total) == (3, "ended", 3)
    assert int(found[0]["system_id"]) == 2**64 - 1
    assert (found[1]["entries"], found[1]["state"]) == (1, "broken")
    [bad] = datastream_entries(frame, logs=[broken]).where("kind = 'broken'").collect()
    assert (bad["seq"], bad["number"]) == (4, None)
    assert "first byte 102" in bad["reason"]


def test_on_a_stream_the_logs_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        key = declare(store)
        store.append([raw(0, 176, b"a") + raw(1, 1, b"b")])
        export(store, tmp_path / "out")
    frame = read_export_stream(spark, tmp_path / "out")
    with pytest.raises(BadInput, match="named"):
        datastream_entries(frame)
    with pytest.raises(BadInput):
        datastream_current(frame)
    query = (
        datastream_entries(frame, logs=[str(key)])
        .writeStream.format("memory")
        .queryName("streamed_entries")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    found = spark.table("streamed_entries").orderBy("number").collect()
    assert [(row["kind"], bytes(row["data"])) for row in found] == [
        ("bookmark", b"a"),
        ("event", b"b"),
    ]


def test_a_replica_s_export_counts_entries_by_type_and_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The day is that of the node that has exported: when each entry arrived there."""
    clock = Clock()
    model = Model()
    with Store.memory() as source, make_store(tmp_path / "replica", clock=clock) as replica:
        key = declare(source)
        for day in range(2):
            clock.now = NOON + day * DAY_US
            for number in range(3 + day):
                source.append([model.add(176, bytes([number])) + model.add(1, b"x")])
            source.append([model.add(2, b"y" * 100_000)])
            copy(source, replica, key)
        export(replica, tmp_path / "out")
    frame = datastream_current(read_export(spark, [tmp_path / "out"]))
    counted = frame.groupBy("date", "type").count().orderBy("date", "type").collect()
    days = sorted({row["date"] for row in counted})
    assert [(days.index(row["date"]), row["type"], row["count"]) for row in counted] == [
        (0, 1, 3),
        (0, 2, 1),
        (0, 176, 3),
        (1, 1, 4),
        (1, 2, 1),
        (1, 176, 4),
    ]
    assert sum(row["count"] for row in counted) == len(model.entries)
