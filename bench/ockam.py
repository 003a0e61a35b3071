"""How fast a hub of Ockam streams is pushed to and pulled from, beside the store it stands on.

    python bench/ockam.py [--rounds 3] [--quick]

One JSON object a line, payloads of 256 bytes. The hub is `bamboo-peer ockam serve` in a process of
its own on a store on disk, with a fresh store for each figure; its client is here, on one
connection unless another number is named. `value` and `yardstick` are the best of the rounds, each
of which has all of them; `ratio` is that of the two, `floor` what it has to reach, and `ceiling`
what it may come to. Where there is no yardstick, `at_most` is what the value may come to:

- push, pipelined: beside `Store.append` in batches of 1,000;
- the same over 1,000 streams: beside that to one;
- push, one at a time: beside `Store.append`, one at a time;
- pull, 100 at a time: beside `Store.read` of the same entries;
- the most memory of a hub with 10,000 streams, after a million pushes;
- how long such a hub takes until it listens, with its side table and when that is gone, and then to
  make a stream, push to it and pull from it, once each;
- the share of a core that 1,000 consumers cost who find nothing each 2 s, and what they would cost
  a Trio server that echoes what they send;
- where `make interop` has built them: two nodes of the crate `ockam`, messages to an echo and back,
  beside the same through a hub that has nothing but lists in memory.

`--quick` does all of it with a few of each, which shows that it works and not how fast.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.support.output import report
from bench.support.processes import BAMBOO_PEER, ENVIRONMENT, peak_bytes, used_cpu_s
from gateways.ockam.codec import (
    CREATE_PARTITIONED,
    PARTITIONS_MAX,
    Create,
    FrameDecoder,
    Pull,
    Pulled,
    Push,
    Request,
    decode_message,
    decode_payload,
    decode_response,
    encode_frame,
    encode_message,
    encode_request,
    local,
)
from logstore import Store

DATA = b"x" * 256
BATCH = 1_000
PULLED = 100
POLL_S = 2.0
PATIENCE_S = 120.0
RECEIVE_BYTES = 1 << 18
BACK = (local("app"),)


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    messages: int = 100_000
    single: int = 2_000
    streams: int = 1_000
    many_streams: int = 10_000
    many_messages: int = 1_000_000
    consumers: int = 1_000
    quiet_s: float = 20.0
    echoed: int = 400


QUICK = Sizes(1_000, 20, 50, 100, 500, 20, 1.0, 8)
ROOT = Path(__file__).resolve().parents[1]
RUST_NODE = ROOT / "tests" / "interop" / "ockam-rust" / "target" / "release" / "ockam-rust"


ECHO = """
import trio

async def echo(stream):
    async for data in stream:
        await stream.send_all(data)

async def main():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(echo, listeners)

trio.run(main)
"""


class Client:
    """A client of a hub that sends what it is told, and counts what comes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameDecoder()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reply(self) -> bytes:
        """The next routing message."""
        while (frame := self._frames.next_frame()) is None:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the hub has let its client go")
            self._frames.feed(data)
        return frame

    def streams(self, name: str, count: int) -> list[str]:
        """The addresses of a stream's partitions, made if need be."""
        self.send(frame("stream", Create(name, count, CREATE_PARTITIONED)))
        return [decode_message(self.reply()).back[0].value.decode() for _ in range(count)]

    def push(self, addresses: Sequence[str], count: int) -> float:
        """Messages a second, pipelined, each stream in its turn."""
        pushes = [frame(each, Push(1, DATA)) for each in addresses]

        def send() -> None:
            for start in range(0, count, BATCH):
                self.send(
                    b"".join(
                        pushes[at % len(pushes)] for at in range(start, min(start + BATCH, count))
                    )
                )

        sender = threading.Thread(target=send)
        begun = time.perf_counter()
        sender.start()
        for _ in range(count):
            self.reply()
        sender.join()
        return count / (time.perf_counter() - begun)

    def push_singly(self, address: str, count: int) -> float:
        """Messages a second, each once the one before it is confirmed."""
        push = frame(address, Push(1, DATA))
        begun = time.perf_counter()
        for _ in range(count):
            self.send(push)
            self.reply()
        return count / (time.perf_counter() - begun)

    def pull(self, address: str, count: int) -> float:
        """Messages a second of a stream that has so many, 100 at a time."""
        begun = time.perf_counter()
        index = 0
        while index < count:
            self.send(frame(address, Pull(1, index, PULLED)))
            pulled = decode_response(*decode_payload(decode_message(self.reply()).payload))
            assert isinstance(pulled, Pulled)
            index += len(pulled.messages)
        return count / (time.perf_counter() - begun)


