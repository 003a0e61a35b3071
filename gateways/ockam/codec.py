"""Frames, routing messages and payloads of Ockam streams (spec sections 2.2 to 2.5).

Total: any bytes give a value or CodecError, and what decodes encodes to the same bytes, but for
routing messages of version 2, which are answered with version 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from gateways.ockam.bare import Reader, encode_data, encode_text, encode_uint
from gateways.reading import CodecError

FRAME_BYTES_MAX: Final = 65_535
"""The largest frame that is taken."""
SENT_BYTES_MAX: Final = 65_000
"""The largest one that is sent: upstream refuses those above it."""
DATA_BYTES_MAX: Final = 60_000
NAME_BYTES_MAX: Final = 255
ROUTE_ADDRESSES_MAX: Final = 16
ADDRESS_BYTES_MAX: Final = 255
ADDRESS_TYPE_MAX: Final = 255
PARTITIONS_MAX: Final = 1_024
PULL_MESSAGES_MAX: Final = 1_000

CREATE: Final = "stream_create"
CREATE_PARTITIONED: Final = "stream_create_partitioned"
CREATE_PARTITIONS: Final = "stream_create_partitions"
PUSH: Final = "stream_push"
PULL: Final = "stream_pull"
INDEX: Final = "stream_index"
INDEX_PARTITIONED: Final = "stream_index_partitioned"
ERROR: Final = "error"


class Address(NamedTuple):
    """One hop of a route."""

    type: int
    value: bytes


Route = tuple[Address, ...]


class Message(NamedTuple):
    """A routing message."""

    onward: Route
    back: Route
    """The return route."""
    payload: bytes
    version: int = 1


class Create(NamedTuple):
    """`partitions`: None in the protocol that has none."""

    name: str | None
    partitions: int | None = None
    protocol: str = CREATE


class Created(NamedTuple):
    name: str
    partition: int | None = None
    protocol: str = CREATE


class Push(NamedTuple):
    request: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Pushed:
    request: int
    is_stored: bool
    index: int


@dataclass(frozen=True, slots=True)
class Pull:
    request: int
    index: int
    limit: int


class Pulled(NamedTuple):
    request: int
    messages: tuple[tuple[int, bytes], ...]
    """Index and data of each."""


class GetIndex(NamedTuple):
    """`partition`: None in the protocol that has none."""

    client: str
    name: str
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SaveIndex:
    client: str
    name: str
    index: int
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Index:
    client: str
    name: str
    index: int | None
    partition: int | None = None


class Failure(NamedTuple):
    reason: str


Request = Create | Push | Pull | GetIndex | SaveIndex
Response = Created | Pushed | Pulled | Index | Failure


# --- frames ---------------------------------------------------------------------------------------


def encode_frame(message: bytes) -> bytes:
    """Two bytes of length, then a routing message. Raises ValueError above 65,000 bytes."""
    if len(message) > SENT_BYTES_MAX:
        raise ValueError(f"{len(message)} bytes are too many for a frame, {SENT_BYTES_MAX} fit")
    return len(message).to_bytes(2, "big") + message


_HEARTBEAT: Final = b"\0\0"


class FrameDecoder:
    """Cuts a byte stream into frames; holds one frame and what came with it at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Takes bytes as they come."""
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next frame without its length, None until it is whole.

        One of length 0 is a heartbeat: nobody is given it, so that nobody takes it for anything.
        """
        buffer, at = self._buffer, self._at
        while buffer.startswith(_HEARTBEAT, at):
            at += len(_HEARTBEAT)
        self._at = at
        have = len(buffer)
        if have < at + 2:
            return None
        end = at + 2 + (buffer[at] << 8 | buffer[at + 1])
        if have < end:
            return None
        self._at = end
        return bytes(buffer[at + 2 : end])

    @property
    def buffered(self) -> int:
        """Bytes that are held of frames that have not been taken."""
        return len(self._buffer) - self._at


# --- routing messages -----------------------------------------------------------------------------


def encode_route(route: Sequence[Address]) -> bytes:
    """A count, then type and value of each address."""
    parts = [encode_uint(len(route))]
    for type_, value in route:
        parts += (encode_uint(type_), encode_data(value))
    return b"".join(parts)


