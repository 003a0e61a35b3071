"""A node with very many logs and peers: what it costs while nothing happens, and to reconnect.

    python bench/idle.py --logs 10000 --peers 50

One process is the node: it follows all logs and takes connections. Another one is the peers, each
with its share of the logs, over loopback TCP. A third one has all logs and reconnects. Printed as
JSON lines: `first` (all logs new: seconds until all are held, until nothing moves any more, and
what the node has sent meanwhile for each log and connection), `idle` (share of a core and resident
memory of the node while nothing happens), `reconnect` (all logs in step on both sides: seconds from
the call until each has its request, and bytes of the connection, both ways, for each log).

A node offers each peer all that it follows, and a peer gives credit for what it does not want 20
times a second. Here the peers give it faster, so that `first` ends in time; nothing else changes.
"""

import argparse
import gc
import resource
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from bamboo_cli.online import COLLECTOR_THRESHOLDS
from bench.support.output import show
from bench.support.processes import play_role, read_record, start, tell
from logstore import Store
from peer import SessionConfig
from peer.node import Address, Node, NodeConfig, running_node
from wire import LogKey

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.02
QUIET_S = 10.0
PINGS_BYTES_MAX = 32
"""What pings and their answers come to in that time, on one connection; an offer takes more."""
ANYWHERE = Address("127.0.0.1", 0)


def main() -> None:
    if play_role({"node": node, "peers": peers, "mirror": mirror}):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--peers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        everyone = [Path(folder, str(number)) for number in range(args.peers)]
        keys = [key for path in everyone for key in write_logs(path, args.logs // args.peers)]
        Path(folder, "logs").write_text("\n".join(map(str, keys)))
        measured = start("node", folder)
        running = [measured]
        try:
            address = read_record(measured)["address"]
            running.append(start("peers", folder, args.peers, address))
            show({"first": read_record(measured)})
            time.sleep(QUIET_S)
            tell(measured, str(args.seconds))
            show({"idle": read_record(measured)})
            running.append(start("mirror", folder, address))
            show({"reconnect": read_record(running[-1])})
        finally:
            for process in running:
                process.kill()
                process.wait()


def write_logs(path: Path, count: int) -> list[LogKey]:
    with Store.create(path) as store:
        return [store.append([b"entry"], log_id=number)[-1].key for number in range(count)]


def follower(folder: str, name: str) -> tuple[Store, int]:
    """A store that follows all logs, and how many these are."""
    store = Store.create(Path(folder, name))
    keys = [LogKey.parse(line) for line in Path(folder, "logs").read_text().splitlines()]
    for key in keys:
        store.follow(key)
    return store, len(keys)


def cpu_s() -> float:
    return time.process_time()


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


def requests(running: Node) -> int:
    return sum(member.connection.session.statistics().requests for member in running.members)


def sent(running: Node) -> int:
    return sum(info.bytes_sent for info in running.connections())


async def until(done: "Callable[[], bool]") -> None:
    while not done():  # noqa: ASYNC110 - looks from outside, at what has no event
        await trio.sleep(POLL_S)


async def replicated(running: Node, count: int) -> None:
    """Returns once so many logs are held."""
    store = running.host.store
    held: set[LogKey] = {info.key for info in store.logs() if info.height}
    running.host.watchers.add(lambda changes: held.update(change.log for change in changes))
    await until(lambda: len(held) >= count)


async def quiet(running: Node) -> None:
    """Returns once nothing but pings has been sent for a while."""
    before, now = 0, sent(running)
    while now - before > PINGS_BYTES_MAX * len(running.members):
        await trio.sleep(QUIET_S)
        before, now = now, sent(running)


# The node that is measured


def node(folder: str) -> None:
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    store, count = follower(folder, "node")
    trio.run(_node, store, count)


async def _node(store: Store, count: int) -> None:
    async with running_node(store) as running:
        [address] = await running.listen(ANYWHERE)
        show({"address": str(address)})
        await until(lambda: bool(running.members))
        began, cpu = time.perf_counter(), cpu_s()
        await replicated(running, count)
        held_s = time.perf_counter() - began
        await quiet(running)
        show(
            {
                "held_s": round(held_s, 2),
                "quiet_s": round(time.perf_counter() - began - QUIET_S, 2),
                "cpu_s": round(cpu_s() - cpu, 2),
                "connections": len(running.members),
                "bytes_per_offer": round(sent(running) / count / len(running.members), 1),
            }
        )
        seconds = float(await trio.to_thread.run_sync(sys.stdin.readline))
        began, cpu = time.perf_counter(), cpu_s()
        await trio.sleep(seconds)
        share = (cpu_s() - cpu) / (time.perf_counter() - began)
        show(
            {
                "cpu_share": round(share, 5),
                "resident_MB": resident_mb(),
                "requests": requests(running),
            }
        )
        await trio.sleep_forever()


# Those around it


def peers(folder: str, count: str, address: str) -> None:
    trio.run(_peers, folder, int(count), Address.parse(address))


async def _peers(folder: str, count: int, address: Address) -> None:
    session = SessionConfig(refused_credit_per_s=2000.0)
    config = NodeConfig(session=session, workers=0, poll_s=60, lock=False)
    async with AsyncExitStack() as stack:
        for number in range(count):
            store = stack.enter_context(Store.open(Path(folder, str(number))))
            running = await stack.enter_async_context(running_node(store, config))
            running.connect(address)
        await trio.sleep_forever()


def mirror(folder: str, address: str) -> None:
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    store, count = follower(folder, "mirror")
    trio.run(_mirror, store, count, Address.parse(address))


async def _mirror(store: Store, count: int, address: Address) -> None:
    async with running_node(store) as running:
        dialler = running.connect(address)
        await replicated(running, count)
        await trio.sleep(QUIET_S)
        running.hang_up(dialler.address)
        await until(lambda: not running.members)
        began, cpu = time.perf_counter(), cpu_s()
        running.connect(address)
        await until(lambda: requests(running) >= count)
        seconds = time.perf_counter() - began
        await trio.sleep(QUIET_S)
        [info] = running.connections()
        show(
            {
                "seconds": round(seconds, 2),
                "cpu_s": round(cpu_s() - cpu, 2),
                "bytes_per_log": round((info.bytes_received + info.bytes_sent) / count, 1),
            }
        )


if __name__ == "__main__":
    main()
