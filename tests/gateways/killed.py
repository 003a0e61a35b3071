"""What tests run in processes of their own: sources, servers, relays, importers."""

import sys
from pathlib import Path

import trio

from gateways.datastream import DataStreamServer, DataStreamSource, import_file, relay
from logstore import LogMoved, Store
from wire import LogKey


async def write(store: Store) -> None:
    """Operations without end; each is told once it is durable."""
    async with DataStreamSource(store) as source:
        while True:
            async with source.atomic() as op:
                op.bookmark(op.first.to_bytes(8, "big"))
                op.event(1, op.first.to_bytes(8, "big") * (op.first % 9000))
            print(op.last, flush=True)  # noqa: T201


async def serve(store: Store) -> None:
    """A server of the own log; tells its port."""
    key = LogKey(store.author, 0)
    async with DataStreamServer(store, key, listen="127.0.0.1:0") as server:
        print(server.address.port, flush=True)  # noqa: T201
        await trio.sleep_forever()


async def hold(store: Store) -> None:
    """For each line of input an operation, opened before it is read; tells what came of it."""
    async with DataStreamSource(store) as source:
        while True:
            source.start_atomic_op()
            number = source.add_stream_entry(1, b"held")
            print(f"open {number}", flush=True)  # noqa: T201
            if not await trio.to_thread.run_sync(sys.stdin.readline):
                return
            try:
                await source.commit_atomic_op()
                print(f"committed {number}", flush=True)  # noqa: T201
            except LogMoved:
                print("moved", flush=True)  # noqa: T201


async def main() -> None:
    """`killed.py source|serve|hold STORE`, `relay STORE ADDRESS`, `import STORE FILE`."""
    role, path, *rest = sys.argv[1:]
    print("begun", flush=True)  # noqa: T201
    with Store.open(Path(path)) as store:
        if role == "source":
            await write(store)
        elif role == "serve":
            await serve(store)
        elif role == "hold":
            await hold(store)
        elif role == "relay":
            await relay(store, rest[0])
        else:
            await import_file(store, Path(rest[0]))


if __name__ == "__main__":
    trio.run(main)
