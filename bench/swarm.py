"""How fast chunks are put and synced, beside upstream's nodes, and what many of them take.

    python bench/swarm.py [--rounds 3] [--only speed|size] [--quick]

One JSON object a line. Each round has all that is compared, one after the other: `value` and
`yardstick` are the best of the rounds, `spread` and `yardstick_spread` the worst, and `floor` is
what their `ratio` has to reach; `at_most` is what a value may come to. Our nodes are commands on
stores on disk. Without upstream's program (`make interop`) there are no ratios.

- `swarm put` of a file, as a command, whose time has that in which Python starts, and by the API:
  beside upstream's store, which is given as many chunks at once;
- syncing from upstream to us, and between two of ours, from the moment at which both are connected
  until the receiver holds all: beside upstream to upstream;
- the index of 100,000 chunks made anew;
- the memory of the node that serves them, when nobody does anything, and with peers that take all
  of it.

`--quick` does all of it with a few chunks, which shows that it works and not how fast.
"""

import argparse
import json
import os
import re
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

import trio

from bench.support.output import report
from bench.support.processes import BAMBOO_PEER, ENVIRONMENT
from gateways.swarm import SwarmServer
from gateways.swarm.bmt import PAYLOAD_BYTES_MAX
from gateways.swarm.book import Book
from gateways.swarm.client import Client
from gateways.swarm.codec import (
    BINS,
    HIGH,
    SYNC,
    OfferedHashes,
    Range,
    Stream,
    StreamDelivery,
    bin_key,
    encode_message,
)
from gateways.swarm.commands import Keep, Send
from gateways.swarm.intervals import Intervals
from gateways.swarm.keys import Key, overlay_of, read_enode
from gateways.swarm.link import Identity, Link
from gateways.swarm.rlpx import draw
from logstore import Store
from tests.interop.swarm_go import PROGRAM, UpstreamNode
from wire import LogKey

CHUNK_LOG = 7000
LOOK_S = 0.003
MEMORY_LOOK_S = 0.05
SETTLED_S = 3.0
PATIENCE_S = 600.0
MIB = 1 << 20


class Sizes(NamedTuple):
    """How much of everything."""

    leaves: int = 9_921
    """Of a file that is 10,000 chunks."""
    many: int = 99_217
    """Of one that is 100,000."""
    peers: int = 4


QUICK = Sizes(leaves=300, many=500, peers=2)
NETWORK: Final = 3


def make_file(path: Path, leaves: int) -> Path:
    """A file of so many leaves, all different."""
    with path.open("wb") as file:
        for _ in range(leaves):
            file.write(os.urandom(PAYLOAD_BYTES_MAX))
    return path


