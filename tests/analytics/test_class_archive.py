"""The archive of Java's classes: which one fits, whose it is, and that a part of one is none."""

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from analytics import (
    AnalyticsError,
    ClassesNotPrepared,
    Prepared,
    SparkFailed,
    analyze,
    class_archive,
    prepare_classes,
    session,
    start_spark,
)
from analytics.class_archive import (
    DEFAULT_OPTIONS,
    EXECUTOR_DEFAULT_OPTIONS,
    EXECUTOR_EXTRA_OPTIONS,
    EXTRA_OPTIONS,
    archive_settings,
    cache_folder,
    writing_settings,
)
from analytics.class_training import make_exports
from bamboo_cli import analyzing
from tests.cli.harness import CommandLine

TOP = Path(__file__).resolve().parents[2]
CONTENT = b"classes"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for archives, of a Java and a Spark that are names alone."""
    for variable in class_archive._VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    java = tmp_path / "java"
    java.mkdir()
    (java / "release").write_text('JAVA_VERSION="17.0.15"\n')
    make_spark(tmp_path / "spark")
    monkeypatch.setattr(class_archive, "ensure_java", lambda: java)
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("BAMBOO_PEER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(class_archive, "_run", training())
    return tmp_path / "cache"


def make_spark(path: Path) -> None:
    (path / "jars").mkdir(parents=True)
    (path / "jars/spark-core.jar").write_bytes(b"jar")


def training(
    content: bytes | None = CONTENT, status: int = 0, output: str = ""
) -> Callable[..., tuple[int, str]]:
    """Stands for the process whose Java writes an archive."""

    def run(program: list[str], environment: object) -> tuple[int, str]:
        if content is not None:
            Path(program[-1]).write_bytes(content)
        return status, output

    return run


def archives(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsa"))


def used() -> str:
    """The options that Spark's driver gets for the archive."""
    return archive_settings({}).get(DEFAULT_OPTIONS, "")


def test_it_is_made_once_and_used_from_then_on(cache: Path) -> None:
    assert used() == ""
    made = prepare_classes()
    assert (made.made, made.bytes, made.path.read_bytes()) == (True, len(CONTENT), CONTENT)
    again = prepare_classes()
    assert (again.made, again.path, again.bytes) == (False, made.path, made.bytes)
    assert f"-XX:SharedArchiveFile={made.path}" in shlex.split(used())
    assert "-Xshare:auto" in used()
    assert archives(cache) == [made.path]
    assert cache.stat().st_mode & 0o777 == 0o700


def test_the_folder_is_named_or_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAMBOO_PEER_CACHE", "/named")
    assert cache_folder() == Path("/named")
    monkeypatch.delenv("BAMBOO_PEER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/bamboo-peer")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/home/amy")
    for platform, folder in (("linux", ".cache"), ("darwin", "Library/Caches")):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == Path("/home/amy", folder, "bamboo-peer")


