"""The state of a node tells of connections in full, and of logs that are behind or in trouble."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from logstore import ALL, PolicyKind, Store, Subscription
from peer import Allowances, LogChanged, NewestLearned, Notice, RequestCancelled, SessionConfig
from peer.api import NodeConfig, Peer, memory_link
from peer.node import Pace, Terms, why_peer
from peer.node.status.overview import LOGS_MAX, Behind, Overview
from peer.node.status.terms import terms_fields
from tests.records import replace
from wire import CancelReason, LogKey

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=0.001)
STRANGER = LogKey(b"s" * 32, 0)


@asynccontextmanager
async def overview(peer: Peer) -> AsyncIterator[Overview]:
    found = Overview(peer.node)
    await found.load()
    try:
        yield found
    finally:
        found.close()


@asynccontextmanager
async def pair(follow: object = ALL) -> AsyncIterator[tuple[Peer, Peer]]:
    """Two connected peers; the second follows."""
    with Store.memory() as left, Store.memory() as right:
        right.follow(follow)  # type: ignore[arg-type]
        async with (
            Peer(left, config=CONFIG) as giver,
            Peer(right, config=CONFIG) as taker,
            trio.open_nursery() as nursery,
        ):
            here, there = memory_link()
            nursery.start_soon(partial(giver.serve_stream, here, proactive=True, name="taker"))
            nursery.start_soon(partial(taker.serve_stream, there, proactive=False, name="giver"))
            with trio.fail_after(PATIENCE_S):
                for peer in (giver, taker):
                    while not any(info.state == "established" for info in peer.connections()):
                        await trio.testing.wait_all_tasks_blocked()
            yield giver, taker
            nursery.cancel_scope.cancel()


def logs(state: Mapping[str, object]) -> list[dict[str, Any]]:
    found = state["logs"]
    assert isinstance(found, list)
    return found


def terms(overview: Overview) -> dict[str, Any]:
    """Of the only connection."""
    connections = overview.state()["connections"]
    assert isinstance(connections, list)
    [connection] = connections
    found: dict[str, Any] = connection["terms"]
    return found


def tell(peer: Peer, *notices: Notice) -> None:
    [member] = peer.node.members
    for notice in notices:
        member.take(notice, trio.current_time())


async def test_logs_in_order_are_not_told_of() -> None:
    async with pair() as (giver, taker), overview(taker) as found:
        await giver.append([b"one"])
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(LogKey(giver.store.author, 0), 1)
        state = found.state()
        assert (state["logs"], state["logs_in_trouble"]) == ([], 0)
        connections = state["connections"]
        assert isinstance(connections, list)
        [connection] = connections
        assert connection["address"] == "giver"
        assert connection["state"] == "established"


async def test_what_is_in_force_on_a_connection_is_told() -> None:
    async with pair() as (giver, taker), overview(taker) as found, overview(giver) as other:
        await giver.append([b"one"])
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(LogKey(giver.store.author, 0), 1)
        await trio.testing.wait_all_tasks_blocked()
        theirs, ours = terms(found), terms(other)
        config = SessionConfig()
        # Each proposes the log, and one proposal gives way.
        assert (theirs["requests"], theirs["peer_requests"]) == (
            ours["peer_requests"],
            ours["requests"],
        )
        assert theirs["requests"] + theirs["peer_requests"] == 1
        assert theirs["peer_requests_max"] == config.requests_max + config.request_credit_max
        assert ours["requests_left"] == config.request_credit
        assert theirs["in_flight_received_max"] == ours["in_flight_sent_max"] == 4 << 20
        assert theirs["in_flight_received"] == 0
        assert ours["in_flight_sent"] > 0  # credit comes back by and by
        assert theirs["rate_sent"] is theirs["rate_received"] is None
        assert theirs["waits_for"] == theirs["peer_waits_for"] == []
        for name in ("send_greedily", "accept_greedily", "greedy_sending", "greedy_receiving"):
            assert theirs[name] is True
        assert theirs["compression_window"] == theirs["decompression_window"] == 65536


async def test_before_the_setup_nothing_is_in_force() -> None:
    with Store.memory() as store:
        async with (
            Peer(store, config=CONFIG) as peer,
            overview(peer) as found,
            trio.open_nursery() as nursery,
        ):
            here, _there = memory_link()
            nursery.start_soon(partial(peer.serve_stream, here, proactive=False, name="silent"))
            await trio.testing.wait_all_tasks_blocked()
            connections = found.state()["connections"]
            assert isinstance(connections, list)
            assert [each["terms"] for each in connections] == [None]
            nursery.cancel_scope.cancel()


def connection_terms(**changes: object) -> Terms:
    allowances = Allowances(
        proposals_left=1,
        incoming_bytes=0,
        incoming_bytes_max=10,
        outgoing_bytes=0,
        outgoing_bytes_max=10,
        outgoing_waits=False,
    )
    plain = Terms(
        send_greedily=True,
        accept_greedily=True,
        greedy_sending=True,
        greedy_receiving=True,
        compression_window=0,
        decompression_window=0,
        requests=0,
        peer_requests=0,
        peer_requests_max=4,
        allowances=allowances,
        sending=Pace(7, waits=False),
        receiving=Pace(8, waits=False),
    )
    limits = {name: value for name, value in changes.items() if hasattr(allowances, name)}
    others = {name: value for name, value in changes.items() if name not in limits}
    changed = replace(allowances, **limits)
    return replace(plain, allowances=changed, **others)


@pytest.mark.parametrize(
    ("changes", "waits_for", "peer_waits_for"),
    [
        ({}, [], []),
        ({"proposals_left": 0}, ["requests"], []),
        ({"outgoing_bytes": 10}, [], []),
        ({"outgoing_bytes": 10, "outgoing_waits": True}, ["in flight"], []),
        ({"sending": Pace(7, waits=True)}, ["rate"], []),
        ({"peer_requests": 4}, [], ["requests"]),
        ({"incoming_bytes": 10}, [], ["in flight"]),
        ({"receiving": Pace(7, waits=True)}, [], ["rate"]),
    ],
)
def test_who_waits_for_which_limit(
    changes: dict[str, object], waits_for: list[str], peer_waits_for: list[str]
) -> None:
    fields = terms_fields(connection_terms(**changes))
    assert fields is not None
    assert (fields["waits_for"], fields["peer_waits_for"]) == (waits_for, peer_waits_for)


async def test_a_log_is_behind_by_what_a_peer_holds_and_we_do_not() -> None:
    async with pair() as (giver, taker), overview(taker) as found:
        await giver.append([b"one"])
        log = LogKey(giver.store.author, 0)
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(log, 1)
        tell(taker, NewestLearned(log, 41), NewestLearned(STRANGER, 2))
        state = found.state()
        assert (state["logs_behind"], state["entries_behind"]) == (2, 42)
        assert state["behind_since"] is not None
        first, second = logs(state)
        assert (first["author"], first["height"], first["behind"]) == (log.author.hex(), 1, 40)
        assert (second["author"], second["height"], second["behind"]) == (b"s".hex() * 32, 0, 2)
        [peer] = first["peers"]
        assert (peer["address"], peer["newest"], peer["refused"]) == ("giver", 41, None)
        await giver.append([b"more"] * 40)
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(log, 41)
            # The store may be ahead of the news of it.
            while len(logs(found.state())) > 1:
                await trio.lowlevel.checkpoint()
        assert [each["author"] for each in logs(found.state())] == [STRANGER.author.hex()]


async def test_what_is_not_followed_is_nobodys_trouble() -> None:
    async with pair(STRANGER) as (_, taker), overview(taker) as found:
        tell(taker, NewestLearned(LogKey(b"t" * 32, 0), 9))
        assert [each["author"] for each in logs(found.state())] == [STRANGER.author.hex()]


async def test_a_log_that_is_followed_by_name_and_not_held_is_in_trouble() -> None:
    async with pair(STRANGER) as (_, taker), overview(taker) as found:
        [log] = logs(found.state())
        assert (log["author"], log["height"], log["behind"]) == (STRANGER.author.hex(), 0, 0)


async def test_a_refusal_is_told_unless_it_is_about_a_log_of_our_own() -> None:
    async with pair() as (giver, taker), overview(taker) as found, overview(giver) as other:
        refusal = RequestCancelled(8, STRANGER, CancelReason.NO_RESOURCES, by_us=False)
        tell(taker, refusal)
        [log] = logs(found.state())
        assert log["peers"][0]["refused"]["reason"] == 129
        await giver.append([b"one"])
        own = LogKey(giver.store.author, 0)
        tell(giver, replace(refusal, log=own))
        assert logs(other.state()) == []


async def test_connections_that_have_ended_are_told_with_their_reason() -> None:
    quick = replace(CONFIG, session=SessionConfig(setup_timeout_s=0.01))
    with Store.memory() as store:
        async with Peer(store, config=quick) as peer, overview(peer) as found:
            here, _there = memory_link()
            await peer.serve_stream(here, proactive=False, name="silent")
            ended = found.state()["ended"]
            assert isinstance(ended, list)
            [last] = ended
            assert (last["address"], last["direction"], last["kind"]) == (
                "silent",
                "incoming",
                "timeout",
            )
            assert "setup not finished" in last["reason"]


async def test_the_state_is_bounded_and_says_how_much_there_is() -> None:
    async with pair() as (_, taker), overview(taker) as found:
        count = LOGS_MAX + 7
        tell(taker, *(NewestLearned(LogKey(b"s" * 32, n), n) for n in range(1, count + 1)))
        state = found.state()
        assert state["logs_in_trouble"] == count
        assert len(logs(state)) == LOGS_MAX
        assert logs(state)[0]["behind"] == count


async def test_a_program_asks_its_own_peer_how_it_is_and_why() -> None:
    async with pair(STRANGER) as (giver, taker):
        state = await taker.status()
        assert [each["log_id"] for each in logs(state)] == [0]
        reasons = await taker.why(STRANGER)
        assert any(reason.wrong for reason in reasons)
        assert "is connected (incoming)" in str((await taker.why("giver"))[0])
        own = LogKey(giver.store.author, 0)
        await giver.append([b"one"])
        assert not any(reason.wrong for reason in await giver.why(own))


@pytest.mark.parametrize(("fork", "behind"), [(2, []), (3, ["1"]), (99, ["40"])])
async def test_nobody_is_behind_by_what_is_behind_a_fork(fork: int, behind: list[str]) -> None:
    """It can never be taken, so that `wait` would wait for it for ever."""
    async with pair() as (giver, taker), overview(taker) as found:
        await giver.append([b"one"])
        log = LogKey(giver.store.author, 0)
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(log, 1)
        tell(taker, NewestLearned(log, 41))
        found._changed([LogChanged(log, 1, 1, fork=fork)])
        assert [str(each["behind"]) for each in logs(found.state())] == behind


@pytest.mark.parametrize(("last", "behind"), [(1, []), (5, [4]), (None, [40])])
async def test_nobody_is_behind_by_what_is_behind_a_closed_range(
    last: int | None, behind: list[int]
) -> None:
    async with pair() as (giver, taker), overview(taker) as found:
        log = LogKey(giver.store.author, 0)
        await taker.follow(log, Subscription(PolicyKind.RANGE, first=1, last=last))
        await giver.append([b"one"])
        with trio.fail_after(PATIENCE_S):
            await taker.wait_for(log, 1)
        tell(taker, NewestLearned(log, 41))
        state = found.state()
        assert [each["behind"] for each in logs(state)] == behind
        tell(taker, NewestLearned(STRANGER, 2))
        words = "".join(map(str, why_peer(taker.store, found.state(), "giver")))
        assert ("more than we" in words) is True
        assert (f"of {log} it holds" in words) is bool(behind)


async def test_the_lag_of_a_log_begins_anew_when_it_has_come_to_where_it_was_known_to_go(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log, told = LogKey(b"a" * 32, 0), partial(LogChanged, newest=0)
    with Store.memory() as store:
        store.follow(ALL)
        async with Peer(store, config=CONFIG) as peer, overview(peer) as found:

            def known(newest: int) -> None:
                found._version += 1
                held = found._held.get(log)
                found._note_lags({log: newest - (0 if held is None else held.height)})

            began_s = trio.current_time()
            assert found.behind() == Behind(0, 0, None)
            known(5)
            await trio.sleep(10)
            # More of it is known, and what was missing is missing still.
            known(9)
            assert found._lags[log].since_s == began_s
            found._changed([told(log=log, height=5, newest=5)])
            known(9)
            assert found._lags[log].since_s == began_s + 10
            await trio.sleep(10)
            found._changed([told(log=log, height=7, newest=7)])
            known(30)
            assert found._lags[log].since_s == began_s + 10
            found._note_lags({})
            assert found.behind() == Behind(0, 0, None)
