"""Nodes as processes: killed, moved, restored, light, behind a replica; and what overtakes what."""

import random
import shutil
import statistics
import time
from functools import partial
from pathlib import Path

import pytest
import trio

from logstore import Store
from tests.processes.node import Node, records, run, wait_until

from .swarm.downstream import Downstream
from .swarm.endpoint import Endpoint
from .swarm.nodes import PATIENCE_S, data_of, made_node, served, until_held
from .swarm.processes import (
    SwarmNode,
    addresses,
    bins,
    covered,
    intervals,
    made,
    own_chunks,
    places,
    put_more,
    until_entries,
    until_placed,
    until_recorded,
)
from .swarm.upstream import Upstream, file_chunks, leaves

in_thread = trio.to_thread.run_sync


def check_whole(folder: Path, expected: set[bytes]) -> None:
    """All is there, each chunk once, and with one place."""
    assert addresses(folder) == expected
    assert own_chunks(folder) == len(expected)
    found = places(folder)
    assert len({each[1:] for each in found}) == len(found) == len(expected)
    run(folder, "verify")


# --- kill -9 --------------------------------------------------------------------------------------


def kill_and_complete(folder: Path, chunks: int, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    a, b = folder / "a", folder / "b"
    made(a, data_of(chunks, 1))
    made(b, data_of(chunks // 5, 2))
    expected = addresses(a) | addresses(b)
    first = SwarmNode(a)
    enode = first.enode
    where = enode.rpartition("@")[2]
    second, connected = SwarmNode(b, "--no-listen", "--connect", enode), 1
    try:
        for _ in range(kills):
            second.wait_for_count("connected", connected)
            time.sleep(rng.uniform(0, 0.6))  # the random moment
            if rng.random() < 0.5:
                connected = len(second.of("connected")) + 1
                first.kill()
                first = SwarmNode(a, "--listen", where)
            else:
                second.kill()
                second, connected = SwarmNode(b, "--no-listen", "--connect", enode), 1
        for each in (a, b):
            until_entries(each, len(expected))
    finally:
        for node in (first, second):
            with node:
                node.stop()
    for each in (a, b):
        check_whole(each, expected)


def test_killed_nodes_have_all_in_the_end_and_each_chunk_once(tmp_path: Path) -> None:
    kill_and_complete(tmp_path, chunks=800, kills=3, seed=1)


@pytest.mark.long
def test_killed_twenty_times_they_have_ten_thousand_chunks_once_each(tmp_path: Path) -> None:
    kill_and_complete(tmp_path, chunks=10_000, kills=20, seed=2)


class Counting(Upstream):
    """One that knows how much it has sent."""

    enough: int
    sent = 0

    def __init__(self, endpoint: Endpoint, chunks: dict[bytes, bytes], enough: int) -> None:
        super().__init__(endpoint, chunks)
        self.enough = enough
        self.has_sent_enough = trio.Event()

    async def deliver(self, address: bytes) -> None:
        await super().deliver(address)
        self.sent += 1
        if self.sent >= self.enough:
            self.has_sent_enough.set()


def first_gap(text: str | None) -> int:
    for each in covered(text or "0"):
        if each.start == 0:
            return each.stop
    return 0


async def kill_and_resume(folder: Path, chunks: int, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    with made_node(folder):
        pass
    key, held = rng.randbytes(32), leaves(data_of(chunks, seed))
    known: dict[str, str] = {}
    for left in range(kills, -1, -1):
        missing = len(held) - len(addresses(folder))
        with SwarmNode(folder) as node, trio.fail_after(PATIENCE_S):
            enode = await in_thread(lambda: node.enode)
            async with (
                Endpoint.connected(enode, key) as endpoint,
                trio.open_nursery() as nursery,
            ):
                enough = missing if not left else rng.randrange(1, 2 + 2 * missing // (left + 1))
                upstream = Counting(endpoint, held, min(enough, max(1, missing)))
                nursery.start_soon(upstream.run)
                if missing:
                    await upstream.has_sent_enough.wait()
                if left:
                    await in_thread(node.kill)
                else:
                    await in_thread(until_entries, folder, len(held))
                nursery.cancel_scope.cancel()
        for asked in upstream.asked:
            assert asked.live
            assert asked.range == (first_gap(known.get(asked.key)), 0)
        for name, text in known.items():
            had = [upstream.bins[name][at - 1] for each in covered(text) for at in each if at]
            assert not upstream.wanted.keys() & {*had}
        known = await in_thread(intervals, folder)
        for name, text in known.items():
            had = [upstream.bins[name][at - 1] for each in covered(text) for at in each if at]
            assert {*had} <= addresses(folder)
    await in_thread(check_whole, folder, {*held})


async def test_a_killed_node_asks_for_what_it_has_not_recorded(tmp_path: Path) -> None:
    await kill_and_resume(tmp_path / "store", chunks=600, kills=2, seed=1)


@pytest.mark.long
async def test_killed_twenty_times_it_asks_for_what_it_has_not_recorded(tmp_path: Path) -> None:
    await kill_and_resume(tmp_path / "store", chunks=10_000, kills=20, seed=3)


# --- three nodes ----------------------------------------------------------------------------------


def overlapping(folder: Path, chunks: int) -> float:
    """Of three nodes of which each two have a third in common: what crossed ÷ what was missing."""
    parts = [data_of(chunks, seed) for seed in range(3)]
    stores = [folder / name for name in "abc"]
    for at, store in enumerate(stores):
        made(store, parts[at], parts[(at + 1) % 3])
    before = [addresses(each) for each in stores]
    everything = set.union(*before)
    missing = sum(len(everything - each) for each in before)
    with (
        SwarmNode(stores[0]) as a,
        SwarmNode(stores[1], "--connect", a.enode) as b,
        SwarmNode(stores[2], "--connect", a.enode, "--connect", b.enode) as c,
    ):
        nodes = (a, b, c)
        for store, had in zip(stores, before, strict=True):
            until_entries(store, len(everything))
            assert had <= everything

        def crossed() -> int:
            told = [each.peers() for each in nodes]
            return sum(each["received"] + each["duplicates"] for peers in told for each in peers)

        wait_until(lambda: crossed() >= missing, "what has crossed is told")
        found = crossed()
        for node in nodes:
            assert node.stop() == 0
    for store in stores:
        check_whole(store, everything)
    return found / missing


def test_three_that_overlap_send_each_other_what_is_missing_and_no_more(tmp_path: Path) -> None:
    assert overlapping(tmp_path, 100) < 1.02


@pytest.mark.long
def test_three_that_overlap_by_thousands(tmp_path: Path) -> None:
    assert overlapping(tmp_path, 3_000) < 1.02


# --- what overtakes what --------------------------------------------------------------------------


async def test_what_is_asked_for_and_what_is_new_overtakes_history(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await in_thread(made, store, data_of(3_000, 1))
    total = len(addresses(store))
    new, _ = file_chunks(b"new" * 1_000)
    [address] = new
    with SwarmNode(store) as node, trio.fail_after(PATIENCE_S):
        enode = await in_thread(lambda: node.enode)
        await in_thread(until_placed, store, total)
        async with Endpoint.connected(enode) as endpoint:
            peer = Downstream(endpoint)
            await peer.subscribe()
            await peer.read(lambda: len(peer.came) >= 200)
            # Nothing is read while it is put and gets its place: much of the history waits.
            await in_thread(put_more, store, b"new" * 1_000)
            await in_thread(until_placed, store, total + 1)
            wanted = max(addresses(store))
            await peer.request(wanted)
            asked_at = len(peer.came)
            await peer.read(lambda: wanted in peer.answers and address in peer.came)
            answered = peer.answers[wanted] - asked_at
            # What is in the sockets comes before both, and little else.
            assert answered < total // 5
            # A batch of one waits for more before it is offered; but not for history.
            assert len(peer.came) < total - total // 5


@pytest.mark.long
async def test_a_retrieval_comes_as_soon_as_on_an_idle_connection(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await in_thread(made, store, data_of(10_000, 1))
    rng = random.Random(1)
    total = len(addresses(store))
    some = rng.sample(sorted(addresses(store)), 40)
    took: dict[bool, list[float]] = {False: [], True: []}
    with SwarmNode(store) as node, trio.fail_after(PATIENCE_S):
        enode = await in_thread(lambda: node.enode)
        await in_thread(until_placed, store, total)
        async with Endpoint.connected(enode) as endpoint:
            peer = Downstream(endpoint)
            for at, wanted in enumerate(some):
                is_busy = at >= 20
                if at == 20:
                    await peer.subscribe()
                    await peer.read(lambda: len(peer.came) >= 500)
                begun = time.perf_counter()
                await peer.request(wanted)
                await peer.read(lambda: wanted in peer.answers)  # noqa: B023 - called here
                took[is_busy].append(time.perf_counter() - begun)
            assert len(peer.came) < 5_000
    idle, busy = (statistics.median(took[each]) for each in (False, True))
    print(f"idle {idle * 1000:.1f} ms, busy {busy * 1000:.1f} ms, worst {max(took[True]):.3f} s")  # noqa: T201
    assert busy - idle < 0.1


# --- stores that are moved ------------------------------------------------------------------------


def without_side(store: Path) -> Path:
    (store / "swarm.sqlite3").unlink()
    return store


def copied(store: Path) -> Path:
    target = store.with_name(f"{store.name} copied")
    shutil.copytree(store, target)
    run(target, "key", "confirm")
    return target


def restored(store: Path) -> Path:
    target = store.with_name(f"{store.name} restored")
    run(store, "backup", str(target))
    run(target, "key", "confirm")
    return target


async def serve_until(stores: list[Path], count: int) -> int:
    """Serves both until each has so many chunks and has recorded that; how many crossed."""
    with Store.open(stores[0]) as at_a, Store.open(stores[1]) as at_b:
        async with served(at_a) as (a, enode, _), served(at_b) as (b, _, _):
            b.connect(enode)
            for each, folder in ((a, stores[0]), (b, stores[1])):
                await until_held(each, count)
                await in_thread(until_recorded, folder, count)
            peers = [*a._inside()[1].neighbours, *b._inside()[1].neighbours]
            return sum(each.client.received + each.client.ignored for each in peers)


async def test_a_store_that_is_moved_is_the_same_node_and_goes_on(tmp_path: Path) -> None:
    stores = [tmp_path / name for name in "ab"]
    made(stores[0], data_of(200, 1))
    made(stores[1], data_of(50, 2))
    expected = addresses(stores[0]) | addresses(stores[1])
    missing = sum(len(expected - addresses(each)) for each in stores)
    assert await serve_until(stores, len(expected)) == missing
    for how in (without_side, copied, restored):
        before = [(places(each), bins(each)) for each in stores]
        stores = [how(each) for each in stores]
        assert [(places(each), bins(each)) for each in stores] == before
        new = put_more(stores[0], how.__name__.encode())
        expected.add(new)
        assert await serve_until(stores, len(expected)) == 1
        for store, (was, _) in zip(stores, before, strict=True):
            check_whole(store, expected)
            assert {*was} < {*places(store)}


# --- a replica by bamboo --------------------------------------------------------------------------


def test_a_replica_by_bamboo_serves_all_without_a_chunk_of_its_own(tmp_path: Path) -> None:
    a, replica, c = (tmp_path / name for name in "arc")
    data = data_of(150, 1)
    [root] = made(a, data)
    author = records(a, "whoami")[0]["author"]
    with made_node(replica), made_node(c):
        pass
    run(replica, "follow", f"{author}/7000")
    with Node(a, "--listen", "127.0.0.1:0") as node:
        run(replica, "sync", node.address)
    expected = addresses(a)
    with SwarmNode(replica) as serving, SwarmNode(c, "--no-listen", "--connect", serving.enode):
        until_entries(c, len(expected))
    assert own_chunks(replica) == 0
    assert addresses(replica) == addresses(c) == expected
    assert len(places(replica)) == len(expected)
    target = tmp_path / "target"
    run(c, "swarm", "get", root.hex(), "--to", str(target))
    assert target.read_bytes() == data


# --- light nodes ----------------------------------------------------------------------------------


async def test_a_light_node_retrieves_and_takes_no_part_in_syncing(tmp_path: Path) -> None:
    light, full = tmp_path / "light", tmp_path / "full"
    data = data_of(40, 1)
    [root] = await in_thread(made, full, data)
    await in_thread(made, light, data_of(3, 2))
    with SwarmNode(full) as a, SwarmNode(light, "--light") as b, trio.fail_after(PATIENCE_S):
        at_full, at_light = await in_thread(lambda: (a.enode, b.enode))
        async with Endpoint.connected(at_full, is_light=True) as endpoint:
            # It is not asked to sync: what is asked of it comes before its own question's answer.
            peer = Upstream(endpoint, leaves(data_of(5, 3)))
            await endpoint.say(5, [root, True, 0])
            while True:
                code, value = await endpoint.next()
                if code == 19 + 6:
                    break
                await peer._take(code, value)
            assert peer.asked == []
        async with Endpoint.connected(at_light) as endpoint:
            await endpoint.say(4, [["SYNC", "0", True], [1, 0], 2])
            assert await endpoint.hear(7) == [b"stream SYNC not registered"]
            heard = await endpoint.hear(4)
            stream = heard[0]
            assert isinstance(stream, list)
            assert stream[0] == b"RETRIEVE_REQUEST"
            await endpoint.say(8, [["SYNC", "0", True], [1, 0], 2])
            await endpoint.base(2, [])
            await endpoint.heard(3)
            assert not [each for each in endpoint._heard if each[0] == 19 + 4]
    part = tmp_path / "part"
    with (
        SwarmNode(full) as a,
        SwarmNode(light, "--light", "--connect", await in_thread(lambda: a.enode)) as b,
    ):
        await in_thread(b.wait_for, "connected")
        get = ("swarm", "get", root.hex(), "--range", "70000..70010", "--to", str(part))
        await in_thread(partial(run, light, *get))
        assert part.read_bytes() == data[70_000:70_011]
        # The root and one leaf, no more, and nothing the other way.
        assert len(await in_thread(addresses, light)) == 4 + 2
        assert len(await in_thread(addresses, full)) == 41
