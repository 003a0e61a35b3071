"""Spark Connect is refused, in a sentence, before anything starts."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from analytics import SparkFailed, analyze, start_spark
from bamboo_cli import analyzing
from tests.cli.harness import CommandLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSAL = "Spark Connect tells nothing of the executors, so they could not be asked"


@pytest.mark.parametrize(
    ("master", "settings", "variables"),
    [
        ("sc://127.0.0.1:15002", {}, {}),
        ("local[2]", {"spark.remote": "sc://127.0.0.1:15002"}, {}),
        ("local[2]", {"spark.api.mode": "connect"}, {}),
        ("local[2]", {}, {"SPARK_REMOTE": "sc://127.0.0.1:15002"}),
        ("local[2]", {}, {"SPARK_API_MODE": "Connect"}),
    ],
)
def test_no_session_of_spark_connect_is_started(
    master: str,
    settings: dict[str, str],
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(SparkFailed, match=f"{REFUSAL}.*; give Spark's own master, like spark://"),
        start_spark(master, "tests", settings),
    ):
        pytest.fail("a session was started")


def test_no_analysis_runs_in_a_session_of_spark_connect(tmp_path: Path) -> None:
    kind = type("SparkSession", (SimpleNamespace,), {"__module__": "pyspark.sql.connect.session"})
    session = cast("SparkSession", kind())
    with pytest.raises(SparkFailed, match=REFUSAL):
        analyze(session, [tmp_path], tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_master_of_spark_connect_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyzing, "ensure_spark", lambda: None)
    cli = CommandLine.isolated(tmp_path, monkeypatch)
    cli("init")
    cli("export", tmp_path / "lake")
    result = cli("analyze", tmp_path / "lake", "--to", tmp_path / "to", "--master", "sc://h:1")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert REFUSAL in result.err