def encode_message(onward: Sequence[Address], back: Sequence[Address], payload: bytes) -> bytes:
    """A routing message of version 1."""
    return b"\x01" + encode_route(onward) + encode_route(back) + encode_data(payload)


def decode_message(data: bytes) -> Message:
    """A routing message of version 1 or 2. Raises CodecError."""
    reader = Reader(data)
    version = reader.uint()
    if version not in (1, 2):
        raise CodecError(f"version {version} of routing messages is none that is known: 1 and 2")
    onward, back = _read_route(reader), _read_route(reader)
    payload = reader.data()
    if version == 2 and reader.flag():
        reader.text()
    reader.end()
    return Message(onward, back, payload, version)


def _read_route(reader: Reader) -> Route:
    count = reader.count()
    if count > ROUTE_ADDRESSES_MAX:
        raise CodecError(f"a route of {count} addresses, {ROUTE_ADDRESSES_MAX} are the limit")
    return tuple(_read_address(reader) for _ in range(count))


def _read_address(reader: Reader) -> Address:
    type_ = reader.uint()
    value = reader.data()
    if type_ > ADDRESS_TYPE_MAX or len(value) > ADDRESS_BYTES_MAX:
        raise CodecError(
            f"an address of type {type_} and {len(value)} bytes,"
            f" {ADDRESS_TYPE_MAX} and {ADDRESS_BYTES_MAX} are the limits"
        )
    return Address(type_, value)


def local(name: str) -> Address:
    """The address of a worker at the other end of a connection."""
    return Address(0, name.encode())


# --- payloads -------------------------------------------------------------------------------------


def encode_payload(protocol: str, inner: bytes) -> bytes:
    """The inner message with the name of its protocol."""
    return encode_text(protocol) + encode_data(inner)


def decode_payload(payload: bytes) -> tuple[str, bytes]:
    """The name of the protocol, and the inner message. Raises CodecError."""
    reader = Reader(payload)
    protocol, inner = reader.text(), reader.data()
    reader.end()
    return protocol, inner


def encode_request(request: Request) -> bytes:
    """The payload of a request."""
    match request:
        case Create(name, partitions, protocol):
            inner = b"\x00" if name is None else b"\x01" + encode_text(name)
            return encode_payload(protocol, inner + _optional_uint(partitions))
        case Push(number, data):
            return encode_payload(PUSH, encode_uint(number) + encode_data(data))
        case Pull(number, index, limit):
            inner = encode_uint(number) + encode_uint(index) + encode_uint(limit)
            return encode_payload(PULL, inner)
        case GetIndex(client, name, partition):
            inner = b"\x00" + encode_text(client) + encode_text(name) + _optional_uint(partition)
            return encode_payload(_index_protocol(partition), inner)
        case SaveIndex(client, name, index, partition):
            inner = b"\x01" + encode_text(client) + encode_text(name) + _optional_uint(partition)
            return encode_payload(_index_protocol(partition), inner + encode_uint(index))


def encode_response(response: Response) -> bytes:
    """The payload of a response."""
    match response:
        case Created(name, partition, protocol):
            return encode_payload(protocol, encode_text(name) + _optional_uint(partition))
        case Pushed(number, is_stored, index):
            status = b"\x00" if is_stored else b"\x01"
            return encode_payload(PUSH, encode_uint(number) + status + encode_uint(index))
        case Pulled(number, messages):
            parts = [encode_uint(number), encode_uint(len(messages))]
            for index, data in messages:
                parts += (encode_uint(index), encode_data(data))
            return encode_payload(PULL, b"".join(parts))
        case Index(client, name, saved, partition):
            inner = encode_text(client) + encode_text(name) + _optional_uint(partition)
            inner += b"\x00" if saved is None else b"\x01" + encode_uint(saved)
            return encode_payload(_index_protocol(partition), inner)
        case Failure(reason):
            return encode_payload(ERROR, encode_text(reason))


def _optional_uint(number: int | None) -> bytes:
    return b"" if number is None else encode_uint(number)


