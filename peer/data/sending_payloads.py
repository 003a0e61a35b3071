"""How a payload at our cursor is sent, passed or skipped (point2point.md 4, 8).

A payload that is held is verified. In a greedy direction one that is arriving here is sent as well,
as far as it has come. Its last byte is sent only when all are verified: so what we may have to
apologise for is always a payload that the other side has in part and cannot have found valid, and
once a payload is sent whole there is nothing left to apologise for. The other side never gets the
same payload unverified a second time.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from peer.protocol.commands import Command, ReadPayload, StopReading
from peer.protocol.config import SessionConfig
from peer.protocol.events import HeldEntry, PayloadRead, PayloadWithdrawn
from peer.protocol.notices import Notice, note_sent
from peer.protocol.request import NOTHING, Outgoing, Request
from wire import (
    CancelReason,
    Eagerness,
    LogKey,
    encode_apology,
    encode_notify,
    encode_skip_above,
    encode_skip_below,
    encode_skip_unavailable,
    tail_fields,
    tail_offset,
)

from .packing import Packer, Packets, packets

_UNAVAILABLE = encode_skip_unavailable()
_BLOCK_BYTES: Final = 1 << 16


class Skips(Protocol):
    """Who remembers what the other side could not get."""

    def skipped(self, request: Request, seq: int) -> None:
        """A payload that is wanted is skipped because it is not held."""

    def both_have(self, log: LogKey, seq: int) -> None:
        """A payload was sent whole."""


class PayloadSender:
    """Makes the packets of payloads; asks for their bytes when they run out."""

    def __init__(
        self,
        commands: list[Command],
        notices: list[Notice],
        config: SessionConfig,
        packer: Packer,
        skips: Skips,
        *,
        send_greedily: bool,
        inside: Callable[[], int],
        may_begin_unverified: Callable[[], bool],
    ) -> None:
        """`inside`: how many payloads are being sent side by side.

        `may_begin_unverified`: whether there is room for another one that may stall.
        """
        self._commands = commands
        self._notices = notices
        self._config = config
        self._packer = packer
        self._skips = skips
        self._send_greedily = send_greedily
        self._inside = inside
        self._may_begin_unverified = may_begin_unverified

    def piece(self, request: Request, row: HeldEntry, bytes_max: int) -> Packets:
        """The next packets of the payload at our cursor; none if it has to be waited for."""
        outgoing = request.outgoing
        size = payload_bytes(request, row)
        if not outgoing.in_piece:
            skip = self._skip(request, row, size)
            if skip is not None:
                return packets(skip)
            if not request.their_interest.wants_payload_data(size):
                return (pass_over(request, 1),)
        data: bytes | memoryview
        if row.payload is not None:
            data = row.payload[outgoing.progress :]
        else:
            data = self._chunk(request, row, size, bytes_max)
            if not data and size > outgoing.progress:
                return ()
        made = self._packer.pack(data, outgoing.progress, size, outgoing.trial)
        outgoing.in_piece = True
        outgoing.progress += len(data)
        if outgoing.progress == size:
            if outgoing.unproved:
                raise AssertionError("the last byte of a payload is read once it is verified")
            outgoing.position += 1
            outgoing.progress = 0
            outgoing.in_piece = False
            note_sent(self._notices, request.log, row.seq, 0, size)
            self._skips.both_have(request.log, row.seq)
        return made

    def _skip(self, request: Request, row: HeldEntry, size: int) -> bytes | None:
        """A skip if one is right here; b"" to wait or to cancel; None if none is."""
        outgoing, interest = request.outgoing, request.their_interest
        if interest.min_bytes <= size <= interest.max_bytes:
            if row.payload_held:
                return None
            if row.payload_arriving and self._goes_on_unverified(request, size):
                return None
            may_come = row.payload_arriving or _may_still_come(request, row)
            wanted = size > 0 and interest.may_want_payload_data(size)
            if _asked_for(request) or (wanted and may_come):
                outgoing.wait()
                return b""
        packet = skip_packet(request, size)
        if packet is None:
            # Waiting for it would hold up all that is behind it, perhaps for ever.
            outgoing.cancel_due = CancelReason.PAYLOAD_MANDATORY
            return b""
        self.note_skip(request, row.seq, packet, size)
        pass_over(request, 1)
        return packet

    def note_skip(self, request: Request, seq: int, packet: bytes, size: int) -> None:
        """The other side is told by this packet that it does not get a payload."""
        if packet == _UNAVAILABLE and request.their_interest.wants_payload_data(size):
            self._skips.skipped(request, seq)

    def _goes_on_unverified(self, request: Request, size: int) -> bool:
        return (
            self._takes_unverified(request)
            and size > self._config.small_payload_bytes_max
            and request.their_interest.wants_payload_data(size)
            and not _asked_for(request)
            and self._may_begin_unverified()
        )

    def _takes_unverified(self, request: Request) -> bool:
        """Whether the piece at our cursor may be sent before it is verified here.

        Not if it was taken back before: a second apology for one piece is a violation (section 8).
        """
        outgoing = request.outgoing
        return self._send_greedily and outgoing.apologised_at != outgoing.position

    def _chunk(
        self, request: Request, row: HeldEntry, size: int, bytes_max: int
    ) -> bytes | memoryview:
        """Bytes of a large payload at the cursor; empty while they are being read."""
        outgoing = request.outgoing
        if (chunk := _at_cursor(outgoing, row.seq)) is not None:
            used = outgoing.progress - chunk.offset
            end = used + max(bytes_max, self._packer.packet_bytes_min)
            data = memoryview(chunk.data)[used:end]
            outgoing.unproved = outgoing.unproved or not chunk.verified
            self._read_behind(request, row, size, chunk, len(chunk.data) - end)
            return data
        if not row.payload_held and not self._takes_unverified(request):
            # It was dropped while we were sending it, and a skip is not allowed any more.
            outgoing.cancel_due = CancelReason.NO_RESOURCES
            return b""
        outgoing.unfed = outgoing.unproved and not (row.payload_held or row.payload_arriving)
        if size > outgoing.progress:
            self._read(request, row, outgoing.progress)
        return b""

    def _read_behind(
        self, request: Request, row: HeldEntry, size: int, chunk: PayloadRead, left: int
    ) -> None:
        """Has the next bytes read while these are sent, and while the ones behind them wait: else
        the thread that reads and hashes would wait for the event loop each time, and that for it.
        """
        outgoing = request.outgoing
        if left <= 0:
            outgoing.shift_chunks()
        if outgoing.next_chunk is None and left <= self._read_bytes_max():
            last = outgoing.chunk or chunk
            if (behind := last.offset + len(last.data)) < size:
                self._read(request, row, behind)

    def _read(self, request: Request, row: HeldEntry, offset: int) -> None:
        outgoing = request.outgoing
        if outgoing.fetching is not None:
            return
        outgoing.has_read = True
        outgoing.fetching = (row.seq, offset)
        self._commands.append(
            ReadPayload(
                request.ident,
                request.log,
                row.seq,
                offset,
                self._read_bytes_max(),
                arriving=not row.payload_held,
            )
        )

    def _read_bytes_max(self) -> int:
        """How much of a payload is read at once: more of few payloads than of many.

        Whole blocks, as stores check what they read block by block, and the rest of one that is
        asked for in part is read for nothing, or copied.
        """
        config = self._config
        share = config.read_payloads_bytes_max // (self._inside() + 1)
        return max(share - share % _BLOCK_BYTES, config.read_bytes_min)

    # What the host answers

    def was_read(self, request: Request, event: PayloadRead) -> bool:
        """Payload bytes have come. False if those that we need are gone for good."""
        outgoing = request.outgoing
        if outgoing.fetching != (event.seq, event.offset):
            return True
        outgoing.fetching = None
        if not event.data:
            look_again(request)
            return not outgoing.in_piece
        if outgoing.chunk is None:
            outgoing.chunk = event
        else:
            outgoing.next_chunk = event
        outgoing.unfed = False
        if event.verified:
            # So are the bytes of the payload before these, those that are still to be sent as well.
            outgoing.unproved = False
            if outgoing.chunk.seq == event.seq:
                outgoing.chunk = replace(outgoing.chunk, verified=True)
        return True

    def withdrawn(self, request: Request, event: PayloadWithdrawn) -> bytes:
        """What was read is not to be relied on: our apology, if some of it was sent."""
        outgoing = request.outgoing
        if event.seq not in payloads_at_hand(request):
            return b""
        look_again(request)
        return apology(request) if outgoing.unproved else b""

    def stop(self, request: Request) -> None:
        """Nothing more is sent for this request."""
        if request.outgoing.has_read:
            request.outgoing.has_read = False
            self._commands.append(StopReading(request.ident))


def apology(request: Request) -> bytes:
    """Take back the part of a payload that was sent, "as if it had never been sent"."""
    outgoing = request.outgoing
    base = request.base
    if base is None or not outgoing.in_piece:
        raise AssertionError("an apology is for the payload at our cursor")
    position = outgoing.position
    outgoing.taken_back = max(outgoing.taken_back, (position, outgoing.progress))
    outgoing.apologised_at = position
    outgoing.in_piece = outgoing.unproved = outgoing.unfed = False
    outgoing.progress = base.offset if position == 0 else 0
    skipped = request.incoming.skipped
    if request.incoming.position > position and position not in skipped:
        # The other side may have passed it because we sent it; if not, this does no harm.
        skipped.appendleft(position)
    look_again(request)
    return encode_apology()


def look_again(request: Request) -> None:
    """Forget what was read ahead of the payload at our cursor: it is another one now."""
    outgoing = request.outgoing
    outgoing.chunk = outgoing.next_chunk = outgoing.fetching = None
    outgoing.waiting = False
    outgoing.read_anew()


def look_at_absent(request: Request) -> None:
    """What neither side held when the other one skipped it may be held now."""
    outgoing, incoming = request.outgoing, request.incoming
    again = [position for position, _ in outgoing.absent if position >= outgoing.position]
    if again:
        outgoing.absent = NOTHING
        incoming.skipped = deque(sorted({*again, *incoming.skipped}))


def payloads_at_hand(request: Request) -> tuple[int, ...]:
    """The entries of which payload bytes have been read, or are being read."""
    outgoing = request.outgoing
    fetched = () if outgoing.fetching is None else (outgoing.fetching[0],)
    chunks = (outgoing.chunk, outgoing.next_chunk)
    return (*(chunk.seq for chunk in chunks if chunk is not None), *fetched)


def _at_cursor(outgoing: Outgoing, seq: int) -> PayloadRead | None:
    """The bytes at the cursor, which is at or in the payload of an entry, if they were read.

    What is before them goes: it was sent, or the cursor has passed it.
    """
    while (chunk := outgoing.chunk) is not None:
        if chunk.seq == seq and 0 <= outgoing.progress - chunk.offset < len(chunk.data):
            return chunk
        outgoing.shift_chunks()
    return None


def is_in_the_way(request: Request) -> bool:
    """Whether something waits behind the payload at our cursor, or for the end of the range."""
    base, outgoing = request.base, request.outgoing
    if base is None:
        raise AssertionError("data is sent only for confirmed requests")
    return base.end is not None or outgoing.known > base.piece(outgoing.position).seq


def pass_over(request: Request, count: int) -> bytes:
    """Move our cursor by `count` pieces; returns the notify of them."""
    outgoing = request.outgoing
    outgoing.position += count
    outgoing.progress = 0
    outgoing.in_piece = outgoing.unproved = False
    return encode_notify(count)


def skip_packet(request: Request, size: int) -> bytes | None:
    """The packet that skips a payload; None if there is none because it is mandatory."""
    interest = request.their_interest
    if size < interest.min_bytes:
        return encode_skip_below()
    if size > interest.max_bytes:
        return encode_skip_above()
    return None if interest.mandatory else _UNAVAILABLE


def payload_bytes(request: Request, row: HeldEntry) -> int:
    """The size of an entry's payload."""
    return tail_fields(row.encoded[tail_offset(request.log.log_id, row.seq) :])[0]


def _asked_for(request: Request) -> bool:
    """Whether the other side is to bring this payload: we asked for it, or it was offered to us.

    A range that begins inside it, or one of payloads only.
    """
    if request.incoming.position > request.outgoing.position:
        return False
    proposal, takes = request.proposal, request.our_interest.eagerness is not Eagerness.NOTIFY
    if not request.ours:
        return takes and proposal.payloads_only and proposal.eagerness is Eagerness.NOTIFY
    inside = proposal.offset is not None and not request.outgoing.position
    return inside or (takes and proposal.payloads_only)


def _may_still_come(request: Request, row: HeldEntry) -> bool:
    """Whether nothing is lost by waiting for a payload that is not held.

    That of the newest entry of a log that goes on is perhaps just about to arrive: its entry always
    comes before it. If it does not, others should have at least the entry.
    """
    base = request.base
    newest = base is not None and base.end is None and row.seq >= request.outgoing.known
    return newest and request.outgoing.waited_at != request.outgoing.position