def frame(worker: str, request: Request) -> bytes:
    """A request as it is sent."""
    return encode_frame(encode_message((local(worker),), BACK, encode_request(request)))


@contextmanager
def hub(path: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a hub, on a new store if there is none."""
    if not path.exists():
        Store.create(path).close()
    command = [*BAMBOO_PEER, "--store", str(path), "--json", "ockam", "serve"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        # What it says is read, or it would wait for that.
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        try:
            yield int(address.rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            reader.join()


@contextmanager
def connected(port: int) -> Iterator[Client]:
    client = Client(port)
    try:
        yield client
    finally:
        client.close()


def append(path: Path, batches: Iterable[int]) -> float:
    """Entries a second of `Store.append`, a batch after the other."""
    with Store.create(path) as store:
        count = 0
        begun = time.perf_counter()
        for size in batches:
            store.append([DATA] * size)
            count += size
        return count / (time.perf_counter() - begun)


def read(path: Path, count: int) -> float:
    """Entries a second of `Store.read`, of the only stream there is."""
    with Store.open(path) as store:
        [key] = [info.key for info in store.logs() if info.newest > count]
        begun = time.perf_counter()
        seq = 2
        while page := store.read(
            key, seq, entries_max=BATCH, bytes_max=1 << 20, with_payload=False
        ):
            seq = page[-1].seq + 1
        return count / (time.perf_counter() - begun)


def one_round(folder: Path, sizes: Sizes) -> dict[str, float]:
    """Everything that has a yardstick, once."""
    found = {
        "append": append(folder / "batches", [BATCH] * (sizes.messages // BATCH)),
        "append singly": append(folder / "singly", [1] * sizes.single),
    }
    with hub(folder / "one") as (port, _), connected(port) as client:
        [address] = client.streams("orders", 1)
        found["push"] = client.push([address], sizes.messages)
        found["pull"] = client.pull(address, sizes.messages)
    found["read"] = read(folder / "one", sizes.messages)
    with hub(folder / "many") as (port, _), connected(port) as client:
        found["push to many"] = client.push(client.streams("orders", sizes.streams), sizes.messages)
    with hub(folder / "single") as (port, _), connected(port) as client:
        [address] = client.streams("orders", 1)
        found["push singly"] = client.push_singly(address, sizes.single)
    return found


def many_streams(folder: Path, sizes: Sizes) -> dict[str, float]:
    """A hub of many streams: the most memory that it has had, and how it starts again."""
    path = folder / "memory"
    found = {}
    with hub(path) as (port, pid), connected(port) as client:
        addresses: list[str] = []
        while (lacking := sizes.many_streams - len(addresses)) > 0:
            count = min(lacking, PARTITIONS_MAX)
            addresses += client.streams(f"orders {len(addresses)}", count)
        client.push(addresses, sizes.many_messages)
        found["memory"] = peak_bytes(pid) / 1e6
    for name in ("start", "start without its side table"):
        if name != "start":
            for each in path.glob("ockam.sqlite3*"):
                each.unlink()
        begun = time.perf_counter()
        with hub(path) as (port, _), connected(port) as client:
            found[name] = time.perf_counter() - begun
            begun = time.perf_counter()
            [address] = client.streams(f"new after {name}", 1)
            client.push([address], 1)
            client.pull(address, 1)
            found["create, push, pull"] = (time.perf_counter() - begun) * 1e3
    return found


@contextmanager
def memory_hub() -> Iterator[int]:
    """The port of a hub that has nothing but lists in memory."""
    command = [sys.executable, "-m", "tests.gateways.ockam.memory_hub"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.kill()


def echoed_s(port: int, count: int) -> float:
    """How long two nodes take for messages to an echo and back."""
    where, silent = f"127.0.0.1:{port}", {**os.environ, "OCKAM_LOG": "off"}
    begun = time.perf_counter()
    with subprocess.Popen(
        [RUST_NODE, "echo", where, "beta", "back", "forth"],
        stdout=subprocess.DEVNULL,
        env=silent,
    ) as echo:
        try:
            subprocess.run(
                [RUST_NODE, "talk", where, "alpha", "forth", "back", "0", str(count)],
                stdout=subprocess.DEVNULL,
                env=silent,
                check=True,
                timeout=PATIENCE_S,
            )
        finally:
            echo.kill()
    return time.perf_counter() - begun


def quiet_shares(folder: Path, sizes: Sizes) -> tuple[float, float]:
    """The share of a core that consumers take who find nothing, and as much of an echo."""
    with hub(folder / "quiet") as (port, pid), ExitStack() as stack:
        clients = [stack.enter_context(connected(port)) for _ in range(sizes.consumers)]
        addresses = clients[0].streams("orders", sizes.consumers)
        clients[0].push(addresses, sizes.consumers)
        polls = [frame(each, Pull(1, 1, PULLED)) for each in addresses]
        found = share_of_polls(pid, list(zip(clients, polls, strict=True)), sizes)
    with echo() as (port, pid), ExitStack() as stack:
        clients = [stack.enter_context(connected(port)) for _ in range(sizes.consumers)]
        return found, share_of_polls(pid, [(each, polls[0]) for each in clients], sizes)


def share_of_polls(pid: int, polling: list[tuple[Client, bytes]], sizes: Sizes) -> float:
    """The share of a core that a process takes while each client polls it every 2 s."""
    for client, poll in polling:
        # The first time opens what the others have open.
        client.send(poll)
        client.reply()
    turns = max(1, round(sizes.quiet_s / POLL_S))
    used, begun = used_cpu_s(pid), time.perf_counter()
    for turn in range(turns):
        for at, (client, poll) in enumerate(polling):
            due = begun + (turn + at / len(polling)) * POLL_S
            time.sleep(max(0.0, due - time.perf_counter()))
            client.send(poll)
            client.reply()
    return (used_cpu_s(pid) - used) / (time.perf_counter() - begun)


@contextmanager
def echo() -> Iterator[tuple[int, int]]:
    """Port and process id of a server that sends back what comes, in Trio as the hub is."""
    with subprocess.Popen(
        [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


def main() -> None:
    """Runs all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few of each, in one round")
    options = parser.parse_args()
    sizes, rounds = (QUICK, 1) if options.quick else (Sizes(), options.rounds)
    best: dict[str, float] = {}
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        for number in range(rounds):
            folder = Path(scratch, str(number))
            folder.mkdir()
            for name, value in one_round(folder, sizes).items():
                best[name] = max(value, best.get(name, 0.0))
            costs = many_streams(folder, sizes)
            costs["share"], costs["share of an echo"] = quiet_shares(folder, sizes)
            if RUST_NODE.exists():
                with hub(folder / "rust") as (port, _):
                    costs["echo"] = echoed_s(port, sizes.echoed)
                with memory_hub() as port:
                    costs["echo in memory"] = echoed_s(port, sizes.echoed)
            for name, value in costs.items():
                least[name] = min(value, least.get(name, value))
    for name, ours, yardstick, floor in (
        ("push, pipelined", "push", "append", 0.25),
        (f"push to {sizes.streams} streams, pipelined", "push to many", "push", 0.6),
        ("push, one at a time", "push singly", "append singly", 0.4),
        (f"pull, {PULLED} at a time", "pull", "read", 0.2),
    ):
        report(
            name,
            best[ours],
            "messages/s",
            yardstick=round(best[yardstick], 3),
            ratio=round(best[ours] / best[yardstick], 3),
            floor=floor,
        )
    of = f"{sizes.many_streams} streams, {sizes.many_messages} messages"
    report(f"memory, {of}", least["memory"], "MB", at_most=150)
    report(f"start, {of}", least["start"], "s")
    report(f"start without its side table, {of}", least["start without its side table"], "s")
    report(f"create, push and pull once, {of}", least["create, push, pull"], "ms")
    report(f"{sizes.consumers} quiet consumers", least["share"], "cores", at_most=0.15)
    report("as many of a server that echoes", least["share of an echo"], "cores")
    if "echo" in least:
        report(
            f"{sizes.echoed} messages of two Rust nodes, there and back",
            least["echo"],
            "s",
            yardstick=round(least["echo in memory"], 3),
            ratio=round(least["echo"] / least["echo in memory"], 3),
            ceiling=1.3,
        )


if __name__ == "__main__":
    main()
