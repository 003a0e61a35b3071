"""The same pipeline on a standalone cluster, and what its workers are asked before they work."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.analytics.clusters import (
    PYARROW,
    PYNACL,
    SETTINGS,
    Cluster,
    analyze_command,
    analyze_on,
    cluster,
    driver_environment,
    other_python,
    python_with,
)
from tests.analytics.faulty import plant, write_rows
from tests.analytics.makers import export, make_store, put
from tests.logstore.authors import AuthorLog
from wire import NATIVE

pytestmark = pytest.mark.jvm

SECRETS = {"AWS_SECRET_ACCESS_KEY": "sesame-4711", "DATABASE_PASSWORD": "open-barley-0815"}
ROWS, PLANTED = plant(entries_in_each=20, logs=11)
KINDS = {kind: 1 for kind, _, _ in PLANTED}


def may_mount() -> bool:
    """Whether a process may have disks of its own here."""
    if os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


OWN_DISKS = may_mount()
needs_own_disks = pytest.mark.skipif(
    not OWN_DISKS, reason="workers with disks of their own need root, and `unshare -m`"
)


class Told:
    """One session with everything that is quick, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.root, self.out = folder / "lake", folder / "results"
        self.out.mkdir()
        write_rows(self.root, ROWS)
        self.pythons = {
            "bare": str(python_with(folder / "bare", *PYNACL, *PYARROW)),
            "no pyarrow": str(python_with(folder / "no-pyarrow", *PYNACL)),
            "no PyNaCl": str(python_with(folder / "no-pynacl", *PYARROW)),
            "nowhere": "/nowhere/python",
        }
        other = other_python(sys.version_info.minor + 1)
        if other is not None:
            self.pythons["other"] = str(python_with(folder / "other", program=other))
        with cluster(folder, own_disk=self.out if OWN_DISKS else None) as found:
            asked = {
                "master": found.url,
                "settings": SETTINGS,
                "root": str(self.root),
                "out": str(self.out),
                "pythons": self.pythons,
            }
            done = subprocess.run(
                [sys.executable, "-m", "tests.analytics.on_cluster", json.dumps(asked)],
                env=driver_environment(sys.executable, **SECRETS),
                cwd=folder,
                capture_output=True,
                check=False,
                timeout=240,
            )
        self.text = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, self.text[-3000:]
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.errors: dict[str, str] = {each["name"]: each.get("error", "") for each in lines}
        self.found: dict[str, Any] = {each["name"]: each.get("found") for each in lines}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the quick session said."""
    return Told(tmp_path_factory.mktemp("cluster"))


@pytest.mark.cluster
def test_the_verdict_is_the_jobs_wherever_results_lie(told: Told) -> None:
    stages = told.found["stages"]
    summary = stages["audit"]["summary"]
    assert (summary["rows"], summary["by_kind"]) == (len(ROWS), KINDS)
    assert {f.split(": ")[0] for f in stages["audit"]["faults"]} == set(KINDS)
    assert stages["logs"]["summary"]["logs"] == 11
    assert len(pq.read_table(told.out / "faults")) == len(PLANTED)
    assert "fork" in (told.out / "report.html").read_text()


@pytest.mark.cluster
def test_workers_need_pynacl_and_pyarrow_alone_and_use_the_native_core(told: Told) -> None:
    native = 2 if NATIVE is not None else 0
    assert told.found["probe bare"] == {"count": 2, "native": native}
    summary = told.found["stages"]["audit"]["summary"]
    assert (summary["workers"], summary["native_workers"]) == (2, native)


@pytest.mark.cluster
def test_what_a_worker_lacks_is_named_with_the_line_to_type(told: Told) -> None:
    import socket

    host = socket.gethostname()
    for name, module, package in (
        ("no pyarrow", "pyarrow", "pyarrow>=18"),
        ("no PyNaCl", "nacl", "pynacl>=1.6"),
    ):
        python, error = told.pythons[name], told.errors[f"probe {name}"]
        assert f"{host}: {python} lacks {module} (" in error
        assert error.endswith(f"type on {host}: {python} -m pip install '{package}'")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    error = told.errors["probe nowhere"]
    assert f"{host}: /nowhere/python does not run there" in error
    assert f"PYSPARK_PYTHON=/usr/bin/python{version} bamboo-peer analyze" in error


@pytest.mark.cluster
@pytest.mark.skipif(
    other_python(sys.version_info.minor + 1) is None, reason="no other minor version is here"
)
def test_another_minor_version_of_python_is_named(told: Told) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    other = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
    python = told.pythons["other"]
    assert (
        f"{python} is Python {other}, and the driver's is {version}" in told.errors["probe other"]
    )


@pytest.mark.cluster
@needs_own_disks
def test_an_input_or_out_that_workers_do_not_see_is_named(told: Told) -> None:
    assert "does not see OUT" in told.errors["out"]
    assert "--to /shared/results" in told.errors["out"]
    # They see a directory there, but not what the driver sees in it.
    assert [path.name for path in told.out.glob(".probe-*")] == []


@pytest.mark.cluster
def test_no_secret_of_the_environment_is_told(told: Told) -> None:
    written = [path.read_bytes() for path in told.out.rglob("*") if path.is_file()]
    assert len(written) >= 5
    for secret in SECRETS.values():
        assert secret not in told.text
        assert not any(secret.encode() in each for each in written)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose machines share their disks."""
    with cluster(tmp_path_factory.mktemp("shared")) as found:
        yield found


