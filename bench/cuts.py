"""A connection that is cut again and again inside one large payload: what is sent twice?

    python bench/cuts.py --mebibytes 500 --cuts 20

Two processes with stores on disk, and between them a proxy that counts the bytes on their way to
the follower and resets both connections at even distances. The same once without cuts, then with
them, on the same payload: one JSON line each, and the extra bytes as a share. A byte that the proxy
passed on counts as read, also where the reset took it back.
"""

import argparse
import os
import socket
import struct
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bench.support.output import show
from bench.support.processes import play_role, read_record, start
from logstore import Store
from peer.api import Peer
from wire import LogKey

MIB = 1 << 20
CHUNK_BYTES = 64 * 1024


def main() -> None:
    if play_role({"serve": serve, "follow": follow}):
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mebibytes", type=int, default=500)
    parser.add_argument("--cuts", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        serving = start("serve", folder + "/a", args.mebibytes * MIB)
        try:
            ready = read_record(serving)
            without = one_round(folder + "/b", ready, args.mebibytes * MIB, cuts=0)
            with_cuts = one_round(folder + "/c", ready, args.mebibytes * MIB, cuts=args.cuts)
        finally:
            serving.kill()
            serving.wait()
    extra = with_cuts["bytes_to_follower"] / without["bytes_to_follower"] - 1
    show({"extra_percent": round(extra * 100, 3)})


def one_round(folder: str, ready: dict[str, Any], size: int, *, cuts: int) -> dict[str, Any]:
    proxy = Proxy(ready["port"], [size * (n + 1) // (cuts + 1) for n in range(cuts)])
    record = trio.run(proxy.replicate, folder, ready["author"])
    assert len(proxy.cut_at) == cuts, "the payload was there before the last cut"
    record |= {"cuts": cuts, "bytes_to_follower": proxy.passed, "connections": proxy.connections}
    show(record)
    return record


class Proxy:
    """Passes bytes on between the two, and cuts where it is told to."""

    def __init__(self, port: int, cuts: list[int]) -> None:
        self._port = port
        self._cuts = cuts
        self.cut_at: list[int] = []
        self.passed = 0
        self.connections = 0

    async def replicate(self, folder: str, author: str) -> dict[str, Any]:
        """Run the follower behind this proxy until it holds the payload."""
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            following = start("follow", folder, f"127.0.0.1:{port}", author)
            record = await trio.to_thread.run_sync(read_record, following)
            following.wait()
            nursery.cancel_scope.cancel()
        return record

    async def _serve(self, follower: trio.SocketStream) -> None:
        self.connections += 1
        server = await trio.open_tcp_stream("127.0.0.1", self._port)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_on, follower, server, nursery.cancel_scope)
            nursery.start_soon(self._pass_to_follower, server, follower, nursery.cancel_scope)
        for stream in (follower, server):
            # Without lingering a close is a reset, as when a network goes away.
            linger = struct.pack("ii", 1, 0)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await trio.aclose_forcefully(stream)

    async def _pass_on(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                await sink.send_all(data)
        except trio.BrokenResourceError:
            pass
        scope.cancel()

    async def _pass_to_follower(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                await sink.send_all(data)
                self.passed += len(data)
                if self._cuts and self.passed >= self._cuts[0]:
                    self.cut_at.append(self._cuts.pop(0))
                    break
        except trio.BrokenResourceError:
            pass
        scope.cancel()


def serve(folder: str, size: str) -> None:
    store = Store.create(folder)
    path = Path(folder) / "payload"
    with path.open("wb") as file:
        for _ in range(int(size) // MIB):
            file.write(os.urandom(MIB))
    store.append([path])
    path.unlink()
    trio.run(_serve, store)


async def _serve(store: Store) -> None:
    async with Peer(store) as peer:
        address = await peer.listen("127.0.0.1:0")
        show({"port": address.port, "author": store.author.hex()})
        await trio.sleep_forever()


def follow(folder: str, address: str, author: str) -> None:
    trio.run(_follow, Store.create(folder), address, LogKey(bytes.fromhex(author), 0))


async def _follow(store: Store, address: str, log: LogKey) -> None:
    async with Peer(store) as peer:
        await peer.follow(log)
        began = time.perf_counter()
        peer.connect(address)
        async for _ in peer.entries(log):
            break
        show({"seconds": round(time.perf_counter() - began, 2)})


if __name__ == "__main__":
    main()
