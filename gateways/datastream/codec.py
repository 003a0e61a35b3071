"""Bytes of data streams <-> values: entries, headers, requests, replies, placement, declarations.

Sans-io and total: any bytes give a value or `CodecError`. Nothing is allocated for what a length
only claims. Sections are those of the specification of data streams.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from gateways.declaration import (
    DeclarationError,
    canonical_json,
    json_u64,
    read_declaration,
    text_field,
    u64_field,
)
from gateways.reading import CodecError

ENTRY_HEAD: Final = struct.Struct(">BIIQ")
HEAD_BYTES: Final = 17
ENTRY_BYTES_MAX: Final = 1 << 20
DATA_BYTES_MAX: Final = ENTRY_BYTES_MAX - HEAD_BYTES
PAGE_BYTES: Final = 1 << 20
FIRST_PLACE: Final = 4096
"""Where the first entry of a stream file is; TotalLength of an empty stream."""
BOOKMARK: Final = 0xB0
NOT_FOUND: Final = 0xFFFFFFFF
"""The reserved type: of the Response that says that there is nothing."""
BOOKMARK_BYTES_MAX: Final = 16
REQUESTED_BOOKMARK_BYTES_MAX: Final = 65_536
RESULT_BYTES_MAX: Final = 4096

HEADER_PACKET: Final = 1
DATA_PACKET: Final = 2
RESPONSE_PACKET: Final = 0xFE
RESULT_PACKET: Final = 0xFF

_HEADER: Final = struct.Struct(">BIBQQQQ")
HEADER_BYTES: Final = _HEADER.size
_RESULT: Final = struct.Struct(">BII")
_REQUEST: Final = struct.Struct(">QQ")
REQUEST_BYTES: Final = _REQUEST.size

STREAM: Final = "datastream"
VERSION: Final = 1
ORIGINS: Final = ("source", "relay", "file")


class Entry(NamedTuple):
    """One entry of a stream (2.1)."""

    number: int
    type: int
    data: bytes

    @property
    def is_bookmark(self) -> bool:
        """Whether it names a place."""
        return self.type == BOOKMARK


class Header(NamedTuple):
    """What a stream says of itself (2.2)."""

    file_version: int
    system_id: int
    stream_type: int
    total_length: int
    total_entries: int


class Declaration(NamedTuple):
    """Entry 1 of a log that is a stream (4.1)."""

    stream_type: int
    system_id: int
    file_version: int
    origin: str


class Command(IntEnum):
    """What clients ask for (2.5)."""

    START = 1
    STOP = 2
    HEADER = 3
    START_BOOKMARK = 4
    ENTRY = 5
    BOOKMARK = 6


class Code(IntEnum):
    """What a Result says (2.5)."""

    OK = 0
    ALREADY_STARTED = 1
    ALREADY_STOPPED = 2
    BAD_ENTRY = 3
    BAD_BOOKMARK = 4
    INVALID_COMMAND = 9


TEXTS: Final = {
    Code.OK: b"OK",
    Code.ALREADY_STARTED: b"Already started",
    Code.ALREADY_STOPPED: b"Already stopped",
    Code.BAD_ENTRY: b"Bad from entry",
    Code.BAD_BOOKMARK: b"Bad from bookmark",
    Code.INVALID_COMMAND: b"Invalid command",
}


class Result(NamedTuple):
    """How a request went."""

    code: int
    text: str


class Response(NamedTuple):
    """The answer to Entry and Bookmark; None: not found."""

    entry: Entry | None


class Request(NamedTuple):
    """A request with its parameters; `command` may be none of `Command`."""

    command: int
    stream_type: int
    number: int = 0
    bookmark: bytes = b""


Packet = Result | Header | Entry | Response

# Entries and headers


def encode_entry(entry: Entry, packet: int = DATA_PACKET) -> bytes:
    """The bytes of an entry, as in file, log and Data packets."""
    length = HEAD_BYTES + len(entry.data)
    return ENTRY_HEAD.pack(packet, length, entry.type, entry.number) + entry.data


def decode_entry(data: bytes, offset: int = 0, packet: int = DATA_PACKET) -> Entry:
    """The entry that begins at `offset`. Raises CodecError."""
    if len(data) - offset < HEAD_BYTES:
        raise CodecError(f"an entry is cut in its fixed part, at byte {offset}")
    kind, length, type_, number = ENTRY_HEAD.unpack_from(data, offset)
    check_head(kind, length, packet)
    if len(data) - offset < length:
        raise CodecError(f"the data of entry {number} is cut, at byte {offset}")
    return Entry(number, type_, data[offset + HEAD_BYTES : offset + length])


def check_head(kind: int, length: int, packet: int = DATA_PACKET) -> None:
    """Raises CodecError for a packet type that is another one, or a Length out of bounds."""
    if kind != packet:
        raise CodecError(f"packet type {kind} where an entry should be")
    if not HEAD_BYTES <= length <= ENTRY_BYTES_MAX:
        raise CodecError(f"Length {length} is not from {HEAD_BYTES} to {ENTRY_BYTES_MAX}")


def decode_entries(data: bytes) -> Iterator[Entry]:
    """The entries of whole Data packets, one behind the other. Raises CodecError."""
    offset = 0
    while offset < len(data):
        entry = decode_entry(data, offset)
        yield entry
        offset += HEAD_BYTES + len(entry.data)


def encode_header(header: Header) -> bytes:
    """The 38 bytes of a header."""
    return _HEADER.pack(
        HEADER_PACKET,
        HEADER_BYTES,
        header.file_version,
        header.system_id,
        header.stream_type,
        header.total_length,
        header.total_entries,
    )


def decode_header(data: bytes) -> Header:
    """The header that these 38 bytes are. Raises CodecError."""
    if len(data) != HEADER_BYTES:
        raise CodecError(f"a header of {len(data)} bytes, {HEADER_BYTES} are right")
    kind, length, version, system_id, stream_type, total_length, entries = _HEADER.unpack(data)
    if kind != HEADER_PACKET:
        raise CodecError(f"packet type {kind} where a header should be")
    if length != HEADER_BYTES:
        raise CodecError(f"the header says a length of {length}, {HEADER_BYTES} is right")
    return Header(version, system_id, stream_type, total_length, entries)


def place(total_length: int, size: int) -> int:
    """Where an entry of `size` bytes is put in a stream of this TotalLength (2.3)."""
    used = (total_length - FIRST_PLACE) % PAGE_BYTES
    if used == 0 or size <= PAGE_BYTES - used:
        return total_length
    return total_length + PAGE_BYTES - used


# Replies


def encode_result(code: Code) -> bytes:
    """A Result with its text."""
    text = TEXTS[code]
    return _RESULT.pack(RESULT_PACKET, _RESULT.size + len(text), code) + text


def encode_response(entry: Entry | None) -> bytes:
    """The answer to Entry and Bookmark."""
    return encode_entry(entry or Entry(0, NOT_FOUND, b""), RESPONSE_PACKET)


class PacketReader:
    """What a server has sent, packet by packet. Holds no more than one unfinished packet."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._offset = 0

    def feed(self, data: bytes) -> None:
        """Takes what has come."""
        del self._buffer[: self._offset]
        self._offset = 0
        self._buffer += data

    def next(self) -> Packet | None:
        """The next packet, None if it is not whole yet. Raises CodecError: the stream is lost."""
        buffer, at = self._buffer, self._offset
        held = len(buffer) - at
        if held < 5:
            if held and buffer[at] not in (HEADER_PACKET, DATA_PACKET, RESPONSE_PACKET, 0xFF):
                raise CodecError(f"first byte {buffer[at]} of a packet")
            return None
        kind, length = buffer[at], int.from_bytes(buffer[at + 1 : at + 5], "big")
        _check_packet(kind, length)
        if held < length:
            return None
        data = bytes(buffer[at : at + length])
        self._offset += length
        if kind == RESULT_PACKET:
            return Result(int.from_bytes(data[5:9], "big"), data[9:].decode("ascii", "replace"))
        if kind == HEADER_PACKET:
            return decode_header(data)
        entry = decode_entry(data, 0, kind)
        if kind == DATA_PACKET:
            return entry
        missing = entry.type == NOT_FOUND and entry.number == 0 and not entry.data
        return Response(None if missing else entry)


