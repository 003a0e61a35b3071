"""What is read ahead of sending is bounded for all requests of a session together."""

from collections import deque
from types import SimpleNamespace
from typing import cast

import pytest
from nacl.signing import SigningKey

from peer.data.read_ahead import LEAST_BYTES, ReadAhead
from peer.protocol.config import SessionConfig
from peer.protocol.events import EntriesRead, Interests
from peer.protocol.request import Request
from wire import LogKey

from .rig import Author, Pair, Store

AUTHOR = Author(SigningKey(b"r" * 32))
MANY = SessionConfig(request_credit=400)
LITTLE = SessionConfig(request_credit=400, read_ahead_bytes_max=4 * LEAST_BYTES)


def giver_of(logs: int, entries: int, payload_bytes: int) -> Store:
    store = Store()
    for number in range(logs):
        for _ in range(entries):
            store.append(AUTHOR, number, bytes(payload_bytes))
    return store


def wanting(logs: int) -> Interests:
    return Interests(logs=frozenset(LogKey(AUTHOR.id, number) for number in range(logs)))


def ahead(pair: Pair, side: int = 0) -> ReadAhead:
    return pair.engine(side)._outbound._ahead


def in_memory(pair: Pair, side: int = 0) -> int:
    """Bytes of rows that were read and not sent, counted anew."""
    return sum(
        len(row.encoded) + len(row.payload or b"")
        for request in pair.engine(side)._by_ident.values()
        for row in request.outgoing.rows
    )


def stall(pair: Pair, rounds: int) -> int:
    """Control goes both ways, and of the data one byte a round leaves; the most that was held."""
    seen = 0
    for _ in range(rounds):
        pair.data_credit[0] = 1
        for side in (0, 1):
            while pair.hosts[side].step():
                seen = max(seen, in_memory(pair))
            pair.pump(side)
            pair.deliver_control(side, len(pair.control[side]))
    return seen


def test_who_asks_for_everything_and_takes_nothing_has_little_read() -> None:
    """Else 64 KB of proposals would have a node read half a gigabyte."""
    giver = giver_of(200, 20, 1000)
    pair = Pair(LITTLE, stores=(giver, Store()))
    pair.connect((wanting(200), wanting(200)))
    assert 0 < stall(pair, 200) <= LITTLE.read_ahead_bytes_max
    assert in_memory(pair) <= ahead(pair).bytes <= LITTLE.read_ahead_bytes_max + 2000


@pytest.mark.parametrize("payload_bytes", [10, 1000, 3 * LEAST_BYTES])
@pytest.mark.parametrize("side", [0, 1])
def test_every_log_arrives_however_little_is_read_at_once(side: int, payload_bytes: int) -> None:
    giver = giver_of(60, 5, payload_bytes)
    stores = (giver, Store()) if side == 0 else (Store(), giver)
    pair = Pair(LITTLE, stores=stores)
    pair.connect((wanting(60), wanting(60)))
    for _ in range(20):
        pair.run(advance_s=0.1)
    assert stores[1 - side].logs == giver.logs
    assert in_memory(pair, side) <= ahead(pair, side).bytes


def test_who_waits_for_the_other_side_keeps_no_room_from_others() -> None:
    """Its rows are given up and read again: here, the newest entry's payload is not there yet."""
    giver = giver_of(30, 3, 3000)
    for number in range(25):
        held = giver.logs[LogKey(AUTHOR.id, number)]
        held[3].payload = None
    pair = Pair(LITTLE, stores=(giver, Store()))
    pair.connect((wanting(30), wanting(30)))
    for _ in range(10):
        pair.run(advance_s=0.1)
    taker = pair.hosts[1].store
    assert all(taker.height(LogKey(AUTHOR.id, number)) == 3 for number in range(25, 30))


def test_what_is_granted_shrinks_with_what_is_left_and_one_log_gets_what_it_asks_for() -> None:
    budget = ReadAhead(MANY)
    requests = [
        cast(
            "Request",
            SimpleNamespace(
                ident=ident, active=True, outgoing=SimpleNamespace(rows=deque(), reading=True)
            ),
        )
        for ident in range(200)
    ]
    granted = [budget.take(request) for request in requests]
    assert granted[0] == MANY.read_bytes_max
    assert granted == sorted(granted, reverse=True)
    assert granted[30] > 0
    assert granted[-1] == 0
    assert budget.bytes <= MANY.read_ahead_bytes_max
    assert budget.due() == []
    for request in requests[:3]:
        request.outgoing.reading = False
        budget.note(request)
    due = budget.due()
    assert due == requests[granted.index(0) :][: len(due)]
    assert len(due) > 3


def test_what_comes_for_a_request_that_has_ended_is_not_kept() -> None:
    pair = Pair(MANY, stores=(giver_of(1, 3, 100), Store()))
    pair.connect((wanting(1), wanting(1)))
    stall(pair, 20)
    engine = pair.engine(0)
    [request] = engine._by_ident.values()
    before = in_memory(pair)
    row = request.outgoing.rows[0]
    request.outgoing.rows.clear()
    ahead(pair).note(request)
    assert before > 0
    request.cancel_received = request.cancel_received or object()  # type: ignore[assignment]
    engine._outbound.entries_read(request, EntriesRead(request.ident, (row,), 1))
    assert not request.outgoing.rows
    assert ahead(pair).bytes == 0
