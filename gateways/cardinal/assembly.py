"""Blocks put together from their messages, in any order, of several producers (spec 3.2, 3.3).

A block is what its Batch says, and what that owes: so many messages under each prefix, so many
parts of each sub-batch. Messages are told apart by their keys alone; of a key that was seen a hash
of eight bytes is kept, and no value: a block of a million keys takes a hundred megabytes, and what
it contains is read once it is given out. Python's hash of bytes has a secret of the process in it,
so nobody can make two keys that are one here.

As long as producers say the same it does not matter who of them says what, and all count together:
one *copy* of the block. Once two messages of one key say different things, or there is one that
nothing is owed for, the messages are read again, and counted for each producer by himself: from
then on there are as many copies as producers, and the block is that of the first of them, in the
order given, who has all of it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

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
from gateways.cardinal.ordering import Header
from gateways.cardinal.producing import lengths_of, prefixes_of
from gateways.reading import CodecError

INCOMPLETE_MAX: Final = 4_096
KEYS_MAX: Final = 4_000_000
"""Of one block."""
COMPLETE_KEYS_MAX: Final = 200_000
"""Of blocks that are complete, so that what comes later can be compared with them."""
_FACTS_MASK: Final = (1 << 44) - 1
"""Of a hash of what a message says: with who says it, it is one integer of 32 bytes."""
_TOLD_MAX: Final = 10_000
_PRODUCER_BITS: Final = 16
_PRODUCER_MASK: Final = (1 << _PRODUCER_BITS) - 1


class Come(NamedTuple):
    """A message, and where it lies."""

    producer: int
    """His place in the order given."""
    entry: int
    """Whatever the caller tells entries apart by."""
    key: bytes
    value: bytes


class Complete(NamedTuple):
    """All of a block is there."""

    header: Header
    entries: tuple[int, ...]
    """Where its messages lie, in the order they came."""
    producer: int | None
    """Whose messages alone are it; None: everybody's."""


class Conflict(NamedTuple):
    """Producers disagree about a block, or one with himself: told once."""

    hash: bytes
    key: bytes
    producers: tuple[int, ...]


class Bad(NamedTuple):
    """A message, or a whole block, that breaks a rule."""

    entry: int
    reason: str


Happened = Complete | Conflict | Bad
IsTracked = Callable[[bytes], bool]
"""Whether an item of a Batch counts, by its key."""
Read = Callable[[Sequence[int], bytes], Iterable[Come]]
"""The messages of a block in some entries."""


def everything(_: bytes) -> bool:
    """Tracks all items."""
    return True


class _Surplus(Exception):  # noqa: N818 - what the message is
    """Nothing is owed for it."""


@dataclass(slots=True)
class _Owed:
    """What a sub-batch owes."""

    parts: int | None = None
    came: set[int] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        return self.parts is not None and len(self.came) == self.parts

    def begin(self, parts: int) -> None:
        """Its header is there. Raises _Surplus."""
        self.parts, came = parts, self.came
        self.came = {index for index in came if index < parts}
        if len(self.came) < len(came):
            raise _Surplus

    def add(self, index: int) -> None:
        """A part. Raises _Surplus."""
        if self.parts is not None and index >= self.parts:
            raise _Surplus
        self.came.add(index)


class _Dispute(NamedTuple):
    """Between whom; of nobody named all who have said anything of the block."""

    producers: tuple[int, ...]
    divides: bool
    """Whether each counts for himself from now on."""


class _PartKey(NamedTuple):
    """A part of a sub-batch, or with its number of parts the header."""

    batch: bytes
    part: int = 0
    parts: int | None = None