def test_a_path_with_a_blank_is_one_option(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAMBOO_PEER_CACHE", str(cache.parent / "a cache"))
    made = prepare_classes()
    assert f"-XX:SharedArchiveFile={made.path}" in shlex.split(used())
    [option, *_] = shlex.split(writing_settings(made.path)[DEFAULT_OPTIONS])
    assert option == f"-XX:ArchiveClassesAtExit={made.path}"


def test_what_the_user_says_goes_before(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_classes()
    assert DEFAULT_OPTIONS in archive_settings({EXTRA_OPTIONS: "-XX:+UseSerialGC"})
    for option in ("-XX:SharedArchiveFile=x", "-XX:ArchiveClassesAtExit=x", "-Xshare:off"):
        assert archive_settings({EXTRA_OPTIONS: f"-Dx=y {option}"}) == {}
        for variable in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
            with monkeypatch.context() as patch:
                patch.setenv(variable, option)
                assert archive_settings({}) == {}
                with pytest.raises(ClassesNotPrepared, match=f"unset {variable}"):
                    prepare_classes()
    assert archive_settings({DEFAULT_OPTIONS: "-Dx=y"}) == {}


@pytest.mark.parametrize(
    ("master", "used"),
    [
        ("local[2]", False),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://192.0.2.7:7077", False),
        ("spark://localhost.example.org:7077", False),
        ("k8s://https://127.0.0.1:6443", False),
        ("yarn", False),
    ],
)
def test_executors_use_it_where_they_are_on_this_machine(
    cache: Path, master: str, used: bool
) -> None:
    made = prepare_classes()
    options = archive_settings({}, master).get(EXECUTOR_DEFAULT_OPTIONS, "")
    assert (f"-XX:SharedArchiveFile={made.path}" in shlex.split(options)) is used
    said = {EXECUTOR_EXTRA_OPTIONS: "-Xshare:off"}
    assert archive_settings(said, master).keys() == {DEFAULT_OPTIONS}
    assert archive_settings({EXECUTOR_DEFAULT_OPTIONS: "-Dx=y"}, master).keys() == {DEFAULT_OPTIONS}


CHANGES: dict[str, Callable[[Path], object]] = {
    "another Java": lambda top: (top / "java/release").write_text('JAVA_VERSION="17.0.16"\n'),
    "a jar of another size": lambda top: (top / "spark/jars/spark-core.jar").write_bytes(b"other"),
    "a jar of another time": lambda top: os.utime(top / "spark/jars/spark-core.jar", (1, 1)),
    "one more jar": lambda top: (top / "spark/jars/more.jar").write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_one_that_no_longer_fits_is_not_used_and_the_next_takes_its_place(
    cache: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    before = prepare_classes()
    change(tmp_path)
    assert used() == ""
    after = prepare_classes()
    assert after.made
    assert after.path != before.path
    assert archives(cache) == [after.path]


def test_each_spark_has_its_own_until_it_is_gone(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = prepare_classes()
    make_spark(tmp_path / "other")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "other"))
    other = prepare_classes()
    assert archives(cache) == sorted([one.path, other.path])
    shutil.rmtree(tmp_path / "spark")
    (tmp_path / "java/release").write_text("newer")
    newer = prepare_classes()
    assert archives(cache) == [newer.path]
    assert len(list(cache.glob("*.spark"))) == 1


def test_one_that_was_cut_off_is_not_used(cache: Path) -> None:
    """Java would crash over it."""
    path = prepare_classes().path
    path.write_bytes(CONTENT[:-1])
    assert used() == ""
    made = prepare_classes()
    assert made.made
    assert made.path.read_bytes() == CONTENT


def test_whoever_is_killed_leaves_nothing_that_is_used(cache: Path) -> None:
    program = """
import os, signal
from pathlib import Path
from analytics import class_archive
def run(program, environment):
    Path(program[-1]).write_bytes(b"a part")
    os.kill(os.getpid(), signal.SIGKILL)
class_archive.ensure_java = lambda: None
class_archive._run = run
class_archive.prepare_classes()
"""
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    [left] = cache.glob("*.tmp")
    assert [path.read_bytes() for path in left.iterdir()] == [b"a part"]
    assert used() == ""
    assert prepare_classes().made
    assert list(cache.glob("*.tmp")) == []


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (training(b"a part", 1, "Spark says\n\nno space left\n"), "no space left"),
        (training(None), "no reason"),
    ],
    ids=["Java ends badly", "Java writes nothing"],
)
def test_what_java_does_not_write_whole_is_a_line_and_nothing_is_left(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., tuple[int, str]],
    reason: str,
) -> None:
    monkeypatch.setattr(class_archive, "_run", run)
    with pytest.raises(ClassesNotPrepared, match=reason) as raised:
        prepare_classes()
    assert "\n" not in str(raised.value)
    assert [path.name for path in cache.iterdir()] == ["lock"]
    assert used() == ""


def test_java_that_does_not_end_is_ended(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(class_archive, "_TIMEOUT_S", 0.5)
    program = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    status, output = class_archive._run([sys.executable, "-c", program], os.environ)
    assert (status, output) == (-signal.SIGKILL, "it took more than 0 s")


def test_one_at_a_time(cache: Path) -> None:
    cache.mkdir(0o700)
    with (cache / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClassesNotPrepared, match=r"another process .*; wait for it"):
            prepare_classes()
    assert prepare_classes().made


def test_a_disk_without_room_is_a_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    with pytest.raises(ClassesNotPrepared, match="needs 400 MiB, and 5 are free"):
        prepare_classes()
    assert archives(cache) == []


def test_a_folder_that_cannot_be_made_is_a_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file/below"):
        monkeypatch.setenv("BAMBOO_PEER_CACHE", str(folder))
        with pytest.raises(AnalyticsError) as raised:
            prepare_classes()
        assert str(folder).startswith(str(tmp_path / "file"))
        assert "\n" not in str(raised.value)
        assert used() == ""


def owned_by_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)


OPENED: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "group": lambda cache, _: cache.chmod(0o770),
    "everybody": lambda cache, _: cache.chmod(0o707),
    "another's": owned_by_another,
    "above": lambda cache, _: cache.parent.chmod(0o777),
}


@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)
def test_what_others_can_write_into_is_not_used(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[[Path, pytest.MonkeyPatch], object],
) -> None:
    prepare_classes()
    opened(cache, monkeypatch)
    assert used() == ""
    with pytest.raises(ClassesNotPrepared, match=str(cache)):
        prepare_classes()
    monkeypatch.undo()


