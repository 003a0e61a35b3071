"""Entries into rows: what the side table remembers of a view, brought on by the change feed.

See `side` for what it is good for. Everything here runs inside one transaction of the table at a
time, begun by whoever calls `take_some`; blocks.

What is in memory beside the table is an `Assembly` and how far the feed was taken. Both are true as
long as nobody else has taken the view further, and no transaction was taken back.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import apsw

from gateways import pack_u64, sound_entries, sound_entry, unpack_u64
from gateways.cardinal.assembly import (
    Assembly,
    Bad,
    Changed,
    Come,
    Complete,
    Conflict,
    Happened,
    Opened,
)
from gateways.cardinal.codec import (
    BATCH_DELETE_MSG,
    PREFIX_BYTES,
    Reorg,
    ReorgComplete,
    decode_message,
    encode_weight,
)
from gateways.cardinal.counted import State
from gateways.cardinal.counting import IsTracked
from gateways.cardinal.declared import ReorgDeclared, read_declared
from gateways.cardinal.frames import channel_of, frames_of, placed_frames
from gateways.cardinal.headers import Header
from gateways.declaration import DeclarationError
from gateways.reading import CodecError
from logstore import Change, PayloadState, Store, StoreDamaged, StoredEntry
from wire import LogKey

from .logs import payload_of
from .shelf import Shelf

PAGE_ENTRIES: Final = 2_048
PAGE_BYTES: Final = 16 << 20
"""Of payloads, taken in one transaction: others wait for it."""
_READ_ENTRIES: Final = 256
_READ_BYTES: Final = 4 << 20
PLACE_BITS: Final = 24
"""Of an event's number: an entry, and what of a channel is taken with it, has not as many."""
EVENT_MAX: Final = (1 << 63) - 1
BAD_MAX: Final = 1_000
"""Bad messages of an entry that are told: three bytes would else be a row each."""
COMPLETE, CONFLICT, BAD, REORG, REORG_DONE = range(1, 6)
"""Kinds of events."""
_TOPIC, _CHANNEL, _CHANNEL_WAITS, NO_CHANNEL = range(4)
"""Kinds of logs. The last two: entry 1 is not here; it declares something else."""

STATEMENTS: Final = (
    (
        "CREATE TABLE logs(id INTEGER PRIMARY KEY, view INTEGER NOT NULL, author BLOB NOT NULL,"
        " log_id BLOB NOT NULL, producer INTEGER NOT NULL, kind INTEGER NOT NULL, dropped BLOB)"
    ),
    "CREATE UNIQUE INDEX logs_by_key ON logs(view, author, log_id)",
    # `at`: of the event by which it is complete; `taken` and `frame`: by which message. A
    # reorganisation has a row too, for its place.
    (
        "CREATE TABLE blocks(id INTEGER PRIMARY KEY, view INTEGER NOT NULL, hash BLOB NOT NULL,"
        " state INTEGER NOT NULL, number INTEGER, weight BLOB, parent BLOB, at INTEGER,"
        " producer INTEGER, dropped INTEGER NOT NULL DEFAULT 0, taken INTEGER, frame INTEGER)"
    ),
    "CREATE UNIQUE INDEX blocks_by_hash ON blocks(view, hash)",
    "CREATE INDEX blocks_by_parent ON blocks(view, parent, at) WHERE at IS NOT NULL",
    "CREATE INDEX blocks_by_number ON blocks(view, number, at)",
    "CREATE INDEX blocks_by_event ON blocks(view, at) WHERE at IS NOT NULL",
    "CREATE INDEX blocks_incomplete ON blocks(view) WHERE at IS NULL",
    (
        "CREATE TABLE places(block INTEGER NOT NULL, taken INTEGER NOT NULL, log INTEGER NOT NULL,"
        " seq BLOB NOT NULL, first INTEGER, start INTEGER, stop INTEGER,"
        " PRIMARY KEY (block, taken)) WITHOUT ROWID"
    ),
    "CREATE INDEX places_by_entry ON places(log, seq)",
    (
        "CREATE TABLE reorgs(view INTEGER NOT NULL, hash BLOB NOT NULL, producer INTEGER NOT NULL,"
        " count INTEGER NOT NULL, PRIMARY KEY (view, hash, producer)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE events(view INTEGER NOT NULL, at INTEGER NOT NULL, kind INTEGER NOT NULL,"
        " block INTEGER, log INTEGER NOT NULL, seq BLOB NOT NULL, what TEXT,"
        " PRIMARY KEY (view, at)) WITHOUT ROWID"
    ),
)


