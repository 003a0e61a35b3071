"""Rates against what a workload is made of, as points: `make curves` draws them (bench/page.py).

    python bench/curves.py [--quick] [--series NAME]... [--rounds N] [--out bench/curves.json]

A point is a new replica: processes over loopback, stores on disk, everything verified, as in
bench/suite.py. Connecting is part of the time.

`length`: entries/s of one log of 1,000 to 1,000,000 entries; `logs`: entries/s of the same number
of entries in 1 to 10,000 logs; `payload`: MB/s of payloads of 0 to 1 GiB; `connections`: entries/s
that 1 to 100 followers of one node hold together, each with a store of its own. Followers share at
most ten processes: each more would take a start and 40 MB, and no other core.

A point is left out, and told, where its stores and 4 GiB more do not fit on the disk, or a round
takes longer than a quarter of an hour. A round has 3 GiB on the disk at most, and leaves nothing.

`--out` gets a list of points, after each series. Those of other series stay, so that series may be
measured one by one. Of a point: `series`, `x`; `value`, `unit`, `spread`: the median and the range
of the rounds; `cpu_us`: of all processes, for each entry that was delivered; `rss_mb`: of the
larger process, at most, and for `connections` of the node that serves; `entries`, `entries_per_s`;
`served_cpu_us`, for `connections`: the part of that node; `rounds`, `quick`, `native`, and `date`
and `load` as in bench/suite.py.
"""

import argparse
import gc
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import trio

from bamboo_cli.online import COLLECTOR_THRESHOLDS
from bench import suite
from bench.suite import MIB, Size, numbers
from bench.support.output import date_and_load, show
from bench.support.processes import play_role, read_record, running, tell, used_cpu_s
from bench.support.records import Figures, rounded
from logstore import FULL, Store
from peer.api import Peer
from wire.native import NATIVE

SERIES = ("length", "logs", "payload", "connections")
SMALL_BYTES = 256
CROWD_PROCESSES_MAX = 10
ROUND_S_MAX = 900
"""A round that takes longer is given up, and its point with it."""
ENTRY_BYTES = 1200
"""What an entry takes in a store beside its payload, at most."""
SPARE_BYTES = 4 << 30
"""Left free on the disk: a node takes nothing in where less than 1 GiB is."""

Record = dict[str, object]


@dataclass(frozen=True)
class Spot:
    """Where a series is measured."""

    series: str
    x: int
    size: Size
    followers: int = 1

    @property
    def delivered(self) -> int:
        """Entries that all followers together get."""
        return self.size.total * self.followers

    @property
    def disk_bytes(self) -> int:
        """What its stores take, and a payload that is made in a file of its own."""
        of_store = self.size.total * (self.size.payload_bytes + ENTRY_BYTES)
        return of_store * (self.followers + 1) + self.size.payload_bytes


def main() -> None:
    if play_role({"serve": suite.serve, "follow": suite.follow, "crowd": crowd}):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--least", action="store_true", help="smaller still: only that it works")
    parser.add_argument("--series", action="append", choices=SERIES, help="all, unless said")
    parser.add_argument("--rounds", type=int, help="how often each is measured (3; quick: 1)")
    parser.add_argument("--out", type=Path, help="where to write the points, as JSON")
    args = parser.parse_args()
    is_quick = args.quick or args.least
    rounds = args.rounds or (1 if is_quick else 3)
    about = {
        "rounds": rounds,
        "quick": is_quick,
        "native": NATIVE is not None,
        **date_and_load(),
    }
    spots = least_spots() if args.least else [*spots_of(quick=is_quick)]
    for series in args.series or SERIES:
        points = measured([spot for spot in spots if spot.series == series], rounds, about)
        for point in points:
            show(point)
        if args.out is not None:
            keep(args.out, series, points)


