"""News of logs in the turns of who made them: telling.py, and the inbox of a connection."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from logstore import Store
from peer import Event, Ingest, Ingested, LogChanged, LookedUp, LookUp
from peer.node.fairness import TURN_EVENTS, Account, Accounts, Turns
from peer.node.host.port import Port
from peer.node.host.telling import Pile, Telling
from peer.node.links.connection import Inbox
from wire import LogKey

from .support import Author, Client, running_host

LOGS = [LogKey(bytes([number]) * 32, 0) for number in range(1, 40)]


class Bench:
    """Two sessions that are told, and a flood whose account rests."""

    def __init__(self) -> None:
        accounts = Accounts()
        self.turns = Turns()
        self.flood, self.modest = (accounts.open(who, 0.0) for who in ("flood", "modest"))
        self.told: list[list[tuple[Event, Account | None]]] = []
        self.counts: list[int] = []
        """Of what was told at once."""
        self.ports = {self._port() for _ in range(2)}
        self.telling = Telling(self.ports, self.turns)

    def _port(self) -> Port:
        told: list[tuple[Event, Account | None]] = []
        self.told.append(told)

        def deliver(events: Sequence[Event], payer: Account | None) -> None:
            self.counts.append(len(events))
            told.extend((event, payer) for event in events)

        return Port(1, "a peer", deliver, lambda error: pytest.fail(str(error)))

    def logs(self) -> list[LogKey]:
        """Of which both were told, in that order."""
        one, other = ([cast(LogChanged, event).log for event, _ in told] for told in self.told)
        assert one == other
        return one

    def payers(self) -> list[Account | None]:
        return [None if payer is None else payer.payer for _, payer in self.told[0]]


def news(*numbers: int, height: int = 1) -> list[LogChanged]:
    return [LogChanged(LOGS[number], height, height) for number in numbers]


async def test_news_are_told_at_once_where_nobody_rests() -> None:
    bench = Bench()
    bench.telling.take(news(1, 2), {LOGS[1]: bench.flood})
    assert bench.logs() == [LOGS[2], LOGS[1]]
    assert bench.payers() == [None, bench.flood.payer]
    assert bench.telling.idle
    # Nothing is left for a task to do.
    assert not bench.telling._begun
    assert not bench.telling._piles


async def test_the_news_of_who_rests_wait_and_hold_up_no_others(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    makers = {LOGS[1]: bench.flood, LOGS[2]: bench.modest}
    bench.flood.payer.own_rest_until_s = trio.current_time() + 5.0
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.telling.run)
        for height in (1, 2, 3):
            bench.telling.take(news(1, height=height), makers)
            await trio.sleep(1.0)
        bench.telling.take(news(2, 3), makers)
        await wait_all_tasks_blocked()
        assert set(bench.logs()) == {LOGS[2], LOGS[3]}
        await trio.sleep(2.5)
        nursery.cancel_scope.cancel()
    # How the log is, and not how it came to be so.
    assert bench.told[0][2:] == [(news(1, height=3)[0], bench.told[0][2][1])]
    assert bench.payers()[2] is bench.flood.payer


async def test_news_of_a_log_go_over_to_who_brings_its_next_entry(
    autojump_clock: MockClock,
) -> None:
    bench = Bench()
    bench.flood.payer.own_rest_until_s = trio.current_time() + 5.0
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.telling.run)
        bench.telling.take(news(1, 2), {LOGS[1]: bench.flood, LOGS[2]: bench.flood})
        await wait_all_tasks_blocked()
        assert bench.logs() == []
        bench.telling.take(news(1, height=2), {LOGS[1]: bench.modest})
        bench.telling.take(news(2, height=2), {})
        await wait_all_tasks_blocked()
        assert bench.logs() == [LOGS[1], LOGS[2]]
        await trio.sleep(6.0)
        assert len(bench.told[0]) == 2
        assert 0 not in bench.counts
        nursery.cancel_scope.cancel()


async def tell_while_others_wait(
    bench: Bench, changes: list[LogChanged], behind_each: Callable[[], None]
) -> None:
    """Tells news of the flood's, in turns that somebody else wants as well."""
    tell = bench.telling._tell

    def told(pile: Pile) -> None:
        tell(pile)
        behind_each()

    bench.telling._tell = told  # type: ignore[method-assign]
    seat = bench.turns.seat(bench.modest)
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.telling.run)
        assert bench.turns.seat(Account()).turn_if_free()
        bench.telling.take(changes, dict.fromkeys(LOGS, bench.flood))
        with trio.fail_after(60.0):
            while not bench.telling.idle:
                await seat.turn()
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_where_others_wait_little_is_told_in_a_turn(autojump_clock: MockClock) -> None:
    bench = Bench()
    told_after = list[int]()
    await tell_while_others_wait(
        bench, news(*range(30)), lambda: told_after.append(sum(bench.counts))
    )
    assert len(bench.logs()) == 30
    in_turns = [after - before for before, after in pairwise((0, *told_after))]
    assert max(in_turns) == TURN_EVENTS
    # Few sessions are told much, and not many a little.
    assert len(bench.counts) == 2 * math.ceil(30 / TURN_EVENTS)


async def test_nobody_hears_of_the_older_behind_the_newer(autojump_clock: MockClock) -> None:
    """What is being told in turns has reached one session, and not yet the other."""
    bench = Bench()
    newer = iter([news(2, height=2)])

    def is_newer_now() -> None:
        assert any(bench.told)
        bench.telling.take(next(newer, []), {})

    await tell_while_others_wait(bench, news(*range(TURN_EVENTS)), is_newer_now)
    told = [[cast(LogChanged, event) for event, _ in told] for told in bench.told]
    heights = [[event.height for event in each if event.log == LOGS[2]] for each in told]
    assert sorted(heights) == [[1, 2], [2]]
    assert all({event.log for event in each} == set(LOGS[:TURN_EVENTS]) for each in told)


async def test_who_brought_a_log_pays_for_what_others_look_up_because_of_it() -> None:
    author = Author()
    author.sign(1, b"")
    with Store.memory() as store:
        async with running_host(store) as host:
            giver, other = Client(host), Client(host)
            giver.submit(Ingest([author.item(1)]))
            await giver.wait_for(Ingested)
            await other.wait_for(LogChanged)
            payer = other.payers[-1]
            assert payer is not None
            assert payer.payer is giver.port.account
            host.submit(other.port, [LookUp(1, author.log)], payer)
            await other.wait_for(LookedUp)
            now = trio.current_time()
            assert payer.spent_s(now) > 0
            assert other.port.account.spent_s(now) == 0
            # The signature, the transaction, and what came of it.
            assert giver.port.account.spent_s(now) > payer.spent_s(now)


def test_of_news_of_one_log_an_inbox_keeps_the_latest_behind_all_else() -> None:
    inbox = Inbox()
    one, other = LOGS[:2]
    first, between, second = (LogChanged(one, 1, 1), LogChanged(other, 1, 1), LogChanged(one, 2, 2))
    replies = [Ingested(1, 1), Ingested(1, 1)]
    inbox.put([replies[0], first, between, replies[1]])
    inbox.put([second])
    assert len(inbox) == 4
    assert inbox.take(3) == [replies[0], between, replies[1]]
    assert inbox.take(None) == [second]
    assert not inbox
