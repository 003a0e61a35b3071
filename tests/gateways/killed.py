"""What the kill tests run in processes of their own: a source, and a relay."""

import sys
from pathlib import Path

import trio

from gateways.datastream import DataStreamSource, import_file, relay
from logstore import Store


async def write(store: Store) -> None:
    """Operations without end; each is told once it is durable."""
    async with DataStreamSource(store) as source:
        while True:
            async with source.atomic() as op:
                op.bookmark(op.first.to_bytes(8, "big"))
                op.event(1, op.first.to_bytes(8, "big") * (op.first % 9000))
            print(op.last, flush=True)  # noqa: T201


async def main() -> None:
    """`killed.py source STORE`, `relay STORE ADDRESS`, `import STORE FILE`."""
    role, path, *rest = sys.argv[1:]
    print("begun", flush=True)  # noqa: T201
    with Store.open(Path(path)) as store:
        if role == "source":
            await write(store)
        elif role == "relay":
            await relay(store, rest[0])
        else:
            await import_file(store, Path(rest[0]))


if __name__ == "__main__":
    trio.run(main)
