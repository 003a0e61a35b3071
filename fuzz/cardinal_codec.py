"""Payloads of Cardinal streams: any bytes are frames and an error, any frame a message or one."""

from fuzz.harness import main
from gateways.cardinal.codec import (
    Batch,
    Delete,
    Item,
    Message,
    Part,
    Ping,
    Reorg,
    ReorgComplete,
    SubBatchHeader,
    Update,
    decode_message,
    encode_message,
    kind_of,
)
from gateways.cardinal.declared import ReorgDeclared, TopicDeclared, declare, read_declared
from gateways.cardinal.frames import channel_of, encode_frame, encode_note, frames_of
from gateways.declaration import DeclarationError
from gateways.reading import CodecError

_HASH, _ID = bytes(range(32)), bytes(range(32, 64))
_ITEMS = {
    b"a/": Item(owed=2),
    b"x": Item(b"value"),
    b"y": Item(delete=True),
    b"s/": Item(batch=_ID),
}
_MESSAGES: list[Message] = [
    Batch(_HASH, 1337, 9844, _ID, _ITEMS),
    SubBatchHeader(_HASH, _ID, 2),
    Part(_HASH, _ID, 0, [b"s/4"], {}),
    Part(_HASH, _ID, 300, [], {b"s/5": b"\xab\xcd"}),
    Update(_HASH, b"a/b", b"\x88"),
    Delete(_HASH, b"a/c"),
    Reorg(_HASH, 1337),
    ReorgComplete(_HASH, 1337),
    Ping(_HASH, b"here"),
]
# Maps in runs that tell their size, as upstream writes them.
_SIZED = (b"\0" + _HASH, b"\2\0" + _ID + b"\1\x4c\2x\2v\0\0" + bytes(32) + b"\0")
CORPUS = [
    *(encode_frame(*encode_message(each)) for each in _MESSAGES),
    encode_frame(*_SIZED),
    encode_note({"channel": 77}),
    declare(TopicDeclared("demo", "main", "a", {"a": 1, "main": 2}, (("a/", "a"),), 128)),
    declare(ReorgDeclared("demo", 1337, _HASH)),
]


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    _check_declaration(data)
    written = b""
    try:
        for frame in frames_of(data):
            written += encode_frame(*frame)
            if not frame.key:
                channel_of(frame.value)
                continue
            _check_message(*frame)
    except CodecError:
        assert data.startswith(written)
    else:
        assert data == written


def _check_message(key: bytes, value: bytes) -> None:
    try:
        message = decode_message(key, value)
    except CodecError:
        return
    assert kind_of(key, value) == key[0]
    again = encode_message(message)
    # An index has several encodings, and so has what is in runs; the facts are the same.
    assert decode_message(*again) == message
    assert encode_message(decode_message(*again)) == again


def _check_declaration(data: bytes) -> None:
    try:
        declared = read_declared(data)
    except DeclarationError:
        return
    assert declare(declared) == data


if __name__ == "__main__":
    main(check, CORPUS)
