"""What nodes do with each other, in a plain order: following, syncing, mending, forks, relays."""

from collections import Counter

import pytest
from nacl.signing import SigningKey

from peer.planner.planner import Planner
from peer.protocol.buckets import LogBucket
from peer.protocol.commands import FinishPayload
from peer.protocol.config import SessionConfig
from peer.protocol.events import Event, Interests, PayloadFinished, Refusal, Verdict
from peer.protocol.notices import EntriesReceived, Limit, LimitMet, PayloadsReceived, SyncFinished
from tests.records import replace
from wire import CancelReason, Grant, LogKey, Propose, encode_control, encode_request_cancelled

from .impolite import Impolite, cancel, log_of, propose
from .rig import Author, Held, Pair, Store

AUTHOR = Author(SigningKey(b"p" * 32))
LOG = LogKey(AUTHOR.id, 0)
FOLLOWS = Interests(logs=frozenset((LOG,)))


def store_of(count: int, *, salt: bytes = b"", salt_from: int = 1) -> Store:
    """A store with `count` entries; from `salt_from` on the payloads depend on `salt`."""
    store = Store()
    for seq in range(1, count + 1):
        store.append(AUTHOR, 0, (salt if seq >= salt_from else b"") + b"%d" % seq * 30)
    return store


def settle(pair: Pair) -> None:
    for _ in range(12):
        pair.run(advance_s=1.0)


def connect(left: Store, right: Store, *, policy: str = "follow") -> Pair:
    pair = Pair(stores=(left, right))
    pair.connect((FOLLOWS, FOLLOWS), policy=policy)
    settle(pair)
    return pair


def drop_payloads(store: Store, *seqs: int) -> None:
    for seq in seqs:
        held = store.logs[LOG][seq]
        store.logs[LOG][seq] = Held(held.encoded, held.hash, None)


@pytest.mark.parametrize("policy", ["follow", "sync"])
@pytest.mark.parametrize("side", [0, 1])
def test_missing_payloads_below_the_height_are_fetched(policy: str, side: int) -> None:
    """More of them than one view names, each by a request of its own."""
    stores = (store_of(20), store_of(20))
    drop_payloads(stores[side], 2, 3, 5, 7, 11, 13, 19)
    connect(*stores, policy=policy)
    if policy == "sync" and side == 1:
        return  # the other side only answers; its own policy would ask
    assert stores[side].logs[LOG] == store_of(20).logs[LOG]


def test_who_wants_nothing_of_a_log_is_asked_for_missing_payloads_too() -> None:
    """It refuses what is behind the newest entry, and nothing else was ever proposed."""
    left = store_of(6)
    drop_payloads(left, 2)
    pair = Pair(stores=(left, store_of(6)))
    pair.connect((FOLLOWS, Interests()))
    settle(pair)
    assert left.logs[LOG] == store_of(6).logs[LOG]


def test_a_payload_that_nobody_has_is_asked_for_once() -> None:
    stores = (store_of(20), store_of(20))
    for store in stores:
        drop_payloads(store, 5)
    pair = connect(*stores)
    before = [pair.engine(side).requests for side in (0, 1)]
    settle(pair)
    assert [pair.engine(side).requests for side in (0, 1)] == before == [1, 1]


def test_a_missing_payload_resumes_where_it_stopped() -> None:
    stores = (store_of(9), store_of(9))
    drop_payloads(stores[0], 4)
    stores[0].partial[LOG, 4] = b"4" * 12
    connect(*stores)
    assert stores[0].logs[LOG][4].payload == b"4" * 30


def test_a_wrong_prefix_blames_nobody_and_is_fetched_again() -> None:
    """point2point.md 8."""
    stores = (store_of(9), store_of(9))
    drop_payloads(stores[0], 4, 9)
    stores[0].partial[LOG, 4] = b"?" * 12
    stores[0].partial[LOG, 9] = b"?" * 12
    connect(*stores)
    assert stores[0].logs[LOG] == stores[1].logs[LOG]