_Frame = tuple[bytes, bytes, int]
"""A key, a value, and where it ends."""


class Span(NamedTuple):
    """Which part of a payload has all messages of a block that are in it.

    An entry may have messages of thousands of blocks: without it each of them would have to be
    looked for among those of all others.
    """

    first: int
    """The place of its first frame, from 0 on."""
    start: int
    stop: int
    """Bytes; `stop` is behind the last."""


class _Log(NamedTuple):
    id: int
    key: LogKey
    producer: int
    kind: int


@dataclass(slots=True)
class _Step:
    """A step of the feed that is taken."""

    ingest: int
    bad: int = 0
    """Bad messages that it had."""
    at: int = field(init=False)
    """The number of the next event."""
    taken: int = field(init=False)
    """Of the entry: more are taken in one step where a channel is opened."""

    def __post_init__(self) -> None:
        self.at = self.taken = self.ingest << PLACE_BITS


@dataclass(slots=True)
class _Reading:
    """An entry that is taken, and how far."""

    payload: bytes = b""
    index: int = 0
    """Of the frame that is taken now."""
    start: int = 0
    """Where it begins."""
    _begun: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def go_on(self, end: int) -> None:
        """The frame was taken."""
        self.index += 1
        self.start = end

    def begin(self, hash_: bytes) -> None:
        """The frame is of this block."""
        self._begun.setdefault(hash_, (self.index, self.start))

    def span(self, hash_: bytes) -> Span:
        """What was taken of a block."""
        return Span(*self._begun[hash_], self.start)


def messages_in(
    payload: bytes, span: Span, producer: int, hash_: bytes, frame: int | None = None
) -> Iterator[Come]:
    """The messages of a block in a payload. `frame`: the last one that counts, None: all do."""
    count = None if frame is None else frame + 1 - span.first
    for key, value in islice(frames_of(payload[span.start : span.stop]), count):
        if key[1:PREFIX_BYTES] == hash_ and _is_of_block(key):
            yield Come(producer, key, value)


