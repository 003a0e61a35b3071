"""From logs to updates: several producers, restarts at every step, tables lost and made anew."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateways.cardinal import Consuming, ReorgSaid, Side, SubBatch, Updated, ordered, read_state
from gateways.cardinal.consuming import Found, Said
from gateways.cardinal.headers import Head, TooDeep
from gateways.cardinal.producing import Block
from gateways.cardinal.progress import Progress
from gateways.cardinal.side import ConflictEvent
from logstore import Seldom, Store

from .chains import Producer, Replica, apply, block, hash_of, no_clock, taken, updates, view_of

GENESIS = bytes(32)


@pytest.fixture
def producer() -> Iterator[Producer]:
    made = Producer()
    yield made
    made.close()


def consuming_of(producer: Producer, **more: object) -> Consuming:
    return Consuming(producer.store, producer.side, view_of(producer.stream), **more)  # type: ignore[arg-type]


def test_blocks_come_out_in_order_with_what_is_in_them(producer: Producer) -> None:
    consuming = consuming_of(producer)
    assert taken(consuming) == []
    id_ = hash_of("batch")
    first = block(1, "one", GENESIS, 10, batches={"s/sub": id_})
    producer.add(first, {id_: SubBatch({"s/sub/1": b"part"}, ["s/sub/0"])})
    producer.add(block(2, "two", hash_of("one"), 20))
    [_, update, _, second] = taken(consuming)
    assert isinstance(update, Updated)
    assert [each.hash for each in update.added] == [hash_of("one")]
    content = consuming.content(hash_of("one"))
    assert dict(content.values.pairs()) == {
        b"inline": b"three",
        b"a/one": b"one",
        b"s/one": b"two",
        b"s/sub/1": b"part",
    }
    assert [*content.deletes.pairs()] == [(b"s/sub/0", b"")]
    assert isinstance(second, Updated)
    assert second.progress.head == Head(2, hash_of("two"), 20)
    assert [each.hash for each in consuming.chain()] == [hash_of("two"), hash_of("one")]


def test_a_block_waits_for_its_sub_batch_also_behind_a_restart(producer: Producer) -> None:
    id_ = hash_of("batch")
    producer.add(block(1, "one", GENESIS, 10, batches={"s/sub": id_}))
    producer.begin()
    consuming = consuming_of(producer)
    assert updates(taken(consuming)) == []
    producer.send(hash_of("one"), id_, **{"s/sub/1": b"part"})
    assert updates(taken(consuming)) == [((hash_of("one"),), ())]
    producer.begin()
    with pytest.raises(ValueError, match="unknown batch"):
        producer.send(hash_of("one"), id_)


def test_one_topic_alone(producer: Producer) -> None:
    store = Store.memory()
    replica = Replica(store)
    topics = producer.stream.topics()
    side = Side(store, Seldom(no_clock))
    producer.add(block(1, "one", GENESIS, 10))
    for topic in ("main", "accounts"):
        replica.take(producer.store, topics[topic])
    all_of_it = Consuming(store, side, view_of(producer.stream))
    some = Consuming(store, side, view_of(producer.stream, topics=("accounts",)))
    assert updates(taken(all_of_it)) == []
    assert updates(taken(some)) == [((hash_of("one"),), ())]
    assert dict(some.content(hash_of("one")).values.pairs()) == {
        b"inline": b"three",
        b"a/one": b"one",
    }
    tracked = Consuming(store, side, view_of(producer.stream, track=("^a",)))
    assert updates(taken(tracked)) == [((hash_of("one"),), ())]
    assert dict(tracked.content(hash_of("one")).values.pairs()) == {b"a/one": b"one"}
    side.close()
    store.close()


def test_a_reorganisation_by_channel(producer: Producer) -> None:
    parent = GENESIS
    for number in range(1, 12):
        producer.add(block(number, number, parent, number))
        parent = hash_of(number)
    consuming = consuming_of(producer)
    taken(consuming)
    assert producer.writer.begin_reorg(producer.store.append_many, 2, hash_of(2))
    producer.begin()
    assert not producer.writer.begin_reorg(producer.store.append_many, 2, hash_of(2))
    parent = hash_of(2)
    for number in range(3, 6):
        producer.add(block(number, ("new", number), parent, number))
        parent = hash_of(("new", number))
    said = taken(consuming)
    assert [each for each in said if isinstance(each, ReorgSaid)] == [ReorgSaid(2, hash_of(2))]
    changes = updates(said)
    assert changes[0] == ((), tuple(hash_of(number) for number in range(3, 12)))
    chain = [hash_of(number) for number in range(1, 12)]
    new = [hash_of(("new", number)) for number in range(3, 6)]
    assert apply(chain, changes) == [hash_of(1), hash_of(2), *new]
    # It goes on in the middle: nothing is taken back again.
    again = consuming_of(producer, progress=consuming.progress())
    assert again.channel == consuming.channel is not None
    assert taken(again) == []
    producer.writer.end_reorg(producer.store.append_many)
    producer.add(block(6, ("new", 6), parent, 6))
    for each in (consuming, again):
        assert updates(taken(each)) == [((hash_of(("new", 6)),), ())]
        assert each.channel is None


def test_a_reorganisation_of_two_producers_is_carried_out_once() -> None:
    first, second = Producer(), Producer()
    store = Store.memory()
    side = Side(store, Seldom(no_clock))
    replica = Replica(store)
    for each in (first, second):
        for number in range(1, 6):
            each.add(block(number, number, hash_of(number - 1), number))
        each.writer.begin_reorg(each.store.append_many, 2, hash_of(2))
        each.add(block(3, "other", hash_of(2), 1))
        each.writer.end_reorg(each.store.append_many)
        each.add(block(4, "next", hash_of("other"), 2))
        replica.take_all(each.store)
    consuming = Consuming(store, side, view_of(first.stream, second.stream))
    said = taken(consuming)
    assert len([each for each in said if isinstance(each, ReorgSaid)]) == 1
    assert apply([], updates(said))[-3:] == [hash_of(2), hash_of("other"), hash_of("next")]
    for each in (first, second):
        each.writer.begin_reorg(each.store.append_many, 2, hash_of(2))
        replica.take_all(each.store)
    assert len([each for each in taken(consuming) if isinstance(each, ReorgSaid)]) == 1
    for each in (first, second):
        each.close()
    side.close()
    store.close()


def test_who_disagrees_is_told_once_and_the_order_given_decides() -> None:
    first, second = Producer(), Producer()
    store = Store.memory()
    side = Side(store, Seldom(no_clock))
    replica = Replica(store)
    for each, value in ((first, b"honest"), (second, b"lie")):
        each.add(Block(1, hash_of("one"), GENESIS, 1, {"a/1": value, "a/2": b""}))
        # Both have said something before either has said all.
        replica.take(each.store, each.stream.topics()["accounts"])
    for each in (first, second):
        replica.take_all(each.store)
    for streams, expected in (
        ((first.stream, second.stream), b"honest"),
        ((second.stream, first.stream), b"lie"),
    ):
        consuming = Consuming(store, side, view_of(*streams))
        said = taken(consuming)
        [conflict] = [each for each in said if isinstance(each, ConflictEvent)]
        assert conflict.key[33:] == b"a/1"
        assert set(conflict.producers) == {first.store.author, second.store.author}
        whole = consuming.content(hash_of("one")).values.get(b"a/1")
        # Whoever is complete first is given out: that is who was replicated first.
        assert whole == b"honest" if streams[0] is first.stream else whole in (b"honest", expected)
    for each in (first, second):
        each.close()
    side.close()
    store.close()


# Random histories --------------------------------------------------------------------------------


class World:
    """Two producers of one tree of blocks, and a node that has their logs."""

    def __init__(self, rng: random.Random, path: Path | None) -> None:
        self.rng = rng
        self.producers = [Producer(), Producer()]
        self.store = Store.memory() if path is None else Store.create(path)
        self.replica = Replica(self.store)
        self.blocks: list[Block] = []
        self.owed: list[tuple[Producer, bytes, bytes]] = []

    @property
    def streams(self) -> tuple[object, ...]:
        return tuple(each.stream for each in self.producers)

    def step(self) -> None:
        rng = self.rng
        producer = rng.choice(self.producers)
        roll = rng.random()
        if roll < 0.45 or not self.blocks:
            self.add_new(producer)
        elif roll < 0.6:
            producer.add(rng.choice(self.blocks))
        elif roll < 0.7 and self.owed:
            who, hash_, id_ = self.owed.pop(rng.randrange(len(self.owed)))
            who.send(hash_, id_, **{"s/x": b"part"})
        elif roll < 0.75:
            self.reorganise(producer)
        elif roll < 0.8:
            producer.begin()
        self.replicate()

    def add_new(self, producer: Producer) -> None:
        rng = self.rng
        above = rng.choice(self.blocks[-5:]) if self.blocks else None
        number = 1 if above is None else above.number + rng.choice((1, 1, 1, 2))
        parent = GENESIS if above is None else above.hash
        name = len(self.blocks)
        batches = {"s/b": hash_of(("id", name))} if rng.random() < 0.2 else {}
        made = block(number, name, parent, rng.randrange(30), batches=batches)
        self.blocks.append(made)
        producer.add(made)
        self.owed += [(producer, made.hash, id_) for id_ in batches.values()]

    def reorganise(self, producer: Producer) -> None:
        writer, store = producer.writer, producer.store
        if writer.channel is not None:
            writer.end_reorg(store.append_many)
        else:
            ancestor = self.rng.choice(self.blocks)
            writer.begin_reorg(store.append_many, ancestor.number, ancestor.hash)

    def replicate(self, *, everything: bool = False) -> None:
        for producer in self.producers:
            keys = [info.key for info in producer.store.logs()]
            self.rng.shuffle(keys)
            for key in keys:
                if everything or self.rng.random() < 0.5:
                    self.replica.take(producer.store, key)

    def close(self) -> None:
        for each in self.producers:
            each.close()
        self.store.close()


def said_of(said: list[Said]) -> list[object]:
    """What is told of each event, but for where to go on."""
    found: list[object] = []
    for each in said:
        if isinstance(each, Updated):
            found.append((each.added, each.removed))
        elif isinstance(each, ReorgSaid | TooDeep | Found | ConflictEvent):
            found.append(each)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_who_begins_again_at_every_update_is_told_the_same(seed: int) -> None:
    world = World(rng := random.Random(seed), None)
    sides = [Side(world.store, Seldom(no_clock)) for _ in range(2)]
    view = view_of(*world.streams)  # type: ignore[arg-type]
    steady = Consuming(world.store, sides[0], view)
    told: list[Said] = []
    again: list[Said] = []
    progress = Progress(None)
    for step in range(30):
        world.step()
        if step == 29:
            world.replicate(everything=True)
        told += taken(steady)
        if rng.random() < 0.5:
            # And a third one goes on where it was before.
            other = ordered(world.store, sides[0], view)
            assert (other.head, other.channel) == (steady.head, steady.channel)
            assert [*other.chain()] == [*steady.chain()]
        # The other one ends behind each update, and its table may be lost.
        while True:
            if rng.random() < 0.3:
                sides[1].close()
                sides[1] = Side(world.store, Seldom(no_clock))
            consuming = Consuming(world.store, sides[1], view, progress=progress)
            update = first_update(consuming)
            if update is None:
                break
            progress, token = read_state(world.store, consuming.state(update.progress))
            assert token is None
            again.append(update)
    assert updates(again) == updates(told)
    apply([], updates(told))
    for side in sides:
        side.close()
    world.close()


def first_update(consuming: Consuming) -> Updated | None:
    while True:
        consuming.bring_on()
        said = consuming.take()
        if said is None:
            return None
        for each in said:
            if isinstance(each, Updated):
                return each
