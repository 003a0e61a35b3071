"""What is in a block: which message counts, and what overrides what; also of any size."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.cardinal import codec, spilling
from gateways.cardinal.assembly import Come, everything
from gateways.cardinal.codec import Batch, Delete, Item, Message, Part, SubBatchHeader, Update
from gateways.cardinal.content import Content, NotWhole, content_of, missing_of
from gateways.cardinal.spilling import Spilling

HASH, PARENT, ID, OTHER = (bytes([number]) * 32 for number in range(1, 5))


def come(*messages: Message) -> list[Come]:
    return [Come(0, *codec.encode_message(each)) for each in messages]


def batch(**items: Item) -> Batch:
    """Items by name; `_` stands for a slash."""
    return Batch(
        HASH, 7, 9, PARENT, {name.replace("_", "/").encode(): items[name] for name in items}
    )


def said(content: Content) -> tuple[dict[bytes, bytes], list[bytes]]:
    return dict(content.values.pairs()), [key for key, _ in content.deletes.pairs()]


def test_later_ones_override_and_deletes_are_apart() -> None:
    messages = come(
        Part(HASH, OTHER, 0, [b"gone"], {b"a/1": b"second part"}),
        SubBatchHeader(HASH, OTHER, 1),
        Update(HASH, b"a/1", b"message"),
        Delete(HASH, b"a/1"),
        batch(a_=Item(owed=2), in_=Item(value=b"line"), s1=Item(batch=ID), s2=Item(batch=OTHER)),
        SubBatchHeader(HASH, ID, 2),
        Part(HASH, ID, 1, [], {b"a/1": b"part 1"}),
        Part(HASH, ID, 0, [], {b"a/1": b"part 0", b"x": b"y"}),
    )
    assert said(content_of(messages, everything)) == (
        {b"in/": b"line", b"a/1": b"second part", b"x": b"y"},
        [b"a/1", b"gone"],
    )
    assert said(content_of(messages, lambda key: key != b"s2"))[0][b"a/1"] == b"part 1"
    assert [*missing_of(messages, everything)] == []


def test_what_is_said_again_or_too_much_is_not_in_it() -> None:
    messages = come(
        Update(HASH, b"a/1", b""),
        Update(HASH, b"a/1", b"more"),
        Update(HASH, b"a/1", b"later"),
        batch(a_=Item(owed=1)),
        Update(HASH, b"a/2", b"surplus"),
        Update(HASH, b"b/1", b"nobody's"),
    )
    assert said(content_of(messages, everything)) == ({b"a/1": b"more"}, [])


def test_what_is_missing_is_named() -> None:
    messages = come(
        batch(a_=Item(owed=2), s=Item(batch=ID), t=Item(batch=OTHER)),
        Update(HASH, b"a/1", b""),
        SubBatchHeader(HASH, OTHER, 3),
        Part(HASH, OTHER, 1, [], {}),
    )
    for some in (messages, messages[1:]):
        with pytest.raises(NotWhole):
            content_of(some, everything)
    assert [*missing_of(messages, everything)] == [
        "1 of 2 messages under 'a/'",
        f"the header of sub-batch 's', {ID.hex()}",
        "2 of 3 parts of sub-batch 't'",
    ]
    assert [*missing_of(messages, lambda key: key == b"a/")] == ["1 of 2 messages under 'a/'"]
    assert [*missing_of(messages[1:], everything)] == []


@given(st.randoms(use_true_random=False))
def test_what_has_left_memory_is_as_it_was(rng: random.Random) -> None:
    limit = spilling.IN_MEMORY_ITEMS_MAX
    spilling.IN_MEMORY_ITEMS_MAX = rng.randrange(1, 8)  # type: ignore[misc]
    try:
        expected: dict[bytes, bytes] = {}
        found = Spilling()
        for _ in range(40):
            key, value = bytes([rng.randrange(12)]), bytes([rng.randrange(3)])
            if rng.random() < 0.2 and expected:
                gone = rng.choice([*expected])
                del expected[gone]
                del found[gone]
            else:
                expected[key] = found[key] = value
            assert [*found.pairs()] == [*expected.items()] == [*found.items()]
            assert (len(found), key in found) == (len(expected), key in expected)
            assert found.get(b"none", b"other") == b"other"
        with pytest.raises(KeyError):
            found[b"none"]
        messages = come(
            batch(a_=Item(owed=30)), *(Update(HASH, b"a/%d" % n, b"%d" % n) for n in range(30))
        )
        assert said(content_of(messages, everything, Spilling)) == said(
            content_of(messages, everything)
        )
    finally:
        spilling.IN_MEMORY_ITEMS_MAX = limit  # type: ignore[misc]