def test_entries_behind_a_payload_that_nobody_has_are_passed_on() -> None:
    stores = (store_of(3), store_of(20))
    drop_payloads(stores[0], 3)
    drop_payloads(stores[1], 3, 5, 6)
    connect(*stores)
    assert stores[0].logs[LOG] == stores[1].logs[LOG]


@pytest.mark.parametrize("counts", [(0, 9), (9, 0), (5, 9), (9, 5), (9, 9), (0, 0)])
@pytest.mark.parametrize("second", ["follow", "sync"])
def test_a_sync_brings_both_to_the_same_and_says_so(counts: tuple[int, int], second: str) -> None:
    pair = Pair(stores=(store_of(counts[0]), store_of(counts[1])))
    pair.connect((FOLLOWS, FOLLOWS), policy="sync", second=second)
    settle(pair)
    stores = [host.store for host in pair.hosts]
    assert stores[0].logs[LOG] == stores[1].logs[LOG] == store_of(max(counts)).logs[LOG]
    assert SyncFinished(1) in pair.hosts[0].notices


@pytest.mark.parametrize("failures", [1, 3, 99])
def test_a_sync_waits_for_a_side_that_could_not_keep_what_it_got(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cancels with 129 and asks again (point2point.md 6); but not for ever."""
    pair = Pair(stores=(store_of(9), Store()))
    there, left = pair.hosts[1], [failures]
    put = there._put

    def fail(*entry: object) -> Refusal | None:
        left[0] -= 1
        return Refusal.STORAGE if left[0] >= 0 else put(*entry)  # type: ignore[arg-type]

    monkeypatch.setattr(there, "_put", fail)
    pair.connect((FOLLOWS, FOLLOWS), policy="sync")
    for _ in range(80):
        pair.run(advance_s=0.25)
        if SyncFinished(1) in pair.hosts[0].notices:
            break
    assert SyncFinished(1) in pair.hosts[0].notices
    assert set(there.store.logs[LOG]) == (set() if failures == 99 else set(range(1, 10)))


IN_PIECES = SessionConfig(small_payload_bytes_max=0, quantum_bytes=256)
"""Every payload goes through a sink."""


@pytest.mark.parametrize("policy", ["follow", "sync"])
def test_a_small_payload_that_could_not_be_kept_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    left = store_of(6)
    drop_payloads(left, 2, 3)
    pair = Pair(stores=(left, store_of(6)))
    put, tries = pair.hosts[0]._put, Counter[int]()

    def fail_once(log: LogKey, seq: int, encoded: bytes, payload: bytes | None) -> Refusal | None:
        tries[seq] += 1
        return Refusal.STORAGE if tries[seq] == 1 else put(log, seq, encoded, payload)

    monkeypatch.setattr(pair.hosts[0], "_put", fail_once)
    pair.connect((FOLLOWS, FOLLOWS), policy=policy)
    settle(pair)
    assert left.logs[LOG] == store_of(6).logs[LOG]
    assert set(tries) == {2, 3}
    assert not any(isinstance(each, EntriesReceived) for each in pair.hosts[0].notices)
    received = [each.newest for each in pair.hosts[0].notices if isinstance(each, PayloadsReceived)]
    assert sorted(received) == [2, 3]


@pytest.mark.parametrize("slow", [False, True])
def test_a_sync_asks_again_for_a_payload_that_could_not_be_kept(
    monkeypatch: pytest.MonkeyPatch, *, slow: bool
) -> None:
    """A disk that is full is given some seconds; if it is slow too, the request is over before."""
    left = store_of(6)
    drop_payloads(left, 2)
    pair = Pair(config=IN_PIECES, stores=(left, store_of(6)))
    here = pair.hosts[0]
    finish = here._finish
    late: list[Event] = []

    def fail(item: FinishPayload) -> list[Event]:
        if pair.now > 4.0:
            return finish(item)
        del here.sinks[item.sink]
        failed = PayloadFinished(item.sink, Verdict.STORAGE, "the disk is full")
        late.extend([failed] * slow)
        return [] if slow else [failed]

    monkeypatch.setattr(here, "_finish", fail)
    pair.connect((FOLLOWS, FOLLOWS), policy="sync")
    for _ in range(20):
        pair.run(advance_s=0.25)
        here.todo.extend(late)
        late.clear()
    settle(pair)
    assert left.logs[LOG] == store_of(6).logs[LOG]
    assert SyncFinished(1) in here.notices


def test_a_sync_asks_again_before_a_side_that_does_not_know_why_can_have_left() -> None:
    """The request was over when the store failed, so that only a prompt proposal tells of it."""
    left = store_of(6)
    drop_payloads(left, 2)
    pair = Pair(config=IN_PIECES, stores=(left, store_of(6)))
    here = pair.hosts[0]
    finish = here._finish
    late: list[Event] = []

    def fail_once(item: FinishPayload) -> list[Event]:
        here._finish = finish  # type: ignore[method-assign]
        del here.sinks[item.sink]
        late.append(PayloadFinished(item.sink, Verdict.STORAGE, "a bad moment"))
        return []

    here._finish = fail_once  # type: ignore[method-assign]
    pair.connect((FOLLOWS, FOLLOWS), policy="sync")
    while not late:
        pair.run(advance_s=0.05)
    pair.run(advance_s=0.05)
    here.todo.extend(late)
    failed_at, missing = pair.now, store_of(6).logs[LOG] != left.logs[LOG]
    assert missing
    while left.logs[LOG] != store_of(6).logs[LOG]:
        assert pair.now < failed_at + SessionConfig().sync_settle_s
        pair.run(advance_s=0.05)


def test_a_sync_gives_a_far_side_as_much_time_to_speak_as_a_near_one() -> None:
    """What it says first is a round trip away, and so is the answer to a ping."""
    pair = Pair()
    pair.connect((Interests(), FOLLOWS), policy="sync")
    engine = pair.engine(0)
    while pair.hosts[0].step():
        pass
    engine.advance()
    assert engine.wants_pong
    engine.ping_sent()
    for now, done in ((30.0, False), (30.0 + SessionConfig().sync_settle_s, True)):
        engine.now = now
        engine.pong_arrived()
        engine.advance()
        assert (SyncFinished(0) in engine.notices()) is done


def test_a_sync_does_not_end_before_it_has_answered() -> None:
    """The store takes its time to look a log up that the other side proposed."""
    pair = Pair(stores=(Store(), store_of(3)))
    pair.connect((Interests(everything=True), FOLLOWS), policy="sync")
    here = pair.engine(0)
    while pair.hosts[0].step():
        pass
    pair.hosts[1].step()
    for _ in range(9):
        pair.hosts[1].step()
        pair.pump(1)
        pair.deliver_control(0, 1000)
        pair.pump(0)
        pair.deliver_control(1, 1000)
    here.now = 9.0
    here.ping_sent()
    here.pong_arrived()
    here.now = pair.now = 10.0
    here.advance()
    settle(pair)
    assert pair.hosts[0].store.logs[LOG] == store_of(3).logs[LOG]
    assert SyncFinished(1) in pair.hosts[0].notices


def test_a_sync_ends_although_the_other_side_follows_what_we_merely_hold() -> None:
    pair = Pair(stores=(store_of(9), Store()))
    pair.connect((Interests(), FOLLOWS), policy="sync")
    settle(pair)
    assert pair.hosts[1].store.logs[LOG] == store_of(9).logs[LOG]
    assert SyncFinished(0) in pair.hosts[0].notices


@pytest.mark.parametrize("fork_at", [1, 2, 3, 7, 12, 13, 14, 30])
@pytest.mark.parametrize("lengths", [(30, 30), (30, 40), (40, 30)])
def test_the_earliest_fork_is_found_by_both(fork_at: int, lengths: tuple[int, int]) -> None:
    """Both histories are served by different hosts (bamboo.md, Verified)."""
    stores = (
        store_of(lengths[0], salt=b"l", salt_from=fork_at),
        store_of(lengths[1], salt=b"r", salt_from=fork_at),
    )
    connect(*stores)
    for store in stores:
        seq, proof = store.forks[LOG]
        assert seq == fork_at
        assert set(proof) == {s.logs[LOG][fork_at].encoded for s in stores}


def test_a_fork_proof_is_passed_on_to_who_holds_less() -> None:
    forked = store_of(20)
    other = store_of(20, salt=b"r", salt_from=10)
    forked.record_fork(LOG, 10, (forked.logs[LOG][10].encoded, other.logs[LOG][10].encoded))
    newcomer = store_of(4)
    connect(newcomer, forked)
    assert newcomer.height(LOG) == 9
    assert newcomer.forks[LOG][0] == 10


def test_a_third_store_gets_everything_through_a_relay() -> None:
    source, relay, sink = store_of(20), Store(), Store()
    for log_id in (1, 2):
        source.append(AUTHOR, log_id, b"x" * 900)
    everything = Interests(everything=True)
    pairs = [Pair(stores=(source, relay), credit=700), Pair(stores=(relay, sink), credit=700)]
    for pair in pairs:
        pair.connect((everything, everything))
    for _ in range(30):
        for pair in pairs:
            pair.run(advance_s=0.1)
    assert sink.logs == source.logs


def test_many_large_payloads_side_by_side_do_not_exhaust_the_receiver() -> None:
    """The sender does not begin more of them than `inside_payloads_max` at once."""
    stores = (Store(), Store())
    for log_id in range(100):
        stores[0].append(AUTHOR, log_id, b"%d" % log_id * 900)
    everything = Interests(everything=True)
    config = SessionConfig(small_payload_bytes_max=64, quantum_bytes=256, sinks_max=16)
    pair = Pair(config, stores=stores)
    pair.connect((everything, everything))
    pair.run()
    assert stores[1].logs == stores[0].logs


def test_more_offered_logs_than_we_take_in_are_refused_for_now() -> None:
    stores = (Store(), Store())
    for log_id in range(5):
        stores[0].append(AUTHOR, log_id, b"x")
    everything = Interests(everything=True)
    pair = Pair(replace(SessionConfig(), offered_logs_max=2, offered_logs_per_s=0.0), stores=stores)
    pair.connect((everything, everything))
    settle(pair)
    assert sum(bool(log) for log in stores[1].logs.values()) == 2
    # Three logs, each of which is offered again later.
    told = [each for each in pair.hosts[1].notices if isinstance(each, LimitMet)]
    assert len(told) >= 3
    assert set(told) == {LimitMet(Limit.OFFERED_LOGS)}


def test_what_is_offered_beyond_the_limit_is_not_asked_for_either() -> None:
    """The author knows no limit: it would confirm whatever is proposed to it."""
    stores = (Store(), Store())
    for log_id in range(12):
        stores[0].append(AUTHOR, log_id, b"x")
    everything, config = Interests(everything=True), SessionConfig()
    pair = Pair(config, stores=stores)
    pair.connect((everything, everything))
    policy = pair.engine(1)._planner
    assert isinstance(policy, Planner)
    policy._answers._new_logs = LogBucket(2, 0.0)
    settle(pair)
    assert sum(bool(log) for log in stores[1].logs.values()) == 2
    assert len(policy._logs.items()) == 2


def test_a_log_is_offered_once_the_proposal_that_covered_it_is_withdrawn() -> None:
    peer = Impolite(log_of(3))
    peer.engine.receive_control(encode_control(propose(0, 4, lower_info=1)))
    peer.host.step()
    peer.control(cancel(0, CancelReason.NO_RESOURCES), Grant(9))
    peer.sent()
    peer.data(encode_request_cancelled(0))
    assert [m.start for m in peer.messages() if isinstance(m, Propose)] == [4]
