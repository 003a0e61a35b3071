"""The sizes that the project promises, on real sockets and disks; minutes each."""

import os
from pathlib import Path

import pytest

from .node import Node, held, init, run, wait_until

MEMORY_BYTES_MAX = 300 * 1024 * 1024


@pytest.mark.long
def test_many_entries_and_a_huge_payload_in_bounded_memory(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    author, _ = init(a), init(b)
    run(a, "append", "--lines", stdin=b"".join(b"%0255d\n" % n for n in range(100_000)))
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        for _ in range(2048):
            file.write(os.urandom(1 << 20))
    run(a, "append", str(huge))
    huge.unlink()
    with (
        Node(a, "--listen", "127.0.0.1:0") as first,
        Node(b, "--no-listen", "--connect", first.address, "--follow", author) as second,
    ):
        wait_until(lambda: held(b, author)["payloads"] == 100_001, "everything", patience_s=400)
        assert first.peak_memory_bytes() < MEMORY_BYTES_MAX
        assert second.peak_memory_bytes() < MEMORY_BYTES_MAX
        assert first.stop() == second.stop() == 0
    run(b, "verify")


@pytest.mark.long
def test_fifty_connections_to_one_node(tmp_path: Path) -> None:
    a = tmp_path / "a"
    author = init(a)
    run(a, "append", "--lines", stdin=b"entry\n" * 200)
    with Node(a, "--listen", "127.0.0.1:0") as hub:
        stores = [tmp_path / f"b{n}" for n in range(50)]
        nodes = []
        try:
            for store in stores:
                init(store)
                nodes.append(
                    Node(store, "--no-listen", "--connect", hub.address, "--follow", author)
                )
            for store in stores:
                wait_until(
                    lambda store=store: held(store, author)["height"] == 200,  # type: ignore[misc]
                    f"history at {store.name}",
                    patience_s=200,
                )
            run(a, "append", stdin=b"live")
            for store in stores:
                wait_until(
                    lambda store=store: held(store, author)["height"] == 201,  # type: ignore[misc]
                    f"live entry at {store.name}",
                    patience_s=200,
                )
            assert hub.peak_memory_bytes() < MEMORY_BYTES_MAX
        finally:
            for node in nodes:
                with node:
                    node.kill()
