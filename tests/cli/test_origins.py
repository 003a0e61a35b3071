"""A package of the same name that comes from elsewhere is named, and nothing of it is loaded."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bamboo_cli.origins import PACKAGES, foreign_package

TOP = Path(__file__).resolve().parents[2]
MAIN = "import sys; from bamboo_cli import main; sys.exit(main(['--version']))"


def test_every_package_is_looked_for() -> None:
    declared = tomllib.loads((TOP / "pyproject.toml").read_text())
    packages = declared["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*PACKAGES, "bamboo_cli"} == set(packages)


def test_where_all_is_ours_nothing_is_said() -> None:
    assert foreign_package() is None


@pytest.mark.parametrize("name", ["wire", "peer"])
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_a_stranger_is_named_with_its_file(tmp_path: Path, name: str, file: str) -> None:
    stranger = tmp_path / file.format(name)
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("raise SystemExit('loaded')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{TOP}"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"bamboo-peer: the package `{name}` comes from elsewhere: {stranger},")


def test_a_folder_that_is_no_package_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "wire").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{TOP}"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN], cwd="/", env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0