class Taking:
    """One process's way through the feed for one view.

    `logs`: those it begins with, and whose they are. `is_channel`: there is one, of a
    reorganisation. `chain`: which a channel has to be of. `ingest`: up to where the feed was taken.
    """

    def __init__(
        self,
        store: Store,
        damaged: Callable[[StoreDamaged], object],
        *,
        view: int,
        ingest: int,
        logs: list[tuple[LogKey, int]],
        is_channel: bool,
        chain: str,
        is_tracked: IsTracked,
    ) -> None:
        self._store = store
        self._damaged = damaged
        self.view: Final = view
        self.ingest = ingest
        self.touch_at_s = 0.0
        """When the table is to be told that the view is still used, on Python's monotonic clock."""
        self._begins_with = logs
        self._is_channel = is_channel
        self._chain = chain
        self._assembly = Assembly(self, shelf=Shelf(), is_tracked=is_tracked)
        self._logs: dict[LogKey, _Log] = {}
        # What is taken now.
        self._db: apsw.Connection
        self._step = _Step(0)
        self._log: _Log
        self._entry: StoredEntry
        self._reading = _Reading()
        self._block = 0
        self._state: int | None = None
        self._channels: list[_Log] = []
        """Those to be read behind this entry."""
        self.in_order = True
        """Whether the entries of the last page came in the order of their logs."""
        self._newest: dict[int, int] = {}

    def take_some(self, db: apsw.Connection) -> bool:
        """Takes a page of the feed; whether that was the last."""
        self._db = db
        self.in_order = True
        self._load_logs()
        position = self._store.position()
        taken_bytes = 0
        for _ in range(PAGE_ENTRIES // _READ_ENTRIES):
            changes = self._store.changes(self.ingest, _READ_ENTRIES)
            entries = self._read(changes)
            for change in changes:
                if change.key in self._logs:
                    entry = entries.get(change.ingest)
                    taken_bytes += self._take(self._logs[change.key], change, entry)
                self.ingest = change.ingest
                if taken_bytes > PAGE_BYTES:
                    return False
            if len(changes) < _READ_ENTRIES:
                self.ingest = max(self.ingest, position)
                return True
        return False

    def _read(self, changes: Sequence[Change]) -> dict[int, StoredEntry]:
        """The entries of some steps, as many as are read at once, which is eight times as fast.

        None where most are of other logs, or one is damaged: then each is asked for alone.
        """
        ours = sum(1 for each in changes if each.key in self._logs)
        if 2 * ours < len(changes):
            return {}
        try:
            found = self._store.read_changes(
                self.ingest, entries_max=len(changes), bytes_max=_READ_BYTES
            )
        except StoreDamaged:
            return {}
        return {each.ingest: each for each in found}

    # Logs ----------------------------------------------------------------------------------------

    def _load_logs(self) -> None:
        rows = self._db.execute(
            "SELECT id, author, log_id, producer, kind FROM logs WHERE view = ?", (self.view,)
        )
        logs = [
            _Log(id_, LogKey(author, unpack_u64(log_id)), producer, kind)
            for id_, author, log_id, producer, kind in rows
        ]
        self._logs = {each.key: each for each in logs}
        if not self._logs:
            kind = _CHANNEL if self._is_channel else _TOPIC
            for key, producer in self._begins_with:
                # Two streams may claim one log: it is the first's.
                if key not in self._logs:
                    self._add_log(key, producer, kind)

    def _add_log(self, key: LogKey, producer: int, kind: int) -> _Log:
        self._db.execute(
            "INSERT INTO logs(view, author, log_id, producer, kind) VALUES (?, ?, ?, ?, ?)",
            (self.view, key.author, pack_u64(key.log_id), producer, kind),
        )
        made = self._logs[key] = _Log(self._db.last_insert_rowid(), key, producer, kind)
        return made

    def _name_channel(self, log_id: int) -> int | None:
        """A note names a channel of a reorganisation: None if it is known that it names none."""
        key = LogKey(self._log.key.author, log_id)
        known = self._logs.get(key)
        if known is None:
            known = self._add_log(key, self._log.producer, _CHANNEL_WAITS)
            entry = sound_entry(self._store, key, 1, self._damaged)
            # What came since, by the feed, is met there: a table that is made anew is told so too.
            if entry is not None and entry.ingest < self._step.ingest:
                known = self._open_channel(known, entry)
        return log_id if known.kind in (_CHANNEL, _CHANNEL_WAITS) else None

    def _open_channel(self, channel: _Log, first: StoredEntry) -> _Log:
        """Entry 1 of a channel is here, unless its payload is not."""
        if first.payload_state is not PayloadState.PRESENT:
            return channel
        try:
            # One that lies in a file is larger than any declaration.
            declared = read_declared(first.payload or b"")
        except DeclarationError:
            declared = None
        is_one = isinstance(declared, ReorgDeclared) and declared.chain == self._chain
        opened = channel._replace(kind=_CHANNEL if is_one else NO_CHANNEL)
        self._db.execute("UPDATE logs SET kind = ? WHERE id = ?", (opened.kind, opened.id))
        self._logs[opened.key] = opened
        if is_one:
            self._channels.append(opened)
        return opened

    # Entries -------------------------------------------------------------------------------------

    def _take(self, of: _Log, change: Change, entry: StoredEntry | None) -> int:
        """Takes a step of the feed; the bytes of its payload."""
        if change.payload_state is PayloadState.DELETED:
            self._drop(of, change.seq)
            return 0
        if change.payload_state is not PayloadState.PRESENT:
            return 0
        if entry is None:
            entry = sound_entry(self._store, change.key, change.seq, self._damaged)
        if entry is None or entry.ingest != change.ingest:
            # It has come again since, and is met further on.
            return 0
        self._step = _Step(change.ingest)
        if of.kind == _CHANNEL_WAITS and entry.seq == 1:
            self._open_channel(of, entry)
        elif of.kind in (_TOPIC, _CHANNEL):
            self._take_entry(of, entry)
        while self._channels:
            channel = self._channels.pop()
            for each in sound_entries(self._store, channel.key, 2, self._damaged):
                if each.ingest < change.ingest:
                    self._step.taken += 1
                    self._take_entry(channel, each)
        return entry.payload_bytes

    def _drop(self, of: _Log, seq: int) -> None:
        """A payload was deleted here."""
        packed = pack_u64(seq)
        self._db.execute(
            "UPDATE blocks SET dropped = 1 WHERE id IN"
            " (SELECT block FROM places WHERE log = ? AND seq = ?)",
            (of.id, packed),
        )
        self._db.execute(
            "UPDATE logs SET dropped = max(ifnull(dropped, ?1), ?1) WHERE id = ?2", (packed, of.id)
        )

    def _take_entry(self, of: _Log, entry: StoredEntry) -> None:
        self._log, self._entry, self._reading = of, entry, _Reading()
        self.in_order &= entry.seq > self._newest.get(of.id, 0)
        self._newest[of.id] = entry.seq
        channel: int | None = None
        frames = self._frames(entry)
        frame = next(frames, None)
        while frame is not None:
            key, value, end = frame
            # A note is about the frame behind it, and nothing further.
            named, channel = channel, None
            if _is_of_block(key):
                frame = self._take_run(frame, frames)
                continue
            if key:
                self._take_other(key, value, named)
            else:
                channel = channel_of(value)
            self._reading.go_on(end)
            frame = next(frames, None)

    def _frames(self, entry: StoredEntry) -> Iterator[_Frame]:
        try:
            payload = self._reading.payload = payload_of(self._store, entry)
            yield from placed_frames(payload)
        except CodecError as error:
            self._add_bad(str(error))

    def _take_other(self, key: bytes, value: bytes, channel: int | None) -> None:
        """A message that is of no block."""
        try:
            message = decode_message(key, value)
        except CodecError as error:
            self._add_bad(str(error))
            return
        if isinstance(message, ReorgComplete) and self._is_channel:
            self._add_event(REORG_DONE)
        elif isinstance(message, Reorg) and self._log.kind == _TOPIC:
            if channel is not None:
                channel = self._name_channel(channel)
            what = {
                "number": message.number,
                "hash": message.hash.hex(),
                "channel": channel,
                "is_news": self._count_reorg(message.hash),
            }
            at = self._add_event(REORG, what=what)
            # It has a place as a block has: whoever has not heard of it begins there.
            self._db.execute(
                "INSERT INTO blocks(view, hash, state, at) VALUES (?, ?, ?, ?)",
                (self.view, key + pack_u64(at), State.CLOSED, at),
            )
            self._add_place(self._db.last_insert_rowid(), Span(0, 0, 0))

    def _count_reorg(self, hash_: bytes) -> bool:
        """Whether this producer has said so more often than any other one before (3.5)."""
        bound = (self.view, hash_, self._log.producer)
        self._db.execute(
            "INSERT INTO reorgs VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
            bound,
        )
        most = "SELECT max(count) FROM reorgs WHERE view = ? AND hash = ? AND producer <> ?"
        mine = "SELECT count FROM reorgs WHERE view = ? AND hash = ? AND producer = ?"
        return bool(self._db.execute(mine, bound).get > (self._db.execute(most, bound).get or 0))

    # Messages of a block -------------------------------------------------------------------------

    def _take_run(self, first: _Frame, frames: Iterator[_Frame]) -> _Frame | None:
        """What stands together of one block; the frame behind it."""
        hash_ = first[0][1:PREFIX_BYTES]
        reading = self._reading
        reading.begin(hash_)
        behind: _Frame | None = None

        def run() -> Iterator[tuple[bytes, bytes]]:
            nonlocal behind
            key, value, end = first
            yield key, value
            reading.go_on(end)
            for key, value, end in frames:
                # With a hash in it, it is long enough.
                if key[1:PREFIX_BYTES] != hash_ or key[0] > BATCH_DELETE_MSG:
                    behind = key, value, end
                    return
                yield key, value
                # As `go_on` does: to call it takes longer.
                reading.index += 1
                reading.start = end

        row = self._db.execute(
            "SELECT id, state FROM blocks WHERE view = ? AND hash = ?", (self.view, hash_)
        ).fetchone()
        if row is None:
            self._db.execute(
                "INSERT INTO blocks(view, hash, state) VALUES (?, ?, 0)", (self.view, hash_)
            )
            self._block, self._state = self._db.last_insert_rowid(), None
        else:
            self._block, self._state = row
        # One statement for all that a run changes of its block, which is most of it at once.
        changed: dict[str, apsw.SQLiteValue] = {}
        for happened in self._assembly.take_run(self._log.producer, hash_, run()):
            self._note(happened, changed)
        if changed:
            columns = ", ".join(f"{name} = ?" for name in changed)
            self._db.execute(
                f"UPDATE blocks SET {columns} WHERE id = ?",  # noqa: S608 (constants)
                (*changed.values(), self._block),
            )
        self._add_place(self._block, reading.span(hash_))
        return behind

    def _note(self, happened: Happened, changed: "dict[str, apsw.SQLiteValue]") -> None:
        match happened:
            case Opened(header):
                changed |= _columns(header)
            case Complete(header, producer):
                if producer is not None:
                    # The first Batch may have been another producer's.
                    changed |= _columns(header)
                changed["at"] = self._add_event(COMPLETE, block=self._block)
                changed["producer"] = producer
                # What comes later is compared with it, and is not in it.
                changed["taken"], changed["frame"] = self._step.taken, self._reading.index
            case Changed(state):
                changed["state"] = state
            case Conflict(_, key, producers):
                what = {"key": key.hex(), "producers": producers}
                self._add_event(CONFLICT, block=self._block, what=what)
            case Bad(reason):
                self._add_bad(reason)

    def _add_place(self, block: int, span: Span) -> None:
        self._db.execute(
            "INSERT INTO places VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET stop = excluded.stop",
            (block, self._step.taken, self._log.id, pack_u64(self._entry.seq), *span),
        )

    def _add_bad(self, reason: str) -> None:
        self._step.bad += 1
        if self._step.bad > BAD_MAX:
            return
        if self._step.bad == BAD_MAX:
            reason += f"; of {BAD_MAX} in one entry this is the last that is told"
        self._add_event(BAD, what={"index": self._reading.index, "reason": reason})

    def _add_event(
        self, kind: int, *, block: int | None = None, what: Mapping[str, object] | None = None
    ) -> int:
        at, self._step.at = self._step.at, self._step.at + 1
        said = None if what is None else json.dumps(what)
        self._db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.view, at, kind, block, self._log.id, pack_u64(self._entry.seq), said),
        )
        return at

    # What the assembly asks ----------------------------------------------------------------------

    def state(self, _: bytes) -> int | None:
        """Of the block of which messages are taken now; None of one that was not met before."""
        return self._state

    def messages(self, hash_: bytes) -> Iterator[Come]:
        """Of that block, those before the one that is taken now."""
        rows = self._db.execute(
            "SELECT l.author, l.log_id, p.seq, l.producer, p.first, p.start, p.stop FROM places p"
            " JOIN logs l ON l.id = p.log WHERE p.block = ? AND p.taken < ? ORDER BY p.taken",
            (self._block, self._step.taken),
        )
        for author, log_id, seq, producer, *span in rows:
            key = LogKey(author, unpack_u64(log_id))
            entry = sound_entry(self._store, key, unpack_u64(seq), self._damaged)
            if entry is not None:
                payload = payload_of(self._store, entry)
                yield from messages_in(payload, Span(*span), producer, hash_)
        reading = self._reading
        yield from messages_in(reading.payload, reading.span(hash_), self._log.producer, hash_)


def _is_of_block(key: bytes) -> bool:
    return len(key) >= PREFIX_BYTES and key[0] <= BATCH_DELETE_MSG


def _columns(header: Header) -> "dict[str, apsw.SQLiteValue]":
    weight = encode_weight(header.weight)
    return {"number": header.number, "weight": weight, "parent": header.parent}
