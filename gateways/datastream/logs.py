"""A stream as its log says it is (section 4): applied entry by entry, and read back in pieces.

`StreamLog` keeps the index of one log up to date and reads through it. It blocks, and may be used
from any thread. What is visible is decided by the log's bytes alone.
"""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import apsw

from gateways import (
    Prefix,
    SideTable,
    Standing,
    entries_from,
    holds_still,
    read_to_damage,
    side_path,
    standing_of,
)
from gateways.datastream.codec import (
    BOOKMARK,
    BOOKMARK_BYTES_MAX,
    ENTRY_HEAD,
    FIRST_PLACE,
    TRUNCATION_BYTES_MAX,
    Declaration,
    Entry,
    Header,
    OperationScanner,
    decode_declaration,
    decode_entry,
    decode_truncation,
    place,
)
from gateways.reading import CodecError
from logstore import PayloadUnavailable, Store, StoreDamaged, StoredEntry
from wire import LogKey
from wire import decode_entry as decode_log_entry

from . import index
from .errors import NotAStream
from .index import Anchor, StreamRow

PIECE_BYTES: Final = 1 << 18
SCAN_BYTES: Final = 1 << 20
_BATCH_ENTRIES: Final = 1024
_BATCH_BYTES: Final = 4 << 20
_ANCHORS_READ: Final = 512


class State(NamedTuple):
    """A stream at one moment."""

    declaration: Declaration | None
    """None while entry 1 is not here."""
    seq: int
    """The last log entry that was applied."""
    total_entries: int
    total_length: int
    broken: str
    """Why log entry `seq` + 1 can never be applied."""
    cuts: int
    """How often the stream went back; another number means that `lowest_cut` has to be asked."""

    @property
    def why_broken(self) -> str:
        """`broken` with its place; empty if it is not."""
        return f"log entry {self.seq + 1}: {self.broken}" if self.broken else ""

    @property
    def header(self) -> Header:
        """What clients are told. Only of a stream that is declared."""
        assert self.declaration is not None
        declared = self.declaration
        return Header(
            declared.file_version,
            declared.system_id,
            declared.stream_type,
            self.total_length,
            self.total_entries,
        )


class Piece(NamedTuple):
    """Data packets of the entries from `first` up to the one before `end`."""

    data: bytes
    first: int
    end: int
    cuts: int
    """As in the `State` that it was read from."""


class _Unreadable(Exception):  # noqa: N818 - what was found
    """A payload that was held is not any more: nothing more can be applied for now."""


