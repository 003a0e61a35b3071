"""Who has had least of late goes first: accounts, what waits in lines, turns in the event loop."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing

from logstore import ALL, Store
from peer import (
    EntriesReceived,
    EntriesSent,
    Ingest,
    Ingested,
    Interests,
    PayloadsReceived,
    PeerHolds,
    RequestCancelled,
)
from peer.node import fairness
from peer.node.fairness import (
    AHEAD_MAX_S,
    HALF_LIFE_S,
    LONGEST_WAITING_EVERY,
    REFUSAL_WORTH_S,
    REST_TIMES,
    USEFUL_WEIGHT,
    Account,
    Accounts,
    Line,
    Seat,
    Turns,
)
from peer.node.host.lane import JOBS_CONTESTED_MAX, JOBS_MAX, Job, Lane
from wire import CancelReason, LogKey

from .support import PATIENCE_S, Author, Client, running_host


def test_what_was_spent_is_forgotten_by_and_by() -> None:
    account = Account()
    account.charge(4.0, 100.0)
    assert account.spent_s(100.0) == 4.0
    assert account.spent_s(100.0 + HALF_LIFE_S) == pytest.approx(2.0)
    account.charge(1.0, 100.0 + HALF_LIFE_S)
    assert account.spent_s(100.0 + 2 * HALF_LIFE_S) == pytest.approx(1.5)


def test_the_connections_of_a_peer_spend_together() -> None:
    accounts = Accounts()
    one, another, other_peer = (accounts.open(who, 0.0) for who in ("amy", "amy", "ben"))
    one.charge(2.0, 0.0)
    other_peer.charge(0.5, 0.0)
    line = Line[str]()
    for account, item in ((one, "one"), (another, "another"), (other_peer, "other peer")):
        line.put(account, item)
    assert [line.take(0.0)[1] for _ in range(3)] == [["other peer"], ["another"], ["one"]]


def test_who_comes_back_is_no_newcomer_and_whoever_spent_least_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fairness, "ACCOUNTS_MAX", 3)
    accounts = Accounts()
    accounts.open("flood", 0.0).charge(5.0, 0.0)
    for number in range(10):
        accounts.open(f"stranger {number}", 0.0).charge(0.1, 0.0)
    assert accounts.open("flood", 0.0).payer.spent_s(0.0) == 5.0


def test_what_came_to_something_counts_little_and_waste_counts_whole() -> None:
    """Else who has copied a large log would wait for a flood that has just begun."""
    copies, floods = Account(), Account()
    copies.charge(5.0, 0.0)
    copies.earn(5.0, 0.0)
    floods.charge(1.0, 0.0)
    assert copies.level(0.0) < floods.level(0.0)
    assert copies.spent_s(0.0) == pytest.approx(0.5)
    # No more is earned than was charged, but for a little that goes ahead.
    copies.earn(100.0, 0.0)
    copies.charge(1.0, HALF_LIFE_S)
    wasted_s = 1.0 - AHEAD_MAX_S / 2
    weighed_s = wasted_s + USEFUL_WEIGHT * (2.5 + 1.0 - wasted_s)
    assert copies.spent_s(HALF_LIFE_S) == pytest.approx(weighed_s)


def test_what_a_turn_earns_before_its_cost_is_known_is_no_waste() -> None:
    account, other = Account(), Account()
    for turn in range(100):
        now = 0.01 * turn
        account.earn(0.01, now)
        account.charge(0.01, now)
        other.charge(0.01, now)
    assert account.wasted_s(1.0) == 0.0
    assert other.wasted_s(1.0) > 0.9


def test_a_connection_earns_by_what_it_moves() -> None:
    async def run() -> None:
        seat = Turns().seat(Accounts().open("amy", 0.0))
        seat.account.charge(10.0, trio.current_time())
        log = LogKey(bytes(32), 0)
        interests, now = Interests(logs=frozenset((log,))), trio.current_time()
        sent, received = EntriesSent(log, 5, 50_000, 0), EntriesReceived(log, 5, 10_000, 0)
        seat.earn([sent, received], interests, now)
        seat.earn([PayloadsReceived(log, 5, 100_000_000), PeerHolds(log, 5, 5)], interests, now)
        assert seat.account.spent_s(trio.current_time()) == pytest.approx(10 - 0.9 * 4.6)

    trio.run(run, clock=trio.testing.MockClock())


@pytest.mark.parametrize(
    ("interests", "counts"),
    [
        (Interests(everything=True), 10.0),
        (Interests(everything=True, authors=frozenset((bytes(32),))), 1.0),
        (Interests(everything=True, fetches={LogKey(bytes(32), 0): ((1, 5),)}), 1.0),
        (Interests(own=frozenset((LogKey(bytes(32), 0),))), 1.0),
    ],
    ids=["everything", "author", "fetched", "own"],
)
def test_what_nobody_asked_for_by_name_earns_nothing(interests: Interests, counts: float) -> None:
    """Authors cost nothing: valid entries of new ones would be a flood that counts for little."""

    async def run() -> None:
        seat = Turns().seat(Account())
        seat.account.charge(10.0, trio.current_time())
        log = LogKey(bytes(32), 0)
        now = trio.current_time()
        seat.earn([EntriesReceived(log, 5, 1000 * 1000, 0)], interests, now)
        seat.earn([PayloadsReceived(log, 5, 10**12)], interests, now)
        assert seat.account.spent_s(trio.current_time()) == pytest.approx(counts)

    trio.run(run, clock=trio.testing.MockClock())


def test_whoever_refuses_what_he_was_offered_has_wasted_nothing() -> None:
    """A node with a thousand logs would have each peer rest that wants one of them."""

    async def run() -> None:
        seat, log = Turns().seat(Account()), LogKey(bytes(32), 0)
        now = trio.current_time()
        seat.account.charge(1.0, now)
        for ours, by_us in ((True, False), (True, True), (False, False)):
            refused = RequestCancelled(3, log, CancelReason.NOT_WANTED, by_us, ours)
            for _ in range(100):
                seat.earn([refused], Interests(), now)
        assert seat.account.wasted_s(now) == pytest.approx(1.0 - 100 * REFUSAL_WORTH_S)

    trio.run(run, clock=trio.testing.MockClock())


def test_a_line_serves_who_has_spent_much_less_each_in_order() -> None:
    line = Line[str]()
    rich, poor = Account(), Account()
    rich.charge(4.0, 0.0)
    for number in range(3):
        line.put(rich, f"rich {number}")
    for number in range(3):
        line.put(poor, f"poor {number}")
    taken = []
    while line:
        account, [item] = line.take(0.0)
        account.charge(0.4, 0.0)
        taken.append(item)
    assert taken == ["poor 0", "poor 1", "poor 2", "rich 0", "rich 1", "rich 2"]


def test_those_who_have_spent_about_the_same_take_turns() -> None:
    """By what is left of ten milliseconds, whoever has had less would be served for a minute: what
    he has is forgotten as fast as it grows."""
    line, served = Line[int](), Counter[Account]()
    accounts = [Account() for _ in range(50)]
    for number, account in enumerate(accounts):
        account.charge(0.001 * number, 0.0)
    for item in range(1000):
        for account in accounts:
            line.put(account, item)
    for turn in range(5000):
        now = 0.0001 * turn
        account, [item] = line.take(now)
        assert item == served[account]
        served[account] += 1
        account.charge(0.0001, now)
        account.earn(0.0001, now)
    assert max(served.values()) <= min(served.values()) * 1.5


def test_peers_take_turns_however_many_connections_each_has() -> None:
    line, accounts, served = Line[int](), Accounts(), Counter[Account]()
    for who, connections in (("amy", 20), ("ben", 1)):
        for _ in range(connections):
            account = accounts.open(who, 0.0)
            for item in range(500):
                line.put(account, item)
    for _ in range(400):
        served[line.take(0.0)[0].payer] += 1
    assert max(served.values()) <= min(served.values()) * 1.5


def test_nobody_stands_still() -> None:
    line = Line[int]()
    waits, others = Account(), Account()
    waits.charge(100.0, 0.0)
    line.put(waits, -1)
    for number in range(20):
        line.put(others, number)
    taken = [line.take(0.0)[1][0] for _ in range(LONGEST_WAITING_EVERY)]
    assert taken == [*range(LONGEST_WAITING_EVERY - 1), -1]


async def test_who_comes_alone_is_let_through_at_once() -> None:
    turns = Turns()
    for _ in range(3):
        with trio.CancelScope() as scope:
            scope.cancel()
            await turns.take(Account())
        assert not scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()


async def test_the_tasks_of_one_account_share_a_pass_where_nobody_else_waits() -> None:
    turns, account, other = Turns(), Account(), Account()
    order = list[str]()

    async def work(who: Account, name: str) -> None:
        await turns.take(who)
        order.append(name)

    await turns.take(account)
    for name in ("reads", "writes"):
        await work(account, name)
    # The pass is still taken: somebody else waits for the next one, and so does who comes now.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, other, "other")
        await trio.lowlevel.checkpoint()
        nursery.start_soon(work, account, "again")
    assert order == ["reads", "writes", "other", "again"]


async def test_a_newcomer_waits_for_none_of_many_connections() -> None:
    turns, done = Turns(), []
    accounts = Accounts()
    accounts.open("flood", 0.0).charge(60.0, trio.current_time())

    async def connection(who: str, count: int) -> None:
        account = accounts.open(who, 0.0)
        for _ in range(count):
            await turns.take(account)
            account.charge(0.001, trio.current_time())
            done.append(who)
            await trio.lowlevel.checkpoint()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(connection, "flood", 50)
            while len(done) < 100:
                await trio.lowlevel.checkpoint()
            del done[:]
            nursery.start_soon(connection, "newcomer", 20)
    last = len(done) - done[::-1].index("newcomer")
    # A turn that finds the newcomer on its way to its next one goes to somebody else.
    assert last < 4 * 20
    assert done.count("flood") >= 890


async def test_a_turn_that_nobody_takes_is_passed_on() -> None:
    turns, account, told = Turns(), Account(), trio.Event()

    async def take() -> None:
        await turns.take(account)
        told.set()

    async with trio.open_nursery() as nursery:
        await turns.take(Account())
        with trio.CancelScope() as scope:
            scope.cancel()
            await turns.take(account)
        assert scope.cancelled_caught
        nursery.start_soon(take)
        with trio.fail_after(PATIENCE_S):
            await told.wait()


async def test_a_lane_does_the_jobs_of_a_newcomer_before_a_backlog() -> None:
    lane, gate = Lane(), threading.Event()
    order: list[str] = []
    flood, newcomer = Account(), Account()

    def job(name: str) -> Job:
        def work() -> Callable[[], None]:
            gate.wait()
            return partial(order.append, name)

        return Job(work, lambda error: None)

    async with trio.open_nursery() as nursery:
        await nursery.start(lane.run)
        flood.charge(1.0, trio.current_time())
        for _ in range(3 * JOBS_MAX):
            lane.put(job("flood"), flood)
        await trio.testing.wait_all_tasks_blocked()
        told: list[int] = []
        for _ in range(3):
            lane.put(job("newcomer"), newcomer)
        lane.when_done(lambda: told.append(len(order)))
        lane.put(job("later"), newcomer)
        gate.set()
        await lane.wait_idle()
        nursery.cancel_scope.cancel()
    assert order.index("newcomer") <= JOBS_MAX + JOBS_CONTESTED_MAX
    assert len(order) == 3 * JOBS_MAX + 4
    assert told == [len(order)]
    assert 0 < newcomer.spent_s(trio.current_time()) < flood.spent_s(trio.current_time())


async def test_the_entries_of_a_newcomer_are_checked_before_a_backlog() -> None:
    author, other = Author(), Author(2)
    for seq in range(1, 2001):
        author.sign(seq, b"")
    other.sign(1, b"")
    with Store.memory() as store:
        store.follow(ALL)
        async with running_host(store) as host:
            flood, newcomer = Client(host), Client(host)
            flood.port.account.charge(10.0, trio.current_time())
            flood.submit(Ingest([author.item(seq) for seq in range(1, 2001)]))
            newcomer.submit(Ingest([other.item(1)]))
            await newcomer.wait_for(Ingested)
            stored = sum(event.entries for event in flood.of(Ingested))
            assert stored < 2000
            await host.wait_idle()
            assert (
                len(
                    store.read(
                        author.log, 1, entries_max=3000, bytes_max=1 << 20, with_payload=False
                    )
                )
                == 2000
            )


async def test_who_has_wasted_much_more_rests_while_somebody_else_is_busy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns, accounts = Turns(), Accounts()
    flood = [turns.seat(accounts.open("flood", 0.0)) for _ in range(20)]
    modest = turns.seat(accounts.open("modest", 0.0))
    spent: dict[str, float] = {"flood": 0.0, "modest": 0.0}

    async def work(seat: Seat, who: str, seconds: float, count: int) -> None:
        for _ in range(count):
            await seat.turn()
            autojump_clock.jump(seconds)
            seat.account.charge(seconds, trio.current_time())
            spent[who] += seconds
            await trio.lowlevel.checkpoint()

    with trio.fail_after(PATIENCE_S):
        # Alone, it has all of the loop.
        began = trio.current_time()
        await work(flood[0], "flood", 0.01, 200)
        assert trio.current_time() - began == pytest.approx(2.0)
        async with trio.open_nursery() as nursery:
            for seat in flood:
                nursery.start_soon(work, seat, "flood", 0.01, 10_000)
            spent["flood"] = 0.0
            await work(modest, "modest", 0.01, 60)
            assert spent["flood"] < 0.35 * spent["modest"]
            # Whoever does little slows nobody down.
            await trio.sleep(1.0)
            before, began = spent["flood"], trio.current_time()
            for _ in range(10):
                await trio.sleep(0.2)
                await work(modest, "modest", 0.001, 1)
            assert spent["flood"] - before > 0.9 * (trio.current_time() - began)
            nursery.cancel_scope.cancel()


def test_a_rest_is_as_long_as_all_that_was_done_meanwhile() -> None:
    """A job of a thread that took a moment would end the rest after a long turn."""
    accounts = Accounts()
    flood, modest = accounts.open("flood", 0.0), accounts.open("modest", 0.0)
    flood.charge(2.0, 0.0)
    modest.charge(0.05, 0.0)
    flood.charge(0.1, 0.0)
    flood.charge(0.001, 0.05)
    assert flood.rests_until_s == pytest.approx(0.101 * REST_TIMES)


def test_nobody_rests_for_what_came_to_something() -> None:
    """Else who has copied for long rests for an attack that is new."""
    accounts = Accounts()
    copies, is_new = accounts.open("copies", 0.0), accounts.open("new", 0.0)
    copies.charge(20.0, 0.0)
    copies.earn(20.0, 0.0)
    is_new.charge(0.05, 0.0)
    copies.charge(0.04, 0.0)
    assert copies.rests_until_s < 0
    # Its turn comes behind all the same.
    assert is_new.level(0.0) < copies.payer.level(0.0)


def test_connections_of_one_account_rest_for_each_other() -> None:
    """All that comes through one tunnel is one account, and only one of them floods."""
    accounts = Accounts()
    flood, modest, alone = (accounts.open(who, 0.0) for who in ("tunnel", "tunnel", "alone"))
    flood.charge(2.0, 0.0)
    modest.charge(0.05, 0.0)
    assert flood.rests_until_s < 0
    flood.charge(0.1, 0.0)
    assert flood.rests_until_s == pytest.approx(0.1 * REST_TIMES)
    assert modest.rests_until_s < 0
    # And all of them for somebody else who has had less than they together.
    alone.charge(0.05, 0.0)
    modest.charge(0.01, 0.0)
    assert modest.rests_until_s == pytest.approx(0.01 * REST_TIMES)
    assert alone.rests_until_s < 0


async def test_the_jobs_of_who_rests_wait_while_others_are_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lane, order = Lane(), list[tuple[str, float]]()
    greedy, modest = Account(), Account()

    def job(name: str) -> Job:
        told = partial(lambda: order.append((name, trio.current_time())))
        return Job(lambda: told, lambda error: None)

    async with trio.open_nursery() as nursery:
        await nursery.start(lane.run)
        greedy.own_rest_until_s = 5.0
        for _ in range(3):
            lane.put(job("greedy"), greedy)
        await trio.sleep(1.0)
        lane.put(job("modest"), modest)
        lane.put(job("own"))
        await lane.wait_idle()
        nursery.cancel_scope.cancel()
    assert order == [("own", 1.0), ("modest", 1.0)] + [("greedy", 5.0)] * 3
