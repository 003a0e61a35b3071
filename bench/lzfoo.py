"""LZFoo beside LZ4 (blocks), snappy and zlib, and what it does for a link; about half a minute.

    python bench/lzfoo.py
    python bench/lzfoo.py --mebibytes 8 --rounds 5 --no-links

Every codec gets the same text (this repository's own), JSON lines and random bytes in pieces of
64 KiB; the first two remember the 64 KiB before, as in a connection. `in` and `out` are megabytes
of uncompressed data a second (processor time of this process, median of the rounds), `size` what
is left of the data; behind them the ratios to LZ4, whose matches LZFoo uses. Then the same text
crosses a link between two peers: a socket on loopback, and the same through a relay that passes on
1 and 8 MB/s.
"""

import argparse
import json
import random
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lz4.block
import pyarrow as pa
import trio

from bench.support.output import show
from bench.support.processes import play_role, read_record, start
from logstore import ALL, Store
from peer import Compression, SessionConfig
from peer.api import NodeConfig, Peer
from wire import LZFooDecoder, LZFooEncoder

PIECE_BYTES = 64 * 1024
WINDOW_BYTES = 64 * 1024
LINK_MIB = 6

Pieces = list[bytes]
Codec = tuple[Callable[[Pieces], Pieces], Callable[[Pieces, Pieces], Pieces]]
"""Compresses pieces; and gets them back, given both forms of each (some have to know the size)."""


def main() -> None:
    if play_role({"serve": serve}):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mebibytes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-links", action="store_true")
    args = parser.parse_args()
    size = args.mebibytes << 20
    say(f"{'':8}{'':16}{'size':>7}{'in':>8}{'out':>8}   to lz4:{'size':>6}{'in':>8}{'out':>8}")
    for kind, data in (("text", text(size)), ("json", json_lines(size)), ("random", noise(size))):
        compare(kind, data, args.rounds)
    if not args.no_links:
        links(LINK_MIB << 20)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# Data


def text(size: int) -> bytes:
    """Programs and pages of this repository, each once, and then again in another order."""
    root = Path(__file__).resolve().parents[1]
    paths = sorted([*root.glob("*/*.py"), *root.glob("*/*/*.py"), *root.glob("docs/*.md")])
    files = [path.read_bytes() for path in paths if ".venv" not in path.parts]
    order = random.Random(1)
    found = bytearray()
    while len(found) < size:
        order.shuffle(files)
        found += b"".join(files)
    return bytes(found[:size])


def json_lines(size: int) -> bytes:
    pick = random.Random(2)
    lines: list[str] = []
    left = size
    while left > 0:
        record = {
            "id": len(lines),
            "at": round(1.7e9 + 3.1 * len(lines), 3),
            "user": pick.choice(("ann", "bob", "cleo", "dan")),
            "value": pick.random(),
            "tags": pick.sample(("bamboo", "log", "entry", "peer", "piece"), 2),
        }
        lines.append(json.dumps(record))
        left -= len(lines[-1]) + 1
    return "\n".join(lines).encode().ljust(size)[:size]


def noise(size: int) -> bytes:
    return random.Random(3).randbytes(size)


# Codecs


def codecs() -> dict[str, Codec]:
    """The first is what the others are compared with."""
    return {
        "lz4": (lz4_in, lz4_out),
        "lzfoo": (partial(lzfoo_in, thorough=False), lzfoo_out),
        "lzfoo thorough": (partial(lzfoo_in, thorough=True), lzfoo_out),
        "snappy": (
            lambda pieces: [pa.compress(piece, "snappy", asbytes=True) for piece in pieces],
            lambda packed, pieces: [
                pa.decompress(each, len(piece), "snappy", asbytes=True)
                for each, piece in zip(packed, pieces, strict=True)
            ],
        ),
        "zlib 1": (
            lambda pieces: [zlib.compress(piece, 1) for piece in pieces],
            lambda packed, _: [zlib.decompress(each) for each in packed],
        ),
    }


def lz4_in(pieces: Pieces) -> Pieces:
    before = [b"", *pieces]
    return [
        lz4.block.compress(piece, store_size=False, dict=history)
        for piece, history in zip(pieces, before, strict=False)
    ]


def lz4_out(packed: Pieces, pieces: Pieces) -> Pieces:
    found: Pieces = []
    history = b""
    for each, piece in zip(packed, pieces, strict=True):
        history = lz4.block.decompress(each, uncompressed_size=len(piece), dict=history)
        found.append(history)
    return found