class Node:
    """A node of ours, in a store on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run("init")
        self.run("swarm", "init")

    def run(self, *words: str) -> tuple[float, bytes]:
        """A command: its seconds, and what it printed."""
        begun = time.perf_counter()
        done = subprocess.run(
            [*BAMBOO_PEER, "--store", str(self.path), *words, "--json"],
            env=ENVIRONMENT,
            check=True,
            stdout=subprocess.PIPE,
        )
        return time.perf_counter() - begun, done.stdout

    def put(self, file: Path) -> float:
        """Chunks a second, by the command."""
        took_s, out = self.run("swarm", "put", str(file))
        chunks: int = json.loads(out)["chunks"]
        return chunks / took_s

    def serve(self, *words: str) -> "Serving":
        """Serves it in a process."""
        return Serving(self, *words)


class Serving:
    """`swarm serve`, inside a `with` block."""

    def __init__(self, node: Node, *words: str) -> None:
        self._node = node
        command = (*BAMBOO_PEER, "--store", str(node.path), "swarm", "serve", "--json", *words)
        self._process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def wait(self, event: str) -> dict[str, object]:
        """What it says of the next event of a name."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, object] = json.loads(line)
            if said["event"] == event:
                return said
        raise RuntimeError(f"it has ended before it was {event}")

    def memory(self) -> int:
        """What of it is in memory now."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024


def wait_for(node: Node, chunks: int, first: int = CHUNK_LOG, logs: int = 1) -> None:
    """Until so many payloads are in some logs of a node."""
    give_up = time.monotonic() + PATIENCE_S
    with Store.open(node.path, readonly=True) as store:
        keys = [LogKey(store.author, first + each) for each in range(logs)]
        while sum(height_of(store, each) - 1 for each in keys) < chunks:
            if time.monotonic() > give_up:
                raise RuntimeError(f"{node.path} has not {chunks} chunks after {PATIENCE_S} s")
            time.sleep(LOOK_S)


def height_of(store: Store, key: LogKey) -> int:
    """Of a log."""
    info = store.log(key)
    assert info is not None
    return info.height


# --- speed ----------------------------------------------------------------------------------------


def put_api(node: Node, file: Path, chunks: int) -> float:
    """Chunks a second, by `SwarmServer.put`."""

    async def put() -> float:
        with Store.open(node.path) as store:
            async with SwarmServer(store) as server:
                begun = time.perf_counter()
                await server.put(file)
                return time.perf_counter() - begun

    return chunks / trio.run(put)


def sync_from(enode: str, receiver: Node, chunks: int) -> float:
    """Chunks a second, to a node of ours."""
    with receiver.serve("--no-listen", "--connect", enode) as serving:
        serving.wait("connected")
        begun = time.perf_counter()
        wait_for(receiver, chunks)
        return chunks / (time.perf_counter() - begun)


def ours_round(folder: Path, file: Path) -> dict[str, float]:
    """Rates of our nodes alone."""
    sender, receiver = Node(folder / "sender"), Node(folder / "receiver")
    found = {"put": sender.put(file)}
    chunks = json.loads(sender.run("swarm", "status")[1])["chunks"]
    found["api"] = put_api(Node(folder / "api"), file, chunks)
    with sender.serve("--listen", "127.0.0.1:0") as serving:
        enode = str(serving.wait("listening")["enode"])
        place_all(sender, chunks)
        found["ours to ours"] = sync_from(enode, receiver, chunks)
    return found


def place_all(node: Node, chunks: int) -> None:
    """Until all chunks have their places."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        said = json.loads(node.run("swarm", "status")[1])
        if sum(each["items"] for each in said["bins"]) >= chunks:
            return
        if time.monotonic() > give_up:
            raise RuntimeError(f"{node.path} has not placed {chunks} chunks")
        time.sleep(LOOK_S)


def upstream_round(folder: Path, chunks: int) -> dict[str, float]:
    """Rates of upstream's store, and of syncing from it."""
    with UpstreamNode.start(folder / "upstream") as sender:
        put_s = sender.put(chunks, "bench", timeout_s=PATIENCE_S)["seconds"]
        found = {"upstream's store": chunks / put_s}
        with UpstreamNode.start(folder / "upstream receiver") as other:
            overlay = other.connect(sender.enode)
            begun = time.perf_counter()
            other.sync(overlay)
            other.wait(chunks, PATIENCE_S)
            found["upstream to upstream"] = chunks / (time.perf_counter() - begun)
        receiver = Node(folder / "from upstream")
        found["upstream to ours"] = sync_from(sender.enode, receiver, chunks)
    return found


def measure_speed(sizes: Sizes, rounds: int) -> None:
    """What is compared with upstream."""
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            each = ours_round(folder, make_file(folder / "file", sizes.leaves))
            if PROGRAM.exists():
                each |= upstream_round(folder, 10_000 if sizes.leaves > 1_000 else sizes.leaves)
            found.append(each)
    compare = partial(paired, found)
    compare("put, by the command", "put", "upstream's store", 0.4)
    compare("put, by the API", "api", "upstream's store", 0.4)
    compare("sync, upstream to ours", "upstream to ours", "upstream to upstream", 0.4)
    compare("sync, ours to ours", "ours to ours", "upstream to upstream", 0.3)


def paired(
    found: Sequence[dict[str, float]], name: str, ours: str, theirs: str, floor: float
) -> None:
    """The best of both, and their ratio."""
    if ours not in found[0]:
        return
    values = [each[ours] for each in found]
    more: dict[str, object] = {"spread": round(min(values))}
    if theirs in found[0]:
        beside = [each[theirs] for each in found]
        more |= {
            "yardstick": round(max(beside)),
            "yardstick_spread": round(min(beside)),
            "ratio": round(max(values) / max(beside), 3),
            "floor": floor,
        }
    report(name, max(values), "chunks/s", **more)


