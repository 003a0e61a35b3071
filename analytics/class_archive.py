"""The archive of Java's classes, with which Spark starts in seconds less.

Theory. An analysis of some thousand rows takes 14 s of a core, a good part of it for loading and
verifying 23,400 classes: from 280 jars, each time anew. Java can write classes that it has loaded
into a file when it ends (`-XX:ArchiveClassesAtExit`), and map them from there the next time
(`-XX:SharedArchiveFile`), parsed and verified. That saves a quarter of all, and takes 190 MB of
disk, so one is made where somebody asks for it, and used wherever it is.

Which one fits. Java itself compares the archive with its own version and with the name, size and
time of each jar on its class path, and passes over one that does not fit, as over one that is gone
(`-Xshare:auto`). What it would say of it, on standard output, where our results are, is turned off.
The same things make up a part of the file's name, so that `prepare_classes` knows whether there is
something to do, and Java is not given what it would pass over. The other part stands for the
directory of Spark: several that are installed have an archive each, and a new one takes the place
of those for the same Spark that no longer fit, and of those whose Spark is gone.

How it is made. A process of its own analyses a small lake (class_training.py), and its Java writes
the archive as it ends, into a directory of this work alone. Only when Java has ended well and the
file is on disk does it get the name by which it is found: who is killed on the way leaves a
directory behind that the next one removes. Java does not notice that the end of one is missing, and
crashes; so the name says how many bytes there are, and one that has fewer, as after a copy that was
cut off, is not used.

Whose it is. Java runs what stands in an archive as it runs a jar. So one is used only from a
directory that belongs to the user, and that nobody else may change or put another in the place of.
That can be seen on this machine alone: executors use it on a cluster whose master is on loopback,
where the second of two on two cores cost more than it brought, and none elsewhere.

Alternatives not taken: making it unasked, at the end of someone's analysis, which would take three
times as long; a list of classes to make it from (`-XX:SharedClassListFile`), which another Spark
needs another of, and which takes an analysis to make; `spark.driver.extraJavaOptions`, where an
option of the user's replaces all of ours, while Spark puts `spark.driver.defaultJavaOptions` before
what the user says.
"""

import fcntl
import hashlib
import ipaddress
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from .errors import ClassesNotPrepared
from .extras import require
from .java import ensure_java
from .layout import disk_errors, sync_folder

DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
EXTRA_OPTIONS: Final = "spark.driver.extraJavaOptions"
EXECUTOR_DEFAULT_OPTIONS: Final = "spark.executor.defaultJavaOptions"
EXECUTOR_EXTRA_OPTIONS: Final = "spark.executor.extraJavaOptions"
_DRIVER: Final = (DEFAULT_OPTIONS, EXTRA_OPTIONS)
_EXECUTORS: Final = (EXECUTOR_DEFAULT_OPTIONS, EXECUTOR_EXTRA_OPTIONS)
# What Java logs of archives, in any version of it, would be among our results or beside our lines.
# Errors of all else stay, and go where everybody else's do.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
_CHOOSES: Final = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "AOTCache", "AOTMode")
# Where whoever starts Java says what it shall do.
_VARIABLES: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_BYTES_MAX: Final = 400 << 20
_TIMEOUT_S: Final = 900.0
_SUFFIX: Final = ".jsa"
_WORK: Final = ".tmp"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Prepared:
    """An archive that fits."""

    path: Path
    bytes: int
    seconds: float
    """That making it took."""
    made: bool
    """Whether it was made now; there was nothing to do otherwise."""


def cache_folder() -> Path:
    """Where archives are, there or not.

    `BAMBOO_PEER_CACHE` says it, or else what the platform has for it.
    """
    if chosen := os.environ.get("BAMBOO_PEER_CACHE"):
        return Path(chosen).absolute()
    if (xdg := os.environ.get("XDG_CACHE_HOME", "")).startswith("/"):
        return Path(xdg) / "bamboo-peer"
    folder = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path("~", folder, "bamboo-peer").expanduser()


def prepare_classes() -> Prepared:
    """Makes the archive for this Java and this Spark, unless there is one.

    Raises MissingExtra, JavaMissing, ClassesNotPrepared, and ExportFailed where the disk does not
    take it.
    """
    require("pyspark", "pyarrow", "pandas")
    ensure_java()
    for variable in _VARIABLES:
        if _chooses(os.environ.get(variable, "")):
            raise ClassesNotPrepared(
                "an archive of Java's classes is chosen already", variable, f"unset {variable}"
            )
    folder = cache_folder()
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(0o700)
    if why := _untrusted(folder):
        raise ClassesNotPrepared(*why)
    with disk_errors(folder), _alone(folder):
        path = _find(folder)
        if path is not None:
            return Prepared(path, path.stat().st_size, 0.0, made=False)
        began = time.monotonic()
        _remove_work(folder)
        with tempfile.TemporaryDirectory(_WORK, "classes-", folder) as work:
            written = _write(Path(work))
            size = written.stat().st_size
            path = folder / f"{_stem()}-{size}{_SUFFIX}"
            written.replace(path)
        sync_folder(folder)
        _remove_others(folder, path)
        return Prepared(path, size, time.monotonic() - began, made=True)


def archive_settings(settings: Mapping[str, str], master: str = "local") -> dict[str, str]:
    """What makes Spark use the archive, if there is one, beside a user's `settings`.

    The driver, and the executors of a cluster whose `master` is on loopback: those are on this
    machine, where it is known whose the archive is. Nothing where it is not to be trusted, or where
    the user has chosen one. Java has to have been found.
    """
    folder = cache_folder()
    path = _find(folder)
    if path is None or _untrusted(folder):
        return {}
    option = f"-Xshare:auto {shlex.quote(f'-XX:SharedArchiveFile={path}')} {_QUIET}"
    variables = [os.environ.get(name, "") for name in _VARIABLES]
    found = {}
    for default, extra in (_DRIVER, *([_EXECUTORS] if _is_here(master) else [])):
        said = [settings.get(extra, ""), *variables]
        if default not in settings and not any(map(_chooses, said)):
            found[default] = option
    return found


