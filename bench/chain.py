"""One large payload through a chain of three serving processes: greedy and safe.

    python bench/chain.py --bytes 268435456 --rounds 3

Each round starts three `bamboo-peer serve` processes over loopback TCP, each with its own store on
disk: the second calls the first, the third the second, and both follow the first one's author. Once
a small entry has come through, a large payload is appended to the first store. Time counts from
when the first node says that it has it; when the payload is stored and verified at the relay, and
at the far end, is told by these nodes. `ratio` is that of the far end to the relay: 1 is as good as
no relay at all, and 2 is what waiting for the whole payload costs. Prints one JSON line a round,
then a table of medians.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.support.output import show
from bench.support.processes import BAMBOO_PEER, ENVIRONMENT
from logstore import PayloadState, Store
from wire import LogKey

MODES = {"greedy": "both", "safe": "none"}
TIMEOUT_S = 600.0
NODES = ("source", "relay", "far")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compression", default="auto", help="what serve is told")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    args = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {mode: [] for mode in args.modes}
    for _ in range(args.rounds):
        for mode in args.modes:
            with tempfile.TemporaryDirectory() as folder:
                measured = one_round(Path(folder), mode, args.bytes, args.compression)
            rounds[mode].append(measured)
            show({"mode": mode, "bytes": args.bytes, **measured})
    print(f"\n{'':8}{'relay s':>9}{'far s':>9}{'far/relay':>11}{'far MB/s':>10}")
    for mode, found in rounds.items():
        relay, far, ratio, speed = (
            statistics.median(each[name] for each in found)
            for name in ("relay_s", "far_s", "ratio", "far_MB_per_s")
        )
        print(f"{mode:8}{relay:9.2f}{far:9.2f}{ratio:11.2f}{speed:10.1f}")


class Node:
    """A `bamboo-peer serve --json`, and when it said what."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.folder = folder
        self._heard = threading.Condition()
        self._events: list[tuple[float, dict[str, Any]]] = []
        self._process = subprocess.Popen(
            [*BAMBOO_PEER, "serve", "--store", str(folder), "--json", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self._events.append((time.perf_counter(), json.loads(line)))
                self._heard.notify_all()
        with self._heard:
            self._events.append((time.perf_counter(), {"event": "ended"}))
            self._heard.notify_all()

    def wait_for(self, kind: str, count: int = 1) -> tuple[float, dict[str, Any]]:
        """The `count`th event of a kind, and when it came."""
        with self._heard:
            while True:
                found = [each for each in self._events if each[1]["event"] == kind]
                if len(found) >= count:
                    return found[count - 1]
                if self._events and self._events[-1][1]["event"] == "ended":
                    raise SystemExit(f"{self.folder.name} has ended: {self._events}")
                if not self._heard.wait(TIMEOUT_S):
                    raise SystemExit(f"{self.folder.name} says nothing: {self._events}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


def append(store: Path, payload: Path) -> None:
    subprocess.run(
        [*BAMBOO_PEER, "append", "--store", str(store), str(payload)],
        check=True,
        stdout=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )


def one_round(folder: Path, mode: str, payload_bytes: int, compression: str) -> dict[str, float]:
    payload = folder / "payload"
    with payload.open("wb") as file:
        for at in range(0, payload_bytes, 1 << 20):
            file.write(os.urandom(min(1 << 20, payload_bytes - at)))
    first = folder / "first"
    first.write_bytes(b"first")
    for name in NODES:
        Store.create(folder / name).close()
    with Store.open(folder / "source", readonly=True) as store:
        log = LogKey(store.author, 0)
    flags = ["--greedy", MODES[mode], "--compression", compression, "--listen", "127.0.0.1:0"]
    nodes: list[Node] = []
    try:
        for name in NODES:
            extra = []
            if nodes:
                address = nodes[-1].wait_for("listening")[1]["address"]
                extra = ["--connect", address, "--follow", log.author.hex()]
            nodes.append(Node(folder / name, [*flags, *extra]))
        for node, count in zip(nodes, (1, 2, 1), strict=True):
            node.wait_for("connected", count)
        append(folder / "source", first)
        for node in nodes:
            node.wait_for("log_advanced")
        append(folder / "source", payload)
        began = nodes[0].wait_for("log_advanced", 2)[0]
        # The first news of an entry with a large payload is the entry, the second the payload.
        relay_s, far_s = (node.wait_for("log_advanced", 3)[0] - began for node in nodes[1:])
    finally:
        for node in nodes:
            node.stop()
    for name in NODES[1:]:
        with Store.open(folder / name, readonly=True) as store:
            entry = store.entry(log, 2)
            assert entry is not None
            assert entry.payload_state is PayloadState.PRESENT
    return {
        "relay_s": round(relay_s, 3),
        "far_s": round(far_s, 3),
        "ratio": round(far_s / relay_s, 3),
        "far_MB_per_s": round(payload_bytes / 1e6 / far_s, 1),
    }


if __name__ == "__main__":
    main()