def test_an_archive_that_others_can_write_or_that_is_a_link_is_not_used(
    cache: Path, tmp_path: Path
) -> None:
    path = prepare_classes().path
    path.chmod(0o620)
    assert used() == ""
    path.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o600)
    path.symlink_to(tmp_path / "elsewhere")
    assert used() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_an_archive_of_somebody_else_is_not_used(cache: Path) -> None:
    os.chown(prepare_classes().path, 65534, -1)
    assert used() == ""


def test_java_would_take_a_colon_for_two_archives(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAMBOO_PEER_CACHE", f"{cache}:more")
    with pytest.raises(ClassesNotPrepared, match="colon"):
        prepare_classes()


@pytest.mark.jvm
def test_java_says_nothing_of_one_that_does_not_fit(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_classes()
    options = shlex.split(used())
    monkeypatch.undo()
    from analytics import ensure_java

    java = ensure_java() / "bin/java"
    for more in ([], options):
        done = subprocess.run([java, *more, "--version"], capture_output=True, check=True)
        assert (len(done.stdout.splitlines()), done.stderr) == (3, b"")


def test_the_driver_of_any_master_gets_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}

    class Builder:
        def __getattr__(self, _: str) -> Callable[..., "Builder"]:
            return lambda *_: self

        def config(self, key: str, value: str) -> "Builder":
            told[key] = value
            return self

        def getOrCreate(self) -> SparkSession:  # noqa: N802 - as Spark calls it
            raise RuntimeError("no Java")

    monkeypatch.setattr(session, "ensure_spark", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    path = prepare_classes().path
    for master in ("local[2]", "spark://host:7077"):
        told.clear()
        with pytest.raises(SparkFailed), start_spark(master):
            pass
        assert str(path) in told[DEFAULT_OPTIONS]
        assert "SharedArchiveFile" not in told["spark.executor.extraJavaOptions"]
        assert "spark.executor.defaultJavaOptions" not in told


def test_the_lake_has_something_for_each_stage(spark: SparkSession, tmp_path: Path) -> None:
    roots = make_exports(tmp_path)
    stages = {
        stage.name: stage.summary
        for stage in analyze(spark, roots, tmp_path / "out", payload_schema="text STRING")
    }
    assert stages["audit"]["by_kind"] == {"fork": 1}
    assert (stages["delay"]["nodes"], stages["delay"]["pairs"]) == (2, 1)
    assert stages["payloads"]["decoded"]
    assert stages["payloads"]["rejected"]
    assert "report" in stages


def test_the_command_says_in_a_line_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine.isolated(tmp_path, monkeypatch)
    found = Prepared(Path("/cache/x.jsa"), 193_000_000, 41.2, made=True)
    monkeypatch.setattr(analyzing, "prepare_classes", lambda: found)
    result = cli("analyze", "--prepare")
    assert (result.status, result.err) == (0, "")
    assert result.text == "made in 41 s, 193 MB of Java's classes: /cache/x.jsa"
    assert cli("analyze", "--prepare", "--json").record == {
        "archive": "/cache/x.jsa",
        "bytes": 193_000_000,
        "made": True,
        "seconds": 41.2,
    }
    found = Prepared(Path("/cache/x.jsa"), 193_000_000, 0.0, made=False)
    text = "nothing to do, Java's classes are there, 193 MB: /cache/x.jsa"
    assert cli("analyze", "--prepare").text == text


def test_the_command_that_cannot_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine.isolated(tmp_path, monkeypatch)

    def fails() -> Prepared:
        raise ClassesNotPrepared("Java did not", tmp_path, "go on")

    monkeypatch.setattr(analyzing, "prepare_classes", fails)
    result = cli("analyze", "--prepare")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    for argv in (("--prepare", tmp_path), (tmp_path,), ("--to", tmp_path), ()):
        result = cli("analyze", *argv)
        assert (result.status, len(result.err.splitlines())) == (2, 1)
        assert "--prepare" in result.err


@pytest.mark.long
@pytest.mark.jvm
def test_java_writes_one_and_maps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAMBOO_PEER_CACHE", str(tmp_path / "a cache"))
    made = prepare_classes()
    assert made.bytes > 100 << 20
    # In a process of its own: the tests' Java may be in this one.
    program = """
from pathlib import Path
from analytics import start_spark
with start_spark("local[2]") as spark:
    print(spark.range(3).count())
    print(Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text())
"""
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True
    )
    first, maps = done.stdout.decode().split("\n", 1)
    assert first == "3"
    assert str(made.path) in maps
