"""From blocks to messages: upstream's, and everything that is refused."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from gateways.cardinal import codec
from gateways.cardinal.declared import Router
from gateways.cardinal.producing import (
    Block,
    BlockRefused,
    lengths_of,
    messages_of,
    prefixes_of,
    sub_batch,
)

from .vectors import VECTORS

HASH, PARENT, ID = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
ROUTER = Router([("a/", "accounts"), ("s/[^/]+/", "storage"), ("whole", "accounts")], "main")


def block_of(fields: Mapping[str, Any]) -> Block:
    """A block of the vectors."""
    return Block(
        fields["number"],
        bytes.fromhex(fields["hash"]),
        bytes.fromhex(fields["parent"]),
        fields["weight"],
        {key: bytes.fromhex(value) for key, value in fields["values"].items()},
        fields["deletes"],
        {name: bytes.fromhex(batch["id"]) for name, batch in fields["batches"].items()},
    )


def made(fields: Mapping[str, Any], router: Router) -> set[tuple[str, str]]:
    """Topics and messages of a block with its sub-batches."""
    block = block_of(fields)
    found = {
        (topic, repr(codec.decode_message(*each)))
        for topic, messages in messages_of(block, router).items()
        for each in messages
    }
    for name, batch in fields["batches"].items():
        values = {key: bytes.fromhex(value) for key, value in batch["values"].items()}
        parts = sub_batch(block.hash, block.batches[name], values, batch["deletes"])
        found |= {(router.topic(name), repr(codec.decode_message(*each))) for each in parts}
    return found


@pytest.mark.parametrize("case", [VECTORS["example"], *VECTORS["streams"]])
def test_the_facts_are_those_that_upstream_s_producer_writes(case: dict[str, Any]) -> None:
    router = Router([(pattern, topic) for pattern, topic in case["patterns"]], case["default"])
    blocks = case["blocks"] if "blocks" in case else [case["block"]]
    ours = set().union(*(made(each, router) for each in blocks))
    theirs = {
        (
            each["topic"],
            repr(
                sorted_items(
                    codec.decode_message(bytes.fromhex(each["key"]), bytes.fromhex(each["value"]))
                )
            ),
        )
        for each in case["messages"]
    }
    assert ours == theirs


def sorted_items(message: codec.Message) -> codec.Message:
    """A Batch as it is written here."""
    if isinstance(message, codec.Batch):
        return message._replace(items=dict(sorted(message.items.items())))
    return message


def test_messages_come_in_byte_order_and_the_batch_last() -> None:
    block = Block(
        7,
        HASH,
        PARENT,
        9,
        {"a/z": b"1", "a/b": b"", "whole": b"2", "x": b"3"},
        ["a/b", "s/1/k", "y"],
    )
    found = {
        topic: [codec.decode_message(*each) for each in messages]
        for topic, messages in messages_of(block, ROUTER).items()
    }
    assert found["accounts"] == [
        codec.Update(HASH, b"a/b", b""),
        codec.Delete(HASH, b"a/b"),
        codec.Update(HASH, b"a/z", b"1"),
        codec.Update(HASH, b"whole", b"2"),
    ]
    assert found["storage"] == [codec.Delete(HASH, b"s/1/k")]
    items = {
        b"a/": codec.Item(owed=3),
        b"s/1/": codec.Item(owed=1),
        b"whole": codec.Item(owed=1),
        b"x": codec.Item(b"3"),
        b"y": codec.Item(delete=True),
    }
    assert found["main"] == [codec.Batch(HASH, 7, 9, PARENT, items)]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("number", {"number": -1}),
        ("number", {"number": 1 << 63}),
        ("weight", {"weight": -1}),
        ("weight", {"weight": 1 << 256}),
        ("hash", {"hash": b"x"}),
        ("parent", {"parent": bytes(33)}),
        ("id", {"batches": {"b": bytes(31)}}),
        ("id", {"batches": {"b": bytes(32)}}),
        ("key", {"values": {"": b"1"}}),
        ("key", {"values": {"/a": b"1"}}),
        ("key", {"values": {"\ud800": b"1"}}),
        ("key", {"values": {"k" * 65_537: b"1"}}),
        ("key", {"values": {"a//b": b"1"}}),
        ("key", {"values": {"a/./b": b"1"}}),
        ("key", {"values": {"a/..": b"1"}}),
        ("key", {"values": {"a/b/": b"1"}}),
        ("key", {"deletes": ["a/b/../c"]}),
        ("key", {"batches": {"": ID}}),
        ("prefix", {"values": {"wholesome": b"1"}}),
        ("conflict", {"values": {"x": b"1"}, "deletes": ["x"]}),
        ("conflict", {"values": {"a/b": b"1"}, "batches": {"a/": ID}}),
        ("conflict", {"values": {"x": b"1"}, "batches": {"x": ID}}),
        ("conflict", {"batches": {"x": ID, "y": ID}}),
        ("value", {"values": {"x": b""}}),
        ("value", {"values": {"x": bytes(10_000_000)}}),
        ("value", {"values": {"a/x": bytes(10_000_000)}}),
    ],
)
def test_what_is_refused_is_named(what: str, change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"number": 7, "hash": HASH, "parent": PARENT, "weight": 9} | change
    with pytest.raises(BlockRefused, match=rf"^{what}: ") as refused:
        messages_of(Block(**fields), ROUTER)
    assert refused.value.what == what


def test_a_key_that_would_be_counted_under_another_prefix_is_refused() -> None:
    router = Router([("a/b/\\b", "t"), ("[a]/", "u")], "main")
    for keys in ({"a/b/-": b"1"}, {"a/b/x": b"1", "a/c": b"2"}):
        assert messages_of(Block(7, HASH, PARENT, 9, keys), router)
    with pytest.raises(BlockRefused, match=r"^prefix: 'a/b/-'"):
        messages_of(Block(7, HASH, PARENT, 9, {"a/b/-": b"1", "a/b/x": b"1"}), router)


def test_sub_batches_are_cut_alike_by_everybody() -> None:
    parts = [
        codec.decode_message(*each)
        for each in sub_batch(HASH, ID, {"b": b"2", "a": b""}, ["d", "c", "d"])
    ]
    assert parts == [
        codec.SubBatchHeader(HASH, ID, 3),
        codec.Part(HASH, ID, 0, [b"c", b"d"], {}),
        codec.Part(HASH, ID, 1, [], {b"a": b""}),
        codec.Part(HASH, ID, 2, [], {b"b": b"2"}),
    ]
    assert sub_batch(HASH, ID, {}, []) == [codec.encode_message(codec.SubBatchHeader(HASH, ID, 0))]
    with pytest.raises(BlockRefused, match=r"^conflict: "):
        sub_batch(HASH, ID, {"a": b"1"}, [], {b"a"})
    with pytest.raises(BlockRefused, match=r"^conflict: "):
        sub_batch(HASH, ID, {}, ["a"], {b"a"})


def test_under_which_prefix_a_key_is_counted() -> None:
    def choose(key: bytes, prefixes: Collection[bytes]) -> bytes | None:
        return next(prefixes_of(key, prefixes, lengths_of(prefixes)), None)

    prefixes = {b"a/", b"a/b/", b"a/b/c", b"a"}
    assert choose(b"a/b/c", prefixes) == b"a/b/c"
    assert choose(b"a/b/d", prefixes) == b"a/b/"
    assert choose(b"a/c", prefixes) == b"a/"
    assert choose(b"ab", prefixes) is None
    assert choose(b"b/c", prefixes) is None
    assert choose(b"a/b/", prefixes) == b"a/b/"
    assert choose(b"a/x/", prefixes) == b"a/"
