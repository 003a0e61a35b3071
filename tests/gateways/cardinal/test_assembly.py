"""Blocks put together: any shuffle, with repeats, of one to four producers; and those that lie."""

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import cardinal_assembly, harness
from gateways.cardinal import codec
from gateways.cardinal.assembly import (
    Assembly,
    Bad,
    Changed,
    Come,
    Complete,
    Conflict,
    Happened,
    Opened,
)
from gateways.cardinal.codec import Batch, Delete, Item, Message, Part, SubBatchHeader, Update
from gateways.cardinal.counted import State
from gateways.cardinal.declared import Router
from gateways.cardinal.headers import Header
from gateways.cardinal.producing import Block, messages_of, sub_batch

from .vectors import VECTORS

HASH, PARENT, ID = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
HEADER = Header(HASH, 7, 9, PARENT)


class Store:
    """What was given to an assembly, so that it can be read again; what it said of its state."""

    def __init__(self, **options: object) -> None:
        self.options = options
        self.come: dict[bytes, list[Come]] = {}
        self.states: dict[bytes, int] = {}
        self.forget()

    def forget(self) -> None:
        """Goes on with another one, which knows what is remembered here."""
        self.assembly = Assembly(self, **self.options)  # type: ignore[arg-type]

    def state(self, hash_: bytes) -> int | None:
        return self.states.get(hash_, State.MET if hash_ in self.come else None)

    def messages(self, hash_: bytes) -> Iterable[Come]:
        return [*self.come.get(hash_, ())]

    def take(self, message: Message | tuple[bytes, bytes], producer: int = 0) -> list[Happened]:
        pair = message if type(message) is tuple else codec.encode_message(message)  # type: ignore[arg-type]
        come = Come(producer, *pair)
        hash_ = come.key[1:33]
        found: list[Happened] = []
        for each in self.assembly.take(come):
            if isinstance(each, Changed):
                self.states[hash_] = each.state
            elif not isinstance(each, Opened):
                found.append(each)
        self.come.setdefault(hash_, []).append(come)
        return found

    def take_run(
        self, hash_: bytes, pairs: Iterable[tuple[bytes, bytes]], producer: int
    ) -> list[Happened]:
        come = self.come.setdefault(hash_, []) if self.state(hash_) is not None else []

        def one_by_one() -> Iterator[tuple[bytes, bytes]]:
            for pair in pairs:
                yield pair
                come.append(Come(producer, *pair))
                self.come[hash_] = come

        found = [*self.assembly.take_run(producer, hash_, one_by_one())]
        for each in found:
            if isinstance(each, Changed):
                self.states[hash_] = each.state
        return [each for each in found if not isinstance(each, Changed | Opened)]

    def take_all(self, messages: Iterable[Message], producer: int = 0) -> list[Happened]:
        return [each for message in messages for each in self.take(message, producer)]


def completed(happened: Iterable[Happened]) -> list[Header]:
    return [each.header for each in happened if isinstance(each, Complete)]


def batch(**items: Item) -> Batch:
    """Items by name; `_` stands for a slash."""
    found = {name.replace("_", "/").encode(): item for name, item in items.items()}
    return Batch(HASH, 7, 9, PARENT, found)


@pytest.mark.parametrize("case", VECTORS["streams"])
@pytest.mark.parametrize("producers", [1, 3])
def test_upstream_s_blocks_in_any_order_with_repeats(
    case: dict[str, list[dict[str, str]]], producers: int
) -> None:
    messages = [
        (producer, bytes.fromhex(each["key"]), bytes.fromhex(each["value"]))
        for producer in range(producers)
        for each in case["messages"]
    ]
    expected = {bytes.fromhex(each["hash"]) for each in case["blocks"]}
    for seed in range(5):
        rng = random.Random(seed)
        shuffled = messages * 2
        rng.shuffle(shuffled)
        store = Store()
        found = [each for who, key, value in shuffled for each in store.take((key, value), who)]
        assert len(completed(found)) == len(found) == len(expected)
        assert {each.hash for each in completed(found)} == expected
        assert len(store.assembly) == 0


