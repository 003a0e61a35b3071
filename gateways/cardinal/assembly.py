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

What is held here is a cache, of blocks that are not complete and of some that are. One that was
met by another process, or was complete long ago, is counted anew from its messages, in their order,
when the next one comes: so what is said of a block follows from what came, and from nothing else.
That is dear, and nobody may have it done again and again: what was counted anew, and what is not
complete, goes to a `Shelf` when it leaves memory.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final, NamedTuple, Protocol

from gateways.cardinal.codec import (
    APPLICATION_KEY_BYTES_MAX,
    BATCH,
    BATCH_DELETE_MSG,
    BATCH_MSG,
    PREFIX_BYTES,
    VALUE_BYTES_MAX,
    Batch,
    Message,
    Part,
    SubBatchHeader,
    decode_message,
    is_text,
    kind_of,
)
from gateways.cardinal.counted import Counted, Nowhere, Shelf, State
from gateways.cardinal.counting import (
    LONG_BYTES_MAX,
    LONG_KEY_BYTES,
    Copy,
    IsTracked,
    PartKey,
    Surplus,
    TooManyWait,
)
from gateways.cardinal.headers import Header
from gateways.reading import CodecError

INCOMPLETE_MAX: Final = 4_096
KEYS_MAX: Final = 4_000_000
"""Of one block."""
INCOMPLETE_KEYS_MAX: Final = 500_000
"""Of all blocks that are incomplete, with what they owe, but for one that has more alone."""
COMPLETE_MAX: Final = 4_096
COMPLETE_KEYS_MAX: Final = 200_000
"""Of blocks that are complete, so that what comes later can be compared with them. With one that
has more alone nothing is compared: to count it anew for a single message would cost too much.
"""
WAITING_MAX: Final = 65_536
"""Messages of a block that wait for its Batch. Of more nothing is remembered: all of them are read
again once it is there.
"""
_FACTS_MASK: Final = (1 << 44) - 1
"""Of a hash of what a message says: with who says it, it is one integer of 32 bytes."""
_PRODUCER_BITS: Final = 16
_PRODUCER_MASK: Final = (1 << _PRODUCER_BITS) - 1
_KEY_MASK: Final = (1 << 60) - 1
"""Of a hash of a key: an integer of up to 60 bits takes 32 bytes, and a larger one 48."""
_Pair = tuple[bytes, bytes]
"""Key and value of a message."""


class Come(NamedTuple):
    """A message."""

    producer: int
    """His place in the order given."""
    key: bytes
    value: bytes


class Complete(NamedTuple):
    """All of a block is there."""

    header: Header
    producer: int | None
    """Whose messages alone are it; None: everybody's."""


class Conflict(NamedTuple):
    """Producers disagree about a block, or one with himself: told once."""

    hash: bytes
    key: bytes
    producers: tuple[int, ...]


class Bad(NamedTuple):
    """A message, or a whole block, that breaks a rule."""

    reason: str


class Opened(NamedTuple):
    """The first Batch of a block is there."""

    header: Header


class Changed(NamedTuple):
    """What is to be remembered of a block beside its messages."""

    state: int


Happened = Complete | Conflict | Bad | Opened | Changed


_LOWEST_MIN: Final = 1_024
_SLOW: Final = State.COMPLETE | State.SPLIT | State.CLOSED


class Elsewhere(Protocol):
    """What is remembered of blocks outside of here."""

    def state(self, hash_: bytes) -> int | None:
        """Of a block; None if it was never met."""

    def messages(self, hash_: bytes) -> Iterable[Come]:
        """All messages of a block before the one that is taken now, in the order they came."""


def everything(_: bytes) -> bool:
    """Tracks all items."""
    return True


class _Dispute(NamedTuple):
    """Between whom; of nobody named all who have said anything of the block."""

    producers: tuple[int, ...]
    divides: bool
    """Whether each counts for himself from now on."""
    key: bytes = b""
    """Of the message that disagrees; empty: it is the one that is taken now."""


