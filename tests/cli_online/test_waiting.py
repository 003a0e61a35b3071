"""`wait` returns when a node that runs has brought what is followed, and says why if it has not."""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from .running import EXECUTABLE, PATIENCE_S, run, serving, started


def test_wait_needs_a_node_and_something_to_wait_for(author: str, taker: Path) -> None:
    alone = run(taker, "wait", author)
    assert (alone.returncode, "no node serves this store" in alone.stderr) == (3, True)
    assert run(taker, "wait", "--seq", "3").returncode == 2


def test_wait_returns_when_everything_has_come(
    tmp_path: Path, author: str, giver: str, taker: Path
) -> None:
    with serving(taker, "--no-listen", "--connect", giver, "--follow", author) as node:
        while "connected" not in node.line():
            pass
        done = run(taker, "wait", "--payloads", "--timeout", str(PATIENCE_S), "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["peers"] == [giver]
        assert run(taker, "cat", author).stdout == "123"

        waiting = started(taker, "wait", author, "--seq", "4")
        run(tmp_path / "giver", "append", stdin=b"4")
        waiting.communicate(timeout=PATIENCE_S)
        assert waiting.returncode == 0

        strange = run(taker, "wait", "ab" * 32, "--timeout", "0.3")
        first, last = strange.stderr.splitlines()
        assert (
            first
            == f"{'ab' * 32}/0 is not followed, so nothing new of it is taken in (see `follow`)"
        )
        assert "not complete after 0.3 s" in last

        late = run(taker, "wait", author, "--seq", "5", "--timeout", "0.3")
        assert late.returncode == 4
        assert late.stderr == (
            f"bamboo-peer: not complete after 0.3 s: {author}/0: held up to entry 4 of 5;"
            " no connected peer is known to hold more of it\n"
        )

        run(tmp_path / "giver", "append", "--end-of-log", stdin=b"5")
        ended = run(taker, "wait", author, "--seq", "6")
        assert (ended.returncode, ended.stderr) == (
            6,
            f"bamboo-peer: {author}/0: the log is ended, and has no valid entry behind 5\n",
        )


def test_wait_says_who_cannot_be_reached(author: str, taker: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with serving(taker, "--no-listen", "--connect", address, "--follow", author) as node:
        while "connect failed" not in node.line():
            pass
        done = run(taker, "wait", "--timeout", "1")
        assert done.returncode == 4
        assert "cannot be reached: Connection refused" in done.stderr


def test_wait_does_not_take_the_word_of_who_called_in(
    tmp_path: Path, author: str, taker: Path
) -> None:
    """They cannot be asked what they hold, and those that the node calls are all away."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    empty = tmp_path / "empty"
    assert run(empty, "init").returncode == 0
    flags = ("--listen", "127.0.0.1:0", "--connect", address, "--follow", author)
    with serving(taker, *flags) as node:
        while "listening on" not in (line := node.line()):
            pass
        here = line.split()[-1]
        with serving(empty, "--no-listen", "--connect", here) as caller:
            while "connected" not in caller.line():
                pass
            assert run(taker, "append", stdin=b"so that something is held").returncode == 0
            done = run(taker, "wait", "--timeout", "1")
            assert done.returncode == 4
            assert "cannot be reached: Connection refused" in done.stderr


def test_sync_with_wait_tries_again_until_somebody_is_there(
    tmp_path: Path, author: str, taker: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    late = run(taker, "sync", address, "--follow", author, "--wait", "--timeout", "0.2")
    assert late.returncode == 4
    assert late.stderr.splitlines() == [
        f"{address}: Connection refused; trying again",
        f"bamboo-peer: {address}: not in sync after 0.2 s: Connection refused",
    ]
    waiting = started(taker, "sync", address, "--wait")
    assert "trying again" in waiting.stderr.readline()
    with serving(tmp_path / "giver", "--listen", address, "--json"):
        out, _ = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0
    assert "received 3 entries" in out


@pytest.mark.parametrize("ctrl_c", ["trap - INT", "trap '' INT"], ids=["heeded", "ignored"])
def test_sigterm_ends_a_sync_that_waits_like_ctrl_c(taker: Path, ctrl_c: str) -> None:
    """What a script runs behind `&` ignores Ctrl-C."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    command = f"{ctrl_c}; exec {EXECUTABLE} sync {address} --wait --store {taker}"
    with subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE) as waiting:
        assert waiting.stderr is not None
        assert b"trying again" in waiting.stderr.readline()
        waiting.terminate()
        assert (waiting.wait(PATIENCE_S), waiting.stderr.read()) == (130, b"")
