"""How fast blocks are put and tailed, beside the store and beside upstream's program.

    python bench/cardinal.py [--rounds 3] [--quick]

One JSON object a line. Commands are processes of their own on a store on disk, and their time has
that in which Python starts. `value` and `yardstick` are the best of the rounds, each of which has
both, and `spread` the worst value; `floor` is what their `ratio` has to reach, and `at_most` what
the value may come to:

- `tail --once --no-values` over a held log of which the table knows nothing yet, messages a second:
  beside upstream's assembly and ordering of the same messages, which it has in memory (where
  `make interop` has built its program);
- blocks, as Python has them, to entries that are signed and on disk: beside `Store.append_many` of
  the same payloads in the same transactions; and the command `put`, which starts Python and reads
  JSON besides: beside a program that does these two and signs the same payloads, made before;
- 100,000 blocks that were put backwards, once they are in the table: until they are in order, and
  half as many, whose time says how it grows;
- 10 new blocks of 100,000, by a consumer that goes on where it was;
- the table of 100,000 blocks of 5 keys, made anew;
- the most memory of each command: of these, of 4,096 incomplete blocks, and of a block of a million
  keys.

`--quick` does all of it with a few of each, which shows that it works and not how fast.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.support.output import report
from bench.support.processes import BAMBOO_PEER, ENVIRONMENT, peak_bytes
from gateways.cardinal import (
    TOGETHER_BYTES_MAX,
    TOGETHER_ENTRIES_MAX,
    Call,
    Consuming,
    Lying,
    Settings,
    Side,
    Stream,
    View,
    Writer,
    create_stream,
    messages_of_entry,
    own_stream,
)
from gateways.cardinal.codec import Batch, Item, Update, encode_message
from gateways.cardinal.declared import Router
from gateways.cardinal.headers import Head
from gateways.cardinal.producing import Block
from gateways.cardinal.tracking import Tracking
from logstore import Seldom, Store
from tests.interop import cardinal_go

VALUE_BYTES = 100
LOOK_S = 0.01
TOPICS = ("--topic", "a/=accounts")
PATTERNS = (("a/", "accounts"),)
GENESIS = bytes(32)
Batches = list[tuple[int, list[bytes]]]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    shapes: tuple[tuple[int, int], ...] = ((2_000, 50), (200, 2_000))
    """Blocks, and keys of each."""
    blocks: int = 100_000
    keys: int = 5
    new: int = 10
    incomplete: int = 4_096
    large: int = 1_000_000


QUICK = Sizes(shapes=((20, 5),), blocks=200, new=3, incomplete=20, large=500)


def hash_of(number: int) -> bytes:
    """A block's."""
    return number.to_bytes(32, "big")


def chain(numbers: Iterable[int], keys: int) -> Iterator[Block]:
    """Blocks, each on the one below it."""
    values = [os.urandom(VALUE_BYTES) for _ in range(keys)]
    for number in numbers:
        held = {f"a/{place:012d}": value for place, value in enumerate(values)}
        yield Block(number, hash_of(number), hash_of(number - 1), number, held)


def line(block: Block) -> bytes:
    """What `put` takes."""
    fields = {
        "number": block.number,
        "hash": block.hash.hex(),
        "parent": block.parent.hex(),
        "weight": block.weight,
        "values": {key: value.hex() for key, value in block.values.items()},
    }
    return json.dumps(fields).encode() + b"\n"


