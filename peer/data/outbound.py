"""The data channel, outgoing half: our cursors, what is read ahead for them, whose turn it is.

Pulled: bytes are made only when the transport is about to take them, so that nothing is read from
the store that may not be sent. Requests that have something to send take turns, a quantum each.
Those inside a large payload have a line of their own, and when there are too many of them only they
get turns until one has finished: each costs the other side a file.

Nobody waits behind a thing that does not come. A payload that is not here yet is waited for a while
if it is the newest (`payload_wait_s`), since its entry comes always before it; one that was sent in
part and that nobody brings any more is taken back with an apology if something waits behind it
(`unfed_timeout_s`). What the other side does not take is not made, ends of requests included: kept,
they were ten bytes for each request that it ended.
"""

from collections import deque
from typing import Protocol

from peer.protocol.commands import Command
from peer.protocol.config import SessionConfig
from peer.protocol.events import EntriesRead, PayloadRead, PayloadWithdrawn
from peer.protocol.notices import Notice
from peer.protocol.request import NOTHING, Request
from peer.protocol.table import RequestTable
from peer.protocol.tracing import Tracer
from wire import Cancel, CancelReason, encode_switch
from wire import encode_request_cancelled as encode_end

from .packing import Packer
from .read_ahead import ReadAhead
from .sending import MaySend, Sender
from .sending_payloads import (
    PayloadSender,
    Skips,
    apology,
    is_in_the_way,
    look_again,
    look_at_absent,
    payloads_at_hand,
)


class OutboundListener(Protocol):
    """Who is asked when sending cannot go on by itself."""

    def cancel(self, request: Request, cancel: Cancel) -> None:
        """Cancel a request of ours or theirs."""


