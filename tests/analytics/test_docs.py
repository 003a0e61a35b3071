"""docs/spark.md: every snippet works, in the order of the page."""

import json
import re
import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics import schema
from bamboo_cli import analyzing, main
from tests.analytics.makers import Clock, make_store, put
from tests.logstore.authors import AuthorLog

TOP = Path(__file__).resolve().parents[2]
TEXT = (TOP / "docs/spark.md").read_text()
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


PATHS = (
    "lake",
    "lake-b",
    "store",
    "blocks",
    "copy",
    "windows",
    "checkpoints/blocks",
    "checkpoints/copy",
    "checkpoints/windows",
)
BLOCKS = [
    {"number": 1, "hash": "11" * 32, "parent": "00" * 32, "weight": 1, "values": {"a": "01"}},
    {"number": 2, "hash": "22" * 32, "parent": "11" * 32, "weight": 2, "values": {"a": "02"}},
]


def placed(text: str, folder: Path) -> str:
    """The snippet with absolute paths: the tests' Spark was started in another directory."""
    names = "|".join(PATHS)
    return re.sub(rf"""(["'])({names})\1""", rf"\1{folder}/\2\1", text)


def test_every_snippet_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, node, clock in (("store", 99, Clock()), ("store-b", 98, Clock(Clock().now + 10**6))):
        with make_store(tmp_path / name, node, clock) as store:
            put(store, AuthorLog(1), range(1, 8))
            store.append([b'{"text": "hello", "likes": 3}', b"not JSON"])
    (tmp_path / "blocks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in BLOCKS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAMBOO_PEER_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(analyzing, "start_spark", lambda *_: nullcontext(spark))
    monkeypatch.setattr(spark, "stop", lambda: pytest.fail("a snippet stops the session"))
    names: dict[str, object] = {}
    ran = {"sh": 0, "python": 0, "sql": 0, "text": 0}
    for kind, text in SNIPPETS:
        if kind == "bash":
            continue  # of a cluster: test_cluster_docs.py
        ran[kind] += 1
        if kind == "sh":
            for line in text.splitlines():
                program, *argv = shlex.split(line)
                assert program == "bamboo-peer"
                assert main(argv) == 0, line
        elif kind == "python":
            exec(compile(placed(text, tmp_path), "docs/spark.md", "exec"), names)
        elif kind == "sql":
            spark.sql(placed(text, tmp_path)).collect()
    assert min(ran["sh"], ran["python"], ran["sql"]) >= 3
    assert (tmp_path / "results/report.html").exists()
    assert (tmp_path / "copy").is_dir()
    assert spark.read.parquet(str(tmp_path / "blocks")).count() == len(BLOCKS)
    spark.catalog.dropTempView("bamboo_store")
    shutil.rmtree(tmp_path / "results")


def test_every_column_is_described() -> None:
    for name in (*schema.NAMES, schema.PARTITION[0]):
        assert re.search(rf"^\| .*`{name}`.* \|", TEXT, re.MULTILINE), name
    for name, kind, _ in schema.COLUMNS:
        row = next(
            line
            for line in TEXT.splitlines()
            if re.match(rf"\| `{name}`|\| `backlink`, `{name}`", line)
        )
        assert kind in row


def test_every_option_and_kind_of_fault_is_described() -> None:
    from analytics import KINDS
    from analytics.source_options import _KNOWN

    described = {name.lower() for name in re.findall(r"`(\w+)`", TEXT)}
    assert set(KINDS) <= described
    assert _KNOWN - {"path"} <= described
