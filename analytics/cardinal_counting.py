"""From messages to blocks: in the workers, one after another, as a consumer's side table does.

Messages come sorted by block, and of each in the order in which a consumer of that node takes them.
What is held of a block are its messages as Arrow has them; in a query for anything but its content,
digests of values. What comes to a block that is given up is not held.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateways.cardinal.assembly import (
    Assembly,
    Changed,
    Come,
    Complete,
    Conflict,
    Happened,
    Opened,
    everything,
)
from gateways.cardinal.codec import (
    BATCH,
    BATCH_DELETE_MSG,
    BATCH_MSG,
    SUB_BATCH_HEADER,
    SUB_BATCH_MSG,
    WEIGHT_BYTES_MAX,
    Batch,
    Delete,
    Item,
    Part,
    SubBatchHeader,
    Update,
    decode_message,
    encode_message,
)
from gateways.cardinal.content import NotWhole, content_of
from gateways.cardinal.counted import State
from gateways.cardinal.counting import Copy, PartKey, Surplus

from .schema import batches_of

if TYPE_CHECKING:
    import pyarrow as pa

    from gateways.cardinal.headers import Header

KEY: Final = ("node", "chain", "settings", "view", "block_hash")
"""By what messages are of one block. `view`: whether, and of which channel, they are alone."""
ORDER: Final = ("at", "late", "seq", "index")
"""When a message is taken: by the entry with the ingest number `at`; of a channel that came before
the note that names it, behind that entry."""
ORDER_DDL: Final = "at BIGINT, late INT, seq BIGINT, index INT"
MESSAGES: Final = ("producer", "author", *ORDER, "seen_us", "taken_us", "key", "value")
COUNTED_DDL: Final = (
    "block_hash BINARY, number BIGINT, parent BINARY, weight BINARY, weight_decimal DECIMAL(38,0),"
    " producers ARRAY<STRING>, complete BOOLEAN, missing BIGINT, updates BIGINT, deletes BIGINT,"
    " conflict BOOLEAN, first_us BIGINT, completed_us BIGINT, completed_ingest BIGINT"
)
BLOCKS_DDL: Final = f"node STRING, chain STRING, {COUNTED_DDL}"
UPDATES_DDL: Final = (
    "node STRING, chain STRING, block_hash BINARY, number BIGINT, op STRING, key STRING,"
    " value BINARY, via STRING"
)
HELD_BYTES_MAX: Final = 1 << 30
"""Of the messages of one block: who sends more of one hash ends no query."""
_DECIMAL_MAX: Final = 10**38 - 1
_VIAS: Final[tuple[tuple[str, tuple[int, ...], Callable[[Item], Item]], ...]] = (
    ("inline", (), lambda item: Item(item.value, delete=item.delete)),
    ("message", (BATCH_MSG, BATCH_DELETE_MSG), lambda item: Item(owed=item.owed)),
    ("sub_batch", (SUB_BATCH_HEADER, SUB_BATCH_MSG), lambda item: Item(batch=item.batch)),
)
"""What a block's content comes by, later ones above earlier ones: which messages, and what of the
items of its Batch."""


class Change(NamedTuple):
    """What a block says of a key."""

    via: str
    key: bytes
    value: bytes | None
    """None: it is a delete."""


class _Taken(NamedTuple):
    """A message, with the columns of `MESSAGES`."""

    producer: int
    author: str
    at: int
    late: int
    seq: int
    place: int
    seen_us: int
    taken_us: int
    key: bytes
    value: bytes


class Block:
    """A block, as far as its messages make it."""

    def __init__(self, hash_: bytes) -> None:
        self.hash: Final = hash_
        self.header: Header | None = None
        self.completed_by: _Taken | None = None
        self.has_conflict = False
        self.first_us: int | None = None
        self._whose: int | None = None
        self._authors: dict[int, str] = {}
        self._state: int | None = None
        self._assembly = Assembly(self)
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._count = 0
        """Messages that were taken."""
        self._now: _Taken

    def take(self, rows: "pa.RecordBatch") -> None:
        """The next messages: `rows` has the columns of `MESSAGES`, in their order."""
        self._bytes += rows.nbytes
        # What is complete stays so, and then what came before is all that there is of it.
        if self._bytes <= HELD_BYTES_MAX and not self.is_given_up():
            self._held.append(rows)
            for producer, run in groupby(_taken(rows), key=itemgetter(0)):
                for happened in self._assembly.take_run(producer, self.hash, self._run(run)):
                    self._note(happened)
        if self.is_given_up():
            self._held.clear()

    def _run(self, run: Iterable[_Taken]) -> Iterator[tuple[bytes, bytes]]:
        for self._now in run:
            self._authors.setdefault(self._now.producer, self._now.author)
            if self.first_us is None or self._now.seen_us < self.first_us:
                self.first_us = self._now.seen_us
            yield self._now.key, self._now.value
            self._count += 1

    def _note(self, happened: Happened) -> None:
        match happened:
            case Opened(header):
                self.header = header
            case Complete(header, producer):
                self.header, self._whose, self.completed_by = header, producer, self._now
            case Changed(state):
                self._state = state
            case Conflict():
                self.has_conflict = True
            case _:
                # A block that is too large: it is given up.
                pass

    def is_given_up(self) -> bool:
        """Whether nothing can complete it any more."""
        is_closed = self._state is not None and self._state & State.CLOSED
        return self.completed_by is None and bool(is_closed or self._bytes > HELD_BYTES_MAX)

    # What the assembly asks ----------------------------------------------------------------------

    def state(self, _: bytes) -> int | None:
        """Of this block."""
        return self._state

    def messages(self, _: bytes) -> Iterator[Come]:
        """Those before the one that is taken now."""
        return islice(self._comes(), self._count)

    def _comes(self, whose: int | None = None) -> Iterator[Come]:
        for rows in self._held:
            columns = (rows.column(name).to_pylist() for name in ("producer", "key", "value"))
            for producer, key, value in zip(*columns, strict=True):
                if whose is None or producer == whose:
                    yield Come(producer, key, value)

    # What is known of it -------------------------------------------------------------------------

    def missing(self) -> int | None:
        """Messages and parts that are owed; None without a Batch, or where it is given up.

        Of producers that disagree: to the one who lacks least.
        """
        if self.completed_by is not None:
            return 0
        is_split = self._state is not None and self._state & State.SPLIT
        whose: list[int | None] = [*self._authors] if is_split else [None]
        found = (_owed(self._comes(each)) for each in whose)
        return min((each for each in found if each is not None), default=None)

    def changes(self) -> Iterator[Change]:
        """What is in it, each key of updates and of deletes once. Raises NotWhole."""
        comes = self._comes(self._whose)
        batch = next((each for each in comes if each.key[0] == BATCH), None)
        if batch is None:
            raise NotWhole
        message = decode_message(batch.key, batch.value)
        assert isinstance(message, Batch)
        found: dict[tuple[bytes, bool], Change] = {}
        for via, kinds, of_item in _VIAS:
            items = {key: of_item(item) for key, item in message.items.items()}
            head = Come(0, *encode_message(message._replace(items=items)))
            others = (each for each in self._comes(self._whose) if each.key[0] in kinds)
            content = content_of(chain((head,), others), everything)
            for key, value in content.values.pairs():
                found[key, False] = Change(via, key, value)
            for key, _ in content.deletes.pairs():
                found[key, True] = Change(via, key, None)
        yield from found.values()

    def row(self) -> list[object]:
        """Of `COUNTED_DDL`."""
        header, by = self.header, self.completed_by
        weight = None if header is None else header.weight
        updates = deletes = None
        if by is not None:
            with suppress(NotWhole):
                deletes = updates = 0
                for change in self.changes():
                    updates += change.value is not None
                    deletes += change.value is None
        return [
            self.hash,
            None if header is None else header.number,
            None if header is None else header.parent,
            None if weight is None else weight.to_bytes(WEIGHT_BYTES_MAX, "big"),
            weight if weight is None or weight <= _DECIMAL_MAX else None,
            [*dict.fromkeys(self._authors[each] for each in sorted(self._authors))],
            by is not None,
            self.missing(),
            updates,
            deletes,
            self.has_conflict,
            self.first_us,
            None if by is None else by.taken_us,
            None if by is None else by.at,
        ]


def _taken(rows: "pa.RecordBatch") -> Iterator[_Taken]:
    columns = (rows.column(name).to_pylist() for name in MESSAGES)
    return map(_Taken._make, zip(*columns, strict=True))


def _owed(messages: Iterable[Come]) -> int | None:
    copy = Copy(waiting_max=sys.maxsize)
    seen: set[object] = set()
    for come in messages:
        message = decode_message(come.key, come.value)
        known: object = come.key
        what: bytes | PartKey = b""
        match message:
            case SubBatchHeader(_, batch, parts):
                what = PartKey(batch, parts=parts)
            case Part(batch=batch, index=index):
                known = what = PartKey(batch, index)
            case Update(_, key, _) | Delete(_, key):
                what = key
            case _:
                pass
        if known in seen:
            continue
        seen.add(known)
        with suppress(Surplus):
            if isinstance(message, Batch):
                copy.open(message, everything)
            else:
                copy.count(what)
    if copy.header is None:
        return None
    # Of a sub-batch without its header nobody knows how much there is: one message is owed.
    owed = [1 if each.parts is None else each.parts - len(each.came) for each in copy.owed.values()]
    return copy.left + sum(owed)


# Arrow batches -----------------------------------------------------------------------------------

Group = tuple[Any, ...]


def groups(
    batches: Iterable["pa.RecordBatch"], names: tuple[str, ...]
) -> Iterator[tuple[Group, Iterator["pa.RecordBatch"]]]:
    """What stands together with the same values in some columns: these, and the rows, by parts."""
    for key, parts in groupby(_parts(batches, names), key=itemgetter(0)):
        yield key, (rows for _, rows in parts)


def _parts(
    batches: Iterable["pa.RecordBatch"], names: tuple[str, ...]
) -> Iterator[tuple[Group, "pa.RecordBatch"]]:
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        first = 0
        for key, run in groupby(keys):
            count = sum(1 for _ in run)
            yield key, batch.slice(first, count)
            first += count


def blocks_of(batches: Iterable["pa.RecordBatch"]) -> Iterator[tuple[Group, Block]]:
    """The blocks of messages that are sorted by `KEY` and `ORDER`."""
    for key, parts in groups(batches, KEY):
        block = Block(key[-1])
        for rows in parts:
            block.take(rows)
        yield key, block


def count_blocks(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Rows of `BLOCKS_DDL`."""
    rows = ([*key[:2], *block.row()] for key, block in blocks_of(batches))
    return batches_of(rows, BLOCKS_DDL)


def list_updates(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Rows of `UPDATES_DDL`, of complete blocks."""

    def rows() -> Iterator[list[object]]:
        for key, block in blocks_of(batches):
            if block.completed_by is None or block.header is None:
                continue
            with suppress(NotWhole):
                for via, name, value in block.changes():
                    op = "delete" if value is None else "update"
                    yield [*key[:2], block.hash, block.header.number, op, name.decode(), value, via]

    return batches_of(rows(), UPDATES_DDL)
