"""What counts towards a block: what its Batch owes, and what has come of that (3.2). Sans-io."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gateways.cardinal.codec import ZEROS, Batch
from gateways.cardinal.headers import Header
from gateways.cardinal.producing import SLASH, lengths_of, prefixes_of

IsTracked = Callable[[bytes], bool]
"""Whether an item of a Batch counts, by its key."""


class Surplus(Exception):  # noqa: N818 - what the message is
    """Nothing is owed for it."""


class TooManyWait(Exception):  # noqa: N818 - what is the case
    """What came before the Batch has to be read again."""


@dataclass(slots=True)
class _Owed:
    """What a sub-batch owes."""

    parts: int | None = None
    came: set[int] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        return self.parts is not None and len(self.came) == self.parts

    def begin(self, parts: int) -> None:
        """Its header is there. Raises Surplus."""
        self.parts, came = parts, self.came
        self.came = {index for index in came if index < parts}
        if len(self.came) < len(came):
            raise Surplus

    def add(self, index: int) -> None:
        """A part. Raises Surplus."""
        if self.parts is not None and index >= self.parts:
            raise Surplus
        self.came.add(index)


class PartKey(NamedTuple):
    """A part of a sub-batch, or with its number of parts the header."""

    batch: bytes
    part: int = 0
    parts: int | None = None


@dataclass(slots=True)
class Copy:
    """What counts towards a block: everybody's messages, or one producer's."""

    waiting_max: int
    header: Header | None = None
    """What its Batch says, but for what it owes: inline values, which may be megabytes, are read
    again once they are given out."""
    counts: dict[bytes, int] = field(default_factory=dict)
    """Left under each prefix."""
    tracked: set[bytes] = field(default_factory=set)
    """Of the prefixes."""
    left: int = 0
    """Under those that are tracked."""
    lengths: list[int] = field(default_factory=list)
    """Of the prefixes."""
    owed: dict[bytes, _Owed] = field(default_factory=dict)
    unfinished: int = 0
    """Sub-batches that are not whole."""
    is_given_up: bool = False
    """It has more keys than one may have."""
    waiting: list[bytes | PartKey] = field(default_factory=list)
    """What came before the Batch, up to `waiting_max`."""
    seen: MutableMapping[int, int] = field(default_factory=dict)
    """Of each key what it said, and who said it first."""

    def open(self, batch: Batch, is_tracked: IsTracked) -> None:
        """The Batch is there. Raises Surplus, once what has waited is counted; TooManyWait."""
        self.header = Header(batch.hash, batch.number, batch.weight, batch.parent)
        for key, item in batch.items.items():
            if item.owed:
                self.counts[key] = item.owed
            elif item.batch == ZEROS:
                continue
            if not is_tracked(key):
                continue
            if item.owed:
                self.tracked.add(key)
                self.left += item.owed
            if item.batch != ZEROS:
                self.owed[item.batch] = _Owed()
        self.lengths = lengths_of(self.counts)
        self.unfinished = len(self.owed)
        is_surplus = False
        waiting, self.waiting = self.waiting, []
        if len(waiting) >= self.waiting_max:
            raise TooManyWait
        for each in waiting:
            # Nearly all there is: the Batch comes behind what it owes.
            if isinstance(each, bytes) and self.count_if_owed(each):
                continue
            try:
                self.count(each)
            except Surplus:
                is_surplus = True
        if is_surplus:
            raise Surplus

    def count(self, what: bytes | PartKey) -> None:
        """An application key, or a part, that comes for the first time. Raises Surplus."""
        if self.header is None:
            self.waiting.append(what)
        elif isinstance(what, bytes):
            self.count_key(what)
        elif (owed := self.owed.get(what.batch)) is not None:
            was_whole = owed.is_whole
            try:
                if what.parts is None:
                    owed.add(what.part)
                else:
                    owed.begin(what.parts)
            finally:
                self.unfinished += was_whole - owed.is_whole

    def count_key(self, key: bytes) -> None:
        """An application key. Raises Surplus."""
        is_counted = self.count_if_owed(key)
        if not is_counted and not self.tracked.isdisjoint(
            prefixes_of(key, self.counts, self.lengths)
        ):
            raise Surplus

    def count_if_owed(self, key: bytes) -> bool:
        """Takes one from the first prefix under which something is left. See `prefixes_of`."""
        size = len(key)
        for length in self.lengths:
            if length == size or (length < size and key[length - 1] == SLASH):
                prefix = key[:length]
                left = self.counts.get(prefix)
                if left:
                    self.counts[prefix] = left - 1
                    if prefix in self.tracked:
                        self.left -= 1
                    return True
        return False

    def counts_for_nothing(self, what: bytes | PartKey) -> bool:
        """Whether a message is nobody's, as far as is known: no key of it is remembered."""
        if self.header is None:
            return False
        if isinstance(what, bytes):
            return next(prefixes_of(what, self.counts, self.lengths), None) is None
        return what.batch not in self.owed

    @property
    def has_too_many_waiting(self) -> bool:
        """Whether all there is has to be read again once the Batch is there."""
        return self.header is None and len(self.waiting) >= self.waiting_max

    @property
    def size(self) -> int:
        """Keys that were seen, and what it owes: what it takes of memory."""
        return len(self.seen) + len(self.counts) + len(self.owed)

    def give_up(self) -> None:
        """It has too many keys."""
        self.is_given_up = True
        self.seen.clear()
        self.waiting.clear()

    @property
    def is_complete(self) -> bool:
        is_whole = self.header is not None and not (self.left or self.unfinished)
        return is_whole and not self.is_given_up
