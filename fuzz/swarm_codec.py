"""Messages between Swarm nodes: any bytes are the one encoding of a message, or an error.

An input's first byte says whose message it is, and its number there.
"""

from contextlib import suppress

from fuzz.harness import main
from gateways.reading import CodecError
from gateways.swarm import codec, devp2p, keys, rlp

HANDSHAKE, ENVELOPE, BODY, HIVE, TEXT, BASE = 16, 17, 18, 19, 21, 32

_STREAM = codec.Stream("SYNC", "6", live=True)
_HISTORY = codec.Stream("SYNC", "6", live=False)
_ADDRESS = bytes(range(32))
_STATEMENT = codec.Statement(_HISTORY, 1, 300, _ADDRESS)
_MESSAGES: list[codec.Message] = [
    codec.Unsubscribe(_STREAM),
    codec.OfferedHashes(_HISTORY, 1, 2, _ADDRESS * 2),
    codec.OfferedHashes(_STREAM, 300, 300, _ADDRESS, codec.Proof(bytes(65), _STATEMENT)),
    codec.WantedHashes(_HISTORY, b"\x05", 129, codec.OPEN_END),
    codec.TakeoverProof(bytes(65), _STATEMENT),
    codec.Subscribe(_STREAM, codec.Range(0, 0), codec.HIGH),
    codec.Subscribe(_STREAM, None, codec.TOP),
    codec.RetrieveRequest(_ADDRESS, True, 1),  # noqa: FBT003
    codec.RetrieveDelivery(_ADDRESS, bytes(40)),
    codec.SubscribeError("stream bar not registered"),
    codec.RequestSubscription(_STREAM, codec.Range(1, 9), codec.LOW),
    codec.Quit(_STREAM),
    codec.StreamDelivery(_ADDRESS, bytes(9)),
]
_KEY = bytes(range(64))
_HANDSHAKE = codec.encode_handshake(codec.Handshake(3, _ADDRESS, "enode://x", is_light=False))
_HELLO = devp2p.encode_message(devp2p.Hello("bamboo-peer/1", devp2p.CAPABILITIES, _KEY))
CORPUS = [
    *(bytes((number,)) + message for number, message in map(codec.encode_message, _MESSAGES)),
    bytes((HANDSHAKE,)) + _HANDSHAKE,
    bytes((ENVELOPE,)) + codec.encode_envelope(_HANDSHAKE),
    bytes((BODY,)) + _HELLO,
    bytes((HIVE,)) + b"\xc1\x80",
    bytes((HIVE + 1,)) + b"\xc1\x02",
    bytes((TEXT,)) + str(keys.Enode(_KEY, "127.0.0.1", 7017)).encode(),
    bytes((TEXT,)) + str(keys.Enode(_KEY, "::1", 7017)).encode() + b"?discport=0",
    bytes((TEXT,)) + b"g",
    bytes((TEXT,)) + _ADDRESS.hex().encode(),
    bytes((BASE,)) + _HELLO[1:],
    bytes((BASE + 1,)) + b"\xc1\x10",
    bytes((BASE + 1,)) + b"\x10",
    bytes((BASE + 2,)) + b"\xc0",
    bytes((BASE + 9,)) + b"anything",
]


def check(data: bytes) -> None:
    """The invariants, for any bytes."""
    kind, rest = (data[0], data[1:]) if data else (0, b"")
    if kind == TEXT:
        _check_text(rest.decode(errors="replace"))
        return
    try:
        written = _written_again(kind, rest)
    except CodecError:
        return
    assert written == rest


def _written_again(kind: int, data: bytes) -> bytes:
    """What is read, as it is written. Raises CodecError."""
    match kind:
        case 16:
            return codec.encode_handshake(codec.decode_handshake(data))
        case 17:
            message = codec.decode_envelope(data)
            context = rlp.Reader(data).fields("it").data("the context")
            return rlp.encode((context, len(message), message))
        case 18:
            return devp2p.encode_body(*devp2p.decode_body(data))
        case 19 | 20:
            codec.check_hive(kind - HIVE, data)
            return data
        case _ if kind >= BASE:
            return _base_again(kind - BASE, data)
        case _:
            number, again = codec.encode_message(codec.decode_message(kind, data))
            assert number == kind
            return again


def _base_again(code: int, data: bytes) -> bytes:
    message = devp2p.decode_message(code, data)
    if message is None:
        return data
    body = devp2p.encode_message(message)
    if isinstance(message, devp2p.Disconnect) and data != body[1:]:
        # A bare integer says the same.
        return body[2:]
    if isinstance(message, devp2p.Hello):
        shared = devp2p.share(message.capabilities)
        assert shared == devp2p.share(reversed(message.capabilities))
    return body[1:]


def _check_text(text: str) -> None:
    """Keys of streams and addresses of nodes."""
    try:
        enode = keys.read_enode(text)
    except CodecError:
        pass
    else:
        assert keys.read_enode(str(enode)) == enode
    with suppress(CodecError):
        assert codec.bin_key(codec.read_bin_key(text)) == text
    for size in (codec.ADDRESS_BYTES, codec.FEED_BYTES):
        with suppress(CodecError):
            assert codec.hex_key(codec.read_hex_key(text, size)) == text


if __name__ == "__main__":
    main(check, CORPUS)