def test_what_is_owed_has_to_come() -> None:
    store = Store()
    assert store.take(Update(HASH, b"a/1", b"x")) == []
    assert store.take(Part(HASH, ID, 1, [], {b"s/1": b"y"})) == []
    items = {"a_": Item(owed=3), "s_": Item(batch=ID), "in": Item(b"line")}
    assert store.take(batch(**items)) == []
    assert store.take(Delete(HASH, b"a/1")) == []
    assert store.take(Update(HASH, b"a/1", b"x")) == []
    assert store.take(Update(HASH, b"a/2", b"")) == []
    assert store.take(SubBatchHeader(HASH, ID, 2)) == []
    [done] = store.take(Part(HASH, ID, 0, [b"s/0"], {}))
    assert done == Complete(HEADER, None)
    assert store.take_all([batch(**items), Update(HASH, b"a/1", b"x")]) == []


def test_a_header_alone_is_owed_for_an_empty_sub_batch() -> None:
    store = Store()
    assert store.take(batch(s=Item(batch=ID))) == []
    assert completed(store.take(SubBatchHeader(HASH, ID, 0))) == [HEADER]


def test_a_block_that_owes_nothing_is_complete_with_its_batch() -> None:
    assert completed(Store().take(batch())) == [HEADER]


def test_under_which_prefix_a_message_counts() -> None:
    items = {b"a/": Item(owed=1), b"a/b/": Item(owed=1), b"a/b/c": Item(owed=1)}
    opening = Batch(HASH, 7, 9, PARENT, items)
    # Itself, then the next shorter ones as they run out.
    for keys in ((b"a/b/c", b"a/b/d", b"a/e"), (b"a/b/d", b"a/b/e", b"a/b/c")):
        store = Store()
        assert store.take(opening) == []
        found = [store.take(Update(HASH, key, b"")) for key in keys]
        assert [completed(each) for each in found] == [[], [], [HEADER]]
    store = Store()
    store.take(opening)
    assert store.take_all([Update(HASH, b"b/c", b""), Update(HASH, b"ab", b"")]) == []


def test_what_is_not_tracked_is_not_waited_for() -> None:
    router = Router([("a/", "a"), ("s/", "s")], "main")
    tracked = {"main", "a"}
    store = Store(is_tracked=lambda key: router.topic(key.decode()) in tracked)
    items = {"a_": Item(owed=1), "s_": Item(owed=5), "s_x": Item(batch=ID)}
    assert store.take(batch(**items)) == []
    assert store.take_all([Update(HASH, b"s/1", b""), SubBatchHeader(HASH, ID, 3)]) == []
    assert completed(store.take(Update(HASH, b"a/1", b""))) == [HEADER]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_who_disagree_are_told_once_and_the_first_given_has_it(order: tuple[int, int]) -> None:
    store = Store()
    values = (b"honest", b"lie")
    found = []
    for producer in order:
        found += store.take(Update(HASH, b"a/1", values[producer]), producer)
    assert found == [Conflict(HASH, b"\3" + HASH + b"a/1", (0, 1))]
    opening = batch(a_=Item(owed=2))
    assert store.take_all([opening, Update(HASH, b"a/2", b"")], 1)[-1] == Complete(HEADER, 1)
    assert store.take_all([opening, Update(HASH, b"a/2", b"")], 0) == []
    again = Store()
    for producer in (1, 0):
        again.take_all([opening, Update(HASH, b"a/2", b"")], producer)
    both = [each for who in order for each in again.take(Update(HASH, b"a/1", values[who]), who)]
    # Complete by whoever is first; the other one disagrees with what is given out.
    assert [type(each) for each in both] == [Complete, Conflict]


