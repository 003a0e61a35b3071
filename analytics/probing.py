"""Asks the workers of a session what they have, before they are given work (see worker_probe.py).

The question is a program that Spark's executors run by the shell, and no function of PySpark: that
would fail where Python is missing or another version, with an error that does not say where.
"""

import json
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wire import NATIVE

from .errors import SparkFailed
from .java import executors, java_context
from .layout import disk_errors
from .requirements import PACKAGES, install_line, python_line, python_version
from .session import ARCHIVE

if TYPE_CHECKING:
    from pyspark.conf import SparkConf
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession

_PROGRAM: Final = Path(__file__).with_name("worker_probe.py")
# The Python may not be there, or not take the program: then the shell answers.
_SHELL: Final = (
    'cat >/dev/null; "$0" -c "$1" "$2" 2>/dev/null || '
    """printf '{"host": "%s", "worker": "%s", "python": null}\\n' "$(hostname)" "$PWD\""""
)
_ROUNDS_MAX: Final = 5
_EXECUTORS_S: Final = 60.0
_SETTLED_S: Final = 1.0
_LISTED: Final = 5

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workers:
    """The executors that were asked."""

    count: int
    native: int
    """How many of them have the native core; the others check signatures through PyNaCl."""


def ask_workers(
    spark: "SparkSession", inputs: Sequence[Path | str], out: Path | None = None
) -> Workers:
    """What the executors have. Raises SparkFailed, with machine and what to type, where it is not
    enough: another minor version of Python, no PyNaCl or pyarrow, an input that is not seen, or,
    if `out` is given (a directory that is there), results that could not be written into it.
    """
    context = spark.sparkContext
    python = context.pythonExec
    local = bool(java_context(context).isLocal())
    if local and shutil.which(python) == shutil.which(sys.executable):
        return Workers(1, int(NATIVE is not None))
    if not local:
        _await_executors(context)
    with _probe_file(out) as probe:
        asked = {
            "version": python_version(),
            "libraries": list(PACKAGES),
            "packages": ARCHIVE,
            "files": _files_folder(local=local),
            "inputs": {
                str(root): str(_some_file(root))
                for root in (Path(each).absolute() for each in inputs if "://" not in str(each))
            },
            "out": None if probe is None else str(probe),
        }
        answers = _answers(context, python, asked)
        faults = [fault for each in answers for fault in _faults(each, python)]
        if probe is not None and not faults:
            faults = _unseen_writers(answers, probe)
    if faults:
        places = list(dict.fromkeys(where for where, _ in faults))
        remedies = list(dict.fromkeys(remedy for _, remedy in faults))
        more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
        raise SparkFailed(
            "a worker cannot do its part",
            "; ".join(places[:_LISTED]) + more,
            "; ".join(remedies[:_LISTED]),
        )
    return Workers(len(answers), sum(bool(each["native"]) for each in answers))


def executors_wanted(conf: "SparkConf") -> int | None:
    """How many executors the settings of a session ask for. None: as many as there is room for.

    A cluster that has less room starts fewer: that shows by no further one coming.
    """
    instances, cores = conf.get("spark.executor.instances"), conf.get("spark.cores.max")
    if instances is not None:
        return int(instances)
    each = conf.get("spark.executor.cores")
    return int(cores) // int(each) if cores is not None and each is not None else None


def _some_file(root: Path) -> Path:
    """A data file of an input: where a disk is not mounted its directory may be there, empty."""
    return next(root.glob("date=*/part-*"), root)


def _files_folder(*, local: bool) -> str:
    """Where executors find what was sent to them: their own directory, but on this machine."""
    from pyspark import SparkFiles

    return SparkFiles.getRootDirectory() if local else "."


def _alive(context: "SparkContext") -> list[Any]:
    return [each for each in executors(context) if each.isActive() and each.id() != "driver"]


def _await_executors(context: "SparkContext") -> None:
    """Until all are there that were asked for or, where nobody said how many, there is one and no
    further one has come for a while. Those that a cluster starts on demand come with the first
    work."""
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    start, wanted = time.monotonic(), executors_wanted(context.getConf())
    while True:
        came = [each.addTime().getTime() / 1e3 for each in _alive(context)]
        if len(came) == wanted or (came and time.time() > max(came) + _SETTLED_S):
            return
        if not came and time.monotonic() > start + _EXECUTORS_S:
            raise SparkFailed(
                f"no executor came within {_EXECUTORS_S:.0f} s",
                str(context.master),
                "look at the master's page whether a worker has what is asked for, or ask for less:"
                " --conf spark.executor.memory=512m --conf spark.executor.cores=1",
            )
        time.sleep(0.05)


def _answers(context: "SparkContext", python: str, asked: Answer) -> list[Answer]:
    """One of each executor. Which of them runs a task is Spark's choice: until all have spoken."""
    command = ["sh", "-c", _SHELL, python, _PROGRAM.read_text("utf-8"), json.dumps(asked)]
    found: dict[tuple[str, str], Answer] = {}
    for _ in range(_ROUNDS_MAX):
        tasks = max(context.defaultParallelism, len(_alive(context)))
        lines = java_context(context).parallelize(list(range(tasks)), tasks).pipe(command).collect()
        for answer in map(json.loads, lines):
            found[answer["host"], answer["worker"]] = answer
        if len(found) >= len(_alive(context)):
            break
    return [found[key] for key in sorted(found)]


def _faults(answer: Answer, python: str) -> Iterator[tuple[str, str]]:
    """What an executor lacks, and the line to type."""
    host = answer["host"]
    if answer["python"] is None:
        yield f"{host}: {python} does not run there", python_line()
        return
    if answer["version"] != python_version():
        told = f"{python} is Python {answer['version']}, and the driver's is {python_version()}"
        yield f"{host}: {told}", python_line()
        return
    lacks = dict(answer["lacks"])
    known = [module for module in lacks if module in PACKAGES]
    remedy = f"type on {host}: {install_line(python, *known)}" if known else "install it there"
    for module, error in lacks.items():
        yield f"{host}: {python} lacks {module} ({error})", remedy
    for path in answer["unseen"]:
        yield (
            f"{host}: it does not see {path}",
            f"mount it there, or: rsync -a {path}/ {host}:{path}/",
        )
    if answer["out"] is not None:
        yield _out_fault(host, answer["out"])


def _out_fault(host: str, verb: str) -> tuple[str, str]:
    return (
        f"{host}: it {verb} OUT",
        "with --payload-schema name a directory that all machines share: --to /shared/results",
    )


def _unseen_writers(answers: list[Answer], probe: Path) -> list[tuple[str, str]]:
    """Executors whose file beside `probe` did not come to be seen here."""
    seen = {path.read_text("utf-8") for path in probe.parent.glob(f"{probe.name}-*")}
    hosts = sorted({each["host"] for each in answers} - seen)
    return [_out_fault(host, "writes elsewhere than to") for host in hosts]


@contextmanager
def _probe_file(out: Path | None) -> Iterator[Path | None]:
    if out is None:
        yield None
        return
    probe = out.absolute() / f".probe-{secrets.token_hex(8)}"
    with disk_errors(out):
        probe.write_text("")
    try:
        yield probe
    finally:
        for path in probe.parent.glob(f"{probe.name}*"):
            path.unlink(missing_ok=True)
