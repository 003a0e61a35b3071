"""Tables of logs, activity, delay and payloads say what the store itself says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import (
    BadInput,
    activity,
    latest,
    logs,
    payloads,
    read_export,
    read_log_states,
    register_views,
    replication_delay,
)
from analytics.describe import describe_delay, entries, varu64_bytes
from analytics.schema import local_frame
from analytics.summaries import DelaySummary
from tests.analytics.makers import NOON, Clock, export, filled_store, make_store, put
from tests.logstore.authors import AuthorLog
from wire import LogKey, encode_varu64

HOUR_US = 3_600_000_000


def test_logs_are_what_the_store_says(spark: SparkSession, tmp_path: Path) -> None:
    sparse, ended = AuthorLog(5, log_id=300), AuthorLog(6, log_id=2**64 - 1)
    sparse.add_all(range(1, 14))
    with filled_store(tmp_path / "s") as store:
        some = [sparse.entries[seq] for seq in (1, 2, 4, 13)]
        store.put_entries(sparse.key, some, source="test")
        put(store, ended, range(1, 300))
        store.put_entries(ended.key, [ended.add(300, b"x" * 300, is_end=True)], source="test")
        store.drop(AuthorLog(1).key, 2, 3)
        infos = {str(info.key): info for info in store.logs()}
        export(store, tmp_path / "out")
    rows = logs(read_export(spark, [tmp_path / "out"])).collect()
    assert len(rows) == len(infos) == 5
    for row in rows:
        info = infos[f"{row['author']}/{row['log_id']}"]
        assert (row["height"], row["newest"]) == (info.height, info.newest)
        assert (row["entries"], row["payloads"]) == (info.entries, info.payloads)
        assert (row["bytes"], row["state"]) == (info.bytes, str(info.state))


def test_the_bytes_of_a_number_are_those_of_its_encoding(spark: SparkSession) -> None:
    edges = {0, 247, 248, *(2**bits - 1 for bits in range(8, 65, 8))}
    edges |= {2**bits for bits in range(8, 64, 8)}
    numbers = local_frame(spark, [(each,) for each in sorted(edges)], "number DECIMAL(20,0)")
    rows = numbers.select("number", varu64_bytes(numbers["number"]).alias("bytes")).collect()
    assert len(rows) == len(edges)
    assert all(row["bytes"] == len(encode_varu64(int(row["number"]))) for row in rows)


def test_the_latest_row_of_an_entry_is_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    log = AuthorLog(1)
    with make_store(tmp_path / "s") as store:
        store.put_entries(log.key, [log.make(1, b"late", held=False)], source="test")
        export(store, tmp_path / "out")
        store.complete_payload(log.key, 1, b"late")
        put(store, AuthorLog(2), range(1, 4))
        export(store, tmp_path / "out")
    frame = read_export(spark, [tmp_path / "out"])
    assert frame.count() == 5
    assert latest(frame).count() == 4
    [row] = latest(frame).where(f"author = '{log.key.author.hex()}'").collect()
    assert (row["payload_state"], bytes(row["payload"])) == ("present", b"late")
    register_views(spark, [tmp_path / "out"])
    counts = "SELECT (SELECT count(*) FROM entries) a, (SELECT count(*) FROM entries_latest) b"
    assert tuple(spark.sql(counts).collect()[0]) == (5, 4)


def test_activity_counts_by_window(spark: SparkSession, tmp_path: Path) -> None:
    clock, log = Clock(), AuthorLog(1)
    with make_store(tmp_path / "s", clock=clock) as store:
        put(store, log, range(1, 4))
        clock.now = NOON + HOUR_US
        put(store, log, range(4, 9))
        put(store, AuthorLog(2), range(1, 3))
        export(store, tmp_path / "out")
    frame = read_export(spark, [tmp_path / "out"])
    rows = activity(frame).orderBy("start", "entries").collect()
    assert [row["entries"] for row in rows] == [3, 2, 5]
    assert {(row["end"] - row["start"]).total_seconds() for row in rows} == {3600.0}
    assert activity(frame, "1 day").count() == 2


def test_two_nodes_show_how_long_each_log_took(spark: SparkSession, tmp_path: Path) -> None:
    log, other = AuthorLog(1), AuthorLog(2)
    early, late = Clock(), Clock(NOON + 2_000_000)
    with make_store(tmp_path / "a", 91, early) as a, make_store(tmp_path / "b", 92, late) as b:
        for store in (a, b):
            twin = AuthorLog(1)
            put(store, twin, range(1, 5))
        late.now += 3_000_000
        b.put_entries(log.key, log.add_all(range(1, 6))[4:], source="test")
        early.now += 1_000_000
        a.put_entries(log.key, [log.entries[5]], source="test")
        put(a, other, range(1, 3))
        export(a, tmp_path / "out-a")
        export(b, tmp_path / "out-b")
        nodes = (a.author.hex(), b.author.hex())
    [row] = replication_delay(
        read_export(spark, [tmp_path / "out-a", tmp_path / "out-b"])
    ).collect()
    assert row["author"] == log.key.author.hex()
    assert (row["from_node"], row["to_node"]) == nodes
    assert row["entries"] == 5
    assert (row["least_s"], row["median_s"], row["most_s"]) == (2.0, 2.0, 4.0)
    assert row["mean_s"] == 2.4


def test_pairs_of_nodes_are_summed_up_over_all_logs(spark: SparkSession, tmp_path: Path) -> None:
    early, late = Clock(), Clock(NOON + 2_000_000)
    with make_store(tmp_path / "a", 91, early) as a, make_store(tmp_path / "b", 92, late) as b:
        for store in (a, b):
            put(store, AuthorLog(1), range(1, 5))
        late.now = early.now + 7_000_000
        for store in (a, b):
            put(store, AuthorLog(2), range(1, 8))
        late.now, early.now = early.now, late.now
        for store in (a, b):
            put(store, AuthorLog(3), range(1, 3))
        export(a, tmp_path / "out-a")
        export(b, tmp_path / "out-b")
        nodes = (a.author.hex(), b.author.hex())
    rows = entries(read_export(spark, [tmp_path / "out-a", tmp_path / "out-b"]))
    found = DelaySummary()
    kept = found.take(describe_delay(rows, with_pairs=True).toArrow())
    assert kept.num_rows == 3
    assert None not in kept["author"].to_pylist()
    there, back = found.pairs[nodes], found.pairs[nodes[::-1]]
    # Four entries after 2 s and seven after 7.
    assert (there["entries"], there["median_s"], there["most_s"]) == (11, 7.0, 7.0)
    assert (back["entries"], back["median_s"]) == (2, 7.0)
    assert len(found.pairs) == 2


def test_payloads_become_columns_and_the_rest_is_kept_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    contents = [
        b'{"text": "one", "likes": 3}',
        b'{"text": "two"}',
        b' {"likes": 4, "other": true}',
        b'{"text": "cut',
        b'{"likes": "many"}',
        b"[1]",
        b"",
        b"plain",
        b'{"text": "\xff"}',
    ]
    with make_store(tmp_path / "s") as store:
        store.append(contents)
        export(store, tmp_path / "out")
    found = payloads(read_export(spark, [tmp_path / "out"]), "text STRING, likes BIGINT")
    decoded = {row["seq"]: (row["text"], row["likes"]) for row in found.decoded.collect()}
    assert decoded == {1: ("one", 3), 2: ("two", None), 3: (None, 4)}
    rejected = {
        row["seq"]: (row["reason"], bytes(row["payload"])) for row in found.rejected.collect()
    }
    assert {seq: payload for seq, (_, payload) in rejected.items()} == dict(
        enumerate(contents[3:], 4)
    )
    assert rejected[9][0] == "not UTF-8"
    assert rejected[6][0] == rejected[7][0] == rejected[8][0] == "not a JSON object"
    assert rejected[4][0] == rejected[5][0] == "not JSON of this schema"


@pytest.mark.parametrize("schema", ["text", "text STRING,", "BIGINT"])
def test_a_schema_of_payloads_that_is_none_is_named(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    with make_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    with pytest.raises(BadInput, match="no list of columns"):
        payloads(read_export(spark, [tmp_path / "out"]), schema)


def test_states_of_logs_are_read(spark: SparkSession, tmp_path: Path) -> None:
    log = AuthorLog(1, log_id=2**64 - 1)
    with make_store(tmp_path / "s") as store:
        put(store, log, range(1, 3))
        store.record_fork(log.key, log.entries[2].encoded, log.make(2, b"twin").encoded)
        export(store, tmp_path / "out")
    [row] = read_log_states(spark, [tmp_path / "out"]).collect()
    assert LogKey(bytes.fromhex(row["author"]), int(row["log_id"])) == log.key
    assert (row["state"], row["fork_seq"], row["end_seq"]) == ("forked", 2, None)
    assert row["fork_first"] == log.entries[2].encoded.hex()


def test_what_a_node_knows_of_a_log_is_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """Of a fork the export has one entry, or none; the proof is elsewhere."""
    forked, ended, alive = (AuthorLog(author, log_id=7) for author in (1, 2, 3))
    with make_store(tmp_path / "s") as store:
        for log in (forked, ended, alive):
            put(store, log, range(1, 5))
        store.put_entries(ended.key, [ended.add(5, b"", is_end=True)], source="test")
        twin = forked.make(3, b"twin").encoded
        store.record_fork(forked.key, forked.entries[3].encoded, twin)
        export(store, tmp_path / "out")
        infos = {info.key.author.hex(): str(info.state) for info in store.logs()}
    frame = read_export(spark, [tmp_path / "out"])
    rows = logs(frame, read_log_states(spark, [tmp_path / "out"])).collect()
    assert {row["author"]: row["state"] for row in rows} == infos
    assert infos[forked.key.author.hex()] == "forked"
    assert rows[0].asDict().keys() == logs(frame).collect()[0].asDict().keys()