class StreamLog:
    """One stream of a store. Blocks. Raises StoreError throughout."""

    def __init__(self, store: Store, key: LogKey) -> None:
        self.store: Final = store
        self.key: Final = key
        path = side_path(store, index.FILE_NAME)
        self._table = SideTable(path, index.VERSION, index.STATEMENTS)
        self._readers = SideTable(path, index.VERSION, index.STATEMENTS)
        self._updating = threading.Lock()
        self._unreadable = ""

    def close(self) -> None:
        """Closes the index."""
        self._table.close()
        self._readers.close()

    @property
    def _reads(self) -> SideTable:
        """Readers of a file do not wait for what is being applied; memory has one connection."""
        is_shared = not (self._table.in_memory or self._readers.in_memory)
        return self._readers if is_shared else self._table

    # Applying

    def update(self) -> State:
        """Brings the index up to date with the store, and says how it stands.

        Raises StoreDamaged where it comes to damage; what is before that was applied.
        """
        with self._updating:
            while True:
                row, is_done = self._table.run(self._advance)
                if is_done:
                    return _state_of(row)

    def state(self) -> State:
        """How it stood when the index was last brought up to date, by whomever."""
        row = self._reads.look(lambda db: index.load_stream(db, self.key))
        return _state_of(row or _NOTHING)

    def standing(self, state: State) -> Prefix:
        """How it stands with the log, for people."""
        if state.broken:
            info = self.store.log(self.key)
            return Prefix(Standing.BROKEN, state.why_broken, info.height if info else 0)
        place_ = standing_of(self.store, self.key, state.seq)
        return place_._replace(reason=self._unreadable) if self._unreadable else place_

    def lowest_cut(self, after: int, now: int) -> int | None:
        """The number that the stream went back to between two `cuts`; None: it did not."""

        def load(db: apsw.Connection) -> int | None:
            row = index.load_stream(db, self.key)
            return 0 if row is None else index.lowest_cut(db, row.id, after, now)

        return None if after == now else self._reads.look(load)

    def _advance(self, db: apsw.Connection) -> tuple[StreamRow, bool]:
        """One step: some log entries; True if there are no more."""
        row = index.load_stream(db, self.key) or index.create_stream(db, self.key, FIRST_PLACE)
        before = row
        if row.seq and not holds_still(self.store, self.key, row.seq, row.hash):
            row = self._start_over(db, row)
        if row.broken:
            return row, True
        entries = entries_from(
            self.store,
            self.key,
            row.seq + 1,
            entries_max=_BATCH_ENTRIES,
            bytes_max=_BATCH_BYTES,
        )
        is_done = not entries
        self._unreadable = ""
        for entry in entries:
            db.execute("SAVEPOINT entry")
            try:
                row = self._apply(db, row, entry)._replace(seq=entry.seq, hash=entry.hash)
            except (CodecError, _Unreadable, StoreDamaged) as error:
                # Nothing of a log entry that is not valid is visible, nor of one that stopped half.
                db.execute("ROLLBACK TO entry")
                if isinstance(error, StoreDamaged):
                    if row == before:
                        raise
                    # What was applied before it is committed; the next step begins with it.
                    break
                if isinstance(error, CodecError):
                    row = row._replace(broken=str(error))
                else:
                    self._unreadable = str(error)
                is_done = True
                break
            finally:
                db.execute("RELEASE entry")
        if row != before:
            index.save_stream(db, row)
        return row, is_done

    def _start_over(self, db: apsw.Connection, row: StreamRow) -> StreamRow:
        """The log is forked below what was applied, or the index is of another time."""
        info = self.store.log(self.key)
        kept = 0 if info is None else min(info.servable, info.height)
        lowest = index.lowest_truncation(db, row.id, kept)
        anchor = db.execute(
            "SELECT min(number) FROM anchors WHERE stream = ? AND seq > ?", (row.id, kept)
        ).get
        numbers = [number for number in (lowest, anchor) if number is not None]
        # An index whose hash is another one at a place that is held knows nothing of this log.
        number = min(numbers, default=row.entries) if kept < row.seq else 0
        return index.add_cut(db, index.clear_stream(db, row, FIRST_PLACE), number)

    def _apply(self, db: apsw.Connection, row: StreamRow, entry: StoredEntry) -> StreamRow:
        if entry.seq == 1:
            payload = self._small(entry, "a declaration")
            decode_declaration(payload)
            return row._replace(declaration=payload)
        if entry.payload_bytes == 0:
            if decode_log_entry(entry.encoded).is_end:
                return row
            raise CodecError("an entry without bytes that does not end the log")
        first = entry.payload[:1] if entry.payload is not None else self._first_byte(entry)
        if first == b"{":
            if entry.payload_bytes > TRUNCATION_BYTES_MAX:
                raise CodecError("a record that is no truncation")
            payload = self._small(entry, "a truncation")
            return self._truncate(db, row, entry.seq, decode_truncation(payload, row.entries))
        if first != b"\x02":
            raise CodecError(f"first byte {first[0]}, neither an operation nor a truncation")
        return self._add(db, row, entry)

    def _small(self, entry: StoredEntry, what: str) -> bytes:
        if entry.payload is None:
            raise CodecError(f"{what} of {entry.payload_bytes} bytes")
        return entry.payload

    def _first_byte(self, entry: StoredEntry) -> bytes:
        return next(self._pieces_of(entry, 1))

    def _pieces_of(self, entry: StoredEntry, piece_bytes: int = SCAN_BYTES) -> Iterator[bytes]:
        if entry.payload is not None:
            yield entry.payload
            return
        try:
            with self.store.open_payload(self.key, entry.seq) as reader:
                offset = 0
                while piece := reader.read(offset, piece_bytes):
                    yield piece
                    offset += len(piece)
        except PayloadUnavailable:
            raise _Unreadable(f"the payload of entry {entry.seq} was deleted here") from None

    def _add(self, db: apsw.Connection, row: StreamRow, entry: StoredEntry) -> StreamRow:
        """Applies an operation."""
        scanner = OperationScanner(row.entries)
        number, length = row.entries, row.length
        start = Anchor(number, entry.seq, 0, 0, length)
        for piece in self._pieces_of(entry):
            anchors: list[Anchor] = []
            bookmarks: list[tuple[bytes, int]] = []
            for offset, size, type_, mark in scanner.feed(piece):
                spanned = offset - start.offset
                full = number - start.number == index.SPAN_ENTRIES
                if spanned and (full or spanned + size > index.SPAN_BYTES):
                    anchors.append(start._replace(bytes=spanned))
                    start = Anchor(number, entry.seq, offset, 0, length)
                if type_ == BOOKMARK and mark and len(mark) <= BOOKMARK_BYTES_MAX:
                    bookmarks.append((mark, number))
                length = place(length, size) + size
                number += 1
            index.add_anchors(db, row.id, anchors)
            index.add_bookmarks(db, row.id, bookmarks)
        scanner.finish()
        last = start._replace(bytes=entry.payload_bytes - start.offset)
        index.add_anchors(db, row.id, [last])
        return row._replace(entries=number, length=length)

    def _truncate(self, db: apsw.Connection, row: StreamRow, seq: int, number: int) -> StreamRow:
        anchor = index.anchor_of(db, row.id, number)
        assert anchor is not None
        length, offset, at = anchor.length, 0, anchor.number
        data = self._bytes_of(anchor)
        while True:
            size = ENTRY_HEAD.unpack_from(data, offset)[1]
            if at == number:
                break
            length = place(length, size) + size
            offset += size
            at += 1
        kept = (anchor, offset) if offset else None
        index.truncate(db, row, seq, number, kept)
        row = index.add_cut(db, row, number)
        # The place of entry `number`, not the end of the one before it (2.3).
        return row._replace(entries=number, length=place(length, size))

    def _bytes_of(self, anchor: Anchor) -> bytes:
        try:
            return _Payloads(self.store, self.key, 1).slice(anchor)
        except PayloadUnavailable:
            raise _Unreadable(
                f"the payload of entry {anchor.seq}, which was truncated, was deleted here"
            ) from None

    # Reading

    def piece(self, number: int, bytes_max: int = PIECE_BYTES) -> Piece | None:
        """Whole entries from `number` on, `bytes_max` in all or a single larger one.

        None at the end of the stream. Raises PayloadUnavailable for what was dropped.
        """

        row, anchors = self._reads.look(partial(self._load_anchors, number=number))
        if row is None or not anchors:
            return None
        spans: list[Anchor] = []
        size = 0
        end = row.entries
        for at, anchor in enumerate(anchors):
            is_last_read = at == _ANCHORS_READ - 1
            if spans and (size + anchor.bytes > bytes_max or is_last_read):
                end = anchor.number
                break
            spans.append(anchor)
            size += anchor.bytes
        payloads = _Payloads(self.store, self.key, len(spans))
        parts: list[bytes] = []
        for span in spans:
            try:
                parts.append(payloads.slice(span))
            except (PayloadUnavailable, StoreDamaged):
                # Whoever asks for it next is told, when it is the first.
                if not parts:
                    raise
                end = span.number
                break
        payloads.close()
        parts[0] = _skip(parts[0], spans[0].number, number)
        return Piece(b"".join(parts), number, end, row.cuts)

    def spans(self) -> Iterator[tuple[Anchor, bytes]]:
        """All of the visible stream with the places where it lies. Raises PayloadUnavailable."""
        number = 0
        while True:
            row, anchors = self._reads.look(partial(self._load_anchors, number=number))
            if row is None or number >= row.entries:
                return
            # The first one is the one before, of the page before.
            fresh = anchors[1:] if number else anchors
            payloads = _Payloads(self.store, self.key, len(fresh))
            for anchor in fresh:
                yield anchor, payloads.slice(anchor)
            if len(anchors) < _ANCHORS_READ:
                return
            number = anchors[-1].number

    def _load_anchors(
        self, db: apsw.Connection, *, number: int
    ) -> tuple[StreamRow | None, list[Anchor]]:
        row = index.load_stream(db, self.key)
        if row is None or number >= row.entries:
            return row, []
        return row, index.anchors_from(db, row.id, number, _ANCHORS_READ)

    def entry(self, number: int) -> Entry | None:
        """One entry; None if it is not there, or its payload was dropped."""

        def load(db: apsw.Connection) -> Anchor | None:
            row = index.load_stream(db, self.key)
            if row is None or not 0 <= number < row.entries:
                return None
            return index.anchor_of(db, row.id, number)

        anchor = self._reads.look(load)
        if anchor is None:
            return None
        try:
            data = _Payloads(self.store, self.key, 1).slice(anchor)
        except PayloadUnavailable:
            return None
        return decode_entry(_skip(data, anchor.number, number))

    def seq_of(self, number: int) -> int:
        """The log entry in which an entry of the visible stream lies."""

        def load(db: apsw.Connection) -> Anchor | None:
            row = index.load_stream(db, self.key)
            return None if row is None else index.anchor_of(db, row.id, number)

        anchor = self._reads.look(load)
        assert anchor is not None
        return anchor.seq

    def bookmark(self, bookmark: bytes) -> int | None:
        """The number of a bookmark, the largest if it occurs more than once."""

        def load(db: apsw.Connection) -> int | None:
            row = index.load_stream(db, self.key)
            return None if row is None else index.bookmark_number(db, row.id, bookmark)

        return self._reads.look(load)

    def event_at(self, number: int) -> Entry | None:
        """The first entry from `number` on that is no bookmark, else the last one of the stream.

        None if it cannot be read. Upstream answers so.
        """
        last = None
        try:
            while piece := self.piece(number):
                offset = 0
                while offset < len(piece.data):
                    _, size, type_, _ = ENTRY_HEAD.unpack_from(piece.data, offset)
                    last = offset, piece
                    if type_ != BOOKMARK:
                        return decode_entry(piece.data, offset)
                    offset += size
                number = piece.end
        except PayloadUnavailable:
            return None
        return None if last is None else decode_entry(last[1].data, last[0])

    def declared(self) -> Declaration:
        """What the log declares. Raises NotAStream; call `update` first."""
        state = self.state()
        if state.declaration is None:
            raise NotAStream(
                state.broken or self.standing(state).reason, str(self.key), "name another log"
            )
        return state.declaration


