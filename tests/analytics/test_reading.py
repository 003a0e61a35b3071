"""What a pipeline cannot use is named before Spark starts on it; other readers read exports too."""

import json
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import BadInput, ExportTooNew, NotAnExport, logs, read_export
from tests.analytics.makers import export, files, filled_store, held, make_store


def test_no_directory_and_no_export_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAnExport, match=r"there is no export: .*nowhere"):
        read_export(spark, [tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAnExport, match=r"holds no export: .*empty"):
        read_export(spark, [tmp_path / "empty"])
    with pytest.raises(BadInput, match="no export is named"):
        read_export(spark, [])


def test_foreign_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    (tmp_path / "out/notes.csv").write_text("a,b")
    with pytest.raises(NotAnExport, match=r"notes\.csv"):
        read_export(spark, [tmp_path / "out"])


def test_missing_columns_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    [name] = files(tmp_path / "out")
    for manifest in (tmp_path / "out/_manifests").iterdir():
        manifest.unlink()  # which would say that the file is another
    pq.write_table(pa.table({"author": ["a"]}), tmp_path / "out" / name)
    with pytest.raises(BadInput, match=r"columns are missing .*log_id"):
        read_export(spark, [tmp_path / "out"])
    (tmp_path / "out" / name).write_bytes(b"not parquet")
    with pytest.raises(BadInput, match="no Parquet file"):
        read_export(spark, [tmp_path / "out"])


def test_a_newer_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    path = tmp_path / "out/_manifests/_latest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 9}))
    with pytest.raises(ExportTooNew, match="version 9"):
        read_export(spark, [tmp_path / "out"])


def test_an_export_without_rows_has_no_logs(spark: SparkSession, tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    assert logs(read_export(spark, [tmp_path / "out"])).count() == 0


def test_duckdb_reads_an_export(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        store.append([b"own"], log_id=2**64 - 1)
        export(store, tmp_path / "out")
        everything = held(store)
    pattern = str(tmp_path / "out/date=*/*.parquet")
    db = duckdb.connect()
    rows = db.execute(
        f"SELECT author, log_id, seq FROM read_parquet('{pattern}', hive_partitioning = true)"
    ).fetchall()
    assert sorted((author, int(log_id), seq) for author, log_id, seq in rows) == everything
    [(hash_type, when)] = db.execute(
        f"SELECT DISTINCT typeof(entry_hash), typeof(received_at) FROM read_parquet('{pattern}')"
    ).fetchall()
    assert (hash_type, when) == ("BLOB", "TIMESTAMP WITH TIME ZONE")


def test_pandas_reads_an_export(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out")
    assert len(frame) == 30
    assert set(frame.groupby("author")["seq"].max()) == {10}
    assert str(frame["received_at"].dt.tz) == "UTC"


def test_polars_reads_an_export_by_the_names_of_its_files(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        store.append([b"own"], log_id=2**64 - 1)
        export(store, tmp_path / "out")
        everything = held(store)
    rows = pl.read_parquet(tmp_path / "out/*/*.parquet", hive_partitioning=True)
    found = zip(*(rows[name].to_list() for name in ("author", "log_id", "seq")), strict=True)
    assert sorted((author, int(log_id), seq) for author, log_id, seq in found) == everything
    kinds = {"entry_hash": pl.Binary(), "date": pl.Date(), "received_at": pl.Datetime("us", "UTC")}
    assert {name: rows.schema[name] for name in kinds} == kinds
