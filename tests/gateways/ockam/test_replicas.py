"""A hub, its replica, and what became of both: as processes, with nodes between them."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gateways.ockam import client
from tests.cli.conftest import cli, own  # noqa: F401 - fixtures
from tests.cli.harness import CommandLine
from tests.gateways.hubs import hub
from tests.processes.node import Node, init, run, wait_until

LISTEN = ("--listen", "127.0.0.1:0")


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(b"message %d\n" % number for number in range(first, first + count))


def test_a_consumer_goes_on_at_a_replica_and_comes_back(
    own: CommandLine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(client, "REFUSALS_MAX", 1)
    monkeypatch.setattr(client, "REPEAT_AFTER_S", 0.1)
    a, b = own.store, tmp_path / "b"
    author_a, author_b = own.author, init(b)
    run(a, "follow", author_b)
    run(b, "follow", author_a)

    def position(store: Path) -> int | None:
        found = own("--store", store, "--json", "ockam", "lag", "orders").records
        return found[0]["index"] if found else None

    def messages(store: Path) -> int:
        return sum(
            each["messages"] for each in own("--store", store, "--json", "ockam", "streams").records
        )

    def pulled(where: str, *flags: object) -> list[str]:
        return own("ockam", "pull", where, "orders", "--client", "billing", *map(str, flags)).lines

    with Node(a, *LISTEN) as node_a, hub(a) as (at_a, hub_a):
        there = node_a.address
        assert own("ockam", "push", at_a, "orders", "--lines", stdin=lines(5)).status == 0
        assert pulled(at_a, "--limit", 2) == ["message 0", "message 1"]
        with Node(b, "--no-listen", "--connect", there) as node_b:
            wait_until(lambda: position(b) == 2, "the position at the replica")
            wait_until(lambda: messages(b) == 5, "messages at the replica")
            assert node_b.stop() == 0
        hub_a.kill()
        hub_a.wait()
        node_a.kill()
    with hub(b, "--of", author_a) as (at_b, _):
        assert pulled(at_b, "--limit", 2) == ["message 2", "message 3"]
        refused = own("ockam", "push", at_b, "orders", "--timeout", 5, stdin=b"x")
        assert refused.status == 1
        assert "refused" in refused.err
    assert position(a) == 2
    with (
        Node(a, "--listen", there),
        Node(b, "--no-listen", "--connect", there),
        hub(a, "--share", author_b) as (at_a, _),
    ):
        asked = ("ockam", "position", at_a, "orders", "--client", "billing")
        wait_until(lambda: own(*asked).text == "4", "what was saved at B")
        assert pulled(at_a) == ["message 4"]
        assert own("ockam", "push", at_a, "orders", stdin=b"after").text == "5"


def test_retention_by_count_bytes_and_age_and_a_replica_that_comes_late(
    own: CommandLine,  # noqa: F811
    tmp_path: Path,
) -> None:
    rules = {"counted": "count=50", "weighed": "bytes=600", "aged": "age=1s"}
    left = {"counted": 50, "weighed": 50, "aged": 0}
    with hub(own.store) as (where, _):
        for name in rules:
            data = b"".join(b"message 2%03d\n" % number for number in range(200))
            assert own("ockam", "push", where, name, "--lines", stdin=data).status == 0
    pushed_at = time.time()
    wait_until(lambda: time.time() > pushed_at + 1, "an age of a second")
    keep = [part for name, rule in rules.items() for part in ("--keep", f"{name}*:{rule}")]
    with hub(own.store, *keep) as (where, process):
        told = {each["stream"]: each for each in (event(process) for _ in rules)}
        for name, count in left.items():
            assert told[name]["event"] == "trimmed"
            assert (told[name]["earliest"], told[name]["count"]) == (200 - count, 200 - count)
            assert len(own("ockam", "pull", where, name, "--from", 0).lines) == count
        # Indexes go on, behind what is gone as well.
        assert own("ockam", "push", where, "aged", stdin=b"next").text == "200"
        assert own("ockam", "pull", where, "aged", "--from", 0).text == "next"
        assert own("verify").status == 0
    late = tmp_path / "late"
    init(late)
    run(late, "follow", own.author)
    with Node(own.store, *LISTEN) as node:
        run(late, "sync", node.address, status=0)
    with hub(late, "--of", own.author) as (where, _):
        for name, count in left.items():
            there = own("ockam", "pull", where, name, "--from", 0).lines
            assert len(there) == count + (name == "aged")
    assert own("--store", late, "verify").status == 0


def event(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """What a hub tells next of trims."""
    assert process.stdout is not None
    while True:
        found: dict[str, Any] = json.loads(process.stdout.readline())
        if found["event"] == "trimmed":
            return found
