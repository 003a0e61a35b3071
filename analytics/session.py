"""Starting Spark, and sending this project's packages to its workers."""

import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wire import NATIVE

from .class_archive import archive_settings
from .connect import refuse_connect_settings
from .errors import SparkFailed
from .extras import require
from .failures import redacted, unless_java_ended
from .java import ensure_java
from .progress import HEARTBEAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHIPPED: Final = ("analytics", "gateways", "logstore", "pyspark_bamboo", "wire")
ARCHIVE: Final = "bamboo_packages.zip"
_LOGGING: Final = Path(__file__).resolve().with_name("log4j2.properties")
# An analysis takes seconds, and half of Java's share of them was its second compiler and G1, on the
# cores that Python checks on. An audit of a million rows takes as much of the cores either way,
# since there the time is Python's.
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
# Without memory a thread of Spark's driver ends, and what waits for it never does. Java says so on
# standard error, as everybody else.
_DRIVER_OPTIONS: Final = (
    f"{_JAVA_OPTIONS} -XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr "
    f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
)
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": _DRIVER_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Rows hold payloads, and what is in memory of a batch is several times its size: in Java's rows
    # and Arrow's buffers, which double as they grow, then in Python twice.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
    "spark.sql.shuffle.partitions": "8",
    "spark.executor.heartbeatInterval": HEARTBEAT,
}


def ensure_spark() -> None:
    """Whether there is what Spark needs, without starting it. Raises MissingExtra, JavaMissing."""
    require("pyspark", "pyarrow", "pandas")
    ensure_java()


@contextmanager
def start_spark(
    master: str = "local[*]", name: str = "bamboo-peer", settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A session that is stopped at the end. Raises MissingExtra, JavaMissing, SparkFailed.

    `settings` go before what is set here. On a cluster the workers get this project's packages,
    but have to have PyNaCl and pyarrow; which Python they use is up to PYSPARK_PYTHON.
    """
    refuse_connect_settings(master, settings or {})
    ensure_spark()
    from pyspark.sql import SparkSession

    local = master.startswith("local")
    chosen = _SETTINGS | archive_settings(settings or {}, master)
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Its workers run where this module is, as those of a cluster do not.
        chosen |= {"spark.python.daemon.module": "analytics.python_daemon"}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (chosen | dict(settings or {})).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        reason = redacted(str(error).strip().partition("\n")[0], settings)
        raise SparkFailed(
            f"Spark does not start ({reason})", master, "look at the master's URL and at its log"
        ) from error
    # What is raised is told by whoever catches it, not in JSON on standard error too.
    for told in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(told).setLevel(logging.CRITICAL)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        if local:
            yield spark
        else:
            with tempfile.TemporaryDirectory(prefix="bamboo-spark-") as folder:
                ship_packages(spark, Path(folder))
                yield spark
    finally:
        with unless_java_ended():
            spark.stop()


def ship_packages(spark: "SparkSession", folder: Path) -> Path:
    """Gives all workers this project's packages, as a zip made in `folder`, and the native core.

    The zip.
    """
    path = write_zip(folder / ARCHIVE)
    spark.sparkContext.addPyFile(str(path))
    core = native_file()
    if core is not None:
        spark.sparkContext.addFile(str(core))
    return path


def native_file() -> Path | None:
    """The native core, if it is in use here and is one file.

    Python cannot import it from the zip, but finds it beside. On another platform than this one it
    does not load, and the worker checks with PyNaCl.
    """
    file = None if NATIVE is None else import_module("bamboo_native").__file__
    path = None if file is None else Path(file)
    return path if path is not None and path.name.endswith(tuple(EXTENSION_SUFFIXES)) else None


def write_zip(path: Path) -> Path:
    """The packages that workers need, as they are installed here."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in SHIPPED:
            spec = find_spec(package)
            assert spec is not None
            assert spec.submodule_search_locations
            root = Path(spec.submodule_search_locations[0])
            for file in sorted(root.rglob("*.py")):
                archive.write(file, Path(package) / file.relative_to(root))
    return path