def test_of_two_who_are_whole_at_once_the_first_in_the_order_given_counts() -> None:
    store = Store()
    opening = batch(a_=Item(owed=1), b_=Item(owed=1))
    for producer in (2, 1):
        store.take(opening, producer)
        store.take(Update(HASH, b"a/1", b"same"), producer)
    assert store.take(Update(HASH, b"a/1", b"other"), 0) == [
        Conflict(HASH, b"\3" + HASH + b"a/1", (0, 2))
    ]
    done = store.take(Update(HASH, b"b/1", b""), 2)
    assert [type(each) for each in done] == [Complete]
    assert isinstance(done[0], Complete)
    assert done[0].producer == 2
    assert store.take(Update(HASH, b"b/1", b""), 1) == []


@pytest.mark.parametrize(
    ("messages", "key"),
    [
        (
            [
                batch(a_=Item(owed=1), b_=Item(owed=1)),
                Update(HASH, b"a/1", b""),
                Update(HASH, b"a/2", b""),
            ],
            b"a/2",
        ),
        (
            [
                Update(HASH, b"a/1", b""),
                Update(HASH, b"a/2", b""),
                batch(a_=Item(owed=1), b_=Item(owed=1)),
            ],
            b"",
        ),
    ],
)
def test_more_than_is_owed_is_told_of_one_producer_too(messages: list[Message], key: bytes) -> None:
    store = Store()
    kind = b"\3" if key else b"\0"
    assert store.take_all(messages) == [Conflict(HASH, kind + HASH + key, (0,))]
    assert completed(store.take(Update(HASH, b"b/1", b""))) == [HEADER]


@pytest.mark.parametrize("late", [True, False])
def test_parts_at_or_above_the_count_are_surplus(*, late: bool) -> None:
    store = Store()
    store.take(batch(s=Item(batch=ID)))
    messages: list[Message] = [SubBatchHeader(HASH, ID, 1), Part(HASH, ID, 1, [], {})]
    found = store.take_all(messages if late else reversed(messages))
    assert [type(each) for each in found] == [Conflict]
    assert completed(store.take(Part(HASH, ID, 0, [], {}))) == [HEADER]


def test_of_one_producer_the_earlier_message_counts() -> None:
    store = Store()
    store.take(batch(a_=Item(owed=1), b_=Item(owed=1)))
    values = (b"", b"x", b"y", b"z")
    found = store.take_all([Update(HASH, b"a/1", value) for value in values])
    assert found == [Conflict(HASH, b"\3" + HASH + b"a/1", (0,))]
    # The empty one gave way to the second, and that was told of the third.
    assert store.take(Update(HASH, b"a/1", b"x"), 1) == []
    done = store.take(Update(HASH, b"b/1", b""), 1)
    assert completed(done) == [HEADER]
    assert isinstance(done[0], Complete)
    assert done[0].producer is None


def test_an_item_that_is_counted_and_in_a_sub_batch_blocks_nothing() -> None:
    store = Store()
    store.take(batch(a_=Item(owed=1), s=Item(batch=ID)))
    store.take(Part(HASH, ID, 0, [], {b"a/1": b"part"}))
    store.take(SubBatchHeader(HASH, ID, 1))
    assert completed(store.take(Update(HASH, b"a/1", b"message"))) == [HEADER]


def test_bad_messages_change_nothing() -> None:
    store = Store()
    bad = [(bytes.fromhex(each["key"]), bytes.fromhex(each["value"])) for each in VECTORS["bad"]]
    found = [each for pair in bad for each in store.take(pair)]
    kinds = {type(each) for each in found}
    # Those of types that are nobody's here are not looked into.
    assert kinds == {Bad}
    assert len(store.assembly) == 0


def test_of_too_many_blocks_the_lowest_number_leaves_memory() -> None:
    store = Store(incomplete_max=3)
    owed = {b"a/": Item(owed=1)}

    def held() -> list[int]:
        return sorted(each[0] for each in store.assembly._blocks)

    for number in (5, 3, 9):
        store.take(Batch(bytes([number]) * 32, number, 1, PARENT, owed))
    store.take(Update(bytes([7]) * 32, b"a/1", b""))
    assert held() == [5, 7, 9]
    store.take(Update(bytes([8]) * 32, b"a/1", b""))
    assert held() == [7, 8, 9]
    # It is counted anew, and complete.
    assert completed(store.take(Update(bytes([3]) * 32, b"a/1", b"")))


