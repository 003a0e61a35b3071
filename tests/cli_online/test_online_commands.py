"""`serve`, `sync` and `status` as a shell sees them: output, exit status, ending by signal."""

import json
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import lines_of, make_log, words
from wire import NATIVE_STATE

from .running import EXECUTABLE, PATIENCE_S, Serving, loaded, run, serving, until


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    assert run(path, "init").returncode == 0
    assert run(path, "append", "--lines", stdin=b"one\ntwo\n").returncode == 0
    return path


@pytest.fixture
def node(store: Path) -> Iterator[Serving]:
    with serving(store, "--listen", "127.0.0.1:0", "--json") as found:
        yield found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_first_where_it_listens_and_a_signal_ends_it_with_0(
    store: Path, number: int
) -> None:
    with serving(store, "--listen", "127.0.0.1:0", "--json", start=loaded) as node:
        event = node.event()
        assert list(event) == ["event", "address", "tls"]
        assert event["tls"] is False
        assert event["event"] == "listening"
        host, _, port = event["address"].rpartition(":")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        assert node.end(number) == (0, "")


def test_serve_tells_people_in_lines(store: Path) -> None:
    with serving(store, "--listen", "127.0.0.1:0") as node:
        assert any("listening on 127.0.0.1:" in node.line() for _ in range(2))
        assert node.end() == (0, "")


def test_serve_warns_of_listening_beyond_this_machine_without_tls(store: Path) -> None:
    with serving(store, "--listen", "0.0.0.0:0", "--json") as node:
        assert node.event()["tls"] is True
        assert node.end() == (0, "")
    with serving(store, "--listen", "0.0.0.0:0", "--json", "--insecure") as node:
        assert node.event()["tls"] is False
        status, error = node.end()
        assert status == 0
        assert error.startswith("warning: listening on 0.0.0.0:")
        assert "without encryption" in error


def test_a_second_serve_on_a_store_is_one_clear_line(store: Path, node: Serving) -> None:
    node.event()
    second = run(store, "serve", "--no-listen")
    assert second.returncode == 1
    [line] = second.stderr.splitlines()
    assert f"process {node.process.pid}" in line


