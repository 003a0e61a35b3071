"""Received entries: in order within a session, turns between sessions, groups for the disk."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from peer import INGEST_ENTRIES_MAX
from peer.node.host.groups import Group
from peer.node.host.ingestion import GROUP_ENTRIES, GROUP_ENTRIES_MAX, GROUP_WAIT_S, Ingestion
from peer.node.host.port import Port
from peer.node.host.verifier import BATCH_ENTRIES_MAX, Verifier
from peer.node.host.worker_process import Ticket

from .support import Author, run_of


class SlowVerifier(Verifier):
    """Finds all signatures right, but only when told to."""

    def __init__(self) -> None:
        super().__init__(2)
        self.tickets: list[Ticket] = []

    def start(self, entries: object) -> Ticket:
        assert isinstance(entries, list)
        self.tickets.append(Ticket(entries))
        return self.tickets[-1]

    def finish(self, index: int) -> None:
        ticket = self.tickets[index]
        ticket.resolve(b"\x01" * len(ticket.entries))


class Disk:
    """Commits when told to; remembers what came in each transaction."""

    def __init__(self) -> None:
        self.commits: list[list[tuple[str, int]]] = []
        self._stored: list[Callable[[], None]] = []

    def __call__(self, groups: list[Group], stored: Callable[[], None]) -> None:
        rows = [
            (group.handed.port.source, entry.seq) for group in groups for entry in group.entries
        ]
        self.commits.append(rows)
        self._stored.append(stored)

    def allow(self) -> None:
        """Ends the transaction that is under way."""
        self._stored.pop()()

    def seqs(self, index: int) -> list[int]:
        return [seq for _, seq in self.commits[index]]


class Bench:
    def __init__(self) -> None:
        self.verifier = SlowVerifier()
        self.disk = Disk()
        self.ingestion = Ingestion(self.verifier, self.disk)

    def port(self, source: str) -> Port:
        return Port(1, source, lambda events, payer: None, lambda error: pytest.fail(str(error)))


@asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.ingestion.run)
        yield bench
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("mock_clock")
async def test_batches_are_taken_in_order_whichever_is_checked_first() -> None:
    async with running() as bench:
        bench.ingestion.submit(bench.port("p"), Author().items(1, 2 * BATCH_ENTRIES_MAX))
        assert [len(t.entries) for t in bench.verifier.tickets] == [BATCH_ENTRIES_MAX] * 2
        bench.verifier.finish(1)
        await wait_all_tasks_blocked()
        assert bench.disk.commits == []
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        assert bench.disk.seqs(0) == list(range(1, 2 * BATCH_ENTRIES_MAX + 1))


@pytest.mark.usefixtures("mock_clock")
async def test_runs_are_taken_whole_and_batches_have_room_for_them() -> None:
    async with running() as bench:
        author, cut = Author(), INGEST_ENTRIES_MAX
        runs = [run_of(author.items(at + 1, at + cut)) for at in range(0, 10 * cut, cut)]
        # One that is not full before them: with the last of a batch it would be too many.
        items = [author.item(1), *runs]
        bench.ingestion.submit(bench.port("p"), items)
        sizes = [len(ticket.entries) for ticket in bench.verifier.tickets]
        assert sizes == [BATCH_ENTRIES_MAX - cut + 1, BATCH_ENTRIES_MAX, 3 * cut]
        for index in range(3):
            bench.verifier.finish(index)
        await wait_all_tasks_blocked()
        assert bench.disk.seqs(0) == [1, *range(1, 10 * cut + 1)]


async def test_those_who_wait_take_turns_however_their_entries_are_cut() -> None:
    async with running() as bench:
        bench.ingestion.submit(bench.port("busy"), Author(3).items(1, 5 * BATCH_ENTRIES_MAX))
        author, other = Author(), Author(2)
        bench.ingestion.submit(bench.port("p"), author.items(1, 2 * INGEST_ENTRIES_MAX))
        cut = run_of(other.items(1, INGEST_ENTRIES_MAX))
        bench.ingestion.submit(bench.port("q"), [cut, cut])
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        authors = [encoded[1:33] for encoded in bench.verifier.tickets[5].entries]
        one = [author.log.author] * INGEST_ENTRIES_MAX
        two = [other.log.author] * INGEST_ENTRIES_MAX
        assert authors == [*one, *two, *one, *two]


async def test_a_lone_entry_waits_for_nothing(mock_clock: MockClock) -> None:
    async with running() as bench:
        bench.ingestion.submit(bench.port("p"), Author().items(1, 1))
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        assert bench.disk.seqs(0) == [1]
        assert mock_clock.rate == 0


async def test_what_is_checked_on_the_spot_is_on_its_way_to_the_disk_at_once() -> None:
    async with running() as bench:
        bench.ingestion._verifier = Verifier(0)
        bench.ingestion.submit(bench.port("p"), Author().items(1, 3))
        assert bench.disk.seqs(0) == [1, 2, 3]
        bench.ingestion.submit(bench.port("q"), Author(2).items(1, 2))
        assert len(bench.disk.commits) == 1, "one transaction at a time"
        bench.disk.allow()
        assert bench.disk.seqs(1) == [1, 2]


async def test_the_entries_of_who_rests_are_not_checked_before(
    autojump_clock: MockClock,
) -> None:
    async with running() as bench:
        rests, other = bench.port("rests"), bench.port("other")
        rests.account.own_rest_until_s = 5.0
        bench.ingestion.submit(rests, Author().items(1, 3))
        bench.ingestion.submit(other, Author(2).items(1, 2))
        assert [len(ticket.entries) for ticket in bench.verifier.tickets] == [2]
        await trio.sleep(4.9)
        assert len(bench.verifier.tickets) == 1
        assert not bench.ingestion.idle
        await trio.sleep(0.2)
        assert [len(ticket.entries) for ticket in bench.verifier.tickets] == [2, 3]


async def test_a_group_waits_a_moment_for_what_is_being_checked(mock_clock: MockClock) -> None:
    async with running() as bench:
        bench.ingestion.submit(bench.port("p"), Author().items(1, BATCH_ENTRIES_MAX + 1))
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        assert bench.disk.commits == []
        mock_clock.jump(GROUP_WAIT_S)
        await wait_all_tasks_blocked()
        assert bench.disk.seqs(0) == list(range(1, BATCH_ENTRIES_MAX + 1))


async def test_enough_entries_wait_for_nothing_more(mock_clock: MockClock) -> None:
    async with running() as bench:
        bench.ingestion.submit(bench.port("p"), Author().items(1, GROUP_ENTRIES + 1))
        bench.verifier.finish(0)
        bench.verifier.finish(1)
        await wait_all_tasks_blocked()
        assert bench.disk.seqs(0) == list(range(1, GROUP_ENTRIES + 1))


async def test_the_next_batches_are_checked_while_a_group_is_committed() -> None:
    async with running() as bench:
        port, author = bench.port("p"), Author()
        bench.ingestion.submit(port, author.items(1, 1))
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        assert len(bench.disk.commits) == 1
        bench.ingestion.submit(port, author.items(2, 3))
        bench.verifier.finish(1)
        await wait_all_tasks_blocked()
        assert len(bench.disk.commits) == 1
        bench.disk.allow()
        await wait_all_tasks_blocked()
        assert bench.disk.seqs(1) == [2, 3]


async def test_a_backlog_of_one_session_does_not_hold_up_another() -> None:
    async with running() as bench:
        busy, live = bench.port("busy"), bench.port("live")
        bench.ingestion.submit(busy, Author(1).items(1, 20 * BATCH_ENTRIES_MAX))
        started = len(bench.verifier.tickets)
        assert started == bench.verifier.in_flight_max
        bench.ingestion.submit(live, Author(2).items(1, 1))
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        newest = bench.verifier.tickets[started].entries
        assert Author(2).items(1, 1)[0].entries[0][1] in newest


async def test_a_slow_disk_stops_the_checking() -> None:
    async with running() as bench:
        bench.ingestion.submit(bench.port("p"), Author().items(1, 40 * BATCH_ENTRIES_MAX))
        finished = 0
        while finished < len(bench.verifier.tickets):
            bench.verifier.finish(finished)
            finished += 1
            await wait_all_tasks_blocked()
        taken = sum(len(ticket.entries) for ticket in bench.verifier.tickets)
        in_commit = sum(len(commit) for commit in bench.disk.commits)
        assert taken - in_commit <= GROUP_ENTRIES_MAX + bench.verifier.in_flight_max * 128


async def test_idle_means_that_nothing_is_on_its_way() -> None:
    async with running() as bench:
        seen = [bench.ingestion.idle]
        bench.ingestion.submit(bench.port("p"), Author().items(1, 1))
        seen.append(bench.ingestion.idle)
        bench.verifier.finish(0)
        await wait_all_tasks_blocked()
        seen.append(bench.ingestion.idle)
        assert seen == [True, False, False]
        bench.disk.allow()
        with trio.fail_after(30):
            await bench.ingestion.wait_idle()


@pytest.mark.usefixtures("mock_clock")
@pytest.mark.parametrize(("first_is_valid", "stored"), [(True, [1, 2, 3, 3]), (False, [])])
async def test_where_only_a_payload_comes_no_signature_is_checked_again(
    first_is_valid: bool, stored: list[int]
) -> None:
    async with running() as bench:
        first, second, third = Author().items(1, 3)
        payload_alone = replace(third, is_new=False)
        items = [replace(first, is_new=True), replace(second, is_new=False), third, payload_alone]
        groups: list[Group] = []

        def commit(some: list[Group], stored: Callable[[], None]) -> None:
            groups.extend(some)
            stored()

        bench.ingestion._commit = commit
        bench.ingestion.submit(bench.port("p"), items)
        (ticket,) = bench.verifier.tickets
        assert ticket.entries == [first.entries[0][1], third.entries[0][1]]
        ticket.resolve(bytes((first_is_valid, 1)))
        await wait_all_tasks_blocked()
        # What the entry before it is refused for goes for the payload too.
        assert [entry.seq for group in groups for entry in group.new_entries()] == stored
