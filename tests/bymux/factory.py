"""Packets that our own encoder refuses to make: any type, any width, any value, any order.

Written from bymux.md alone, bit by bit, so that it can also judge what our encoder makes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bymux import Connection, DataReceived, Event, RemoteProtocolError

CREDIT, WRITE, PING, PONG, CLOSE, STOP_READ = range(6)
WIDTH_CODES = {1: "00", 2: "01", 4: "10", 8: "11"}
U64_MAX = 2**64 - 1


def least_width(value: int) -> int:
    return next(width for width in (1, 2, 4, 8) if value < 256**width)


def packet(
    kind: int,
    stream: int | None,
    amount: int | None = None,
    body: bytes = b"",
    *,
    id_width: int | None = None,
    amount_width: int | None = None,
) -> bytes:
    """A packet of a stream or (None) a global one; widths are the smallest unless given."""
    id_bits = amount_bits = "00"
    fields = b""
    if stream is not None:
        width = id_width or least_width(stream)
        id_bits = WIDTH_CODES[width]
        fields += stream.to_bytes(width, "big")
    if amount is not None:
        width = amount_width or least_width(amount)
        amount_bits = WIDTH_CODES[width]
        fields += amount.to_bytes(width, "big")
    bits = f"{kind:03b}{'1' if stream is None else '0'}{id_bits}{amount_bits}"
    return bytes((int(bits, 2),)) + fields + body


def write(stream: int, body: bytes) -> bytes:
    return packet(WRITE, stream, len(body), body)


class Seen(NamedTuple):
    """A packet as `parse` reads it."""

    kind: int
    stream: int | None
    amount: int | None
    body: bytes


def parse(data: bytes) -> Iterator[Seen]:
    """A second, slow reader of whole packets."""
    widths = {code: width for width, code in WIDTH_CODES.items()}
    while data:
        bits = f"{data[0]:08b}"
        kind, is_global = int(bits[:3], 2), bits[3] == "1"
        data = data[1:]
        stream = amount = None
        body = b""
        if not is_global:
            width = widths[bits[4:6]]
            stream, data = int.from_bytes(data[:width], "big"), data[width:]
        if kind in {CREDIT, WRITE}:
            width = widths[bits[6:8]]
            amount, data = int.from_bytes(data[:width], "big"), data[width:]
        if kind == WRITE and stream is not None:
            assert amount is not None
            body, data = data[:amount], data[amount:]
            assert len(body) == amount
        yield Seen(kind, stream, amount, body)


class Packets:
    """Cuts what comes, in whatever pieces, into packets; it judges nothing."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes | bytearray) -> None:
        self._bytes += data

    def next(self) -> tuple[int, int | None, int, bytes] | None:
        """(type, stream or None, amount, body), or None if more has to come."""
        raw = self._bytes
        if not raw:
            return None
        kind, is_global = raw[0] >> 5, bool(raw[0] & 16)
        id_bytes = 0 if is_global else 1 << (raw[0] >> 2 & 3)
        amount_bytes = 1 << (raw[0] & 3) if kind in {CREDIT, WRITE} else 0
        head = 1 + id_bytes + amount_bytes
        if len(raw) < head:
            return None
        stream = None if is_global else int.from_bytes(raw[1 : 1 + id_bytes], "big")
        amount = int.from_bytes(raw[1 + id_bytes : head], "big")
        size = head + (amount if kind == WRITE and not is_global else 0)
        if len(raw) < size:
            return None
        body = bytes(raw[head:size])
        del raw[:size]
        return kind, stream, amount, body


def merged(events: list[Event]) -> list[Event]:
    """The same events with neighbouring pieces of a stream as one, since borders mean nothing."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        if (
            isinstance(event, DataReceived)
            and isinstance(last, DataReceived)
            and last.stream == event.stream
        ):
            result[-1] = DataReceived(event.stream, b"".join((last.data, event.data)))
        else:
            result.append(event)
    return result


def receive(connection: Connection, data: bytes) -> tuple[list[Event], RemoteProtocolError | None]:
    """The events of `data`, and the error it ended with."""
    try:
        return connection.receive_data(data), None
    except RemoteProtocolError as error:
        return error.events, error


def everything_from(connection: Connection) -> bytes:
    """All that the connection wants to send."""
    return b"".join(iter(connection.data_to_send, b""))
