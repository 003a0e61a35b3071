"""`export` and `analyze` as a shell sees them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import analytics
from analytics import java
from analytics.layout import LOCK
from tests.analytics.faulty import plant, write_rows
from tests.analytics.makers import files, keys
from tests.cli.harness import CommandLine, lines_of, make_log, words

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A command line with a store."""
    line = CommandLine.isolated(tmp_path, monkeypatch)
    line.author = line("init").text
    return line


def test_export_says_what_it_added(cli: CommandLine, tmp_path: Path) -> None:
    cli("append", "--lines", stdin=b"a\nb\nc\n")
    out = tmp_path / "out"
    assert cli("export", out, "--dry-run").text == "3 entries would be added"
    assert not out.exists()
    assert cli("export", out).text.startswith("3 entries added, 1 file written, ")
    record = cli("export", out, "--json").record
    assert record == {
        "directory": str(out),
        "dry_run": False,
        "rows": 0,
        "files": 0,
        "bytes": 0,
        "first_ingest": 4,
        "last_ingest": 3,
        "left_out": 0,
        "total_rows": 3,
        "total_files": 1,
    }


def test_export_takes_filters_and_limits(cli: CommandLine, tmp_path: Path) -> None:
    made = make_log(words(3), log_id=5)
    cli("import", stdin=lines_of(made))
    cli("append", "--lines", stdin=b"a\nb\n")
    author = made[0].key.author.hex()
    assert cli("export", tmp_path / "1", "--log", str(made[0].key), "--json").record["rows"] == 3
    assert cli("export", tmp_path / "2", "--author", cli.author, "--json").record["rows"] == 2
    assert cli("export", tmp_path / "3", "--no-payload", "--max-file-bytes", "1MiB").status == 0
    assert {row[0] for row in keys(tmp_path / "1")} == {author}


@pytest.mark.parametrize(
    "flags",
    [
        ("--max-file-bytes", "0"),
        ("--max-file-bytes", "64MB"),
        ("--max-file-age", "0"),
        ("--max-file-age", "soon"),
        ("--author", "abc"),
        ("--author", "ab" * 32 + "/0"),
        ("--log", "a b"),
    ],
)
def test_wrong_usage_is_a_line_and_status_2(
    cli: CommandLine, tmp_path: Path, flags: tuple[str, str]
) -> None:
    result = cli("export", tmp_path / "out", *flags)
    assert result.status == 2
    assert len(result.err.splitlines()) == 1
    assert flags[0] in result.err


def test_export_into_something_else_is_a_line_and_status_1(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    result = cli("export", tmp_path / "full")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert "notes.txt; move it away" in result.err


def test_entries_left_out_are_named_and_status_is_1(cli: CommandLine, tmp_path: Path) -> None:
    import apsw

    cli("append", "--lines", stdin=b"a\nb\nc\n")
    db = apsw.Connection(str(cli.store / "store.sqlite3"))
    db.execute("UPDATE entries SET payload = x'00' WHERE ingest = 2")
    db.close()
    result = cli("export", tmp_path / "out")
    assert result.status == 1
    assert f"left out: {cli.author}/0/2: the entry's payload is damaged" in result.err
    assert len(keys(tmp_path / "out")) == 2


def test_a_missing_extra_is_a_line(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("export", tmp_path / "lake")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = cli("export", tmp_path / "out")
    assert result.status == 1
    assert "pip install 'bamboo-peer[parquet]'" in result.err
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = cli("analyze", tmp_path / "lake", "--to", tmp_path / "to")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert "pip install 'bamboo-peer[spark]'" in result.err


def test_a_missing_java_is_a_line(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("export", tmp_path / "lake")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_FOLDERS", ())
    result = cli("analyze", tmp_path / "lake", "--to", tmp_path / "to")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert "Java 17 or newer" in result.err
    assert "openjdk-17-jre-headless" in result.err


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("old", "1.8.0_401"), ("new", "21.0.2")):
        program = tmp_path / name / "bin/java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new/bin"))
    assert java.java_version(tmp_path / "old") == 8
    assert java.ensure_java() == tmp_path / "new"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "new")


def test_the_node_starts_without_the_extras(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules.update(duckdb=None, pyarrow=None, pyspark=None, pandas=None)\n"
        "import analytics, bamboo_cli.exporting, bamboo_cli.analyzing, bamboo_cli.querying\n"
        "import bamboo_cli.registry\n"
        "loaded = {name for name, module in sys.modules.items() if module}\n"
        "assert not {'duckdb', 'pyarrow', 'pyspark', 'numpy'} & loaded"
    )
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_watching_goes_on_until_it_is_told_to_end(cli: CommandLine, tmp_path: Path) -> None:
    cli("append", "--lines", stdin=b"a\nb\n")
    out = tmp_path / "out"
    program = "from bamboo_cli import main; raise SystemExit(main())"
    command = ["export", str(out), "--watch", "--max-file-age", "0.2", "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *command],
        env=os.environ | {"PYTHONPATH": str(TOP)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["rows"] == 2
        cli("append", "--lines", stdin=b"c\n")
        assert json.loads(process.stdout.readline())["rows"] == 1
        cli("append", "--lines", stdin=b"d\n")
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line)["rows"] for line in process.stdout]
        assert process.wait(30) == 0
    assert sum(rest) == 1
    assert len(keys(out)) == 4
    assert len(files(out)) == 3