class Node:
    """A store on disk with a stream, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        with Store.create(self.path) as store:
            create_stream(store, store.append_many, Settings("demo", patterns=PATTERNS))

    def run(self, *words: str, source: Path | None = None) -> tuple[float, int, bytes]:
        """Seconds, bytes of memory at most, and what was printed."""
        out = self.path.with_name("out")
        begun = time.perf_counter()
        with out.open("wb") as target, (source or Path(os.devnull)).open("rb") as data:
            process = subprocess.Popen(
                [*BAMBOO_PEER, "--store", str(self.path), "cardinal", *words],
                stdin=data,
                stdout=target,
                env=ENVIRONMENT,
            )
            # What `wait4` says of a child has what its parent had when it was begun.
            most = 0
            while process.poll() is None:
                most = max(most, peak_bytes(process.pid))
                time.sleep(LOOK_S)
        took_s = time.perf_counter() - begun
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, words)
        return took_s, most, out.read_bytes()

    def forget(self) -> None:
        """What is derived is gone."""
        for each in self.path.glob("cardinal.sqlite3*"):
            each.unlink()

    def write(self, blocks: Iterable[Block]) -> None:
        """Puts blocks in this process."""
        with Store.open(self.path) as store:
            for batches in together(store, blocks):
                store.append_many(batches)


def together(store: Store, blocks: Iterable[Block]) -> Iterator[Batches]:
    """What `put` signs in one transaction each."""
    stream = own_stream(store, "demo")
    assert stream is not None
    side = Side(store, Seldom(time.monotonic))
    try:
        writer = Writer(store, side, stream)
        calls: list[Call] = []
        entries = size = 0
        for block in blocks:
            call = writer.add_block(block)
            calls.append(call)
            entries, size = entries + call.entries, size + call.bytes
            if entries >= TOGETHER_ENTRIES_MAX or size >= TOGETHER_BYTES_MAX:
                yield writer.together(calls)
                writer.signed()
                calls, entries, size = [], 0, 0
        if calls:
            yield writer.together(calls)
    finally:
        side.close()


def lines_of(store: Store) -> list[dict[str, str]]:
    """The messages of a stream in the order of its entries, as upstream's program takes them."""
    stream = own_stream(store, "demo")
    assert stream is not None
    topics = {key: topic for topic, key in stream.topics().items()}
    entries = store.read_changes(0, entries_max=1 << 30, bytes_max=1 << 40)
    return [
        {"topic": each.topic, "key": each.key.hex(), "value": each.value.hex()}
        for entry in entries
        for each in messages_of_entry(store, topics[entry.key], entry)
        if isinstance(each, Lying)
    ]


def tail_round(folder: Path, count: int, keys: int) -> tuple[float, float | None]:
    """Messages a second of `tail`, and of upstream's program."""
    node = Node(folder)
    node.write(chain(range(1, count + 1), keys))
    took_s, _, out = node.run("tail", "demo", "--once", "--no-values")
    assert out.count(b"+") == count
    messages = count * (keys + 1)
    theirs = None
    if cardinal_go.PROGRAM.exists():
        with Store.open(node.path) as store:
            found = cardinal_go.time_consuming(lines_of(store), 0, GENESIS, 0, 128)
        theirs = found["messages"] / found["seconds"]
    return messages / took_s, theirs


_SIGN_ALONE: Final = """
import json, pickle, sys
from pathlib import Path
from logstore import Store
for line in sys.stdin.buffer:
    json.loads(line)
with Store.open(sys.argv[1]) as store:
    for each in pickle.loads(Path(sys.argv[2]).read_bytes()):
        store.append_many(each)
"""


def alone_program_s(node: Node, batches: list[Batches], source: Path) -> float:
    """Seconds of a program that reads the lines and signs payloads that were made before."""
    made = source.with_name("payloads")
    made.write_bytes(pickle.dumps(batches))
    begun = time.perf_counter()
    with source.open("rb") as data:
        subprocess.run(
            [sys.executable, "-c", _SIGN_ALONE, str(node.path), str(made)],
            stdin=data,
            env=ENVIRONMENT,
            check=True,
        )
    return time.perf_counter() - begun


