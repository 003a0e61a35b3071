"""What a hostile peer can make grow has a bound, and so has the work it can make us do."""

from itertools import count
from typing import Any, cast

import pytest

from logstore import Subscription
from peer.planner.planner import Planner
from peer.protocol.commands import Ingest, WritePayload
from peer.protocol.errors import RemoteViolation, SessionTimeout
from peer.protocol.events import Interests, InterestsChanged, SourceChanged
from peer.protocol.notices import Limit, LimitMet, PeerHolds
from tests.records import replace
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    LogKey,
    LZFooEncoder,
    Propose,
    encode_compressed,
    encode_control,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_unavailable,
    encode_switch,
    encode_varu64,
)

from .impolite import (
    AUTHOR,
    LOG,
    SMALL,
    Impolite,
    cancel,
    entry_packets,
    log_of,
    metadata_packet,
    propose,
)
from .rig import Host

HELD = log_of(40)
HUGE = log_of(1, lambda seq: b"z" * 3_000_000)


def sink_peer(**fields: float) -> Impolite:
    peer = Impolite(config=replace(SMALL, **cast("dict[str, Any]", fields)))
    peer.open_request()
    peer.data(encode_switch(0))
    return peer


def test_bytes_of_one_read_are_written_together() -> None:
    """Packets of one byte cost one write for each turn (D5)."""
    peer = sink_peer()
    peer.engine.receive_data(metadata_packet(HUGE, 1) + b"\x08\x01z" * 5000)
    commands = peer.engine.commands()
    while peer.engine.is_behind:
        peer.engine.advance()
        commands += peer.engine.commands()
    writes = [len(c.data) for c in commands if isinstance(c, WritePayload)]
    assert sum(writes) == 5000
    assert len(writes) <= 10


def test_tiny_packets_leave_turns_to_others() -> None:
    """However much has come at once, a turn is some thousand packets, and tells of news once."""
    peer = Impolite(log_of(3))
    number = peer.open_request(4, eagerness=Eagerness.NOTIFY)
    peer.sent()
    own = next(each for each in peer.engine._table.all() if each.number == number)
    peer.engine._table.adjust(own, Adjust(number, eagerness=Eagerness.NOTIFY))
    peer.engine.notices()
    peer.engine.receive_data(encode_switch(number) + b"\x02" * 100_000)
    turns, told = 1, []
    while peer.engine.is_behind:
        told += [n for n in peer.engine.notices() if isinstance(n, PeerHolds)]
        before = own.incoming.position
        peer.engine.advance()
        turns += 1
        assert 0 < own.incoming.position - before < 2000
    told += [n for n in peer.engine.notices() if isinstance(n, PeerHolds)]
    assert own.incoming.position == 100_000
    assert len(told) == turns


def test_what_is_not_durable_stops_the_reading() -> None:
    """A few compressed bytes may stand for any number of payload bytes (D6)."""
    peer = sink_peer(data_credit_bytes=100_000)
    # "z", then copies of it: an LZFoo literal of one byte and one copy of 10^6 bytes.
    peer.engine.receive_data(metadata_packet(HUGE, 1) + bomb(1_000_000))
    writes = [c for c in peer.engine.commands() if isinstance(c, WritePayload)]
    assert 100_000 <= sum(len(write.data) for write in writes) <= 100_000 + 65_536
    assert not peer.engine.drained


def bomb(size: int) -> bytes:
    """One packet 9 of `size` bytes z."""
    return encode_compressed(size, LZFooEncoder(1024).encode(b"z" * size))


def test_reading_past_much_that_is_thrown_away_lets_others_have_their_turn() -> None:
    peer = sink_peer(payload_bytes_max=1000, read_work_bytes_max=200_000)
    peer.engine.receive_data(metadata_packet(HUGE, 1) + bomb(1_000_000))
    assert peer.engine.next_deadline() == peer.engine.now
    for _ in range(10):
        peer.engine.advance()
    assert peer.engine.next_deadline() != peer.engine.now
    assert Cancel(0, CancelReason.NO_RESOURCES) in peer.messages()
    assert LimitMet(Limit.PAYLOAD_BYTES) in peer.host.notices


def test_bytes_thrown_away_are_idle_work() -> None:
    peer = sink_peer(payload_bytes_max=1000, idle_work_max=10.0)
    with pytest.raises(RemoteViolation, match="idle work"):
        peer.data(metadata_packet(HUGE, 1), encode_payload_header(1_000_000) + b"z" * 1_000_000)


