"""The base protocol, and which code is whose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.reading import CodecError
from gateways.swarm import devp2p, rlp
from gateways.swarm.devp2p import Capability, Disconnect, Hello, Ping, Pong, Reason

from .vectors import VECTORS

PUBLIC = bytes(range(64))
HELLO = Hello("bamboo-peer/0.1.0", devp2p.CAPABILITIES, PUBLIC)


def test_upstream_s_messages() -> None:
    hello, ping, other = VECTORS["rlpx"]["initiator_frames"]
    payload = bytes.fromhex(hello["payload"])
    read = devp2p.decode_message(hello["code"], payload)
    assert isinstance(read, Hello)
    assert (read.version, read.client, read.port) == (4, "far", 0)
    assert read.capabilities == (("bzz", 8), ("hive", 8), ("stream", 8))
    assert devp2p.encode_message(read) == devp2p.encode_body(0, payload) == b"\x80" + payload
    assert devp2p.decode_message(ping["code"], bytes.fromhex(ping["payload"])) == Ping()
    assert devp2p.encode_message(Ping()).hex() == "02c0"
    assert devp2p.encode_message(Pong()).hex() == "03c0"
    # Its own end names itself: bzz is 16, hive 17 and 18, and so 20 is message 1 of stream.
    shared = devp2p.agree(read, read.public)
    assert shared.find(other["code"]) == ("stream", 1)
    assert not shared.has_bamboo


def test_a_farewell_may_be_bare() -> None:
    assert devp2p.encode_message(Disconnect(Reason.SUBPROTOCOL_ERROR)).hex() == "01c110"
    for payload in ("c110", "10"):
        assert devp2p.decode_message(1, bytes.fromhex(payload)) == Disconnect(16)
    assert devp2p.decode_message(1, b"\xc1\x63") == Disconnect(99)
    assert [*map(int, Reason)] == [*range(12), 16]
    assert devp2p.describe(4) == "too many peers"
    assert devp2p.describe(99) == "reason 99"


@pytest.mark.parametrize("code", [4, 5, 15])
def test_what_is_not_known_is_ignored(code: int) -> None:
    assert devp2p.decode_message(code, b"whatever it is") is None


def test_bodies() -> None:
    assert devp2p.encode_body(0, b"\xc0").hex() == "80c0"
    assert devp2p.decode_body(b"\x80\xc0") == (0, b"\xc0")
    assert devp2p.decode_body(devp2p.encode_body(2**64 - 1, b"")) == (2**64 - 1, b"")
    for body in (b"", b"\xc0", b"\x00\xc0", b"\x81\x01", b"\x89" + b"\x01" * 9):
        with pytest.raises(CodecError, match="the code of a message"):
            devp2p.decode_body(body)


def _hello(*changes: tuple[int, rlp.Value], more: tuple[rlp.Value, ...] = ()) -> bytes:
    fields: list[rlp.Value] = [4, "client", [["bzz", 8]], 0, PUBLIC]
    for at, value in changes:
        fields[at] = value
    return rlp.encode([*fields, *more])


@pytest.mark.parametrize(
    ("code", "payload", "why"),
    [
        (0, _hello((1, "x" * 257)), "the name of the client .* 256 are the limit"),
        (0, _hello((1, b"\xff")), "the name of the client .* no UTF-8"),
        (0, _hello((2, [["x" * 257, 8]])), "the name of a capability .* 256 are the limit"),
        (0, _hello((2, [["bzz"]])), "the version of a capability .* missing"),
        (0, _hello((2, [["bzz", 8, 9]])), "left over"),
        (0, _hello((4, PUBLIC[1:])), "the public key of the hello .* 63 bytes, not 64"),
        (0, _hello(more=(1,)), "left over"),
        (0, _hello() + b"\x00", "left over"),
        (0, _hello((2, [["bzz", 8]] * 400)), "2048 are the limit"),
        (0, b"", "the hello .* missing"),
        (1, b"\xc0", "the reason .* missing"),
        (1, b"", "the disconnect .* missing"),
        (1, b"\xc2\x01\x02", "left over"),
        (2, b"\x80", "the ping .* no list"),
        (3, b"\xc1\x01", "left over"),
    ],
)
def test_what_breaks_a_rule(code: int, payload: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        devp2p.decode_message(code, payload)


ALL = devp2p.CAPABILITIES


def test_codes_are_dealt_out_in_order_of_name() -> None:
    shared = devp2p.share(reversed(ALL))
    assert shared.first_codes == {"bamboo": 16, "bzz": 16, "hive": 17, "stream": 19}
    assert shared.has_bamboo
    assert shared.find(16) == ("bzz", 0)
    assert [shared.find(code) for code in (17, 18)] == [("hive", 0), ("hive", 1)]
    assert [shared.find(19 + n) for n in range(11)] == [("stream", n) for n in range(11)]
    assert shared.code_of("stream", 10) == 29
    for code in (0, 15, 30, 2**64 - 1):
        with pytest.raises(CodecError, match="unknown code"):
            shared.find(code)


def test_only_what_both_have_in_one_version_counts() -> None:
    others = [Capability("a", 1), Capability("stream", 8), Capability("bzz", 8), Capability("z", 1)]
    shared = devp2p.share([*others, Capability("hive", 5), Capability("hive", 7), *others])
    assert shared.first_codes == {"bzz": 16, "stream": 17}
    assert not shared.has_bamboo
    with pytest.raises(CodecError, match="unknown code 28"):
        shared.find(28)
    with pytest.raises(KeyError):
        shared.code_of("hive", 0)


def test_who_is_refused_is_told_why() -> None:
    assert devp2p.agree(HELLO, PUBLIC).has_bamboo
    with pytest.raises(devp2p.RefusedError, match="not its own") as refused:
        devp2p.agree(HELLO, PUBLIC[::-1])
    assert refused.value.reason is Reason.UNEXPECTED_IDENTITY
    for lacking in ("bzz", "stream"):
        capabilities = tuple(each for each in ALL if each.name != lacking)
        with pytest.raises(devp2p.RefusedError, match="speaks no") as refused:
            devp2p.agree(HELLO._replace(capabilities=capabilities), PUBLIC)
        assert refused.value.reason is Reason.USELESS_PEER


u64 = st.integers(0, 2**64 - 1)
texts = st.text(max_size=60)
capabilities = st.lists(st.builds(Capability, texts, u64), max_size=3).map(tuple)
messages = st.one_of(
    st.builds(Hello, texts, capabilities, st.binary(min_size=64, max_size=64), u64, u64),
    st.builds(Disconnect, u64),
    st.builds(Ping),
    st.builds(Pong),
)


@given(messages)
def test_what_is_written_is_read_as_it_was(message: devp2p.Message) -> None:
    read = devp2p.decode_message(*devp2p.decode_body(devp2p.encode_message(message)))
    assert read == message
    assert type(read) is type(message)


@given(st.integers(0, 16), st.binary(max_size=120))
def test_any_bytes_are_a_message_or_one_error(code: int, payload: bytes) -> None:
    try:
        devp2p.decode_message(code, payload)
        devp2p.decode_body(payload)
    except CodecError:
        pass