def test_a_port_that_is_taken_is_one_clear_line(store: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(store, "serve", "--listen", address)
    assert done.returncode == 1
    assert done.stderr == (
        f"bamboo-peer: cannot listen on {address}: Address already in use;"
        " --listen names another address, port 0 a free port\n"
    )


def test_sync_with_the_node_of_the_same_store_is_no_success(node: Serving, store: Path) -> None:
    address = node.event()["address"]
    done = run(store, "sync", address)
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr == (
        f"bamboo-peer: {address}: this store itself is served there: call another node\n"
    )


def test_sync_says_what_was_moved_and_nothing_to_be_had_is_no_failure(
    node: Serving, tmp_path: Path
) -> None:
    address, other = node.event()["address"], tmp_path / "other"
    author = run(other, "init").stdout.strip()
    done = run(other, "sync", address, "--follow-all", "--json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["entries_received"], summary["entries_sent"]) == (0, 2, 0)
    assert summary["bytes_received"] > summary["payload_bytes_received"] == 6
    again = run(other, "sync", address)
    assert again.returncode == 0
    assert "nothing to be had" in again.stdout
    assert author not in run(other, "logs").stdout


def test_sync_names_what_is_followed_and_held_by_neither_side(
    node: Serving, tmp_path: Path
) -> None:
    address, other = node.event()["address"], tmp_path / "other"
    run(other, "init")
    author = "ab" * 32
    run(other, "follow", author)
    again = run(other, "sync", address)
    assert (again.returncode, again.stderr) == (
        0,
        f"held by neither side, though followed: {author}\n",
    )


def test_sync_with_the_name_of_a_peer_says_how_it_is_called(store: Path) -> None:
    run(store, "peer", "allow", "ab" * 32, "--name", "no-host-of-that-name")
    done = run(store, "sync", "no-host-of-that-name", "--insecure")
    assert done.returncode == 3
    assert "`peer allow no-host-of-that-name --address HOST:PORT`" in done.stderr


@pytest.mark.parametrize("held", [b"", lines_of(make_log([*words(1), b"another"]))])
def test_sync_fails_for_a_fork_once_and_then_only_notes_it(
    store: Path, tmp_path: Path, held: bytes
) -> None:
    made, other = make_log(words(3)), make_log([*words(1), b"another"])
    log, taker = str(made[0].key), tmp_path / "taker"
    assert run(taker, "init").returncode == 0
    run(taker, "import", stdin=held)
    run(store, "import", stdin=lines_of(made))
    run(store, "import", stdin=lines_of(other))
    with serving(store, "--listen", "127.0.0.1:0", "--json", "--follow", log) as node:
        address = node.event()["address"]
        first = run(taker, "sync", address, "--follow", log)
        again = run(taker, "sync", address)
    assert (first.returncode, first.stderr) == (
        5,
        f"bamboo-peer: {log} is forked at 2; what comes before the fork is in sync (see `forks`)\n",
    )
    assert run(taker, "forks").stdout == f"{log}/2\n"
    assert again.returncode == 0
    assert again.stderr == f"{log} is forked at 2, as was known before\n"
    assert "nothing to be had" in again.stdout


def test_sync_with_nobody_there_is_one_clear_line(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = run(store, "sync", address)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"bamboo-peer: {address}: Connection refused; see whether a node listens there, or --wait"
        " for it\n"
    )


def test_sync_gives_up_in_time(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run(store, "sync", address, "--timeout", "1")
    assert done.returncode == 4
    assert done.stderr == (
        f"bamboo-peer: {address}: not in sync after 1 s: somebody answers, who has not said to be"
        " a node\n"
    )


def test_sync_that_cannot_keep_what_comes_says_what_is_missing(
    store: Path, node: Serving, tmp_path: Path
) -> None:
    address = node.event()["address"]
    (tmp_path / "large").write_bytes(bytes(range(256)) * 4096)
    log = run(store, "append", str(tmp_path / "large")).stdout.rpartition("/")[0]
    other = tmp_path / "other"
    assert run(other, "init").returncode == 0
    done = subprocess.run(
        [EXECUTABLE, "sync", address, "--follow", log, "--store", str(other)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 6
    error = done.stderr.decode()
    assert "not all that came could be kept: the disk is full" in error
    assert error.endswith("; still missing: 0 entries and 1 payload of 1 log\n")
    assert run(other, "sync", address).returncode == 0


def test_status_and_why_write_nothing(store: Path) -> None:
    def files() -> dict[str, int]:
        # But for what SQLite shares among readers.
        paths = (path for path in store.iterdir() if not path.name.startswith("store.sqlite3-"))
        return {path.name: path.stat().st_mtime_ns for path in paths}

    before = files()
    assert "what peers hold is not known" in run(store, "status").stdout
    assert run(store, "why", "127.0.0.1").returncode == 1
    assert files() == before


def test_status_tells_of_a_node_that_runs_and_of_one_that_does_not(
    store: Path, node: Serving, tmp_path: Path
) -> None:
    address = node.event()["address"]
    record: dict[str, Any] = {"node": None}
    while not record["node"]:
        record = json.loads(run(store, "status", "--json").stdout)
    assert record["serving"] is True
    assert record["node"]["listening"] == [address]
    assert record["node"]["pid"] == node.process.pid
    assert record["native_core"] == record["node"]["native_core"] == NATIVE_STATE.fields()
    [log] = record["logs"]
    assert (log["height"], log["missing_payloads"], log["state"]) == (2, 0, "live")
    screen = run(store, "status").stdout
    assert f"listening on {address}" in screen
    assert f"native core: {NATIVE_STATE}" in screen
    assert node.end() == (0, "")
    assert json.loads(run(store, "status", "--json").stdout)["serving"] is False
    assert "not serving" in run(store, "status").stdout


def test_status_tells_what_does_the_work_in_the_node(store: Path) -> None:
    environment = {"BAMBOO_NATIVE": "0"}
    python = {"version": None, "reason": "BAMBOO_NATIVE=0"}
    # Which core it takes is decided while the program is loaded.
    with serving(store, "--no-listen", environment=environment, start=loaded):
        until(lambda: bool(json.loads(run(store, "status", "--json").stdout)["node"]))
        record = json.loads(run(store, "status", "--json").stdout)
        assert record["native_core"] == record["node"]["native_core"] == python
        assert "native core: no (BAMBOO_NATIVE=0)\n" in run(store, "status").stdout


def test_status_names_what_is_followed_and_not_held_yet(store: Path) -> None:
    log = "ab" * 32 + "/7"
    assert run(store, "follow", log).returncode == 0
    assert f"{log}: followed, nothing held yet" in run(store, "status").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--listen", "host:port"),
        ("serve", "--follow", "a b"),
        ("sync",),
        ("sync", "::1"),
        ("sync", "a:1", "--timeout", "-1"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_status_2(store: Path, arguments: tuple[str, ...]) -> None:
    done = run(store, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("serve",), ("sync", "127.0.0.1:1"), ("status",)])
def test_without_a_store_there_is_one_clear_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run(tmp_path / "nowhere", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert "`init` makes one" in done.stderr
    assert len(done.stderr.splitlines()) == 1
