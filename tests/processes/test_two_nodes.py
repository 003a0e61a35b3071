"""Two nodes as processes: history first, then live, both ways, through restarts."""

import os
import random
from pathlib import Path

import pytest

from .node import Node, held, init, records, run, wait_until

LISTEN = ("--listen", "127.0.0.1:0")


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


def has(store: Path, author: str, height: int) -> bool:
    record = held(store, author)
    return bool(record["height"] >= height and record["payloads"] >= height)


def encodings(store: Path, author: str) -> list[str]:
    return [each["encoded"] for each in records(store, "dump", author)]


def test_history_and_live_entries_go_both_ways_over_one_connection(
    stores: tuple[Path, Path],
) -> None:
    a, b = stores
    author_a, author_b = init(a), init(b)
    run(a, "append", "--lines", stdin=b"".join(b"a%d\n" % n for n in range(300)))
    run(b, "append", "--lines", stdin=b"b1\n\nb3\n")
    with (
        Node(a, *LISTEN, "--follow", author_b) as first,
        Node(b, "--no-listen", "--connect", first.address, "--follow", author_a) as second,
    ):
        wait_until(lambda: has(b, author_a, 300), "history at b")
        wait_until(lambda: has(a, author_b, 3), "history at a")
        run(a, "append", stdin=b"live from a")
        run(b, "append", stdin=b"live from b")
        wait_until(lambda: has(b, author_a, 301), "live entry at b")
        wait_until(lambda: has(a, author_b, 4), "live entry at a")
        assert run(b, "cat", author_a, "301") == "live from a"
        assert run(a, "cat", author_b, "4") == "live from b"
        assert encodings(a, author_b) == encodings(b, author_b)
        assert first.stop() == 0
        assert second.stop() == 0
    assert encodings(a, author_a) == encodings(b, author_a)
    for store in stores:
        run(store, "verify")


def test_a_node_that_was_away_catches_up_when_it_comes_back(stores: tuple[Path, Path]) -> None:
    a, b = stores
    author, _ = init(a), init(b)
    run(b, "follow", author)
    with Node(a, *LISTEN) as first:
        port = first.address.rpartition(":")[2]
        with Node(b, "--no-listen", "--connect", first.address) as second:
            run(a, "append", stdin=b"one")
            wait_until(lambda: has(b, author, 1), "first entry")
            assert second.stop() == 0
        run(a, "append", stdin=b"two")
    run(a, "append", stdin=b"three")
    with (
        Node(b, "--no-listen", "--connect", f"127.0.0.1:{port}"),
        Node(a, "--listen", f"127.0.0.1:{port}"),
    ):
        wait_until(lambda: has(b, author, 3), "what was appended meanwhile")


def test_a_restart_in_the_middle_of_a_payload_goes_on_inside_it(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = stores
    author, _ = init(a), init(b)
    size = 192 * 1024 * 1024
    payload = tmp_path / "payload"
    with payload.open("wb") as file:
        for n in range(size // (1 << 20)):
            file.write(random.Random(n).randbytes(1 << 20))
    run(a, "append", str(payload))
    run(b, "follow", author)
    with Node(a, *LISTEN) as first:
        second = Node(b, "--no-listen", "--connect", first.address)
        with second:
            wait_until(lambda: partial_bytes(b) > 24 << 20, "a part of the payload")
            second.kill()
        resumed_from = partial_bytes(b)
        assert held(b, author)["payloads"] == 0
        with Node(b, "--no-listen", "--connect", first.address) as again:
            wait_until(lambda: has(b, author, 1), "the whole payload")
            assert again.stop() == 0
    assert resumed_from > 0
    run(b, "verify")


def partial_bytes(store: Path) -> int:
    """How much of unfinished payloads is on disk."""
    folder = store / "payloads"
    return sum(
        Path(root, name).stat().st_size for root, _, names in os.walk(folder) for name in names
    )


def test_sync_brings_and_takes_and_says_what_it_did(stores: tuple[Path, Path]) -> None:
    a, b = stores
    author_a, author_b = init(a), init(b)
    run(a, "append", "--lines", stdin=b"x\n" * 50)
    run(b, "append", "--lines", stdin=b"y\n" * 20)
    with Node(a, *LISTEN, "--follow", author_b) as node:
        [summary] = records(b, "sync", node.address, "--follow", author_a)
        assert summary["entries_received"] == 50
        assert summary["entries_sent"] == 20
        assert has(b, author_a, 50)
        assert has(a, author_b, 20)
        [again] = records(b, "sync", node.address)
        assert again["entries_received"] == again["entries_sent"] == 0
