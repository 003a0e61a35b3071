"""What is in a block, from its messages (spec 3.2, 3.3). Sans-io.

Inline values and deletes first, then the messages under its prefixes, then its sub-batches in byte
order of their names, part by part: later ones override. Deletes and values are apart, and one key
may be in both.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

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
    decode_part,
    kind_of,
)
from gateways.cardinal.counting import IsTracked
from gateways.cardinal.producing import lengths_of, prefixes_of
from gateways.reading import CodecError


class Held(Protocol):
    """A mapping of bytes, in the order in which keys came first. See `Spilling`, and `InMemory`."""

    def __setitem__(self, key: bytes, value: bytes) -> None: ...

    def __contains__(self, key: object) -> bool: ...

    def __len__(self) -> int: ...

    def get(self, key: bytes, default: bytes = b"") -> bytes:
        """What it holds of a key."""

    def pairs(self) -> Iterable[tuple[bytes, bytes]]:
        """Keys and values."""


class InMemory(dict[bytes, bytes]):
    """For blocks that are known to be small."""

    def pairs(self) -> Iterable[tuple[bytes, bytes]]:
        """Keys and values."""
        return self.items()

    def get(self, key: bytes, default: bytes = b"") -> bytes:  # type: ignore[override]
        """What it holds of a key."""
        return super().get(key, default)


class Content(NamedTuple):
    """What a block changes."""

    values: Held
    deletes: Held
    """Keys; they have no values."""


class NotWhole(Exception):  # noqa: N818 - what it is
    """Something of the block is not among the messages."""


class _Gathered:
    """What the messages of a block say, each key once."""

    def __init__(self, messages: Iterable[Come], made: Callable[[], Held]) -> None:
        self.batch: Batch | None = None
        self.counted = made()
        """The type and the key of what counts under prefixes, in the order they came."""
        self.counts = made()
        """Of parts, by id: of sub-batches that nobody has named, too."""
        self.parts = made()
        """Values of the parts of sub-batches, by id and index."""
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
                if id_ not in self.counts:
                    self.counts[id_] = count.to_bytes(4, "big")
            case Part(batch=id_, index=index):
                name = _part_key(id_, index)
                if name not in self.parts:
                    self.parts[name] = value
            case _:
                said = bytes((kind,)) + key[PREFIX_BYTES:]
                # An empty value gives way to one that is not.
                if said not in self.counted or (value and not self.counted.get(said)):
                    self.counted[said] = value

    def owed(self, batch: Batch) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        """What counts: its type, under which prefix, key and value.

        `left` says what is left under each prefix once it is taken to its end.
        """
        left = self.left = {key: item.owed for key, item in batch.items.items() if item.owed}
        lengths = lengths_of(left)
        for said, value in self.counted.pairs():
            key = said[1:]
            prefix = next((each for each in prefixes_of(key, left, lengths) if left[each]), None)
            if prefix is not None:
                left[prefix] -= 1
                yield said[0], prefix, key, value

    def parts_of(self, id_: bytes) -> int | None:
        """How many parts a sub-batch has; None without its header."""
        return int.from_bytes(self.counts.get(id_), "big") if id_ in self.counts else None

    def part(self, id_: bytes, index: int) -> Part:
        """A part of a sub-batch. Raises NotWhole."""
        name = _part_key(id_, index)
        if name not in self.parts:
            raise NotWhole
        return decode_part(ZEROS, id_, index, self.parts.get(name))


def _part_key(id_: bytes, index: int) -> bytes:
    return id_ + index.to_bytes(4, "big")


def content_of(
    messages: Iterable[Come], is_tracked: IsTracked, made: Callable[[], Held] = InMemory
) -> Content:
    """Of a block that is complete: its messages, in the order they came, of who counts.

    `made`: what holds what. Raises NotWhole.
    """
    gathered = _Gathered(messages, made)
    batch = gathered.batch
    if batch is None:
        raise NotWhole
    items = {key: item for key, item in batch.items.items() if is_tracked(key)}
    found = Content(made(), made())
    for key, item in items.items():
        if item.value:
            found.values[key] = item.value
        if item.delete:
            found.deletes[key] = b""
    for kind, prefix, key, value in gathered.owed(batch):
        if prefix in items:
            (found.values if kind == BATCH_MSG else found.deletes)[key] = value
    if any(gathered.left.get(key) for key in items):
        raise NotWhole
    named = {item.batch: key for key, item in items.items() if item.batch != ZEROS}
    for id_ in sorted(named, key=named.__getitem__):
        count = gathered.parts_of(id_)
        if count is None:
            raise NotWhole
        for index in range(count):
            part = gathered.part(id_, index)
            for key in part.deletes:
                found.deletes[key] = b""
            for key, value in part.updates.items():
                found.values[key] = value
    return found


def missing_of(
    messages: Iterable[Come], is_tracked: IsTracked, made: Callable[[], Held] = InMemory
) -> Iterator[str]:
    """What a block with these messages waits for, in words. `made`: what holds what."""
    gathered = _Gathered(messages, made)
    batch = gathered.batch
    if batch is None:
        return
    for _ in gathered.owed(batch):
        pass
    for prefix, count in gathered.left.items():
        if count and is_tracked(prefix):
            yield f"{count} of {batch.items[prefix].owed} messages under {prefix.decode()!r}"
    for name, item in batch.items.items():
        if item.batch == ZEROS or not is_tracked(name):
            continue
        parts = gathered.parts_of(item.batch)
        if parts is None:
            yield f"the header of sub-batch {name.decode()!r}, {item.batch.hex()}"
            continue
        here = sum(1 for index in range(parts) if _part_key(item.batch, index) in gathered.parts)
        if here < parts:
            yield f"{parts - here} of {parts} parts of sub-batch {name.decode()!r}"
