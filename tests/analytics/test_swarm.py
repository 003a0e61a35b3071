"""Swarm chunks in Spark: what rows say is what the store's own table says."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import (
    BadInput,
    read_export,
    read_export_stream,
    swarm_chunks,
    swarm_items,
    write_stream,
)
from gateways.swarm import Chunks, Side, declare_chunks, in_pages, make_node
from gateways.swarm.declared import GONE, SYNC
from logstore import Store
from tests.analytics.makers import export
from wire import LogKey

DATA = random.Random(3).randbytes(100_000)
WRONG = [b"", b"short", bytes(5_000)]


def addresses(count: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(32) for _ in range(count)]


def test_chunks_and_items_are_what_the_logs_hold(spark: SparkSession, tmp_path: Path) -> None:
    offered = addresses(300, 1)
    with Store.create(tmp_path / "node") as store:
        side = Side(store)
        node = make_node(store, side, store.append_many)
        chunks = Chunks(store, side)
        put = chunks.put(store.append_many, node.chunk_log, [DATA])
        declare_chunks(store, store.append_many, 5)
        store.append(WRONG, log_id=5)
        # What declares nothing is not looked into.
        store.append([DATA[:100]], log_id=77)
        sync, gone = node.first_log + SYNC + 3, node.first_log + GONE
        lists = [b"".join(offered[at : at + 128]) for at in (0, 128, 256)]
        store.append([*lists, b"no list", offered[0]], log_id=sync)
        store.append([offered[1] + offered[2], offered[3]], log_id=gone)
        side.refresh()
        held = {
            (place.address, place.log.log_id, place.seq, str(place.kind), chunks.at(place))
            for place in in_pages(side)
        }
        export(store, tmp_path / "lake")
        store.drop(LogKey(store.author, gone), 2, 2)
        export(store, tmp_path / "lake")
        side.close()
    frame = read_export(spark, [tmp_path / "lake"])
    rows = swarm_chunks(frame).collect()
    found = {
        (
            bytes(row["address"]),
            int(row["log_id"]),
            row["seq"],
            row["kind"],
            int(row["span"]).to_bytes(8, "little") + bytes(row["data"]),
        )
        for row in rows
        if row["kind"] != "bad"
    }
    assert found == held
    assert len(held) == put.chunks
    bad = [row for row in rows if row["kind"] == "bad"]
    assert sorted(row["bytes"] for row in bad) == [*map(len, WRONG)]
    assert all(row["address"] is row["data"] is row["span"] is None for row in bad)
    items = swarm_items(frame).orderBy("log_id", "seq", "index").collect()
    in_order = [row for row in items if row["role"] == "sync"]
    assert [bytes(row["address"]) for row in in_order] == [*offered, offered[0]]
    assert [row["index"] for row in in_order] == [*range(1, 302)]
    assert {(row["bin"], bytes(row["overlay"])) for row in in_order} == {(3, node.overlay)}
    # The list before was deleted, and how many it had is known from its entry.
    [left] = [row for row in items if row["role"] == "gone"]
    assert (bytes(left["address"]), left["index"], left["bin"]) == (offered[3], 3, 0)
    [only] = swarm_chunks(frame, logs=[f"{rows[0]['author']}/5"]).groupBy().count().collect()
    assert only["count"] == len(bad)


def test_chunks_of_named_logs_come_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    with Store.create(tmp_path / "node") as store:
        declare_chunks(store, store.append_many, 5)
        side = Side(store)
        put = Chunks(store, side).put(store.append_many, 5, [DATA])
        side.close()
        export(store, tmp_path / "lake")
        key = LogKey(store.author, 5)
    stream = read_export_stream(spark, tmp_path / "lake")
    with pytest.raises(BadInput, match="have to be named"):
        swarm_chunks(stream)
    with pytest.raises(BadInput):
        swarm_items(stream)
    query = write_stream(
        swarm_chunks(stream, logs=[key]), tmp_path / "table", tmp_path / "c", available_now=True
    )
    query.awaitTermination(120)
    written = spark.read.parquet(str(tmp_path / "table"))
    assert written.count() == put.chunks
    order = ["seq"]
    assert (
        written.orderBy(*order).collect()
        == swarm_chunks(read_export(spark, [tmp_path / "lake"])).orderBy(*order).collect()
    )