def put_round(folder: Path, count: int, keys: int) -> tuple[float, float, float, float]:
    """Blocks a second: made and signed, signed alone, by the command, and by a program."""
    blocks = [*chain(range(1, count + 1), keys)]
    node = Node(folder / "made")
    begun = time.perf_counter()
    node.write(blocks)
    made = count / (time.perf_counter() - begun)
    alone = Node(folder / "alone")
    with Store.memory() as other:
        create_stream(other, other.append_many, Settings("demo", patterns=PATTERNS))
        batches = [*together(other, blocks)]
    with Store.open(alone.path) as store:
        begun = time.perf_counter()
        for each in batches:
            store.append_many(each)
        signed = count / (time.perf_counter() - begun)
    command = Node(folder / "command")
    source = folder / "blocks"
    source.write_bytes(b"".join(map(line, blocks)))
    took_s, _, out = command.run("put", "demo", source=source)
    assert len(out.splitlines()) == count
    program = count / alone_program_s(Node(folder / "program"), batches, source)
    return made, signed, count / took_s, program


def backwards_round(folder: Path, count: int) -> float:
    """Seconds in which so many blocks are in order that came from the last to the first."""
    node = Node(folder)
    node.write(chain(range(count, 0, -1), 0))
    node.run("tail", "demo", "--once", "--no-values", "--from", f"0/{GENESIS.hex()}")
    with Store.open(node.path, readonly=True) as store:
        stream = own_stream(store, "demo")
        assert stream is not None
        side = Side(store, Seldom(time.monotonic))
        begun = time.perf_counter()
        consuming = Consuming(store, side, view_of(stream), start=start())
        added = 0
        while (said := consuming.take()) is not None:
            added += sum(len(getattr(each, "added", ())) for each in said)
        took_s = time.perf_counter() - begun
        side.close()
    assert added == count
    return took_s


def view_of(stream: Stream) -> View:
    """All of a stream."""
    declared = stream.declared
    return View((stream,), Tracking(Router(declared.patterns, declared.default)))


def start() -> Head:
    """Behind the block below the first."""
    return Head(0, GENESIS, 0)


def many_round(folder: Path, sizes: Sizes) -> dict[str, float]:
    """Seconds and bytes of commands on a long chain."""
    node = Node(folder)
    source = folder / "blocks"
    with source.open("wb") as target:
        target.writelines(map(line, chain(range(1, sizes.blocks + 1), sizes.keys)))
    found: dict[str, float] = {}
    _, found["put"], _ = node.run("put", "demo", source=source)
    node.forget()
    state = ("--state", str(folder / "state"))
    anew = node.run("tail", "demo", "--once", "--no-values", *state)
    found["anew s"], found["tail --no-values"], _ = anew
    last = sizes.blocks + sizes.new
    node.write(chain(range(sizes.blocks + 1, last + 1), sizes.keys))
    found["new s"], _, out = node.run("tail", "demo", "--once", *state)
    assert out.count(b"+") == sizes.new
    _, found["tail"], _ = node.run("tail", "demo", "--once")
    _, found["tail --json"], _ = node.run("tail", "demo", "--once", "--json")
    _, found["status"], _ = node.run("status", "demo")
    _, found["block"], _ = node.run("block", "demo", str(last))
    return found


def incomplete_bytes(folder: Path, count: int) -> float:
    """Of `tail` with so many blocks that wait."""
    node = Node(folder)
    messages = [
        encode_message(Batch(hash_of(number), number, 1, GENESIS, {b"a/": Item(owed=60)}))
        for number in range(count)
    ]
    for place in range(50):
        messages += [
            encode_message(Update(hash_of(number), b"a/%d" % place, b"")) for number in range(count)
        ]
    put_messages(node, folder / "messages", messages)
    return node.run("tail", "demo", "--once")[1]


def large_bytes(folder: Path, keys: int) -> dict[str, float]:
    """Of commands with a block of so many keys that `put --messages` wrote."""
    node = Node(folder)
    hash_, value = hash_of(1), bytes(VALUE_BYTES)
    messages = (encode_message(Update(hash_, b"a/%012d" % place, value)) for place in range(keys))
    found = {"put --messages": put_messages(node, folder / "messages", messages)}
    batch = Batch(hash_, 1, 1, GENESIS, {b"a/": Item(owed=keys)})
    put_messages(node, folder / "messages", [encode_message(batch)])
    for words in (("--no-values",), (), ("--json",)):
        found[f"tail {' '.join(words)}".strip()] = node.run("tail", "demo", "--once", *words)[1]
    found["block"] = node.run("block", "demo", "1")[1]
    return found