# --- size -----------------------------------------------------------------------------------------


class Taking:
    """A peer that takes all that a node has, and keeps none of it."""

    def __init__(self, enode: str) -> None:
        where = read_enode(enode)
        self._address = (where.host, where.port)
        key = Key(secrets.token_bytes(32))
        identity = Identity(key, "bench", NETWORK, overlay_of(key.public), enode, is_light=False)
        self._link = Link(identity, draw(secrets.token_bytes), trio.current_time(), where.public)
        self._book = Book(lambda _: False)
        self._client = Client(self._book)
        self.taken = 0

    async def run(self, chunks: int) -> None:
        """Until so many have come."""
        stream = await trio.open_tcp_stream(*self._address)
        async with stream:
            while not self._link.is_open:
                await self._receive(stream)
            for each in range(BINS):
                asked = Stream(SYNC, bin_key(each), live=True)
                now = trio.current_time()
                self._client.subscribe(asked, Range(0, 0), HIGH, Intervals(0), now)
            self._carry_out()
            while self.taken < chunks:
                await self._receive(stream)
                self._carry_out()

    async def _receive(self, stream: trio.SocketStream) -> None:
        if data := self._link.take():
            await stream.send_all(data)
        data = await stream.receive_some(MIB)
        now = trio.current_time()
        for message in self._link.receive(data, now):
            if isinstance(message, OfferedHashes | StreamDelivery):
                self._client.receive(message, now)

    def _carry_out(self) -> None:
        while commands := self._client.commands():
            kept = [each.address for each in commands if isinstance(each, Keep)]
            for each in commands:
                if isinstance(each, Send):
                    self._link.send(*encode_message(each.message))
            self.taken += len(kept)
            self._book.recorded(kept, trio.current_time())


def most_memory(serving: Serving, enode: str, chunks: int, peers: int) -> tuple[int, float]:
    """Of a node while so many peers take all of it, and chunks a second that it sends."""
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, serving.memory())
            await trio.sleep(MEMORY_LOOK_S)

    async def take() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async with trio.open_nursery() as taking:
                for _ in range(peers):
                    taking.start_soon(Taking(enode).run, chunks)
            nursery.cancel_scope.cancel()

    begun = time.perf_counter()
    trio.run(take)
    return most, peers * chunks / (time.perf_counter() - begun)


def measure_size(sizes: Sizes) -> None:
    """What many chunks take."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node = Node(folder / "store")
        file = make_file(folder / "file", sizes.many)
        node.put(file)
        file.unlink()
        chunks = json.loads(node.run("swarm", "status")[1])["chunks"]
        of = f"{chunks} chunks"
        with serving_all(node, chunks):
            pass
        for each in node.path.glob("swarm.sqlite3*"):
            each.unlink()
        took_s, out = node.run("swarm", "status")
        assert json.loads(out)["chunks"] == chunks
        report(f"index made anew, {of}", took_s, "s", at_most=120)
        with serving_all(node, chunks) as (serving, enode):
            time.sleep(SETTLED_S)
            idle = serving.memory()
            report(f"memory of serve, {of}", idle / MIB, "MiB", at_most=150)
            found: list[int] = []
            for peers in (1, sizes.peers):
                most, rate = most_memory(serving, enode, chunks, peers)
                found.append(most)
                what = f"memory of serve with {peers} that take all, {of}"
                limit = 150 + 10 * peers
                report(what, most / MIB, "MiB", at_most=limit, chunks_per_s=round(rate))
            further = (found[1] - found[0]) / (sizes.peers - 1) / MIB
            report(f"memory for each further peer, {of}", further, "MiB", at_most=10)


@contextmanager
def serving_all(node: Node, chunks: int) -> Iterator[tuple[Serving, str]]:
    """A node that serves, once all is placed."""
    with node.serve("--listen", "127.0.0.1:0") as serving:
        enode = str(serving.wait("listening")["enode"])
        place_all(node, chunks)
        yield serving, enode


def main() -> None:
    """Measures everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("speed", "size"))
    args = parser.parse_args()
    sizes = QUICK if args.quick else Sizes()
    if args.only != "size":
        measure_speed(sizes, 1 if args.quick else args.rounds)
    if args.only != "speed":
        measure_size(sizes)


if __name__ == "__main__":
    main()
