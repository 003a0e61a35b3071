"""Other protocols are recognised by their first bytes, however these are cut; peers never are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.node.links.sniffing import Sniffer
from wire import Setup, encode_setup

STRANGERS = [
    (b"GET / HTTP/1.1\r\n", "HTTP"),
    (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
    (bytes.fromhex("16030100c8010000c4"), "TLS"),
    (bytes.fromhex("15030100020230"), "TLS"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
]


@pytest.mark.parametrize(("data", "name"), STRANGERS)
def test_a_stranger_is_named_once_enough_has_come(data: bytes, name: str) -> None:
    assert Sniffer().feed(data) == name
    byte_by_byte = Sniffer()
    said = [byte_by_byte.feed(data[i : i + 1]) for i in range(len(data))]
    assert name in said
    assert byte_by_byte.is_strange


@given(st.booleans(), st.booleans(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_peer_is_never_taken_for_a_stranger(
    send: bool, accept: bool, send_window: int, receive_window: int
) -> None:
    sniffer = Sniffer()
    data = encode_setup(Setup(send, accept, send_window, receive_window)) + b"GET / HTTP/1.1"
    assert sniffer.feed(data) is None
    assert not sniffer.is_strange


def test_bytes_that_are_like_nothing_known_are_only_strange() -> None:
    sniffer = Sniffer()
    assert sniffer.feed(b"\xff" * 100) is None
    assert sniffer.is_strange
    assert not Sniffer().is_strange