def put_messages(node: Node, source: Path, messages: Iterable[tuple[bytes, bytes]]) -> float:
    """Has `put --messages` write them; its memory."""
    with source.open("w") as target:
        for key, value in messages:
            topic = "accounts" if key[0] else "main"
            fields = {"topic": topic, "key": key.hex(), "value": value.hex()}
            target.write(json.dumps(fields) + "\n")
    return node.run("put", "demo", "--messages", source=source)[1]


def rounds_of(rounds: int) -> Iterator[Path]:
    """A folder for each round."""
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def paired(
    name: str, unit: str, values: Sequence[float], yardsticks: Sequence[float], floor: float | None
) -> None:
    """The best of both, and their ratio."""
    ratio = max(values) / max(yardsticks)
    more: dict[str, object] = {"yardstick": round(max(yardsticks), 1), "ratio": round(ratio, 3)}
    if floor is not None:
        more["floor"] = floor
    report(name, max(values), unit, spread=round(min(values), 1), **more)


def measure_speed(sizes: Sizes, rounds: int) -> None:
    """What is compared with something."""
    for count, keys in sizes.shapes:
        shape = f"{count} blocks of {keys} keys"
        found = [tail_round(folder, count, keys) for folder in rounds_of(rounds)]
        ours = [each for each, _ in found]
        theirs = [each for _, each in found if each is not None]
        if theirs:
            paired(f"tail, {shape}", "messages/s", ours, theirs, 0.167)
        else:
            report(f"tail, {shape}", max(ours), "messages/s", spread=round(min(ours), 1))
        put = []
        for folder in rounds_of(rounds):
            for each in ("made", "alone", "command", "program"):
                (folder / each).mkdir()
            put.append(put_round(folder, count, keys))
        made, signed, command, program = (list(each) for each in zip(*put, strict=True))
        paired(f"put, {shape}", "blocks/s", made, signed, 0.5)
        paired(f"put by the command, {shape}", "blocks/s", command, program, 0.5)


def measure_size(sizes: Sizes, rounds: int) -> None:
    """What may take so long, and so much."""
    for count, most in ((sizes.blocks // 2, None), (sizes.blocks, 5)):
        took_s = [backwards_round(folder, count) for folder in rounds_of(rounds)]
        limit: dict[str, object] = {} if most is None else {"at_most": most}
        report(f"{count} blocks that came backwards", min(took_s), "s", **limit)
    with tempfile.TemporaryDirectory() as folder:
        many = many_round(Path(folder), sizes)
    of = f"{sizes.blocks} blocks of {sizes.keys} keys"
    report(f"table made anew, {of}", many.pop("anew s"), "s", at_most=60)
    report(f"{sizes.new} new blocks, {of}", many.pop("new s"), "s", at_most=1)
    for name, size in many.items():
        report(f"memory of {name}, {of}", size / 1e6, "MB", at_most=200)
    with tempfile.TemporaryDirectory() as folder:
        size = incomplete_bytes(Path(folder), sizes.incomplete)
    report(f"memory of tail, {sizes.incomplete} incomplete blocks", size / 1e6, "MB", at_most=200)
    with tempfile.TemporaryDirectory() as folder:
        large = large_bytes(Path(folder), sizes.large)
    for name, size in large.items():
        report(f"memory of {name}, a block of {sizes.large} keys", size / 1e6, "MB", at_most=200)


def main() -> None:
    """Measures everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    sizes = QUICK if args.quick else Sizes()
    rounds = 1 if args.quick else args.rounds
    measure_speed(sizes, rounds)
    measure_size(sizes, rounds)


if __name__ == "__main__":
    main()
