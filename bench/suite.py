"""What replication costs, in one table: `make bench`, and `make bench-quick` in two minutes.

    python bench/suite.py [--quick] [--rounds N] [--only WORD]... [--out bench/results.json]

Each workload runs with the native core and without it, and beside it the yardstick, hypercore,
where npm is; all of them take turns in each round, and medians are told. What the machine can do at
best is measured in the same run (bench/limits.py). `--out` writes a list of records:

`workload`, `native`; `value`, `unit`, `spread`: the median and the range of the rounds;
`yardstick`, `yardstick_value`, `ratio`: ours by its; `limit`, `limit_value`, `of_limit`; `goal`,
`met`; `cpu_us`: of both sides, for each entry; `rss_mb`: of the larger process, at most; `quick`,
`date`, `load`: of the run, and how many programs wanted each core when it began.

Payloads are random, so that nothing shrinks; both stores are on disk, and everything is verified
and durable when the time is taken. No program reads what has come, of the yardstick's replica
neither, except where it says so.
"""

import argparse
import gc
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from bamboo_cli.online import COLLECTOR_THRESHOLDS
from bench import limits
from bench.support import hypercore
from bench.support.output import date_and_load, show
from bench.support.pipe import LONG, carry
from bench.support.processes import ENVIRONMENT, play_role, read_record, running, tell, used_cpu_s
from bench.support.records import Figures, Measure, record_of, table
from logstore import FULL, PolicyKind, Store, Subscription
from peer.api import Peer
from peer.node.pending import news_of
from wire import LogKey

MIB = 1 << 20
COMPRESSED_BYTES_MIN = 1 << 10
WINDOW_BYTES = 1 << 16
LIVE_PAUSE_S = 0.005
"""Between isolated appends: longer than one takes to be there."""


@dataclass(frozen=True)
class Size:
    """How large a workload is: `logs` of `entries` with payloads of `payload_bytes`."""

    entries: int
    payload_bytes: int
    logs: int = 1
    live: int = 0
    """Entries that are appended one by one behind the replica."""

    @property
    def total(self) -> int:
        """Entries of all logs."""
        return self.entries * self.logs


@dataclass(frozen=True)
class Workload:
    """What is done, and what is told of it."""

    run: Callable[[], Figures]
    measures: tuple[Measure, ...]
    beside: Callable[[], Figures] | None = None
    """The same by the yardstick."""


def main() -> None:
    if play_role(ROLES):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--rounds", type=int, help="how often each is measured (3; quick: 1)")
    parser.add_argument("--only", action="append", default=[], help="workloads with this word")
    parser.add_argument("--out", type=Path, help="where to write the records, as JSON")
    args = parser.parse_args()
    chosen = [
        each
        for each in workloads(quick=args.quick)
        if not args.only or any(word in m.workload for word in args.only for m in each.measures)
    ]
    circumstances = date_and_load()
    records = measure_all(chosen, args.rounds or (1 if args.quick else 3))
    records = [record | {"quick": args.quick, **circumstances} for record in records]
    print("\n".join(table(records)))
    if args.out is not None:
        args.out.write_text(json.dumps(records, indent=1) + "\n")


def workloads(*, quick: bool) -> list[Workload]:
    """All of them; `quick`: an eighth of the work."""
    part = 8 if quick else 1
    small = of_small_ones(part, 100 if quick else 300)
    return [*small, *of_large_ones(part), *of_many(part), *far_away(2 if quick else 1)]


