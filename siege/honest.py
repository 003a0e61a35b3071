"""The honest peers, in processes of their own: one syncs again and again, one takes the pulse.

    python -m siege.honest rounds ORDERS
    python -m siege.honest pulse ORDERS

ORDERS is JSON (`HonestOrders`). `rounds` syncs once for each line on standard input, with a store
that begins empty, and shows when it began and ended. `pulse` pings ten times a second, and has an
entry appended to the node's own log twice a second that it waits for over a connection of its own;
for each line it shows what it has measured since the last one.
"""

import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from nacl.signing import SigningKey

from bench.support.logs import signed_log
from bench.support.output import show
from logstore import Store
from peer.api import NodeConfig, Peer
from peer.node.doors.tls import Identity, TlsStream
from tests.bymux.factory import PONG, Packets
from wire import LogKey, NeedMore, decode_setup, encode_setup

from .line import GREEDY, PING_ALL

ROUND_S: Final = 10.0
"""Who is not served within so long counts as not served."""
PING_EVERY_S: Final = 0.1
"""A tenth of a second: a third of the pings that cost nothing."""
APPEND_EVERY_S: Final = 0.5
LIVE_LOG: Final = 1
POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class HonestOrders:
    """What an honest process is started with."""

    host: str
    port: int
    node_store: str
    author: str
    """The node's, in hex."""
    seed: str
    """Of the honest peer's key, in hex."""
    entries: int
    tls: bool
    pushes: bool
    push_seed: str
    """Of the author, in hex, whose logs are pushed: the node follows it by name."""
    with_payloads: bool
    """Whether a sync is over only once every payload is there: large ones come by themselves."""

    def as_json(self) -> str:
        """For the command line of the process."""
        return json.dumps(asdict(self))

    @property
    def address(self) -> str:
        """As `connect` takes it."""
        where = f"{self.host}:{self.port}"
        return f"{self.author}@{where}" if self.tls else where

    @property
    def key(self) -> SigningKey:
        """Of the honest peer."""
        return SigningKey(bytes.fromhex(self.seed))


# A sync at a time


def payloads(count: int) -> list[bytes]:
    """Small ones, each of them another."""
    return [b"%d " % number * 40 for number in range(1, count + 1)]


async def _fetch(orders: HonestOrders, folder: Path) -> tuple[float, float]:
    log = LogKey(bytes.fromhex(orders.author), 0)
    with Store.create(folder, signing_key=orders.key) as store:
        async with Peer(store, config=NodeConfig(workers=1)) as peer:
            await peer.follow(log)
            began = time.monotonic()
            peer.connect(orders.address)
            await peer.wait_for(log, orders.entries)
            if orders.with_payloads:
                await _all_payloads(store, log)
            return began, time.monotonic()


async def _all_payloads(store: Store, log: LogKey) -> None:
    while True:
        info = store.log(log)
        if info is not None and not info.missing_payloads:
            return
        await trio.sleep(POLL_S)


async def _push(orders: HonestOrders, folder: Path, number: int) -> tuple[float, float]:
    """A new log of an author whom the node follows, until the node's store has all of it.

    It is not the honest peer's own: the node would bring back what that one had pushed before.
    """
    author = SigningKey(bytes.fromhex(orders.push_seed))
    log = LogKey(bytes(author.verify_key), number)
    with (
        Store.create(folder, signing_key=orders.key) as store,
        Store.open(orders.node_store, readonly=True) as theirs,
    ):
        entries = signed_log(author, number, payloads(orders.entries))
        await trio.to_thread.run_sync(lambda: store.put_entries(log, entries, source="siege"))
        async with Peer(store, config=NodeConfig(workers=1)) as peer:
            # Else it would be given to whoever asks, and not offered.
            await peer.follow(log)
            began = time.monotonic()
            peer.connect(orders.address)
            while True:
                held = theirs.log(log)
                if held is not None and held.height >= orders.entries:
                    return began, time.monotonic()
                await trio.sleep(POLL_S)


