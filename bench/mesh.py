"""A mesh of nodes, all connected to all: how often each payload byte crosses the network.

    python bench/mesh.py --nodes 5 --entries 2000 --bytes 256 --appenders 1

Each round starts real `bamboo-peer serve` processes with stores on disk, waits until everybody is
connected with everybody, appends entries at one node or at several, and waits until every store
holds everything. It prints one JSON line: payload bytes received for each byte held of other nodes'
logs (1.0: each came once), bytes on all connections for each such byte, seconds from the first
append until all stores were equal (with `--late`: since the last nodes were started, which find
everything at all others). With `--nodes 2` it is the same with one source only.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from bench.support.output import show
from bench.support.processes import BAMBOO_PEER, ENVIRONMENT
from logstore import Store
from wire import LogKey

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 180
STATUS_S = 1.3
"""A node tells its state at most once a second."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=256)
    parser.add_argument("--appenders", type=int, default=1)
    parser.add_argument("--batch", type=int, default=10, help="entries of one append")
    parser.add_argument("--pause", type=float, default=0.005, help="seconds between appends")
    parser.add_argument("--late", type=int, default=0, help="nodes that join when the rest is done")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for _ in range(args.rounds):
        show(one_round(args))


def one_round(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(args.nodes)]
        stores = [Store.create(path) for path in paths]
        nodes: list[subprocess.Popen[str]] = []
        try:
            addresses: list[str] = []
            early = args.nodes - args.late

            def join(joining: list[Path]) -> None:
                for path in joining:
                    node, address = start(path, addresses)
                    nodes.append(node)
                    addresses.append(address)
                here = paths[: len(nodes)]
                until(lambda: all(connections(path) == len(nodes) - 1 for path in here))

            join(paths[:early])
            began = time.perf_counter()
            append(stores[: args.appenders], args)
            appended_s = time.perf_counter() - began
            logs = [LogKey(store.author, 0) for store in stores[: args.appenders]]
            if args.late:
                until(lambda: all(holds(store, logs, args.entries) for store in stores[:early]))
                began = time.perf_counter()
                join(paths[early:])
            until(lambda: all(holds(store, logs, args.entries) for store in stores))
            seconds = time.perf_counter() - began
            time.sleep(STATUS_S)
            states = [status(path) for path in paths]
        finally:
            for node in nodes:
                node.terminate()
            for node in nodes:
                node.wait()
            for store in stores:
                store.close()
    return {
        "nodes": args.nodes,
        "entries": args.entries,
        "size": args.bytes,
        "appenders": args.appenders,
        "late": args.late,
        "appended_s": round(appended_s, 2),
        "converged_s": round(seconds, 2),
        **shares(states, args),
    }


def start(path: Path, peers: list[str]) -> tuple[subprocess.Popen[str], str]:
    calls = [word for peer in peers for word in ("--connect", peer)]
    serve = ["--store", str(path), "--json", "serve", "--listen", "127.0.0.1:0", "--follow-all"]
    node = subprocess.Popen(
        [*BAMBOO_PEER, *serve, *calls], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert node.stdout is not None
    for line in node.stdout:
        event = json.loads(line)
        if event.get("event") == "listening":
            # From now on it may say what it likes.
            subprocess.Popen(["cat"], stdin=node.stdout, stdout=subprocess.DEVNULL)
            return node, event["address"]
    raise SystemExit("a node has ended before it listened")


def status(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((path / "status.json").read_text()))
    except (OSError, ValueError):
        return {"connections": []}


def connections(path: Path) -> int:
    return sum(each["state"] == "established" for each in status(path)["connections"])


def until(done: "Callable[[], bool]") -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"not done after {PATIENCE_S} s")
        time.sleep(0.05)


def append(stores: list[Store], args: argparse.Namespace) -> None:
    random = Random(1)
    for first in range(0, args.entries, args.batch):
        count = min(args.batch, args.entries - first)
        for store in stores:
            store.append([random.randbytes(args.bytes) for _ in range(count)])
        time.sleep(args.pause)


def holds(store: Store, logs: list[LogKey], entries: int) -> bool:
    found = [store.log(log) for log in logs]
    return all(
        info is not None and info.height == entries and not info.missing_payloads for info in found
    )


def shares(states: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    wanted = []
    for number in range(args.nodes):
        foreign = args.appenders - (number < args.appenders)
        wanted.append(foreign * args.entries * args.bytes)
    got = [sum(c["payload_bytes_received"] for c in state["connections"]) for state in states]
    wire = [sum(c["bytes_received"] for c in state["connections"]) for state in states]
    ratios = [g / w for g, w in zip(got, wanted, strict=True) if w]
    wires = [b / w for b, w in zip(wire, wanted, strict=True) if w]
    return {
        "payload_share": [round(ratio, 3) for ratio in ratios],
        "payload_share_mean": round(sum(ratios) / len(ratios), 3),
        "wire_share_mean": round(sum(wires) / len(wires), 3),
    }


if __name__ == "__main__":
    main()