def lzfoo_in(pieces: Pieces, *, thorough: bool) -> Pieces:
    """As a session does it: what does not shrink is left as it is."""
    encoder = LZFooEncoder(WINDOW_BYTES, thorough=thorough)
    return [encoder.encode_if_smaller(piece) or piece for piece in pieces]


def lzfoo_out(packed: Pieces, pieces: Pieces) -> Pieces:
    decoder = LZFooDecoder(WINDOW_BYTES)
    found: Pieces = []
    for each, piece in zip(packed, pieces, strict=True):
        if len(each) == len(piece):
            found.append(each)
            continue
        decoder.start(len(piece), len(each))
        decoder.feed(each)
        found.append(b"".join(iter(decoder.read, b"")))
    return found


def compare(kind: str, data: bytes, rounds: int) -> None:
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    tried = codecs()
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in tried}
    for _ in range(rounds):
        for name, (compress, decompress) in tried.items():
            began = time.process_time()
            packed = compress(pieces)
            between = time.process_time()
            assert decompress(packed, pieces) == pieces, f"{name} does not give {kind} back"
            ended = time.process_time()
            left = sum(map(len, packed)) / len(data)
            speeds = [len(data) / 1e6 / max(s, 1e-6) for s in (between - began, ended - between)]
            figures[name].append((left, speeds[0], speeds[1]))
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in figures.items()
    }
    yardstick = medians["lz4"]
    for name, (left, into, out) in medians.items():
        ratios = [mine / its for mine, its in zip((left, into, out), yardstick, strict=True)]
        say(
            f"{kind:8}{name:16}{left:7.3f}{into:8.1f}{out:8.1f}"
            f"          {ratios[0]:6.2f}{ratios[1]:8.3f}{ratios[2]:8.3f}"
        )


# Links


def links(size: int) -> None:
    say(f"\n{'link':16}{'compression':14}{'seconds':>9}{'MB/s':>8}{'on the wire':>13}")
    modes: tuple[Compression, ...] = ("never", "auto", "always")
    for name, speed, part in (("loopback", None, 2), ("8 MB/s", 8e6, 1), ("1 MB/s", 1e6, 0.4)):
        payload = text(int(size * part))
        for mode in modes:
            with serving(len(payload), mode) as address:
                seconds, wire_bytes = trio.run(follow, address, mode, speed)
            say(
                f"{name:16}{mode:14}{seconds:9.2f}{len(payload) / 1e6 / seconds:8.1f}"
                f"{wire_bytes / len(payload):13.3f}"
            )


def serve(size: str, mode: Compression) -> None:
    """The sender, a process of its own, until standard input ends."""
    trio.run(_serve, text(int(size)), mode)


async def _serve(payload: bytes, mode: Compression) -> None:
    with Store.memory() as store:
        store.append([payload])
        config = NodeConfig(session=SessionConfig(compression=mode))
        async with Peer(store, config=config) as peer:
            show({"address": str(await peer.listen())})
            await trio.to_thread.run_sync(sys.stdin.read)


@contextmanager
def serving(size: int, mode: Compression) -> Iterator[str]:
    """Runs the sender; gives its address."""
    with start("serve", size, mode) as process:
        yield read_record(process)["address"]


async def follow(address: str, mode: Compression, speed: float | None) -> tuple[float, int]:
    """Seconds from the call until the payload is there, and bytes received."""
    config = NodeConfig(session=SessionConfig(compression=mode))
    with Store.memory() as store:
        store.follow(ALL)
        async with Peer(store, config=config) as peer, trio.open_nursery() as nursery:
            if speed is not None:
                relay = partial(relayed, address, speed)
                [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
                nursery.start_soon(trio.serve_listeners, relay, [listener])
                address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            began = trio.current_time()
            peer.connect(address)
            async for _ in peer.entries():
                break
            seconds = trio.current_time() - began
            [info] = peer.connections()
            nursery.cancel_scope.cancel()
    return seconds, info.bytes_received


async def relayed(address: str, speed: float, caller: trio.SocketStream) -> None:
    """Passes on what comes from either side, so many bytes a second."""
    host, _, port = address.rpartition(":")
    called = await trio.open_tcp_stream(host, int(port))

    async def pass_on(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        free_at = trio.current_time()
        async for piece in source:
            free_at = max(free_at, trio.current_time()) + len(piece) / speed
            await trio.sleep_until(free_at)
            await sink.send_all(piece)
        await sink.send_eof()

    async with called, caller, trio.open_nursery() as nursery:
        nursery.start_soon(pass_on, caller, called)
        nursery.start_soon(pass_on, called, caller)


if __name__ == "__main__":
    main()
