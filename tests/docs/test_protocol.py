"""docs/protocol.md is right: examples decode to what they say, defaults are those in use."""

import re
from collections.abc import Iterator

import pytest
from nacl.signing import SigningKey

from bymux import (
    INFINITE,
    CloseReceived,
    Config,
    Connection,
    CreditReceived,
    DataReceived,
    InitialStream,
    Role,
    StopReadReceived,
)
from bymux import Event as MuxEvent
from peer import SessionConfig
from tests.docs.pages import blocks_of, page, table
from wire import (
    U64_MAX,
    Adjust,
    Apology,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    DataDecoder,
    DataPacket,
    Eagerness,
    Grant,
    LogKey,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    Propose,
    RequestCancelled,
    Setup,
    SkipUnavailable,
    Switch,
    decode_entry,
    decode_setup,
    decode_varu64,
    encode_control,
    encode_metadata_packet,
    encode_setup,
    encode_varu64,
    lipmaa,
    lower_pool,
    signature_is_valid,
    upper_pool,
    yamf_hash,
)

TEXT = page("docs/protocol.md")
AUTHOR = bytes(SigningKey(bytes(range(32))).verify_key)
LOG = LogKey(AUTHOR, 0)
HASH = yamf_hash(b"")


def to_bytes(text: str) -> bytes:
    """Hex with the page's abbreviations; words behind two spaces are comments."""
    code = " ".join(line.split("  ", 1)[0] for line in text.strip().splitlines())
    code = re.sub(r"\bA\b", AUTHOR.hex(), code)
    return bytes.fromhex(re.sub(r"\bH\b", HASH.hex(), code))


def examples(kind: str) -> dict[str, bytes]:
    return {row[0]: to_bytes(row[1].strip("`")) for row in table(TEXT, kind).rows}


def control_messages(data: bytes) -> Iterator[ControlMessage]:
    decoder = ControlDecoder()
    decoder.feed(data)
    while (message := decoder.next_message()) is not None:
        yield message


def data_packets(data: bytes) -> Iterator[DataPacket]:
    decoder = DataDecoder(65536)
    decoder.feed(data)
    while (packet := decoder.next_packet(with_backlink=False)) is not None:
        yield packet
    assert decoder.buffered == 0


def mux(role: Role) -> Connection:
    """One side as point-to-point agrees on it; `receive_credit` as if data credit was granted."""
    streams = (InitialStream(0, INFINITE, INFINITE), InitialStream(1, 0, 1000))
    return Connection(role, Config(initial_streams=streams, streams_creatable=False))


def test_numbers_are_encoded_as_the_page_says() -> None:
    rows = table(TEXT, "value").rows
    assert len(rows) == 6
    for value, code in rows:
        number = U64_MAX if value == "2^64 - 1" else int(value.replace(",", ""))
        assert encode_varu64(number) == to_bytes(code.strip("`"))
        assert decode_varu64(to_bytes(code.strip("`"))) == (number, len(to_bytes(code.strip("`"))))


def lipmaa_in_words(n: int) -> int:
    """The page's recipe, word by word."""
    spine = [1]
    while spine[-1] < n:
        spine.append(3 * spine[-1] + 1)
    if n in spine:
        place = spine.index(n)
        return spine[place - 1] if place else 0
    rest = n
    while rest not in spine:
        rest -= max(number for number in spine if number < rest)
    return n - rest


def test_lipmaa_is_what_its_recipe_and_its_first_values_say() -> None:
    [values] = re.findall(r"^    (0 1 2 1 [\d ]+)$", TEXT, re.MULTILINE)
    numbers = [int(word) for word in values.split()]
    assert len(numbers) == 40
    assert numbers == [lipmaa(n) for n in range(1, 41)]
    assert [lipmaa_in_words(n) for n in range(1, 2000)] == [lipmaa(n) for n in range(1, 2000)]