def test_of_too_many_keys_others_leave_memory_than_that_which_goes_on() -> None:
    store = Store(incomplete_keys_max=30)
    for number in range(10):
        for block in range(5):
            store.take(Update(bytes([50 + block]) * 32, b"a/%d" % number, b""))
    assert len(store.assembly) <= 3
    for number in range(100):
        store.take(Update(HASH, b"a/%d" % number, b""))
    assert [*store.assembly._blocks] == [HASH]
    for block in range(5):
        hash_ = bytes([50 + block]) * 32
        assert store.take(Batch(hash_, 8, 9, PARENT, {b"a/": Item(owed=11)})) == []
        assert completed(store.take(Update(hash_, b"a/x", b"")))


def test_a_block_of_too_many_keys_is_given_up() -> None:
    store = Store(keys_max=10)
    found = store.take_all(Update(HASH, b"a/%d" % number, b"") for number in range(11))
    assert [type(each) for each in found] == [Bad]
    # For good, and told once.
    rest: list[Message] = [
        batch(a_=Item(owed=1)),
        *(Update(HASH, b"a/%d" % number, b"") for number in range(30)),
    ]
    assert store.take_all(rest) == []


def test_what_is_complete_is_compared_but_for_large_blocks() -> None:
    store = Store(complete_keys_max=10)
    for number in range(1, 20):
        hash_ = bytes([number]) * 32
        store.take(Update(hash_, b"a/1", b"x"))
        assert completed(store.take(Batch(hash_, 8, 9, PARENT, {b"a/": Item(owed=1)})))
    assert len(store.assembly._complete) < 10
    late = store.take(Update(HASH, b"a/1", b"other"), 1)
    assert [type(each) for each in late] == [Conflict]
    assert store.take(Update(HASH, b"a/1", b"third"), 2) == []
    large = bytes([100]) * 32
    store.take(Batch(large, 8, 9, PARENT, {b"a/": Item(owed=30)}))
    assert store.take_all(Update(large, b"a/%d" % number, b"") for number in range(30))
    assert store.take(Update(large, b"a/1", b"other"), 1) == []
    assert len(store.assembly) == 0


def test_what_waits_for_its_batch_is_read_again_where_it_is_too_much() -> None:
    for extra in (0, 1):
        store = Store(waiting_max=4)
        store.take_all(Update(HASH, b"a/%d" % number, b"") for number in range(7 + extra))
        store.take(SubBatchHeader(HASH, ID, 1))
        [copy] = store.assembly._blocks[HASH].copies.values()
        assert len(copy.waiting) == 4
        found = store.take(batch(a_=Item(owed=7), s=Item(batch=ID)))
        assert [type(each) for each in found] == [Conflict] * extra
        assert completed(store.take(Part(HASH, ID, 0, [], {}))) == [HEADER]


def test_numbers_that_have_one_hash_in_python_are_told_apart() -> None:
    modulus = (1 << 61) - 1
    true = batch(a_=Item(owed=1))
    for false in (
        true._replace(weight=9 + modulus * (1 << 100)),
        true._replace(number=7 + modulus),
    ):
        store = Store()
        store.take(false, 1)
        assert [type(each) for each in store.take(true, 0)] == [Conflict]
        [done] = store.take(Update(HASH, b"a/1", b""), 0)
        assert completed([done]) == [HEADER]


def test_what_is_read_again_is_checked_again() -> None:
    store = Store()
    store.take(batch(a_=Item(owed=2)))
    bad = (b"\0" + HASH, b"\xff"), (b"\3" + HASH + b"a/\xff", b""), (b"\5" + HASH, b"\2")
    for pair in bad:
        store.take(pair, 1)
    store.take(Update(HASH, b"a/1", b"x"), 1)
    found = store.take(Update(HASH, b"a/1", b"y"), 0)
    # Neither what is bad nor what is no message of a block counts: one is still owed.
    assert [type(each) for each in found] == [Conflict]
    assert completed(store.take(Update(HASH, b"a/2", b""), 0)) == [HEADER]