async def _round(orders: HonestOrders, number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        # Each round is another machine: what an earlier one has signed is of no concern.
        os.environ["BAMBOO_PEER_STATE"] = str(Path(folder, "state"))
        began = time.monotonic()
        with trio.move_on_after(ROUND_S):
            store = Path(folder, "store")
            if orders.pushes:
                began, ended = await _push(orders, store, number)
            else:
                began, ended = await _fetch(orders, store)
            return {"began": began, "ended": ended, "entries": orders.entries}
        return {"began": began, "ended": time.monotonic(), "entries": 0}


def rounds(orders: HonestOrders) -> None:
    """A sync for each line."""
    show({"ready": True})
    for number, _ in enumerate(sys.stdin):
        show(trio.run(_round, orders, number))


# The pulse


@dataclass
class Pulse:
    """What was measured since the last time it was asked for."""

    pings_ms: list[float] = field(default_factory=list)
    lives_ms: list[float] = field(default_factory=list)
    lost: int = 0
    """Connections for pings that the node has ended."""
    waiting_since: float | None = None
    """Of the ping that has no answer yet."""

    def take(self) -> dict[str, Any]:
        """All of it; an answer that is still owed counts with what it has taken so far."""
        pings = self.pings_ms
        if self.waiting_since is not None:
            pings = [*pings, (time.monotonic() - self.waiting_since) * 1000]
        found = {"pings_ms": pings, "lives_ms": self.lives_ms, "lost": self.lost}
        self.pings_ms, self.lives_ms, self.lost = [], [], 0
        return found


async def _connect(orders: HonestOrders) -> trio.abc.Stream:
    stream: trio.abc.Stream = await trio.open_tcp_stream(orders.host, orders.port)
    if orders.tls:
        stream = TlsStream(stream, Identity(orders.key), server=False)
    await stream.send_all(encode_setup(GREEDY))
    return stream


async def _ping(orders: HonestOrders, pulse: Pulse) -> None:
    while True:
        try:
            await _ping_over(await _connect(orders), pulse)
        except (OSError, trio.BrokenResourceError):
            pulse.lost += 1
        pulse.waiting_since = None
        await trio.sleep(PING_EVERY_S)


async def _ping_over(stream: trio.abc.Stream, pulse: Pulse) -> None:
    packets = Packets()
    async with stream:
        opening = b""
        while True:
            opening += await _receive(stream)
            with suppress(NeedMore):
                _, used = decode_setup(opening)
                break
        packets.feed(opening[used:])
        while True:
            pulse.waiting_since = began = time.monotonic()
            await stream.send_all(PING_ALL)
            while not _has_pong(packets):
                packets.feed(await _receive(stream))
            pulse.pings_ms.append((time.monotonic() - began) * 1000)
            pulse.waiting_since = None
            await trio.sleep(PING_EVERY_S)


async def _receive(stream: trio.abc.Stream) -> bytes | bytearray:
    data = await stream.receive_some(65536)
    if not data:
        raise trio.BrokenResourceError("the node has closed the connection")
    return data


def _has_pong(packets: Packets) -> bool:
    """Whether a pong is among what has come; all else is thrown away."""
    while (found := packets.next()) is not None:
        if found[0] == PONG:
            return True
    return False


async def _append(orders: HonestOrders) -> None:
    with Store.open(orders.node_store) as store:
        while True:
            stamp = str(time.monotonic()).encode()
            await trio.to_thread.run_sync(partial(store.append, [stamp], log_id=LIVE_LOG))
            await trio.sleep(APPEND_EVERY_S)


async def _arrive(orders: HonestOrders, pulse: Pulse, folder: Path) -> None:
    log = LogKey(bytes.fromhex(orders.author), LIVE_LOG)
    with Store.create(folder, signing_key=orders.key) as store:
        async with Peer(store, config=NodeConfig(workers=1)) as peer:
            await peer.follow(log)
            peer.connect(orders.address)
            async for entry in peer.entries(log):
                pulse.lives_ms.append((time.monotonic() - float(entry.payload)) * 1000)


async def _pulse(orders: HonestOrders, folder: Path) -> None:
    pulse = Pulse()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ping, orders, pulse)
        nursery.start_soon(_append, orders)
        nursery.start_soon(_arrive, orders, pulse, folder)
        show({"ready": True})
        while await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            show(pulse.take())
        nursery.cancel_scope.cancel()


def main() -> None:
    """One of the two."""
    role, orders = sys.argv[1], HonestOrders(**json.loads(sys.argv[2]))
    if role == "rounds":
        rounds(orders)
    else:
        with tempfile.TemporaryDirectory() as folder:
            trio.run(_pulse, orders, Path(folder, "store"))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
