"""The audit finds exactly what is wrong, and nothing in a healthy export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from analytics import KINDS, BadInput, audit, parts, read_export
from analytics.auditing import cut_for_all_cores
from analytics.checks import payload_fault
from tests.analytics.faulty import plant, rehashed, stored, write_rows
from tests.analytics.makers import export, files, filled_store, make_store, put
from tests.logstore.authors import AuthorLog
from wire import decode_entry, yamf_hash


def found_in(spark: SparkSession, *roots: Path) -> set[tuple[str, str, int]]:
    """(kind, author, seq) of every fault; each must be there once."""
    result = audit(read_export(spark, list(roots)))
    rows = result.faults.collect()
    result.close()
    faults = [(row["kind"], row["author"], row["seq"]) for row in rows]
    assert len(faults) == len(set(faults))
    return set(faults)


def test_a_healthy_export_has_no_faults(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s", logs=5, entries=40) as store:
        store.append([b"x" * 100_000, b""], log_id=2**64 - 1, end_of_log=True)
        log = AuthorLog(9)
        store.put_entries(log.key, [log.make(1, b"late", held=False)], source="test")
        export(store, tmp_path / "out")
        store.drop(AuthorLog(1).key, 1, 5)
        export(store, tmp_path / "out")
    assert found_in(spark, tmp_path / "out") == set()


def test_exactly_the_planted_faults_are_found(spark: SparkSession, tmp_path: Path) -> None:
    rows, planted = plant(entries_in_each=20, logs=11)
    assert {kind for kind, _, _ in planted} == set(KINDS)
    write_rows(tmp_path / "out", rows)
    assert found_in(spark, tmp_path / "out") == planted


def test_row_groups_of_any_size_find_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, planted = plant(entries_in_each=40, logs=11)
    monkeypatch.setattr(parts, "ROW_GROUP_ROWS_MAX", 7)
    write_rows(tmp_path / "small", rows)
    # As exports had them before there was a limit.
    monkeypatch.setattr(parts, "ROW_GROUP_ROWS_MAX", 100_000)
    write_rows(tmp_path / "large", rows)
    for name, groups in (("small", -(-len(rows) // 7)), ("large", 1)):
        [path] = files(tmp_path / name)
        assert pq.read_metadata(tmp_path / name / path).num_row_groups == groups
        piece = read_export(spark, [tmp_path / name]).select(spark_partition_id()).distinct()
        with small_pieces(spark), cut_for_all_cores(spark):
            # Each row group is read as a whole, in the piece that its middle is in.
            assert (piece.count() > 1) == (groups > 1)
            assert found_in(spark, tmp_path / name) == planted


@contextmanager
def small_pieces(spark: SparkSession) -> Iterator[None]:
    """Lets Spark cut files of a few kilobytes, which it takes whole otherwise."""
    name = "spark.sql.files.openCostInBytes"
    spark.conf.set(name, "1")
    try:
        yield
    finally:
        spark.conf.unset(name)


def test_how_inputs_are_cut_is_the_users_choice_first(spark: SparkSession) -> None:
    name = "spark.sql.files.minPartitionNum"
    with cut_for_all_cores(spark):
        assert spark.conf.get(name) == str(3 * spark.sparkContext.defaultParallelism)
    assert spark.conf.get(name, None) is None
    spark.conf.set(name, "2")
    try:
        with cut_for_all_cores(spark):
            assert spark.conf.get(name) == "2"
        assert spark.conf.get(name) == "2"
    finally:
        spark.conf.unset(name)


@pytest.mark.long
def test_one_of_each_in_a_hundred_thousand_is_found(spark: SparkSession, tmp_path: Path) -> None:
    rows, planted = plant(entries_in_each=10_000, logs=10)
    assert len(rows) == 100_000
    write_rows(tmp_path / "out", rows)
    assert found_in(spark, tmp_path / "out") == planted


def test_both_entries_of_a_fork_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    rows, planted = plant(entries_in_each=10, logs=7)
    write_rows(tmp_path / "out", rows)
    [(author, seq)] = [(author, seq) for kind, author, seq in planted if kind == "fork"]
    result = audit(read_export(spark, [tmp_path / "out"]))
    twins = {bytes(row["encoded"]) for row in result.forks.collect()}
    result.close()
    wanted = {r.encoded for r in rows if r.key.author.hex() == author and r.seq == seq}
    assert twins == wanted
    assert len(twins) == 2
    assert all(decode_entry(each).seq == seq for each in twins)


def test_a_row_that_was_changed_later_is_found(spark: SparkSession, tmp_path: Path) -> None:
    log = AuthorLog(1)
    one, two, three = log.add_all(range(1, 4))
    tampered = stored(log, rehashed(two, two.encoded), 2)._replace(hash=yamf_hash(b"another"))
    write_rows(tmp_path / "out", [stored(log, one, 1), tampered, stored(log, three, 3)])
    author = log.key.author.hex()
    assert found_in(spark, tmp_path / "out") == {("entry_hash", author, 2)}


def test_nodes_that_hold_different_entries_show_a_fork(spark: SparkSession, tmp_path: Path) -> None:
    log, other = AuthorLog(1), AuthorLog(1)
    with make_store(tmp_path / "a", node=91) as store:
        put(store, log, range(1, 4))
        export(store, tmp_path / "out-a")
    with make_store(tmp_path / "b", node=92) as store:
        store.put_entries(other.key, other.add_all(range(1, 3)), source="test")
        store.put_entries(other.key, [other.add(3, b"another")], source="test")
        export(store, tmp_path / "out-b")
    author = log.key.author.hex()
    assert found_in(spark, tmp_path / "out-a", tmp_path / "out-b") == {("fork", author, 3)}
    assert found_in(spark, tmp_path / "out-a") == set()


def test_a_gap_says_from_where_to_where(spark: SparkSession, tmp_path: Path) -> None:
    log = AuthorLog(1)
    log.add_all(range(1, 20))
    some = [log.entries[seq] for seq in (1, 4, 8, 13)]
    write_rows(tmp_path / "out", [stored(log, each, n) for n, each in enumerate(some, 1)])
    result = audit(read_export(spark, [tmp_path / "out"]))
    faults = sorted((row["seq"], row["kind"], row["detail"]) for row in result.faults.collect())
    result.close()
    assert faults == [
        (2, "gap", "entries 2 to 3 are not here"),
        (5, "gap", "entries 5 to 7 are not here"),
        (9, "gap", "entries 9 to 12 are not here"),
    ]


def test_payloads_are_judged_by_hash_then_size() -> None:
    hash_ = yamf_hash(b"abc")[2:]
    assert payload_fault(b"abc", 3, hash_) is None
    assert payload_fault(None, 3, hash_) is None
    assert payload_fault(b"abd", 3, hash_) == "payload"
    assert payload_fault(b"abc", 4, hash_) == "payload_size"


def test_missing_columns_are_named(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1)], "author STRING, seq BIGINT")
    with pytest.raises(BadInput, match=r"columns are missing .*log_id, is_end, entry_hash"):
        audit(frame)
