"""Replication between two processes over loopback TCP: new replica, live latency, memory.

    python bench/replicate.py --entries 20000 --bytes 256
    python bench/replicate.py --entries 256 --bytes 1048576 --hypercore DIR

Each round starts a serving process with a full log and a following process with an empty store,
both on disk, and prints one JSON line: entries and megabytes a second from the call to connect
until all is verified and durable, latency from append on one to verified and stored on the other,
peak memory of the two processes. `limit_per_s` is what all cores do when they check the same
signatures and nothing else. With --hypercore, a folder with hypercore's bench.js and its
node_modules, rounds alternate with the yardstick and the ratio is of the medians.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio
from nacl.signing import SigningKey

from bench.support.output import show
from bench.support.processes import play_role, read_record, start, tell
from logstore import Store
from peer.api import Peer
from wire import LogKey, sign_entry, signature_is_valid, yamf_hash

LIVE_ENTRIES = 300
LIVE_PAUSE_S = 0.002


def main() -> None:
    if play_role({"serve": serve, "follow": follow, "check": check}):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hypercore", type=Path, help="folder of the yardstick's bench.js")
    args = parser.parse_args()
    ours, theirs = [], []
    limit = limit_per_s(args.entries)
    for _ in range(args.rounds):
        ours.append(one_round(args.entries, args.bytes) | {"limit_per_s": round(limit)})
        show(ours[-1])
        if args.hypercore is not None:
            theirs.append(yardstick(args.hypercore, args.entries, args.bytes))
            show({"hypercore": theirs[-1]})
    if theirs:
        show(
            {
                f"{name}_ratio": round(median(ours, name) / median(theirs, name), 2)
                for name in ("replicate_per_s", "append_per_s", "live_ms_p50", "live_ms_p99")
            }
        )


def median(records: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(record[name] for record in records))


def batch_of(payload_bytes: int) -> int:
    """Entries of one append: about a megabyte, as a program would that has many to append."""
    return max(1, min(1000, (1 << 20) // max(payload_bytes, 1)))


def one_round(entries: int, payload_bytes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        serving = start("serve", folder + "/a", entries, payload_bytes)
        try:
            ready = read_record(serving)
            following = start("follow", folder + "/b", ready["address"], ready["author"], entries)
            replica = read_record(following)
            tell(serving, "live")
            live = read_record(following)
            following.wait()
            tell(serving, "stop")
            served = read_record(serving)
        finally:
            serving.kill()
            serving.wait()
    seconds = replica["seconds"]
    return {
        "entries": entries,
        "size": payload_bytes,
        "append_per_s": round(entries / ready["append_s"]),
        "replicate_per_s": round(entries / seconds),
        "replicate_MB_per_s": round(entries * payload_bytes / 1e6 / seconds, 1),
        **live,
        "peak_rss_MB": [served["peak_rss_MB"], live["peak_rss_MB"]],
    }


def peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def serve(folder: str, entries: str, payload_bytes: str) -> None:
    store = Store.create(folder)
    count, size, batch = int(entries), int(payload_bytes), batch_of(int(payload_bytes))
    began = time.perf_counter()
    for first in range(0, count, batch):
        store.append(
            [
                n.to_bytes(8, "big").ljust(size, b"\x01")[:size]
                for n in range(first, min(count, first + batch))
            ]
        )
    append_s = time.perf_counter() - began
    trio.run(_serve, store, append_s)
    show({"peak_rss_MB": peak_rss()})


async def _serve(store: Store, append_s: float) -> None:
    async with Peer(store) as peer:
        address = await peer.listen("127.0.0.1:0")
        show({"address": str(address), "author": store.author.hex(), "append_s": append_s})
        while await trio.to_thread.run_sync(sys.stdin.readline) == "live\n":
            for _ in range(LIVE_ENTRIES):
                await peer.append([str(time.time()).encode()])
                await trio.sleep(LIVE_PAUSE_S)


def follow(folder: str, address: str, author: str, entries: str) -> None:
    trio.run(_follow, Store.create(folder), address, LogKey(bytes.fromhex(author), 0), int(entries))


async def _follow(store: Store, address: str, log: LogKey, entries: int) -> None:
    async with Peer(store) as peer:
        await peer.follow(log)
        began = time.perf_counter()
        peer.connect(address)
        await peer.wait_for(log, entries)
        position = 0
        async for entry in peer.entries(log, after=0):
            if entry.seq == entries:
                position = entry.ingest
                break
        seconds = time.perf_counter() - began
        show({"seconds": seconds})
        delays = []
        async for entry in peer.entries(log, after=position):
            delays.append((time.time() - float(entry.payload)) * 1000)
            if len(delays) == LIVE_ENTRIES:
                break
        delays.sort()
        show(
            {
                "live_ms_p50": round(delays[len(delays) // 2], 2),
                "live_ms_p99": round(delays[int(len(delays) * 0.99)], 2),
                "peak_rss_MB": peak_rss(),
            }
        )


def limit_per_s(entries: int) -> float:
    """Signatures checked a second by as many processes as there are cores, and nothing else."""
    cores = os.cpu_count() or 1
    share = max(entries, 20_000) // cores
    workers = [start("check", share) for _ in range(cores)]
    for worker in workers:
        read_record(worker)
    began = time.perf_counter()
    for worker in workers:
        tell(worker, "go")
    for worker in workers:
        read_record(worker)
    return share * cores / (time.perf_counter() - began)


def check(count: str) -> None:
    key = SigningKey.generate()
    encoded = sign_entry(
        key,
        log_id=0,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=0,
        payload_hash=yamf_hash(b""),
    )
    show({"ready": True})
    sys.stdin.readline()
    for _ in range(int(count)):
        assert signature_is_valid(encoded)
    show({"done": True})


def yardstick(folder: Path, entries: int, payload_bytes: int) -> dict[str, Any]:
    done = subprocess.run(
        ["node", "bench.js", str(entries), str(payload_bytes), str(batch_of(payload_bytes))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
