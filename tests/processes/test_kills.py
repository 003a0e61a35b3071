"""kill -9 of either side at random moments: nothing acknowledged is lost, `verify` is clean."""

import random
import time
from pathlib import Path

import pytest

from .node import Node, held, init, run, wait_until


def kill_and_complete(folder: Path, kills: int, seed: int) -> None:
    """Replicate a growing log while one of two nodes is killed again and again."""
    rng = random.Random(seed)
    a, b = folder / "a", folder / "b"
    author, _ = init(a), init(b)
    run(b, "follow", author)
    big = folder / "big"
    big.write_bytes(rng.randbytes(12 << 20))
    appended = 0
    first = Node(a, "--listen", "127.0.0.1:0")
    address = first.address
    second = Node(b, "--no-listen", "--connect", address)
    try:
        for _ in range(kills):
            lines = rng.randrange(1, 2000)
            stdin = b"".join(rng.randbytes(40).hex().encode() + b"\n" for _ in range(lines))
            out = run(a, "append", "--lines", stdin=stdin)
            appended += len(out.splitlines())
            if rng.random() < 0.3:
                run(a, "append", str(big))
                appended += 1
            time.sleep(rng.uniform(0, 0.4))  # the random moment
            if rng.random() < 0.5:
                first.kill()
                first = Node(a, "--listen", address)
                first.wait_for("listening")
            else:
                second.kill()
                run(b, "verify")
                second = Node(b, "--no-listen", "--connect", address)
        wait_until(
            lambda: held(b, author)["height"] == appended == held(b, author)["payloads"],
            f"all {appended} entries",
            patience_s=180,
        )
        assert held(a, author)["height"] == appended
    finally:
        for node in (first, second):
            with node:
                node.stop()
    for store in (a, b):
        run(store, "verify")


def test_killed_nodes_lose_nothing_and_complete(tmp_path: Path) -> None:
    kill_and_complete(tmp_path, kills=4, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_killed_fifty_times_lose_nothing_and_complete(tmp_path: Path, seed: int) -> None:
    kill_and_complete(tmp_path, kills=50, seed=100 + seed)
