"""What comes in the middle of a large payload stirs nothing: nothing follows that is looked for."""

from collections.abc import Callable

import pytest

from peer.engine import Engine
from tests.records import replace
from wire import Grant, encode_control, encode_payload_header, encode_switch

from .impolite import LOG, SMALL, Impolite, log_of, metadata_packet

LARGE = log_of(2, lambda seq: bytes((seq,)) * 10_000)
PAYLOAD = bytes((1,)) * 10_000


def begun(peer: Impolite, count: int) -> Impolite:
    """An engine that has the first so many bytes of a payload, and has been asked."""
    number = peer.open_request()
    first = encode_payload_header(len(PAYLOAD)) + PAYLOAD[:count]
    peer.data(encode_switch(number), metadata_packet(LARGE, 1), first)
    assert peer.engine.take_stirred()
    assert not peer.engine.take_stirred()
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
        assert not engine.take_stirred()
        assert engine.control_to_send() == b""
        assert engine.data_to_send(1 << 20) == []
        assert engine.next_deadline() == deadline
    engine.receive_data(PAYLOAD[9000:9999])
    assert not engine.take_stirred()
    engine.receive_data(PAYLOAD[9999:])
    assert engine.take_stirred()
    inside.run()
    assert inside.store.logs[LOG][1].payload == PAYLOAD


def test_a_payload_in_several_packets_is_one() -> None:
    peer = Impolite()
    number = peer.open_request()
    peer.data(encode_switch(number), metadata_packet(LARGE, 1))
    peer.data(encode_payload_header(5000), PAYLOAD[:5000])
    assert peer.engine.take_stirred()
    peer.engine.receive_data(encode_payload_header(2000), PAYLOAD[5000:7000])
    peer.engine.receive_data(encode_payload_header(2999), PAYLOAD[7000:9999])
    assert not peer.engine.take_stirred()


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
    assert inside.engine.take_stirred()


def test_who_had_to_wait_for_the_disk_goes_on_when_it_has_written() -> None:
    peer = begun(Impolite(config=replace(SMALL, data_credit_bytes=4000)), 1000)
    peer.engine.receive_data(PAYLOAD[1000:5000])
    assert peer.engine.take_stirred(), "it stops reading"
    peer.engine.receive_data(PAYLOAD[5000:6000])
    assert peer.engine.take_stirred(), "it stands"
    peer.run()
    assert peer.engine.take_stirred(), "it reads on"
    peer.engine.receive_data(PAYLOAD[6000:7000])
    assert not peer.engine.take_stirred()
