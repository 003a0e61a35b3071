"""The installed program: pipes, signals and closed streams, as a shell sees them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.harness import lines_of, make_log, words

PROGRAM = Path(sys.executable).with_name("bamboo-peer")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A store of the test's own, and nothing else from outside."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "BAMBOO_PEER_STORE": str(tmp_path / "store"),
    }


def run(
    environment: dict[str, str], argv: Sequence[str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PROGRAM, *argv], env=environment, input=stdin, capture_output=True, check=False
    )


def shell(environment: dict[str, str], script: str) -> subprocess.CompletedProcess[bytes]:
    script = f"set -o pipefail; bamboo() {{ '{PROGRAM}' \"$@\"; }}; {script}"
    return subprocess.run(
        ["bash", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def test_five_commands_end_to_end(environment: dict[str, str]) -> None:
    author = run(environment, ["init"]).stdout.decode().strip()
    assert run(environment, ["append"], b"hello").stdout.decode() == f"{author}/0/1\n"
    assert run(environment, ["cat", author]).stdout == b"hello"
    assert run(environment, ["logs", "--json"]).returncode == 0
    again = run(environment, ["init"])
    assert (again.returncode, again.stdout, again.stderr.count(b"\n")) == (1, b"", 1)
    assert run(environment, ["cat"]).returncode == 2


def test_head_gets_its_line_and_nobody_complains(environment: dict[str, str]) -> None:
    made = make_log(words(1)) + make_log([b"x" * 60_000] * 20, log_id=1)
    run(environment, ["init"])
    stored = run(environment, ["import"], lines_of(made))
    assert stored.returncode == 0
    result = shell(environment, f"bamboo dump {made[1].key} | head -c 10")
    assert (result.returncode, result.stdout, result.stderr) == (1, b'{"encoded"', b"")


def interrupted(process: "subprocess.Popen[bytes]") -> int:
    """How it ends by Ctrl-C; a signal right before a read that blocks is seen with the next one."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=3)
    raise AssertionError("the process does not end")


@pytest.mark.parametrize("command", ["logs", "paths", "--version", "--help", "follows"])
def test_closed_standard_output_is_quiet(environment: dict[str, str], command: str) -> None:
    run(environment, ["init"])
    run(environment, ["append"], b"x")
    result = shell(environment, f"bamboo {command} >&-")
    assert result.stderr == b""
    assert result.returncode in {0, 1}


def test_everything_closed_does_not_harm_the_store(environment: dict[str, str]) -> None:
    run(environment, ["init"])
    path = Path(environment["HOME"], "payload")
    path.write_bytes(b"x" * 100_000)
    shell(environment, f"bamboo append {path} <&- >&- 2>&-")
    result = run(environment, ["verify"])
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"1 entry, 1 payload" in result.stdout


def test_closed_standard_input_is_named(environment: dict[str, str]) -> None:
    run(environment, ["init"])
    for command in ("append", "append --lines", "import"):
        result = shell(environment, f"bamboo {command} <&-")
        assert (result.returncode, result.stdout) == (1, b"")
        assert result.stderr.startswith(b"bamboo-peer: standard input is closed")
        assert result.stderr.count(b"\n") == 1


def test_a_full_disk_behind_standard_output_is_named(environment: dict[str, str]) -> None:
    result = shell(environment, "bamboo --help >/dev/full")
    assert result.returncode == 1
    assert result.stderr == (
        b"bamboo-peer: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("argv", [["append"], ["append", "--lines"], ["import"]])
def test_ctrl_c_is_130_and_quiet(environment: dict[str, str], argv: list[str]) -> None:
    run(environment, ["init"])
    with subprocess.Popen(
        [PROGRAM, *argv, "-v"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # It says so once it listens to its input.
        waiting = process.stderr.readline()
        assert b"reading" in waiting
        assert interrupted(process) == 130
        assert process.stderr.read() == b""
    assert run(environment, ["verify"]).returncode == 0


def test_a_line_is_durable_and_named_before_the_next_one_comes(environment: dict[str, str]) -> None:
    run(environment, ["init"])
    with subprocess.Popen(
        [PROGRAM, "append", "--lines"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        name = process.stdout.readline().decode().strip()
        log, _, seq = name.rpartition("/")
        assert run(environment, ["cat", log, seq]).stdout == b"one"
        process.kill()
    assert run(environment, ["cat", log]).stdout == b"one"


def test_offline_commands_load_neither_the_network_nor_tables(environment: dict[str, str]) -> None:
    run(environment, ["init"])
    program = (
        "import sys; from bamboo_cli import main; main(['logs']); main(['append', '/dev/null']);"
        " slow = {'trio', 'rich', 'asyncio', 'pyarrow', 'tomllib', 'ssl'};"
        " print(sorted(slow & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert result.stdout.splitlines()[-1] == b"[]"
