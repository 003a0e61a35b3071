"""Connections from their first byte to messages of stream/8, both ends against each other."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.reading import CodecError
from gateways.swarm import rlp
from gateways.swarm.codec import (
    EMPTY_PROOF,
    Handshake,
    Message,
    OfferedHashes,
    Stream,
    Unsubscribe,
    encode_envelope,
    encode_handshake,
    encode_message,
)
from gateways.swarm.devp2p import (
    BZZ,
    CAPABILITIES,
    HIVE,
    STREAM,
    Capability,
    Disconnect,
    Hello,
    Ping,
    Pong,
    Reason,
    RefusedError,
    decode_body,
    encode_body,
)
from gateways.swarm.devp2p import decode_message as decode_base
from gateways.swarm.devp2p import encode_message as encode_base
from gateways.swarm.keys import Key, overlay_of
from gateways.swarm.link import EndedError, Identity, Link
from gateways.swarm.rlpx import Connection, draw

from .ends import INITIATOR, RECIPIENT, frames_of

FIRST_CODES = {BZZ: 16, HIVE: 17, STREAM: 19}
LIVE = Stream("SYNC", "0", live=True)
OFFER = OfferedHashes(LIVE, 1, 2, bytes(64))


def identity(key: Key, *, network: int = 3, is_light: bool = False) -> Identity:
    underlay = f"enode://{key.public.hex()}@127.0.0.1:7017"
    return Identity(key, "bamboo-peer/0", network, overlay_of(key.public), underlay, is_light)


def caller(seed: int = 1, now: float = 0.0, remote: Key = RECIPIENT, **named: int) -> Link:
    draws = draw(random.Random(seed).randbytes)
    return Link(identity(INITIATOR, **named), draws, now, remote.public)  # type: ignore[arg-type]


def called(seed: int = 2, now: float = 0.0, **named: int) -> Link:
    return Link(identity(RECIPIENT, **named), draw(random.Random(seed).randbytes), now)  # type: ignore[arg-type]


def exchange(one: Link, other: Link, now: float = 0.0, piece: int = 1 << 20) -> list[Message]:
    """Lets both talk until neither has more to say; what came of stream/8."""
    found: list[Message] = []
    while True:
        moved = False
        for source, target in ((one, other), (other, one)):
            data = source.take()
            for at in range(0, len(data), piece):
                moved = True
                found += target.receive(data[at : at + piece], now)
        if not moved:
            return found


class Stranger:
    """The other end, which says whatever a test wants: it shares the frames with ours, no more."""

    def __init__(self, ours: Link) -> None:
        self.ours = ours
        self.connection = Connection(INITIATOR, draw(random.Random(3).randbytes), RECIPIENT.public)
        self.hear()
        self.hear()

    def hear(self) -> list[bytes]:
        """Passes on what is to be sent both ways; the frames that came."""
        self.ours.receive(self.connection.take(), 0.0)
        return frames_of(self.connection, self.ours.take())

    def say(self, *bodies: bytes) -> list[Message]:
        for each in bodies:
            self.connection.send(each)
        return self.ours.receive(self.connection.take(), 0.0)

    def hello(self, *capabilities: Capability, key: Key = INITIATOR) -> None:
        named = capabilities or CAPABILITIES[1:]
        self.say(encode_base(Hello("stranger", named, key.public)))

    def bzz(self, network: int = 3, *, version: int = 8, overlay: bytes = bytes(32)) -> None:
        handshake = Handshake(network, overlay, "", is_light=False, version=version)
        self.say(encode_body(16, encode_envelope(encode_handshake(handshake))))


def stream_body(message: Message) -> bytes:
    number, encoded = encode_message(message)
    return encode_body(FIRST_CODES[STREAM] + number, encode_envelope(encoded))


@given(st.integers(1, 2_000))
def test_two_nodes_agree_however_the_bytes_are_cut(piece: int) -> None:
    one, other = caller(), called(is_light=True)
    assert exchange(one, other, piece=piece) == []
    assert one.is_open
    assert other.is_open
    assert one.peer == Handshake(
        3, overlay_of(RECIPIENT.public), identity(RECIPIENT).underlay, is_light=True
    )
    assert other.peer is not None
    assert not other.peer.is_light
    assert other.public == INITIATOR.public
    assert not one.has_bamboo
    for end in (one, other):
        end.send(*encode_message(OFFER))
    assert exchange(one, other, piece=piece) == [OFFER, OFFER]


def test_our_hello_and_handshake() -> None:
    stranger = Stranger(called())
    stranger.hello()
    stranger.bzz()
    assert stranger.ours.is_open
    assert stranger.ours.peer is not None
    # Its overlay is taken as it says: upstream's nodes may choose.
    assert stranger.ours.peer.overlay == bytes(32)


def test_hello_is_the_first_that_we_say() -> None:
    ours = called()
    connection = Connection(INITIATOR, draw(random.Random(3).randbytes), RECIPIENT.public)
    ours.receive(connection.take(), 0.0)
    [body] = frames_of(connection, ours.take())
    code, payload = decode_body(body)
    hello = decode_base(code, payload)
    assert isinstance(hello, Hello)
    assert hello.public == RECIPIENT.public
    assert hello.version == 4
    assert [str(each.name) for each in hello.capabilities] == ["bzz", "hive", "stream"]


def test_pings_and_what_hive_says_are_taken() -> None:
    stranger = Stranger(called())
    stranger.hello()
    stranger.bzz()
    stranger.hear()
    peers = encode_body(17, encode_envelope(rlp.encode(((),))))
    assert stranger.say(encode_base(Ping()), peers, encode_body(9, b"\xc0")) == []
    assert frames_of(stranger.connection, stranger.ours.take()) == [encode_base(Pong())]
    assert stranger.say(stream_body(OFFER)) == [OFFER]


def refused(act: Callable[[Stranger], object]) -> RefusedError:
    stranger = Stranger(called())
    with pytest.raises(RefusedError) as caught:
        act(stranger)
    return caught.value


def opened(stranger: Stranger) -> Stranger:
    stranger.hello()
    stranger.bzz()
    return stranger


@pytest.mark.parametrize(
    ("act", "reason", "said"),
    [
        (lambda s: s.hello(key=RECIPIENT), Reason.UNEXPECTED_IDENTITY, "key"),
        (lambda s: s.hello(Capability("eth", 63)), Reason.USELESS_PEER, "no bzz"),
        (lambda s: s.say(stream_body(OFFER)), Reason.SUBPROTOCOL_ERROR, "before the hello"),
        (lambda s: (s.hello(), s.hello()), Reason.SUBPROTOCOL_ERROR, "second hello"),
        (
            lambda s: (s.hello(), s.say(stream_body(OFFER))),
            Reason.SUBPROTOCOL_ERROR,
            "before the handshake of bzz",
        ),
        (lambda s: (s.hello(), s.bzz(4)), Reason.SUBPROTOCOL_ERROR, "network is 4"),
        (lambda s: (s.hello(), s.bzz(version=9)), Reason.SUBPROTOCOL_ERROR, "version is 9"),
        (lambda s: opened(s).bzz(), Reason.SUBPROTOCOL_ERROR, "second handshake"),
        (lambda s: opened(s).say(encode_body(30, b"\xc0")), Reason.SUBPROTOCOL_ERROR, "code 30"),
        (lambda s: opened(s).say(encode_body(19, b"\xc1")), Reason.SUBPROTOCOL_ERROR, "envelope"),
        (lambda s: opened(s).say(b"\x81\x01"), Reason.SUBPROTOCOL_ERROR, ""),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_reason(
    act: Callable[[Stranger], object], reason: Reason, said: str
) -> None:
    error = refused(act)
    assert error.reason is reason
    assert said in str(error)


def test_a_hash_of_another_length_is_refused_by_name() -> None:
    stream, encoded = 1, rlp.encode((LIVE, 1, 2, bytes(33), EMPTY_PROOF))
    body = encode_body(FIRST_CODES[STREAM] + stream, encode_envelope(encoded))
    error = refused(lambda stranger: opened(stranger).say(body))
    assert error.reason is Reason.SUBPROTOCOL_ERROR
    assert "hashes" in str(error)


def test_a_farewell_ends_it_with_its_reason() -> None:
    stranger = Stranger(called())
    with pytest.raises(EndedError, match="too many peers"):
        stranger.say(encode_base(Disconnect(Reason.TOO_MANY_PEERS)))


def test_our_farewell_is_read() -> None:
    one, other = caller(), called()
    exchange(one, other)
    one.farewell(Reason.QUITTING)
    with pytest.raises(EndedError, match="quitting"):
        exchange(one, other)


def test_before_hands_are_shaken_nothing_can_be_said() -> None:
    ours = called()
    ours.farewell(Reason.TIMEOUT)
    assert ours.take() == b""


def test_who_is_not_whom_we_called_is_told_nothing() -> None:
    one, other = caller(remote=Key(bytes(31) + b"\x07")), called()
    with pytest.raises(CodecError):
        exchange(one, other)


def test_a_frame_that_is_too_long_is_refused_from_its_header() -> None:
    stranger = opened(Stranger(called()))
    # What no body of ours may have, told by a header alone.
    sealer = stranger.connection._sealer
    assert sealer is not None
    header = sealer._cipher.update((11 << 20).to_bytes(3, "big") + bytes(13))
    mac = sealer._mac.of_header(header)
    with pytest.raises(RefusedError) as caught:
        stranger.ours.receive(header + mac, 0.0)
    assert caught.value.reason is Reason.BREACH_OF_PROTOCOL


def test_who_says_nothing_is_given_up() -> None:
    ours = called(now=100.0)
    assert ours.next_deadline == 105.0
    ours.advance(104.9)
    with pytest.raises(RefusedError, match="handshakes took too long") as caught:
        ours.advance(105.0)
    assert caught.value.reason is Reason.TIMEOUT


def test_who_does_not_say_of_which_network_is_given_up() -> None:
    stranger = Stranger(called())
    stranger.hello()
    assert stranger.ours.next_deadline == 3.0
    with pytest.raises(RefusedError, match="bzz took too long"):
        stranger.ours.advance(3.0)


def test_silence_is_asked_and_then_an_end() -> None:
    one, other = caller(), called()
    exchange(one, other)
    assert one.next_deadline == 15.0
    one.advance(15.0)
    assert one.next_deadline == 30.0
    exchange(one, other, now=20.0)
    assert one.next_deadline == 35.0
    one.advance(35.0)
    one.take()
    one.advance(49.9)
    with pytest.raises(RefusedError, match="nothing came for 30 s"):
        one.advance(50.0)


def test_unsubscribing_goes_through() -> None:
    one, other = caller(), called()
    exchange(one, other)
    one.send(*encode_message(Unsubscribe(LIVE)))
    assert exchange(one, other) == [Unsubscribe(LIVE)]
