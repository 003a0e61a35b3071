"""What is installed is complete: typed, with its data, its licence and its command."""

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
