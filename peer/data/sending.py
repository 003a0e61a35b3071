"""What one request has to send next (point2point.md 3, 4, 8).

Pieces that the other side has sent and that verified here are passed with a notify, payloads that
it skipped and we do not hold either with a skip, and both only when something of our own follows.
Metadata is sent once it is verified; payloads have a module of their own (sending_payloads.py).

What leaves is asked for before the cursor moves at all (`MaySend`, planner/leaving.py), since a
notify or a skip tells what is held as well as an entry does. Rows are read ahead, so that the store
is not asked for each entry, and only so far (read_ahead.py); and where neighbours go as they are, a
whole run is made by slicing their encodings, which end in the bytes that a metadata packet carries.

There may be two requests of a log, each bringing what is new to one side: who has asked for notify
only cannot ask for more in that request (section 5). What the other side has sent in one of them it
would get back in the other. It holds it, and we have asked it for notifications there: its notify
is on its way, and is waited for. A notify of ours would be a violation (section 4). Whoever does
not keep to that, or lacks the payload, is waited for once (`payload_wait_s`).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from peer.protocol.commands import Command, ReadEntries
from peer.protocol.config import SessionConfig
from peer.protocol.events import HeldEntry
from peer.protocol.notices import Notice, note_sent
from peer.protocol.request import NEVER, Request
from peer.protocol.sequence import METADATA, Sequence
from peer.protocol.tracing import Tracer
from wire import (
    U64_MAX,
    CancelReason,
    Eagerness,
    LogKey,
    encode_metadata_packet,
    encode_run,
    has_distinct_lipmaalink,
)

from .packing import Packer, Packets, gathered, packets
from .read_ahead import ROW_BYTES, ReadAhead
from .sending_payloads import PayloadSender, pass_over, payload_bytes, skip_packet

_READ_AHEAD_ROWS = 128
"""With fewer rows than this at hand the next ones are read while these are sent: a quarter of what
is read at once (`read_entries_max`)."""


class MaySend(Protocol):
    """How much of a log may leave in this session, whatever is held and asked for."""

    def is_closed(self, request: Request) -> bool:
        """Whether nothing leaves in this request, be it a notify or a skip."""

    def limit_of(self, request: Request) -> int:
        """Up to which entry."""

    def held_back(self, request: Request) -> None:
        """More would be sent in this request if it might leave."""


class Sender:
    """Makes packets from rows; asks for rows and payload bytes when they run out."""

    def __init__(
        self,
        commands: list[Command],
        notices: list[Notice],
        config: SessionConfig,
        packer: Packer,
        payloads: PayloadSender,
        may_send: MaySend,
        ahead: ReadAhead,
        requests_of: Callable[[LogKey], Iterable[Request]],
        tracer: Tracer | None = None,
    ) -> None:
        """`requests_of`: all of a log."""
        self._tracer = tracer
        self._requests_of = requests_of
        self._ahead = ahead
        self._may_send = may_send
        self._packer = packer
        self._payloads = payloads
        self._commands = commands
        self._notices = notices
        self._config = config

    def pieces(self, request: Request, bytes_max: int) -> list[bytes | memoryview]:
        """The next packets of an active request, about `bytes_max` bytes; the cursor moves.

        Empty if there is nothing to send, if rows have to be read first, or if the request is
        complete or has to be cancelled.
        """
        parts: list[bytes | memoryview] = []
        size = 0
        while size < bytes_max and request.outgoing.cancel_due is None:
            before = request.outgoing.position, request.outgoing.progress
            made = self._step(request, bytes_max - size)
            if not made:
                break
            if self._tracer is not None:
                self._tracer.packets_made(request, *before, b"".join(made))
            parts += made
            size += sum(map(len, made))
        return gathered(parts)

    def _step(self, request: Request, bytes_max: int) -> Packets:
        base, outgoing = _base(request), request.outgoing
        limit = request.limit
        if limit is not None and outgoing.position >= limit:
            return ()
        if self._may_send.is_closed(request):
            # Before anything is passed: a notify or a skip tells what is held here.
            return ()
        available = _available(request, base)
        if available <= outgoing.position:
            return ()
        if not outgoing.in_piece and request.incoming.position >= outgoing.position:
            notify = self._catch_up(request, available)
            if notify is not None:
                return packets(notify)
        piece = base.piece(outgoing.position)
        may_send = self._may_send.limit_of(request)
        if piece.seq > may_send:
            self._may_send.held_back(request)
            return ()
        row = self._row(request, base, piece.seq)
        if row is None:
            return ()
        if piece.kind is not METADATA:
            if outgoing.waiting_at == outgoing.position - 1:
                # Its notify ended before the payload: for the next entry it would be so again.
                outgoing.waited_at = outgoing.waiting_at
            return self._payloads.piece(request, row, bytes_max)
        if request.their_interest.eagerness is Eagerness.NOTIFY:
            return packets(self._notifies(request, base))
        if self._comes_back(request, piece.seq):
            outgoing.wait()
            return ()
        run = self._run(request, base, bytes_max, may_send)
        return packets(run or self._metadata(request, base, row))

    def _comes_back(self, request: Request, seq: int) -> bool:
        """Whether the other side has an entry from where it sent it to us, and will say so here."""
        listens = request.our_interest.eagerness is Eagerness.NOTIFY
        if not listens or request.lowest_end() is not None or request.outgoing.waited_at != NEVER:
            return False
        others = (each for each in self._requests_of(request.log) if each is not request)
        return any(_has_sent(each, seq) for each in others)

    def _catch_up(self, request: Request, available: int) -> bytes | None:
        """Pass what the other side has sent. Empty: wait; None: nothing to pass."""
        incoming, outgoing = request.incoming, request.outgoing
        # What is not verified here may still be taken back: a notify of it would cross the apology
        # and point at a piece that no longer is (section 4).
        unproved = incoming.position > incoming.verified or incoming.in_piece
        if unproved and request.their_interest.eagerness is not Eagerness.NOTIFY:
            return b""
        skipped = self._skipped_and_held(request)
        if skipped is None:
            return b""
        until = skipped if skipped >= 0 else incoming.verified
        if skipped < 0 and _takes_alone(request):
            return self._pass_to(request, until)
        if until < outgoing.position:
            # What has come and is not proved yet is behind us. Reading it would lose our rows.
            return None
        if skipped < 0 and (available <= until or not self._has_own_at(request, until)):
            return b""
        return self._pass_to(request, until) if until > outgoing.position else None

    def _skipped_and_held(self, request: Request) -> int | None:
        """The first payload that the other side skipped and we hold; -1: none, None: reading.

        Those before it that we do not hold either are noted as absent.
        """
        base, outgoing, skipped = _base(request), request.outgoing, request.incoming.skipped
        while skipped:
            position = skipped[0]
            if position >= outgoing.position:
                row = self._row(request, base, base.piece(position).seq)
                if row is None:
                    return None
                if row.payload_held or row.payload_arriving:
                    return position
                size = payload_bytes(request, row)
                packet = skip_packet(request, size)
                self._payloads.note_skip(request, row.seq, packet or b"", size)
                outgoing.absent = outgoing.absent or deque()
                outgoing.absent.append((position, packet or b""))
            skipped.popleft()
        return -1

    def _pass_to(self, request: Request, until: int) -> bytes:
        """Move our cursor to where the other side's is, or has skipped what we hold."""
        parts: list[bytes] = []
        outgoing = request.outgoing
        while outgoing.absent and outgoing.absent[0][0] < until:
            position, packet = outgoing.absent.popleft()
            if position < outgoing.position:
                continue
            if position > outgoing.position:
                parts.append(pass_over(request, position - outgoing.position))
            if not packet:
                outgoing.cancel_due = CancelReason.PAYLOAD_MANDATORY
                return b"".join(parts)
            pass_over(request, 1)
            parts.append(packet)
        if until > outgoing.position:
            parts.append(pass_over(request, until - outgoing.position))
        return b"".join(parts)

    def _has_own_at(self, request: Request, position: int) -> bool:
        """Whether we hold the piece at a position, so that passing what is before it is due.

        Not so for a payload that the other side has still to send or to skip, as it has told of
        its entry.
        """
        base = _base(request)
        length = base.length
        if length is not None and position >= length:
            return True
        piece = base.piece(position)
        row = self._row(request, base, piece.seq)
        if row is None:
            return False
        theirs = position > 0 and base.piece(position - 1).seq == piece.seq
        if piece.kind is METADATA or row.payload_held or not theirs:
            return True
        outgoing = request.outgoing
        if base.end is None and outgoing.position == position:
            # It may be waiting for us in the same way.
            if outgoing.waited_at == position:
                return True
            outgoing.wait()
        return False

    # Rows

    def _row(self, request: Request, base: Sequence, seq: int) -> HeldEntry | None:
        rows = request.outgoing.rows
        while rows and rows[0].seq != seq:
            rows.popleft()
        if len(rows) < _READ_AHEAD_ROWS:
            self._read(request, base, seq)
        return rows[0] if rows else None

    def _read(self, request: Request, base: Sequence, seq: int) -> None:
        """Ask for the rows behind those at hand, unless that is under way or in vain."""
        outgoing = request.outgoing
        if outgoing.reading or outgoing.dry:
            return
        last_at_hand = outgoing.rows[-1].seq if outgoing.rows else None
        first = seq if last_at_hand is None else last_at_hand + 1
        last = min(outgoing.known, U64_MAX)
        named = (*base.lower, *(base.path or ()), *base.upper)
        seqs = tuple(n for n in named if n >= first)[: self._config.read_entries_max]
        if base.path is None and first <= (base.end or U64_MAX):
            # The body lies between the pools, and is read by itself.
            seqs = tuple(n for n in seqs if n < base.start)
            if not seqs:
                end = request.lowest_end()
                first = max(first, base.start)
                last = last if end is None else min(last, end)
                if first > last:
                    return
        elif not seqs:
            return
        bytes_max = self._ahead.take(request)
        if not bytes_max:
            return
        outgoing.reading = True
        if not outgoing.rows:
            outgoing.read_at, outgoing.overtaken = NEVER, False
        self._commands.append(
            ReadEntries(
                request.ident,
                request.log,
                first,
                last,
                seqs or None,
                min(self._config.read_entries_max, 1 + bytes_max // ROW_BYTES),
                bytes_max,
                request.their_interest.eagerness is not Eagerness.NOTIFY,
            )
        )

    # Metadata

    def _run(self, request: Request, base: Sequence, bytes_max: int, may_send: int) -> bytes:
        """Many whole entries with small payloads at once, if that is what comes next."""
        # Where each piece might be treated otherwise than its neighbour they go one by one.
        outgoing, interest = request.outgoing, request.their_interest
        if (
            self._tracer is not None
            or not base.is_full
            or outgoing.position < len(base.lower)
            or interest.eagerness is not Eagerness.ALL
            or interest.min_bytes > 0
            or interest.max_bytes < U64_MAX
        ):
            return b""
        seq = base.piece(outgoing.position).seq
        end = request.lowest_end()
        last = may_send if end is None else min(end, may_send)
        raw_max = self._packer.run_payload_bytes_max(outgoing.trial)
        rows: list[tuple[int, bytes, bytes]] = []
        size = payloads_size = 0
        for row in outgoing.rows:
            if (
                row.seq != seq + len(rows)
                or row.payload is None
                or len(row.payload) > raw_max
                or row.seq > last
                or size >= bytes_max
            ):
                break
            rows.append((row.seq, row.encoded, row.payload))
            size += len(row.encoded) + len(row.payload)
            payloads_size += len(row.payload)
        if not rows:
            return b""
        for _ in rows:
            outgoing.rows.popleft()
        data = encode_run(rows, _with_backlink(request, base, seq))
        self._packer.went_raw(payloads_size, outgoing.trial)
        outgoing.position += 2 * len(rows)
        outgoing.metadata_at = outgoing.position - 2
        note_sent(self._notices, request.log, rows[-1][0], len(rows), payloads_size)
        return data

    def _metadata(self, request: Request, base: Sequence, row: HeldEntry) -> bytes:
        outgoing = request.outgoing
        with_backlink = _with_backlink(request, base, row.seq)
        outgoing.metadata_at = outgoing.position
        outgoing.position += 1
        note_sent(self._notices, request.log, row.seq, 1, 0)
        return encode_metadata_packet(row.encoded, request.log.log_id, row.seq, with_backlink)

    def _notifies(self, request: Request, base: Sequence) -> bytes:
        """Notify of as many pieces as the rows at hand allow, in one packet."""
        outgoing, interest = request.outgoing, request.their_interest
        limit = request.limit
        asked_for = request.ours and request.proposal.end is not None
        if asked_for and request.our_interest.metadata_ever:
            # We asked for a range, and whoever reaches its end first ends it: not us.
            return b""
        count = 0
        for row in outgoing.rows:
            position = outgoing.position + count
            if limit is not None and position >= limit:
                break
            piece = base.piece(position)
            if piece.seq != row.seq:
                break
            if piece.kind is METADATA:
                count += 1
                position += 1
                follows = base.length is None or position < base.length
                if not follows or base.piece(position).kind is METADATA:
                    continue
            size = payload_bytes(request, row)
            if not row.payload_held or not interest.min_bytes <= size <= interest.max_bytes:
                break
            count += 1
        outgoing.notified_from = min(outgoing.notified_from, outgoing.position)
        return pass_over(request, count)


def _takes_alone(request: Request) -> bool:
    """Whether we asked for payloads that we lack, and the other side takes none.

    Our cursor follows theirs then, and what is held here need not be read: thousands of rows were,
    to find out of each that its payload is lacking, and to say so.
    """
    # Where we take none either we have offered them, and it is ours to pass what is held here.
    takes = request.our_interest.eagerness is not Eagerness.NOTIFY
    told_only = request.their_interest.eagerness is Eagerness.NOTIFY
    return request.ours and request.proposal.payloads_only and takes and told_only


def _base(request: Request) -> Sequence:
    if request.base is None:
        raise AssertionError("data is sent only for confirmed requests")
    return request.base


def _available(request: Request, base: Sequence) -> int:
    """The position up to which we may hold something to send."""
    known = request.outgoing.known
    if base.end is not None and known >= base.end and base.length is not None:
        return base.length
    return base.positions_up_to(known)


def _with_backlink(request: Request, base: Sequence, seq: int) -> bool:
    """Whether the metadata at our cursor carries its backlink (section 4, "transmitted").

    Not if we sent its target, or the other side did before we passed it: what it had only notified
    of was not transmitted.
    """
    if not has_distinct_lipmaalink(seq):
        return False
    before = base.metadata_before(request.outgoing.position)
    if before is None:
        return True
    sent = request.outgoing.metadata_at == before
    return not sent and before >= request.incoming.notified_from


def _has_sent(request: Request, seq: int) -> bool:
    """Whether an entry of a range has come to us in a request."""
    base = request.base
    if base is None or base.path is not None or not base.start <= seq <= (base.end or U64_MAX):
        return False
    takes = request.our_interest.eagerness is not Eagerness.NOTIFY
    return takes and request.incoming.position >= base.positions_up_to(seq)