def test_what_shrank_on_its_way_is_thrown_away_for_what_it_took() -> None:
    """An honest peer has much of it under way when we give it up."""
    peer = sink_peer(payload_bytes_max=1000, idle_work_max=10.0)
    peer.data(metadata_packet(HUGE, 1), *[bomb(1_000_000)] * 3)
    peer.sent()
    assert peer.engine.requests


def advance_often(peer: Impolite) -> None:
    for _ in range(20):
        peer.engine.advance()


def test_what_a_few_bytes_stood_for_is_thrown_away_for_the_turns_that_it_took() -> None:
    """Of a bomb they are a few hundred thousand, and it is not read to its end."""
    peer = sink_peer(payload_bytes_max=1000, read_work_bytes_max=200_000, idle_work_max=10.0)
    peer.data(metadata_packet(HUGE, 1), bomb(1_000_000))
    peer.engine.receive_data(bomb(2_000_000))
    for _ in range(3):
        peer.engine.advance()
    with pytest.raises(RemoteViolation, match="idle work"):
        advance_often(peer)


def test_switches_to_and_fro_are_idle_work() -> None:
    peer = sink_peer(idle_work_max=20.0)
    peer.control(propose(2, 1, eagerness=Eagerness.NOTIFY))
    with pytest.raises(RemoteViolation, match="idle work"):
        peer.data((encode_switch(2) + encode_switch(0)) * 12)


def test_proposals_that_we_refuse_to_propose_ourselves_are_no_idle_work() -> None:
    """That is how two honest sides agree who proposes; many of them delay credit."""
    config = replace(SMALL, idle_work_max=10.0, unpaced_refusals_max=20, request_credit_max=64)
    peer, number = Impolite(config=config), 0
    peer.sent()
    credit = 0
    for _ in range(30):
        peer.control(propose(number, 5, lower_info=5))
        found = peer.messages()
        assert [m.reason for m in found if isinstance(m, Cancel)] == [CancelReason.NOT_WANTED]
        peer.control(cancel(number))
        peer.sent()
        peer.data(encode_request_cancelled(number))
        credit += sum(m.units for m in peer.messages() if isinstance(m, Grant))
        number += 2
    assert 15 < credit < 25
    peer.wait(1.0)
    assert [m.units for m in peer.messages() if isinstance(m, Grant)] == [30 - credit]


def test_credit_comes_back_when_what_came_is_durable() -> None:
    peer = Impolite()
    peer.open_request()
    sent = encode_switch(0) + entry_packets(HELD, range(1, 21))
    peer.engine.receive_data(sent)
    assert peer.engine.data_credit_to_release() < len(sent) / 2
    [ingest] = [c for c in peer.engine.commands() if isinstance(c, Ingest)]
    assert sum(len(item.entries) for item in ingest.items) == 20
    host = Host(peer.store)
    request = peer.engine._table.get(0)
    assert request is not None
    for before, event in enumerate(host._ingest(ingest)):
        # They came as one, and are stored one by one.
        assert request.incoming.verified == 2 * before
        peer.engine.handle(event)
    assert request.incoming.verified == request.incoming.position == 40
    peer.engine.data_credit_to_release()
    assert peer.engine._prover.in_flight_bytes == 0
    assert peer.engine._inbound._credit_released == len(sent)


def test_a_peer_has_so_many_requests_for_one_log_and_no_more() -> None:
    peer = Impolite(HELD, config=replace(SMALL, requests_per_log_max=3))
    for index in range(4):
        peer.control(propose(2 * index, 1))
    assert Cancel(6, CancelReason.NO_RESOURCES) in peer.messages()


def test_numbers_of_dropped_proposals_are_remembered_up_to_a_limit() -> None:
    """point2point.md 7: each costs its sender nothing."""
    peer = Impolite(HELD, proactive=True, config=replace(SMALL, dropped_max=5))
    peer.control(Grant(1))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    for index in range(5):
        peer.control(propose(1 + 2 * index, own.start + 1))
    with pytest.raises(RemoteViolation, match="too many dropped proposals"):
        peer.control(propose(101, own.start + 1))


