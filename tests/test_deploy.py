"""The unit and the container file in deploy/ name what there is, and keep what they promise."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from bamboo_cli.registry import COMMANDS
from bamboo_cli.settings import common_arguments
from tests.cli.harness import parsers_of

TOP = Path(__file__).resolve().parents[1]
UNIT = TOP / "deploy/bamboo-peer.service"
CONTAINER = (TOP / "deploy/Containerfile").read_text("utf-8")
STATE = "/var/lib/bamboo-peer/"
PROGRAM = "/opt/bamboo-peer/bin/bamboo-peer"
PATIENCE_S = 60
EXPOSURE_MAX = 14
"""In tenths of a point, as `systemd-analyze security` counts: 0 is shut in, 100 wide open."""

_UNDER_MDWE = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
if libc.prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, which Linux has from 6.3 on
    sys.exit(77)
from logstore import Store
from peer.node.doors.tls import Identity
try:
    Identity(Store.memory().signing_key())
except MemoryError:
    sys.exit(1)
"""


def settings() -> dict[str, list[str]]:
    """What the unit says, by name, in its order."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(value)
    return found


def check_arguments(words: list[str]) -> None:
    """Raises WrongUsage unless these are a command and its flags."""
    [parser] = parsers_of(COMMANDS[words[0]])
    common_arguments(parser)
    parser.parse_args(words[1:])


def test_the_unit_starts_reloads_and_watches_the_node() -> None:
    unit = settings()
    [start] = unit["ExecStart"]
    program, *words = shlex.split(start)
    assert program == PROGRAM
    check_arguments(words)
    assert unit["Type"] == ["notify"]
    # What is started by the node must not speak in its name.
    assert unit["NotifyAccess"] == ["main"]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert int(unit["WatchdogSec"][0]) >= 30
    # Connections end in 5 s, and what has come is kept in 5 s more.
    assert int(unit["TimeoutStopSec"][0]) > 10


def test_the_unit_shuts_the_node_in() -> None:
    unit = settings()
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateUsers"):
        assert unit[name] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == [""]
    assert unit["User"] == ["bamboo-peer"]
    assert unit["StateDirectory"] == ["bamboo-peer"]
    assert unit["StateDirectoryMode"] == ["0700"]
    assert unit["UMask"] == ["0077"]
    # The key is in its memory.
    assert unit["LimitCORE"] == ["0"]


def test_all_that_is_written_lies_in_the_state_directory() -> None:
    named = dict(each.split("=") for each in settings()["Environment"])
    assert named.pop("BAMBOO_PEER_CONFIG") == "/etc/bamboo-peer/config.toml"
    assert named.pop("PYTHONFAULTHANDLER") == "1"
    assert named.keys() == {"BAMBOO_PEER_STORE", "BAMBOO_PEER_STATE"}
    assert all(path.startswith(STATE) for path in named.values())
    # How far own logs are signed must not come back with a restored store.
    assert not named["BAMBOO_PEER_STATE"].startswith(named["BAMBOO_PEER_STORE"])
    for name, path in named.items():
        assert f"{name}={path}" in CONTAINER


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for it")
def test_memory_that_is_written_is_executed_only_where_tls_needs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UNDER_MDWE], cwd=TOP, timeout=PATIENCE_S, check=False
    )
    if done.returncode == 77:
        pytest.skip("this kernel cannot refuse it")
    holds = done.returncode == 0
    assert settings().get("MemoryDenyWriteExecute", []) == (["yes"] if holds else [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    installed = str(Path(sys.executable).with_name("bamboo-peer"))
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text("utf-8").replace(PROGRAM, installed), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    # It looks at all that the unit depends on; what it says of others is theirs.
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert said == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize(
    "without",
    [None, "CapabilityBoundingSet=", "SystemCallFilter=@system-service"],
)
def test_systemd_calls_the_unit_well_shut_in(without: str | None, tmp_path: Path) -> None:
    """Of ten points of exposure no more than 1.4; and what makes the most of it is looked at."""
    copy = tmp_path / UNIT.name
    text = UNIT.read_text("utf-8")
    copy.write_text(text.replace(f"\n{without}\n", "\n"), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if "Overall exposure level" not in done.stdout:
        pytest.skip("this one can only look at units that are installed")
    assert (done.returncode == 0) == (without is None), done.stdout[-200:]


def test_the_container_holds_every_package_and_runs_as_nobody_else() -> None:
    declared = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINER, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert all((TOP / name).exists() for name in copied)
    needed = {*declared["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    needed |= {"README.md", *declared["project"]["license-files"]}
    needed.add(declared["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"])
    assert needed <= {*copied}
    [user] = re.findall(r"^USER (.*)$", CONTAINER, re.MULTILINE)
    assert f"--uid {user} " in CONTAINER
    assert int(user) > 0


def test_what_the_container_runs_is_understood() -> None:
    [command] = re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)
    check_arguments(json.loads(command))
    [check] = re.findall(r"HEALTHCHECK .* CMD (.*)$", CONTAINER, re.MULTILINE)
    program, *words = json.loads(check)
    assert program == "bamboo-peer"
    check_arguments(words)


def test_a_server_gets_what_was_tested() -> None:
    pins = {
        name: set(re.findall(r"^(\S+==\S+)", (TOP / name).read_text("utf-8"), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    }
    assert pins["requirements.lock"]
    assert pins["requirements.lock"] <= pins["requirements-dev.lock"]
