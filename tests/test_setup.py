"""What sets a checkout up does not depend on the day: everything that pip may take is pinned."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from analytics import java
from scripts import java as java_script

TOP = Path(__file__).resolve().parents[1]
LOCKS = ("requirements-build.lock", "requirements-dev.lock", "requirements.lock")


def locked(text: str) -> list[Requirement]:
    """What a lock file names for this machine, in its order."""
    lines = re.findall(r"^([A-Za-z0-9][^\\\n]*?) *\\$", text, flags=re.MULTILINE)
    found = map(Requirement, lines)
    return [each for each in found if each.marker is None or each.marker.evaluate()]


def required(package: Requirement) -> Iterator[Requirement]:
    """What an installed package requires as the lock file names it, its extras and all."""
    for line in requires(package.name) or ():
        found, extras = Requirement(line), ("", *package.extras)
        if found.marker is None or any(found.marker.evaluate({"extra": each}) for each in extras):
            yield found


def unpinned(text: str) -> list[str]:
    """Faults of a lock file, each of which lets pip choose for itself, or fail."""
    pinned: dict[str, frozenset[str]] = {}
    faults = []
    for each in locked(text):
        name = canonicalize_name(each.name)
        if name in pinned:
            faults.append(f"{name} stands there twice")
        pinned[name] = frozenset(each.extras) | pinned.get(name, frozenset())
        if [operator for operator in each.specifier if operator.operator != "=="]:
            faults.append(f"{each} is no single version")
    for each in locked(text):
        for wanted in required(each):
            extras = pinned.get(canonicalize_name(wanted.name))
            if extras is None:
                faults.append(f"{each.name} requires {wanted}, which is not there")
            elif not wanted.extras <= extras:
                faults.append(f"{each.name} requires {wanted}, which is there without its extra")
    return faults


@pytest.mark.parametrize("lock", LOCKS)
def test_whatever_pip_may_take_is_pinned(lock: str) -> None:
    text = (TOP / lock).read_text("utf-8")
    assert locked(text)
    assert unpinned(text) == []
    assert len(re.findall(r"^[a-z0-9].*==", text, re.MULTILINE)) <= text.count("--hash=sha256:")


def test_a_pin_without_its_extra_is_found() -> None:
    """pip takes `coverage[toml]` for another requirement than `coverage`, which no pin covers."""
    text = (TOP / "requirements-dev.lock").read_text("utf-8")
    assert unpinned(text.replace("coverage[toml]==", "coverage==")) == [
        "pytest-cov requires coverage[toml]>=7.10.6, which is there without its extra"
    ]
    assert unpinned(text.replace("\nexecnet==", "\npluggy==")) != []


def test_every_extra_and_what_builds_is_in_the_lock_files() -> None:
    declared = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    names = {
        canonicalize_name(each.name)
        for lock in LOCKS
        for each in locked((TOP / lock).read_text("utf-8"))
    }
    groups = declared["project"]["optional-dependencies"] | declared["dependency-groups"]
    groups |= {"": declared["project"]["dependencies"] + declared["build-system"]["requires"]}
    lines = (line for group in groups.values() for line in group)
    needed = {canonicalize_name(Requirement(line).name) for line in lines}
    assert needed - {"bamboo-peer"} <= names


@pytest.mark.parametrize(("demanded", "status"), [("", 0), ("1", 1)])
def test_without_java_one_line_says_so_and_set_up_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    demanded: str,
    status: int,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BAMBOO_JAVA", demanded)
    monkeypatch.setattr(java, "_FOLDERS", ())
    assert java_script.main() == status
    [line] = capsys.readouterr().err.splitlines()
    assert "all but Spark goes on" in line
    assert "install one" in line
