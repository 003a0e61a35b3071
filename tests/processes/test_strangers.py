"""Those who speak something else, or misbehave, at a real node: it goes on serving the others."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from wire import (
    U64_MAX,
    Eagerness,
    LogKey,
    Propose,
    Setup,
    encode_control,
    encode_setup,
    encode_varu64,
)

from .node import Node, connect, held, init, read_to_end, run, wait_until

SETUP = Setup(send_greedily=True, accept_greedily=True, send_window=0, receive_window=0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    store = tmp_path / "served"
    init(store)
    run(store, "append", stdin=b"hello")
    with Node(store, "--listen", "127.0.0.1:0") as serving:
        yield serving


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100f4010000f00303") + bytes(200),
    "random": random.Random(7).randbytes(4096),
    "nothing but ff": b"\xff" * 64,
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_is_dropped_with_a_reason(node: Node, kind: str) -> None:
    with closing(connect(node.address)) as stranger:
        stranger.sendall(STRANGERS[kind])
        read_to_end(stranger)
    wait_until(
        lambda: any(event["event"] == "disconnected" for event in node.seen()),
        "the reason for dropping it",
    )
    [event] = [event for event in node.seen() if event["event"] == "disconnected"]
    assert event["reason"]


def test_other_connections_do_not_notice_a_stranger(node: Node, tmp_path: Path) -> None:
    [author] = {line.partition("/")[0] for line in run(node.store, "logs").split() if "/" in line}
    other = tmp_path / "other"
    init(other)
    with Node(other, "--no-listen", "--connect", node.address, "--follow", author):
        wait_until(lambda: held(other, author)["height"] == 1, "the first entry")
        for data in STRANGERS.values():
            with closing(connect(node.address)) as stranger:
                stranger.sendall(data)
                read_to_end(stranger)
        run(node.store, "append", stdin=b"again")
        wait_until(lambda: held(other, author)["height"] == 2, "an entry after the strangers")
    assert node.stop() == 0


def test_a_violation_beside_what_the_node_has_to_say_is_no_traceback(node: Node) -> None:
    """A proposal to answer comes in the same moment as a Write without credit."""
    proposal = encode_control(
        Propose(
            request=6,
            log=LogKey(b"a" * 32, 0),
            eagerness=Eagerness.ALL,
            start=1,
            lower_info=1,
            starting_hash=None,
            min_bytes=0,
            max_bytes=U64_MAX,
        )
    )
    offence = b"\x20\x00" + encode_varu64(len(proposal)) + proposal + bytes.fromhex("2001026162")
    for _ in range(20):
        with closing(connect(node.address)) as offender:
            offender.sendall(encode_setup(SETUP))
            offender.recv(1)
            offender.sendall(offence)
            read_to_end(offender)
    wait_until(
        lambda: [event["event"] for event in node.seen()].count("violation") == 20,
        "the violations",
    )
    assert node.stop() == 0
    assert node.stderr == ""
