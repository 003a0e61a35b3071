"""Cardinal streams in Spark: what rows say is what a consumer on that node is told."""

import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from analytics import (
    BadInput,
    cardinal_blocks,
    cardinal_blocks_stream,
    cardinal_chain,
    cardinal_counting,
    cardinal_messages,
    cardinal_reorgs,
    cardinal_state,
    cardinal_updates,
    read_export,
    read_export_stream,
    write_stream,
)
from analytics.schema import record_batch
from gateways.cardinal import Consuming, Settings, Side, Stream, Updated, create_stream
from gateways.cardinal.codec import Batch, Item, Message, Reorg, encode_message
from gateways.cardinal.codec import Update as Value
from gateways.cardinal.content import Content, InMemory, NotWhole, content_of, missing_of
from gateways.cardinal.frames import encode_frame, encode_note
from gateways.cardinal.producing import Block
from gateways.cardinal.side import BlockRow, CompleteEvent, ConflictEvent, View
from gateways.cardinal.taking import PLACE_BITS
from logstore import Seldom, Store
from tests.analytics.makers import export, make_store
from tests.gateways.cardinal.chains import (
    SETTINGS,
    Producer,
    Replica,
    block,
    hash_of,
    no_clock,
    taken,
    view_of,
)
from tests.gateways.cardinal.test_consuming import World
from tests.gateways.cardinal.vectors import VECTORS
from wire import LogKey

GENESIS = bytes(32)
SEEDS = range(8)


class Disputed(World):
    """Its producers lie too, and write what is no message; and two nodes have their logs."""

    def __init__(self, seed: int, nodes: list[Store]) -> None:
        self.rng = random.Random(seed)
        self.producers = [Producer(SETTINGS._replace(chain=f"demo{seed}")) for _ in range(2)]
        self.replicas = [Replica(each) for each in nodes]
        self.blocks: list[Block] = []
        self.owed: list[tuple[Producer, bytes, bytes]] = []

    def step(self) -> None:
        roll = self.rng.random()
        producer = self.rng.choice(self.producers)
        if roll < 0.08 and self.blocks:
            # Of the same block another value, for a producer who has not written it.
            true = self.rng.choice(self.blocks[-3:])
            values = dict.fromkeys(true.values, b"lie" * 20)
            producer.add(replace(true, values=values))
        elif roll < 0.14:
            key, value = encode_message(Value(hash_of(self.rng.randrange(9)), b"a/more", b""))
            payload = encode_frame(key, value) + encode_frame(b"\x09", b"") + b"\xff\x01"
            topics = [*producer.stream.topics().values()]
            producer.store.append([payload], log_id=self.rng.choice(topics).log_id)
        super().step()

    def replicate(self, *, everything: bool = False) -> None:
        # What the second node has in the end is not all there is.
        for everything_here, replica in zip((everything, False), self.replicas, strict=True):
            for producer in self.producers:
                keys = [info.key for info in producer.store.logs()]
                self.rng.shuffle(keys)
                for key in keys:
                    if everything_here or self.rng.random() < 0.4:
                        replica.take(producer.store, key)

    def close(self) -> None:
        for each in self.producers:
            each.close()


class Told:
    """What a consumer on a node is told, from its first entry on."""

    def __init__(self, store: Store, streams: Iterable[Stream]) -> None:
        side = Side(store, Seldom(no_clock))
        view = view_of(*streams)
        consuming = Consuming(store, side, view)
        said = taken(consuming)
        self.chain = [(each.number, each.hash, each.parent) for each in consuming.chain()][::-1]
        self.reorgs = [_reorg(each) for each in said if isinstance(each, Updated) and each.removed]
        events = side.events(view, 0, 1_000_000)
        self.blocks = {
            each.header.hash: (*each.header[:4], each.at >> PLACE_BITS)
            for each in events
            if isinstance(each, CompleteEvent)
        }
        self.conflicts = {each.hash for each in events if isinstance(each, ConflictEvent)}
        self.contents = {hash_: _content(side, view, hash_) for hash_ in self.blocks}
        self.missing = {
            row.hash: _missing(side, view, row)
            for row in side.incomplete(view, 1_000)
            if row.header is not None and not row.is_split
        }
        side.close()