def test_a_key_of_slashes_counts_under_the_longest_prefix_that_there_is() -> None:
    store = Store()
    key = b"/" * 65_536
    items = {b"/" * 7: Item(owed=1), b"/" * 40_000: Item(owed=1)}
    store.take(Batch(HASH, 7, 9, PARENT, items))
    assert store.take(Update(HASH, key, b"")) == []
    assert completed(store.take(Update(HASH, key[:39_000], b""))) == [HEADER]


def test_what_comes_again_or_counts_for_nothing_takes_no_memory() -> None:
    store = Store(complete_keys_max=10)
    opening = batch(a_=Item(owed=1), b_=Item(owed=1))
    store.take(opening)
    for number in range(200):
        store.take(Update(HASH, b"a/1", b""))
        store.take(Update(HASH, b"c/%d" % number, b""))
    [block] = store.assembly._blocks.values()
    [copy] = block.copies.values()
    assert len(copy.seen) == 2
    store.take(Update(HASH, b"b/1", b""))
    for number in range(200):
        store.take(Update(HASH, b"a/%d" % number, b""), 1)
    assert len(copy.seen) == 3


def test_what_comes_to_a_block_that_one_producer_alone_gave_takes_no_memory() -> None:
    store = Store()
    store.take(Update(HASH, b"a/1", b"x"), 1)
    store.take(Update(HASH, b"a/1", b"y"), 0)
    [done] = store.take(batch(a_=Item(owed=1)), 0)
    assert isinstance(done, Complete)
    assert done.producer == 0
    for number in range(200):
        assert store.take(Update(HASH, b"a/%d" % number, b""), 1) == []
    assert not store.assembly._blocks
    assert not store.assembly._complete


def test_a_producer_with_too_many_keys_is_given_up_alone() -> None:
    store = Store(keys_max=10)
    assert store.take(Update(HASH, b"a/1", b"")) == []
    junk = [Update(HASH, b"a/junk%d" % number, b"") for number in range(40)]
    assert [type(each) for each in store.take_all(junk, 1)] == [Bad]
    [done] = store.take_all([batch(a_=Item(owed=2)), Update(HASH, b"a/2", b"")])
    assert isinstance(done, Complete)
    assert (done.header, done.producer) == (HEADER, 0)


def test_messages_of_blocks_that_never_come_keep_no_others_out() -> None:
    store = Store(incomplete_max=10)
    for number in range(100, 120):
        store.take(Update(bytes([number]) * 32, b"a/1", b""))
    owed = {b"a/": Item(owed=1)}
    for number in range(1, 5):
        store.take(Batch(bytes([number]) * 32, number, 1, PARENT, owed))
        store.take(Update(bytes([200 + number]) * 32, b"a/1", b""))
    honest = {bytes([number]) * 32 for number in range(1, 5)}
    assert honest <= store.assembly._blocks.keys()
    found = [
        header
        for number in range(1, 5)
        for header in completed(store.take(Update(bytes([number]) * 32, b"a/1", b"")))
    ]
    assert {each.hash for each in found} == honest


def test_a_header_that_says_another_number_of_parts_is_disagreement() -> None:
    for first, second in ((0, 2), (1, 2)):
        store = Store()
        store.take(batch(s=Item(batch=ID), a_=Item(owed=1)))
        found = store.take_all([SubBatchHeader(HASH, ID, each) for each in (first, second)])
        assert [type(each) for each in found] == [Conflict]


ROUTER = Router([("a/", "a"), ("b/", "b")], "main")
names = st.sampled_from([f"{place}/{number}" for place in "abc" for number in range(4)])