class Assembly:
    """The blocks of one chain, from the messages of their producers.

    `elsewhere`: what is remembered of blocks that are not here. `shelf`: where those go that leave
    memory. `is_tracked`: which items count.
    `incomplete_max`, `incomplete_keys_max` and `complete_keys_max` are of what is held in memory,
    `keys_max` of one block.
    """

    def __init__(
        self,
        elsewhere: Elsewhere,
        *,
        shelf: Shelf | None = None,
        is_tracked: IsTracked = everything,
        incomplete_max: int = INCOMPLETE_MAX,
        keys_max: int = KEYS_MAX,
        incomplete_keys_max: int = INCOMPLETE_KEYS_MAX,
        complete_keys_max: int = COMPLETE_KEYS_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._elsewhere = elsewhere
        self._shelf: Shelf = Nowhere() if shelf is None else shelf
        self._is_tracked = is_tracked
        self._incomplete_max = incomplete_max
        self._keys_max = keys_max
        self._incomplete_keys_max = incomplete_keys_max
        self._complete_keys_max = complete_keys_max
        self._waiting_max = waiting_max
        self._blocks: dict[bytes, Counted] = {}
        """Incomplete, in the order in which they were begun."""
        self._incomplete_keys = 0
        self._complete: dict[bytes, Counted] = {}
        """In the order in which they became so, or were counted anew."""
        self._complete_keys = 0
        self._orphans: dict[bytes, None] = {}
        """Blocks of which no Batch is here, the oldest first."""
        self._lowest: list[tuple[int, bytes]] = []
        """Those that have one by their numbers; some may be gone."""

    def take(self, come: Come) -> list[Happened]:
        """A message of a block, 00 to 04; others are nobody's here."""
        return [*self.take_run(come.producer, come.key[1:PREFIX_BYTES], [(come.key, come.value)])]

    def take_run(
        self, producer: int, hash_: bytes, messages: Iterable[tuple[bytes, bytes]]
    ) -> Iterator[Happened]:
        """Messages of a producer that stand one behind another, all of them of one block.

        What happens is told before the next message is taken; they have to be taken to their end.
        """
        block: Counted | None = None
        before: int = State.MET
        copy: Copy | None = None
        others = iter(messages)
        while (pair := next(others, None)) is not None:
            if copy is not None and block is not None:
                pair = self._add_values(copy, producer, pair, others)
                if copy.header is not None and not copy.left and not copy.unfinished:
                    yield from self._look(block)
                    copy = None
                if pair is None:
                    continue
            key, value = pair
            try:
                kind = kind_of(key, value)
                message = None if kind >= BATCH_MSG else decode_message(key, value)
            except CodecError as error:
                yield Bad(str(error))
                continue
            if kind > BATCH_DELETE_MSG:
                continue
            if block is None:
                block = self._block(hash_)
                before = block.state
            if block.state & State.CLOSED:
                continue
            block.producers.add(producer)
            yield from self._add(block, Come(producer, key, value), message)
            if not block.state & State.COMPLETE:
                yield from self._look(block)
            copy = None if block.state & _SLOW else block.copies.get(None)
        if block is not None:
            if block.state != before:
                yield Changed(block.state)
            self._make_room(block)

    def _add_values(
        self, copy: Copy, producer: int, first: _Pair, others: Iterator[_Pair]
    ) -> _Pair | None:
        """Counts values under prefixes that come for the first time, which is nearly all there is.

        As `_add` does, in a quarter of the time. Up to the one by which the copy is complete; or to
        a message that is something else, which is returned.
        """
        seen, waiting = copy.seen, copy.waiting
        keys_max, waits_max = self._keys_max, copy.waiting_max
        waits, too_long = copy.header is None, copy.long_bytes >= LONG_BYTES_MAX
        what_max = LONG_KEY_BYTES if waits else APPLICATION_KEY_BYTES_MAX
        count_if_owed = copy.count_if_owed
        for pair in chain((first,), others):
            key, value = pair
            what = key[PREFIX_BYTES:]
            seen_as = hash(key) & _KEY_MASK
            if (
                seen_as in seen
                or not 0 < len(what) <= what_max
                or key[0] != BATCH_MSG
                or len(seen) >= keys_max
                or len(value) > VALUE_BYTES_MAX
                or not (what.isascii() or is_text(what))
            ):
                return pair
            if not waits:
                if not count_if_owed(what):
                    return pair
                seen[seen_as] = (hash(value) & _FACTS_MASK) << _PRODUCER_BITS | producer
                if not copy.left and not copy.unfinished:
                    return None
            elif len(waiting) < waits_max and not too_long:
                waiting.append(what)
                seen[seen_as] = (hash(value) & _FACTS_MASK) << _PRODUCER_BITS | producer
        return None

    def __len__(self) -> int:
        """Blocks that are incomplete."""
        return len(self._blocks)

    # What is in memory ---------------------------------------------------------------------------

    def _block(self, hash_: bytes) -> Counted:
        """As it was left, from the shelf, or anew from what came of it."""
        block = self._blocks.get(hash_) or self._complete.get(hash_)
        if block is not None:
            return block
        state = self._elsewhere.state(hash_)
        if state is not None and state & State.CLOSED:
            return Counted(hash_, state)
        block = None if state is None else self._shelf.take(hash_)
        is_met = block is None and state is not None
        if block is None:
            block = Counted(hash_, State.MET if state is None else state, is_dear=is_met)
        if len(self._blocks) >= self._incomplete_max:
            self._drop_one()
        self._blocks[hash_] = block
        self._incomplete_keys += block.keys
        number = block.number
        if number is None:
            self._orphans[hash_] = None
        else:
            heappush(self._lowest, (number, hash_))
        if is_met:
            self._count_anew(block)
        if block.state & State.COMPLETE:
            self._keep(block)
        return block

    def _make_room(self, block: Counted) -> None:
        """Behind what came of a block, that others leave memory."""
        if block.hash not in self._blocks:
            return
        self._incomplete_keys += block.count_keys()
        while self._incomplete_keys > self._incomplete_keys_max and len(self._blocks) > 1:
            # There is more to come of what has just come: large ones would be read again and again.
            self._drop_one(besides=block)

    def _drop_one(self, besides: Counted | None = None) -> None:
        """The oldest of too many without a Batch, else the one with the lowest number.

        Whoever sends messages of blocks that never come would else keep all others out.
        """
        kept: list[tuple[int, bytes]] = []
        dropped: bytes | None = None
        if len(self._orphans) <= self._incomplete_max // 2:
            while self._lowest and dropped is None:
                lowest = heappop(self._lowest)
                if besides is not None and lowest[1] == besides.hash:
                    kept.append(lowest)
                elif lowest[1] in self._blocks:
                    dropped = lowest[1]
            for each in kept:
                heappush(self._lowest, each)
        if dropped is None:
            others = (
                each
                for each in (*self._orphans, *self._blocks)
                if self._blocks[each] is not besides
            )
            dropped = next(others)
        self._shelf.put(self._forget(dropped))

    def _forget(self, hash_: bytes) -> Counted:
        block = self._blocks.pop(hash_)
        self._incomplete_keys -= block.keys
        self._orphans.pop(hash_, None)
        if len(self._lowest) > 2 * len(self._blocks) + _LOWEST_MIN:
            # Those that were complete in time are never the lowest of too many.
            self._lowest = [each for each in self._lowest if each[1] in self._blocks]
            heapify(self._lowest)
        return block

    # One message ---------------------------------------------------------------------------------

    def _add(self, block: Counted, come: Come, message: Message | None) -> list[Happened]:
        """Counts a message; what it contradicts is told, once for the block."""
        copy = self._copy(block, come.producer)
        if copy.has_too_many_waiting and not isinstance(message, Batch):
            return []
        if len(copy.seen) >= self._keys_max and not block.state & State.COMPLETE:
            if len(block.producers) > 1 and not block.state & State.SPLIT:
                # Of one of them, and he may be another one.
                self._split(block)
                copy = self._copy(block, come.producer)
            if len(copy.seen) >= self._keys_max:
                copy.give_up()
        if copy.is_given_up:
            return self._give_up(block)
        found: list[Happened] = []
        if isinstance(message, Batch) and block.hash in self._orphans:
            found.append(Opened(_header(message)))
        dispute = self._count(block, copy, come, message)
        if dispute is None:
            return found
        if dispute.divides and not block.state & (State.SPLIT | State.COMPLETE):
            self._split(block)
            self._count(block, self._copy(block, come.producer), come, message)
        if block.state & State.TOLD:
            return found
        block.state |= State.TOLD
        producers = dispute.producers or tuple(sorted(block.producers))
        return [*found, Conflict(block.hash, dispute.key or come.key, producers)]

    def _give_up(self, block: Counted) -> list[Happened]:
        if not block.state & State.SPLIT:
            block.state |= State.CLOSED
        if block.state & State.LARGE:
            return []
        block.state |= State.LARGE
        return [Bad(f"a block of more than {self._keys_max} keys and parts")]

    def _copy(self, block: Counted, producer: int) -> Copy:
        whose = producer if block.state & State.SPLIT else None
        copy = block.copies.get(whose)
        if copy is None:
            copy = block.copies[whose] = Copy(self._waiting_max)
        return copy

    def _count(
        self, block: Counted, copy: Copy, come: Come, message: Message | None
    ) -> _Dispute | None:
        """What a message disagrees with, if it does."""
        key, what, facts = _facts(come, message)
        said = (hash(facts) & _FACTS_MASK) << _PRODUCER_BITS | come.producer
        before = copy.seen.get(key)
        if before is not None:
            is_value = come.key[0] == BATCH_MSG
            return self._compare(copy, key, before, said, is_value=is_value)
        if not isinstance(message, Batch) and copy.counts_for_nothing(what):
            return None
        if not (block.state & State.COMPLETE and copy.is_complete):
            copy.seen[key] = said
        try:
            if isinstance(message, Batch):
                if self._orphans.pop(block.hash, block) is None:
                    heappush(self._lowest, (message.number, block.hash))
                copy.open(message, self._is_tracked)
            else:
                copy.count(what)
        except Surplus:
            return _Dispute((), divides=True)
        except TooManyWait:
            return self._count_waiting(block, copy, come.producer)
        return None

    @staticmethod
    def _compare(
        copy: Copy, key: int, before: int, said: int, *, is_value: bool
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

    # What is read again --------------------------------------------------------------------------

    def _split(self, block: Counted) -> None:
        """From now on everybody counts for himself."""
        block.state |= State.SPLIT
        self._count_anew(block)

    def _count_anew(self, block: Counted) -> None:
        """Everything that came of a block before."""
        self._shelf.forget(block)
        block.copies = {}
        for come, message in self._again(block.hash):
            block.producers.add(come.producer)
            copy = self._copy(block, come.producer)
            waits = copy.has_too_many_waiting and not isinstance(message, Batch)
            if len(copy.seen) < self._keys_max and not waits:
                self._count(block, copy, come, message)

    def _count_waiting(self, block: Counted, copy: Copy, producer: int) -> _Dispute | None:
        """What came before a Batch, and was too much to be remembered."""
        batch = hash(bytes((BATCH,)) + block.hash) & _KEY_MASK
        said = copy.seen[batch]
        copy.seen.clear()
        copy.seen[batch] = said
        found: _Dispute | None = None
        for come, message in self._again(block.hash):
            if block.state & State.SPLIT and come.producer != producer:
                continue
            if len(copy.seen) >= self._keys_max:
                break
            dispute = self._count(block, copy, come, message)
            if dispute is not None and (found is None or (dispute.divides and not found.divides)):
                found = dispute._replace(key=come.key)
        return found

    def _again(self, hash_: bytes) -> Iterator[tuple[Come, Message | None]]:
        for come in self._elsewhere.messages(hash_):
            try:
                kind = kind_of(come.key, come.value)
                message = None if kind >= BATCH_MSG else decode_message(come.key, come.value)
            except CodecError:
                # It was told when it came, and is nothing.
                continue
            if kind <= BATCH_DELETE_MSG:
                yield come, message

    # What is complete ----------------------------------------------------------------------------

    def _look(self, block: Counted) -> list[Happened]:
        # Of several copies that of the first producer in the order given; of one there is no first.
        producers = (
            [*block.copies]
            if len(block.copies) < 2
            else sorted(each for each in block.copies if each is not None)
        )
        for producer in producers:
            copy = block.copies[producer]
            if copy.is_complete:
                assert copy.header is not None
                block.state |= State.COMPLETE
                block.count_keys()
                if producer is not None or block.keys > self._complete_keys_max:
                    # Somebody's copy is given out, and what others say of it was told.
                    block.state |= State.CLOSED
                self._keep(block)
                return [Complete(copy.header, producer)]
        return []

    def _keep(self, block: Counted) -> None:
        """A block is complete: what else comes of it is compared with it."""
        self._forget(block.hash)
        if block.state & State.CLOSED:
            self._shelf.forget(block)
            return
        block.count_keys()
        self._complete[block.hash] = block
        self._complete_keys += block.keys
        while len(self._complete) > 1 and (
            self._complete_keys > self._complete_keys_max or len(self._complete) > COMPLETE_MAX
        ):
            oldest = self._complete.pop(next(iter(self._complete)))
            self._complete_keys -= oldest.keys
            if oldest.is_dear:
                self._shelf.put(oldest)
            else:
                self._shelf.forget(oldest)


def _header(batch: Batch) -> Header:
    return Header(batch.hash, batch.number, batch.weight, batch.parent)


def _facts(come: Come, message: Message | None) -> tuple[int, bytes | PartKey, object]:
    """By what a message is known to come again, what counts of it, and what it says."""
    match message:
        case Batch(_, number, weight, parent, items):
            # Of an integer everybody can make another one with the same hash, of bytes nobody.
            numbers = b"%d/%d/" % (number, weight) + parent
            return hash(come.key) & _KEY_MASK, b"", (numbers, frozenset(items.items()))
        case SubBatchHeader(_, batch, parts):
            return hash(come.key) & _KEY_MASK, PartKey(batch, parts=parts), b"%d" % parts
        case Part(batch=batch, index=index, deletes=deletes, updates=updates):
            facts = frozenset(deletes), frozenset(updates.items())
            return hash((batch, index)) & _KEY_MASK, PartKey(batch, index), facts
        case _:
            return hash(come.key) & _KEY_MASK, come.key[PREFIX_BYTES:], come.value
