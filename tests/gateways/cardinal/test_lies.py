"""Producers that say what costs others most, or what was said already."""

from collections.abc import Iterator
from functools import partial

import pytest

from gateways.cardinal import Consuming, Side, Updated, codec, taking
from gateways.cardinal.assembly import Assembly
from gateways.cardinal.frames import Frame, encode_frame, frames_of
from gateways.cardinal.producing import Block
from gateways.cardinal.side import ConflictEvent
from logstore import Seldom, Store

from .chains import Producer, Replica, block, hash_of, no_clock, taken, updates, view_of

GENESIS = bytes(32)


@pytest.fixture
def producer() -> Iterator[Producer]:
    made = Producer()
    yield made
    made.close()


def test_what_was_given_out_stays_what_it_was() -> None:
    first, second = Producer(), Producer()
    with Store.memory() as store:
        side = Side(store, Seldom(no_clock))
        replica = Replica(store)
        for each, value in ((first, b""), (second, b"evil")):
            each.add(Block(1, hash_of(1), GENESIS, 1, {"a/x": value}))
            replica.take_all(each.store)
        # Nor does its own producer fill it in.
        late = encode_frame(*codec.encode_message(codec.Update(hash_of(1), b"a/x", b"late")))
        first.store.append_many([(first.stream.key.log_id, [late])])
        replica.take_all(first.store)
        consuming = Consuming(store, side, view_of(first.stream, second.stream))
        said = taken(consuming)
        assert len([each for each in said if isinstance(each, ConflictEvent)]) == 1
        assert dict(consuming.content(hash_of(1)).values.pairs()) == {b"a/x": b""}
        side.close()
    for each in (first, second):
        each.close()


def reorganised(producer: Producer, rounds: int) -> list[bytes]:
    """A chain that is taken back by a block and goes on beside it, again and again."""
    parent, chain = hash_of(0), []
    producer.add(block(1, 0, GENESIS, 1))
    for number in range(2, 2 + rounds):
        producer.add(block(number, ("x", number), parent, number))
        producer.writer.begin_reorg(producer.store.append_many, number - 1, parent)
        producer.add(block(number, ("c", number), parent, number))
        producer.writer.end_reorg(producer.store.append_many)
        parent = hash_of(("c", number))
        chain.append(parent)
    return chain