def _is_here(master: str) -> bool:
    """Whether a master's executors are processes of this machine, and others than the driver."""
    if master.startswith("local-cluster["):
        return True
    host = urlsplit(master).hostname if master.startswith("spark://") else None
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def writing_settings(path: Path) -> dict[str, str]:
    """What makes Spark's driver write an archive of its classes when it ends."""
    option = shlex.quote(f"-XX:ArchiveClassesAtExit={path}")
    return {DEFAULT_OPTIONS: f"{option} {_QUIET}"}


def _chooses(options: str) -> bool:
    return any(word in options for word in _CHOOSES)


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()).resolve()


def _find(folder: Path) -> Path | None:
    """The archive that fits, if it is there, whole, and the user's own."""
    for path in folder.glob(f"{_stem()}-*{_SUFFIX}"):
        about = path.lstat()
        if (
            stat.S_ISREG(about.st_mode)
            and about.st_uid == os.geteuid()
            and not about.st_mode & _OTHERS_WRITE
            and path.stem.endswith(f"-{about.st_size}")
        ):
            return path
    return None


def _stem() -> str:
    """What the name of the archive that fits begins with; its size follows."""
    spark = _spark_home()
    return f"{_place(spark)}-{_fits(spark)}"


def _place(spark: Path) -> str:
    """What the names of all archives for a directory of Spark begin with."""
    return f"classes-{hashlib.sha256(bytes(spark)).hexdigest()[:16]}"


def _fits(spark: Path) -> str:
    """Stands for all that Java compares."""
    home = Path(os.environ["JAVA_HOME"]).resolve()
    told = [str(home), platform.machine()]
    with suppress(OSError):
        told.append((home / "release").read_text("utf-8"))
    # In the order of the directory, as Java has them on its class path.
    with suppress(OSError), os.scandir(spark / "jars") as jars:
        for jar in jars:
            about = jar.stat()
            told.append(f"{jar.name} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def _untrusted(folder: Path) -> tuple[str, Path, str] | None:
    """Why what lies in a directory may be somebody else's: what, where, what to do."""
    remedy = "name another one: BAMBOO_PEER_CACHE"
    if ":" in str(folder):
        return "Java takes the name of an archive with a colon for two", folder, remedy
    real = folder.resolve()
    try:
        about = real.stat()
        if about.st_uid != os.geteuid():
            return "the directory for Java's classes belongs to somebody else", real, remedy
        if about.st_mode & _OTHERS_WRITE:
            return (
                "others may write into the directory for Java's classes, which are code",
                real,
                f"chmod 700 {shlex.quote(str(real))}",
            )
        for above in real.parents:
            mode = above.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return "others may put a directory of theirs in the place of this", real, remedy
    except OSError as error:
        return f"it cannot be used ({error.strerror})", folder, remedy
    return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else makes one here meanwhile. Raises ClassesNotPrepared, OSError."""
    with (folder / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClassesNotPrepared(
                "another process is making the archive of Java's classes", folder, "wait for it"
            ) from None
        yield


def _write(work: Path) -> Path:
    """Has an archive written by a process of its own, all of whose files are in `work`.

    It is on disk. Raises ClassesNotPrepared, OSError.
    """
    free = shutil.disk_usage(work).free
    if free < _BYTES_MAX:
        raise ClassesNotPrepared(
            f"an archive of Java's classes needs {_BYTES_MAX >> 20} MiB, and {free >> 20} are free",
            work.parent,
            "free space, or name another directory: BAMBOO_PEER_CACHE",
        )
    path = work / "archive"
    program = [sys.executable, "-m", f"{__package__}.class_training", str(work), str(path)]
    status, output = _run(program, os.environ | {"BAMBOO_PEER_STATE": str(work / "state")})
    if status != 0 or not path.is_file():
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        raise ClassesNotPrepared(
            f"Java did not write an archive of its classes ({lines[-1] if lines else 'no reason'})",
            work.parent,
            "analyses run without it, as before",
        )
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def _run(program: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """A process's exit status and what it printed. Whatever happens, nothing of it is left."""
    with subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
        program,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A group of its own, so that Spark's Java can be ended with it.
        start_new_session=True,
        cwd=Path(__file__).resolve().parents[1],
        text=True,
        errors="replace",
    ) as process:
        try:
            # Java has the pipe too, and has ended once nobody has it.
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            output = f"it took more than {_TIMEOUT_S:.0f} s"
        except BaseException:
            _kill(process)
            raise
        status = process.wait()
    return status, output


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _remove_work(folder: Path) -> None:
    """What those left behind who were killed."""
    for path in folder.glob(f"classes-*{_WORK}"):
        shutil.rmtree(path, ignore_errors=True)


def _remove_others(folder: Path, path: Path) -> None:
    """Archives that no longer fit the same Spark, and those whose Spark is gone.

    For each directory of Spark a link says where it is.
    """
    spark = _spark_home()
    place = folder / f"{_place(spark)}.spark"
    if not place.is_symlink():
        place.symlink_to(spark)
    for each in folder.glob("classes-*.spark"):
        if each == place or not each.exists():
            for archive in folder.glob(f"{each.stem}-*{_SUFFIX}"):
                if archive != path:
                    archive.unlink(missing_ok=True)
        if not each.exists():
            each.unlink(missing_ok=True)
