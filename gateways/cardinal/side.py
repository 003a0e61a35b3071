"""What is derived from the logs of streams: `cardinal.sqlite3` in the store (spec 4.4).

A *view* is what one kind of consumer makes of some logs: which streams, in which order, which
topics, what is tracked. Each view that was asked for has its own place in the change feed of the
store, and takes the entries of its logs in the order of that feed, whatever way they came; so what
is derived follows from the feed alone, and a table that is made anew says the same. It holds where
the messages of each block lie, the headers, and *events*, what happened and by which entry: a block
is complete, somebody disagrees, a message is bad, a reorganisation begins. An event's number is the
ingest number of that entry, and its place among what the entry made happen.

Of a view only what is new is taken, with an `Assembly` that remembers nothing which is not in the
table too: blocks that it does not hold it counts anew from their messages. What many transactions
take is left where it is by each of them, so that other processes may go on with it.

The channel of a reorganisation (4.3) belongs to the view of its stream like another topic, from the
note on that names it; and since a consumer takes it alone, before anything else that came, it is a
view of its own besides.
"""

import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple

import apsw

from gateways import (
    APPLIED_COLUMNS,
    SideTable,
    applied_ingest,
    applied_row,
    pack_u64,
    side_path,
    sound_entry,
    unpack_u64,
)
from gateways.cardinal.assembly import Come
from gateways.cardinal.counted import State
from gateways.cardinal.headers import Header
from gateways.cardinal.tracking import Tracking
from logstore import Seldom, Store, StoreDamaged
from wire import U64_MAX, LogKey

from . import taking
from .logs import Stream, payload_of
from .taking import PLACE_BITS, Span, Taking, messages_in

log = logging.getLogger(__name__)

FILE_NAME: Final = "cardinal.sqlite3"
VERSION: Final = 4
VIEWS_MAX: Final = 16
"""Of more those go that nobody has used for a while."""
UNUSED_S: Final = 3_600
EVENTS_MAX: Final = 1_000
_STATEMENTS: Final = (
    (
        "CREATE TABLE views(id INTEGER PRIMARY KEY, what TEXT NOT NULL UNIQUE,"
        f" used INTEGER NOT NULL, {', '.join(APPLIED_COLUMNS)}, ordered BLOB)"
    ),
    *taking.STATEMENTS,
)
_NAMES: Final = ", ".join(each.partition(" ")[0] for each in APPLIED_COLUMNS)
_SELECT_EVENTS: Final = (
    "SELECT e.at, e.kind, l.author, l.log_id, e.seq, e.what, b.hash, b.number, b.weight, b.parent"
    " FROM views v JOIN events e ON e.view = v.id JOIN logs l ON l.id = e.log"
    " LEFT JOIN blocks b ON b.id = e.block WHERE v.what = ? AND e.at > ?"
)
_BLOCK: Final = "hash, number, weight, parent, at"


@dataclass(frozen=True)
class View:
    """What is made of which logs."""

    streams: tuple[Stream, ...]
    """In the order of preference; their declarations agree."""
    tracking: Tracking
    channel: LogKey | None = None
    """This log alone, of the first of the streams."""

    def logs(self) -> list[tuple[LogKey, int]]:
        """The logs that are read from the beginning, and the places of their producers."""
        if self.channel is not None:
            return [(self.channel, 0)]
        return [
            (key, producer)
            for producer, stream in enumerate(self.streams)
            for topic, key in stream.topics().items()
            if self.tracking.reads(topic)
        ]

    @cached_property
    def what(self) -> str:
        """Says which one it is."""
        of = self.channel and str(self.channel)
        return json.dumps([[str(each.key) for each in self.streams], of, *self.tracking.settings()])


class CompleteEvent(NamedTuple):
    """All of a block is there."""

    at: int
    header: Header


class ConflictEvent(NamedTuple):
    """Producers disagree."""

    at: int
    hash: bytes
    key: bytes
    producers: tuple[bytes, ...]
    """Their authors."""


class BadEvent(NamedTuple):
    """A message, or the rest of a payload, breaks a rule."""

    at: int
    log: LogKey
    seq: int
    frame: int
    """Its place in the payload, from 0 on."""
    reason: str


class ReorgEvent(NamedTuple):
    """A producer says that the chain is another one from a common ancestor on."""

    at: int
    number: int
    hash: bytes
    channel: LogKey | None
    is_news: bool
    """Whether he has said so more often than any other one before."""


class ReorgDone(NamedTuple):
    """All of a channel was said."""

    at: int


Event = CompleteEvent | ConflictEvent | BadEvent | ReorgEvent | ReorgDone


