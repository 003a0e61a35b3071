"""What a worker answers, and what an error of Spark means, without a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.sql import SparkSession

from analytics import SparkFailed, audit, read_export
from analytics.failures import Failed, redacted, spark_errors
from analytics.probing import ask_workers, executors_wanted
from analytics.requirements import PACKAGES, python_version
from analytics.session import ARCHIVE, native_file, write_zip
from bamboo_cli import analyzing
from tests.analytics.makers import export, files, filled_store
from tests.cli.harness import CommandLine
from wire import NATIVE

TOP = Path(__file__).resolve().parents[2]
PROBE = TOP / "analytics/worker_probe.py"
# The head of an object file for a processor that nobody has.
FOREIGN = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x8f\xff\x01\0\0\0" + bytes(40)


def ask(folder: Path, **changed: object) -> dict[str, object]:
    """The answer of this Python, as a worker in `folder`."""
    asked: dict[str, object] = {
        "version": python_version(),
        "libraries": list(PACKAGES),
        "packages": ARCHIVE,
        "files": ".",
        "inputs": {},
        "out": None,
    }
    done = subprocess.run(
        [sys.executable, PROBE, json.dumps(asked | changed)],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_worker_answers_what_it_has(tmp_path: Path) -> None:
    write_zip(tmp_path / ARCHIVE)
    (tmp_path / "seen").mkdir()
    answer = ask(
        tmp_path,
        libraries=["nacl", "no_such_library"],
        inputs={
            str(tmp_path / "seen"): str(tmp_path / "seen"),
            str(tmp_path / "unseen"): str(tmp_path / "unseen/file"),
        },
        out=str(tmp_path / "probe"),
    )
    assert answer["lacks"] == [
        ["no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"]
    ]
    assert answer["unseen"] == [str(tmp_path / "unseen")]
    assert answer["out"] == "does not see"
    assert (answer["version"], answer["worker"]) == (python_version(), str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"spark.cores.max": "4", "spark.executor.cores": "2"}, 2),
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.cores.max": "4"}, None),
        ({}, None),
    ],
)
def test_how_many_executors_come_is_known_where_it_was_said(
    settings: dict[str, str], wanted: int | None
) -> None:
    """Else each analysis waits a second for one more that nobody has asked for."""
    assert executors_wanted(SparkConf(loadDefaults=False).setAll([*settings.items()])) == wanted


@pytest.mark.skipif(NATIVE is None, reason="without a native core none is sent")
def test_a_native_core_of_another_platform_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAMBOO_NATIVE", raising=False)
    write_zip(tmp_path / ARCHIVE)
    file = native_file()
    assert file is not None
    assert ask(tmp_path)["native"]
    (tmp_path / file.name).write_bytes(FOREIGN)
    answer = ask(tmp_path)
    assert (answer["native"], answer["lacks"]) == (False, [])


def test_a_worker_leaves_a_file_in_out(tmp_path: Path) -> None:
    write_zip(tmp_path / ARCHIVE)
    (tmp_path / "probe").write_text("")
    assert ask(tmp_path, out=str(tmp_path / "probe"))["out"] is None
    assert len(list(tmp_path.glob("probe-*"))) == 1


def test_an_out_that_a_worker_may_not_write_to_is_told(tmp_path: Path) -> None:
    write_zip(tmp_path / ARCHIVE)
    # A file that is there, and nobody may write beside, root neither.
    assert ask(tmp_path, out="/proc/version")["out"] == "may not write to"


def test_this_machine_is_one_worker(spark: SparkSession, tmp_path: Path) -> None:
    workers = ask_workers(spark, [tmp_path])
    assert (workers.count, workers.native) == (1, int(NATIVE is not None))


def test_another_python_of_this_machine_is_asked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nunset BAMBOO_NATIVE\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    with pytest.raises(SparkFailed, match=f"{program} lacks nacl .* -m pip install 'pynacl>=1.6' "):
        ask_workers(spark, [tmp_path])
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "nothing"))
    with pytest.raises(
        SparkFailed, match=f"{tmp_path}/nothing does not run there; .*PYSPARK_PYTHON="
    ):
        ask_workers(spark, [tmp_path])


def test_an_input_that_is_not_seen_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    with pytest.raises(SparkFailed, match=r"does not see .*/lake; .* rsync -a .*/lake/ "):
        ask_workers(spark, [tmp_path / "lake"])
    assert ask_workers(spark, [tmp_path], tmp_path).count == 1
    # A disk that is not mounted leaves a directory without the file.
    (tmp_path / "lake/date=2026-01-01").mkdir(parents=True)
    (tmp_path / "lake/date=2026-01-01/part-gone").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SparkFailed, match=r"does not see .*/lake; .* rsync -a .*/lake/ "):
        ask_workers(spark, [tmp_path / "lake"])
    assert list(tmp_path.glob(".probe*")) == []


def test_a_file_that_goes_meanwhile_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    frame = read_export(spark, [tmp_path / "out"])
    [name] = files(tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    with (
        pytest.raises(SparkFailed, match=f"a file is not seen there: .*{name}, at ") as caught,
        spark_errors("audit", spark, tmp_path),
    ):
        audit(frame).faults.count()
    assert "\n" not in str(caught.value)


def test_a_worker_that_nobody_asked_is_named_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nunset BAMBOO_NATIVE\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    frame = read_export(spark, [tmp_path / "out"])
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    with pytest.raises(SparkFailed) as caught, spark_errors("audit", spark, tmp_path):
        audit(frame).faults.toArrow()
    error = str(caught.value)
    assert f"the stage audit failed: {program} lacks nacl there: 127.0.0.1 (exec" in error
    assert error.endswith(f"type there: {program} -m pip install 'pynacl>=1.6'")


@pytest.mark.parametrize(
    ("ends", "why"), [("exit 3", "it had no memory left"), ("kill -9 $$", "with status -9")]
)
def test_a_java_that_has_ended_is_told_of(ends: str, why: str) -> None:
    with subprocess.Popen(["sh", "-c", ends]) as process:
        gateway = SimpleNamespace(proc=process)
        spark = cast(
            "SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
        )
        for error in (Py4JError("calling o1.conf"), ConnectionRefusedError(111), EOFError()):
            with (
                pytest.raises(SparkFailed, match=f"stage logs failed: .* ended .{why}.*memory 2g"),
                spark_errors("logs", spark, Path("to")),
            ):
                raise error


def test_an_error_of_the_disk_stays_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analytics.java._ENDED_S", 0)
    with pytest.raises(IsADirectoryError), spark_errors("logs", spark, Path("to")):
        raise IsADirectoryError


LOST = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 1.0 (TID 9) (10.0.0.7 executor 5): ExecutorLostFailure (executor 5 "
    "exited caused by one of the running tasks) Reason: Command exited with code 137"
)
TRACEBACK = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "x.py", line 1, in f\nValueError: of many words\n'
)


def test_what_spark_says_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    error = str(Failed([LOST], [], "python3").explain("audit", Path("to")))
    assert "executor 5 ended before its work" in error
    assert "10.0.0.7 (executor 5)" in error
    assert "--conf spark.executor.memory=2g" in error
    monkeypatch.setenv("STORE_TOKEN", "of many words")
    error = str(
        Failed([TRACEBACK], ["10.0.0.8 (executor 1)"], "python3").explain("logs", Path("to"))
    )
    assert error.startswith("the stage logs failed: ValueError: ***: 10.0.0.8 (executor 1); ")
    assert redacted("a b-secret", {"spark.some.password": "b-secret"}) == "a ***"
    assert os.environ["STORE_TOKEN"] not in error


def test_settings_go_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    from contextlib import nullcontext

    given: list[object] = []

    def start(*arguments: object) -> object:
        given.append(arguments[2])
        return nullcontext(spark)

    monkeypatch.setattr(analyzing, "start_spark", start)
    cli = CommandLine.isolated(tmp_path, monkeypatch)
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    flags = ("--conf", "spark.a=1", "--conf", "spark.b=x=y", "--conf", "spark.driver.memory=2g")
    assert cli("analyze", tmp_path / "out", "--to", tmp_path / "to", *flags).status == 0
    assert given == [{"spark.driver.memory": "2g", "spark.a": "1", "spark.b": "x=y"}]
    for wrong in ("spark.some.secret", "=sesame"):
        result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to", "--conf", wrong)
        assert (result.status, len(result.err.splitlines())) == (2, 1)
        assert "KEY=VALUE" in result.err
        assert wrong not in result.err