class Outbound:
    """Writes the data channel of a session."""

    def __init__(
        self,
        table: RequestTable,
        commands: list[Command],
        notices: list[Notice],
        config: SessionConfig,
        packer: Packer,
        listener: OutboundListener,
        may_send: MaySend,
        skips: Skips,
        tracer: Tracer | None = None,
        *,
        send_greedily: bool,
    ) -> None:
        self._tracer = tracer
        self._table = table
        self._config = config
        self._listener = listener
        self._payloads = PayloadSender(
            commands,
            notices,
            config,
            packer,
            skips,
            send_greedily=send_greedily,
            inside=lambda: len(self._inside),
            may_begin_unverified=lambda: len(self._unproved) < config.inside_payloads_max,
        )
        self._ahead = ReadAhead(config)
        self._sender = Sender(
            commands,
            notices,
            config,
            packer,
            self._payloads,
            may_send,
            self._ahead,
            table.of_log,
            tracer,
        )
        self._out: deque[bytes | memoryview] = deque()
        """What is to be sent next, in order; never changed once it is here."""
        self._out_bytes = 0
        self._turns: deque[Request] = deque()
        self._inside_turns: deque[Request] = deque()
        self._inside: set[int] = set()
        self._unproved: set[int] = set()
        self._unfed: dict[int, tuple[Request, float]] = {}
        self._waits: dict[int, tuple[Request, int, float]] = {}
        self._ends: deque[Request] = deque()
        self._current: Request | None = None
        self._ended = False
        self._inside_next = False
        self.is_inside = True
        """Whether the last `take` gave nothing but bytes in the middle of large payloads: no cursor
        has moved, nothing has ended, and nothing is waited for that was not before."""

    def wake(self, request: Request) -> None:
        """Something changed for this request: perhaps it has something to send now."""
        if request.active and not request.outgoing.queued:
            request.outgoing.queued = True
            inside = request.ident in self._inside
            (self._inside_turns if inside else self._turns).append(request)

    def end_due(self, request: Request) -> None:
        """Our packet 32 for this request goes out next."""
        self._inside.discard(request.ident)
        self._unproved.discard(request.ident)
        self._unfed.pop(request.ident, None)
        self._waits.pop(request.ident, None)
        self._payloads.stop(request)
        self._ends.append(request)

    @property
    def unsent(self) -> bool:
        """Whether anything is due that has not been taken: there is no credit for it."""
        return bool(self._out or self._ends)

    @property
    def awaits_payload(self) -> bool:
        """Whether nobody is in line, and more of the payload that we are in is being read."""
        if (
            self._out
            or self._ends
            or self._turns
            or self._inside_turns
            or self._ahead.anybody_waits
        ):
            return False
        return self._current is not None and self._current.outgoing.awaits_chunk

    def take(self, bytes_max: int) -> list[bytes | memoryview]:
        """Up to `bytes_max` bytes of the data channel, in pieces; they count as sent."""
        self.is_inside = True
        self._fill(min(bytes_max, self._config.write_ahead_bytes))
        taken: list[bytes | memoryview] = []
        left = bytes_max
        while self._out and left:
            part = self._out.popleft()
            if len(part) > left:
                view = memoryview(part)
                self._out.appendleft(view[left:])
                part = view[:left]
            taken.append(part)
            left -= len(part)
        self._out_bytes -= bytes_max - left
        return taken

    def _add(self, *packets: bytes | memoryview) -> None:
        self._out.extend(packets)
        self._out_bytes += sum(map(len, packets))

    def _fill(self, bytes_wanted: int) -> None:
        self._write_ends(bytes_wanted)
        while self._out_bytes < bytes_wanted:
            request = self._next_turn()
            if request is None:
                # Whoever could not read has room for it now, perhaps.
                due = self._ahead.due()
                for waiting in due:
                    self.wake(waiting)
                if not due:
                    break
                continue
            outgoing = request.outgoing
            outgoing.queued = False
            if not request.active:
                continue
            inside_of = outgoing.position if outgoing.in_piece else None
            packets = self._sender.pieces(request, self._quantum_bytes(bytes_wanted))
            if packets:
                self._switch_to(request)
                self._add(*packets)
                if self._tracer is not None:
                    self._tracer.packets_sent()
            goes_on = outgoing.in_piece and outgoing.position == inside_of
            if not goes_on or outgoing.unfed or outgoing.cancel_due is not None:
                self.is_inside = False
            self._after_turn(request, progressed=bool(packets))
            self._write_ends(bytes_wanted)

    def _quantum_bytes(self, bytes_wanted: int) -> int:
        """How much a request sends in this turn: all that is wanted, if nobody waits behind it."""
        quantum_bytes = self._config.quantum_bytes
        if self._turns or self._inside_turns:
            return quantum_bytes
        return max(quantum_bytes, bytes_wanted - self._out_bytes)

    def _next_turn(self) -> Request | None:
        """The next one in line; the two lines alternate."""
        # What is not verified yet does not count: it may stall, and would keep all others waiting.
        full = len(self._inside) - len(self._unproved) >= self._config.inside_payloads_max
        self._inside_next = not self._inside_next
        if self._inside_turns and (self._inside_next or full or not self._turns):
            return self._inside_turns.popleft()
        return self._turns.popleft() if self._turns and not full else None

    def _after_turn(self, request: Request, *, progressed: bool) -> None:
        reason = request.outgoing.cancel_due
        if reason is not None:
            self._listener.cancel(request, Cancel(request.number, reason))
            return
        limit = request.limit
        done = limit is not None and request.outgoing.position >= limit
        if done and request.outgoing.unproved:
            # The range was cut before the payload that we are in: better now than never.
            self._apologise(request, apology(request))
        self._book(request)
        self._ahead.sent(request)
        if done:
            self._listener.cancel(request, Cancel(request.number, CancelReason.COMPLETE))
        elif progressed:
            request.progress_at = self._table.now
            if not request.outgoing.awaits_chunk:
                # Else it would have a turn in vain, and is woken when that is there.
                self.wake(request)

    def _book(self, request: Request) -> None:
        """Note whether our cursor is inside a large payload, and inside one that may stall."""
        outgoing, ident = request.outgoing, request.ident
        (self._inside.add if outgoing.in_piece else self._inside.discard)(ident)
        (self._unproved.add if outgoing.unproved else self._unproved.discard)(ident)
        if not outgoing.unfed:
            self._unfed.pop(ident, None)
        elif ident not in self._unfed:
            self._unfed[ident] = (request, self._table.now + self._config.unfed_timeout_s)
        if not outgoing.waiting or outgoing.waiting_at != outgoing.position:
            self._waits.pop(ident, None)
        elif ident not in self._waits or self._waits[ident][1] != outgoing.position:
            due = self._table.now + self._config.payload_wait_s
            self._waits[ident] = (request, outgoing.position, due)

    def _apologise(self, request: Request, packet: bytes) -> None:
        self._switch_to(request)
        self._add(packet)
        if self._tracer is not None:
            self._tracer.packets_made(request, request.outgoing.position, 0, packet)
            self._tracer.packets_sent()

    def _switch_to(self, request: Request) -> None:
        if self._current is not request:
            self._add(encode_switch(request.number))
            self._current = request
            self._ended = False
            if self._tracer is not None:
                self._tracer.switched(request)

    def _write_ends(self, bytes_wanted: int) -> None:
        """Those for which there is room: a request whose end has not left is not over."""
        while self._ends and self._out_bytes < bytes_wanted:
            request = self._ends.popleft()
            self.is_inside = False
            if self._ended:
                # After the end of the current request only a switch may follow (section 6).
                self._switch_to(request)
            self._add(encode_end(request.number))
            if self._tracer is not None:
                self._tracer.end_sent(request)
            if self._current is request:
                self._current = None
                self._ended = True
            self._table.end_sent(request)

    # Time

    def advance(self) -> None:
        """Give up payloads that nobody brings any more, where something waits behind them."""
        now = self._table.now
        for ident, (request, position, due) in list(self._waits.items()):
            if due <= now:
                del self._waits[ident]
                if request.outgoing.position == position and not request.outgoing.in_piece:
                    request.outgoing.waited_at = position
                    look_again(request)
                    self.wake(request)
        for ident, (request, due) in list(self._unfed.items()):
            if not request.outgoing.unfed:
                del self._unfed[ident]
            elif due > now:
                continue
            elif is_in_the_way(request):
                self._apologise(request, apology(request))
                self._book(request)
                self.wake(request)
            else:
                self._unfed[ident] = (request, now + self._config.unfed_timeout_s)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do, or None."""
        dues = [due for _, due in self._unfed.values()]
        dues += [due for _, _, due in self._waits.values()]
        return min(dues, default=None)

    # Replies of the host

    def entries_read(self, request: Request, event: EntriesRead) -> None:
        outgoing = request.outgoing
        outgoing.reading = False
        if not request.active:
            # Nothing of it is sent any more.
            self._ahead.note(request)
            return
        outgoing.read_at = min(outgoing.read_at, event.place)
        entries = event.entries
        for index, entry in enumerate(entries):
            if entry.seq in outgoing.moved and not entry.payload_held:
                # What it says about its payload is out of date: it is read again.
                entries = entries[:index]
                outgoing.changed = True
                break
        outgoing.moved = frozenset()
        if entries and not outgoing.rows:
            outgoing.rows = deque()
        outgoing.rows.extend(entries)
        self._ahead.note(request)
        if entries:
            self.wake(request)
        elif outgoing.changed:
            outgoing.changed = False
            self.wake(request)
        else:
            outgoing.dry = True
            outgoing.rows = outgoing.rows or NOTHING

    def payload_read(self, request: Request, event: PayloadRead) -> None:
        if not self._payloads.was_read(request, event) and request.active:
            reason = CancelReason.NO_RESOURCES
            self._listener.cancel(request, Cancel(request.number, reason))
        self.wake(request)

    def payload_withdrawn(self, request: Request, event: PayloadWithdrawn) -> None:
        """What we may have sent on is wrong, or nobody will ever know."""
        if request.active:
            packet = self._payloads.withdrawn(request, event)
            if packet:
                self._apologise(request, packet)
                self._book(request)
            self.wake(request)

    def arrival_changed(self, request: Request, seq: int) -> None:
        """A payload of this log begins to arrive here, or does so no more."""
        outgoing = request.outgoing
        if outgoing.reading:
            outgoing.moved |= {seq}
        look_at_absent(request)
        if outgoing.in_piece:
            outgoing.read_anew()
        elif outgoing.waiting or seq in payloads_at_hand(request):
            look_again(request)
        elif any(row.seq == seq and not row.payload_held for row in outgoing.rows):
            outgoing.read_anew()
        self.wake(request)

    def log_changed(self, request: Request, newest: int) -> None:
        """More of the log is held than when we last looked."""
        outgoing = request.outgoing
        outgoing.known = max(outgoing.known, newest)
        outgoing.dry = False
        outgoing.changed = outgoing.reading
        outgoing.overtaken = True
        look_at_absent(request)
        if not outgoing.in_piece and outgoing.rows and not outgoing.rows[0].payload_held:
            outgoing.rows.clear()
        if outgoing.waiting:
            outgoing.waiting = False
            outgoing.rows.clear()
        self.wake(request)
