"""Finding a Java that Spark can use, and what runs in it that PySpark has no name for."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import JavaMissing

if TYPE_CHECKING:
    from pyspark.core.context import SparkContext
    from pyspark.sql import DataFrame

JAVA_MIN: Final = 17
_FOLDERS: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")
_TIMEOUT_S: Final = 30
_ENDED_S: Final = 5


def ensure_java() -> Path:
    """The home of a Java 17 or newer, also put into JAVA_HOME. Raises JavaMissing."""
    too_old: list[str] = []
    for home in _candidates():
        version = java_version(home)
        if version is not None and version >= JAVA_MIN:
            os.environ["JAVA_HOME"] = str(home)
            return home
        if version is not None:
            too_old.append(f"{home} is Java {version}")
    raise JavaMissing(
        f"Spark needs Java {JAVA_MIN} or newer",
        ", ".join(too_old) or "there is no Java in JAVA_HOME, on the PATH or in /usr/lib/jvm",
        "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME",
    )


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for folder in map(Path, _FOLDERS):
        for home in sorted(folder.glob("*"), reverse=True) if folder.is_dir() else ():
            yield from (home, home / "Contents/Home")


def java_version(home: Path) -> int | None:
    """The major version of the Java in a directory, None if there is none that runs."""
    try:
        result = subprocess.run(  # noqa: S603 - a program that the user's environment names
            [home / "bin/java", "-version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?([0-9]+)', result.stderr)
    return int(found[1]) if found else None


def java_context(context: "SparkContext") -> Any:  # noqa: ANN401 - Java's own type
    """Java's context of a session: its executors, and tasks that need no Python."""
    return context._jsc  # noqa: SLF001 - there is no other way to it


def exit_status(context: "SparkContext") -> int | None:
    """How a session's Java ended, minus the signal if by one; None if it has not, after a wait.

    For who has lost the connection: it is closed a moment before the process is gone.
    """
    process = getattr(context._gateway, "proc", None)  # noqa: SLF001 - nor to its process
    if process is None:
        return None
    try:
        return int(process.wait(_ENDED_S))
    except subprocess.TimeoutExpired:
        return None


def end_java(context: "SparkContext") -> int:
    """Ends the Java of a session that is stopped; its exit status, minus the signal if by one."""
    gateway: Any = context._gateway  # noqa: SLF001 - nor to its process
    gateway.shutdown()
    gateway.proc.stdin.close()
    return int(gateway.proc.wait())


def executors(context: "SparkContext") -> list[Any]:
    """Java's summaries of a session's executors, those that have ended and the driver's own too."""
    spark = java_context(context).sc()
    # What happened a moment ago is still on its way to where it is summed up.
    spark.listenerBus().waitUntilEmpty()
    found = spark.statusStore().executorList(False)  # noqa: FBT003 - Java has no names for it
    return [found.apply(index) for index in range(found.size())]


def files_behind(frame: "DataFrame") -> list[str]:
    """The files, as URIs, that a DataFrame is made from, also where none of them is read.

    `DataFrame.inputFiles` looks at the plan that would run: it tells of none once the rows are
    cached, or where a condition leaves none of them.
    """
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - as above
    found: list[str] = []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            relation = leaf.relation()
            if relation.getClass().getSimpleName() == "HadoopFsRelation":
                found += relation.location().inputFiles()
    return found or list(frame.inputFiles())
