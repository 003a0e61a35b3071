"""Chains between processes: producers that are killed, consumers behind other nodes, channels."""

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli_online.running import EXECUTABLE
from tests.interop import cardinal_go
from tests.processes.node import Node, init, records, run, wait_until

from .test_cardinal_cli import TOPICS, h

LISTEN = ("--listen", "127.0.0.1:0")
CONNECT = ("--no-listen", "--connect")


def block(number: int, parent: str, name: object = None, weight: int | None = None) -> bytes:
    name = number if name is None else name
    fields = {
        "number": number,
        "hash": h(name),
        "parent": parent,
        "weight": number * 10 if weight is None else weight,
        "values": {**{f"a/{number}/{key}": "61" * 40 for key in range(9)}, "inline": h(name)},
        "deletes": [f"s/{number}"],
    }
    return json.dumps(fields).encode() + b"\n"


def history(count: int) -> list[bytes]:
    """A chain, and beside each tenth block one that is heavier, until its successor comes."""
    lines = []
    for number in range(1, count + 1):
        lines.append(block(number, h(number - 1)))
        if number % 10 == 5:
            lines.append(block(number, h(number - 1), ("fork", number), number * 10 + 5))
    return lines


@contextmanager
def command(store: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `cardinal` verb as a process of its own."""
    process = subprocess.Popen(
        [EXECUTABLE, "--store", str(store), "--json", "cardinal", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


class Chain:
    """What a consumer has, by its updates."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.updates: list[tuple[list[str], list[str]]] = []

    def apply(self, event: dict[str, Any]) -> None:
        added = [each["hash"] for each in event["added"]]
        removed = [each["hash"] for each in event["removed"]]
        assert self.hashes[len(self.hashes) - len(removed) :] == removed
        self.hashes = [*self.hashes[: len(self.hashes) - len(removed)], *added]
        self.updates.append((added, removed))

    def read(self, lines: bytes) -> None:
        for line in lines.splitlines():
            event = json.loads(line)
            if event["event"] == "update":
                self.apply(event)


def created(store: Path) -> str:
    return run(store, "cardinal", "create", "demo", *TOPICS).strip()


def test_two_producers_one_killed_and_a_consumer_behind_another_node(tmp_path: Path) -> None:
    stores = {name: tmp_path / name for name in "abrc"}
    authors = {name: init(store) for name, store in stores.items()}
    streams = [created(stores[name]) for name in "ab"]
    for name in "rc":
        for of in "ab":
            run(stores[name], "follow", authors[of])
    lines = history(60)
    rng = random.Random(1)
    with (
        Node(stores["a"], *LISTEN) as node_a,
        Node(stores["b"], *LISTEN) as node_b,
        Node(stores["r"], *LISTEN, "--connect", node_a.address, "--connect", node_b.address) as r,
        Node(stores["c"], *CONNECT, r.address),
        command(stores["a"], "put", "demo") as killed,
    ):
        # One is ended within a block, the other one has them in another order and all of them.
        assert killed.stdin is not None
        assert killed.stdout is not None
        killed.stdin.write(b"".join(lines[:20]) + lines[20][:100])
        killed.stdin.flush()
        for _ in range(20):
            killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        shuffled = [*lines]
        for at in range(0, len(shuffled), 7):
            part = shuffled[at : at + 7]
            rng.shuffle(part)
            shuffled[at : at + 7] = part
        run(stores["b"], "cardinal", "put", "demo", stdin=b"".join(shuffled))
        wait_until(lambda: len(records(stores["c"], "logs")) == 6, "both streams at the consumer")

        def complete() -> int:
            found: int = records(stores["c"], "cardinal", "status", *streams)[0]["complete"]
            return found

        wait_until(lambda: complete() == len(lines), "all blocks at the consumer")
    chain = Chain()
    # What comes first is not always the first block: the beginning is given.
    tail = ("cardinal", "tail", *streams, "--once", "--from", f"0/{h(0)}")
    chain.read(run(stores["c"], "--json", *tail).encode())
    assert chain.hashes == [h(number) for number in range(1, 61)]
    again = run(stores["a"], "cardinal", "put", "demo", stdin=b"".join(shuffled))
    assert again.count("already") == 20
    if cardinal_go.PROGRAM.exists():
        messages = _messages_in_order(stores["c"], streams)
        theirs = cardinal_go.consume(messages, 0, bytes.fromhex(h(0)), 0, 128)
        found = Chain()
        for each in theirs:
            found.apply(each)
        # Where branches are equally deep both give out the same, if not in as many steps.
        assert found.hashes == chain.hashes


def _is_at(number: int, store: Path, tail: tuple[str, ...]) -> bool:
    return f"ready at {number}" in run(store, *tail)


def _messages_in_order(store: Path, streams: list[str]) -> list[dict[str, str]]:
    """What came to a node, each stream in its order."""
    return [
        json.loads(line)
        for stream in streams
        for line in run(store, "cardinal", "messages", stream).splitlines()
    ]


def test_one_topic_of_three_is_less_to_replicate(tmp_path: Path) -> None:
    a, some, whole = (tmp_path / name for name in ("a", "some", "whole"))
    for store in (a, some, whole):
        init(store)
    stream = created(a)
    lines = b"".join(block(number, h(number - 1)) for number in range(1, 41))
    run(a, "cardinal", "put", "demo", stdin=lines)
    sizes = {}
    with Node(a, *LISTEN) as node:
        for store, flags in ((some, ("--topic", "storage")), (whole, ())):
            with Node(store, *CONNECT, node.address):
                followed = run(store, "cardinal", "follow", stream, *flags, "--timeout", "30")
                assert len(followed.splitlines()) == (2 if flags else 3)
                tail = ("cardinal", "tail", stream, "--once", "--no-values", *flags)
                wait_until(partial(_is_at, 40, store, tail), "the chain")
            sizes[store] = sum(int(each["bytes"]) for each in records(store, "logs"))
    assert sizes[some] * 2 < sizes[whole]


def test_a_deep_reorganisation_by_a_channel_that_the_follower_does_not_know_of(
    tmp_path: Path,
) -> None:
    a, c = tmp_path / "a", tmp_path / "c"
    init(a)
    init(c)
    stream = run(a, "cardinal", "create", "demo", *TOPICS, "--threshold", "8").strip()
    state = tmp_path / "state"
    with Node(a, *LISTEN) as node, Node(c, *CONNECT, node.address):
        old = b"".join(block(n, h(n - 1)) for n in range(1, 31))
        run(a, "cardinal", "put", "demo", stdin=old)
        run(c, "cardinal", "follow", stream, "--timeout", "30")
        with command(c, "tail", stream, "--state", str(state), "--no-values") as tail:
            chain = Chain()
            assert tail.stdout is not None
            while len(chain.hashes) < 30:
                chain.read(tail.stdout.readline())
            new = [json.dumps({"reorg": {"number": 5, "hash": h(5)}}).encode() + b"\n"]
            for number in range(6, 20):
                parent = h(5) if number == 6 else h(("new", number - 1))
                new.append(block(number, parent, ("new", number), number))
            run(a, "cardinal", "put", "demo", stdin=b"".join(new[:9]))
            while len(chain.hashes) != 13:
                chain.read(tail.stdout.readline())
            # It goes on in the middle of the channel, and so does the producer.
            tail.send_signal(signal.SIGTERM)
            tail.wait()
        rest = b"".join(new[9:]) + b'{"reorg_done": true}\n'
        run(a, "cardinal", "put", "demo", stdin=rest)
        with command(c, "tail", stream, "--state", str(state), "--no-values") as tail:
            assert tail.stdout is not None
            while len(chain.hashes) != 19:
                chain.read(tail.stdout.readline())
    assert chain.hashes == [h(n) for n in range(1, 6)] + [h(("new", n)) for n in range(6, 20)]
    assert len(run(c, "follows").splitlines()) == 4


@pytest.mark.parametrize("swapped", [False, True])
def test_two_who_disagree_are_told_once_and_who_has_all_of_it_counts(
    tmp_path: Path, *, swapped: bool
) -> None:
    stores = tmp_path / "a", tmp_path / "b"
    authors = [init(store) for store in stores]
    streams = [created(store) for store in stores]
    id_ = h("id")

    def put(store: Path, fields: dict[str, Any]) -> None:
        run(store, "cardinal", "put", "demo", stdin=json.dumps(fields).encode())

    for store, value in zip(stores, ("61", "62"), strict=True):
        head = {"number": 1, "hash": h(1), "parent": h(0), "weight": 1}
        put(store, {**head, "values": {"a/1": value}, "batches": {"s/x": {"id": id_}}})
    run(stores[0], "follow", authors[1])
    order = [*reversed(streams)] if swapped else streams
    with Node(stores[1], *LISTEN) as node:
        run(stores[0], "sync", node.address)
        events = records(stores[0], "cardinal", "tail", *order, "--once")
        assert [each["event"] for each in events] == ["conflict", "ready"]
        assert set(events[0]["producers"]) == set(authors)
        # The second one is whole first, whatever the order.
        put(stores[1], {"batch": {"hash": h(1), "id": id_, "values": {}}})
        run(stores[0], "sync", node.address)
    put(stores[0], {"batch": {"hash": h(1), "id": id_, "values": {}}})
    events = records(stores[0], "cardinal", "tail", *order, "--once")
    assert [each["event"] for each in events] == ["conflict", "update", "ready"]
    assert events[1]["added"][0]["values"] == {"a/1": "62"}
