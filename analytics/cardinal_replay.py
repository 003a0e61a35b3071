"""The chain, and every reorganisation, from headers: what a consumer of that node was told.

In the workers; one chain of one node at a time, all its headers in memory. What happens is taken as
`gateways.cardinal` takes it: blocks by the order in which they were complete; a Reorg that is news
sets the head; and where it has a channel, that is taken alone before anything else (spec 3.5, 4.3).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gateways.cardinal import codec
from gateways.cardinal.headers import Header, Step
from gateways.cardinal.ordering import Ordering

from .cardinal_counting import KEY, ORDER, ORDER_DDL, Block, groups
from .cardinal_parsing import KINDS
from .schema import batches_of

if TYPE_CHECKING:
    import pyarrow as pa

COMPLETE: Final = "complete"
REORG: Final = KINDS[codec.REORG]
DONE: Final = KINDS[codec.REORG_COMPLETE]
ENDED: Final = "ended"
"""All of a channel's log is there, whether or not it was said that it is done."""
EVENT: Final = (
    "view",
    *ORDER,
    "kind",
    "block_hash",
    "number",
    "parent",
    "weight",
    "producer",
    "channel",
)
EVENTS_DDL: Final = (
    f"node STRING, chain STRING, settings STRING, view STRING, {ORDER_DDL}, kind STRING,"
    " block_hash BINARY, number BIGINT, parent BINARY, weight BINARY, producer INT, channel STRING"
)
CHAIN_DDL: Final = (
    "node STRING, chain STRING, number BIGINT, block_hash BINARY, parent BINARY, weight BINARY"
)
REORGS_DDL: Final = (
    "node STRING, chain STRING, reorg INT, completed_ingest BIGINT, ancestor_number BIGINT,"
    " ancestor BINARY, old_head BINARY, new_head BINARY, removed INT, added INT"
)
_SAID: Final = ("kind", "number", "producer", "author", "channel")
_PLACE_BITS: Final = 24
"""Of an event's number, behind that of its entry: a payload has not as many messages."""
_GROUP: Final = ("node", "chain", "settings", "threshold")


class Event(NamedTuple):
    """With the columns of `EVENT`."""

    view: str | None
    at: int
    late: int
    seq: int
    place: int
    kind: str
    hash: bytes
    number: int
    parent: bytes
    weight: bytes
    producer: int
    channel: str | None


class Reorganised(NamedTuple):
    """A step that takes blocks back."""

    ingest: int
    old_head: bytes
    step: Step


@dataclass(slots=True)
class _Log:
    """What happens in all logs together, or in one channel."""

    events: list[Event] = field(default_factory=list)
    is_ended: bool = False
    next: int = 0
    ingest: int = 0
    """Of the entry that was taken last."""
    place: int = 0
    entered_at: int = 0
    headers: dict[bytes, Header] = field(default_factory=dict)
    children: dict[bytes, list[Header]] = field(default_factory=dict)

    def add(self, event: Event) -> Header:
        """A block is complete."""
        at = (event.at << _PLACE_BITS) + self.place
        weight = int.from_bytes(event.weight, "big")
        header = Header(event.hash, event.number, weight, event.parent, at)
        self.headers[header.hash] = header
        self.children.setdefault(header.parent, []).append(header)
        return header