def test_watching_waits_for_another_export_and_says_so_once(
    cli: CommandLine, tmp_path: Path
) -> None:
    cli("append", "--lines", stdin=b"a\nb\n")
    out = tmp_path / "out"
    assert cli("export", out).status == 0
    cli("append", "--lines", stdin=b"c\n")
    program = "from bamboo_cli import main; raise SystemExit(main())"
    command = ["export", str(out), "--watch", "--max-file-age", "0.2", "--json"]
    with (
        (out / LOCK).open("wb") as lock,
        subprocess.Popen(
            [sys.executable, "-c", program, *command],
            env=os.environ | {"PYTHONPATH": str(TOP)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline().decode() == (
            f"another process is exporting into this directory: {out}; it is waited for\n"
        )
        time.sleep(0.5)  # some further attempts
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert json.loads(process.stdout.readline())["rows"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
    assert len(keys(out)) == 3


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `analyze` use the session that is there."""
    from contextlib import nullcontext

    from bamboo_cli import analyzing

    monkeypatch.setattr(analyzing, "start_spark", lambda *_: nullcontext(spark))


@pytest.mark.usefixtures("shared_spark")
def test_analyze_writes_tables_and_a_page(
    cli: CommandLine, tmp_path: Path, spark: SparkSession
) -> None:
    cli("import", stdin=lines_of(make_log([b'{"text": "a"}', b"b", b"c"], ended=True)))
    cli("export", tmp_path / "out")
    to = tmp_path / "to"
    result = cli(
        "analyze", tmp_path / "out", "--to", to, "--payload-schema", "text STRING", "--json"
    )
    assert result.status == 0
    stages = {record["stage"]: record for record in result.records}
    assert list(stages) == ["audit", "logs", "activity", "delay", "payloads", "report"]
    assert (stages["audit"]["rows"], stages["audit"]["faults"]) == (3, 0)
    assert (stages["payloads"]["decoded"], stages["payloads"]["rejected"]) == (1, 2)
    [row] = spark.read.parquet(str(to / "logs")).collect()
    assert (row["state"], row["height"]) == ("ended", 3)
    assert "no faults" in (to / "report.html").read_text()


@pytest.mark.usefixtures("shared_spark")
def test_analyze_names_faults_and_ends_with_status_1(cli: CommandLine, tmp_path: Path) -> None:
    rows, planted = plant(entries_in_each=10, logs=7)
    write_rows(tmp_path / "out", rows)
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to")
    assert result.status == 1
    for kind, author, seq in planted:
        assert f"fault: {kind}: {author}/0/{seq}" in result.err
    assert result.lines[0].startswith("audit")


@pytest.mark.usefixtures("shared_spark")
def test_analyze_of_an_export_without_rows_says_so(cli: CommandLine, tmp_path: Path) -> None:
    cli("export", tmp_path / "out")
    assert cli("analyze", tmp_path / "out", "--to", tmp_path / "to").status == 0
    assert "No entries" in (tmp_path / "to/report.html").read_text()


@pytest.mark.usefixtures("shared_spark")
def test_what_spark_refuses_is_a_line(cli: CommandLine, tmp_path: Path) -> None:
    cli("append", "--lines", stdin=b"a\nb\n")
    cli("export", tmp_path / "out")
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to", "--window", "a while")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert "the stage activity failed" in result.err
    [name] = files(tmp_path / "out")
    data = bytearray((tmp_path / "out" / name).read_bytes())
    data[100:800] = bytes(700)
    (tmp_path / "out" / name).write_bytes(data)
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to2")
    assert result.status == 1
    assert len([line for line in result.err.splitlines() if "bamboo-peer:" in line]) == 1


def test_that_there_is_no_lake_is_said_before_anything_is_loaded(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bamboo_cli import analyzing

    monkeypatch.setattr(analyzing, "ensure_spark", lambda: pytest.fail("Spark was looked for"))
    cli("export", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    for name, why in (("nowhere", "there is no export"), ("empty", "holds no export")):
        result = cli("analyze", tmp_path / "out", tmp_path / name, "--to", tmp_path / "to")
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert why in result.err


@pytest.mark.usefixtures("shared_spark")
def test_analyze_of_something_else_is_a_line(cli: CommandLine, tmp_path: Path) -> None:
    cli("export", tmp_path / "out")
    for argv in ((tmp_path / "nowhere",), (tmp_path,)):
        result = cli("analyze", *argv, "--to", tmp_path / "to")
        assert (result.status, len(result.err.splitlines())) == (1, 1)
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "out")
    assert "written into an export" in result.err


def test_every_public_name_is_there() -> None:
    for name in analytics.__all__:
        assert getattr(analytics, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = analytics.nothing  # type: ignore[attr-defined]
