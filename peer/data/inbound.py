"""The data channel, incoming half: packets move the other side's cursors (point2point.md 4, 6, 8).

The half reads packets as long as it can judge them. It stops reading, for all requests, while

- the current request is a proposal of ours that has no answer yet (section 8),
- links or sizes that only the store knows are being looked up,
- an apology waits for the verdict on the piece that it is about,
- as much as the data credit is decompressed or rebuilt and not durable yet.

What is read but not yet durable is counted by the prover; credit for it is given back only once it
is, so that what the other side sends costs no more memory than the data credit.
"""

from collections.abc import Callable
from typing import assert_never

from msgspec import Struct

from peer.protocol.commands import Command, LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.errors import Violation
from peer.protocol.events import HeldEntry, LookedUp
from peer.protocol.request import Request
from peer.protocol.sequence import METADATA, Sequence
from peer.protocol.table import RequestTable
from peer.protocol.tracing import Tracer
from wire import (
    RAW_PAYLOAD,
    U64_MAX,
    Apology,
    DataDecoder,
    DataPacket,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    RequestCancelled,
    SkipAbove,
    SkipBelow,
    SkipBytes,
    SkipUnavailable,
    Switch,
)
from wire import Violation as WireViolation

from .apologies import Apologies
from .discarded import Discarded
from .inbound_listener import InboundListener
from .links import (
    CannotTakeIn,
    NeedLookUp,
    add_own_hashes,
    forget_hashes,
    remember_hash,
    set_looked_up_entry,
)
from .proving import Prover
from .receiving import Receiver

RUN_ENTRIES_MAX = 1024
"""Entries that are taken from one run at once: no other work has its turn before that is done."""

_PACKET_WORK_BYTES = 4096
"""What reading a packet counts for, beside its bytes: it takes as long as so many payload bytes."""

_STORED_PIECES_MAX = 64
"""So many pieces of a payload that is stored as it comes are taken at once. Bytes cost nothing
there, but a hostile side may send a packet for each."""

_ENTRIES_AHEAD = 512
"""So many entries are looked up at once where the payloads of consecutive ones are to come: the
whole channel waits for each look-up. With 64 small payloads came a third slower; the bytes of what
is found are bounded by whoever looks."""

_METADATA_BYTES = (128, 129)
"""First bytes of metadata packets."""

_READ_WHILE_HELD = (0, 32)
"""First bytes of a switch and of the end of a request: nothing holds them up (section 8)."""


class _News(Struct):
    """What came for the current request since its listener was told."""

    arrived_bytes: int = 0
    """Of metadata and payloads."""
    has_notified: bool = False
    """Whether the other side has told of something."""
    has_moved: bool = False
    """Whether its cursor has moved."""