@pytest.mark.long
def test_a_shared_out_gets_payloads_too(shared: Cluster, tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        put(store, AuthorLog(1, log_id=2**64 - 1), range(1, 20))
        store.append([b'{"text": "a"}', b'{"text": "b"}'], log_id=2**64 - 1)
        export(store, tmp_path / "lake")
    schema = ("--payload-schema", "text STRING")
    out = tmp_path / "to"
    bare = python_with(tmp_path / "bare", *PYNACL, *PYARROW)
    done = analyze_on(
        shared, tmp_path / "lake", "--to", out, *schema, python=bare, BAMBOO_NATIVE="0"
    )
    assert done.status == 0, done.err
    stages = done.stages
    assert (stages["audit"]["rows"], stages["audit"]["native_workers"]) == (21, 0)
    assert (stages["payloads"]["decoded"], stages["payloads"]["rejected"]) == (2, 19)
    assert sorted(pq.read_table(out / "payloads")["text"].to_pylist()) == ["a", "b"]
    assert set(pq.read_table(out / "logs")["log_id"].to_pylist()) == {2**64 - 1}


@pytest.mark.long
def test_an_export_without_rows_is_none_on_a_cluster_either(
    shared: Cluster, tmp_path: Path
) -> None:
    with make_store(tmp_path / "s") as store:
        export(store, tmp_path / "lake")
    done = analyze_on(shared, tmp_path / "lake", "--to", tmp_path / "to")
    assert done.status == 0, done.err
    assert (done.stages["audit"]["rows"], done.stages["logs"]["logs"]) == (0, 0)


# An analysis that is not `analyze`, which would have asked.
UNASKED = """
import json, sys
from pathlib import Path
from analytics import SparkFailed, audit, read_export, start_spark
from analytics.failures import spark_errors
master, settings, root = sys.argv[1:]
with start_spark(master, "cluster test", json.loads(settings)) as spark:
    try:
        with spark_errors("audit", spark, Path("to")):
            audit(read_export(spark, [root])).faults.toArrow()
    except SparkFailed as error:
        print(error)
"""


@pytest.mark.long
def test_what_fails_unasked_names_machine_and_line_too(shared: Cluster, tmp_path: Path) -> None:
    write_rows(tmp_path / "lake", ROWS)
    python = python_with(tmp_path / "no-pyarrow", *PYNACL)
    settings = json.dumps(SETTINGS)
    done = subprocess.run(
        [sys.executable, "-c", UNASKED, shared.url, settings, str(tmp_path / "lake")],
        env=driver_environment(python),
        cwd=shared.folder,
        capture_output=True,
        check=True,
        timeout=240,
    )
    [error] = done.stdout.decode().splitlines()
    assert f"the stage audit failed: {python} lacks pyarrow there: 127.0.0.1 (executor " in error
    assert error.endswith(f"type there: {python} -m pip install 'pyarrow>=18'")


@pytest.mark.long
def test_a_secret_setting_is_not_told(shared: Cluster, tmp_path: Path) -> None:
    write_rows(tmp_path / "lake", ROWS)
    settings = {"spark.hadoop.fs.s3a.secret.key": "sesame-4711"}
    done = analyze_on(
        shared,
        tmp_path / "lake",
        "--to",
        tmp_path / "to",
        python="/nowhere/python",
        settings=settings,
        **SECRETS,
    )
    assert done.status == 1
    assert "/nowhere/python does not run there" in done.err
    for secret in SECRETS.values():
        assert secret not in done.out + done.err


@pytest.mark.long
def test_executors_that_never_come_are_told_of(shared: Cluster, tmp_path: Path) -> None:
    write_rows(tmp_path / "lake", ROWS)
    settings = {"spark.executor.memory": "4g"}
    done = analyze_on(shared, tmp_path / "lake", "--to", tmp_path / "to", settings=settings)
    assert done.status == 1
    assert f"no executor came within 60 s: {shared.url}" in done.err
    assert "--conf spark.executor.memory=512m" in done.err


def children(pid: int) -> dict[int, str]:
    """Processes below one, and their command lines."""
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if parent == pid:
            found[int(path.parent.name)] = command
    return found


def working_executor(spark: Cluster, deadline: float) -> int:
    """An executor whose Python workers have begun."""
    while time.monotonic() < deadline:
        for worker in spark.workers:
            for executor in children(worker):
                if any("pyspark.daemon" in each for each in children(executor).values()):
                    return executor
        time.sleep(0.02)
    pytest.fail("no executor began")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_an_executor_that_is_killed_costs_no_row_and_no_fault(
    shared: Cluster, tmp_path: Path
) -> None:
    rows, planted = plant(entries_in_each=2_000, logs=10)
    write_rows(tmp_path / "lake", rows)
    with subprocess.Popen(
        analyze_command(shared, tmp_path / "lake", "--to", tmp_path / "to"),
        env=driver_environment(sys.executable),
        cwd=shared.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.kill(working_executor(shared, time.monotonic() + 60), signal.SIGKILL)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 1, err.decode()
    stage = json.loads(out.splitlines()[0])
    assert stage["rows"] == len(rows), err.decode()
    assert stage["by_kind"] == {kind: 1 for kind, _, _ in planted}