@dataclass(slots=True)
class _Copy:
    """What counts towards a block: everybody's messages, or one producer's."""

    batch: Batch | None = None
    counts: dict[bytes, int] = field(default_factory=dict)
    """Left under each prefix."""
    tracked: set[bytes] = field(default_factory=set)
    left: int = 0
    """Under those that are tracked."""
    lengths: list[int] = field(default_factory=list)
    """Of the prefixes."""
    owed: dict[bytes, _Owed] = field(default_factory=dict)
    unfinished: int = 0
    """Sub-batches that are not whole."""
    is_given_up: bool = False
    """It has more keys than one may have."""
    waiting: list[bytes | _PartKey] = field(default_factory=list)
    """What came before the Batch."""
    seen: dict[int, int] = field(default_factory=dict)
    """Of each key what it said, and who said it first."""

    def open(self, batch: Batch, is_tracked: IsTracked) -> None:
        """The Batch is there. Raises _Surplus, once what has waited for it is counted."""
        self.batch = batch
        for key, item in batch.items.items():
            if item.owed:
                self.counts[key] = item.owed
            if not is_tracked(key):
                continue
            self.tracked.add(key)
            self.left += item.owed
            if item.batch != ZEROS:
                self.owed[item.batch] = _Owed()
        self.lengths = lengths_of(self.counts)
        self.unfinished = len(self.owed)
        is_surplus = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            try:
                self.count(each)
            except _Surplus:
                is_surplus = True
        if is_surplus:
            raise _Surplus

    def count(self, what: bytes | _PartKey) -> None:
        """An application key, or a part, that comes for the first time. Raises _Surplus."""
        if self.batch is None:
            self.waiting.append(what)
        elif isinstance(what, bytes):
            self._count_key(what)
        elif (owed := self.owed.get(what.batch)) is not None:
            was_whole = owed.is_whole
            try:
                if what.parts is None:
                    owed.add(what.part)
                else:
                    owed.begin(what.parts)
            finally:
                self.unfinished += was_whole - owed.is_whole

    def _count_key(self, key: bytes) -> None:
        is_tracked = False
        for prefix in prefixes_of(key, self.counts, self.lengths):
            if self.counts[prefix]:
                self.counts[prefix] -= 1
                if prefix in self.tracked:
                    self.left -= 1
                return
            is_tracked = is_tracked or prefix in self.tracked
        if is_tracked:
            raise _Surplus

    def counts_for_nothing(self, what: bytes | _PartKey) -> bool:
        """Whether a message is nobody's, as far as is known: no key of it is remembered."""
        if self.batch is None:
            return False
        if isinstance(what, bytes):
            return next(prefixes_of(what, self.counts, self.lengths), None) is None
        return what.batch not in self.owed

    @property
    def is_complete(self) -> bool:
        is_whole = self.batch is not None and not (self.left or self.unfinished)
        return is_whole and not self.is_given_up


@dataclass(slots=True)
class _Block:
    """A block that is being put together, or that was a moment ago."""

    hash: bytes
    copies: dict[int | None, _Copy] = field(default_factory=lambda: {None: _Copy()})
    """Everybody's, or each producer's own."""
    entries: dict[int, None] = field(default_factory=dict)
    """Where what counts lies, and what others say of the same."""
    producers: set[int] = field(default_factory=set)
    is_complete: bool = False
    keys: int = 0
    """Seen of it when it became so."""

    @property
    def is_split(self) -> bool:
        return None not in self.copies


