"""Ockam's frames mean the same in any pieces; what decodes encodes to the same bytes."""

from fuzz.harness import main
from gateways.ockam.codec import (
    Content,
    Create,
    Created,
    Failure,
    Form,
    FrameDecoder,
    GetIndex,
    Index,
    Message,
    Pull,
    Pulled,
    Push,
    Pushed,
    SaveIndex,
    decode_content,
    decode_message,
    decode_payload,
    decode_request,
    decode_response,
    encode_content,
    encode_frame,
    encode_message,
    encode_request,
    encode_response,
    local,
)
from gateways.ockam.ledger import Position, Trim, decode_records, encode_records
from gateways.reading import CodecError

_ROUTED = Message((local("echoer"),), (local("app"),), b"\x05msg-0")
_PAYLOADS = [
    encode_request(Create("orders")),
    encode_request(Create(None, 3, "stream_create_partitioned")),
    encode_request(Push(1, encode_content(Content(Form.ROUTING, _ROUTED)))),
    encode_request(Push(2, encode_content(Content(Form.BIDIRECTIONAL, _ROUTED, "pong")))),
    encode_request(Pull(300, 0, 2**64 - 1)),
    encode_request(GetIndex("c", "orders")),
    encode_request(SaveIndex("c", "orders", 7, 2)),
    encode_response(Created("orders")),
    encode_response(Pushed(1, is_stored=False, index=0)),
    encode_response(Pulled(9, ((0, b"hello"), (2, b"\x00\xff")))),
    encode_response(Index("c", "orders", None)),
    encode_response(Failure("Invalid request")),
]
_RECORDS = encode_records([Position(b"\x07" * 32, "orders", 0, "c", 1, 2), Trim(4 * 10**12, 1)])
CORPUS = [
    *(encode_frame(encode_message((local("stream"),), (local("a"),), p)) for p in _PAYLOADS),
    b"\x00\x00",
    encode_frame(_RECORDS),
]


def frames_of(chunks: list[bytes]) -> list[bytes]:
    """The frames in some pieces of a byte stream."""
    decoder = FrameDecoder()
    frames = []
    for chunk in chunks:
        decoder.feed(chunk)
        while (frame := decoder.next_frame()) is not None:
            frames.append(frame)
        assert decoder.buffered < 65_537
    return frames


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    frames = frames_of([data])
    assert frames_of([data[at : at + 1] for at in range(len(data))]) == frames
    for frame in frames:
        _check_records(frame)
        try:
            message = decode_message(frame)
        except CodecError:
            continue
        if message.version == 1:
            assert encode_message(*message[:3]) == frame
        _check_payload(message.payload)


def _check_payload(payload: bytes) -> None:
    try:
        protocol, inner = decode_payload(payload)
    except CodecError:
        return
    try:
        request = decode_request(protocol, inner)
    except CodecError:
        pass
    else:
        assert encode_request(request) == payload
        if isinstance(request, Push):
            content = decode_content(request.data)
            assert content.message is None or encode_content(content) == request.data
    try:
        response = decode_response(protocol, inner)
    except CodecError:
        return
    assert encode_response(response) == payload


def _check_records(data: bytes) -> None:
    try:
        records = decode_records(data)
    except CodecError:
        return
    assert encode_records(records) == data


if __name__ == "__main__":
    main(check, CORPUS)