def _missing(side: Side, view: View, row: BlockRow) -> int:
    """In sentences it is said with numbers; of a header that is not here with none."""
    words = missing_of(side.messages(side.places(row), row.hash), view.tracking)
    return sum(int(found[0]) if (found := re.match(r"\d+", each)) else 1 for each in words)


def _reorg(update: Updated) -> tuple[int, bytes, int, int]:
    progress = update.progress
    at = progress.channels[-1][1] if progress.is_in_channel else 0
    assert progress.head is not None
    # What is left of an event is behind it.
    ingest = (at or progress.at) + 1 >> PLACE_BITS
    return ingest, progress.head.hash, len(update.removed), len(update.added)


def _content(side: Side, view: View, hash_: bytes) -> Content | None:
    row = side.block(view, hash_)
    assert row is not None
    places = [each for each in side.places(row) if row.producer in (None, each.producer)]
    try:
        return content_of(side.messages(places, hash_), view.tracking)
    except NotWhole:
        return None


Place = tuple[str, str]
"""A node and a chain."""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[Place, Told], list[Path]]:
    """What is told of several chains on two nodes, and their exports."""
    folder = tmp_path_factory.mktemp("worlds")
    stores = [Store.create(folder / name) for name in "ab"]
    worlds = [Disputed(seed, stores) for seed in SEEDS]
    for _ in range(40):
        for world in worlds:
            world.step()
    told: dict[Place, Told] = {}
    for world in worlds:
        world.replicate(everything=True)
        streams = sorted((each.stream for each in world.producers), key=lambda each: each.key)
        for store in stores:
            told[store.author.hex(), streams[0].declared.chain] = Told(store, streams)
        world.close()
    roots = [folder / f"lake-{name}" for name in "ab"]
    for store, root in zip(stores, roots, strict=True):
        export(store, root)
        store.close()
    return told, roots


def by_place(rows: Iterable[Any]) -> dict[Place, list[Any]]:
    found: dict[Place, list[Any]] = defaultdict(list)
    for row in rows:
        found[row["node"], row["chain"]].append(row)
    return found


def test_blocks_and_the_chain_are_what_a_consumer_of_each_node_is_told(
    spark: SparkSession, worlds: tuple[dict[Place, Told], list[Path]]
) -> None:
    told, roots = worlds
    frame = read_export(spark, roots)
    blocks = by_place(cardinal_blocks(frame).collect())
    chains = by_place(cardinal_chain(frame).collect())
    reorgs = by_place(cardinal_reorgs(frame).collect())
    assert blocks.keys() == told.keys()
    for place, expected in told.items():
        complete = {
            bytes(row["block_hash"]): (
                bytes(row["block_hash"]),
                row["number"],
                int.from_bytes(row["weight"], "big"),
                bytes(row["parent"]),
                row["completed_ingest"],
            )
            for row in blocks[place]
            if row["complete"]
        }
        assert complete == expected.blocks
        for row in blocks[place]:
            hash_ = bytes(row["block_hash"])
            assert row["conflict"] == (hash_ in expected.conflicts)
            assert (row["missing"] == 0) == row["complete"]
            assert row["missing"] == expected.missing.get(hash_, row["missing"])
            assert (row["completed_at"] is not None) == row["complete"]
            content = expected.contents.get(hash_)
            counts = (
                (None, None) if content is None else (len(content.values), len(content.deletes))
            )
            assert (row["updates"], row["deletes"]) == counts
        found = [
            (row["number"], bytes(row["block_hash"]), bytes(row["parent"])) for row in chains[place]
        ]
        assert found == expected.chain
        ordered = sorted(reorgs[place], key=lambda row: row["reorg"])
        assert [
            (row["completed_ingest"], bytes(row["new_head"]), row["removed"], row["added"])
            for row in ordered
        ] == expected.reorgs
        assert [row["reorg"] for row in ordered] == [*range(1, len(ordered) + 1)]
    assert any(each.reorgs for each in told.values())
    assert any(each.conflicts for each in told.values())
    assert any(each.missing for each in told.values())
    assert any(not row["complete"] for rows in blocks.values() for row in rows)


