"""What leaves the memory of an assembly, and comes back."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.cardinal import shelf
from gateways.cardinal.assembly import Come, Conflict
from gateways.cardinal.codec import Batch, Item, Part, SubBatchHeader, Update
from gateways.cardinal.counting import Copy

from .test_assembly import HASH, ID, PARENT, Store, any_message, completed


@given(st.randoms(use_true_random=False))
def test_what_is_said_does_not_depend_on_what_is_on_the_shelf(rng: random.Random) -> None:
    options = {"keys_max": 9, "complete_keys_max": 6, "waiting_max": 3}
    steady = Store(**options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shelf, "ITEMS_IN_MEMORY_MAX", rng.randrange(4))
        shelving = Store(**options, incomplete_max=2, incomplete_keys_max=4, shelf=shelf.Shelf())
        for _ in range(80):
            message, producer = any_message(rng), rng.randrange(3)
            assert shelving.take(message, producer) == steady.take(message, producer)
            assert shelving.states == steady.states


def test_a_block_is_counted_anew_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "ITEMS_IN_MEMORY_MAX", 4)
    store = Store(incomplete_max=3, complete_keys_max=10, shelf=shelf.Shelf())
    read: list[bytes] = []
    messages = store.messages

    def counted(hash_: bytes) -> Iterable[Come]:
        read.append(hash_)
        return messages(hash_)

    monkeypatch.setattr(store, "messages", counted)
    blocks = [bytes([number]) * 32 for number in range(1, 9)]
    for number in range(6):
        for each in blocks:
            assert store.take(Update(each, b"a/%d" % number, b"x")) == []
    assert read == []
    for number, each in enumerate(blocks):
        assert completed(store.take(Batch(each, number, 9, PARENT, {b"a/": Item(owed=6)})))
    for _ in range(3):
        for each in blocks:
            assert store.take(Update(each, b"a/1", b"x")) == []
    # Those that were complete and had left memory, and none of them twice.
    assert sorted(read) == sorted({*read})
    for each in blocks:
        assert [type(one) for one in store.take(Update(each, b"a/1", b"other"))] == [Conflict]


def test_what_is_large_of_a_block_does_not_go_and_come_with_each_message() -> None:
    place = shelf.Shelf()
    store = Store(incomplete_max=2, shelf=place)
    many = 5_000
    counted = Batch(bytes([1]) * 32, 1, 9, PARENT, {b"%d/" % n: Item(owed=1) for n in range(many)})
    batches = {b"%d" % n: Item(batch=n.to_bytes(32, "big")) for n in range(1, many)}
    owing = Batch(bytes([2]) * 32, 2, 9, PARENT, batches)
    waiting = [Update(bytes([3]) * 32, b"a/%d" % n, b"") for n in range(many)]
    parts = [Part(bytes([4]) * 32, ID, n, [], {}) for n in range(many)]
    opening = Batch(bytes([4]) * 32, 4, 9, PARENT, {b"s": Item(batch=ID)})
    long = [Update(bytes([5]) * 32, b"a/%d/" % n + bytes(5_000), b"") for n in range(50)]
    store.take_all([counted, owing, *waiting, opening, *parts, *long])
    for _ in range(2):
        for number in range(1, 8):
            store.take(Update(bytes([number]) * 32, b"b", b""))
    assert place._db is not None
    [(largest,)] = place._db.execute("SELECT max(length(block)) FROM blocks")
    assert largest < 70_000
    # And all of them are what they were.
    assert completed(store.take(SubBatchHeader(bytes([4]) * 32, ID, many)))
    opened = Batch(bytes([3]) * 32, 3, 9, PARENT, {b"a/": Item(owed=many)})
    assert completed(store.take(opened))
    keys = (Update(bytes([1]) * 32, b"%d/x" % n, b"") for n in range(many))
    assert completed(store.take_all(keys))
    headers = (SubBatchHeader(bytes([2]) * 32, n.to_bytes(32, "big"), 0) for n in range(1, many))
    assert completed(store.take_all(headers))


def test_what_a_shelf_holds_goes_with_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "ITEMS_IN_MEMORY_MAX", 4)
    place = shelf.Shelf()
    store = Store(incomplete_max=2, complete_keys_max=20, shelf=place)
    blocks = [bytes([number]) * 32 for number in range(1, 30)]
    for number in range(6):
        for each in blocks:
            store.take(Update(each, b"a/%d" % number, b""))
    assert place._db is not None
    assert place._db.execute("SELECT count(*) FROM rows").get
    for number, each in enumerate(blocks):
        assert completed(store.take(Batch(each, number, 9, PARENT, {b"a/": Item(owed=6)})))
    # Of those that are still compared there is something left.
    left = place._db.execute("SELECT count(DISTINCT block) FROM rows").get
    assert left <= len(store.assembly._complete)
    assert not place._db.execute("SELECT count(*) FROM blocks").get


def test_what_a_batch_says_inline_is_not_kept() -> None:
    store = Store()
    items = {b"inline/%d" % number: Item(b"value") for number in range(1_000)}
    store.take(Batch(HASH, 7, 9, PARENT, {**items, b"a/": Item(owed=1)}))
    [block] = store.assembly._blocks.values()
    [copy] = block.copies.values()
    assert copy.size == 2
    assert not [each for each in vars_of(copy) if isinstance(each, dict | set) and len(each) > 2]


def test_what_is_owed_counts_towards_what_is_in_memory() -> None:
    store = Store(incomplete_keys_max=100)
    for number in range(1, 6):
        owed = {b"%d/" % each: Item(owed=1) for each in range(60)}
        store.take(Batch(bytes([number]) * 32, number, 9, PARENT, owed))
    assert len(store.assembly) == 1


def test_blocks_that_are_complete_in_time_leave_nothing_behind() -> None:
    store = Store()
    for number in range(5_000):
        assert store.take(Batch(number.to_bytes(32, "big"), number, 9, PARENT, {}))
    assert len(store.assembly._lowest) < 2_000


def vars_of(copy: Copy) -> list[object]:
    return [getattr(copy, name) for name in copy.__slots__]
