"""Nodes among peers that lie, stall or swamp them, on damaged stores and on disks that fill."""

import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from gateways.swarm import Side, book, client, conversation, ended, keeping
from gateways.swarm.devp2p import Reason
from logstore import Store
from tests.cli_online.running import EXECUTABLE
from tests.cli_online.running import run as run_any
from tests.processes.node import records, run, wait_until
from wire import LogKey

from .failing import damage
from .swarm.endpoint import NO_PROOF, Endpoint
from .swarm.nodes import (
    PATIENCE_S,
    chunk_entries,
    data_of,
    held,
    made_node,
    put,
    served,
    until_held,
)
from .swarm.processes import SwarmNode, addresses, covered, made, own_chunks, status, until_entries
from .swarm.upstream import Upstream, leaves
from .test_bad_days import disk, fill  # noqa: F401 - a fixture

in_thread = trio.to_thread.run_sync


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made_node(tmp_path / "amy")


@asynccontextmanager
async def serving(upstream: Upstream) -> AsyncIterator[Upstream]:
    """An upstream that runs, until the block ends."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.run)
        yield upstream
        nursery.cancel_scope.cancel()


async def check_others_go_on(store: Store, enode: str, peer: Upstream, seed: int) -> None:
    """A peer that was there all the time is taken what is new from."""
    await peer.endpoint.base(2, [])
    assert peer.reason is None
    more = leaves(data_of(3, seed))
    async with Endpoint.connected(enode) as endpoint, serving(Upstream(endpoint, more)):
        await until_stored(store, more)


async def until_stored(store: Store, chunks: Iterable[bytes]) -> None:
    """Returns once chunks are held."""
    wanted = {*chunks}
    with trio.fail_after(PATIENCE_S):
        while not wanted <= held(store):
            await trio.testing.wait_all_tasks_blocked(0.02)


# --- peers that break rules -----------------------------------------------------------------------


class Repeating(Upstream):
    """It offers the same again, and not what was asked for."""

    async def take_next(self, key: str, live: bool, first: int) -> None:
        await self.offer_from(key, live, 1)


class Strange(Upstream):
    """What it delivers is no chunk."""

    async def deliver(self, address: bytes) -> None:
        await self.endpoint.say(10, [address, b"\0\0\0"])


class Other(Upstream):
    """What it delivers is another chunk than its address says."""

    async def deliver(self, address: bytes) -> None:
        [(other, chunk)] = leaves(b"another").items()
        assert other != address
        await self.endpoint.say(10, [address, chunk])


class Flooding(Upstream):
    """It offers more than there may be in an offer."""

    async def offer(
        self, key: str, live: bool, first: int, last: int, hashes: Iterable[bytes]
    ) -> None:
        many = b"".join(number.to_bytes(32, "big") for number in range(1_025))
        await self.endpoint.say(1, [["SYNC", key, live], 1, 1_025, many, NO_PROOF])


class Empty(Upstream):
    """It offers nothing, which only who keeps to our rules may do."""

    async def offer(
        self, key: str, live: bool, first: int, last: int, hashes: Iterable[bytes]
    ) -> None:
        await super().offer(key, live, first, last, [])


class Half(Upstream):
    """It offers 31 bytes."""

    async def offer(
        self, key: str, live: bool, first: int, last: int, hashes: Iterable[bytes]
    ) -> None:
        await self.endpoint.say(1, [["SYNC", key, live], 1, 1, bytes(31), NO_PROOF])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Repeating, "was asked for"),
        (Strange, "not the one of its address"),
        (Other, "not the one of its address"),
        (Flooding, "an offer has 1024"),
        (Empty, "without a hash"),
        (Half, "31"),
    ],
)
async def test_who_breaks_a_rule_is_dropped_alone_and_told_so(
    store: Store, kind: type[Upstream], text: str
) -> None:
    async with (
        served(store) as (_, enode, seen),
        Endpoint.connected(enode) as good,
        serving(Upstream(good, leaves(data_of(2, 1)))) as peer,
    ):
        async with Endpoint.connected(enode) as endpoint:
            bad = kind(endpoint, leaves(data_of(1, 2)))
            await bad.run()
        assert bad.reason == 16
        told = await seen.wait("disconnected")
        assert text in told["reason"]
        await check_others_go_on(store, enode, peer, 3)
        await until_stored(store, peer.chunks)


async def test_a_message_that_is_too_long_is_refused_from_its_header(store: Store) -> None:
    async with (
        served(store) as (_, enode, seen),
        Endpoint.connected(enode) as good,
        serving(Upstream(good, leaves(data_of(2, 1)))) as peer,
    ):
        async with Endpoint.connected(enode) as endpoint:
            # The header tells of 11 MiB, of which nothing comes.
            await endpoint.send(endpoint.frame(b"", 11 << 20))
            assert await endpoint.farewell() == 2
        assert str(11 << 20) in (await seen.wait("disconnected"))["reason"]
        await check_others_go_on(store, enode, peer, 3)


class Skipping(Upstream):
    """Its batches have gaps before, within and behind what they offer, if they have enough."""

    async def offer(
        self, key: str, live: bool, first: int, last: int, hashes: Iterable[bytes]
    ) -> None:
        some = [*hashes]
        if len(some) > 3:
            await super().offer(key, live, first + 2, last, some[2:-1:2])
        else:
            await super().offer(key, live, first, last, some)


def recorded(store: Store) -> dict[str, list[range]]:
    """What is on record of the bins of peers."""
    side = Side(store)
    try:
        return {each.key: covered(each.text) for each in side.intervals()}
    finally:
        side.close()


async def test_gaps_in_what_is_offered_count_as_covered(store: Store) -> None:
    chunks = leaves(data_of(600, 1))
    async with (
        served(store) as (_, enode, _),
        Endpoint.connected(enode) as endpoint,
        serving(Skipping(endpoint, chunks)) as peer,
    ):
        had = {key: [range(len(items) + 1)] for key, items in peer.bins.items() if items}
        with trio.fail_after(PATIENCE_S):
            while recorded(store) != had:
                await trio.testing.wait_all_tasks_blocked(0.02)
        assert held(store) == {each for offer in peer.offers for each in offer.hashes}


class Silent(Upstream):
    """It offers, and delivers nothing, whatever way it is asked."""

    async def deliver(self, address: bytes) -> None:
        pass

    async def answer(self, address: bytes) -> None:
        pass


async def test_what_one_does_not_deliver_is_asked_of_another_and_who_owes_is_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "ANSWER_S", 0.5)
    monkeypatch.setattr(client, "BATCH_S", 2.0)
    both, alone = leaves(data_of(3, 1)), leaves(data_of(3, 2))
    async with (
        served(store) as (_, enode, seen),
        Endpoint.connected(enode) as at_silent,
        serving(Silent(at_silent, both | alone)) as silent,
    ):
        with trio.fail_after(PATIENCE_S):
            while silent.wanted.keys() != silent.chunks.keys():
                await trio.testing.wait_all_tasks_blocked(0.01)
        async with (
            Endpoint.connected(enode) as at_good,
            serving(Upstream(at_good, both)) as good,
        ):
            await until_stored(store, both)
            # It was not asked by its offers, since all was on its way.
            assert not good.wanted
            assert good.retrieved == dict.fromkeys(both, 1)
            told = await seen.wait("disconnected")
            assert "did not come in 2 s" in told["reason"]
            assert good.reason is None
            await check_others_go_on(store, enode, good, 3)
        assert not silent.retrieved
    assert not held(store) & alone.keys()


async def test_who_asks_and_never_reads_is_dropped_and_takes_little_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "NOTHING_SENT_S", 1.0)
    put(store, data_of(600, 1))
    wanted = sorted(held(store))
    async with (
        served(store) as (server, enode, seen),
        Endpoint.connected(enode) as good,
        serving(Upstream(good, leaves(data_of(2, 1)))) as peer,
    ):
        hub = server._inside()[1]
        largest = 0
        async with Endpoint.connected(enode) as endpoint:
            await seen.wait("connected", 2)
            neighbour = hub.neighbours[1]
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while True:
                    for address in wanted:
                        await endpoint.say(5, [address, True, 0])
                    waiting = sum(each.size for each in neighbour.queue._levels)
                    largest = max(largest, waiting)
                    assert len(neighbour.server._found) <= 1_024
        assert "taken nothing for 1 s" in (await seen.wait("disconnected"))["reason"]
        assert largest < 4 << 20
        await check_others_go_on(store, enode, peer, 3)


# --- what a node may hold -------------------------------------------------------------------------


def test_full_is_told_and_goes_on_with_more_room(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    made(a, data_of(300, 1))
    with made_node(b):
        pass
    with SwarmNode(a) as upstream:
        flags = ("--no-listen", "--connect", upstream.enode)
        with SwarmNode(b, *flags, "--max-chunks", "100") as node:
            assert node.wait_for("full")["chunks"] == 100
            assert node.stop() == 0
        assert own_chunks(b) == 100
        with SwarmNode(b, *flags) as node:
            until_entries(b, len(addresses(a)))
            assert node.of("full") == []
    assert addresses(b) == addresses(a)
    assert own_chunks(b) == len(addresses(a))


# --- stores ---------------------------------------------------------------------------------------


async def test_what_is_no_chunk_is_counted_and_passed_over(store: Store, tmp_path: Path) -> None:
    put(store, data_of(3, 1))
    store.append([b"", b"no chunk", bytes(5_000)], log_id=7_000)
    put(store, data_of(3, 2))
    good = held(store)
    assert len(good) == 8
    with made_node(tmp_path / "ben") as other:
        async with served(store) as (at_amy, enode, _), served(other) as (at_ben, _, _):
            at_ben.connect(enode)
            await until_held(at_ben, len(good))
            assert at_amy.chunks == len(good)
        assert held(other) == good
    assert store.path is not None
    told = await in_thread(status, store.path)
    assert (told["chunks"], told["bad"]) == (8, 3)


async def test_a_chunk_that_is_damaged_keeps_no_other_one_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BATCH_S", 1.0)
    put(store, data_of(200, 1))
    everything = held(store)
    with made_node(tmp_path / "ben") as other:
        async with served(store) as (_, enode, _), served(other) as (at_ben, _, seen):
            # As it lies there, after its place was given.
            damage(store, LogKey(store.author, 7_000), 17)
            at_ben.connect(enode)
            await until_held(at_ben, len(everything) - 1)
            # What was offered before anybody had looked is missed; then it is offered no more.
            assert "did not come" in (await seen.wait("disconnected"))["reason"]
            await seen.wait("connected", 2)
            await seen.wait("synced")
        assert len(everything - held(other)) == 1


def test_a_node_without_its_key_says_so_and_signs_nothing(tmp_path: Path) -> None:
    made(tmp_path / "a", data_of(3, 1))
    key = tmp_path / "a" / "swarm.key"
    text = key.read_text()
    before = records(tmp_path / "a", "logs")
    for wrong in ("", "xyz", "00" * 32, text[:60]):
        key.write_text(wrong)
        done = run_any(tmp_path / "a", "swarm", "serve", "--listen", "127.0.0.1:0")
        assert done.returncode == 1
        assert str(key) in done.stderr
        assert "put the right one back" in done.stderr
    key.unlink()
    done = run_any(tmp_path / "a", "swarm", "serve", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "no Swarm node is in this store" in done.stderr
    assert records(tmp_path / "a", "logs") == before
    key.write_text(text)
    with SwarmNode(tmp_path / "a") as node:
        node.wait_for("listening")


async def test_a_full_disk_stops_syncing_until_there_is_room(
    disk: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What was unsubscribed while nothing could be written is subscribed again after that.
    monkeypatch.setattr(ended, "LATE_S", 0.5)
    monkeypatch.setattr(keeping, "AGAIN_S", 0.2)
    chunks = leaves(data_of(900, 1))
    with made_node(disk / "store") as store:
        async with (
            served(store) as (server, enode, seen),
            Endpoint.connected(enode) as endpoint,
        ):
            peer = Upstream(endpoint, chunks)
            while len(peer.wanted) < 200:
                await peer._take(*await endpoint.next())
            filler = await in_thread(fill, disk)
            async with serving(peer):
                assert "full" in (await seen.wait("storage_failed"))["reason"]
                # What is not on disk is not acknowledged.
                assert server.chunks < len(chunks)
                filler.unlink()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_over, peer, nursery)
                    await until_held(server, len(chunks))
                    nursery.cancel_scope.cancel()
            # Where it was what the peer said that could not be recorded, its connection has ended
            # in good order: whoever it is comes again, and loses nothing.
            assert peer.reason in {None, Reason.REQUESTED}
            if peer.is_over:
                async with Endpoint.connected(enode) as other:
                    again = Upstream(other, chunks)
                    async with serving(again):
                        await until_held(server, len(chunks))
                        assert again.reason is None
        assert held(store) == chunks.keys()
        assert chunk_entries(store) == len(chunks)


async def until_over(peer: Upstream, nursery: trio.Nursery) -> None:
    """Ends what waits for a peer that is gone."""
    await peer.over.wait()
    nursery.cancel_scope.cancel()


# --- how processes end ----------------------------------------------------------------------------


async def test_a_node_that_is_ended_has_on_disk_what_it_has_received(tmp_path: Path) -> None:
    with made_node(tmp_path / "a"):
        pass
    chunks = leaves(data_of(900, 1))
    with SwarmNode(tmp_path / "a") as node, trio.fail_after(PATIENCE_S):
        enode = await in_thread(lambda: node.enode)
        async with Endpoint.connected(enode) as endpoint:
            peer = Upstream(endpoint, chunks)
            while len(peer.wanted) < 400:
                await peer._take(*await endpoint.next())
            delivered = {*peer.wanted}
            # What comes before a second question is through when that is answered.
            for _ in range(2):
                await endpoint.base(2, [])
                await endpoint.heard(3)
            assert await in_thread(node.stop) == 0
            assert await endpoint.farewell() == 8
    assert delivered <= addresses(tmp_path / "a")
    assert own_chunks(tmp_path / "a") < len(chunks)


def test_put_that_is_killed_is_done_again_without_a_chunk_twice(tmp_path: Path) -> None:
    rng = random.Random(1)
    store, file = tmp_path / "a", tmp_path / "file"
    made(store)
    file.write_bytes(data_of(3_000, 1))
    with Store.open(store, readonly=True) as reading:
        for _ in range(3):
            before = chunk_entries(reading)
            process = subprocess.Popen(
                [EXECUTABLE, "--store", str(store), "swarm", "put", str(file)],
                stdout=subprocess.DEVNULL,
            )
            while chunk_entries(reading) == before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.random() * 0.05)  # the random moment
            process.send_signal(signal.SIGKILL)
            process.wait()
    [done] = records(store, "swarm", "put", str(file))
    assert done["chunks"] - done["new"] > 0
    assert own_chunks(store) == len(addresses(store)) == done["chunks"]
    target = tmp_path / "again"
    run(store, "swarm", "get", done["hash"], "--to", str(target))
    assert target.read_bytes() == file.read_bytes()
    run(store, "verify")


# --- what is got through a node that serves -------------------------------------------------------


def test_get_beside_a_node_that_serves(tmp_path: Path) -> None:
    a, b, target = tmp_path / "a", tmp_path / "b", tmp_path / "target"
    data = data_of(20, 1)
    [root] = made(a, data)
    with made_node(b):
        pass
    get = ("swarm", "get", root.hex(), "--to", str(target))
    nothing = "ab" * 32
    with SwarmNode(a) as upstream, SwarmNode(b, "--max-chunks", "0") as node:
        node.wait_for("listening")
        alone = run_any(b, *get, "--timeout", "0.5")
        assert alone.returncode == 1
        assert f"chunk {root.hex()} is not held" in alone.stderr
        assert not target.exists()
        # A peer that is called for it, and only that long.
        run(b, *get, "--from", upstream.enode)
        assert target.read_bytes() == data
        wait_until(lambda: bool(node.of("disconnected")), "it is not called any longer")
        missing = run_any(b, "swarm", "get", nothing, "--from", upstream.enode, "--timeout", "0.5")
        assert missing.returncode == 1
        assert f"chunk {nothing} is not held" in missing.stderr
    # Nobody serves: the command is the node itself.
    with SwarmNode(a) as upstream:
        missing = run_any(b, "swarm", "get", nothing, "--from", upstream.enode, "--timeout", "0.5")
        assert missing.returncode == 4
        assert "nothing has come for 0.5 s" in missing.stderr
