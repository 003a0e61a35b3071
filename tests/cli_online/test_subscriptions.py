"""What is wanted of a log is what comes, and `fetch` brings the rest: real processes."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import PayloadState, Store
from wire import LogKey, lower_pool, upper_pool

from .running import EXECUTABLE, PATIENCE_S, run, serving, until

COUNT = 40
LARGE = 7
"""The entry whose payload is large."""


@pytest.fixture
def author(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A log of 40 entries and the address that serves it."""
    store = tmp_path / "author"
    log = f"{run(store, 'init').stdout.strip()}/0"
    small = [b"%d\n" % seq for seq in range(1, COUNT + 1)]
    run(store, "append", "--lines", stdin=b"".join(small[: LARGE - 1]))
    run(store, "append", stdin=bytes(20_000))
    run(store, "append", "--lines", stdin=b"".join(small[LARGE:]))
    with serving(store, "--listen", "127.0.0.1:0", "--json") as node:
        yield log, node.event()["address"]


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    store = tmp_path / "replica"
    run(store, "init")
    return store


def held(store: Path, log: str) -> dict[int, bool]:
    """The entries held, and whether their payloads are."""
    with Store.open(store, readonly=True) as opened:
        entries = opened.read(
            LogKey.parse(log), 1, entries_max=1000, bytes_max=1 << 30, with_payload=False
        )
        return {entry.seq: entry.payload_state is PayloadState.PRESENT for entry in entries}


def with_payload(found: dict[int, bool]) -> set[int]:
    return {seq for seq, has in found.items() if has}


ALL = set(range(1, COUNT + 1))


@pytest.mark.parametrize(
    ("flags", "entries", "payloads"),
    [
        (("--policy", "metadata"), ALL, set()),
        (("--policy", "sparse"), set(lower_pool(COUNT)), set(lower_pool(COUNT))),
        (("--policy", "latest:5"), {*range(36, 41), *lower_pool(36)}, set(range(36, 41))),
        (
            ("--policy", "range:10..20"),
            {*range(10, 21), *lower_pool(10), *upper_pool(20)},
            set(range(10, 21)),
        ),
        (("--max-payload", "10k"), ALL, ALL - {LARGE}),
        (("--min-payload", "10k"), ALL, {LARGE}),
        (("--eager", "10k"), ALL, ALL - {LARGE}),
    ],
)
def test_a_sync_brings_what_is_wanted_and_calls_nothing_else_missing(
    author: tuple[str, str],
    replica: Path,
    flags: tuple[str, ...],
    entries: set[int],
    payloads: set[int],
) -> None:
    log, address = author
    for _ in range(2):
        done = run(replica, "sync", address, "--follow", log, *flags, "--timeout", "20")
        assert (done.returncode, done.stderr) == (0, "")
        found = held(replica, log)
        # The path to the newest entry, by which that was found, may be there too.
        assert set(found) - set(lower_pool(COUNT)) == entries - set(lower_pool(COUNT))
        assert with_payload(found) == payloads
    record = json.loads(run(replica, "logs", log, "--json").stdout)
    assert record["missing_payloads"] == 0
    assert run(replica, "verify").returncode == 0


def test_what_is_wanted_can_be_changed_while_the_node_runs(
    author: tuple[str, str], replica: Path
) -> None:
    log, address = author
    run(replica, "follow", log, "--policy", "metadata")
    with serving(replica, "--no-listen", "--connect", address):
        until(lambda: set(held(replica, log)) == ALL)
        assert with_payload(held(replica, log)) == set()
        run(replica, "follow", log, "--policy", "range:3..6")
        until(lambda: with_payload(held(replica, log)) == {3, 4, 5, 6})
        run(replica, "follow", log, "--max-payload", "10k")
        until(lambda: with_payload(held(replica, log)) == ALL - {LARGE})
        run(replica, "follow", log, "--policy", "full")
        until(lambda: with_payload(held(replica, log)) == ALL)


def test_a_node_fetches_what_was_dropped_and_what_it_never_wanted(
    author: tuple[str, str], replica: Path
) -> None:
    log, address = author
    # Not `latest:2`, which has the node delete what is fetched, some time later.
    run(replica, "follow", log, "--policy", "range:39..")
    with serving(replica, "--no-listen", "--connect", address):
        until(lambda: with_payload(held(replica, log)) == {39, 40})
        run(replica, "drop", log, "40")
        before = set(held(replica, log))
        done = run(replica, "fetch", log, "40")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{log} 40: 0 entries and 1 payload fetched\n"
        record = json.loads(run(replica, "fetch", log, "5..9", "--json").stdout)
        wanted = set(range(5, 10))
        assert (record["entries"], record["payloads"]) == (len(wanted - before), 5)
        assert run(replica, "cat", log, "5..6").stdout == "56"
        assert with_payload(held(replica, log)) == {39, 40} | wanted


@pytest.mark.parametrize("follows", [False, True])
def test_a_fetch_asks_the_peers_named_and_moves_nothing_else(
    author: tuple[str, str], replica: Path, follows: bool
) -> None:
    log, address = author
    if follows:
        run(replica, "follow", log)
    run(replica, "append", stdin=b"own")
    done = run(replica, "fetch", log, f"{LARGE}..9", "--from", "127.0.0.1:1", "--from", address)
    assert (done.returncode, done.stderr) == (0, "")
    found = held(replica, log)
    assert with_payload(found) == {7, 8, 9}
    assert len(found) < 20
    run(replica, "drop", log, "8")
    run(replica, "sync", address, "--timeout", "20")
    assert 8 not in with_payload(held(replica, log))
    assert run(replica, "fetch", log, "8", "--from", address).returncode == 0
    assert 8 in with_payload(held(replica, log))


def test_what_nobody_has_is_incomplete_and_wanted_no_more(
    author: tuple[str, str], replica: Path
) -> None:
    log, address = author
    done = run(replica, "fetch", log, "39..41", "--from", address)
    assert done.returncode == 6
    assert "2 of 3 entries held, 2 with payloads: nobody who was asked has the rest" in done.stderr
    with serving(replica, "--no-listen", "--connect", address, "--json") as node:
        assert node.event()["event"] == "connected"
        done = run(replica, "fetch", log, "41", "--timeout", "0.5")
    assert done.returncode == 4
    assert "nothing has come for 0.5 s" in done.stderr
    assert run(replica, "fetch", log, "40", "--from", address).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_fetch_that_is_interrupted_wants_nothing_any_more(
    replica: Path, author: tuple[str, str], number: int
) -> None:
    log, _ = author

    def wants() -> dict[LogKey, list[tuple[int, int]]]:
        with Store.open(replica, readonly=True) as store:
            return store.wants()

    command = [EXECUTABLE, "fetch", log, "3", "--store", str(replica)]
    with serving(replica, "--listen", "127.0.0.1:0", "--json") as node:
        assert node.event()["event"] == "listening"
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            until(lambda: bool(wants()))
            process.send_signal(number)
            _, error = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.communicate()
        assert (process.returncode, error) == (130, b"")
        assert wants() == {}
