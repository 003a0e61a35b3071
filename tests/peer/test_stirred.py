"""What comes in the middle of a large payload stirs nothing: nothing follows that is looked for."""

from collections.abc import Callable
from random import Random

import pytest

from peer.engine import Engine
from tests.records import replace
from wire import Grant, encode_control, encode_payload_header, encode_switch

from .impolite import LOG, SMALL, Impolite, log_of, metadata_packet

LARGE = log_of(2, lambda seq: Random(seq).randbytes(10_000))
PAYLOAD = Random(1).randbytes(10_000)


def begun(peer: Impolite, count: int) -> Impolite:
    """An engine that has the first so many bytes of a payload, and has been asked."""
    number = peer.open_request()
    first = encode_payload_header(len(PAYLOAD)) + PAYLOAD[:count]
    peer.data(encode_switch(number), metadata_packet(LARGE, 1), first)
    peer.sent()
    assert peer.engine.stirs.take()
    assert not peer.engine.stirs.take()
    return peer


@pytest.fixture
def inside() -> Impolite:
    return begun(Impolite(), 1000)


def test_more_of_a_payload_stirs_nothing_until_its_last_byte(inside: Impolite) -> None:
    engine = inside.engine
    for at in range(1000, 9000, 1000):
        engine.receive_data(PAYLOAD[at : at + 1000])
        deadline = engine.next_deadline()
        inside.run()
        assert not engine.stirs.take()
        assert engine.control_to_send() == b""
        assert engine.data_to_send(1 << 20) == []
        assert engine.next_deadline() == deadline
    engine.receive_data(PAYLOAD[9000:9999])
    assert not engine.stirs.take()
    engine.receive_data(PAYLOAD[9999:])
    assert engine.stirs.take()
    inside.run()
    assert inside.store.logs[LOG][1].payload == PAYLOAD


def test_a_payload_in_several_packets_is_one() -> None:
    peer = Impolite()
    number = peer.open_request()
    peer.data(encode_switch(number), metadata_packet(LARGE, 1))
    peer.data(encode_payload_header(5000), PAYLOAD[:5000])
    assert peer.engine.stirs.take()
    peer.engine.receive_data(encode_payload_header(2000), PAYLOAD[5000:7000])
    peer.engine.receive_data(encode_payload_header(2999), PAYLOAD[7000:9999])
    assert not peer.engine.stirs.take()


@pytest.mark.parametrize(
    "other",
    [
        lambda engine: engine.receive_control(encode_control(Grant(1))),
        lambda engine: engine.advance(),
        lambda engine: engine.receive_data(PAYLOAD[1000:], encode_switch(0)),
    ],
    ids=["control", "time", "data"],
)
def test_all_else_stirs(inside: Impolite, other: Callable[[Engine], None]) -> None:
    other(inside.engine)
    assert inside.engine.stirs.take()


def test_who_had_to_wait_for_the_disk_goes_on_when_it_has_written() -> None:
    peer = begun(Impolite(config=replace(SMALL, data_credit_bytes=4000)), 1000)
    peer.engine.receive_data(PAYLOAD[1000:5000])
    assert peer.engine.stirs.take(), "it stops reading"
    peer.engine.receive_data(PAYLOAD[5000:6000])
    assert peer.engine.stirs.take(), "it stands"
    peer.run()
    assert peer.engine.stirs.take(), "it reads on"
    peer.engine.receive_data(PAYLOAD[6000:7000])
    assert not peer.engine.stirs.take()


# Sending


def serving() -> Impolite:
    """An engine that has sent the first bytes of a payload, of which it reads 1,000 at a time."""
    config = replace(SMALL, read_payloads_bytes_max=1000, read_bytes_min=1000)
    peer = Impolite({1: LARGE[1]}, follows=False, config=config)
    peer.open_request()
    sent = b""
    while PAYLOAD[:100] not in sent:
        peer.run()
        sent += b"".join(peer.engine.data_to_send(600))
    peer.run()
    assert peer.engine.stirs.take()
    return peer


def may_be_due(engine: Engine) -> bool:
    return engine.stirs.may_be_due


def awaits_payload(engine: Engine) -> bool:
    return engine.awaits_payload


def test_more_of_a_payload_that_is_sent_stirs_nothing_until_its_last_byte() -> None:
    peer = serving()
    engine = peer.engine
    rounds = 0
    while True:
        deadline = engine.next_deadline()
        assert not may_be_due(engine)
        sent = engine.data_to_send(100)
        if may_be_due(engine):
            break
        assert engine.next_deadline() == deadline
        rounds += bool(sent)
        peer.run()
        assert not may_be_due(engine), "what was read makes nothing due"
    assert 80 < rounds < 100, "it is told where the last packet is made"


def test_who_waits_for_a_chunk_has_nothing_to_send_before_it_is_read() -> None:
    peer = serving()
    engine = peer.engine
    while engine.data_to_send(1 << 20):
        pass
    assert not awaits_payload(engine), "nobody has asked for all else"
    engine.stirs.is_to_pull = False
    assert awaits_payload(engine)
    peer.run()
    assert not awaits_payload(engine)
    while engine.data_to_send(1 << 20):
        pass
    engine.stirs.is_to_pull = False
    assert awaits_payload(engine)
    peer.control(Grant(1))
    assert not awaits_payload(engine), "what came may be answered"