def test_skips_are_remembered_up_to_a_limit_in_the_whole_session() -> None:
    peer = sink_peer(skipped_max=3)
    peer.data(
        b"".join(metadata_packet(HELD, seq) + encode_skip_unavailable() for seq in range(1, 4))
    )
    assert not any(isinstance(m, Cancel) for m in peer.messages())
    peer.data(metadata_packet(HELD, 4), encode_skip_unavailable())
    assert Cancel(0, CancelReason.NO_RESOURCES) in peer.messages()


@pytest.mark.parametrize(
    "message",
    [
        Grant(0),
        Adjust(0, eagerness=Eagerness.ALL),
        Adjust(0, allow_skip=True),
    ],
)
def test_control_messages_without_effect_are_idle_work(message: Grant | Adjust) -> None:
    peer = Impolite(HELD, config=replace(SMALL, idle_work_max=20.0))
    peer.open_request()
    with pytest.raises(RemoteViolation, match="idle work"):
        peer.engine.receive_control(encode_control(message) * 22)


@pytest.mark.parametrize("packet", [encode_switch(0), b"\x03\x00"])
def test_data_packets_without_effect_are_idle_work(packet: bytes) -> None:
    peer = sink_peer(idle_work_max=20.0)
    with pytest.raises(RemoteViolation, match="idle work"):
        peer.data(packet * 22)


def test_idle_work_fades_and_is_forgiven_for_verified_data() -> None:
    peer = sink_peer(idle_work_max=20.0)
    for seq in range(1, 10):
        peer.data(encode_switch(0) * 18, entry_packets(HELD, [seq]))
    peer.data(encode_switch(0) * 18)
    peer.wait(1.0)
    peer.data(encode_switch(0) * 18)
    assert set(peer.store.logs[LOG]) == set(range(1, 10))
    with pytest.raises(RemoteViolation, match="idle work"):
        peer.data(encode_switch(0) * 22)


def test_credit_for_refused_proposals_comes_back_slowly() -> None:
    """Rapid Reset (C1): some at once, the others at a pace."""
    config = replace(SMALL, refused_credit_max=3.0, refused_credit_per_s=20.0)
    peer = Impolite(follows=False, config=config)
    for index in range(10):
        number = 2 * index
        peer.control(propose(number), cancel(number))
        peer.sent()
        peer.data(encode_request_cancelled(number))
    assert [m for m in peer.messages() if isinstance(m, Grant)] == [Grant(64)]
    assert not [m for m in peer.messages() if isinstance(m, Grant)]
    peer.wait(0.05)
    assert [m for m in peer.messages() if isinstance(m, Grant)] == [Grant(3)]
    peer.wait(0.25)
    assert [m for m in peer.messages() if isinstance(m, Grant)] == [Grant(3)]


def test_who_has_had_too_many_requests_open_gets_all_credit_back_as_they_end() -> None:
    """Also if those end first whose credit was given back at once."""
    config = replace(SMALL, request_credit=2, request_credit_max=2, requests_max=3)
    peer = Impolite(log_of(4), config=config)
    peer.control(*(propose(2 * index, 5, eagerness=Eagerness.NOTIFY) for index in range(2)))
    peer.messages()
    peer.control(*(propose(2 * index, 5, eagerness=Eagerness.NOTIFY) for index in range(2, 4)))
    peer.messages()
    peer.control(propose(8, 5, eagerness=Eagerness.NOTIFY))
    assert not [each for each in peer.messages() if isinstance(each, Grant)]
    for number in (0, 2, 4, 6, 8):
        peer.control(cancel(number, CancelReason.NOT_WANTED))
        peer.sent()
        peer.data(encode_request_cancelled(number))
        given = [each for each in peer.messages() if isinstance(each, Grant)]
        assert given == ([Grant(1)] if number < 4 else [])