def _index_protocol(partition: int | None) -> str:
    return INDEX if partition is None else INDEX_PARTITIONED


def decode_request(protocol: str, inner: bytes) -> Request:
    """A request of a protocol, strictly. Raises CodecError, also for an unknown protocol."""
    reader = Reader(inner)
    request: Request
    match protocol:
        case "stream_create":
            request = Create(reader.text() if reader.flag() else None)
        case "stream_create_partitioned" | "stream_create_partitions":
            name = reader.text() if reader.flag() else None
            request = Create(name, reader.uint(), protocol)
        case "stream_push":
            request = Push(reader.uint(), reader.data())
        case "stream_pull":
            request = Pull(reader.uint(), reader.uint(), reader.uint())
        case "stream_index" | "stream_index_partitioned":
            request = _read_index_request(reader, is_partitioned=protocol != INDEX)
        case _:
            raise CodecError(f"there is no protocol {protocol[:40]!r}")
    reader.end()
    return request


def _read_index_request(reader: Reader, *, is_partitioned: bool) -> GetIndex | SaveIndex:
    is_save = reader.tag(2) == 1
    client, name = reader.text(), reader.text()
    partition = reader.uint() if is_partitioned else None
    if is_save:
        return SaveIndex(client, name, reader.uint(), partition)
    return GetIndex(client, name, partition)


def decode_response(protocol: str, inner: bytes) -> Response:
    """A response of a protocol, strictly. Raises CodecError, also for an unknown protocol."""
    reader = Reader(inner)
    response: Response
    match protocol:
        case "stream_create":
            response = Created(reader.text())
        case "stream_create_partitioned" | "stream_create_partitions":
            response = Created(reader.text(), reader.uint(), protocol)
        case "stream_push":
            response = Pushed(reader.uint(), reader.tag(2) == 0, reader.uint())
        case "stream_pull":
            number, count = reader.uint(), reader.count()
            messages = tuple((reader.uint(), reader.data()) for _ in range(count))
            response = Pulled(number, messages)
        case "stream_index" | "stream_index_partitioned":
            client, name = reader.text(), reader.text()
            partition = None if protocol == INDEX else reader.uint()
            saved = reader.uint() if reader.flag() else None
            response = Index(client, name, saved, partition)
        case "error":
            response = Failure(reader.text())
        case _:
            raise CodecError(f"there is no protocol {protocol[:40]!r}")
    reader.end()
    return response


# --- what upstream's nodes put into data (2.5) ----------------------------------------------------


class Form(StrEnum):
    """What the data of a message is."""

    DATA = "data"
    ROUTING = "routing"
    """A routing message of version 1, as Rust's bidirectional streams have it."""
    BIDIRECTIONAL = "bidirectional"
    """The same in an envelope that names the stream back, as Elixir's have it."""


class Content(NamedTuple):
    """The data of a message, taken apart; `message` is None where it is only data."""

    form: Form
    message: Message | None = None
    return_stream: str | None = None


def decode_content(data: bytes) -> Content:
    """What data is, strictly; whatever is neither form is data."""
    message = _routing(data)
    if message is not None:
        return Content(Form.ROUTING, message)
    try:
        reader = Reader(data)
        return_stream, inner = reader.text(), reader.data()
        reader.end()
    except CodecError:
        return Content(Form.DATA)
    message = _routing(inner)
    if message is None:
        return Content(Form.DATA)
    return Content(Form.BIDIRECTIONAL, message, return_stream)


def encode_content(content: Content) -> bytes:
    """The data of a routing message, in its envelope if it has one. Raises ValueError for DATA."""
    if content.message is None:
        raise ValueError("data without a routing message stands for itself")
    encoded = encode_message(*content.message[:3])
    if content.return_stream is None:
        return encoded
    return encode_text(content.return_stream) + encode_data(encoded)


def wrap_for(worker: str, payload: bytes) -> bytes:
    """Data for a worker at the other node, as Rust's streams wrap it, without a way back."""
    return encode_message((local(worker),), (), payload)


def _routing(data: bytes) -> Message | None:
    try:
        message = decode_message(data)
    except CodecError:
        return None
    return message if message.version == 1 else None
