"""`format("bamboo")` reads a store, whole or as it grows, with the columns of an export."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from analytics import BadOption, OffsetRefused, spark_schema
from analytics.source import BambooReader, BambooStreamReader, PushingReader
from analytics.source_options import Options, Verify
from logstore import Store
from tests.analytics.makers import export, filled_store, held, make_store, put
from tests.logstore.authors import AuthorLog
from wire import U64_MAX


def keys_of(frame: DataFrame) -> list[tuple[str, int, int]]:
    rows = frame.select("author", "log_id", "seq").collect()
    return sorted((row["author"], int(row["log_id"]), row["seq"]) for row in rows)


def load(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("bamboo")
    for name, value in options.items():
        reader = reader.option(name.rstrip("_"), str(value))
    return reader.load(str(path))


def test_it_reads_what_an_export_has(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        store.append([b"x" * 100_000], log_id=U64_MAX)
        store.drop(AuthorLog(1).key, 2, 3)
        export(store, tmp_path / "out")
    frame = load(spark, tmp_path / "s")
    assert [(each.name, each.dataType) for each in frame.schema] == [
        (each.name, each.dataType) for each in spark_schema()
    ]
    exported = spark.read.schema(spark_schema()).parquet(str(tmp_path / "out"))
    assert frame.count() == exported.count() == 31
    assert frame.exceptAll(exported.select(*frame.columns)).count() == 0


def test_it_is_found_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s"):
        pass
    spark.sql(f"CREATE TEMPORARY VIEW found USING bamboo OPTIONS (path '{tmp_path / 's'}')")
    [row] = spark.sql("SELECT count(*) AS n, count(DISTINCT author) AS a FROM found").collect()
    assert (row["n"], row["a"]) == (30, 3)
    spark.catalog.dropTempView("found")


def test_options_narrow_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    log = AuthorLog(2)
    with filled_store(tmp_path / "s") as store:
        put(store, AuthorLog(2, log_id=5), range(1, 4))
    author = log.key.author.hex()
    assert len(keys_of(load(spark, tmp_path / "s", author=author))) == 13
    assert len(keys_of(load(spark, tmp_path / "s", author=author, log_id=5))) == 3
    some = keys_of(load(spark, tmp_path / "s", author=author, log_id=0, from_=4, to=6))
    assert some == [(author, 0, 4), (author, 0, 5), (author, 0, 6)]
    bare = load(spark, tmp_path / "s", payload="false")
    assert bare.where("payload IS NOT NULL").count() == 0


def test_a_snapshot_is_read_too(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        store.backup(tmp_path / "backup")
        everything = held(store)
    assert keys_of(load(spark, tmp_path / "backup")) == everything


def test_a_store_is_read_while_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        store.append([b"a"])
        assert load(spark, tmp_path / "s").count() == 31
        store.append([b"b"])
        assert load(spark, tmp_path / "s").count() == 32


def test_entries_whose_payloads_move_while_a_batch_is_read_stay_one_row(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        reader = BambooReader(Options(str(tmp_path / "s")))
        partitions = reader.partitions()
        store.drop(AuthorLog(1).key)
        rows = [
            row
            for each in partitions
            for batch in reader.read(each)
            for row in zip(
                *(batch.column(name).to_pylist() for name in ("author", "log_id", "seq")),
                strict=True,
            )
        ]
        assert sorted((author, int(log_id), seq) for author, log_id, seq in rows) == held(store)


@pytest.mark.parametrize("verify", ["none", "links", "full"])
def test_verified_reading_reads_the_same(spark: SparkSession, tmp_path: Path, verify: str) -> None:
    with filled_store(tmp_path / "s"):
        pass
    assert load(spark, tmp_path / "s", verify=verify).count() == 30


def test_a_wrong_signature_is_found_when_asked_for(tmp_path: Path) -> None:
    log = AuthorLog(1)
    with make_store(tmp_path / "s") as store:
        entry = log.make(1)
        forged = entry.encoded[:-1] + bytes([entry.encoded[-1] ^ 1])
        from wire import yamf_hash

        bad = type(entry)(1, forged, yamf_hash(forged), b"payload")
        store.put_entries(log.key, [bad], source="test")
    for verify in Verify:
        reader = BambooReader(Options(str(tmp_path / "s"), verify=verify))
        [partition] = reader.partitions()
        if verify is Verify.FULL:
            with pytest.raises(Exception, match="the signature is wrong"):
                list(reader.read(partition))
        else:
            assert sum(batch.num_rows for batch in reader.read(partition)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no store is named"),
        ({"path": "x", "colour": "red"}, "no option 'colour'"),
        ({"path": "x", "author": "abc"}, "option 'author' is 'abc'"),
        ({"path": "x", "log_id": "-1"}, "option 'log_id'"),
        ({"path": "x", "from": str(2**64)}, "option 'from'"),
        ({"path": "x", "verify": "some"}, "use none, links or full"),
        ({"path": "x", "payload": "maybe"}, "use true or false"),
        ({"path": "x", "maxRowsPerBatch": "0"}, "a number from 1 on"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        Options.parse(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "there is no option 'colour': format(\"bamboo\"); see docs/spark.md"),
        (
            {"verify": "some"},
            "option 'verify' is 'some': format(\"bamboo\"); use none, links or full",
        ),
        ({}, "there is no store"),
    ],
)
def test_a_mistake_reaches_the_user_in_one_sentence(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        load(spark, tmp_path, **options).count()
    said = str(raised.value)
    assert words in said
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if line.strip()]) <= 2


def test_other_errors_keep_their_traceback(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import udf

    with pytest.raises(PySparkException):
        load(spark, tmp_path, colour="red").count()
    fails = udf(lambda _: 1 / 0)
    with pytest.raises(PySparkException, match="Traceback"):
        spark.range(1).select(fails("id")).collect()


def test_filters_are_taken_over_where_spark_allows_it(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s"):
        pass
    author = AuthorLog(3).key.author.hex()
    reader = PushingReader(Options(str(tmp_path / "s")))
    filters = [EqualTo(("author",), author), GreaterThan(("seq",), 3)]
    assert list(reader.pushFilters(list(filters))) == filters
    rows = sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each))
    assert rows == 10


def test_a_log_spread_thinly_over_all_numbers_is_one_stretch(tmp_path: Path) -> None:
    log = AuthorLog(1)
    from wire import lower_pool

    numbers = sorted(lower_pool(2**62))
    with make_store(tmp_path / "s") as store:
        store.put_entries(log.key, log.add_all(numbers), source="test")
    reader = BambooReader(Options(str(tmp_path / "s")))
    [partition] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == len(numbers)


# --- streams -----------------------------------------------------------------------------------


def stream_reader(path: Path, *, fail_on_data_loss: bool = True) -> BambooStreamReader:
    return BambooStreamReader(Options(str(path), fail_on_data_loss=fail_on_data_loss))


def test_offsets_are_one_number_and_batches_are_bounded(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        node = store.author.hex()
    reader = stream_reader(tmp_path / "s")
    start = reader.initialOffset()
    assert start == {"v": 1, "node": node, "ingest": 0}
    middle = reader.latestOffset(start, ReadMaxRows(12))
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert (middle["ingest"], end["ingest"]) == (12, 30)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    rows = [
        number
        for first, last in ((start, middle), (middle, end))
        for each in reader.partitions(first, last)
        for batch in reader.read(each)
        for number in batch.column("ingest_seq").to_pylist()
    ]
    assert rows == list(range(1, 31))


def test_available_now_ends_at_what_was_there(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        reader = stream_reader(tmp_path / "s")
        reader.prepareForTriggerAvailableNow()
        store.append([b"later"])
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["ingest"] == 30


def test_another_nodes_offset_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s"):
        pass
    foreign = {"v": 1, "node": "00" * 32, "ingest": 7}
    with pytest.raises(OffsetRefused, match="the offset is of node 0000"):
        stream_reader(tmp_path / "s").latestOffset(foreign, ReadAllAvailable())
    lenient = stream_reader(tmp_path / "s", fail_on_data_loss=False)
    assert lenient.latestOffset(foreign, ReadAllAvailable())["ingest"] == 30
    [partition] = lenient.partitions(foreign, lenient.latestOffset(foreign, ReadAllAvailable()))
    assert sum(batch.num_rows for batch in lenient.read(partition)) == 30


def test_an_offset_beyond_the_store_is_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        ahead = {"v": 1, "node": store.author.hex(), "ingest": 31}
    with pytest.raises(OffsetRefused, match="read 31 arrivals and the store has 30"):
        stream_reader(tmp_path / "s").latestOffset(ahead, ReadAllAvailable())
    with pytest.raises(OffsetRefused, match="version 2"):
        stream_reader(tmp_path / "s").latestOffset(ahead | {"v": 2}, ReadAllAvailable())


def test_a_stream_goes_on_where_its_checkpoint_says(spark: SparkSession, tmp_path: Path) -> None:
    def run() -> None:
        stream = (
            spark.readStream.format("bamboo")
            .option("maxRowsPerBatch", "20")
            .load(str(tmp_path / "s"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        stream.awaitTermination(120)
        assert stream.exception() is None

    with filled_store(tmp_path / "s"):
        pass
    run()
    with Store.open(tmp_path / "s") as store:
        put(store, AuthorLog(9), range(1, 6))
        everything = held(store)
    run()
    assert keys_of(spark.read.parquet(str(tmp_path / "table"))) == everything
