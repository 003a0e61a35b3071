"""The same pipeline on a standalone cluster: a master and two workers, processes of their own.

The workers know nothing of this project but what a session sends them: their environment names no
path of it, and they run in a directory elsewhere.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from analytics import ensure_java
from tests.analytics.faulty import plant, write_rows

TOP = Path(__file__).resolve().parents[2]
START_S = 60

# The session runs in a process too: there is one JVM with a session in the tests' own already.
PROGRAM = """
import json, sys
from analytics import audit, logs, read_export, start_spark
master, root = sys.argv[1:]
settings = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
def where(_):
    import analytics, wire
    return [analytics.__file__, wire.__file__]
with start_spark(master, "cluster test", settings) as spark:
    files = spark.sparkContext.parallelize(range(2), 2).flatMap(where).collect()
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    frame = read_export(spark, [root])
    kinds = audit(frame).faults.groupBy("kind").count().collect()
    faults = {row["kind"]: row["count"] for row in kinds}
    found = {"files": files, "executors": executors, "faults": faults, "logs": logs(frame).count()}
    print(json.dumps(found))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_workers(port: int, count: int) -> None:
    """Until the master's page lists them."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=5) as page:
                if re.search(rf'"aliveworkers"\s*:\s*{count}\b', page.read().decode()):
                    return
        except OSError:
            pass
        time.sleep(0.2)
    pytest.fail(f"{count} workers did not register")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers on loopback; its URL."""
    home = Path(pyspark.__file__).parent
    port, page = free_port(), free_port()
    environment = {
        "JAVA_HOME": str(ensure_java()),
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    program = [str(home / "bin/spark-class")]
    master = [*program, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    worker = [*program, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
    with ExitStack() as stack:

        def run(name: str, *command: str) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        run("master", *master, "--port", str(port), "--webui-port", str(page))
        url = f"spark://127.0.0.1:{port}"
        for name in ("one", "two"):
            work = folder / name
            limits = ("--cores", "1", "--memory", "600m", "--webui-port", str(free_port()))
            run(name, *worker, *limits, "--work-dir", str(work), url)
        wait_for_workers(page, 2)
        yield url


@pytest.mark.jvm
@pytest.mark.long
def test_a_cluster_runs_the_pipeline_with_packages_that_were_sent(tmp_path: Path) -> None:
    import json

    rows, planted = plant(entries_in_each=20, logs=8)
    write_rows(tmp_path / "out", rows)
    with cluster(tmp_path) as url:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, url, str(tmp_path / "out")],
            env=os.environ | {"PYTHONPATH": str(TOP), "PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["executors"] == 2
    assert all("bamboo_packages.zip" in file for file in found["files"])
    assert found["faults"] == {kind: 1 for kind, _, _ in planted}
    assert found["logs"] == 8