class Replay:
    """A consumer that begins with nothing, and takes all that there is.

    `events`: in their order; those with a view are of that channel.
    """

    def __init__(self, events: Iterable[Event], threshold: int) -> None:
        self.reorgs: list[Reorganised] = []
        self._main = _Log()
        self._logs: dict[str, _Log] = {}
        self._entered: list[_Log] = []
        self._counts: dict[bytes, dict[int, int]] = {}
        for event in events:
            log = self._main if event.view is None else self._logs.setdefault(event.view, _Log())
            if event.kind == ENDED:
                log.is_ended = True
            else:
                log.events.append(event)
        self._ordering = Ordering(threshold=threshold, index=self)
        self._run()

    def _run(self) -> None:
        main = self._main
        while main.next < len(main.events):
            channel = self._take(main)
            if channel is not None and not self._take_channel(channel):
                # The consumer waits for the rest of it, and takes nothing else until that is here.
                return

    def _take_channel(self, name: str) -> bool:
        """Whether it was taken to its end."""
        held = self._logs.get(name, _Log())
        # Entered again, it is taken again.
        log = _Log(held.events, held.is_ended, entered_at=self._main.ingest)
        self._entered.append(log)
        while log.next < len(log.events):
            if log.events[log.next].kind == DONE:
                return True
            self._take(log)
        return log.is_ended

    def _take(self, log: _Log) -> str | None:
        """Takes an event; the channel that is to be taken then."""
        event = log.events[log.next]
        log.next += 1
        log.ingest, log.place = event.at, log.place + 1 if event.at == log.ingest else 0
        if log is self._main:
            # What came in channels up to here was taken with everything else.
            self._entered = [
                each for each in self._entered if max(each.ingest, each.entered_at) >= event.at
            ]
        head = self._ordering.head
        if event.kind == REORG:
            return self._reorg(event)
        for outcome in self._ordering.complete(log.add(event)):
            if isinstance(outcome, Step):
                self._note(event.at, head and head.hash, outcome)
                head = outcome.head
        return None

    def _reorg(self, event: Event) -> str | None:
        counts = self._counts.setdefault(event.hash, {})
        mine = counts[event.producer] = counts.get(event.producer, 0) + 1
        if mine <= max((counts[each] for each in counts if each != event.producer), default=0):
            return None
        head = self._ordering.head
        step = self._ordering.reorg(event.number, event.hash)
        if step is not None:
            self._note(event.at, head and head.hash, step)
        return event.channel

    def _note(self, ingest: int, old_head: bytes | None, step: Step) -> None:
        if step.removed and old_head is not None:
            self.reorgs.append(Reorganised(ingest, old_head, step))

    # What Ordering asks --------------------------------------------------------------------------

    def header(self, hash_: bytes) -> Header | None:
        """Of a block that was taken."""
        for log in (self._main, *self._entered):
            found = log.headers.get(hash_)
            if found is not None:
                return found
        return None

    def children(self, hash_: bytes) -> Iterable[Header]:
        """Of the blocks with this parent that were taken."""
        found: dict[bytes, Header] = {}
        for log in (self._main, *self._entered):
            for each in log.children.get(hash_, ()):
                found.setdefault(each.hash, each)
        return sorted(found.values(), key=lambda each: each.at)

    def below(self, hash_: bytes, limit: int) -> Iterable[Header]:
        """Of blocks that hang on this one, each behind what it hangs on, so many at most."""
        found: dict[bytes, Header] = {}
        pending = deque([hash_])
        while pending and len(found) < limit:
            for each in self.children(pending.popleft()):
                if each.hash not in found:
                    found[each.hash] = each
                    pending.append(each.hash)
        return found.values()

    # What came of it -----------------------------------------------------------------------------

    def chain(self) -> list[Header]:
        """The chain, the oldest block first."""
        head = self._ordering.head
        found: list[Header] = []
        block = None if head is None else self.header(head.hash)
        while block is not None:
            found.append(block)
            parent = self.header(block.parent)
            block = parent if parent is not None and parent.number < block.number else None
        return found[::-1]

    def reorg_row(self, each: Reorganised) -> list[object]:
        """Columns of `REORGS_DDL` behind `reorg`."""
        lowest = self.header(each.step.removed[0])
        ancestor = None if lowest is None else lowest.parent
        below = None if ancestor is None else self.header(ancestor)
        return [
            each.ingest,
            None if below is None else below.number,
            ancestor,
            each.old_head,
            each.step.head.hash,
            len(each.step.removed),
            len(each.step.added),
        ]


def _replays(batches: Iterable["pa.RecordBatch"]) -> Iterator[tuple[list[object], Replay]]:
    for key, parts in groups(batches, _GROUP):
        rows = (
            Event(*row)
            for part in parts
            for row in zip(*(part.column(name).to_pylist() for name in EVENT), strict=True)
        )
        yield [*key[:2]], Replay(rows, key[-1])


def list_events(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Rows of `EVENTS_DDL`, from messages that are sorted by block: what is said of
    reorganisations, and blocks that are complete.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.array([REORG, DONE])

    def rows() -> Iterator[list[object]]:
        for key, parts in groups(batches, KEY):
            block = Block(key[-1])
            for part in parts:
                is_said = pc.is_in(part.column("kind"), value_set=kinds)
                for at in part.filter(is_said).select([*ORDER, *_SAID]).to_pylist():
                    *order, kind, number, producer, author, channel = at.values()
                    log = None if channel is None else f"{author}/{channel}"
                    yield [*key[:-1], *order, kind, key[-1], number, None, None, producer, log]
                block.take(part.filter(pc.invert(is_said)))
            header, by = block.header, block.completed_by
            if header is not None and by is not None:
                weight = header.weight.to_bytes(codec.WEIGHT_BYTES_MAX, "big")
                order = [by.at, by.late, by.seq, by.place]
                said = header.hash, header.number, header.parent, weight
                yield [*key[:-1], *order, COMPLETE, *said, None, None]

    return batches_of(rows(), EVENTS_DDL)


def list_chain(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Rows of `CHAIN_DDL` from events with `threshold`, of each chain in their order."""

    def rows() -> Iterator[list[object]]:
        for place, replay in _replays(batches):
            for header in replay.chain():
                weight = header.weight.to_bytes(codec.WEIGHT_BYTES_MAX, "big")
                yield [*place, header.number, header.hash, header.parent, weight]

    return batches_of(rows(), CHAIN_DDL)


def list_reorgs(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Rows of `REORGS_DDL`, from the same."""

    def rows() -> Iterator[list[object]]:
        for place, replay in _replays(batches):
            for number, each in enumerate(replay.reorgs, 1):
                yield [*place, number, *replay.reorg_row(each)]

    return batches_of(rows(), REORGS_DDL)
