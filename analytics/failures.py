"""What Spark's errors mean: on which machine, what is missing there, and what to type.

Spark gives the whole of a worker's traceback behind a first line that says that there is one, and
the machine not at all, or in the message of another exception further down.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import SparkFailed
from .java import executors, exit_status
from .requirements import PACKAGES, install_line, python_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\w+)\)")
_MODULE = re.compile(r"No module named '([\w.]+)'")
_VERSION = re.compile(r"Python in worker has different version: (\S+) than that in driver: (\S+),")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_GONE = re.compile(r"File (file:\S+) does not exist|(?:FileNotFoundException: )(file:\S+)")
_UNREADABLE = re.compile(
    r"(?:Encountered error while reading file|Could not read footer.*?) (\S+?)\.? "
)
_LOST = re.compile(r"ExecutorLostFailure \(executor (\w+) exited[^)]*\)")
_LAST_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
_CAUSES_MAX: Final = 40
_SECRET = re.compile(
    "secret|password|passwd|token|credential|access.?key|private.?key", re.IGNORECASE
)
_SECRET_CHARS_MIN: Final = 6
OUT_OF_MEMORY: Final = 3
"""The status with which Java ends by `-XX:+ExitOnOutOfMemoryError`."""
_LOOK: Final = "look at the input, and at Spark's log"


@contextmanager
def spark_errors(stage: str, spark: "SparkSession", out: Path) -> Iterator[None]:
    """Turns what Spark raises into SparkFailed, and what is raised since its Java has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        told = isinstance(error, PySparkException | Py4JJavaError)
        status = None if told else exit_status(spark.sparkContext)
        if status is not None:
            raise _java_ended(stage, status) from error
        if not isinstance(error, PySparkException | Py4JError):
            raise
        failed = Failed(list(messages_of(error)), failed_executors(spark), worker_python(spark))
        raise failed.explain(stage, out) from error


def _java_ended(stage: str, status: int) -> SparkFailed:
    why = "it had no memory left" if status == OUT_OF_MEMORY else f"with status {status}"
    return SparkFailed(
        f"the stage {stage} failed: the driver's Java ended ({why})",
        socket.gethostname(),
        "look whether the machine has the memory, and give Java more: --driver-memory 2g",
    )


@contextmanager
def unless_java_ended() -> Iterator[None]:
    """For what is let go of at the end: of a Java that has ended nothing is held any more, and why
    it has is told already."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        yield


def worker_python(spark: "SparkSession") -> str:
    """The program that a session's workers run."""
    return str(spark.sparkContext.pythonExec)


def failed_executors(spark: "SparkSession") -> list[str]:
    """Where tasks of this session have failed so far, like `10.0.0.7 (executor 1)`."""
    from py4j.protocol import Py4JError

    try:
        return [
            f"{each.hostPort().rpartition(':')[0]} (executor {each.id()})"
            for each in executors(spark.sparkContext)
            if each.failedTasks() > 0
        ]
    except Py4JError:
        # The session has ended, which is what is told of then.
        return []


@dataclass(frozen=True, slots=True)
class Failed:
    """A query that has failed."""

    messages: list[str]
    """What Spark and the exceptions below it say, the outermost first."""
    executors: list[str]
    python: str

    def explain(self, stage: str, out: Path) -> SparkFailed:
        """What it means."""
        text = "\n".join(self.messages)
        what, where, remedy = self._meaning(text, out)
        return SparkFailed(redacted(f"the stage {stage} failed: {what}"), where, remedy)

    def _meaning(self, text: str, out: Path) -> tuple[str, str | Path, str]:
        task = _TASK.search(text)
        told = [f"{task[1]} (executor {task[2]})"] if task else self.executors
        host = ", ".join(told) or "a worker"
        if found := _VERSION.search(text):
            fault = f"{self.python} is Python {found[1]} there, and the driver's is {found[2]}"
            return fault, host, python_line(found[2])
        if found := _PROGRAM.search(text):
            return f"{found[1]} does not run there", host, python_line()
        if found := _MODULE.search(text):
            module = found[1].partition(".")[0]
            known = f"type there: {install_line(self.python, module)}"
            return (
                f"{self.python} lacks {module} there",
                host,
                known if module in PACKAGES else _LOOK,
            )
        if found := _GONE.search(text):
            path = str(found[1] or found[2]).removeprefix("file:")
            return "a file is not seen there", f"{path}, at {host}", "mount its directory there"
        if found := _UNREADABLE.search(text):
            return "a file cannot be read", f"{found[1].removeprefix('file:')}, at {host}", _LOOK
        if found := _LOST.search(text):
            remedy = "look whether its machine has the memory: --conf spark.executor.memory=2g"
            return f"executor {found[1]} ended before its work, again and again", host, remedy
        return _reason(self.messages), host if told else out, _LOOK


def _reason(messages: list[str]) -> str:
    """The last line of a worker's traceback; else the first that Spark says."""
    for message in messages:
        if "Traceback (most recent call last)" in message:
            lines = _LAST_LINE.findall(message.partition("Traceback")[2])
            if lines:
                return str(lines[-1]).strip()
    lines = [line.strip() for line in "\n".join(messages).splitlines() if line.strip()]
    return lines[0] if lines else "it does not say why"


def messages_of(error: BaseException) -> Iterator[str]:
    """What an error of PySpark or Py4J says, then each of the Java exceptions below it."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    # Of Py4J's own error the text is the Java stack too, of PySpark's it is the explanation.
    if not hasattr(error, "java_exception"):
        yield str(error)
    waiting, seen = [] if java is None else [java], 0
    while waiting and seen < _CAUSES_MAX:
        exception = waiting.pop(0)
        seen += 1
        yield str(exception.getMessage() or exception.toString())
        cause = exception.getCause()
        waiting += [*exception.getSuppressed(), *([] if cause is None else [cause])]


def redacted(text: str, settings: Mapping[str, str] | None = None) -> str:
    """A text without the values of variables, and of settings, that are secrets by their name."""
    for name, value in [*os.environ.items(), *(settings or {}).items()]:
        if _SECRET.search(name) and len(value) >= _SECRET_CHARS_MIN:
            text = text.replace(value, "***")
    return text
