"""Hostile bytes are read the same in any pieces, in bounded memory, and only violations are raised.

The first byte of an input chooses the configuration and how the rest is cut.
"""

from bymux import (
    INFINITE,
    Config,
    Connection,
    DataReceived,
    Event,
    InitialStream,
    RemoteProtocolError,
    Role,
)
from fuzz.harness import main

_INITIAL = (InitialStream(0, INFINITE, INFINITE), InitialStream(1, 10, 1000), InitialStream(2))
_CONFIGS = (
    Config(initial_streams=_INITIAL[:2], streams_creatable=False, answer_close=False),
    Config(initial_streams=_INITIAL, creator_credit=300),
)

# Legal packets of all kinds, so that mutations begin deep inside.
_PACKETS = (
    *("200003616263", "20010378797a", "210101 0c" + "00" * 268, "020100100000", "000000"),
    *("5050", "4000", "440001", "6000", "70", "8001", "a001", "8000", "a000", "3004", "31 0104"),
    *("2004 02 6869", "0004ff", "8004", "a004", "1003", "1300000000000000ff", "90", "b0"),
)
_LEGAL = [bytes.fromhex(packet) for packet in _PACKETS]
CORPUS = [
    *(bytes((first,)) + packet for first in (0, 3) for packet in _LEGAL),
    bytes((1,)) + b"".join(_LEGAL[:10]),
    bytes((7,)) + b"".join(_LEGAL),
]


def _connect(config: Config) -> Connection:
    connection = Connection(Role.REACTIVE, config)
    if config.streams_creatable:
        connection.grant_streams(3)
        connection.receive_data(bytes.fromhex("1001"))
        connection.open_stream()
        connection.data_to_send()
    return connection


def _receive(config: Config, data: bytes, cut: int) -> tuple[list[Event], str, Connection]:
    """The events, the text of the violation that ends them if any, and what is left."""
    connection = _connect(config)
    events: list[Event] = []
    for start in range(0, len(data), cut):
        try:
            events += connection.receive_data(data[start : start + cut])
        except RemoteProtocolError as error:
            return events + error.events, str(error), connection
    return events, "", connection


def _summary(events: list[Event]) -> tuple[dict[int, bytes], list[Event]]:
    """Each id's data in one piece, and the other events, Credit once in a row."""
    data: dict[int, bytes] = {}
    others: list[Event] = []
    for event in events:
        if isinstance(event, DataReceived):
            data[event.stream] = b"".join((data.get(event.stream, b""), event.data))
        elif event not in others:
            others.append(event)
    return data, others


def _drain(connection: Connection) -> int:
    """How many bytes an application that reads everything and then closes has to send."""
    for stream in connection.active_streams:
        # Counted outside it would be of the id, which may have had several streams.
        unconsumed = connection._registry.streams[stream].receive.unconsumed  # noqa: SLF001
        connection.consumed(stream, unconsumed)
        if room := connection.sendable(stream):
            connection.send(stream, b"answer"[:room])
    total = 0
    while connection.wants_to_send:
        chunk = connection.data_to_send(64)
        assert 0 < len(chunk) <= 64
        total += len(chunk)
    return total


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    if not data:
        return
    config = _CONFIGS[data[0] & 1]
    cut = 1 + (data[0] >> 1) % 16
    body = data[1:]
    whole, violation, connection = _receive(config, body, max(1, len(body)))
    pieces, same_violation, _ = _receive(config, body, cut)
    assert same_violation == violation
    assert _summary(pieces) == _summary(whole)
    assert sum(len(each.data) for each in whole if isinstance(each, DataReceived)) <= len(body)
    if violation:
        assert not connection.wants_to_send
        return
    # What the peer causes us to send is bounded by what it sent, and all of it goes out.
    assert _drain(connection) <= 17 * (len(body) + 64)


fuzz_one = check
"""The name by which atheris harnesses know it."""


if __name__ == "__main__":
    main(check, CORPUS)
