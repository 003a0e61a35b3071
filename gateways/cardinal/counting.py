"""What counts towards a block: what its Batch owes, and what has come of that (3.2). Sans-io."""

from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from gateways.cardinal.codec import ZEROS, Batch
from gateways.cardinal.headers import Header
from gateways.cardinal.producing import SLASH, lengths_of, prefixes_of

LONG_KEY_BYTES: Final = 128
LONG_BYTES_MAX: Final = 4 << 20
"""Of long keys that wait for a Batch."""
IsTracked = Callable[[bytes], bool]
"""Whether an item of a Batch counts, by its key."""


class Surplus(Exception):  # noqa: N818 - what the message is
    """Nothing is owed for it."""


class TooManyWait(Exception):  # noqa: N818 - what is the case
    """What came before the Batch has to be read again."""


@dataclass(slots=True)
class Owed:
    """What a sub-batch owes."""

    parts: int | None = None
    came: MutableMapping[int, int] = field(default_factory=dict)
    """Indexes; what they stand for is nothing."""

    @property
    def is_whole(self) -> bool:
        return self.parts is not None and len(self.came) == self.parts

    def begin(self, parts: int) -> None:
        """Its header is there. Raises Surplus."""
        self.parts = parts
        surplus = [index for index in self.came if index >= parts]
        for index in surplus:
            del self.came[index]
        if surplus:
            raise Surplus

    def add(self, index: int) -> None:
        """A part. Raises Surplus."""
        if self.parts is not None and index >= self.parts:
            raise Surplus
        self.came[index] = 0


class PartKey(NamedTuple):
    """A part of a sub-batch, or with its number of parts the header."""

    batch: bytes
    part: int = 0
    parts: int | None = None


class Waiting(Protocol):
    """What came before a Batch: a list, or what is like one."""

    def append(self, what: bytes | PartKey, /) -> None:
        """It waits, too."""

    def clear(self) -> None:
        """Nothing waits."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes | PartKey]: ...


def _nothing() -> list[bytes | PartKey]:
    return []


@dataclass(slots=True)
class Copy:
    """What counts towards a block: everybody's messages, or one producer's."""

    waiting_max: int
    header: Header | None = None
    """What its Batch says, but for what it owes: inline values, which may be megabytes, are read
    again once they are given out."""
    counts: MutableMapping[bytes, int] = field(default_factory=dict)
    """Left under each prefix."""
    tracked: MutableMapping[bytes, int] = field(default_factory=dict)
    """Those of the prefixes that are; what they stand for is nothing."""
    left: int = 0
    """Under those that are tracked."""
    lengths: list[int] = field(default_factory=list)
    """Of the prefixes."""
    owed: MutableMapping[bytes, Owed] = field(default_factory=dict)
    unfinished: int = 0
    """Sub-batches that are not whole."""
    is_given_up: bool = False
    """It has more keys than one may have."""
    waiting: Waiting = field(default_factory=_nothing)
    """What came before the Batch, up to `waiting_max`."""
    long_bytes: int = 0
    """Of long keys among them, of which there may be 64 KiB each."""
    seen: MutableMapping[int, int] = field(default_factory=dict)
    """Of each key what it said, and who said it first."""

    def open(self, batch: Batch, is_tracked: IsTracked) -> None:
        """The Batch is there. Raises Surplus, once what has waited is counted; TooManyWait."""
        is_too_much = self.has_too_many_waiting
        self.header = Header(batch.hash, batch.number, batch.weight, batch.parent)
        for key, item in batch.items.items():
            if item.owed:
                self.counts[key] = item.owed
            elif item.batch == ZEROS:
                continue
            if not is_tracked(key):
                continue
            if item.owed:
                self.tracked[key] = 0
                self.left += item.owed
            if item.batch != ZEROS:
                self.owed[item.batch] = Owed()
        self.lengths = lengths_of(self.counts)
        self.unfinished = len(self.owed)
        is_surplus = False
        waiting, self.waiting = self.waiting, _nothing()
        if is_too_much:
            raise TooManyWait
        # Nearly all there is: the Batch comes behind what it owes.
        if self._count_at_once(waiting):
            return
        for each in waiting:
            if isinstance(each, bytes) and self.count_if_owed(each):
                continue
            try:
                self.count(each)
            except Surplus:
                is_surplus = True
        if is_surplus:
            raise Surplus

    def _count_at_once(self, waiting: Waiting) -> bool:
        """Whether all of it is owed under prefixes of one length, and counted; else nothing is.

        No key is then under two of them, so it does not matter which comes first.
        """
        if len(self.lengths) != 1:
            return False
        under = Counter(map(itemgetter(slice(self.lengths[0])), waiting))
        # A part has no slash at its end, and under a prefix without one is that key alone.
        if any(
            prefix[-1:] != b"/" or self.counts.get(prefix, 0) < count
            for prefix, count in under.items()
        ):
            return False
        for prefix, count in under.items():
            self.counts[prefix] -= count
            if prefix in self.tracked:
                self.left -= count
        return True

    def count(self, what: bytes | PartKey) -> None:
        """An application key, or a part, that comes for the first time. Raises Surplus."""
        if self.header is None:
            self.waiting.append(what)
            if isinstance(what, bytes) and len(what) > LONG_KEY_BYTES:
                self.long_bytes += len(what)
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
                # It may lie elsewhere, and this be a copy.
                self.owed[what.batch] = owed

    def count_key(self, key: bytes) -> None:
        """An application key. Raises Surplus."""
        is_counted = self.count_if_owed(key)
        if not is_counted and any(
            prefix in self.tracked for prefix in prefixes_of(key, self.counts, self.lengths)
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
        is_too_much = len(self.waiting) >= self.waiting_max or self.long_bytes >= LONG_BYTES_MAX
        return self.header is None and is_too_much

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
