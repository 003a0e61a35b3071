"""A `fetch` over a slow link waits as long as bytes come, and everybody can see how far it is."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import CommandLine

from .forked import Forked
from .running import PATIENCE_S, run, serving, started, until

PAYLOAD = bytes(range(256)) * 8192
SLOW = ("--listen", "127.0.0.1:0", "--json", "--max-rate", "512k", "--window", "0")
WHY_PART = "in the middle of the payload of entry 1 ("


@pytest.fixture
def log(tmp_path: Path) -> str:
    """One entry of 2 MiB in the store `slow`, which a slow node takes four seconds to send."""
    author = run(tmp_path / "slow", "init").stdout.strip()
    run(tmp_path / "slow", "append", stdin=PAYLOAD)
    return f"{author}/0"


@pytest.fixture
def slow(tmp_path: Path, log: str) -> Iterator[str]:
    """The address of that node."""
    assert log
    with serving(tmp_path / "slow", *SLOW) as node:
        yield node.event()["address"]


@contextmanager
def fetching(store: Path, *arguments: str) -> Iterator[Forked]:
    process = started(store, "fetch", *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def test_a_peer_that_is_asked_is_not_given_up_while_bytes_come(
    slow: str, log: str, taker: Path
) -> None:
    done = run(taker, "fetch", log, "1", "--from", slow, "--timeout", "1.5", "-v")
    assert (done.returncode, done.stdout) == (0, f"{log} 1: 1 entry and 1 payload fetched\n")
    told = re.findall(r"0 with payloads, (\S+) MiB of 2.0 MiB on the way \((\d+) %\)", done.stderr)
    assert told != []


def test_a_node_that_fetches_says_how_far_it_is(
    tmp_path: Path, log: str, taker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = CommandLine(tmp_path, monkeypatch)

    def shown(*arguments: str) -> str:
        return here(*arguments, "--store", taker).out.decode()

    very_slow = (*SLOW[:3], "--max-rate", "16k", "--window", "0")
    # At that pace it cannot end in good order, and is not waited for.
    with serving(tmp_path / "slow", *very_slow, close_timeout_s=0.5) as node:
        slow = node.event()["address"]
        with serving(taker, "--no-listen", "--connect", slow):
            until(lambda: "established" in run(taker, "status").stdout)
            with fetching(taker, log, "1") as process:
                until(lambda: WHY_PART in shown("why", log))
                words = shown("why", log)
                assert f"it is being fetched from {slow}; something came last at " in words
                assert "! a `fetch` wants 1, and not all of it has come\n" in words
                assert "  it is not followed, so nothing else of it is taken in\n" in words
                assert "a peer has to hold it" not in words
                until(lambda: "bytes have come" in shown("status"))
                for screen in (shown("status"), shown("status", log)):
                    [line] = [each for each in screen.splitlines() if "fetching 1" in each]
                    assert re.fullmatch(
                        rf"  {log}: fetching 1, 1 of 1 entry held, 0 with payloads, the payload of"
                        rf" entry 1 from {slow} \(\d[\d,]* of 2,097,152 bytes have come, \d+ %\)",
                        line,
                    )
                found: dict[str, Any] = json.loads(shown("status", "--json"))
                [wanted], [part] = found["fetching"], found["node"]["arriving"]
                assert (wanted["held_entries"], wanted["held_payloads"]) == (1, 0)
                assert (part["seq"], part["payload_bytes"]) == (1, len(PAYLOAD))
                assert part["address"] == slow
                # All was seen, however slow this machine is: the rest comes at full speed.
                node.end()
                with serving(tmp_path / "slow", "--listen", slow):
                    out, error = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, error) == (0, "")
        assert out == f"{log} 1: 1 entry and 1 payload fetched\n"


def test_a_node_is_not_given_up_while_bytes_come(slow: str, log: str, taker: Path) -> None:
    with serving(taker, "--no-listen", "--connect", slow):
        until(lambda: "established" in run(taker, "status").stdout)
        done = run(taker, "fetch", log, "1", "--timeout", "1.5")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{log} 1: 1 entry and 1 payload fetched\n"


def test_payloads_of_entries_that_were_held_are_told_of(
    tmp_path: Path, log: str, taker: Path
) -> None:
    with serving(tmp_path / "slow", *SLOW[:3]) as node:
        address = node.event()["address"]
        run(taker, "sync", address, "--follow", log, "--policy", "metadata")
        run(taker, "follow", log, "--policy", "full")
        done = run(taker, "sync", address)
        assert (
            "1 log: received 0 entries and 2.0 MiB of payloads, sent 0 and 0 B in " in done.stdout
        )
        run(taker, "drop", log, "1")
        with serving(taker, "--no-listen", "--connect", address):
            until(lambda: "established" in run(taker, "status").stdout)
            assert run(taker, "fetch", log, "1").returncode == 0
            moved = "0 entries and 2.0 MiB of payloads in, 0 and 0 B out"
            until(lambda: moved in run(taker, "status").stdout)
            assert "; 0 entries and 2,097,152 payload bytes came, 0 and 0 went there" in (
                run(taker, "why", address).stdout
            )


def test_a_node_that_falls_silent_in_the_middle_is_given_up(
    tmp_path: Path, log: str, taker: Path
) -> None:
    with serving(tmp_path / "slow", *SLOW) as node:
        address = node.event()["address"]
        with serving(taker, "--no-listen", "--connect", address):
            until(lambda: "established" in run(taker, "status").stdout)
            with fetching(taker, log, "1", "--timeout", "2") as process:
                until(lambda: WHY_PART in run(taker, "why", log).stdout)
                node.end()
                _, error = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 4
            assert "nothing has come for 2 s; 1 of 1 entry held, 0 with payloads" in error
            assert json.loads(run(taker, "status", "--json").stdout)["fetching"] == []
