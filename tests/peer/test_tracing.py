"""A trace tells what passed: the same on both sides, and nothing of a payload but its size."""

import pytest
from nacl.signing import SigningKey

from bymux import Role
from peer.engine import Engine
from peer.protocol.config import SessionConfig
from peer.protocol.errors import RemoteViolation
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.tracing import Record, Tracer
from peer.session import Session
from wire import (
    Cancel,
    CancelReason,
    Eagerness,
    LogKey,
    Negotiated,
    Propose,
    encode_control,
    encode_notify,
    encode_switch,
    negotiate,
)

from .rig import Author, Store
from .test_session import Wire

AUTHOR = Author(SigningKey(b"t" * 32))
LOG = LogKey(AUTHOR.id, 0)
CONFIG = SessionConfig(small_payload_bytes_max=64)
U64 = str(2**64 - 1)


def traced_wire(left: Store, right: Store) -> tuple[Wire, list[list[Record]]]:
    wire = Wire(left, right)
    traces: list[list[Record]] = [[], []]
    for end, role, records in zip(wire.ends, Role, traces, strict=True):
        end.session = Session(role, CONFIG, 0.0, Tracer(records.append))
        end.session.handle(InterestsChanged(Interests(logs=frozenset((LOG,))), (LOG,)), 0.0)
    return wire, traces


def of_way(records: list[Record], way: str, channel: str) -> list[Record]:
    """Without what only one side knows: the way, and what both setups come to."""
    hidden = {"way", "compression_window", "decompression_window"}
    hidden |= {"greedy_sending", "greedy_receiving"}
    return [
        {name: value for name, value in record.items() if name not in hidden}
        for record in records
        if (record["way"], record["channel"]) == (way, channel)
    ]


def store_of(*payloads: bytes) -> Store:
    store = Store()
    for payload in payloads:
        store.append(AUTHOR, 0, payload)
    return store


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_what_one_side_sends_is_what_the_other_receives(size: int) -> None:
    wire, traces = traced_wire(store_of(b"", b"two", b"x" * 1000, b"four", b"five"), Store())
    wire.run(size)
    assert wire.ends[0].host.store.logs[LOG] == wire.ends[1].host.store.logs[LOG]
    for sender, receiver in (traces, traces[::-1]):
        for channel in ("setup", "control", "data"):
            sent = of_way(sender, "sent", channel)
            assert sent == of_way(receiver, "received", channel)
            assert sent or channel == "data"


def test_every_message_of_a_session_is_recorded_with_its_fields() -> None:
    wire, traces = traced_wire(store_of(b"hi"), Store())
    wire.run()
    log = {"author": AUTHOR.id.hex(), "log_id": 0}
    names = [(r["way"], r["channel"], r["message"]) for r in traces[0]]
    assert names[0] == ("sent", "setup", "setup")
    assert ("sent", "control", "grant") in names
    confirmed = next(r for r in traces[0] if r["message"] == "adjust")
    assert confirmed["request"] == 1
    assert confirmed["author"] == AUTHOR.id.hex()
    [propose] = [r for r in traces[1] if (r["message"], r["way"]) == ("propose", "sent")]
    assert propose == {
        "way": "sent",
        "channel": "control",
        "message": "propose",
        "request": 1,
        **log,
        "start": 1,
        "lower_info": 1,
        "eagerness": "all",
        "min_bytes": 0,
        "max_bytes": U64,
    }
    data = of_way(traces[0], "sent", "data")
    assert [r["message"] for r in data] == ["switch", "metadata", "payload bytes"]
    assert {**data[1], "payload_hash": "", "signature": ""} == {
        "channel": "data",
        "message": "metadata",
        "request": 1,
        **log,
        "seq": 1,
        "piece": "metadata",
        "tag": 0,
        "payload_bytes": 2,
        "payload_hash": "",
        "signature": "",
    }
    assert data[2] == {
        "channel": "data",
        "message": "payload bytes",
        "request": 1,
        **log,
        "seq": 1,
        "piece": "payload",
        "bytes": 2,
    }


def test_a_record_holds_nothing_of_a_payload() -> None:
    secret = b"nobody but readers of the log"
    wire, traces = traced_wire(store_of(secret), Store())
    wire.run()
    assert secret.hex() not in repr(traces)
    assert repr(secret) not in repr(traces)


def engine(records: list[Record]) -> Engine:
    negotiated: Negotiated = negotiate(CONFIG.setup, CONFIG.setup)
    return Engine(negotiated, CONFIG, proactive=True, now=0.0, tracer=Tracer(records.append))


def test_a_message_that_breaks_a_rule_is_the_last_one_recorded() -> None:
    records: list[Record] = []
    with pytest.raises(RemoteViolation):
        engine(records).receive_control(
            encode_control(Cancel(7, CancelReason.LOG_ENDED, seq=12))
            + encode_control(Cancel(9, CancelReason.NOT_WANTED))
        )
    assert records[-1] == {
        "way": "received",
        "channel": "control",
        "message": "cancel",
        "request": 7,
        "reason": 134,
        "seq": 12,
    }


def test_data_for_a_request_that_is_not_there_is_recorded_before_it_is_judged() -> None:
    records: list[Record] = []
    with pytest.raises(RemoteViolation):
        engine(records).receive_data(encode_switch(5))
    assert records[-1] == {
        "way": "received",
        "channel": "data",
        "message": "switch",
        "request": 5,
    }
    records.clear()
    with pytest.raises(RemoteViolation):
        engine(records).receive_data(encode_notify(3))
    assert records[-1] == {
        "way": "received",
        "channel": "data",
        "message": "notify",
        "count": 3,
    }


def test_numbers_that_json_readers_round_are_strings() -> None:
    records: list[Record] = []
    proposal = Propose(
        request=1,
        log=LogKey(AUTHOR.id, 2**53),
        start=2**60,
        lower_info=2**60,
        min_bytes=0,
        max_bytes=2**53 - 1,
        starting_hash=b"\x00\x40" + bytes(64),
        eagerness=Eagerness.LIMITED,
        eager_bytes=2**53,
        sparse=True,
    )
    engine(records).receive_control(encode_control(proposal))
    [record] = [r for r in records if r["message"] == "propose"]
    assert record["log_id"] == str(2**53)
    assert record["start"] == str(2**60)
    assert record["max_bytes"] == 2**53 - 1
    assert record["eager_bytes"] == str(2**53)
    assert record["sparse"] is True
    assert "mandatory" not in record
