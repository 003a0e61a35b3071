"""A connection from hello to messages: what a stranger says ends it for a reason, or is a message.

An input's first byte says who the stranger is, and how far it has come: someone who calls us or
whom we have called, before the hello, before the handshake of bzz, or behind it. What follows are
bodies of frames that it seals, each behind its length, or with the top bit of the first byte, bytes
that it sends as they are.
"""

from collections.abc import Callable

from fuzz.harness import main
from gateways.reading import CodecError
from gateways.swarm import codec, devp2p
from gateways.swarm.devp2p import RefusedError
from gateways.swarm.keccak import keccak
from gateways.swarm.keys import Key, overlay_of
from gateways.swarm.link import EndedError, Identity, Link
from gateways.swarm.rlpx import Connection, draw

NEW, GREETED, OPEN = range(3)
IS_CALLED, IS_RAW = 0x40, 0x80
OURS, THEIRS = Key(keccak(b"ours")), Key(keccak(b"theirs"))
_NOW = 10.0


def _random(seed: str) -> Callable[[int], bytes]:
    given = 0

    def random(count: int) -> bytes:
        nonlocal given
        given += 1
        pieces = (keccak(f"{seed} {given} {at}".encode()) for at in range(count // 32 + 1))
        return b"".join(pieces)[:count]

    return random


_DRAWS = draw(_random("ours")), draw(_random("theirs"))
_IDENTITY = Identity(OURS, "bamboo-peer/0", 3, overlay_of(OURS.public), "enode", is_light=False)
_HELLO = devp2p.encode_message(devp2p.Hello("a stranger", devp2p.CAPABILITIES[1:], THEIRS.public))
_NAMED = devp2p.encode_message(devp2p.Hello("one of ours", devp2p.CAPABILITIES, THEIRS.public))
_WHO = codec.Handshake(3, overlay_of(THEIRS.public), "enode", is_light=False)
_BZZ = devp2p.encode_body(16, codec.encode_envelope(codec.encode_handshake(_WHO)))
_STREAM = codec.Stream("SYNC", "6", live=True)
_MESSAGES: list[codec.Message] = [
    codec.Unsubscribe(_STREAM),
    codec.OfferedHashes(_STREAM, 1, 2, bytes(64)),
    codec.WantedHashes(_STREAM, b"\x05", 129, 0),
    codec.Subscribe(_STREAM, codec.Range(0, 0), codec.HIGH),
    codec.RetrieveRequest(bytes(32), skip_check=True, hops=1),
    codec.StreamDelivery(bytes(32), bytes(9)),
]


def _stream_body(message: codec.Message) -> bytes:
    number, encoded = codec.encode_message(message)
    return devp2p.encode_body(19 + number, codec.encode_envelope(encoded))


def said(*bodies: bytes) -> bytes:
    """Frames with these bodies."""
    return b"".join(len(each).to_bytes(2, "big") + each for each in bodies)


_BODIES = [*map(_stream_body, _MESSAGES)]
_PING, _BYE = b"\x02\xc0", devp2p.encode_message(devp2p.Disconnect(4))
CORPUS = [
    bytes((NEW,)) + said(_HELLO, _BZZ, *_BODIES),
    bytes((NEW | IS_CALLED,)) + said(_NAMED, _BZZ, _PING, *_BODIES),
    bytes((NEW,)) + said(_BZZ),
    bytes((GREETED,)) + said(_BZZ, _BZZ),
    bytes((GREETED,)) + said(_HELLO),
    bytes((OPEN,)) + said(*_BODIES),
    bytes((OPEN,)) + said(_PING, b"\x03\xc0", b"\x80\xc0", _BYE),
    bytes((OPEN | IS_CALLED,)) + said(*reversed(_BODIES), _BYE),
    bytes((OPEN | IS_RAW,)) + bytes(100),
    bytes((NEW | IS_RAW,)) + bytes(32),
]


def _begun(kind: int) -> tuple[Link, Connection]:
    """Our link and a stranger's end, once they have shaken hands and as far as `kind` says."""
    is_called = bool(kind & IS_CALLED)
    ours = Link(_IDENTITY, _DRAWS[0], 0.0, THEIRS.public if is_called else None)
    theirs = Connection(THEIRS, _DRAWS[1], None if is_called else OURS.public)
    for _ in range(2):
        theirs.feed(ours.take())
        assert theirs.next_frame() is None or theirs.is_established
        ours.receive(theirs.take(), 0.0)
    for body in (_HELLO, _BZZ)[: kind & 3]:
        theirs.send(body)
        assert ours.receive(theirs.take(), 0.0) == []
    assert ours.is_open == (kind & 3 >= OPEN)
    return ours, theirs


def outcome(data: bytes, piece: int) -> tuple[list[codec.Message], str, bool]:
    """The messages, what has ended it if anything has, and whether it is open."""
    kind, rest = (data[0], data[1:]) if data else (0, b"")
    ours, theirs = _begun(kind)
    if kind & IS_RAW:
        sent = rest
    else:
        while rest:
            size = int.from_bytes(rest[:2], "big")
            theirs.send(rest[2 : 2 + size])
            rest = rest[2 + size :]
        sent = theirs.take()
    found: list[codec.Message] = []
    error = ""
    try:
        for at in range(0, len(sent), piece):
            was_open = ours.is_open
            came = ours.receive(sent[at : at + piece], _NOW)
            assert was_open or ours.is_open or not came
            found += came
    except (RefusedError, EndedError, CodecError) as ended:
        error = f"{type(ended).__name__}: {ended}"
    if not error:
        # What it has led us to say can be read, and is bounded.
        answer = ours.take()
        assert len(answer) <= 2_000 + 100 * len(sent)
        theirs.feed(answer)
        while theirs.next_frame() is not None:
            pass
        assert ours.next_deadline >= 0
    return found, error, ours.is_open


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    whole = outcome(data, 1 << 20)
    pieces = outcome(data, 97)
    assert pieces[1:] == whole[1:]
    # What came before the error in the same bytes is lost with the connection.
    assert pieces[0] == whole[0] or (whole[1] and not whole[0])
    for each in whole[0]:
        number, encoded = codec.encode_message(each)
        assert codec.decode_message(number, encoded) == each


if __name__ == "__main__":
    main(check, CORPUS)
