"""What is in a block, from its messages (spec 3.2, 3.3). Sans-io.

Inline values and deletes first, then the messages under its prefixes, then its sub-batches in byte
order of their names, part by part: later ones override. Deletes and values are apart, and one key
may be in both.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateways.cardinal.assembly import Come
from gateways.cardinal.codec import (
    BATCH_DELETE_MSG,
    BATCH_MSG,
    PREFIX_BYTES,
    ZEROS,
    Batch,
    Message,
    Part,
    SubBatchHeader,
    decode_message,
    kind_of,
)
from gateways.cardinal.counting import IsTracked
from gateways.cardinal.producing import lengths_of, prefixes_of
from gateways.reading import CodecError


class Content(NamedTuple):
    """What a block changes."""

    values: dict[bytes, bytes]
    deletes: dict[bytes, None]


class NotWhole(Exception):  # noqa: N818 - what it is
    """Something of the block is not among the messages."""


class _Gathered:
    """What the messages of a block say, each key once."""

    def __init__(self, messages: Iterable[Come]) -> None:
        self.batch: Batch | None = None
        self.counted: dict[tuple[bool, bytes], bytes] = {}
        """By whether it is a delete, and the key: in the order they came."""
        self.counts: dict[bytes, int] = {}
        self.parts: dict[bytes, dict[int, Part]] = {}
        for _, key, value in messages:
            try:
                kind = kind_of(key, value)
                message = None if kind >= BATCH_MSG else decode_message(key, value)
            except CodecError:
                # It was told when it came, and is nothing.
                continue
            if kind <= BATCH_DELETE_MSG:
                self._add(kind, key, value, message)

    def _add(self, kind: int, key: bytes, value: bytes, message: Message | None) -> None:
        match message:
            case Batch():
                self.batch = self.batch or message
            case SubBatchHeader(_, id_, count):
                self.counts.setdefault(id_, count)
            case Part(batch=id_, index=index):
                self.parts.setdefault(id_, {}).setdefault(index, message)
            case _:
                said = kind == BATCH_DELETE_MSG, key[PREFIX_BYTES:]
                # An empty value gives way to one that is not.
                if not self.counted.get(said):
                    self.counted[said] = value

    def owed(self, batch: Batch) -> tuple[dict[bytes, int], list[tuple[bool, bytes, bytes, bytes]]]:
        """What is left under each prefix; and whether it is a delete, prefix, key and value."""
        left = {key: item.owed for key, item in batch.items.items() if item.owed}
        lengths = lengths_of(left)
        found: list[tuple[bool, bytes, bytes, bytes]] = []
        for (is_delete, key), value in self.counted.items():
            prefix = next((each for each in prefixes_of(key, left, lengths) if left[each]), None)
            if prefix is not None:
                left[prefix] -= 1
                found.append((is_delete, prefix, key, value))
        return left, found


def content_of(messages: Iterable[Come], is_tracked: IsTracked) -> Content:
    """Of a block that is complete: its messages, in the order they came, of who counts.

    Raises NotWhole.
    """
    gathered = _Gathered(messages)
    batch = gathered.batch
    if batch is None:
        raise NotWhole
    items = {key: item for key, item in batch.items.items() if is_tracked(key)}
    found = Content(
        {key: item.value for key, item in items.items() if item.value},
        {key: None for key, item in items.items() if item.delete},
    )
    left, counted = gathered.owed(batch)
    if any(left.get(key) for key in items):
        raise NotWhole
    for is_delete, prefix, key, value in counted:
        if prefix not in items:
            continue
        if is_delete:
            found.deletes[key] = None
        else:
            found.values[key] = value
    named = {item.batch: key for key, item in items.items() if item.batch != ZEROS}
    for id_ in sorted(named, key=named.__getitem__):
        parts = gathered.parts.get(id_, {})
        for index in range(gathered.counts.get(id_, 1)):
            if id_ not in gathered.counts or index not in parts:
                raise NotWhole
            found.deletes.update(dict.fromkeys(parts[index].deletes))
            found.values.update(parts[index].updates)
    return found


def missing_of(messages: Iterable[Come], is_tracked: IsTracked) -> Iterator[str]:
    """What a block with these messages waits for, in words."""
    gathered = _Gathered(messages)
    batch = gathered.batch
    if batch is None:
        return
    left, _ = gathered.owed(batch)
    for prefix, count in left.items():
        if count and is_tracked(prefix):
            yield f"{count} of {batch.items[prefix].owed} messages under {prefix.decode()!r}"
    for name, item in batch.items.items():
        if item.batch == ZEROS or not is_tracked(name):
            continue
        parts = gathered.counts.get(item.batch)
        if parts is None:
            yield f"the header of sub-batch {name.decode()!r}, {item.batch.hex()}"
            continue
        here = sum(1 for index in gathered.parts.get(item.batch, ()) if index < parts)
        if here < parts:
            yield f"{parts - here} of {parts} parts of sub-batch {name.decode()!r}"
