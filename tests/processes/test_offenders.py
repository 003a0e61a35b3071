"""A peer breaks a rule over a real socket: the running node says which, where, and with what."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import socket

import pytest

from wire import (
    U64_MAX,
    Eagerness,
    LogKey,
    Propose,
    Setup,
    encode_control,
    encode_setup,
    encode_switch,
    encode_varu64,
)

from .node import Node, connect, init, read_to_end, records, run, wait_until

CONTROL, DATA = 0, 1
CREDIT = b"\x02" + encode_varu64(DATA)
SETUP = encode_setup(
    Setup(send_greedily=True, accept_greedily=True, send_window=0, receive_window=0)
)


def written(stream: int, data: bytes) -> bytes:
    """A Write of bymux."""
    return b"\x20" + encode_varu64(stream) + encode_varu64(len(data)) + data


def read_to_credit(connection: socket) -> None:
    """Until the node has said that it takes data."""
    heard = b""
    while CREDIT not in heard:
        heard += connection.recv(65536)


def proposal() -> bytes:
    """Its lower info is no link target that entry 7 may be proved by."""
    return encode_control(
        Propose(
            request=6,
            log=LogKey(b"a" * 32, 0),
            eagerness=Eagerness.ALL,
            start=7,
            lower_info=2,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=b"\0\x40" + bytes(64),
        )
    )


OFFENCES = {
    "control": (
        written(CONTROL, proposal()),
        "request 6: lower info 2 is not in the lower pool of 7 (point2point.md 5)",
    ),
    "data": (
        written(DATA, encode_switch(41)),
        "request 41: switch to a request not active (point2point.md 9, Data)",
    ),
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    store = tmp_path / "served"
    init(store)
    with Node(store, "--listen", "127.0.0.1:0") as serving:
        yield serving


@pytest.mark.parametrize("channel", OFFENCES)
def test_why_and_status_name_the_rule_the_request_and_the_value(node: Node, channel: str) -> None:
    offence, reason = OFFENCES[channel]
    with closing(connect(node.address)) as offender:
        host, port = offender.getsockname()
        offender.sendall(SETUP)
        read_to_credit(offender)
        offender.sendall(offence)
        read_to_end(offender)
    peer = f"{host}:{port}"
    event = node.wait_for("violation")
    assert (event["address"], event["reason"]) == (peer, reason)

    wait_until(lambda: reason in run(node.store, "status"), "the state with the violation")
    for words in (run(node.store, "why", peer, status=1), run(node.store, "status")):
        [line] = [line for line in words.splitlines() if peer in line]
        assert "broke a rule of the protocol at " in line
        assert reason in line
    [told] = map(json.loads, run(node.store, "why", peer, "--json", status=1).splitlines())
    assert told["wrong"]
    assert reason in told["text"]
    [status] = records(node.store, "status")
    [ended] = status["node"]["ended"]
    assert (ended["address"], ended["kind"], ended["reason"]) == (peer, "violation", reason)
    assert node.stop() == 0
