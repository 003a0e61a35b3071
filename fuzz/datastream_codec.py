"""What data streams send and store: any bytes give values that encode to them, or CodecError."""

from collections.abc import Iterator
from contextlib import suppress

from fuzz.harness import main
from gateways.datastream.codec import (
    Declaration,
    Entry,
    Header,
    OperationScanner,
    PacketReader,
    RequestReader,
    Response,
    Result,
    decode_declaration,
    decode_entries,
    decode_truncation,
    encode_declaration,
    encode_entry,
    encode_header,
    encode_request,
    encode_response,
    encode_truncation,
)
from gateways.datastream.sessions import Question, ServerSession
from gateways.reading import CodecError

OPERATION = b"".join(
    encode_entry(each)
    for each in (Entry(0, 176, b"\0" * 8), Entry(1, 1, b"hello"), Entry(2, 2, b""))
)
CORPUS = [
    OPERATION,
    encode_truncation(3),
    encode_declaration(Declaration(1, 137, 1, "source")),
    bytes.fromhex("ff0000000b000000004f4b"),
    encode_header(Header(1, 137, 1, 4161, 3)),
    encode_response(None),
    (1).to_bytes(8, "big") + (1).to_bytes(8, "big") + (0).to_bytes(8, "big"),
    (6).to_bytes(8, "big") + (1).to_bytes(8, "big") + b"\0\0\0\x02ab",
]


def packets(data: bytes) -> Iterator[bytes]:
    """Each packet as it encodes again; of a Result its size alone, as its text may be lossy."""
    reader = PacketReader()
    reader.feed(data)
    while (packet := reader.next()) is not None:
        match packet:
            case Result():
                yield b"\xff" * (9 + len(packet.text))
            case Header():
                yield encode_header(packet)
            case Response():
                yield encode_response(packet.entry)
            case _:
                yield encode_entry(packet)


def check(data: bytes) -> None:
    """The invariants, for any bytes."""
    at = 0
    with suppress(CodecError):
        for encoded in packets(data):
            assert encoded[0] == 0xFF or data.startswith(encoded, at)
            at += len(encoded)
    try:
        found = list(decode_entries(data))
        assert b"".join(map(encode_entry, found)) == data
    except CodecError:
        found = []
    scanner = OperationScanner(found[0].number if found else 0)
    try:
        scanned = scanner.feed(data[: len(data) // 2]) + scanner.feed(data[len(data) // 2 :])
        scanner.finish()
        assert len(scanned) == len(found)
    except CodecError:
        numbers = [each.number for each in found]
        assert not found or numbers != list(range(numbers[0], numbers[0] + len(numbers)))
    check_records(data)
    check_requests(data)


def check_records(data: bytes) -> None:
    """Declarations and truncations have one encoding each."""
    with suppress(CodecError):
        declared = decode_declaration(data)
        assert decode_declaration(encode_declaration(declared)) == declared
    with suppress(CodecError):
        assert encode_truncation(decode_truncation(data, 1 << 64)) == data


def requests_of(data: bytes, step: int) -> list[bytes]:
    """The requests of a client that sends so many bytes at a time, to where it is cut off."""
    reader, found = RequestReader(1), []
    with suppress(CodecError):
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            while (request := reader.next()) is not None:
                found.append(encode_request(request))
                if request.stream_type != 1:
                    return found
    return found


def check_requests(data: bytes) -> None:
    """However they are cut, requests are the same; and a session never says more than it may."""
    assert requests_of(data, len(data) or 1) == requests_of(data, 3)
    session = ServerSession(1)
    session.receive(data)
    while step_ := session.step():
        if isinstance(step_, Question):
            match step_.kind.name:
                case "START" | "START_BOOKMARK":
                    session.start_from(step_.number if step_.number % 2 else None)
                case "HEADER":
                    session.answer_header(Header(1, 137, 1, 4161, 3))
                case _:
                    session.answer_entry(None)
        reader_ = PacketReader()
        reader_.feed(session.replies())
        while reader_.next() is not None:
            pass


if __name__ == "__main__":
    main(check, CORPUS)
