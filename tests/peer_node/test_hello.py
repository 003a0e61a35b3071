"""What a ClientHello offers, however it comes in pieces. peer/node/doors/hello.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL

from peer.node.doors.hello import HELLO_BYTES_MAX, ClientHello


def said(*protocols: bytes, version: int = SSL.TLS1_3_VERSION) -> bytes:
    """The message of a ClientHello that the library makes, without its record."""
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_max_proto_version(version)
    if protocols:
        context.set_alpn_protos(list(protocols))
    connection = SSL.Connection(context, None)
    connection.set_connect_state()
    with pytest.raises(SSL.WantReadError):
        connection.do_handshake()
    return connection.bio_read(1 << 16)[5:]


OFFERS, OFFERS_NOTHING = said(b"h2", b"bamboo-p2p/1"), said()


def in_records(message: bytes, bytes_max: int) -> bytes:
    pieces = [message[at : at + bytes_max] for at in range(0, len(message), bytes_max)]
    return b"".join(b"\x16\x03\x01" + len(each).to_bytes(2, "big") + each for each in pieces)


def heard(data: bytes, bytes_max: int = 1 << 20) -> ClientHello:
    hello = ClientHello()
    for at in range(0, len(data), bytes_max):
        hello.feed(data[at : at + bytes_max])
    return hello


@given(st.integers(1, 600), st.integers(1, 600))
def test_it_is_found_in_any_pieces(record_max: int, piece_max: int) -> None:
    assert heard(in_records(OFFERS_NOTHING, record_max), piece_max).offers_nothing
    assert not heard(in_records(OFFERS, record_max), piece_max).offers_nothing


def test_nothing_is_said_before_it_is_whole_nor_changed_behind_it() -> None:
    data = in_records(OFFERS_NOTHING, 100)
    assert not heard(data[:-1]).offers_nothing
    assert heard(data + in_records(OFFERS, 100), 50).offers_nothing


@given(st.binary(max_size=300))
def test_what_is_not_understood_is_left_to_the_library(data: bytes) -> None:
    size = len(data).to_bytes(3, "big")
    for message in (data, b"\x02" + size + data):
        assert not heard(in_records(message, 50)).offers_nothing
    # A ClientHello that is anything at all is found to offer nothing or is not, and ends nothing.
    heard(in_records(b"\x01" + size + data, 50), 7)


def test_one_that_is_cut_too_large_or_of_an_older_version_is_not_judged() -> None:
    cut = OFFERS_NOTHING[4:-60]
    bare = bytes(34) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    for message in (
        said(version=SSL.TLS1_2_VERSION),
        b"\x01" + len(cut).to_bytes(3, "big") + cut,
        b"\x01" + (HELLO_BYTES_MAX + 1).to_bytes(3, "big") + OFFERS_NOTHING[4:],
        b"\x01" + len(bare).to_bytes(3, "big") + bare,
    ):
        assert not heard(in_records(message, 200)).offers_nothing
    assert not heard(b"GET / HTTP/1.1\r\n\r\n").offers_nothing
