"""Payloads that a relay gets late reach those behind it soon, and once: three nodes in a chain."""

from contextlib import ExitStack
from pathlib import Path

from logstore import Store
from wire import LogKey

from .node import Node, held, init, records, run, wait_until

LISTEN = ("--listen", "127.0.0.1:0")
COUNT = 60
SMALL, LARGE = 20, 3_000
"""Sizes in turn, in bytes."""


def payload(n: int) -> bytes:
    return (b"%04d" % n) * ((LARGE if n % 2 else SMALL) // 4)


def payloads(store: Store, author: str) -> int:
    info = store.log(LogKey(bytes.fromhex(author), 0))
    return 0 if info is None else info.payloads


def sent_bytes(store: Path) -> list[int]:
    """The payload bytes that a node has sent to each of its peers."""
    (status,) = records(store, "status")
    return sorted(each["payload_bytes_sent"] for each in status["node"]["connections"])


def test_what_a_relay_begins_to_want_reaches_all_that_follow_it(tmp_path: Path) -> None:
    source, relay, far, small = (tmp_path / name for name in ("source", "relay", "far", "small"))
    author = init(source)
    for store in (relay, far, small):
        init(store)
    lines = b"".join(payload(n) + b"\n" for n in range(1, COUNT + 1))
    run(source, "append", "--lines", stdin=lines)
    run(relay, "follow", author, "--policy", "metadata")
    run(far, "follow", author)
    run(small, "follow", author, "--max-payload", str(SMALL))
    with (
        Node(source, *LISTEN) as first,
        Node(relay, *LISTEN, "--connect", first.address) as middle,
        Node(far, "--no-listen", "--connect", middle.address),
        Node(small, "--no-listen", "--connect", middle.address),
    ):
        behind = (relay, far, small)
        wait_until(
            lambda: all(held(store, author)["height"] == COUNT for store in behind), "entries"
        )
        with ExitStack() as stack:
            opened = [stack.enter_context(Store.open(each, readonly=True)) for each in behind]
            assert [payloads(each, author) for each in opened] == [0, 0, 0]
            run(relay, "follow", author, "--policy", "full")
            wait_until(lambda: payloads(opened[0], author) == COUNT, "payloads at the relay")
            wanted = [COUNT, COUNT, COUNT // 2]
            wait_until(lambda: [payloads(each, author) for each in opened] == wanted, "the others")
        both = [sum(len(payload(n)) for n in range(1, COUNT + 1)), SMALL * COUNT // 2]
        wait_until(lambda: sent_bytes(relay) == sorted([0, *both]), "each is sent once")