def of_small_ones(part: int, live: int) -> list[Workload]:
    """Small payloads, and entries that are appended one by one."""
    small = Size(20_000 // part, 256, live=live)
    behind = f"{small.entries:,} entries of 256 bytes"
    return [
        Workload(
            partial(replica, small),
            (
                Measure(behind, "per_s", "entries/s", "replicate_per_s", "verify", goal_ratio=5),
                Measure(f"{behind}, processor time", "cpu_us", "us", "cpu_us", goal=35),
                Measure("live, p99, behind small entries", "p99_of_p50", "x", goal=3),
                Measure(
                    "append of 256 bytes, 1,000 a batch",
                    "append_per_s",
                    "entries/s",
                    "append_per_s",
                    "sign",
                    goal_of_limit=0.7,
                ),
            ),
            partial(hypercore.measure, small.entries, 256, batch=1000, live=live, pause_s=0.002),
        ),
        Workload(
            partial(replica, Size(small.entries, 256), read=True),
            (Measure(f"{behind}, each of them read", "per_s", "entries/s"),),
        ),
        Workload(
            partial(replica, Size(64, 256, live=live)),
            (
                Measure(
                    "live, isolated, p50", "live_ms_p50", "ms", "live_ms_p50", "commits", goal=2
                ),
            ),
            partial(hypercore.measure, 64, 256, live=live, pause_s=LIVE_PAUSE_S),
        ),
    ]


def of_large_ones(part: int) -> list[Workload]:
    """Payloads that are files of the store."""
    large = Size(256 // part, MIB)
    return [
        Workload(
            partial(replica, large),
            (
                Measure(
                    f"{large.entries} payloads of 1 MiB",
                    "mb_per_s",
                    "MB/s",
                    "mb_per_s",
                    "payload",
                    goal_ratio=2,
                    goal_of_limit=0.5,
                ),
                Measure(
                    "append of 1 MiB, one by one",
                    "append_per_s",
                    "entries/s",
                    "append_per_s",
                    goal_ratio=1,
                ),
            ),
            partial(of_megabytes, large.entries),
        ),
        Workload(
            partial(replica, Size(1, 1024 * MIB // part)),
            (
                Measure(
                    f"one payload of {1024 // part} MiB",
                    "mb_per_s",
                    "MB/s",
                    limit="payload",
                    goal_of_limit=0.5,
                ),
                Measure(f"one payload of {1024 // part} MiB, memory", "rss_mb", "MB", goal=200),
            ),
        ),
    ]


def of_many(part: int) -> list[Workload]:
    """Many logs, and payloads that come behind their entries."""
    return [
        Workload(
            partial(replica, Size(20, 256, logs=1000 // part)),
            (
                Measure(
                    f"{1000 // part} logs of 20 entries",
                    "per_s",
                    "entries/s",
                    limit="replica",
                    goal_of_limit=2 / 3,
                ),
            ),
        ),
        Workload(
            partial(replica, Size(20_000 // part, 256), metadata_first=True),
            (
                Measure(
                    "metadata to full, 256 bytes",
                    "fill_per_s",
                    "entries/s",
                    limit="replica",
                    goal_of_limit=0.7,
                ),
            ),
        ),
        Workload(
            partial(replica, Size(1, 256, logs=10_000 // part), reconnect=True),
            (
                Measure(
                    f"{10_000 // part:,} logs in step, reconnect", "again_s", "s", goal=3 / part
                ),
            ),
        ),
    ]


def far_away(part: int) -> list[Workload]:
    """At the other end of a pipe, from 2 s after the call on (bench/delay.py has more of it).

    Of small entries it has to be as many in any case: fewer are across before.
    """
    sizes = {
        f"{64 // part} payloads of 1 MiB": Size(64 // part, MIB),
        "100,000 entries of 256 bytes": Size(100_000, 256),
        f"{1000 // part} logs of 20 entries of 4 KiB": Size(20, 4096, logs=1000 // part),
    }
    return [
        Workload(
            partial(replica, size, far=True),
            (
                Measure(
                    f"far away: {name}", "pipe_mb_per_s", "MB/s", limit="pipe", goal_of_limit=0.9
                ),
            ),
        )
        for name, size in sizes.items()
    ] + [
        Workload(
            partial(replica, Size(1, 100), far=True),
            (Measure("far away: first entry", "first_s", "s", limit="round trips"),),
        )
    ]


def of_megabytes(entries: int) -> Figures:
    """The yardstick with payloads of 1 MiB."""
    figures = hypercore.measure(entries, MIB)
    return {**figures, "mb_per_s": figures["replicate_per_s"] * MIB / 1e6}


# Rounds


def measure_all(chosen: list[Workload], rounds: int) -> list[dict[str, object]]:
    """The records of all workloads."""
    with_yardstick = hypercore.is_ready()
    needed = {measure.limit for workload in chosen for measure in workload.measures}
    at_best = {name: (find(), what) for name, (find, what) in AT_BEST.items() if name in needed}
    records: list[dict[str, object]] = []
    for workload in chosen:
        ours: dict[bool, list[Figures]] = {True: [], False: []}
        theirs: list[Figures] = []
        for _ in range(rounds):
            for native in (True, False):
                ENVIRONMENT["BAMBOO_NATIVE"] = str(int(native))
                ours[native].append(workload.run())
            if with_yardstick and workload.beside is not None:
                theirs.append(workload.beside())
        for measure in workload.measures:
            for native, figures in ours.items():
                records.append(record_of(measure, figures, theirs, at_best, native=native))
    return records


def replica_per_s() -> float:
    """What is to be come near to where entries are of many logs, or come in two steps."""
    return statistics.median(replica(Size(20_000, 256))["per_s"] for _ in range(3))


AT_BEST: Mapping[str, tuple[Callable[[], float], str]] = {
    "verify": (limits.verify_per_s, "signatures checked on all cores"),
    "sign": (limits.sign_per_s, "signatures made on one core"),
    "payload": (limits.payload_mb_per_s, "sum up, send, sum up, hash and write on all cores"),
    "commits": (limits.two_commits_ms, "two synced commits"),
    "pipe": (lambda: LONG.bytes_per_s / 1e6, "the pipe's rate"),
    "replica": (replica_per_s, "a new replica of one log of 20,000 entries"),
    "round trips": (lambda: 3 * LONG.round_trip_s, "round trips: TCP's, credit, a proposal"),
}
"""The limits that measures name."""


# One round


def replica(
    size: Size,
    *,
    metadata_first: bool = False,
    reconnect: bool = False,
    read: bool = False,
    far: bool = False,
) -> Figures:
    """A process with full logs, and another one that follows them into an empty store.

    `read`: by a program that takes each entry with its payload. `far`: at the other end of a long
    pipe (bench/support/pipe.py).
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        serving = processes.enter_context(running("serve", f"{folder}/a", *numbers(size)))
        ready = read_record(serving)
        pipe = processes.enter_context(running("carry", ready["address"])) if far else None
        address = ready["address"] if pipe is None else read_record(pipe)["address"]
        how = f"{int(metadata_first)}{int(reconnect)}{int(read)}"
        place = (f"{folder}/b", address, ready["author"], how)
        following = processes.enter_context(running("follow", *place, *numbers(size)))
        figures = read_record(following)
        if pipe is not None:
            tell(pipe, "enough")
            figures |= read_record(pipe)
        tell(serving, "live")
        served = read_record(serving)
        figures |= read_record(following)
        following.wait()
    total = size.total
    return {
        **figures,
        "append_per_s": total / ready["append_s"],
        "per_s": total / figures["seconds"],
        "mb_per_s": total * size.payload_bytes / 1e6 / figures["seconds"],
        "cpu_us": (figures["cpu_s"] + served["cpu_s"]) / total * 1e6,
        "rss_mb": max(figures["rss_mb"], served["rss_mb"]),
    }


def numbers(size: Size) -> tuple[int, int, int, int]:
    return size.entries, size.payload_bytes, size.logs, size.live


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(folder: str, *given: str) -> None:
    size = Size(*map(int, given))
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    store = Store.create(folder)
    append_s = sum(fill(store, log_id, size, Path(folder).parent) for log_id in range(size.logs))
    trio.run(_serve, store, append_s, size)


def fill(store: Store, log_id: int, size: Size, spare: Path) -> float:
    """Appends what there is before anybody connects: a megabyte at once, or 1,000 entries.

    Returns the seconds that took, without making payloads: a random megabyte takes as long as its
    append. `spare`: a folder for what is too large for memory.
    """
    append_s = 0.0
    if size.payload_bytes > 64 * MIB:
        path = spare / "payload"
        for _ in range(size.entries):
            with path.open("wb") as file:
                for _ in range(size.payload_bytes // MIB):
                    file.write(os.urandom(MIB))
            append_s += timed_append(store, [path], log_id)
            path.unlink()
        return append_s
    batch = max(1, min(1000, MIB // max(1, size.payload_bytes)))
    for first in range(0, size.entries, batch):
        numbered = range(first, min(first + batch, size.entries))
        append_s += timed_append(store, payloads(size.payload_bytes, numbered), log_id)
    return append_s


def timed_append(store: Store, batch: Sequence[bytes | Path], log_id: int) -> float:
    """Appends a batch; the seconds that took."""
    began = time.perf_counter()
    store.append(batch, log_id=log_id)
    return time.perf_counter() - began


def payloads(payload_bytes: int, numbered: range) -> list[bytes]:
    """As random as they have to be, so that none shrinks on its way."""
    if COMPRESSED_BYTES_MIN <= payload_bytes <= 2 * WINDOW_BYTES:
        return [os.urandom(payload_bytes) for _ in numbered]
    # Shorter ones are not compressed; what came before longer ones is out of their reach.
    rest = os.urandom(max(0, payload_bytes - 8))
    return [(number.to_bytes(8, "big") + rest)[:payload_bytes] for number in numbered]


async def _serve(store: Store, append_s: float, size: Size) -> None:
    async with Peer(store) as peer:
        address = await peer.listen("127.0.0.1:0")
        cpu = used_cpu_s(os.getpid())
        show({"address": str(address), "author": store.author.hex(), "append_s": append_s})
        await trio.to_thread.run_sync(sys.stdin.readline)
        show({"cpu_s": used_cpu_s(os.getpid()) - cpu, "rss_mb": peak_mb()})
        for _ in range(size.live):
            await peer.append([str(time.time()).encode()])
            await trio.sleep(LIVE_PAUSE_S if size.entries < 1000 else 0.002)
        await trio.sleep_forever()


def follow(folder: str, address: str, author: str, how: str, *given: str) -> None:
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    size = Size(*map(int, given))
    store = Store.create(folder)
    trio.run(_follow, store, address, bytes.fromhex(author), how, size)


async def _follow(store: Store, address: str, author: bytes, how: str, size: Size) -> None:
    metadata_first, reconnect, read = (flag == "1" for flag in how)
    async with Peer(store) as peer:
        only = Subscription(PolicyKind.METADATA) if metadata_first else FULL
        await peer.follow(author, only)
        cpu, began = used_cpu_s(os.getpid()), time.perf_counter()
        peer.connect(address)
        await held(peer, 1, with_payload=not metadata_first)
        first_s = time.perf_counter() - began
        if read:
            await taken(peer, author, size.total)
        position = await held(peer, size.total, with_payload=not metadata_first)
        seconds = time.perf_counter() - began
        figures = {
            "seconds": seconds,
            "cpu_s": used_cpu_s(os.getpid()) - cpu,
            "first_s": first_s,
            "first_round_trips": first_s / LONG.round_trip_s,
        }
        if metadata_first:
            began = time.perf_counter()
            await peer.follow(author, FULL)
            await held(peer, size.total)
            figures["fill_per_s"] = size.total / (time.perf_counter() - began)
        if reconnect:
            figures["again_s"] = await again(peer, address, size.logs)
        show({**figures, "rss_mb": peak_mb()})
        if size.live:
            show(await live(peer, LogKey(author, 0), size.live, after=position))
        else:
            show({})


async def held(peer: Peer, count: int, *, with_payload: bool = True) -> int:
    """Returns once so many entries are stored, or their payloads; the place of the last one.

    Nothing is read back: of the yardstick's replica nothing is read either.
    """
    host = peer.node.host
    with news_of(peer.node) as news:
        while True:
            # Each entry takes a number of its own: before that there is nothing to ask for.
            if host.told >= count:
                sizes = await peer.statistics()
                if (sizes.payloads if with_payload else sizes.entries) >= count:
                    return sizes.position
            await news.wait()


async def taken(peer: Peer, author: bytes, count: int) -> None:
    """Returns once a program has had so many entries, with their payloads."""
    entries = peer.entries(author, after=0)
    async for _ in entries:
        count -= 1
        if not count:
            break
    await entries.aclose()


async def again(peer: Peer, address: str, logs: int) -> float:
    """Seconds from connecting once more until each log has its request."""
    await until(lambda: in_force(peer) >= logs)
    peer.disconnect(address)
    await until(lambda: not peer.connections())
    began = time.perf_counter()
    peer.connect(address)
    await until(lambda: in_force(peer) >= logs)
    return time.perf_counter() - began


async def until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - looks from outside, at what has no event
        await trio.sleep(0.02)


def in_force(peer: Peer) -> int:
    members = peer.node.members
    return sum(member.connection.session.statistics().requests for member in members)


async def live(peer: Peer, log: LogKey, count: int, *, after: int) -> Figures:
    """How long each entry takes from being appended there to being verified and durable here."""
    delays: list[float] = []
    entries = peer.entries(log, after=after)
    async for entry in entries:
        delays.append((time.time() - float(entry.payload)) * 1000)
        if len(delays) == count:
            break
    await entries.aclose()
    delays.sort()
    p50, p99 = delays[count // 2], delays[int(count * 0.99)]
    return {"live_ms_p50": p50, "live_ms_p99": p99, "p99_of_p50": p99 / p50}


ROLES: Mapping[str, Callable[..., None]] = {"serve": serve, "follow": follow, "carry": carry}

if __name__ == "__main__":
    main()
