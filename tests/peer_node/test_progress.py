"""How far logs have come, as a node says it: totals, rates, and since when with whom."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from logstore import ALL, PolicyKind, Store, Subscription
from peer import Arriving, EntriesReceived, LogChanged, NewestLearned, PeerHolds, RequestCancelled
from peer.api import NodeConfig, Peer, memory_link
from peer.node.links.knowledge import MOVED_MAX, Knowledge, Moved
from peer.node.status.overview import Overview
from peer.node.status.progress import MOVING_MAX, QUIET_S, Progress
from wire import CancelReason, LogKey

from .support import PATIENCE_S
from .test_overview import overview, pair, tell

CONFIG = NodeConfig(workers=0, poll_s=0.001)
STRANGER = LogKey(b"s" * 32, 0)


def listed(found: object) -> list[dict[str, Any]]:
    assert isinstance(found, list)
    return found


def log_in(state: Mapping[str, object], log: LogKey) -> dict[str, Any]:
    [told] = [each for each in listed(state["logs"]) if each["author"] == log.author.hex()]
    return told


async def test_rates_are_of_the_last_ten_seconds(autojump_clock: MockClock) -> None:
    async with pair() as (_, taker), overview(taker) as found:
        found.state()
        for _ in range(3):
            await trio.sleep(1.1)
            tell(taker, Arriving(STRANGER, 2_000, 1, inside=False))
            tell(taker, EntriesReceived(STRANGER, 20, 10, 0))
            found.state()
        [moving] = listed(found.state()["moving"])
        assert moving["author"] == STRANGER.author.hex()
        assert 8 < moving["rate_entries"] < 11
        assert 1_600 < moving["rate_bytes"] < 2_200
        await trio.sleep(9)
        found.state()
        await trio.sleep(2)
        assert found.state()["moving"] == []


def test_what_is_remembered_of_moving_logs_is_bounded() -> None:
    knowledge = Knowledge()
    for number in range(2 * MOVED_MAX):
        log = LogKey(bytes(32), number)
        knowledge.take(Arriving(log, 1, 1, inside=False), 0.0)
        knowledge.take(Arriving(log, 2, 1, inside=False), 0.0)
    assert len(knowledge.moved) == MOVED_MAX
    assert knowledge.take_moved()[LogKey(bytes(32), 0)] == Moved(0, 3)
    assert knowledge.moved == {}


async def test_of_each_second_few_logs_are_remembered(autojump_clock: MockClock) -> None:
    async with pair() as (_, taker), overview(taker) as found:
        for number in range(MOVING_MAX + 10):
            tell(taker, Arriving(LogKey(b"s" * 32, number), 1, 1, inside=False))
        assert len(listed(found.state()["moving"])) == MOVING_MAX


async def test_a_log_that_is_behind_says_when_it_was_well_and_with_whom(
    autojump_clock: MockClock,
) -> None:
    async with pair() as (giver, taker), overview(taker) as found:
        log = (await giver.append([b"one"]))[0].key
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(log, 1)
        found.state()
        await trio.sleep(20)
        state = found.state()
        assert state["company"]["peers"] == ["giver"]  # type: ignore[index]
        assert state["company"]["until"] is None  # type: ignore[index]
        assert state["totals_final"] is True
        tell(taker, PeerHolds(log, 9, 1), PeerHolds(STRANGER, 9, 0))
        told = log_in(found.state(), log)
        assert told["in_step_with"] == ["giver"]
        assert told["in_step_at"] is not None
        assert told["in_step_at"] > state["company"]["since"]  # type: ignore[index]
        # Nothing of it was ever here.
        assert log_in(found.state(), STRANGER)["in_step_at"] is None


async def test_a_total_is_final_once_it_was_answered(autojump_clock: MockClock) -> None:
    async with pair() as (_, taker), overview(taker) as found:
        await trio.sleep(3)
        tell(taker, PeerHolds(STRANGER, 9, 0))
        assert log_in(found.state(), STRANGER)["answered"] is False
        tell(taker, NewestLearned(STRANGER, 9))
        assert log_in(found.state(), STRANGER)["answered"] is True
        other = LogKey(b"t" * 32, 0)
        tell(taker, PeerHolds(other, 4, 0))
        assert log_in(found.state(), other)["answered"] is False
        refused = RequestCancelled(7, other, CancelReason.NO_RESOURCES, by_us=False, ours=True)
        tell(taker, refused)
        assert log_in(found.state(), other)["answered"] is True


async def test_peers_are_asked_for_the_total_of_what_takes_long() -> None:
    """The taker is told of entry 9, and asked says the giver that there are 3."""
    async with pair() as (giver, taker), overview(taker) as found:
        log = (await giver.append([b"one", b"two", b"three"]))[0].key
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(log, 3)
            [member] = taker.node.members
            assert log not in member.knowledge.told
            tell(taker, PeerHolds(log, 9, 3))
            found.state()
            while log not in member.knowledge.told:
                await trio.testing.wait_all_tasks_blocked()


async def test_a_node_that_is_alone_says_with_whom_it_was(autojump_clock: MockClock) -> None:
    progress = Progress()
    progress.look([], 1.0)
    assert progress.company is None
    async with pair() as (_, taker), overview(taker) as found:
        found.state()
        [member] = taker.node.members
        member.connection.close()
        with trio.fail_after(PATIENCE_S):
            await member.ended.wait()
        company = found.state()["company"]
        assert company["peers"] == ["giver"]  # type: ignore[index]
        assert company["until"] is not None  # type: ignore[index]
        assert found.state()["totals_final"] is False


async def test_in_step_is_told_once_all_is_here(autojump_clock: MockClock) -> None:
    told: list[Mapping[str, object]] = []
    with Store.memory() as left, Store.memory() as right:
        left.append([b"x"] * 50)
        right.follow(ALL)
        async with (
            Peer(left, config=CONFIG) as giver,
            Peer(right, config=CONFIG, observer=told.append) as taker,
            trio.open_nursery() as nursery,
        ):
            here, there = memory_link()
            nursery.start_soon(partial(giver.serve_stream, here, proactive=True, name="taker"))
            nursery.start_soon(partial(taker.serve_stream, there, proactive=False, name="giver"))
            await trio.sleep(10)
            events = [each for each in told if each["event"] == "in_step"]
            assert events == [{"event": "in_step", "peers": ["giver"]}]
            assert right.log(LogKey(left.author, 0)).height == 50  # type: ignore[union-attr]
            # What comes at once makes no news of it.
            await giver.append([b"more"])
            await trio.sleep(10)
            assert [each for each in told if each["event"] == "in_step"] == events
            found = await taker.overview()
            assert isinstance(found, Overview)
            assert not found.lacks_something()
            nursery.cancel_scope.cancel()


async def test_who_has_just_come_may_yet_say_that_more_is_there(autojump_clock: MockClock) -> None:
    """On a slow link a second goes by before a peer offers anything: that is not being in step."""
    async with pair() as (_, taker), overview(taker) as found:
        found.look()
        assert found.may_lack_more()
        await trio.sleep(QUIET_S + 0.1)
        found.look()
        assert not found.may_lack_more()


async def test_a_log_awaits_its_payloads_while_something_of_it_comes(
    autojump_clock: MockClock,
) -> None:
    async with pair() as (_, taker), overview(taker) as found:
        await trio.sleep(QUIET_S + 0.1)

        def comes(*, lacks: bool) -> bool:
            for watcher in taker.node.host.watchers:
                watcher([LogChanged(STRANGER, 5, 5, lacks=lacks)])
            tell(taker, NewestLearned(STRANGER, 5), EntriesReceived(STRANGER, 5, 1, 0))
            found.look()
            return found.may_lack_more()

        assert comes(lacks=True)
        assert not comes(lacks=False)
        assert comes(lacks=True)
        # Nothing comes any more: nobody who is connected has them.
        await trio.sleep(QUIET_S + 1)
        found.look()
        assert not found.may_lack_more()
        await taker.follow(STRANGER, Subscription(PolicyKind.METADATA))
        assert not comes(lacks=True)


async def test_what_a_peer_holds_is_known_until_the_payloads_are_here_too() -> None:
    """Who ends a sync says what is still missing of it."""
    async with pair() as (_, taker), overview(taker) as found:
        [member] = taker.node.members
        tell(taker, PeerHolds(STRANGER, 5, 5))
        for lacks in (True, False):
            for watcher in taker.node.host.watchers:
                watcher([LogChanged(STRANGER, 5, 5, lacks=lacks)])
            found.look()
            assert (STRANGER in member.knowledge.newest) is lacks