class Inbound:
    """Reads the data channel of a session."""

    def __init__(
        self,
        decoder: DataDecoder,
        table: RequestTable,
        prover: Prover,
        receiver: Receiver,
        apologies: Apologies,
        commands: list[Command],
        config: SessionConfig,
        listener: InboundListener,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._decoder = decoder
        self._table = table
        self._prover = prover
        self._receiver = receiver
        self._apologies = apologies
        self._commands = commands
        self._config = config
        self._listener = listener
        self._current: Request | None = None
        self._ended = False
        self._retry: DataPacket | None = None
        self._ticket: int | None = None
        self._credit_released = 0
        self._discarded = Discarded(config, listener.idle_work)
        self._has_switched = False
        """Whether the last packet was a switch."""
        self._packet_bytes = 0
        """What the last packet took on the wire, as far as it has come."""
        self._news = _News()
        self._ahead: dict[int, HeldEntry] = {}
        """Entries whose payloads come next in the current request, and that were looked up."""
        self.is_inside = False
        """Whether the last `run` only took in bytes in the middle of a large payload: no cursor has
        moved, nothing has ended, and it goes on with what comes next."""
        self.paused = False
        """Whether reading stopped only to let other work have its turn."""
        self.held_for: Request | None = None
        """The own proposal whose answer has to come before reading goes on."""

    def feed(self, data: bytes | memoryview) -> None:
        """Takes bytes of the channel; `run` reads them."""
        self._decoder.feed(data)

    @property
    def buffered(self) -> int:
        """Bytes that wait to be read."""
        return self._decoder.buffered

    @property
    def drained(self) -> bool:
        """Whether everything that came has been read as far as it goes."""
        return self._retry is None and self._ticket is None and not self.paused

    @property
    def expects_reply(self) -> bool:
        """Whether reading goes on by itself, once the host has answered or time has passed."""
        waits = self._ticket is not None or self._retry is not None
        return waits or self.paused or self._prover.is_full

    def credit_to_release(self) -> int:
        """Bytes that are done with since the last call."""
        free = self._decoder.consumed - self._prover.in_flight_bytes - self._credit_released
        if free <= 0:
            return 0
        self._credit_released += free
        return free

    def run(self) -> int:
        """Read as far as possible; returns how many packets came whole, and runs of them.

        Raises Violation.
        """
        # Bounded by what it costs and not by what came: thirty bytes may stand for 2^40, and other
        # sessions of the same thread have their turn when this returns.
        work = whole = 0
        # Whoever had to wait goes on now, which is no small matter.
        self.is_inside = not self.expects_reply
        self.paused = False
        while self._ticket is None and not self._prover.is_full:
            if self.held_for is not None and not self._released_hold():
                break
            if work > self._config.read_work_bytes_max:
                self.paused = True
                break
            if self._retry is None:
                if self._decoder.is_dry:
                    break
                cost, begun = self._take_stored()
                if cost:
                    work += cost
                    whole += begun
                    continue
            first = self._decoder.next_byte
            if self._retry is None and self._take_many(first):
                self._has_switched = self.is_inside = False
                whole += 1
                continue
            packet = self._retry or self._next_packet(metadata=first in _METADATA_BYTES)
            if packet is None:
                break
            self._retry = None
            if not self._apply(packet):
                self._retry = packet
                break
            work += _PACKET_WORK_BYTES
            if isinstance(packet, PayloadBytes):
                work += len(packet.data)
            else:
                whole += 1
        self._tell_news()
        if self._current is not None:
            self._keep(self._current, self._receiver.put_aside)
        self._prover.flush()
        self.is_inside = self.is_inside and not self.expects_reply
        return whole

    def _released_hold(self) -> bool:
        """Whether reading may go on although the current request was not answered when it began."""
        held = self.held_for
        if held is None or held.answered:
            self.held_for = None
            return True
        # It lost against a proposal of theirs (section 7), and so was never made: nobody may send
        # data for it, and an answer that reading could go on with will not come.
        if self._table.get(held.number) is not held:
            raise Violation(
                "point2point.md 7", "data for a proposal that gave way to another", held.number
            )
        return self._decoder.next_byte in _READ_WHILE_HELD

    def _next_packet(self, *, metadata: bool) -> DataPacket | None:
        current = self._current
        with_backlink = metadata and current is not None and self._receiver.with_backlink(current)
        before = self._decoder.consumed
        try:
            packet = self._decoder.next_packet(with_backlink)
        except WireViolation as violation:
            number = None if current is None else current.number
            raise Violation(violation.rule, violation.finding, number) from None
        self._packet_bytes = self._decoder.consumed - before
        if self._tracer is not None and packet is not None:
            if isinstance(packet, Switch | RequestCancelled):
                current = self._table.get(packet.request)
            self._tracer.packet_received(current, packet)
        return packet

    def _apply(self, packet: DataPacket) -> bool:
        """Apply a packet; False if it has to be tried again later."""
        match packet:
            case Switch():
                self.is_inside = False
                self._switch(packet.request)
                self._has_switched = True
                return True
            case RequestCancelled():
                self.is_inside = self._has_switched = False
                self._end(packet.request)
                return True
            case _:
                pass
        self._has_switched = False
        request = self._current
        if request is None:
            where = "after the end of the current request" if self._ended else "before a switch"
            raise Violation("point2point.md 9, Data", f"{type(packet).__name__} {where}")
        if request.base is None:
            raise Violation(
                "point2point.md 8", "data for a request that is not confirmed", request.number
            )
        try:
            return self._apply_to(request, packet)
        except NeedLookUp as lacking:
            if lacking.entry is None:
                request.incoming.hashes_looked_up_for = lacking.seq
            else:
                request.incoming.looked_up = lacking.entry
                if (held := self._ahead.pop(lacking.entry, None)) is not None:
                    set_looked_up_entry(request, held.seq, held.encoded, held.hash)
                    return self._apply(packet)
            self._look_up(request, lacking)
            return False
        except CannotTakeIn as given_up:
            if not request.incoming.discarding:
                self.discard(request)
                self._listener.request_given_up(request, str(given_up))
            # The cursor moves all the same: what follows is read with both sides at one piece.
            return self._apply_to(request, packet)

    def _look_up(self, request: Request, lacking: NeedLookUp) -> None:
        behind = 0
        if lacking.entry is not None and request.proposal.payloads_only:
            last = request.lowest_end()
            behind = _ENTRIES_AHEAD if last is None else min(last - lacking.entry, _ENTRIES_AHEAD)
        self._ticket = self._listener.new_ticket()
        wanted = LookUp(
            self._ticket, request.log, lacking.hashes_of, lacking.entry, behind=max(behind, 0)
        )
        self._commands.append(wanted)

    def _apply_to(self, request: Request, packet: DataPacket) -> bool:
        sink = request.incoming.sink
        if not self._take_in(request, packet):
            return False
        is_payload = isinstance(packet, (PayloadBytes, PayloadStart))
        if not is_payload or sink is None or request.incoming.sink != sink:
            self.is_inside = False
            self._news.has_moved = True
        return True

    def _take_in(self, request: Request, packet: DataPacket) -> bool:
        receiver = self._receiver
        match packet:
            case PayloadBytes():
                receiver.payload_bytes(request, packet.data)
                self._news.arrived_bytes += len(packet.data)
                if request.incoming.discarding:
                    self._discarded.add(self._packet_bytes, len(packet.data))
            case PayloadStart():
                receiver.payload_start(request, packet)
            case Metadata():
                receiver.metadata(request, packet, self._table.now)
                self._news.arrived_bytes += len(packet.tail)
            case Notify():
                if packet.count == 0:
                    self._listener.idle_work()
                else:
                    receiver.notify(request, packet.count)
                    self._news.has_notified = True
            case SkipBelow():
                receiver.skip(request, 4)
            case SkipAbove():
                receiver.skip(request, 5)
            case SkipUnavailable():
                receiver.skip(request, 6)
                self._listener.payload_skipped(request)
            case SkipBytes():
                receiver.skip_bytes(request, packet.count)
            case Apology():
                if not self._apologies.take(request):
                    return False
                self._listener.idle_work()
            case Switch() | RequestCancelled():
                raise AssertionError("handled before")
            case _:
                assert_never(packet)
        return True

    def _tell_news(self) -> None:
        """Tell what came for the current request: once, however many packets it took."""
        request = self._current
        if request is None:
            return
        news, self._news = self._news, _News()
        if news.has_moved:
            self._listener.cursor_moved(request)
        if news.has_notified:
            position = request.incoming.position
            if request.base is not None and position > request.outgoing.position:
                self._listener.peer_holds(request, request.base.piece(position - 1).seq)
        if news.arrived_bytes:
            self._listener.arriving(request, news.arrived_bytes)

    def _take_stored(self) -> tuple[int, int]:
        """The fast way through a payload that is stored as it comes: all at once that is there.

        Returns what reading that counts for, 0 if it is not what comes next, and how many packets
        began. Packet by packet it took a third of what the event loop does for such a payload.
        """
        request = self._current
        if request is None or self._tracer is not None:
            return 0, 0
        sink = request.incoming.sink
        if sink is None or not (left := self._receiver.stored_bytes_left(request)):
            return 0, 0
        pieces, begun = self._decoder.next_pieces(left, _STORED_PIECES_MAX)
        if not (pieces or begun):
            return 0, 0
        count = sum(map(len, pieces))
        self._receiver.stored_bytes(request, sink, pieces, count)
        self._news.arrived_bytes += count
        self._has_switched = False
        if request.incoming.sink != sink:
            self.is_inside = False
            self._news.has_moved = True
        return count + (len(pieces) + begun) * _PACKET_WORK_BYTES, begun

    def _take_many(self, first: int | None) -> bool:
        """The fast way: many pieces of the usual shape at once. False if none are next.

        Only where nothing is to be judged but signatures and hashes; all else is left to the slow
        way, which knows each reason to refuse a piece. `first`: the next packet's first byte, asked
        first, since what else may come is a byte each, and takes less than to find out the rest.
        """
        metadata = first in _METADATA_BYTES
        if not (metadata or (first == RAW_PAYLOAD and self._ahead)):
            return False
        request = self._current
        if request is None or request.base is None or self._tracer is not None:
            return False
        incoming, base = request.incoming, request.base
        if (
            incoming.in_piece
            or incoming.discarding
            or incoming.invalid is not None
            or request.our_interest.data_up_to != U64_MAX
        ):
            return False
        if metadata:
            return base.is_full and incoming.entry is None and self._take_run(request, base)
        return self._take_payloads(request, base)

    def _take_payloads(self, request: Request, base: Sequence) -> bool:
        """Small payloads alone, of entries that are held and were looked up for that."""
        incoming = request.incoming
        position = incoming.position
        left = base.reach - position
        # The first one may begin inside.
        if base.per_entry != 1 or base.path is not None or not position or left <= 0:
            return False
        seq = base.piece(position).seq
        held: list[HeldEntry] = []
        while len(held) < left and (entry := self._ahead.get(seq + len(held))) is not None:
            held.append(entry)
        if not held:
            return False
        config = self._config
        before = self._decoder.consumed
        payloads = self._decoder.next_payloads(
            request.log.log_id,
            seq,
            [entry.encoded for entry in held],
            payload_bytes_max=min(config.small_payload_bytes_max, config.payload_bytes_max),
        )
        if not payloads:
            return False
        self._news.arrived_bytes += self._decoder.consumed - before
        for entry in held[: len(payloads)]:
            del self._ahead[entry.seq]
        self._prover.ingest_payloads(request, held, payloads)
        self._receiver.passed_payloads(request, seq, len(payloads))
        self._news.has_moved = True
        return True

    def _take_run(self, request: Request, base: Sequence) -> bool:
        """Whole entries with small payloads."""
        incoming = request.incoming
        length = base.length
        if (
            length is not None and incoming.position + 2 > length - len(base.upper)
        ) or incoming.position < len(base.lower):
            return False
        kind, seq = base.piece(incoming.position)
        if kind is not METADATA:
            return False
        config = self._config
        before = self._decoder.consumed
        run = self._decoder.next_run(
            request.log,
            seq,
            incoming.hashes,
            entries_max=RUN_ENTRIES_MAX
            if base.end is None
            else min(RUN_ENTRIES_MAX, base.end - seq + 1),
            payload_bytes_max=min(config.small_payload_bytes_max, config.payload_bytes_max),
            with_backlink=self._receiver.with_backlink(request),
        )
        if not run.entries:
            return False
        self._news.arrived_bytes += self._decoder.consumed - before
        whole = run.entries if run.mismatch is None else run.entries[:-1]
        if whole:
            self._prover.ingest_run(request, whole)
            incoming.position += 2 * len(whole)
        if run.mismatch is not None:
            wrong, position = run.entries[-1], incoming.position
            incoming.position += 2
            row = (wrong.seq, wrong.encoded, wrong.entry_hash, None)
            self._prover.ingest_whole(request, position, row)
            self._receiver.sent_wrong_payload(request, position, wrong)
        incoming.last_was_sent = incoming.last_was_checked = True
        incoming.metadata_at = incoming.position - 2
        if run.mismatch is None:
            incoming.last_entry = None
        remember_hash(request, run.entries[-1].seq, run.entries[-1].entry_hash)
        self._news.has_moved = True
        return True

    def _switch(self, number: int) -> None:
        request = self._table.get(number)
        if request is None or request.end_received:
            raise Violation("point2point.md 9, Data", "switch to a request not active", number)
        if not request.ours and not request.confirmed and request.cancel_sent is None:
            raise Violation(
                "point2point.md 8", "switch to an own request that is not confirmed", number
            )
        # Switching to and fro, or to where it is, costs two bytes and moves nothing.
        if request is self._current or self._has_switched:
            self._listener.idle_work()
        if self._current is not None and request is not self._current:
            self._leave(self._current)
        self._current = request
        self._ended = False
        self.held_for = request if request.ours and not request.answered else None

    def _leave(self, request: Request) -> None:
        if request is self._current:
            self._tell_news()
        self._ahead.clear()
        self._hand_over(request)
        forget_hashes(request)

    def _hand_over(self, request: Request) -> None:
        self._keep(request, self._receiver.hand_over)

    def _keep(self, request: Request, keep: Callable[[Request], None]) -> None:
        try:
            keep(request)
        except CannotTakeIn as given_up:
            self.discard(request)
            self._listener.request_given_up(request, str(given_up))

    def next_deadline(self) -> float | None:
        """When an entry has waited for its payload for long enough, or None."""
        current = self._current
        entry = None if current is None else current.incoming.entry
        if entry is None or entry.ingested:
            return None
        return entry.came_at + self._config.entry_alone_s

    def advance(self) -> None:
        """Has an entry checked whose payload does not come."""
        due = self.next_deadline()
        if due is not None and due <= self._table.now and self._current is not None:
            self._hand_over(self._current)

    def _end(self, number: int) -> None:
        current = self._current
        if self._ended:
            raise Violation(
                "point2point.md 6", "only a switch may follow the end of a request", number
            )
        request, invalid = self._table.get(number), None
        if request is not None and not request.end_received:
            self._leave(request)
            self._close_sinks(request)
            if not request.incoming.discarding and request.incoming.invalid is not None:
                # Nobody apologises for it any more, as after a cancel of its sender (section 8).
                invalid = request.incoming.invalid[1]
                self.discard(request)
        request = self._table.receive_end(number)
        if request is current:
            self._current = None
            self._ended = True
            self.held_for = None
        if invalid is not None:
            self._listener.request_given_up(request, invalid)

    def _close_sinks(self, request: Request) -> None:
        sink, request.incoming.sink = request.incoming.sink, None
        if sink is not None:
            self._prover.close_sink(sink, discard=request.incoming.adrift)

    def discard(self, request: Request) -> None:
        """From now on what comes for this request is only read past."""
        self._close_sinks(request)
        request.incoming.discarding = True
        request.incoming.gathered.clear()
        request.incoming.skipped.clear()

    def looked_up(self, event: LookedUp) -> bool:
        """The answer to a look-up of ours; False if it is somebody else's."""
        if event.ticket != self._ticket:
            return False
        self._ticket = None
        request = self._current
        if request is None:
            raise AssertionError("the current request cannot change during a look-up")
        add_own_hashes(request, event.view.hashes)
        if isinstance(self._retry, Metadata):
            return True
        entry = event.view.entry
        if entry is not None:
            set_looked_up_entry(request, request.incoming.looked_up, entry.encoded, entry.hash)
            self._ahead = {each.seq: each for each in event.view.behind}
        return True

    def ended(self, *, lost: bool) -> None:
        """No more data comes: keep what is whole, and unfinished payloads for resuming."""
        current = self._current
        if current is not None and not current.incoming.discarding:
            incoming = current.incoming
            if incoming.entry is not None and not incoming.entry.ingested:
                self._leave(current)
        self._prover.suspend(lost=lost)