def test_channels_by_the_dozen_leave_the_right_chain(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = reorganised(producer, 40)
    side = Side(producer.store, Seldom(no_clock))
    looked = 0
    find = Side.block

    def counted(side: Side, *what: object) -> object:
        nonlocal looked
        looked += 1
        return find(side, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(Side, "block", counted)
    consuming = Consuming(producer.store, side, view_of(producer.stream))
    taken(consuming)
    assert [each.hash for each in consuming.chain()][::-1] == [hash_of(0), *chain]
    # Each looks at those before it, and none of them walks down to the first block.
    assert looked < 40 * 100
    assert len(side._takings) == 1
    side.close()


def test_a_token_from_within_a_channel_begins_it_anew(producer: Producer) -> None:
    for number in range(1, 6):
        producer.add(block(number, number, hash_of(number - 1) if number > 1 else GENESIS, number))
    producer.writer.begin_reorg(producer.store.append_many, 2, hash_of(2))
    parent = hash_of(2)
    for number in range(3, 6):
        producer.add(block(number, ("new", number), parent, number))
        parent = hash_of(("new", number))
    side = Side(producer.store, Seldom(no_clock))
    view = view_of(producer.stream)
    here = Consuming(producer.store, side, view)
    said = [each for each in taken(here) if isinstance(each, Updated)]
    for place in range(6, len(said)):
        progress = said[place].progress
        token = here.token(progress)
        there = Consuming(producer.store, side, view, start=progress.head, token=token)
        taken(there)
        assert there.head == here.head
        assert [each.hash for each in there.chain()] == [each.hash for each in here.chain()]
    side.close()


def test_a_token_does_not_bring_back_what_a_reorg_has_taken_back(producer: Producer) -> None:
    for number in range(1, 6):
        producer.add(block(number, number, hash_of(number - 1) if number > 1 else GENESIS, number))
    producer.writer.begin_reorg(producer.store.append_many, 2, hash_of(2))
    producer.add(block(3, "new", hash_of(2), 1))
    producer.writer.end_reorg(producer.store.append_many)
    producer.add(block(4, "newer", hash_of("new"), 2))
    side = Side(producer.store, Seldom(no_clock))
    view = view_of(producer.stream)
    here = Consuming(producer.store, side, view)
    last = [each for each in taken(here) if isinstance(each, Updated)][-1]
    token = here.token(last.progress)
    there = Consuming(producer.store, side, view, start=last.progress.head, token=token)
    assert there.progress().bars == here.progress().bars == ((hash_of(2), hash_of(3)),)
    # Heavier than all there is, and below what was taken back.
    producer.add(block(6, 6, hash_of(5), 100))
    producer.add(block(5, "newest", hash_of("newer"), 3))
    for each in (here, there):
        assert updates(taken(each)) == [((hash_of("newest"),), ())]
    side.close()


def test_a_token_from_within_a_channel_does_not_bring_back_what_that_took_back(
    producer: Producer,
) -> None:
    producer.add(block(1, 1, GENESIS, 1))
    for number in (2, 3, 4):
        parent = hash_of(1 if number == 2 else ("a", number - 1))
        producer.add(block(number, ("a", number), parent, number * 10))
    producer.writer.begin_reorg(producer.store.append_many, 1, hash_of(1))
    producer.add(block(2, ("b", 2), hash_of(1), 2))
    side = Side(producer.store, Seldom(no_clock))
    view = view_of(producer.stream)
    here = Consuming(producer.store, side, view)
    last = [each for each in taken(here) if isinstance(each, Updated)][-1]
    assert last.progress.is_in_channel
    token = here.token(last.progress)
    producer.writer.end_reorg(producer.store.append_many)
    # Heavier, and on the branch that was taken back.
    producer.add(block(5, ("a", 5), hash_of(("a", 4)), 100))
    producer.add(block(3, ("b", 3), hash_of(("b", 2)), 3))
    there = Consuming(producer.store, side, view, start=last.progress.head, token=token)
    for each in (here, there):
        taken(each)
        assert [one.hash for one in each.chain()][:2] == [hash_of(("b", 3)), hash_of(("b", 2))]
    side.close()


def test_messages_of_thousands_of_blocks_in_turn_are_not_read_again_for_each(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that leave memory, and an entry that has some of each of them."""
    read = 0

    def counted(payload: bytes) -> Iterator[Frame]:
        nonlocal read
        for frame in frames_of(payload):
            read += 1
            yield frame

    monkeypatch.setattr(taking, "frames_of", counted)
    monkeypatch.setattr(
        taking, "Assembly", partial(Assembly, incomplete_max=10, complete_keys_max=30)
    )
    blocks = [hash_of(("many", number)) for number in range(200)]
    opening = {b"a/": codec.Item(owed=6)}

    def write(messages: list[codec.Message]) -> None:
        payload = b"".join(encode_frame(*codec.encode_message(each)) for each in messages)
        producer.store.append_many([(producer.stream.key.log_id, [payload])])

    write([codec.Batch(each, 1, 1, GENESIS, opening) for each in blocks])
    for number in range(6):
        write([codec.Update(each, b"a/%d" % number, b"x") for each in blocks])
    for _ in range(4):
        # Complete, and left memory again: what comes is compared with it nevertheless.
        write([codec.Update(each, b"a/1", b"x") for each in blocks])
    write([codec.Update(each, b"a/1", b"other") for each in blocks])
    side = Side(producer.store, Seldom(no_clock))
    consuming = Consuming(producer.store, side, view_of(producer.stream))
    said = taken(consuming)
    assert len([each for each in said if isinstance(each, ConflictEvent)]) == len(blocks)
    # Each once as it comes, and once more what came of a block until it is counted anew.
    assert read <= 2 * len(blocks) * 12
    read = 0
    for each in blocks:
        assert len([*consuming.content(each).values.pairs()]) == 6
    assert read == 7 * len(blocks)
    side.close()


def test_a_channel_that_forks_holds_nobody_for_ever(producer: Producer) -> None:
    other = Producer()
    other.add(block(1, 1, GENESIS, 1))
    other.writer.begin_reorg(other.store.append_many, 1, hash_of(1))
    assert other.writer.channel is not None
    channel = other.writer.channel.log
    with Store.memory() as store:
        side = Side(store, Seldom(no_clock))
        replica = Replica(store)
        replica.take_all(other.store)
        for number in (1, 2):
            producer.add(block(number, number, GENESIS if number == 1 else hash_of(1), number))
        replica.take_all(producer.store)
        consuming = Consuming(store, side, view_of(other.stream, producer.stream))
        assert updates(taken(consuming)) == [((hash_of(1),), ())]
        waits = consuming.channel
        assert waits == channel
        # It ends without a word.
        other.store.append([b""], log_id=channel.log_id, end_of_log=True)
        replica.take_all(other.store)
        assert updates(taken(consuming)) == [((hash_of(2),), ())]
        assert consuming.channel is None
        side.close()
    other.close()


def test_reorgs_by_the_thousand_in_one_entry(producer: Producer) -> None:
    producer.add(block(1, 1, GENESIS, 1))
    frame = encode_frame(*codec.encode_message(codec.Reorg(hash_of(1), 1)))
    producer.store.append_many([(producer.stream.key.log_id, [frame * 3_000])])
    side = Side(producer.store, Seldom(no_clock))
    consuming = Consuming(producer.store, side, view_of(producer.stream))
    assert len(taken(consuming)) == 2 + 3_000
    side.close()