class Assembly:
    """The blocks of one chain that are not complete yet, and the newest that are.

    `read`: the messages of a block once more. `is_tracked`: which items count. `is_over`: blocks of
    which nothing is expected any more. `incomplete_max`: of more blocks the one with the lowest
    number is dropped, and told by `take_dropped`, so that it can be begun again. `keys_max`: of one
    block. `complete_keys_max`: of those with which what comes later is compared.
    """

    def __init__(
        self,
        read: Read,
        *,
        is_tracked: IsTracked = everything,
        is_over: Callable[[bytes], bool] = lambda _: False,
        incomplete_max: int = INCOMPLETE_MAX,
        keys_max: int = KEYS_MAX,
        complete_keys_max: int = COMPLETE_KEYS_MAX,
    ) -> None:
        self._read = read
        self._is_tracked = is_tracked
        self._is_over = is_over
        self._incomplete_max = incomplete_max
        self._keys_max = keys_max
        self._complete_keys_max = complete_keys_max
        self._blocks: dict[bytes, _Block] = {}
        """Incomplete, in the order in which they were begun."""
        self._complete: dict[bytes, _Block] = {}
        """In the order in which they became so."""
        self._complete_keys = 0
        self._dropped: list[bytes] = []
        self._orphans: dict[bytes, None] = {}
        """Blocks of which no Batch is here, the oldest first."""
        self._lowest: list[tuple[int, bytes]] = []
        """Those that have one by their numbers; some may be gone."""
        self._told: dict[bytes, None] = {}
        """Of which blocks it was told that somebody disagrees, or that they are too large."""

    def take(self, come: Come) -> list[Happened]:
        """A message of a block, 00 to 04; others are nobody's here."""
        try:
            kind = kind_of(come.key, come.value)
            if kind > BATCH_DELETE_MSG:
                return []
            # Most messages are values under a prefix, and of those nothing else has to be known.
            message = None if kind >= BATCH_MSG else decode_message(come.key, come.value)
        except CodecError as error:
            return [Bad(come.entry, str(error))]
        hash_ = come.key[1:PREFIX_BYTES]
        block = self._blocks.get(hash_) or self._complete.get(hash_)
        if block is None:
            if self._is_over(hash_):
                return []
            block = self._begin(hash_)
        block.producers.add(come.producer)
        found = self._add(block, come, message)
        if not block.is_complete:
            found += self._look(block)
        return found

    def take_dropped(self) -> list[bytes]:
        """The blocks that were dropped since the last call, since there were too many."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def __len__(self) -> int:
        """Blocks that are incomplete."""
        return len(self._blocks)

    def forget(self, hash_: bytes) -> None:
        """A block concerns nobody any more."""
        self._blocks.pop(hash_, None)
        self._orphans.pop(hash_, None)

    # One message ---------------------------------------------------------------------------------

    def _begin(self, hash_: bytes) -> _Block:
        if len(self._blocks) >= self._incomplete_max:
            self._drop_one()
        block = self._blocks[hash_] = _Block(hash_)
        self._orphans[hash_] = None
        return block

    def _drop_one(self) -> None:
        """The oldest of too many without a Batch, else the one with the lowest number.

        Whoever sends messages of blocks that never come would else keep all others out.
        """
        dropped = None
        if len(self._orphans) <= self._incomplete_max // 2:
            while self._lowest and self._lowest[0][1] not in self._blocks:
                heappop(self._lowest)
            dropped = heappop(self._lowest)[1] if self._lowest else None
        if dropped is None:
            dropped = next(iter(self._orphans))
        self.forget(dropped)
        self._dropped.append(dropped)

    def _add(self, block: _Block, come: Come, message: Message | None) -> list[Happened]:
        """Counts a message; what it contradicts is told, once for the block."""
        if block.is_complete and block.is_split:
            # Somebody's copy was given out, and what others say of it was told.
            return []
        copy = self._copy(block, come.producer)
        size = max(len(copy.seen), len(block.entries))
        if size >= self._keys_max and not block.is_complete:
            if len(block.producers) > 1 and not block.is_split:
                # Of one of them, and he may be another one.
                self._split(block)
                copy = self._copy(block, come.producer)
            if len(copy.seen) >= self._keys_max:
                copy.is_given_up = True
                copy.seen.clear()
                copy.waiting.clear()
        if copy.is_given_up:
            reason = f"a block of more than {self._keys_max} keys and parts"
            return [Bad(come.entry, reason)] if self._tell(block.hash + b"large") else []
        dispute = self._count(copy, come, message, block)
        if dispute is None:
            return []
        if dispute.divides and not block.is_split and not block.is_complete:
            self._split(block)
        if not self._tell(block.hash):
            return []
        return [Conflict(block.hash, come.key, dispute.producers or tuple(sorted(block.producers)))]

    @staticmethod
    def _copy(block: _Block, producer: int) -> _Copy:
        whose = producer if block.is_split else None
        copy = block.copies.get(whose)
        if copy is None:
            copy = block.copies[whose] = _Copy()
        return copy

    def _tell(self, what: bytes) -> bool:
        """Whether it was not told before, of late."""
        if what in self._told:
            return False
        self._told[what] = None
        if len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]
        return True

    def _count(
        self, copy: _Copy, come: Come, message: Message | None, block: _Block
    ) -> _Dispute | None:
        """What a message disagrees with, if it does."""
        key, what, facts = _facts(come, message)
        said = (hash(facts) & _FACTS_MASK) << _PRODUCER_BITS | come.producer
        before = copy.seen.get(key)
        if before is not None:
            if before != said and not block.is_complete:
                # Another producer's, or another value: to be read again if it comes to that.
                block.entries[come.entry] = None
            is_value = come.key[0] == BATCH_MSG
            return self._compare(copy, key, before, said, is_value=is_value)
        if not isinstance(message, Batch) and copy.counts_for_nothing(what):
            return None
        if not block.is_complete:
            copy.seen[key] = said
            block.entries[come.entry] = None
        try:
            if isinstance(message, Batch):
                if self._orphans.pop(block.hash, block) is None:
                    heappush(self._lowest, (message.number, block.hash))
                copy.open(message, self._is_tracked)
            else:
                copy.count(what)
        except _Surplus:
            return _Dispute((), divides=True)
        return None

    @staticmethod
    def _compare(
        copy: _Copy, key: int, before: int, said: int, *, is_value: bool
    ) -> _Dispute | None:
        facts, other = before >> _PRODUCER_BITS, said >> _PRODUCER_BITS
        first, second = before & _PRODUCER_MASK, said & _PRODUCER_MASK
        if facts == other:
            return None
        if first != second:
            return _Dispute((min(first, second), max(first, second)), divides=True)
        # Of one producer the earlier counts, but for an empty value, which has the hash 0.
        if is_value and not facts:
            copy.seen[key] = said
            return None
        return _Dispute((first,), divides=False)

    def _split(self, block: _Block) -> None:
        """From now on everybody counts for himself."""
        block.copies = {}
        for come in self._read(tuple(block.entries), block.hash):
            copy = self._copy(block, come.producer)
            try:
                kind = kind_of(come.key, come.value)
                message = None if kind >= BATCH_MSG else decode_message(come.key, come.value)
            except CodecError:
                # It was told when it came, and is nothing.
                continue
            if kind <= BATCH_DELETE_MSG and len(copy.seen) < self._keys_max:
                self._count(copy, come, message, block)

    # What is complete ----------------------------------------------------------------------------

    def _look(self, block: _Block) -> list[Happened]:
        # Of several copies that of the first producer in the order given; of one there is no first.
        producers = (
            [*block.copies]
            if len(block.copies) < 2
            else sorted(each for each in block.copies if each is not None)
        )
        for producer in producers:
            copy = block.copies[producer]
            if copy.is_complete:
                batch = copy.batch
                assert batch is not None
                header = Header(block.hash, batch.number, batch.weight, batch.parent)
                self._keep(block, copy)
                return [Complete(header, tuple(block.entries), producer)]
        return []

    def _keep(self, block: _Block, copy: _Copy) -> None:
        """A block is complete: what else comes of it is compared with it for a while."""
        block.is_complete = True
        self.forget(block.hash)
        self._complete[block.hash] = block
        block.keys = len(copy.seen)
        self._complete_keys += block.keys
        while self._complete_keys > self._complete_keys_max and len(self._complete) > 1:
            oldest = next(iter(self._complete))
            self._complete_keys -= self._complete.pop(oldest).keys


def _facts(come: Come, message: Message | None) -> tuple[int, bytes | _PartKey, object]:
    """By what a message is known to come again, what counts of it, and what it says."""
    match message:
        case Batch(_, number, weight, parent, items):
            # Of an integer everybody can make another one with the same hash, of bytes nobody.
            numbers = b"%d/%d/" % (number, weight) + parent
            return hash(come.key), b"", (numbers, frozenset(items.items()))
        case SubBatchHeader(_, batch, parts):
            return hash(come.key), _PartKey(batch, parts=parts), b"%d" % parts
        case Part(batch=batch, index=index, deletes=deletes, updates=updates):
            facts = frozenset(deletes), frozenset(updates.items())
            return hash((batch, index)), _PartKey(batch, index), facts
        case _:
            return hash(come.key), come.key[PREFIX_BYTES:], come.value
