"""Standalone clusters from pyspark's own distribution: a master and workers, processes of the test.

The workers know nothing of this project but what a session sends them: their environment names no
path of it, and they run in a directory elsewhere.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest

from analytics import ensure_java

TOP = Path(__file__).resolve().parents[2]
START_S = 60
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.executor.extraJavaOptions": _QUICK_JAVA,
}
"""Small data once: compiling costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One that runs."""

    url: str
    folder: Path
    workers: list[int] = field(default_factory=list)
    """Process ids."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a command has said."""

    status: int
    out: str
    err: str

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        records = [json.loads(line) for line in self.out.splitlines()]
        return {record["stage"]: record for record in records}


def free_port() -> int:
    """A port of loopback that nobody listens on."""
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
        time.sleep(0.1)
    pytest.fail(f"{count} workers did not register")


@contextmanager
def cluster(folder: Path, *, own_disk: Path | None = None) -> Iterator[Cluster]:
    """A master and two workers on loopback.

    `own_disk`: a directory under which each worker finds a disk of its own, as root only.
    """
    port, page = free_port(), free_port()
    environment = {
        "JAVA_HOME": str(ensure_java()),
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_JAVA,
    }
    program = f"{environment['SPARK_HOME']}/bin/spark-class"
    master = [program, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    worker = [program, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
    with ExitStack() as stack:

        def run(name: str, *command: str) -> int:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process.pid

        run("master", *master, "--port", str(port), "--webui-port", str(page))
        # A worker that finds no master tries again only after ten seconds.
        wait_for_workers(page, 0)
        found = Cluster(f"spark://127.0.0.1:{port}", folder)
        for name in ("one", "two"):
            work, before = folder / name, []
            if own_disk is not None:
                (folder / f"{name}-disk").mkdir()
                script = 'mount --bind "$0" "$1" && shift && exec "$@"'
                disk = str(folder / f"{name}-disk")
                before = ["unshare", "-m", "sh", "-c", script, disk, str(own_disk)]
            limits = ("--cores", "1", "--memory", "600m", "--webui-port", str(free_port()))
            found.workers.append(
                run(name, *before, *worker, *limits, "--work-dir", str(work), found.url)
            )
        wait_for_workers(page, 2)
        yield found


def analyze_command(
    spark: Cluster, *arguments: str | Path, settings: Mapping[str, str] | None = None
) -> list[str]:
    """`bamboo-peer analyze --master ... --json`, as a process of its own."""
    program = "from bamboo_cli import main; raise SystemExit(main())"
    flags = [f"--conf={key}={value}" for key, value in (SETTINGS | dict(settings or {})).items()]
    command = [sys.executable, "-c", program, "analyze", "--json", "--master", spark.url, *flags]
    return command + [str(each) for each in arguments]


def driver_environment(python: Path | str | None, **more: str) -> dict[str, str]:
    """What the driver sees; `python` is PYSPARK_PYTHON, None for none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    if python is not None:
        kept["PYSPARK_PYTHON"] = str(python)
    return kept | {"PYTHONPATH": str(TOP), "SPARK_LOCAL_IP": "127.0.0.1"} | more


def analyze_on(
    spark: Cluster,
    *arguments: str | Path,
    python: Path | str | None = sys.executable,
    settings: Mapping[str, str] | None = None,
    **more: str,
) -> Run:
    """What `bamboo-peer analyze` says on a cluster."""
    done = subprocess.run(
        analyze_command(spark, *arguments, settings=settings),
        env=driver_environment(python, **more),
        cwd=spark.folder,
        capture_output=True,
        check=False,
        timeout=240,
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())


PYNACL = ("nacl", "cffi", "_cffi_backend*.so")
PYARROW = ("pyarrow", "pyarrow.libs")


def python_with(folder: Path, *packages: str, program: Path | str = sys.executable) -> Path:
    """A virtual environment's Python that sees these packages of ours and no others."""
    subprocess.run([program, "-m", "venv", "--without-pip", folder], check=True)
    add_packages(folder, *packages)
    return folder / "bin/python"


def add_packages(folder: Path, *packages: str) -> None:
    """Lets a virtual environment see packages of ours."""
    [ours] = {path for path in map(Path, sys.path) if (path / "pyspark").is_dir()}
    [site] = folder.glob("lib/python*/site-packages")
    for package in packages:
        for path in ours.glob(package):
            (site / path.name).symlink_to(path)


def other_python(minor: int) -> Path | None:
    """A Python of another minor version on this machine, None if there is none."""
    folders: Sequence[Path] = [Path("/usr/bin"), Path("/usr/local/bin")]
    base = Path(sys.base_prefix)
    folders = [*folders, *(each / "bin" for each in sorted(base.parent.glob(f"3.{minor}.*")))]
    found = (folder / f"python3.{minor}" for folder in folders)
    return next((each for each in found if each.exists()), None)
