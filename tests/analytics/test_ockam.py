"""Ockam streams in Spark: messages, positions and lag say what the hub says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import (
    BadInput,
    analyze,
    ockam_lag,
    ockam_messages,
    ockam_positions,
    read_export,
    read_export_stream,
    write_ockam_messages,
)
from analytics.systems import SYSTEMS
from gateways.cardinal import Settings, create_stream
from gateways.cardinal.codec import Batch, Item, encode_message
from gateways.cardinal.frames import encode_frame
from gateways.ockam.declared import LEDGER_DECLARATION, declare_stream
from gateways.ockam.ledger import Position, Trim, encode_records
from gateways.swarm import declared as swarm
from gateways.swarm.bmt import content_chunk
from logstore import Store
from tests.analytics.makers import export, make_store
from tests.gateways.streams import declare, raw

LEDGER, ORDERS, TWICE, EMPTY = 40, 41, 42, 43


def position(store: Store, client: str, epoch: int, index: int, name: str = "orders") -> Position:
    return Position(store.author, name, 0, client, epoch, index)


def filled(path: Path) -> Store:
    store = make_store(path)
    store.append([LEDGER_DECLARATION], log_id=LEDGER)
    store.append([declare_stream("orders", 0), b"tea", b"", b"milk"], log_id=ORDERS)
    store.append([declare_stream("orders", 0), b"elsewhere"], log_id=TWICE)
    store.append([declare_stream("empty", 3)], log_id=EMPTY)
    store.append([b'{"kind":"stream"}', b"no stream"], log_id=1)
    return store


def forked(store: Store) -> None:
    """A chain of which a block was taken back."""
    stream = create_stream(store, store.append_many, Settings("demo"))
    below = bytes(32)
    for name, weight in ((b"a", 1), (b"b", 2), (b"c", 3)):
        hash_ = name * 32
        batch = Batch(hash_, weight, weight, below, {b"key": Item(b"value")})
        store.append([encode_frame(*encode_message(batch))], log_id=stream.key.log_id)
        below = below if weight == 2 else hash_


def test_messages_are_the_payloads_behind_a_declaration(
    spark: SparkSession, tmp_path: Path
) -> None:
    with filled(tmp_path / "s") as store:
        store.drop(next(log.key for log in store.logs() if log.key.log_id == ORDERS), 2, 2)
        store.append([b"the end"], log_id=ORDERS, end_of_log=True)
        export(store, tmp_path / "out")
        author = store.author.hex()
    rows = ockam_messages(read_export(spark, [tmp_path / "out"])).orderBy("index").collect()
    assert [
        (row["stream"], row["partition"], row["index"], row["data"], row["size"], row["state"])
        for row in rows
    ] == [
        ("orders", 0, 0, None, 3, "deleted"),
        ("orders", 0, 1, b"", 0, "present"),
        ("orders", 0, 2, b"milk", 4, "present"),
    ]
    assert {(row["author"], int(row["log_id"])) for row in rows} == {(author, ORDERS)}


def test_an_analysis_writes_the_tables_of_the_systems_that_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with filled(tmp_path / "s") as store:
        store.append([encode_records([position(store, "billing", 0, 3)])], log_id=LEDGER)
        declare(store, log_id=7)
        store.append([raw(0, 1, b"hello")], log_id=7)
        forked(store)
        chunk = content_chunk(5, b"hello")
        store.append([swarm.declare(swarm.ChunksDeclared()), chunk.encoded], log_id=60)
        offered = swarm.BinDeclared("sync", 0, bytes(32))
        store.append([swarm.declare(offered), chunk.address], log_id=61)
        export(store, tmp_path / "out")
    roots, out = [tmp_path / "out"], tmp_path / "results"
    with pytest.raises(BadInput, match="one of cardinal, datastream, ockam, swarm: fluvio"):
        analyze(spark, roots, out, systems=["fluvio"])
    stages = {each.name: each for each in analyze(spark, roots, out, systems=list(SYSTEMS))}
    frame = read_export(spark, roots)
    for system, tables in SYSTEMS.items():
        for table in tables:
            rows = spark.read.parquet(str(out / table.name)).collect()
            assert sorted(rows, key=str) == sorted(table.make(frame).collect(), key=str)
            assert stages[system].summary[table.name] == len(rows) > 0


def test_positions_are_merged_and_compared_with_the_streams(
    spark: SparkSession, tmp_path: Path
) -> None:
    with filled(tmp_path / "s") as store:
        store.append(
            [
                encode_records([position(store, "billing", 0, 3), Trim(ORDERS, 1)]),
                b"\xffno records",
                encode_records([position(store, "billing", 1, 1), position(store, "web", 0, 9)]),
                encode_records([position(store, "billing", 0, 2)]),
                encode_records([position(store, "billing", 0, 1, name="gone")]),
            ],
            log_id=LEDGER,
        )
        # Of two ledgers of an author the lower one counts, as in a hub.
        store.append(
            [LEDGER_DECLARATION, encode_records([position(store, "web", 5, 5)])], log_id=50
        )
        export(store, tmp_path / "out")
        author = store.author.hex()
    frame = read_export(spark, [tmp_path / "out"])
    written = ockam_positions(frame).orderBy("ingest_seq", "client").collect()
    assert [(row["client"], row["epoch"], int(row["index"])) for row in written] == [
        ("billing", 0, 3),
        ("billing", 1, 1),
        ("web", 0, 9),
        ("billing", 0, 2),
        ("billing", 0, 1),
    ]
    assert {(row["saved_by"], row["author"]) for row in written} == {(author, author)}
    found = ockam_lag(frame).orderBy("stream", "client").collect()
    assert [
        (row["stream"], row["client"], row["epoch"], int(row["index"]), row["next"], row["lag"])
        for row in found
    ] == [
        ("gone", "billing", 0, 1, None, None),
        ("orders", "billing", 1, 1, 3, 2),
        ("orders", "web", 0, 9, 3, 0),
    ]


def test_a_position_that_nobody_can_have_is_left_out_and_ends_no_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    with filled(tmp_path / "s") as store:
        author = store.author
        records = [
            Position(author, "orders", 2**63, "web", 0, 1),
            Position(author, "orders", 0, "web", 2**63, 1),
            Position(author, "orders", 0, "", 0, 1),
            position(store, "web", 0, 2),
            position(store, "ahead", 2**63 - 1, 2**64 - 1),
        ]
        store.append([encode_records(records)], log_id=LEDGER)
        export(store, tmp_path / "out")
    frame = read_export(spark, [tmp_path / "out"])
    found = ockam_positions(frame).orderBy("client").collect()
    assert [(row["client"], row["epoch"], int(row["index"])) for row in found] == [
        ("ahead", 2**63 - 1, 2**64 - 1),
        ("web", 0, 2),
    ]
    lag = ockam_lag(frame).orderBy("client").collect()
    assert [(row["client"], row["lag"]) for row in lag] == [("ahead", 0), ("web", 1)]


def test_messages_are_written_once_as_they_come(spark: SparkSession, tmp_path: Path) -> None:
    out, table, checkpoint = (tmp_path / name for name in ("out", "table", "checkpoint"))

    def written() -> list[tuple[str, int, bytes]]:
        query = write_ockam_messages(spark, out, table, checkpoint, available_now=True)
        query.awaitTermination(120)
        rows = spark.read.parquet(str(table)).collect()
        return sorted((row["stream"], row["index"], bytes(row["data"])) for row in rows)

    with filled(tmp_path / "s") as store:
        key = next(log.key for log in store.logs() if log.key.log_id == ORDERS)
        store.drop(key, 3, 3)
        export(store, out)
        assert written() == [("orders", 0, b"tea"), ("orders", 2, b"milk")]
        # A stream that is made later, and a payload that comes back.
        store.append([declare_stream("later", 0), b"first"], log_id=LEDGER + 9)
        store.want(key, 3, 3)
        store.complete_payload(key, 3, b"")
        export(store, out)
        whole = [("later", 0, b"first"), ("orders", 0, b"tea"), ("orders", 1, b"")]
        assert written() == [*whole, ("orders", 2, b"milk")]
        assert written() == [*whole, ("orders", 2, b"milk")]


def test_on_a_stream_it_is_said_what_to_use(spark: SparkSession, tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    with pytest.raises(BadInput, match="write_ockam_messages"):
        ockam_messages(read_export_stream(spark, tmp_path / "out"))