def test_of_whose_proposals_something_comes_may_make_more_of_them() -> None:
    """Twice as many, once so many were confirmed; but not who makes one at a time."""
    config = replace(SMALL, request_credit=4, request_credit_max=14)
    peer = Impolite(log_of(4), config=config)
    numbers = count(0, 2)

    def granted(at_once: int) -> int:
        """For proposals that are confirmed."""
        for _ in range(4 // at_once):
            made = [next(numbers) for _ in range(at_once)]
            peer.control(*(propose(each, 5, eagerness=Eagerness.NOTIFY) for each in made))
        return sum(each.units for each in peer.messages() if isinstance(each, Grant))

    assert granted(1) == 4 + 4  # what it starts with besides
    # The last of those that come at once is alone when its turn is.
    assert [granted(4) for _ in range(8)] == [4, 8, 4, 10, 4, 4, 4, 4]


def test_offers_in_vain_earn_no_credit() -> None:
    peer = Impolite(follows=False, config=replace(SMALL, request_credit=4))
    made = range(0, 120, 2)
    for first in made[::4]:
        several = [first + at for at in (0, 2, 4, 6)]
        peer.control(*map(propose, several), *map(cancel, several))
        peer.sent()
        for number in several:
            peer.data(encode_request_cancelled(number))
        peer.wait(1.0)
    granted = sum(each.units for each in peer.messages() if isinstance(each, Grant))
    assert granted == 4 + len(made)


def test_a_request_whose_end_has_not_left_counts() -> None:
    """Who grants a byte at a time does not make us keep the ends of more and more requests."""
    peer = Impolite(HELD, follows=False, config=replace(SMALL, request_credit=4, requests_max=8))
    peer.host.todo.append(InterestsChanged(Interests(serve_held=True), ()))
    peer.run()
    number = 1 << 62
    credit = 0
    for _ in range(100):
        credit += sum(each.units for each in peer.messages() if isinstance(each, Grant))
        if credit == 0:
            break
        credit -= 1
        number += 2
        peer.control(propose(number, 1))
        peer.data(encode_switch(number) + encode_notify(1))
        peer.control(cancel(number, CancelReason.NOT_WANTED))
        peer.data(encode_switch(number) + encode_request_cancelled(number))
        assert len(b"".join(peer.engine.data_to_send(1))) == 1
    assert credit == 0
    assert peer.engine.requests > 0
    peer.sent()
    assert peer.engine.requests == 0


def test_honest_refusals_at_the_pace_of_their_credit_go_on_for_ever() -> None:
    """A node with many logs that we neither hold nor want is not dropped for offering them."""
    peer = Impolite(follows=False, config=replace(SMALL, refused_credit_max=30.0))
    refused = []
    for index in range(300):
        number = 2 * index
        peer.control(propose(number))
        peer.control(cancel(number))
        peer.sent()
        peer.data(encode_request_cancelled(number))
        refused += [m.request for m in peer.messages() if isinstance(m, Cancel)]
        peer.wait(0.06)
    assert refused == [2 * index for index in range(300)]


def test_answers_to_our_own_refusals_are_no_idle_work() -> None:
    """Those that we refuse to propose ourselves aside, refusals have a limit of their own."""
    config = replace(SMALL, idle_work_max=10.0, refused_credit_per_s=1000.0)
    peer = Impolite(follows=False, config=config)
    for number in range(0, 200, 2):
        peer.control(propose(number))
        peer.control(cancel(number))
        peer.sent()
        peer.data(encode_request_cancelled(number))
        peer.wait(0.01)
    assert peer.engine.requests == 0


def test_an_own_proposal_has_60_s_for_its_answer() -> None:
    peer = Impolite(HELD)
    peer.control(Grant(1))
    assert peer.engine.next_deadline() == 60.0
    peer.wait(59.9)
    with pytest.raises(SessionTimeout, match="no answer after 60 s"):
        peer.wait(0.1)


def test_data_for_an_unanswered_proposal_may_wait_30_s() -> None:
    """point2point.md 8."""
    peer = Impolite(HELD)
    peer.control(Grant(1))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    peer.data(encode_switch(own.request))
    assert peer.engine.next_deadline() == 30.0
    peer.wait(29.9)
    with pytest.raises(SessionTimeout, match="more than 30 s"):
        peer.wait(0.1)


def test_data_for_a_proposal_that_gave_way_is_a_violation() -> None:
    """point2point.md 7: it never existed."""
    peer = Impolite(HELD)
    peer.control(Grant(1))
    [own] = [m for m in peer.messages() if isinstance(m, Propose)]
    peer.data(encode_switch(own.request))
    with pytest.raises(RemoteViolation, match="gave way") as caught:
        peer.control(propose(0, own.start - 1, lower_info=1))
    assert caught.value.request == own.request


@pytest.mark.parametrize("end", [2**63, U64_MAX])
def test_ranges_at_the_end_of_the_numbers_are_arithmetic(end: int) -> None:
    """Nothing here loops over a range; if it did, this would not end."""
    peer = Impolite(HELD)
    peer.open_request(end=end)
    assert peer.sent().startswith(encode_switch(0) + entry_packets(HELD, [1]))
    peer.data(encode_switch(0) + b"\x03" + encode_varu64(80))


def test_a_payload_of_a_foreign_entry_is_thrown_away_without_blame() -> None:
    """Payloads only: the other side may take for granted that we hold the entry (section 3)."""
    peer = Impolite(HELD)
    peer.open_request(payloads_only=True, end=3)
    del peer.store.logs[LOG][2]
    [request] = peer.engine.actor.requests_of(LOG)
    request.our_interest.set_eagerness(Eagerness.ALL, None)
    header = encode_payload_header
    peer.data(encode_switch(0), header(2), b"p1", header(2), b"p2", encode_request_cancelled(0))
    assert Cancel(0, CancelReason.NO_RESOURCES) in peer.messages()


def test_logs_that_only_a_stranger_has_heard_of_take_no_memory() -> None:
    """He asks for as many as he likes; the last ones of them are offered to him once they come."""
    config = replace(SMALL, offered_logs_max=10, refused_credit_per_s=1e6)
    peer = Impolite(follows=False, config=config)
    peer.control(Grant(8))
    for number in range(200):
        log = LogKey(AUTHOR.id, number)
        peer.control(propose(2 * number, 1, log=log))
        peer.control(cancel(2 * number))
        peer.sent()
        switch = encode_switch(2 * number) if number > 0 else b""
        peer.data(switch, encode_request_cancelled(2 * number))
        peer.wait(0.01)
    policy = peer.engine._planner
    assert isinstance(policy, Planner)
    assert not policy._logs.items()
    peer.messages()
    for number in (100, 195):
        peer.store.append(AUTHOR, number, b"imported")
    peer.run()
    peer.wait(peer.engine._config.look_again_s)
    offers = [each for each in peer.messages() if isinstance(each, Propose)]
    assert [(each.log.log_id, each.start, each.end) for each in offers] == [(195, 1, 1)]


@pytest.mark.parametrize("eager_bytes", [None, 5_000_000])
def test_who_is_no_source_any_more_keeps_no_payload(eager_bytes: int | None) -> None:
    """Nobody else is asked for a payload that is arriving, also if only small ones are wanted."""
    peer = Impolite()
    subscription = Subscription(eager_bytes=eager_bytes)
    interests = Interests(logs=frozenset((LOG,)), subscriptions={LOG: subscription})
    peer.host.todo.append(InterestsChanged(interests, ()))
    peer.run()
    number = peer.open_request()
    part = encode_payload_header(3_000_000) + b"z" * 100_000
    peer.data(encode_switch(number), metadata_packet(HUGE, 1), part)
    peer.host.todo.append(SourceChanged(LOG, fetch=False))
    [cancelled] = [m for m in peer.messages() if isinstance(m, Cancel)]
    assert (cancelled.request, cancelled.reason) == (number, CancelReason.NOT_WANTED)
    assert len(peer.store.partial[LOG, 1]) == 100_000


@pytest.mark.parametrize("told", [False, True])
def test_an_offer_that_stops_inside_a_payload_is_given_up(*, told: bool) -> None:
    """Every other session of the node leaves that payload to it."""
    peer = Impolite()
    peer.control(propose(peer.number, 1, end=1, eagerness=Eagerness.NOTIFY))
    [answer] = [m for m in peer.messages() if isinstance(m, Adjust)]
    assert answer.eagerness is Eagerness.ALL
    part = encode_payload_header(3_000_000) + b"z" * 100_000
    peer.data(encode_switch(peer.number), metadata_packet(HUGE, 1), part)
    patience = peer.engine._config.unfed_timeout_s
    if told:
        # It stops, or is slow, as the node has found out.
        peer.wait(2.0)
        assert not [m for m in peer.messages() if isinstance(m, Cancel)]
        peer.host.todo.append(SourceChanged(LOG, fetch=False))
        peer.run()
    else:
        peer.wait(patience - 1.0)
        assert not [m for m in peer.messages() if isinstance(m, Cancel)]
        peer.wait(1.0)
    [cancelled] = [m for m in peer.messages() if isinstance(m, Cancel)]
    assert cancelled.reason in {CancelReason.NO_RESOURCES, CancelReason.NOT_WANTED}
    assert len(peer.store.partial[LOG, 1]) == 100_000