def test_a_note_that_names_no_channel_keeps_nobody_waiting(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = {}
    with Store.create(tmp_path / "node") as store:
        for named in ("own", "other", "later"):
            producer = Producer(SETTINGS._replace(chain=named))
            producer.add(block(1, 1, GENESIS, 1))
            producer.add(block(2, 2, hash_of(1), 2))
            log_id = producer.stream.key.log_id if named == "own" else 77
            if named == "other":
                producer.store.append([b"no channel"], log_id=log_id)
            note = encode_note({"channel": log_id})
            reorg = encode_frame(*encode_message(Reorg(hash_of(1), 1)))
            producer.store.append_many([(producer.stream.key.log_id, [note + reorg])])
            producer.add(block(2, "new", hash_of(1), 1))
            Replica(store).take_all(producer.store)
            told[named] = Told(store, [producer.stream])
            producer.close()
        export(store, tmp_path / "lake")
    frame = read_export(spark, [tmp_path / "lake"])
    rows = cardinal_chain(frame).orderBy("chain", "number").collect()
    for named, expected in told.items():
        found = [
            (row["number"], bytes(row["block_hash"]), bytes(row["parent"]))
            for row in rows
            if row["chain"] == named
        ]
        assert found == expected.chain
        assert len(found) == (1 if named == "later" else 2)


def test_updates_are_what_is_in_the_blocks_of_each_node(
    spark: SparkSession, worlds: tuple[dict[Place, Told], list[Path]]
) -> None:
    told, roots = worlds
    found: dict[tuple[Place, bytes], Content] = defaultdict(lambda: Content(InMemory(), InMemory()))
    vias = set()
    for row in cardinal_updates(read_export(spark, roots)).collect():
        content = found[(row["node"], row["chain"]), bytes(row["block_hash"])]
        vias.add(row["via"])
        if row["op"] == "delete":
            assert row["value"] is None
            content.deletes[row["key"].encode()] = b""
        else:
            content.values[row["key"].encode()] = bytes(row["value"])
    assert found == {
        (place, hash_): content
        for place, expected in told.items()
        for hash_, content in expected.contents.items()
        if content is not None
    }
    assert vias == {"inline", "message", "sub_batch"}


def lake(store: Store, folder: Path) -> Path:
    export(store, folder / "lake")
    return folder / "lake"


def payload(*messages: Message) -> bytes:
    return b"".join(encode_frame(*encode_message(each)) for each in messages)


def test_what_breaks_a_rule_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    bad = [(bytes.fromhex(each["key"]), bytes.fromhex(each["value"])) for each in VECTORS["bad"]]
    one = hash_of("one")
    with make_store(tmp_path / "s") as store:
        stream = create_stream(store, store.append_many, Settings("demo"))
        log = stream.key.log_id
        frames = b"".join(encode_frame(*each) for each in bad if each[0])
        note = encode_note({"kafka": {}})
        whole = payload(Batch(one, 1, 5, GENESIS, {b"k": Item(b"v")}))
        store.append([frames, note + whole + b"\xf8\x01", b"", b"\xff" * 9], log_id=log)
        root = lake(store, tmp_path)
    frame = read_export(spark, [root])
    rows = cardinal_messages(frame).orderBy("seq", "index").collect()
    first = [row for row in rows if row["seq"] == 2]
    assert [(bytes(row["key"]), bytes(row["value"])) for row in first] == [
        each for each in bad if each[0]
    ]
    assert [row["index"] for row in first] == [*range(len(first))]
    assert all(row["kind"] == "bad" and row["reason"] for row in first)
    assert [
        (row["seq"], row["index"], row["kind"], row["key"] is None) for row in rows[len(first) :]
    ] == [
        (3, 1, "batch", False),
        (3, 2, "bad", True),
        (5, 0, "bad", True),
    ]
    assert rows[0]["topic"] == "main"
    assert [bytes(row["block_hash"]) for row in cardinal_chain(frame).collect()] == [one]
    assert [bytes(row["block_hash"]) for row in cardinal_blocks(frame).collect()] == [one]


def test_numbers_that_nobody_would_choose(spark: SparkSession, tmp_path: Path) -> None:
    last = 2**64 - 1
    weights = (10**38 - 1, 10**38, 2**256 - 1)
    with make_store(tmp_path / "s") as store:
        create_stream(store, store.append_many, Settings("demo"), log_id=last)
        numbers = (2**63 - 3, 2**63 - 2, 2**63 - 1)
        batches = [
            Batch(hash_of(each), number, weight, hash_of(place), {b"p/": Item(owed=2**31 - 1)})
            if place == 1
            else Batch(hash_of(each), number, weight, hash_of(place), {})
            for place, (each, number, weight) in enumerate(
                zip("abc", numbers, weights, strict=True)
            )
        ]
        store.append([payload(*batches)], log_id=last)
        root = lake(store, tmp_path)
    frame = read_export(spark, [root])
    rows = cardinal_blocks(frame).orderBy("number").collect()
    assert [row["number"] for row in rows] == [*numbers]
    assert [row["weight_decimal"] and int(row["weight_decimal"]) for row in rows] == [
        weights[0],
        None,
        None,
    ]
    assert [int.from_bytes(row["weight"], "big") for row in rows] == [*weights]
    assert [row["missing"] for row in rows] == [0, 2**31 - 1, 0]
    assert {int(row["log_id"]) for row in cardinal_messages(frame).collect()} == {last}
    assert cardinal_chain(frame).count() == 1
    assert cardinal_reorgs(frame).count() == 0


def test_what_is_owed_and_by_what_a_value_came(spark: SparkSession, tmp_path: Path) -> None:
    one, two, id_ = hash_of("one"), hash_of("two"), hash_of("id")
    producer = Producer()
    stream = producer.stream
    with Store.create(tmp_path / "s") as store:
        producer.add(Block(1, one, GENESIS, 1, {"a/1": b"", "x": b"y"}, ["a/0", "z"]))
        producer.add(block(2, "two", one, 2, batches={"s/sub": id_}))
        Replica(store).take_all(producer.store)
        # Of a block without a Batch nobody knows what is owed.
        root = lake(store, tmp_path)
    producer.close()
    frame = read_export(spark, [root])
    rows = cardinal_blocks(frame, streams=[str(stream.key)]).orderBy("number").collect()
    assert [(row["missing"], row["updates"], row["deletes"]) for row in rows] == [
        (0, 2, 2),
        (1, None, None),
    ]
    assert bytes(rows[1]["block_hash"]) == two
    assert rows[0]["producers"] == [stream.key.author.hex()]
    updates = cardinal_updates(frame).orderBy("key").collect()
    assert [(row["op"], row["key"], row["value"], row["via"]) for row in updates] == [
        ("delete", "a/0", None, "message"),
        ("update", "a/1", b"", "message"),
        ("update", "x", b"y", "inline"),
        ("delete", "z", None, "inline"),
    ]


def test_of_streams_that_are_named_the_order_counts(spark: SparkSession, tmp_path: Path) -> None:
    one = hash_of("one")
    producers = [Producer(), Producer(), Producer(Settings("demo"))]
    with Store.create(tmp_path / "s") as store:
        replica = Replica(store)
        for producer, value in zip(producers, (b"true", b"lie", b"apart"), strict=True):
            producer.add(Block(1, one, GENESIS, 1, {"a/1": value, "a/2": b"x"}))
        # Both have said something before either has said all, and then both have at once.
        for producer in producers[:2]:
            replica.take(producer.store, producer.stream.topics()["accounts"])
        for producer in producers:
            replica.take_all(producer.store)
        root = lake(store, tmp_path)
    frame = read_export(spark, [root])
    keys = [each.stream.key for each in producers]
    for each in producers:
        each.close()

    def values(*streams: LogKey | str) -> list[bytes]:
        rows = cardinal_updates(frame, streams=streams).where("key = 'a/1'").collect()
        return [bytes(row["value"]) for row in rows]

    assert values(keys[0]) == [b"true"]
    assert values(str(keys[1])) == [b"lie"]
    assert values(keys[1], keys[0]) == values(keys[0], keys[1])
    [row] = cardinal_blocks(frame, streams=[keys[1], keys[0]]).collect()
    assert row["conflict"]
    assert row["producers"] == [keys[1].author.hex(), keys[0].author.hex()]
    # Without names those who cannot be read together are put together apart.
    assert sorted(row["conflict"] for row in cardinal_blocks(frame).collect()) == [False, True]
    with pytest.raises(BadInput, match="another chain, default topic or patterns"):
        cardinal_blocks(frame, streams=[keys[0], keys[2]])
    topic = f"{keys[0].author.hex()}/{keys[0].log_id + 1}"
    with pytest.raises(BadInput, match="no stream of blocks is declared"):
        cardinal_messages(frame, streams=[topic])


def test_blocks_come_once_on_a_stream_that_begins_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    id_ = hash_of("id")
    root, table = tmp_path / "lake", tmp_path / "table"
    producer = Producer()
    stream = producer.stream

    def streamed(blocks: bool = True) -> DataFrame:
        declared = read_export(spark, [root])
        frame = read_export_stream(spark, root)
        function = cardinal_blocks_stream if blocks else cardinal_messages
        return function(frame, streams=[stream.key], declared=declared)

    def written() -> list[Any]:
        query = write_stream(streamed(), table, tmp_path / "checkpoint", available_now=True)
        query.awaitTermination(120)
        return spark.read.parquet(str(table)).orderBy("number").collect()

    with Store.create(tmp_path / "s") as store:
        replica = Replica(store)
        producer.add(block(1, "one", GENESIS, 1))
        producer.add(block(2, "two", hash_of("one"), 2**256 - 1, batches={"s/sub": id_}))
        replica.take_all(producer.store)
        export(store, root)
        assert [row["number"] for row in written()] == [1]
        producer.send(hash_of("two"), id_, **{"s/sub/1": b"part" * 100})
        producer.add(block(3, "three", hash_of("two"), 3))
        replica.take_all(producer.store)
        export(store, root)
        rows = written()
        # What comes of a block later makes no other row of it.
        producer.store.append([payload(Value(hash_of("one"), b"a/more", b""))])
        replica.take_all(producer.store)
        export(store, root)
        assert written() == rows
    producer.close()
    frame = read_export(spark, [root])
    assert [row.asDict() for row in rows] == [
        row.asDict() | {"conflict": False}
        for row in cardinal_blocks(frame).orderBy("number").collect()
    ]
    query = (
        streamed(blocks=False)
        .writeStream.format("memory")
        .queryName("cardinal_streamed")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    order = ("log_id", "seq", "index")
    found = spark.table("cardinal_streamed").orderBy(*order).collect()
    assert found == cardinal_messages(frame).orderBy(*order).collect()
    with pytest.raises(BadInput, match="have to be named"):
        cardinal_messages(read_export_stream(spark, root))
    with pytest.raises(BadInput, match="cardinal_blocks_stream"):
        cardinal_chain(read_export_stream(spark, root))
    with pytest.raises(BadInput, match="cardinal_blocks"):
        cardinal_blocks_stream(frame, streams=[stream.key], declared=frame)


def rows_of(*messages: Message) -> pa.RecordBatch:
    rows = [
        (0, "author", 1, 0, 2, place, 0, 0, *encode_message(each))
        for place, each in enumerate(messages)
    ]
    return record_batch(rows, cardinal_state.MESSAGES_DDL)


def test_a_block_of_which_too_much_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hash_ = hash_of("one")
    batch = Batch(hash_, 1, 1, GENESIS, {b"p/": Item(owed=1)})
    rows = rows_of(Value(hash_, b"p/1", b"value"))
    monkeypatch.setattr(cardinal_counting, "HELD_BYTES_MAX", 3 * rows.nbytes)
    given_up, whole = cardinal_counting.Block(hash_), cardinal_counting.Block(hash_)
    whole.take(rows_of(batch))
    for _ in range(4):
        given_up.take(rows)
        whole.take(rows)
    given_up.take(rows_of(batch))
    assert given_up.is_given_up()
    assert given_up.row()[6:8] == [False, None]
    assert not whole.is_given_up()
    assert whole.row()[6:10] == [True, 0, 1, 0]


def test_workers_need_no_store() -> None:
    """They have PyNaCl and pyarrow, and neither APSW nor Trio."""
    modules = (
        "cardinal_counting",
        "cardinal_parsing",
        "cardinal_replay",
        "cardinal_state",
        "declared",
    )
    code = (
        "import sys\nfor name in ('apsw', 'trio', 'msgspec', 'pandas'): sys.modules[name] = None\n"
    )
    code += "".join(f"import analytics.{each}\n" for each in modules)
    subprocess.run([sys.executable, "-c", code], check=True)