def test_the_pools_of_the_page_are_right() -> None:
    assert "lower pool of 23 is 23, 22, 21, 17, 13, 4, 1" in " ".join(TEXT.split())
    assert lower_pool(23) == [23, 22, 21, 17, 13, 4, 1]
    assert "upper pool of 5 is 13, 12, 8, 7, 6, 5" in " ".join(TEXT.split())
    assert upper_pool(5) == [13, 12, 8, 7, 6, 5]


SETUPS = {
    "greedy both ways, windows of 65,536 bytes": Setup(True, True, 65536, 65536),
    "safe both ways, no compression": Setup(False, False, 0, 0),
}


def test_examples_of_setup() -> None:
    found = examples("setup")
    assert {what: decode_setup(data) for what, data in found.items()} == {
        what: (setup, len(found[what])) for what, setup in SETUPS.items()
    }
    assert {what: encode_setup(setup) for what, setup in SETUPS.items()} == found


MUX_EVENTS: dict[str, list[MuxEvent]] = {
    "stream 1 may send 1 MiB more": [CreditReceived(1)],
    "`abc` on stream 1": [DataReceived(1, b"abc")],
    "global ping": [],
    "global pong": [],
    "close stream 1": [CloseReceived(1)],
    "stop reading stream 1": [StopReadReceived(1)],
}


def test_examples_of_bymux_are_understood() -> None:
    found = examples("bymux")
    assert found.keys() == MUX_EVENTS.keys()
    for what, data in found.items():
        side = mux(Role.PROACTIVE)
        if what == "global pong":
            side.ping(None)
        events = side.receive_data(data)
        if MUX_EVENTS[what]:
            assert events == MUX_EVENTS[what], what


def test_examples_of_bymux_are_what_we_send() -> None:
    found = examples("bymux")
    side = mux(Role.REACTIVE)
    side.grant(1, 1024 * 1024)
    assert side.data_to_send(100) == found["stream 1 may send 1 MiB more"]
    side.receive_data(found["stream 1 may send 1 MiB more"])
    side.send(1, b"abc")
    assert side.data_to_send(100) == found["`abc` on stream 1"]
    side.ping(None)
    assert side.data_to_send(100) == found["global ping"]
    side.receive_data(found["global ping"])
    assert side.data_to_send(100) == found["global pong"]
    side.close(1)
    assert side.data_to_send(100) == found["close stream 1"]
    side.stop_read(1)
    assert side.data_to_send(100) == found["stop reading stream 1"]


def propose(number: int, start: int, eagerness: Eagerness = Eagerness.ALL) -> Propose:
    return Propose(number, LOG, start, start, 0, U64_MAX, None, eagerness)


CONTROL: dict[str, ControlMessage] = {
    "grant 64 units": Grant(64),
    "propose request 0: log 0 of A from 1 on, everything, payloads may be skipped": propose(0, 1),
    "propose request 2: log 7 of A from 5 to 13, payloads up to 1,000 bytes, sparse, mandatory": (
        Propose(
            request=2,
            log=LogKey(AUTHOR, 7),
            start=5,
            lower_info=5,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=HASH,
            eagerness=Eagerness.LIMITED,
            eager_bytes=1000,
            end=13,
            upper_info=13,
            sparse=True,
            mandatory=True,
        )
    ),
    "propose request 4: log 0 of A from byte 70,000 of payload 3 on": Propose(
        request=4,
        log=LOG,
        start=3,
        lower_info=None,
        min_bytes=0,
        max_bytes=U64_MAX,
        starting_hash=HASH,
        eagerness=Eagerness.ALL,
        offset=70_000,
    ),
    "propose request 1: up to which entry do you have log 0 of A?": Propose(
        request=1,
        log=LOG,
        start=1,
        lower_info=1,
        min_bytes=0,
        max_bytes=U64_MAX,
        starting_hash=None,
        eagerness=Eagerness.NOTIFY,
        sparse=True,
    ),
    "confirm request 0, everything": Adjust(0, Eagerness.ALL),
    "confirm request 1 with the answer 40, notify only, payloads may be skipped": Adjust(
        1, Eagerness.NOTIFY, allow_skip=True, end=40, upper_info=40
    ),
    "request 0: from now on only notify; end 20": Adjust(0, Eagerness.NOTIFY, end=20),
    "request 5 is complete": Cancel(5, CancelReason.COMPLETE),
    "request 3: the log ended with entry 12": Cancel(3, CancelReason.LOG_ENDED, seq=12),
}