def keep(path: Path, series: str, points: list[Record]) -> None:
    """Writes the points of a series to the others in a file."""
    before = json.loads(path.read_text()) if path.exists() else []
    others = [point for point in before if point["series"] != series]
    ordered = sorted([*others, *points], key=lambda point: SERIES.index(str(point["series"])))
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def spots_of(*, quick: bool) -> Iterator[Spot]:
    """Every point. `quick`: those that take a moment, and with less behind each."""
    total = 2000 if quick else 20_000
    for entries in (1000, 4000, 16_000) if quick else (1000, 10_000, 100_000, 1_000_000):
        yield Spot("length", entries, Size(entries, SMALL_BYTES))
    for logs in (1, 10, 100, 1000, 10_000):
        if logs <= total // 2:
            yield Spot("logs", logs, Size(total // logs, SMALL_BYTES, logs=logs))
    bytes_of_point = (64 if quick else 512) * MIB
    # 64 KiB still come into the store's table, many in one transaction; 256 KiB are files.
    sizes = (0, 256, 4 << 10, 64 << 10, 256 << 10, MIB, 16 * MIB, 256 * MIB, 1024 * MIB)
    for payload in sizes:
        if not quick or payload <= bytes_of_point:
            entries = min(total, max(1, bytes_of_point // max(1, payload)))
            yield Spot("payload", payload, Size(entries, payload))
    for followers in (1, 5, 20) if quick else (1, 10, 100):
        size = Size(1000 if quick else 10_000, SMALL_BYTES)
        yield Spot("connections", followers, size, followers)


def least_spots() -> list[Spot]:
    """One point of each series, and both ends where payloads are made in another way."""
    return [
        Spot("length", 10, Size(10, SMALL_BYTES)),
        Spot("logs", 2, Size(2, SMALL_BYTES, logs=2)),
        Spot("payload", 0, Size(3, 0)),
        Spot("payload", 4096, Size(3, 4096)),
        Spot("connections", 3, Size(5, SMALL_BYTES), followers=3),
    ]


# Rounds


def measured(spots: list[Spot], rounds: int, about: Record) -> list[Record]:
    """The points of a series. They take turns, so that a slow minute is not one point's."""
    figures: dict[Spot, list[Figures]] = {spot: [] for spot in spots}
    for _ in range(rounds):
        for spot, before in list(figures.items()):
            try:
                with in_time(ROUND_S_MAX):
                    before.append(one_round(spot))
            except (OSError, TimeoutError) as error:
                print(f"{spot.series} at {spot.x:,} is left out: {error}", file=sys.stderr)
                del figures[spot]
    return [point_of(spot, each) | about for spot, each in figures.items()]


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """TimeoutError after so long, wherever the main thread waits."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def one_round(spot: Spot) -> Figures:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < spot.disk_bytes + SPARE_BYTES:
        raise OSError(f"it takes {spot.disk_bytes >> 20:,} MiB of disk, {free >> 20:,} are free")
    return suite.replica(spot.size) if spot.series != "connections" else many_replicas(spot)


def point_of(spot: Spot, figures: list[Figures]) -> Record:
    """One point as it is told."""

    def median(name: str) -> float:
        return rounded(statistics.median(each[name] for each in figures))

    key, unit = ("mb_per_s", "MB/s") if spot.series == "payload" else ("per_s", "entries/s")
    values = sorted(each[key] for each in figures)
    point: Record = {
        "series": spot.series,
        "x": spot.x,
        "value": median(key),
        "unit": unit,
        "spread": [rounded(values[0]), rounded(values[-1])],
        "cpu_us": median("cpu_us"),
        "rss_mb": median("rss_mb"),
        "entries": spot.delivered,
        "entries_per_s": median("per_s"),
    }
    if spot.series == "connections":
        point["served_cpu_us"] = median("served_cpu_us")
    return point


# Many followers of one node


def many_replicas(spot: Spot) -> Figures:
    """From the word to connect until the last follower holds everything."""
    processes = min(spot.followers, CROWD_PROCESSES_MAX)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serving = stack.enter_context(running("serve", f"{folder}/a", *numbers(spot.size)))
        ready = read_record(serving)
        crowds = []
        for number in range(processes):
            # As even as it goes: what is left over goes to the first ones.
            count = len(range(number, spot.followers, processes))
            place = (f"{folder}/{number}", ready["address"], ready["author"])
            crowds.append(stack.enter_context(running("crowd", *place, count, *numbers(spot.size))))
        for each in crowds:
            read_record(each)
        began = time.perf_counter()
        for each in crowds:
            tell(each, "connect")
        used = [read_record(each)["cpu_s"] for each in crowds]
        seconds = time.perf_counter() - began
        tell(serving, "how much")
        served = read_record(serving)
    return {
        "per_s": spot.delivered / seconds,
        "cpu_us": (sum(used) + served["cpu_s"]) / spot.delivered * 1e6,
        "served_cpu_us": served["cpu_s"] / spot.delivered * 1e6,
        "rss_mb": served["rss_mb"],
    }


def crowd(folder: str, address: str, author: str, count: str, *given: str) -> None:
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    total = Size(*map(int, given)).total
    Path(folder).mkdir()
    stores = [Store.create(f"{folder}/{number}") for number in range(int(count))]
    trio.run(_crowd, stores, address, bytes.fromhex(author), total)


async def _crowd(stores: list[Store], address: str, author: bytes, total: int) -> None:
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(Peer(store)) for store in stores]
        for peer in peers:
            await peer.follow(author, FULL)
        show({})
        await trio.to_thread.run_sync(sys.stdin.readline)
        cpu = used_cpu_s(os.getpid())
        async with trio.open_nursery() as nursery:
            for peer in peers:
                peer.connect(address)
                nursery.start_soon(suite.held, peer, total)
        show({"cpu_s": used_cpu_s(os.getpid()) - cpu})
        await trio.sleep_forever()


if __name__ == "__main__":
    main()
