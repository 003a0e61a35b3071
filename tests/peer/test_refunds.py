"""Credit for refused proposals: one bucket for a node, and its sessions take turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from peer.protocol.commands import LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.notices import Limit, LimitMet, SyncFinished
from peer.protocol.refunds import TICK_S, RefundBucket, Refunds
from wire import Cancel, ControlDecoder, Grant, LogKey, encode_control, encode_request_cancelled

from .impolite import Impolite, cancel, propose
from .rig import Author, Pair, Store
from .test_many_logs import AUTHOR, logs


def test_what_is_in_the_bucket_goes_back_at_the_next_tick() -> None:
    refunds = Refunds(RefundBucket(100.0, 10.0), 5.0)
    assert refunds.next_at(0) is None
    assert refunds.next_at(70) == 5.0 + TICK_S
    assert refunds.due(70, 5.0) == 0
    assert refunds.due(70, 5.0 + TICK_S) == 70


def test_an_empty_bucket_fills_with_time_and_no_further_than_its_size() -> None:
    bucket = RefundBucket(100.0, 10.0)
    one = Refunds(bucket, 0.0)
    assert bucket.take(one, 500, 0.0) == 100
    assert bucket.take(one, 400, 1.0) == 10
    assert bucket.take(one, 390, 1000.0) == 100


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(1, 40))
def test_no_session_waits_for_ever_and_none_gets_more_than_its_share(
    owed: list[int], size: int
) -> None:
    """Whoever waits gets something before another one gets something twice."""
    bucket, now = RefundBucket(float(size), 20.0), 0.0
    sessions = [Refunds(bucket, 0.0) for _ in owed]
    left = dict(zip(sessions, owed, strict=True))
    given_at = dict.fromkeys(sessions, 0.0)
    given_in_all = 0
    while any(left.values()):
        now += TICK_S
        for session in sessions:
            if left[session]:
                units = bucket.take(session, left[session], now)
                given_in_all += units
                left[session] -= units
                if units:
                    given_at[session] = now
                assert now - given_at[session] <= (len(owed) + 1) / 20.0 + 2 * TICK_S
    assert given_in_all == sum(owed) <= size + now * 20.0 + 1


def test_who_has_left_takes_no_share() -> None:
    bucket = RefundBucket(10.0, 10.0)
    one, other = Refunds(bucket, 0.0), Refunds(bucket, 0.0)
    bucket.take(one, 100, 0.0)
    one.over()
    assert bucket.take(other, 100, 1.0) == 10


def test_sessions_of_a_node_share_one_bucket() -> None:
    """Twenty connections get no more refusals out of a node than one."""
    config = SessionConfig(refused_credit_max=40.0, refused_credit_per_s=0.0)
    bucket = RefundBucket.of(config)
    refunded = 0
    for _ in range(20):
        session = Refunds(bucket, 0.0)
        refunded += session.due(30, TICK_S)
    assert refunded == 40


def test_what_is_neither_wanted_nor_held_is_refused_without_a_look_at_the_store() -> None:
    """A peer names as many logs as there are numbers, and each look-up costs us a query."""
    peer = Impolite(follows=False)
    peer.run()

    def look_ups_for(number: int, held: frozenset[LogKey]) -> int:
        peer.host.todo.append(InterestsChanged(Interests(held=held), ()))
        peer.run()
        log = LogKey(AUTHOR.id, number)
        peer.engine.receive_control(encode_control(propose(2 * number, log=log)))
        commands = peer.engine.commands()
        peer.host.todo.extend(commands)
        return sum(isinstance(command, LookUp) for command in commands)

    assert [look_ups_for(number, frozenset()) for number in range(50)] == [0] * 50
    refused = [each.request for each in peer.messages() if isinstance(each, Cancel)]
    assert refused == list(range(0, 100, 2))
    assert look_ups_for(50, frozenset((LogKey(AUTHOR.id, 50),))) == 1


def test_who_does_not_read_the_answers_gets_no_credit_for_more() -> None:
    """Each answer makes room for a proposal; unread, they would pile up without end."""
    config = SessionConfig(
        answer_bytes_max=1000, refused_credit_max=1e9, refused_credit_per_s=1e9, idle_work_max=1e9
    )
    peer = Impolite(follows=False, config=config)
    peer.run()
    unread, number, credit = bytearray(), 0, 64
    decoder = ControlDecoder()

    def answers() -> None:
        peer.sent()
        peer.wait(TICK_S)
        data = peer.engine.control_to_send()
        unread.extend(data)
        peer.engine.unread(len(unread))
        decoder.feed(data)

    def granted() -> int:
        units = 0
        while (message := decoder.next_message()) is not None:
            units += message.units if isinstance(message, Grant) else 0
        return units

    peer.messages()
    for _ in range(100):
        for each in range(2 * number, 2 * (number + credit), 2):
            peer.control(propose(each, log=LogKey(AUTHOR.id, each)), cancel(each))
            peer.data(encode_request_cancelled(each))
        number += credit
        answers()
        credit = granted()
    assert 1000 < len(unread) < 3000
    # It is told once, and not whenever more is said.
    told = [each for each in peer.host.notices if isinstance(each, LimitMet)]
    assert told == [LimitMet(Limit.ANSWER_BYTES)]
    assert credit == 0
    read = number
    for _ in range(5):
        unread.clear()
        answers()
        credit += granted()
    assert credit == 64
    assert read < 64 + 1000


def test_logs_of_an_author_that_was_asked_for_go_ahead_of_other_offers() -> None:
    """Who follows an author cannot name the logs, which come by offers only."""
    store, authors = Store(), [Author(SigningKey(bytes([n]) * 32)) for n in range(5)]
    offered = frozenset(LogKey(author.id, number) for author in authors for number in range(100))
    for author in authors:
        for number in range(100):
            store.append(author, number, b"x")
    wanted = sorted(author.id for author in authors)[2]
    for proactive in (0, 1):
        stores = (store, Store()) if proactive == 0 else (Store(), store)
        pair = Pair(SessionConfig(request_credit=8, refused_credit_max=10.0), stores=stores)
        giver, taker = (
            Interests(logs=offered),
            Interests(frozenset((LogKey(wanted, 0),)), authors=frozenset((wanted,))),
        )
        pair.connect((giver, taker) if proactive == 0 else (taker, giver))
        for _ in range(4):
            pair.run(advance_s=TICK_S)
        held = pair.hosts[1 - proactive].store
        assert {log.author for log in held.logs if held.height(log)} == {wanted}
        assert sum(held.height(log) for log in offered) == 100


@pytest.mark.parametrize("asker", [0, 1])
@pytest.mark.parametrize("in_step", [False, True])
def test_a_sync_takes_no_longer_since_the_other_side_has_many_logs(
    asker: int, *, in_step: bool
) -> None:
    """1,000 logs: of one the sync lacks an entry, of the others it wants nothing, or has all."""
    giver, taker = Store(), Store()
    everything = logs(*range(1000))
    for number in range(1000):
        giver.append(AUTHOR, number, b"same")
        if in_step:
            taker.append(AUTHOR, number, b"same")
    giver.append(AUTHOR, 700, b"new")
    mine = everything if in_step else logs(700)
    interests = [Interests(logs=mine, held=mine if in_step else set()), Interests(logs=everything)]
    stores = [taker, giver]
    policies = ["sync", "follow"]
    if asker == 1:
        interests, stores, policies = interests[::-1], stores[::-1], policies[::-1]
    pair = Pair(stores=(stores[0], stores[1]))
    pair.connect((interests[0], interests[1]), policy=policies[0], second=policies[1])
    notices, began = pair.hosts[asker].notices, pair.now
    while not any(isinstance(notice, SyncFinished) for notice in notices):
        pair.run(advance_s=TICK_S)
        assert pair.now < began + 100
    assert taker.newest(LogKey(AUTHOR.id, 700)) == 2
    assert pair.now - began < (5.0 if in_step else 2.0)
