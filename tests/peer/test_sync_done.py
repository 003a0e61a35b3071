"""When a one-time sync may call itself done, and what has to be looked at before."""

from collections import Counter
from collections.abc import Callable

import pytest
from nacl.signing import SigningKey

from logstore import PolicyKind, Subscription
from peer.planner.done import Done
from peer.protocol.commands import LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged, LogView
from peer.protocol.notices import SyncFinished
from wire import LogKey

from .rig import Author, Pair, Store
from .test_policies import LOG as FORKED
from .test_policies import settle
from .test_policies import store_of as forking_store_of

AUTHOR = Author(SigningKey(b"d" * 32))
LOG = LogKey(AUTHOR.id, 0)
FOLLOWS = Interests(logs=frozenset((LOG,)))
SETTLE_S = SessionConfig().sync_settle_s

Look = Callable[[LookUp], LogView]


def store_of(count: int) -> Store:
    """Payloads of 10 and of 100 bytes in turn."""
    store = Store()
    for seq in range(1, count + 1):
        store.append(AUTHOR, 0, b"%d" % (seq % 10) * (100 if seq % 2 else 10))
    return store


def connected(store: Store, *, at: float = 0.0) -> Pair:
    """A host that syncs with nobody but follows, and a host with this store."""
    pair = Pair(stores=(Store(), store))
    pair.now = at
    pair.connect((FOLLOWS, FOLLOWS), policy="sync")
    return pair


def exchange(pair: Pair) -> None:
    """All that is done and said at one moment, but no pings."""
    for _ in range(30):
        for side in (0, 1):
            pair.hosts[side].step()
            pair.pump(side)
            pair.deliver_control(side, 1000)
            pair.deliver_data(side, 1000)


def is_done(pair: Pair) -> bool:
    return SyncFinished(1) in pair.engine(0).notices()


def test_an_answer_to_an_older_ping_does_not_count() -> None:
    """Something happened after that ping, of which the other side may not know yet."""
    pair = connected(Store())
    here = pair.engine(0)
    exchange(pair)
    assert here.wants_pong
    here.ping_sent()
    followed = Interests(logs=frozenset((LOG, LogKey(AUTHOR.id, 1))))
    here.handle(InterestsChanged(followed, ()))
    assert here.wants_pong
    here.pong_arrived()
    pair.tick(60.0)
    assert not is_done(pair)
    here.ping_sent()
    here.pong_arrived()
    pair.tick(60.0)
    assert is_done(pair)


def test_a_sync_is_not_done_before_its_last_bytes_have_left() -> None:
    """There may be no credit for them, and a ping needs none."""
    pair = Pair(stores=(store_of(1), Store()), credit=200)
    pair.connect((FOLLOWS, FOLLOWS), policy="sync")
    here = pair.engine(0)
    for _ in range(60):
        for side in (0, 1):
            pair.hosts[side].step()
            pair.pump(side)
            pair.deliver_control(side, 1000)
        pair.deliver_data(1, 1000)
        pair.tick(0.01)
    assert (pair.data_credit[0], here.requests, here.wants_pong) == (0, 1, False)
    settle(pair)
    assert pair.hosts[1].store.logs[LOG] == store_of(1).logs[LOG]
    assert SyncFinished(1) in pair.hosts[0].notices


@pytest.mark.parametrize(
    ("answer_s", "done_after_s"), [(0.01, SETTLE_S), (0.3, 6 * 0.3), (30.0, 10 * SETTLE_S)]
)
def test_who_takes_long_to_answer_is_given_longer_to_speak(
    answer_s: float, done_after_s: float
) -> None:
    pair = connected(Store())
    here = pair.engine(0)
    pair.pump(1)
    pair.deliver_control(1, 1000)
    while pair.hosts[0].step():
        pass
    assert here.requests == 1
    pair.tick(answer_s)
    exchange(pair)
    assert here.wants_pong
    here.ping_sent()
    here.pong_arrived()
    pair.tick(done_after_s - 0.001)
    assert not is_done(pair)
    pair.tick(0.002)
    assert is_done(pair)


def test_what_was_offered_before_it_was_known_what_is_wanted_is_asked_for() -> None:
    pair = connected(store_of(3))
    pair.hosts[0].todo.clear()
    pair.run()
    # The log is not held here, so only what the other side said tells of it.
    pair.hosts[0].todo.append(InterestsChanged(FOLLOWS, ()))
    settle(pair)
    assert pair.hosts[0].store.logs[LOG] == store_of(3).logs[LOG]


