"""What there is no room for is refused, told once, and shown; over real sockets and TLS."""

import random
from collections.abc import Callable
from typing import cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from logstore import ALL, OverQuota, Store, StoreFull
from peer.node import Address, PeerAddress, running_node
from peer.node.host.store_host import StoreHost
from peer.node.links.limits import Limits
from peer.node.room import LOOK_AT_LEAST_S, LOOKS, TELL_AGAIN_S, TOLD_MAX, Room
from peer.node.status.overview import Overview
from tests.records import replace
from wire import LogKey

from .support import PATIENCE_S
from .test_entrance import AMY, AMY_ID, BEN, BEN_ID, TLS, Told

# ruff: noqa: ASYNC110 - a thread brings about what is waited for

HERE = Address("127.0.0.1", 0)
PAYLOAD = bytes(30_000)


class StandInStore:
    """A store that counts how often it is looked for stale parts."""

    def __init__(self) -> None:
        self.ages: list[float] = []
        self.fails = False

    def drop_stale(self, age_s: float) -> int:
        self.ages.append(age_s)
        if self.fails:
            raise StoreFull("the disk is full", "here", "make room")
        return 1


class StandInHost:
    def __init__(self) -> None:
        self.store = StandInStore()
        self.quota_watchers: set[Callable[[OverQuota], None]] = set()

    async def call(self, act: Callable[[], int]) -> int:
        return act()

    def refuse(self, author: int = 1, key: str = "author-bytes", giver: int = 9) -> None:
        log = LogKey(author.to_bytes(32, "big"), 0)
        for watch in self.quota_watchers:
            watch(OverQuota(key, log, 5, bytes([giver]) * 32, "too much"))


def room_of(host: StandInHost, told: Told, partial_seconds: float = 86_400.0) -> Room:
    return Room(cast(StoreHost, host), told.take, partial_seconds)


async def test_a_limit_is_told_once_of_whom_it_is_about_and_again_after_an_hour(
    mock_clock: MockClock,
) -> None:
    host, told = StandInHost(), Told()
    room = room_of(host, told)
    for _ in range(3):
        host.refuse()
        host.refuse(giver=8)
        mock_clock.jump(TELL_AGAIN_S / 4)
    assert [event["event"] for event in told.all] == ["limit"]
    host.refuse(author=2)
    for giver in (8, 9, 8):
        host.refuse(giver=giver, key="peer-bytes")
    for author in (1, 2, 3):
        host.refuse(author, key="store-bytes")
    keys = [event["key"] for event in told.all]
    assert keys == ["author-bytes", "author-bytes", "peer-bytes", "peer-bytes", "store-bytes"]
    mock_clock.jump(TELL_AGAIN_S / 4)
    host.refuse()
    assert len(told.all) == 6
    (last, at_s) = room.refusals[-1]
    assert (last["key"], at_s) == ("author-bytes", TELL_AGAIN_S)
    assert len(room.refusals) == 5


async def test_authors_cost_nothing_to_make_so_not_all_are_remembered() -> None:
    host, told = StandInHost(), Told()
    room = room_of(host, told)
    for author in range(TOLD_MAX + 10):
        host.refuse(author)
    assert len(room.refusals) == TOLD_MAX
    assert room.refusals[0][0]["author"] == (10).to_bytes(32, "big").hex()


@pytest.mark.parametrize("age_s", [48.0, 864_000.0])
async def test_stale_parts_are_looked_for_again_and_again_also_after_a_failure(
    age_s: float, mock_clock: MockClock
) -> None:
    host = StandInHost()
    room = room_of(host, Told(), age_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        for looks in (1, 2, 3):
            await trio.testing.wait_all_tasks_blocked()
            assert host.store.ages == [age_s] * looks
            host.store.fails = looks == 1
            assert room.hits["partial-seconds"] == max(1, looks - 1)
            mock_clock.jump(min(age_s / LOOKS, LOOK_AT_LEAST_S))
        nursery.cancel_scope.cancel()


async def test_a_peer_that_brings_too_much_is_refused_and_both_go_on() -> None:
    """The limit of Amy's node refuses a stranger's log; what is followed by name comes all."""
    bens_key = LogKey(BEN_ID, 0)
    told = Told()
    # `peer-bytes` leaves alone who is followed by name, so that Amy follows everybody at first.
    config = replace(TLS, limits=Limits(peer_bytes=100_000, free_bytes=0))
    with Store.memory(signing_key=AMY) as one, Store.memory(signing_key=BEN) as other:
        one.follow(ALL)
        one.peers.allow(BEN_ID)
        other.append([PAYLOAD] * 6)
        async with (
            running_node(one, config, observer=told.take, rng=random.Random(1)) as amy,
            running_node(other, TLS, rng=random.Random(2)) as ben,
        ):
            [address] = await amy.listen(HERE)
            ben.connect(PeerAddress(address, peer=AMY_ID.hex()))
            limit = await told.wait_for("limit")
            assert (limit["key"], limit["peer_id"]) == ("peer-bytes", BEN_ID.hex())
            assert limit["author"] == BEN_ID.hex()
            overview = Overview(amy)
            await overview.load()
            (shown,) = cast("list[dict[str, object]]", overview.state()["limits"])
            assert (shown["key"], shown["reason"]) == ("peer-bytes", limit["reason"])
            assert "at" in shown
            assert amy.limit_hits["peer-bytes"] >= 1
            found = one.log(bens_key)
            assert found is not None
            assert found.bytes <= 100_000
            # A larger quota lets in more, and holds at once...
            amy.change_limits(replace(config.limits, peer_bytes=160_000))
            other.append([PAYLOAD])
            # ... but nobody was sent away, and whoever is asked for by name has no quota.
            assert [each["event"] for each in told.all].count("disconnected") == 0
            await amy.follow(BEN_ID)
            with trio.fail_after(PATIENCE_S):
                while (held := one.log(bens_key)) is None or held.payloads < 7:
                    await trio.sleep(0.01)


async def test_nothing_is_kept_of_a_stranger_whose_first_payload_has_no_room() -> None:
    told = Told()
    config = replace(TLS, limits=Limits(author_bytes=100_000, free_bytes=0))
    with Store.memory(signing_key=AMY) as one, Store.memory(signing_key=BEN) as other:
        one.follow(ALL)
        one.peers.allow(BEN_ID)
        other.append([bytes(200_000)])
        other.append([PAYLOAD], log_id=1)
        async with (
            running_node(one, config, observer=told.take, rng=random.Random(1)) as amy,
            running_node(other, TLS, rng=random.Random(2)) as ben,
        ):
            [address] = await amy.listen(HERE)
            ben.connect(PeerAddress(address, peer=AMY_ID.hex()))
            await told.wait_for("limit")
            with trio.fail_after(PATIENCE_S):
                while (held := one.log(LogKey(BEN_ID, 1))) is None or not held.payloads:
                    await trio.sleep(0.01)
            await amy.host.wait_idle()
            assert one.log(LogKey(BEN_ID, 0)) is None