@st.composite
def blocks(draw: st.DrawFn) -> list[Message]:
    """The messages of a block, in the order of its producer."""
    values = draw(st.dictionaries(names, st.binary(min_size=1, max_size=3), max_size=6))
    deletes = draw(
        st.sets(names.filter(lambda name: not name.startswith("c") or name not in values))
    )
    ids = {f"s{number}": bytes([9 + number]) * 32 for number in range(draw(st.integers(0, 2)))}
    block = Block(7, HASH, PARENT, 9, values, deletes, ids)
    pairs = [pair for made in messages_of(block, ROUTER).values() for pair in made]
    for id_ in ids.values():
        pairs += sub_batch(HASH, id_, {f"x{n}": b"v" for n in range(draw(st.integers(0, 3)))}, [])
    return [codec.decode_message(*pair) for pair in pairs]


@given(blocks(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_any_shuffle_of_any_producers_gives_the_block_once(
    messages: list[Message], producers: int, rng: random.Random
) -> None:
    all_of_it = [(who, message) for who in range(producers) for message in messages * 2]
    rng.shuffle(all_of_it)
    store = Store()
    found = [each for who, message in all_of_it for each in store.take(message, who)]
    assert [type(each) for each in found] == [Complete]
    assert completed(found) == [HEADER]


def any_message(rng: random.Random) -> Message:
    hash_ = bytes([rng.randrange(8)]) * 32
    key = b"%c/%d" % (rng.choice(b"ab"), rng.randrange(5))
    items = {
        b"a/": Item(owed=rng.randrange(3)),
        b"b/": Item(owed=rng.randrange(2)),
        b"s": Item(batch=rng.choice((ID, codec.ZEROS))),
    }
    return rng.choice(
        (
            Update(hash_, key, rng.choice((b"", b"x", b"y"))),
            Delete(hash_, key),
            SubBatchHeader(hash_, ID, rng.randrange(3)),
            Part(hash_, ID, rng.randrange(4), [], {}),
            Batch(hash_, rng.choice((hash_[0], rng.randrange(60))), 1, PARENT, items),
        )
    )


@given(st.randoms(use_true_random=False))
def test_any_messages_in_any_order_crash_nothing_and_stay_bounded(rng: random.Random) -> None:
    store = Store(incomplete_max=4, keys_max=20, complete_keys_max=20, waiting_max=3)
    for _ in range(60):
        store.take(any_message(rng), rng.randrange(2))
        assert len(store.assembly) <= 4
        assert sum(each.keys for each in store.assembly._complete.values()) <= 40


@given(st.randoms(use_true_random=False))
def test_what_is_said_does_not_depend_on_what_was_in_memory(rng: random.Random) -> None:
    options = {"keys_max": 9, "complete_keys_max": 6, "waiting_max": 3}
    steady = Store(**options)
    forgetful = Store(**options, incomplete_max=2, incomplete_keys_max=4)
    for _ in range(80):
        message, producer = any_message(rng), rng.randrange(3)
        if rng.random() < 0.3:
            forgetful.forget()
        assert forgetful.take(message, producer) == steady.take(message, producer)
        assert forgetful.states == steady.states


@given(st.randoms(use_true_random=False))
def test_messages_that_stand_together_say_what_each_says(rng: random.Random) -> None:
    """A run, with its quick way for values, against one message after another."""
    single, runs = Store(waiting_max=3), Store(waiting_max=3)
    for _ in range(12):
        hash_, producer = bytes([rng.randrange(3)]) * 32, rng.randrange(2)
        pairs = [codec.encode_message(any_message(rng)) for _ in range(rng.randrange(1, 12))]
        pairs = [(key[:1] + hash_ + key[33:], value) for key, value in pairs]
        expected = [each for pair in pairs for each in single.take(pair, producer)]
        assert runs.take_run(hash_, pairs, producer) == expected
        assert runs.states == single.states


def test_the_fuzz_target() -> None:
    harness.run_seeded(cardinal_assembly.check, cardinal_assembly.CORPUS, runs=400, seed=1)


@pytest.mark.long
def test_the_fuzz_target_at_length() -> None:
    harness.run_seeded(cardinal_assembly.check, cardinal_assembly.CORPUS, runs=100_000, seed=2)