def _check_packet(kind: int, length: int) -> None:
    match kind:
        case 0xFF:
            low, high = _RESULT.size, RESULT_BYTES_MAX
        case 1:
            low = high = HEADER_BYTES
        case 2 | 0xFE:
            low, high = HEAD_BYTES, ENTRY_BYTES_MAX
        case _:
            raise CodecError(f"first byte {kind} of a packet")
    if not low <= length <= high:
        raise CodecError(f"a packet of type {kind} with length {length}, {low} to {high} are right")


# Requests


def encode_request(request: Request) -> bytes:
    """The bytes of a request."""
    head = _REQUEST.pack(request.command, request.stream_type)
    match request.command:
        case Command.START | Command.ENTRY:
            return head + request.number.to_bytes(8, "big")
        case Command.START_BOOKMARK | Command.BOOKMARK:
            return head + len(request.bookmark).to_bytes(4, "big") + request.bookmark
        case _:
            return head


class RequestReader:
    """What a client has sent, request by request.

    A request of another stream type is given out as soon as its 16 bytes are there: nothing that
    follows it is of interest.
    """

    def __init__(self, stream_type: int) -> None:
        self._stream_type = stream_type
        self._buffer = bytearray()

    @property
    def unread(self) -> int:
        """Bytes that wait."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Takes what has come."""
        self._buffer += data

    def next(self) -> Request | None:
        """The next whole request, None if there is none. Raises CodecError for a bookmark of more
        than 65,536 bytes, which ends the connection.
        """
        buffer = self._buffer
        if len(buffer) < REQUEST_BYTES:
            return None
        command, stream_type = _REQUEST.unpack_from(buffer)
        number, bookmark, size = 0, b"", REQUEST_BYTES
        if stream_type == self._stream_type:
            match command:
                case Command.START | Command.ENTRY:
                    size += 8
                    if len(buffer) < size:
                        return None
                    number = int.from_bytes(buffer[REQUEST_BYTES:size], "big")
                case Command.START_BOOKMARK | Command.BOOKMARK:
                    size += 4
                    if len(buffer) < size:
                        return None
                    length = int.from_bytes(buffer[REQUEST_BYTES:size], "big")
                    if length > REQUESTED_BOOKMARK_BYTES_MAX:
                        raise CodecError(f"a bookmark of {length} bytes was asked for")
                    size += length
                    if len(buffer) < size:
                        return None
                    bookmark = bytes(buffer[size - length : size])
                case _:
                    pass
        del buffer[:size]
        return Request(command, stream_type, number, bookmark)