class BlockRow(NamedTuple):
    """What is known of a block."""

    id: int
    hash: bytes
    header: Header | None
    """None: no Batch of it is here. `at` is 0 of one that is not complete."""
    producer: int | None
    """Whose messages alone it is."""
    is_split: bool


class Place(NamedTuple):
    """Where messages of a block lie."""

    log: LogKey
    seq: int
    producer: int
    span: Span
    frame: int | None = None
    """The last frame that counts, None: all do."""


class Side:
    """The side table of a store's streams. Blocks; may be used from any thread.

    Every method raises StoreError.
    """

    def __init__(self, store: Store, seldom: Seldom) -> None:
        self._store = store
        self._seldom = seldom
        self._table = SideTable(side_path(store, FILE_NAME), VERSION, _STATEMENTS)
        self._takings: dict[str, Taking] = {}
        """What is held in memory of each view, by what it is: true as long as the table says so."""
        self._in_order = True

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        self._table.close()

    # Bringing it on ------------------------------------------------------------------------------

    def leave(self, view: View) -> None:
        """Lets go of what is held in memory of a view: nobody here goes on with it."""
        self._takings.pop(view.what, None)

    def bring_on(self, view: View) -> bool:
        """Takes what is new in the logs of a view, some of it in each transaction.

        Returns whether it is known that all entries that were taken since the last call came in the
        order of their logs.
        """
        what = view.what
        position = self._table.look(partial(_position, what=what))
        held = self._takings.get(what)
        if (
            held is not None
            and held.ingest == position == self._store.position()
            and time.monotonic() < held.touch_at_s
        ):
            return True
        self._in_order = held is not None
        while not self._table.run(partial(self._take_some, view=view, what=what)):
            pass
        return self._in_order

    def _take_some(self, db: apsw.Connection, view: View, what: str) -> bool:
        """Whether all is taken."""
        # Whatever is raised here takes back the transaction, and this is true no more.
        held = self._takings.pop(what, None)
        view_id, ingest = self._view(db, what)
        if ingest == 0 and view.channel is not None:
            first = sound_entry(self._store, view.channel, 1, self._say_damaged)
            ingest = 0 if first is None else first.ingest - 1
        if held is None or (held.view, held.ingest) != (view_id, ingest):
            self._in_order = False
            held = Taking(
                self._store,
                self._say_damaged,
                view=view_id,
                ingest=ingest,
                logs=view.logs(),
                is_channel=view.channel is not None,
                chain=view.streams[0].declared.chain,
                is_tracked=view.tracking,
            )
        is_over = held.take_some(db)
        self._in_order &= held.in_order
        row = applied_row(self._store, held.ingest)
        db.execute(
            f"UPDATE views SET ({_NAMES}) = (?, ?, ?, ?, ?, ?) WHERE id = ?",  # noqa: S608
            (*row, view_id),
        )
        held.touch_at_s = time.monotonic() + UNUSED_S / 6
        self._takings[what] = held
        return is_over

    def _view(self, db: apsw.Connection, what: str) -> tuple[int, int]:
        """The id of a view, and how far it has come."""
        used = int(time.time())
        row = db.execute(f"SELECT id, {_NAMES} FROM views WHERE what = ?", (what,)).fetchone()  # noqa: S608
        if row is not None:
            ingest = applied_ingest(self._store, row[1:])
            if ingest is not None:
                db.execute("UPDATE views SET used = ? WHERE id = ?", (used, row[0]))
                return row[0], ingest
            _forget(db, row[0])
        # Somebody may be in the middle of what a view says, whose channels are views, too.
        old = [
            *db.execute(
                "SELECT id FROM views WHERE used < ? ORDER BY used DESC LIMIT -1 OFFSET ?",
                (used - UNUSED_S, VIEWS_MAX),
            )
        ]
        for (each,) in old:
            _forget(db, each)
        db.execute("INSERT INTO views(what, used) VALUES (?, ?)", (what, used))
        return db.last_insert_rowid(), 0

    def _say_damaged(self, error: StoreDamaged) -> None:
        self._seldom.warn(log, error.where, f"it is passed over: {error}")

    # What it says --------------------------------------------------------------------------------

    def events(self, view: View, behind: int, limit: int = EVENTS_MAX) -> list[Event]:
        """What happened behind an event, in its order."""

        def load(db: apsw.Connection) -> list[Event]:
            rows = db.execute(f"{_SELECT_EVENTS} ORDER BY e.at LIMIT ?", (view.what, behind, limit))
            return [_event(view, row) for row in rows]

        return self._table.look(load)

    def is_no_channel(self, view: View, key: LogKey) -> bool:
        """Whether a log that a note has named as a channel turned out to be none."""
        query = (
            "SELECT l.kind FROM views v JOIN logs l ON l.view = v.id"
            " WHERE v.what = ? AND l.author = ? AND l.log_id = ?"
        )
        bound = (view.what, key.author, pack_u64(key.log_id))
        found: int | None = self._table.look(lambda db: db.execute(query, bound).get)
        return found == taking.NO_CHANNEL

    def reorg_seq(self, view: View, key: LogKey, until: int) -> int:
        """The entry of the newest Reorg in a log up to an event."""
        query = (
            "SELECT max(e.seq) FROM views v JOIN logs l ON l.view = v.id JOIN events e"
            " ON e.view = v.id AND e.log = l.id WHERE v.what = ? AND l.author = ? AND l.log_id = ?"
            " AND e.kind = ? AND e.at <= ?"
        )
        bound = (view.what, key.author, pack_u64(key.log_id), taking.REORG, until)
        found: bytes | None = self._table.look(lambda db: db.execute(query, bound).get)
        return U64_MAX if found is None else unpack_u64(found)

    def last_reorg(self, view: View, until: int = taking.EVENT_MAX) -> ReorgEvent | None:
        """The newest reorganisation up to an event."""

        def load(db: apsw.Connection) -> ReorgEvent | None:
            rows = db.execute(
                f"{_SELECT_EVENTS} AND e.at <= ? AND e.kind = ? ORDER BY e.at DESC LIMIT 1",
                (view.what, 0, until, taking.REORG),
            )
            found = [_event(view, row) for row in rows]
            return found[0] if found and isinstance(found[0], ReorgEvent) else None

        return self._table.look(load)

    def highest(self, view: View) -> int | None:
        """The highest number in any Batch."""
        query = "SELECT max(number) FROM blocks WHERE view = (SELECT id FROM views WHERE what = ?)"
        found: int | None = self._table.look(lambda db: db.execute(query, (view.what,)).get)
        return found

    def newest(self, view: View) -> int:
        """The number of the newest event there may be: all that is applied is not behind it."""

        def load(db: apsw.Connection) -> int:
            return (_position(db, view.what) or 0) + 1 << PLACE_BITS

        return self._table.look(load)

    def block(self, view: View, hash_: bytes) -> BlockRow | None:
        """What is known of a block."""
        return next(iter(self._blocks(view, "hash = ?", hash_)), None)

    def way(self, view: View, hash_: bytes, until: int, limit: int) -> list[Header]:
        """A block, its parent, and so on, as far as they were complete with an event."""
        query = (
            "WITH RECURSIVE way(id, number, parent) AS"
            " (SELECT id, number, parent FROM blocks WHERE view = ?1 AND hash = ?2 AND at <= ?3"
            " UNION ALL SELECT b.id, b.number, b.parent FROM way"
            " CROSS JOIN blocks b INDEXED BY blocks_by_hash ON b.view = ?1 AND b.hash = way.parent"
            # Who lies may make a circle.
            " AND b.at <= ?3 AND b.number < way.number LIMIT ?4)"
            " SELECT b.hash, b.number, b.weight, b.parent, b.at FROM way JOIN blocks b"
            " ON b.id = way.id"
        )

        def load(db: apsw.Connection) -> list[Header]:
            view_id = db.execute("SELECT id FROM views WHERE what = ?", (view.what,)).get
            rows = db.execute(query, (view_id, hash_, until, limit))
            return [each for row in rows if (each := _header(*row)) is not None]

        return self._table.look(load)

    def ordered(self, view: View) -> bytes | None:
        """What `keep_ordered` was given."""
        found: bytes | None = self._table.look(
            lambda db: db.execute("SELECT ordered FROM views WHERE what = ?", (view.what,)).get
        )
        return found

    def keep_ordered(self, view: View, state: bytes) -> None:
        """How far the blocks of a view were ordered, and with what, for as long as it lasts."""
        bound = (state, view.what)
        self._table.run(lambda db: db.execute("UPDATE views SET ordered = ? WHERE what = ?", bound))

    def blocks_of(self, view: View, number: int) -> list[BlockRow]:
        """All blocks with a number, those that were complete first before others."""
        order = "number = ? ORDER BY at IS NULL, at, id"
        return self._blocks(view, order, number)

    def children(self, view: View, parent: bytes, until: int) -> list[Header]:
        """The blocks with a parent that were complete with an event, in the order of these."""
        where = "parent = ? AND at IS NOT NULL AND at <= ? ORDER BY at"
        return _headers(self._blocks(view, where, parent, until))

    def below(self, view: View, hash_: bytes, until: int, limit: int) -> list[Header]:
        """Of blocks that hang on one, near or far, those that were complete with an event."""
        query = (
            "WITH RECURSIVE of(view) AS (SELECT id FROM views WHERE what = ?1),"
            " below(id, hash) AS (SELECT 0, ?2 UNION SELECT b.id, b.hash FROM below"
            # Left to itself it walks through all blocks for each.
            " CROSS JOIN blocks b INDEXED BY blocks_by_parent ON b.view = (SELECT view FROM of)"
            " AND b.parent = below.hash AND b.at <= ?3 LIMIT ?4)"
            " SELECT b.hash, b.number, b.weight, b.parent, b.at FROM below"
            " JOIN blocks b ON b.id = below.id"
        )
        # The one that it begins with is none of them.
        bound = (view.what, hash_, until, limit + 1)
        rows = self._table.look(lambda db: [*db.execute(query, bound)])
        return [each for row in rows if (each := _header(*row)) is not None]

    def recent(self, view: View, number: int, until: int) -> list[Header]:
        """The same of blocks from a number on."""
        where = "number >= ? AND at IS NOT NULL AND at <= ? ORDER BY at"
        return _headers(self._blocks(view, where, number, until))

    def complete(self, view: View, behind: int) -> list[Header]:
        """Some of the blocks that were complete behind an event, in the order of these."""
        where = "number IS NOT NULL AND at > ? ORDER BY at LIMIT ?"
        return _headers(self._blocks(view, where, behind, EVENTS_MAX))

    def incomplete(self, view: View, limit: int) -> list[BlockRow]:
        """Blocks that wait for something, the highest numbers first."""
        where = "at IS NULL ORDER BY number IS NULL, number DESC LIMIT ?"
        return self._blocks(view, where, limit)

    def counts(self, view: View) -> tuple[int, int]:
        """How many blocks are complete, and how many are not."""
        query = (
            "SELECT count(b.at), count(*) - count(b.at) FROM views v JOIN blocks b"
            " ON b.view = v.id WHERE v.what = ? AND length(b.hash) = 32"
        )
        found: tuple[int, int] = self._table.look(
            lambda db: next(iter(db.execute(query, (view.what,))))
        )
        return found

    def _blocks(self, view: View, where: str, *bound: bytes | int) -> list[BlockRow]:
        query = (
            f"SELECT id, {_BLOCK}, producer, state FROM blocks"  # noqa: S608 (constants)
            f" WHERE view = (SELECT id FROM views WHERE what = ?) AND {where}"
        )
        return [_block_row(row) for row in self._table.rows(query, (view.what, *bound))]

    def first_held(self, view: View) -> Header | None:
        """The first block of the chain behind all that were deleted here; None: nothing was.

        The chain is that of the heaviest block. In a table that was made behind it what was deleted
        is not known, and it begins where a block is missing.
        """

        def load(db: apsw.Connection) -> Header | None:
            view_id: int | None = db.execute(
                "SELECT id FROM views v WHERE what = ? AND EXISTS"
                " (SELECT 1 FROM logs WHERE view = v.id AND dropped IS NOT NULL)",
                (view.what,),
            ).get
            query = f"SELECT {_BLOCK} FROM blocks WHERE view = ? AND at IS NOT NULL AND NOT dropped"  # noqa: S608
            heaviest = (
                " AND number IS NOT NULL ORDER BY length(weight) DESC, weight DESC, at LIMIT 1"
            )
            row = db.execute(query + heaviest, (view_id,)).fetchone()
            first: Header | None = None
            while row is not None and (found := _header(*row)) is not None:
                if first is not None and found.number >= first.number:
                    break
                first = found
                row = db.execute(query + " AND hash = ?", (view_id, first.parent)).fetchone()
            return first

        return self._table.look(load)

    def places(self, block: BlockRow) -> list[Place]:
        """Where the messages of a block lie, in the order they came.

        Of one that is complete up to the message that made it so: what comes later is not in it.
        """
        query = (
            "SELECT l.author, l.log_id, p.seq, l.producer, p.first, p.start, p.stop,"
            " iif(p.taken = b.taken, b.frame, NULL) FROM blocks b JOIN places p ON p.block = b.id"
            " JOIN logs l ON l.id = p.log"
            " WHERE b.id = ? AND p.taken <= ifnull(b.taken, p.taken) ORDER BY p.taken"
        )
        return self._table.look(
            lambda db: [
                Place(
                    LogKey(author, unpack_u64(log_id)),
                    unpack_u64(seq),
                    producer,
                    Span(*span),
                    frame,
                )
                for author, log_id, seq, producer, *span, frame in db.execute(query, (block.id,))
            ]
        )

    def held_from(self, view: View, key: LogKey, seq: int) -> list[tuple[int, int | None]]:
        """Some entries of a log from one on, and by which event what each holds was taken.

        That is a block that is complete, or a reorganisation; None: not yet. An entry that holds
        several things comes as often, and whole.
        """

        def load(db: apsw.Connection) -> list[tuple[int, int | None]]:
            query = (
                "SELECT p.seq, b.at FROM views v JOIN logs l ON l.view = v.id JOIN places p"
                " ON p.log = l.id JOIN blocks b ON b.id = p.block WHERE v.what = ? AND l.author = ?"
                " AND l.log_id = ? AND p.seq >= ? ORDER BY p.seq"
            )
            bound = (view.what, key.author, pack_u64(key.log_id), pack_u64(seq))
            found: list[tuple[int, int | None]] = []
            for packed, at in db.execute(query, bound):
                number = unpack_u64(packed)
                if len(found) >= EVENTS_MAX and number != found[-1][0]:
                    break
                found.append((number, at))
            return found

        return self._table.look(load)

    def until(self, view: View, key: LogKey, seq: int) -> int | None:
        """The last event before any to which something in a log belongs, from an entry of it on.

        None: there is none.
        """
        query = (
            "SELECT min(b.at) - 1 FROM views v JOIN logs l ON l.view = v.id JOIN places p"
            " ON p.log = l.id JOIN blocks b ON b.id = p.block WHERE v.what = ? AND l.author = ?"
            " AND l.log_id = ? AND p.seq >= ?"
        )
        bound = (view.what, key.author, pack_u64(key.log_id), pack_u64(seq))
        found: int | None = self._table.look(lambda db: db.execute(query, bound).get)
        return found

    def messages(self, places: Iterable[Place], hash_: bytes) -> Iterator[Come]:
        """The messages of a block in some places, those that are held."""
        for place in places:
            entry = sound_entry(self._store, place.log, place.seq, self._say_damaged)
            if entry is not None:
                payload = payload_of(self._store, entry)
                yield from messages_in(payload, place.span, place.producer, hash_, place.frame)


