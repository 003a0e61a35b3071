"""What is installed is complete: typed, with its data, its licence and its command."""

import json
import os
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

TOP = Path(__file__).resolve().parents[1]
PACKAGES = (
    "analytics",
    "bymux",
    "gateways",
    "local_api",
    "logstore",
    "peer",
    "pyspark_bamboo",
    "wire",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    [path] = list(WheelBuilder(str(TOP)).build(directory=str(folder), versions=["standard"]))
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_every_package(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for package in PACKAGES:
        files = [path for path in (TOP / package).rglob("*") if path.is_file()]
        wanted = {path.relative_to(TOP).as_posix() for path in files if path.suffix != ".pyc"}
        assert f"{package}/py.typed" in wanted
        assert wanted <= names


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    folders = {name.partition("/")[0] for name in wheel.namelist()}
    declared = tomllib.loads((TOP / "pyproject.toml").read_text())
    packages = set(declared["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    others = {name for name in folders if not name.endswith((".dist-info", ".data"))}
    assert set(PACKAGES) <= others <= packages


def test_the_wheel_brings_the_manual_page(wheel: zipfile.ZipFile) -> None:
    pages = [name for name in wheel.namelist() if ".data/" in name]
    assert [name.partition(".data/")[2] for name in pages] == ["data/share/man/man1/bamboo-peer.1"]


def test_the_wheel_brings_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    [entry_points] = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "bamboo-peer = bamboo_cli:main" in wheel.read(entry_points).decode()
    [licence] = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert wheel.read(licence) == (TOP / "LICENSE").read_bytes()


# The wheel alone


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel, and what it depends on, and no more."""
    folder = tmp_path_factory.mktemp("alone")
    uv = Path(sys.executable).with_name("uv")
    environment = folder / "environment"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    python = environment / "bin" / "python"
    assert wheel.filename is not None
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        wheel.filename,
    ]
    # As pinned; from the cache if it is all there, else as set-up gets it.
    install += ["--constraint", TOP / "requirements.lock"]
    if subprocess.run([*install, "--offline"], capture_output=True, check=False).returncode:
        subprocess.run(install, check=True)
    return environment / "bin" / "bamboo-peer"


def test_the_wheel_works_alone(installed: Path, tmp_path: Path) -> None:
    """Nothing of the checkout, and nothing that only developers have."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [installed, *arguments],
            cwd=tmp_path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version").startswith("bamboo-peer ")
    run("--store", "amy", "init")
    run("--store", "ben", "init")
    run("--store", "amy", "append", stdin="hello")
    assert run("--store", "amy", "cat", "0") == "hello"
    author = run("--store", "amy", "whoami").strip()
    run("--store", "ben", "follow", author)
    command: list[str | Path] = [
        installed,
        "--store",
        "amy",
        "--json",
        "serve",
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as node:
        try:
            assert node.stdout is not None
            events = map(json.loads, node.stdout)
            address = next(each["address"] for each in events if each["event"] == "listening")
            run("--store", "ben", "sync", address)
        finally:
            node.send_signal(signal.SIGTERM)
    assert node.returncode == 0
    assert run("--store", "ben", "cat", author) == "hello"