# Payloads of log entries (4.1)


def encode_declaration(declared: Declaration) -> bytes:
    """The payload of entry 1."""
    return canonical_json(
        {
            "file_version": declared.file_version,
            "origin": declared.origin,
            "stream": STREAM,
            "stream_type": json_u64(declared.stream_type),
            "system_id": json_u64(declared.system_id),
            "version": VERSION,
        }
    )


def decode_declaration(payload: bytes) -> Declaration:
    """What entry 1 declares. Raises CodecError."""
    try:
        fields = read_declaration(payload, stream=STREAM, version=VERSION)
        return Declaration(
            u64_field(fields, "stream_type"),
            u64_field(fields, "system_id"),
            u64_field(fields, "file_version", 255),
            text_field(fields, "origin", ORIGINS),
        )
    except DeclarationError as error:
        raise CodecError(str(error)) from None


_TRUNCATION_HEAD: Final = b'{"truncate":'
TRUNCATION_BYTES_MAX: Final = 64


def encode_truncation(total_entries: int) -> bytes:
    """The payload of a truncation to so many entries."""
    return b'{"truncate":%d}' % total_entries


def decode_truncation(payload: bytes, total_entries: int) -> int:
    """To how many entries a stream of `total_entries` is truncated. Raises CodecError."""
    digits = payload[len(_TRUNCATION_HEAD) : -1]
    plain = len(payload) <= TRUNCATION_BYTES_MAX and digits.isdigit()
    if not plain or payload != encode_truncation(int(digits)):
        raise CodecError("a record that is no truncation")
    if int(digits) >= total_entries:
        raise CodecError(f"a truncation to {int(digits)} of a stream of {total_entries} entries")
    return int(digits)


class Found(NamedTuple):
    """An entry inside the payload of an operation."""

    offset: int
    length: int
    type: int
    bookmark: bytes | None
    """Of an entry that is a bookmark, its bytes."""


class OperationScanner:
    """Walks the payload of an operation that comes in pieces; holds less than one entry of it."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.count = 0
        self._rest = b""
        self._offset = 0

    def feed(self, piece: bytes) -> list[Found]:
        """The entries that are whole now. Raises CodecError: the operation is not valid."""
        data = self._rest + piece if self._rest else piece
        found: list[Found] = []
        at, end, due = 0, len(data), self.number + self.count
        unpack, base = ENTRY_HEAD.unpack_from, self._offset
        while end - at >= HEAD_BYTES:
            kind, length, type_, number = unpack(data, at)
            if kind != DATA_PACKET or not HEAD_BYTES <= length <= ENTRY_BYTES_MAX:
                check_head(kind, length)
            if number != due:
                raise CodecError(f"Number {number} instead of {due}")
            if end - at < length:
                break
            mark = data[at + HEAD_BYTES : at + length] if type_ == BOOKMARK else None
            found.append(Found(base + at, length, type_, mark))
            at += length
            due += 1
        self.count += len(found)
        self._rest = data[at:]
        self._offset += at
        return found

    def finish(self) -> None:
        """The payload has ended. Raises CodecError if that is inside an entry, or it is empty."""
        if self._rest or not self.count:
            raise CodecError("an entry is cut" if self._rest else "an operation without entries")