def _position(db: apsw.Connection, what: str) -> int | None:
    found: int | None = db.execute("SELECT ingest FROM views WHERE what = ?", (what,)).get
    return found


def _forget(db: apsw.Connection, view: int) -> None:
    db.execute("DELETE FROM places WHERE block IN (SELECT id FROM blocks WHERE view = ?)", (view,))
    for table in ("blocks", "events", "logs", "reorgs"):
        db.execute(f"DELETE FROM {table} WHERE view = ?", (view,))  # noqa: S608 (constants)
    db.execute("DELETE FROM views WHERE id = ?", (view,))


def _header(
    hash_: bytes, number: int | None, weight: bytes, parent: bytes, at: int | None
) -> Header | None:
    if number is None:
        return None
    return Header(hash_, number, int.from_bytes(weight, "big"), parent, at or 0)


def _block_row(row: tuple) -> BlockRow:  # type: ignore[type-arg]
    id_, hash_, number, weight, parent, at, producer, state = row
    header = _header(hash_, number, weight, parent, at)
    return BlockRow(id_, hash_, header, producer, bool(state & State.SPLIT))


def _headers(blocks: Iterable[BlockRow]) -> list[Header]:
    return [each.header for each in blocks if each.header is not None]


def _event(view: View, row: tuple) -> Event:  # type: ignore[type-arg]
    at, kind, author, log_id, seq, what, hash_, number, weight, parent = row
    if kind == taking.COMPLETE:
        header = _header(hash_, number, weight, parent, at)
        assert header is not None
        return CompleteEvent(at, header)
    if kind == taking.REORG_DONE:
        return ReorgDone(at)
    fields = json.loads(what)
    if kind == taking.CONFLICT:
        producers = tuple(view.streams[each].key.author for each in fields["producers"])
        return ConflictEvent(at, hash_, bytes.fromhex(fields["key"]), producers)
    if kind == taking.BAD:
        key = LogKey(author, unpack_u64(log_id))
        return BadEvent(at, key, unpack_u64(seq), fields["index"], fields["reason"])
    channel = None if fields["channel"] is None else LogKey(author, fields["channel"])
    ancestor = bytes.fromhex(fields["hash"])
    number, is_news = fields["number"], fields["is_news"]
    return ReorgEvent(at, number, ancestor, channel, is_news)