def test_what_is_left_out_of_an_offer_is_fetched_once_the_offer_is_over() -> None:
    """The small payloads of a log are wanted once, and the other side comes to bring the log."""
    pair = Pair(stores=(Store(), store_of(30)))
    wants = Interests(
        subscriptions={LOG: Subscription(min_bytes=60)},
        logs=frozenset((LOG,)),
        fetches={LOG: ((8, 108),)},
    )
    pair.connect((wants, FOLLOWS), policy="sync", second="sync")
    late = pair.hosts[0].todo.pop()
    for side in (1, 0, 1, 0, 1, 0):
        pair.hosts[side].step()
        pair.pump(side)
        pair.deliver_control(side, 1000)
    pair.hosts[0].todo.append(late)
    settle(pair)
    held = pair.hosts[0].store.logs[LOG]
    assert {seq for seq in held if held[seq].payload is None} == {2, 4, 6}


def look_ups_of(pair: Pair) -> list[Counter[LogKey]]:
    """How often each log is looked up from now on, by each side."""
    found: list[Counter[LogKey]] = []
    for host in pair.hosts:
        view, counts = host.view, Counter[LogKey]()

        def counted(
            item: LookUp, *, of: Counter[LogKey] = counts, looked_up: Look = view
        ) -> LogView:
            of[item.log] += 1
            return looked_up(item)

        host.view = counted  # type: ignore[method-assign]
        found.append(counts)
    return found


def test_of_logs_in_step_each_is_looked_up_a_few_times() -> None:
    """Thousands may be followed and one have changed; each look costs a way to a thread and back.

    A sync looks at what it is told and at what it is asked, and probes without a look; who stays
    looks before it proposes and when it is asked.
    """
    count = 200
    stores = Store(), Store()
    for store in stores:
        for log_id in range(count):
            store.append(AUTHOR, log_id, b"x")
    followed = Interests(logs=frozenset(LogKey(AUTHOR.id, n) for n in range(count)))
    pair = Pair(stores=stores)
    look_ups = look_ups_of(pair)
    pair.connect((followed, followed), policy="sync")
    pair.run()
    for side, most in ((0, 2.5), (1, 2.5)):
        assert len(look_ups[side]) == count
        assert sum(look_ups[side].values()) <= most * count
    assert pair.hosts[0].store.logs == pair.hosts[1].store.logs


def time_of_a_sync(stores: tuple[Store, Store], interests: tuple[Interests, Interests]) -> float:
    """When the first host says that its one-time sync is done; nothing takes time by itself."""
    pair = Pair(stores=stores)
    pair.connect(interests, policy="sync", second="follow")
    pair.run()
    while SyncFinished(1) not in pair.hosts[0].notices:
        pair.run(advance_s=SETTLE_S / 10)
        assert pair.now < 10
    return pair.now


def test_who_asks_otherwise_than_it_was_offered_is_not_waited_for() -> None:
    newest = Interests(
        logs=frozenset((LOG,)), subscriptions={LOG: Subscription(PolicyKind.LATEST, 5)}
    )
    there = Store()
    assert time_of_a_sync((store_of(20), there), (FOLLOWS, newest)) < 1.5 * SETTLE_S
    assert set(range(16, 21)) <= set(there.logs[LOG])


@pytest.mark.parametrize("heights", [(8, 8), (8, 12), (12, 8)])
def test_who_has_told_of_a_fork_is_waited_for_no_longer(heights: tuple[int, int]) -> None:
    ours, theirs = (
        forking_store_of(height, salt=salt, salt_from=4)
        for height, salt in zip(heights, (b"l", b"r"), strict=True)
    )
    follows = Interests(logs=frozenset((FORKED,)))
    assert time_of_a_sync((ours, theirs), (follows, follows)) < 1.5 * SETTLE_S
    assert FORKED in ours.forks
    assert FORKED in theirs.forks


def test_who_can_prove_a_fork_and_does_not_tell_of_it_is_waited_for() -> None:
    done = Done(SessionConfig())
    done.ping_sent()
    done.pong_arrived(10.0)
    assert done.at == 10.0 + SETTLE_S
    done.proof_sent(LOG, 10.0)
    assert done.at == 10.0 + SessionConfig().retry_first_s + SETTLE_S
