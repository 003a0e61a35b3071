"""Which payload bytes count as received."""

import pytest

from tests.peer.impolite import LOG, SMALL, Impolite, log_of, metadata_packet
from tests.records import replace
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_payload_header,
    encode_switch,
)

from .counting import ByteCount

BIG = log_of(3, lambda seq: b"%d" % seq * 200)


def raw(data: bytes) -> bytes:
    return encode_payload_header(len(data)) + data


@pytest.mark.parametrize(("files", "again"), [(1, 0), (64, 400)])
def test_what_was_given_up_counts_where_there_should_be_files_enough(
    files: int, again: int
) -> None:
    count = ByteCount(replace(SMALL, sinks_max=files))
    peer = Impolite(config=replace(SMALL, sinks_max=1), tracer=count.tracer("n", lambda _: False))
    first = peer.open_request(1, end=1)
    peer.data(encode_switch(first), metadata_packet(BIG, 1), raw(b"1" * 50))
    assert count.received["n"] == 50
    peer.number += 2
    second = peer.open_request(2, end=3, starting_hash=BIG[1].hash)
    peer.data(encode_switch(second), metadata_packet(BIG, 2), raw(b"2" * 150), raw(b"2" * 50))
    assert Cancel(second, CancelReason.NO_RESOURCES) in peer.messages()
    peer.data(metadata_packet(BIG, 3), raw(b"3" * 200))
    assert count.received["n"] == 50 + again
    peer.data(encode_switch(first), raw(b"1" * 150))
    assert count.received["n"] == 200 + again


@pytest.mark.parametrize("is_source", [True, False])
def test_what_is_asked_for_by_itself_of_somebody_else_does_not_count(*, is_source: bool) -> None:
    """The source has not sent it for a while."""
    count = ByteCount(SMALL)
    held = {1: replace(BIG[1], payload=None), 2: BIG[2]}
    peer = Impolite(held, tracer=count.tracer("n", lambda _: is_source))
    peer.control(Grant(9))
    opened = proposals(peer)[0].request
    peer.control(Adjust(opened, eagerness=Eagerness.ALL))
    alone = proposals(peer)[0]
    assert (alone.start, alone.end) == (1, 1)
    peer.control(Adjust(alone.request, eagerness=Eagerness.NOTIFY))
    peer.data(encode_switch(alone.request), raw(b"1" * 200))
    assert peer.store.logs[LOG][1].payload is not None
    assert count.received["n"] == 200 * is_source
    peer.data(encode_switch(opened), metadata_packet(BIG, 3), raw(b"3" * 200))
    assert count.received["n"] == 200 * is_source + 200


def proposals(peer: Impolite) -> list[Propose]:
    return [message for message in peer.messages() if isinstance(message, Propose)]