class _Payloads:
    """Slices of payloads, the small ones read many at a time."""

    def __init__(self, store: Store, key: LogKey, count: int) -> None:
        self._store = store
        self._key = key
        self._left = count
        self._held: dict[int, StoredEntry] = {}

    def slice(self, anchor: Anchor) -> bytes:
        """The bytes of an anchor. Raises PayloadUnavailable, StoreDamaged."""
        entry = self._held.get(anchor.seq)
        if entry is None:
            rows = read_to_damage(
                self._store,
                self._key,
                anchor.seq,
                entries_max=self._left,
                bytes_max=2 * PIECE_BYTES,
            )
            self._held = {row.seq: row for row in rows}
            entry = self._held.get(anchor.seq)
        self._left = max(1, self._left - 1)
        if entry is not None and entry.payload is not None:
            return entry.payload[anchor.offset : anchor.offset + anchor.bytes]
        with self._store.open_payload(self._key, anchor.seq) as reader:
            parts: list[bytes] = []
            offset, left = anchor.offset, anchor.bytes
            while left:
                part = reader.read(offset, left)
                if not part:
                    raise StoreDamaged("the payload is short", str(self._key), "run verify")
                parts.append(part)
                offset += len(part)
                left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Forgets what was read."""
        self._held.clear()


def _skip(data: bytes, number: int, to: int) -> bytes:
    """Data packets from entry `to` on."""
    offset = 0
    while number < to:
        offset += ENTRY_HEAD.unpack_from(data, offset)[1]
        number += 1
    return data[offset:] if offset else data


_NOTHING: Final = StreamRow(0, b"", 0, b"", 0, FIRST_PLACE, "", 0)


def _state_of(row: StreamRow) -> State:
    declared = decode_declaration(row.declaration) if row.declaration else None
    return State(declared, row.seq, row.entries, row.length, row.broken, row.cuts)