def test_examples_of_control_messages() -> None:
    found = examples("control")
    assert {what: list(control_messages(data)) for what, data in found.items()} == {
        what: [message] for what, message in CONTROL.items()
    }
    assert {what: encode_control(message) for what, message in CONTROL.items()} == found


DATA: dict[str, list[DataPacket]] = {
    "switch to request 0, notify of 40 pieces": [Switch(0), Notify(40)],
    "payload bytes `hi`": [PayloadStart(2, compressed=False), PayloadBytes(b"hi")],
    "an empty payload": [PayloadStart(0, compressed=False)],
    "`bamboo bamboo bamboo!` compressed: literal of 7, copy of 13 from 7 back, literal of 1": [
        PayloadStart(21, compressed=True),
        PayloadBytes(b"bamboo bamboo bamboo!"),
    ],
    "apology, payload not available, nothing more for request 0": [
        Apology(),
        SkipUnavailable(),
        RequestCancelled(0),
    ],
}


def test_examples_of_data_packets() -> None:
    found = {what: list(data_packets(data)) for what, data in examples("data").items()}
    assert found == DATA


@pytest.fixture
def entries() -> list[bytes]:
    """The two entries of the conversation, as the page spells them."""
    return [to_bytes(text) for text in blocks_of(TEXT, "entry")]


def test_the_entries_of_the_conversation_are_valid(entries: list[bytes]) -> None:
    first, second = (decode_entry(encoded) for encoded in entries)
    assert all(signature_is_valid(encoded) for encoded in entries)
    assert [first.key, second.key] == [LOG, LOG]
    assert first.payload_hash == yamf_hash(b"hello")
    assert second.payload_hash == yamf_hash(b"world")
    assert second.backlink == yamf_hash(entries[0])


def test_the_conversation_carries_these_entries(entries: list[bytes]) -> None:
    [data] = blocks_of(TEXT, "node data")
    packets = list(data_packets(to_bytes(data)))
    assert [type(packet) for packet in packets] == [
        *(Switch, Metadata, PayloadStart, PayloadBytes),
        *(Metadata, PayloadStart, PayloadBytes),
    ]
    metadata = [encode_metadata_packet(e, 0, n, False) for n, e in enumerate(entries, 1)]
    payloads = [b"\x08\x05hello", b"\x08\x05world"]
    assert to_bytes(data) == bytes(2) + metadata[0] + payloads[0] + metadata[1] + payloads[1]


def test_the_reader_of_the_conversation_breaks_no_rule() -> None:
    side = mux(Role.REACTIVE)
    hello, proposal, goodbye = (to_bytes(text) for text in blocks_of(TEXT, "reader"))
    _, used = decode_setup(hello)
    events = [*side.receive_data(hello[used:]), *side.receive_data(proposal)]
    control = b"".join(event.data for event in events if isinstance(event, DataReceived))
    assert list(control_messages(control)) == [Grant(64), propose(0, 1)]
    assert side.sendable(1) == 1024 * 1024
    ended = side.receive_data(goodbye)
    assert {event for event in ended if isinstance(event, CloseReceived | StopReadReceived)} == {
        *(CloseReceived(0), CloseReceived(1)),
        *(StopReadReceived(0), StopReadReceived(1)),
    }


def test_the_node_of_the_conversation_confirms_as_the_page_says() -> None:
    [control] = blocks_of(TEXT, "node control")
    confirmation = Adjust(0, Eagerness.ALL, allow_skip=True)
    assert list(control_messages(to_bytes(control))) == [confirmation]


def test_the_defaults_are_those_in_use() -> None:
    config = SessionConfig()
    for name, value, _ in table(TEXT, "setting").rows:
        expected = 2**63 if value == "2^63" else int(value)
        assert getattr(config, name.strip("`")) == expected, name
    assert config.setup == Setup(True, True, 65536, 65536)
