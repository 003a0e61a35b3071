"""The session engine: two channels in, two channels out, no sockets, clock or disk.

It owns the request table (control rules), the inbound and outbound halves (data rules), and the
planner (what this node wants), and only passes things between them. What becomes of a request is
told to its owner, or else to the planner; but what a confirmation or a cancel shows of an own log
is told to withholding whoever has asked. Tests drive two of these against each other with any
interleaving of the four byte streams; `Session` puts one behind setup and bymux.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from peer.data.apologies import Apologies
from peer.data.inbound import Inbound
from peer.data.link_speed import Pull
from peer.data.links import links_are_ours
from peer.data.outbound import Outbound
from peer.data.packing import Packer
from peer.data.pinning import doubted
from peer.data.proving import Prover
from peer.data.receiving import Receiver
from peer.planner.acting import Actor
from peer.planner.late import LateOffers
from peer.planner.newest import NewestQuestions
from peer.planner.planner import Planner
from peer.planner.retries import earliest
from peer.planner.sourcing import Claim, Fetches, Readable, claim_all
from peer.planner.withholding import Withholding
from peer.protocol.buckets import Buckets
from peer.protocol.commands import Command
from peer.protocol.config import SessionConfig
from peer.protocol.errors import RemoteViolation, Violation
from peer.protocol.events import (
    ArrivalChanged,
    EntriesRead,
    Event,
    Ingested,
    IngestFailed,
    InterestsChanged,
    LogChanged,
    LookedUp,
    NewestAsked,
    PayloadFinished,
    PayloadRead,
    PayloadWithdrawn,
    PayloadWritten,
    Refusal,
    SourceChanged,
    StorageFailed,
    Verdict,
    is_about_bytes,
)
from peer.protocol.idle import IdleWork
from peer.protocol.notices import Limit, LimitMet, Notice
from peer.protocol.request import Owner, Request
from peer.protocol.table import RequestTable
from peer.protocol.tickets import Tickets
from peer.protocol.timers import Timers
from peer.protocol.tracing import Tracer
from wire import Cancel, CancelReason, ControlDecoder, DataDecoder, LogKey, Negotiated
from wire import Violation as WireViolation

from .stirs import Stirs


class Engine:
    """One side of a session above its two channels.

    Every method takes the time from `now`, which the caller sets before. Methods that take what the
    other side sent, or verdicts on it, raise RemoteViolation; then the session is over. `opened`:
    it was told already what it may propose (`opening`).
    """

    def __init__(
        self,
        negotiated: Negotiated,
        config: SessionConfig,
        *,
        proactive: bool,
        now: float,
        tracer: Tracer | None = None,
        claim: Claim = claim_all,
        buckets: Buckets | None = None,
        opened: bool = False,
    ) -> None:
        self._config = config
        self._commands: list[Command] = []
        self._notices: list[Notice] = []
        self._idle = IdleWork(config, now)
        self._tickets = Tickets(self._commands)
        self._by_ident: dict[int, Request] = {}
        self._open = {"control", "data"}  # channels of which the other side has not said its last
        self._released, self.stirs = False, Stirs()  # a request was, since the planner's turn
        self._control = ControlDecoder()
        self._table = RequestTable(proactive=proactive, config=config, listener=self, tracer=tracer)
        self._table.now = now
        self._fetches = Fetches(self._table.of_log)
        greedy, clock = negotiated.receive_greedily, lambda: self._table.now
        self._prover = Prover(self._commands, self._notices, config, clock, receive_greedily=greedy)
        buckets = buckets or Buckets.of(config)
        self._timers = Timers(self._table, config, buckets.refunds, self._complete)
        self.actor = Actor(
            self._table,
            self._by_ident,
            self._timers,
            self._tickets,
            self._fetches,
            self._commands,
            self._notices,
            claim,
            self,
            proactive=proactive,
            silence_s=config.silence_s,
        )
        self._late = LateOffers(self.actor, config)
        self._decoder = DataDecoder(negotiated.decompression_window)
        self._inbound = Inbound(
            self._decoder,
            self._table,
            self._prover,
            Receiver(self._prover, config, self._table.all, self._late.both_have, self._notices),
            Apologies(self._prover, receive_greedily=negotiated.receive_greedily),
            self._commands,
            config,
            self,
            tracer,
        )
        self._packer = Packer(negotiated.compression_window, config.compression)
        self._outbound = Outbound(
            self._table,
            self._commands,
            self._notices,
            config,
            self._packer,
            self.actor,
            self.actor.leaving,
            self._late,
            tracer,
            send_greedily=negotiated.send_greedily,
        )
        once = config.policy == "sync"
        self._planner = Planner(self.actor, config, buckets.logs, proactive=proactive, once=once)
        self._table.open_credit(is_said=opened)

    # Time

    @property
    def _withholding(self) -> Withholding:
        return self.actor.withholding

    @property
    def now(self) -> float:
        """Seconds, on the clock of the caller."""
        return self._table.now

    @now.setter
    def now(self, value: float) -> None:
        self._table.now = value

    def advance(self) -> None:
        """Do what is due by now. Raises SessionTimeout if the other side owes us too long."""
        self._timers.advance()
        self._outbound.advance()
        self._inbound.advance()
        # What was offered is taken whoever the log's source is: begun and left, it would be kept
        # from everybody. But what waits for our own disk is no silence of the other side.
        for request in self._prover.inside_offers():
            due = request.progress_at + self._config.unfed_timeout_s
            if due <= self.now and not self.is_behind:
                self._give_up(request, "the rest of a payload that was offered does not come")
        self._judge(self._go_on)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        self.stirs.may_be_due = False
        if self._inbound.paused:
            return self.now
        parts = (self._planner, self._late, self._withholding, self._timers)
        channels = (self._outbound, self._inbound, self._prover)
        offers = () if self.is_behind else self._prover.inside_offers()
        stalls = (each.progress_at + self._config.unfed_timeout_s for each in offers)
        return earliest(*[part.next_deadline() for part in (*parts, *channels)], *stalls)

    # The two channels

    def receive_control(self, data: bytes | memoryview) -> None:
        """Bytes of the control channel."""
        self._control.feed(data)
        self._judge(self._read_control)

    def receive_data(self, *pieces: bytes | memoryview) -> None:
        """Bytes of the data channel; `data_credit_to_release` says when they are done with."""
        for piece in pieces:
            self._inbound.feed(piece)
        self._judge(self._read_data)

    def note_small_writes(self, count: int) -> None:
        """So many Writes of a few bytes have come since the last call. Raises RemoteViolation."""
        self._judge(lambda: self._idle.small_writes(count, self.now))

    def control_to_send(self) -> bytes:
        return self._table.take_bytes()

    def unread(self, unread_bytes: int) -> None:
        """So many of the control bytes so far are not sent yet."""
        if self._table.unread(unread_bytes):
            self._notices.append(LimitMet(Limit.ANSWER_BYTES))

    def data_to_send(self, bytes_max: int) -> list[bytes | memoryview]:
        """At most `bytes_max` bytes, which count as sent, in pieces that are as they were made."""
        pieces = self._outbound.take(bytes_max)
        if self._released or self._withholding.is_due:
            # Our packet 32 was the last of four messages: what is next may be due at once. Or
            # something would be sent, were it known that it contradicts nothing over there.
            self._settle()
        elif not self._outbound.is_inside:
            self.stirs.stir()
        return pieces

    def data_pulled(self, pull: Pull) -> None:
        """How the transport takes what `data_to_send` gave: see `LinkSpeed`."""
        self._packer.pulled(self.now, pull)

    @property
    def awaits_payload(self) -> bool:
        """Whether there is nothing to send before the host has read more of a payload, or stirs."""
        return self._outbound.awaits_payload and not self.stirs.is_to_pull

    @property
    def saved_bytes(self) -> tuple[int, int]:
        """What compression saved of the payload bytes that were received, and sent."""
        return self._decoder.saved_bytes, self._packer.saved_bytes

    def data_credit_to_release(self) -> int:
        """Bytes of the data channel that cost us nothing any more, since the last call."""
        return self._inbound.credit_to_release()

    @property
    def drained(self) -> bool:
        """Whether everything that came on the data channel is stored or thrown away."""
        # Once the other side has said its last on control, no answer comes for what is held for
        # one.
        held = self._inbound.held_for is not None and "control" in self._open
        left = "data" in self._open and self._inbound.buffered > 0
        return self._inbound.drained and self._prover.idle and not held and not left

    @property
    def reads(self) -> Readable:
        """What the book of sources reads."""
        return self._planner.reads

    @property
    def is_behind(self) -> bool:
        """Whether data that came is not read before this host has done its part."""
        return self._inbound.expects_reply

    def commands(self) -> list[Command]:
        """What the host has to do; taken once."""
        taken = self._commands[:]
        self._commands.clear()
        return taken

    def notices(self) -> list[Notice]:
        taken = [*self._notices, *self._fetches.take_ended(self._planner.is_settling)]
        self._notices.clear()
        return taken

    @property
    def requests(self) -> int:
        """Requests that are not released."""
        return len(self._table)

    @property
    def request_credit(self) -> int:
        """Proposals that may still be sent."""
        return self._table.credit

    @property
    def wants_pong(self) -> bool:
        """Whether a sync waits for a sign of life before it calls itself done.

        Only once all that it has to say has left: a ping passes what waits for credit.
        """
        # First whether it is a sync at all: this is asked in each turn.
        if not self._planner.wants_pong:
            return False
        return self.drained and not (self._outbound.unsent or self._withholding.is_asking)

    def ping_sent(self) -> None:
        self._planner.ping_sent()

    def pong_arrived(self) -> None:
        self._planner.pong_arrived()
        self._settle()

    @property
    def wants_receipt(self) -> bool:
        """Whether it matters that the control messages so far have arrived: a ping is to follow."""
        return self._withholding.wants_receipt

    def receipt_asked(self) -> None:
        """A ping left behind them."""
        self._withholding.receipt_asked()

    def receipt_came(self) -> None:
        """It was answered."""
        self._withholding.receipt_came()
        self.stirs.stir()

    def ended(self) -> None:
        """The connection is gone. Afterwards `commands` holds what is to be kept."""
        self._timers.ended()
        self._inbound.ended(lost=True)

    def data_ended(self) -> None:
        """The other side sends no more data, in good order: keep what came of the last piece."""
        self._open.discard("data")
        self._judge(self._read_data)

    def control_ended(self) -> None:
        """The other side sends no more control messages: what has no answer will get none."""
        self._open.discard("control")

    def _judge(self, read: Callable[[], bool | None]) -> None:
        """Run something that judges the other side. False: nothing is to be done behind that."""
        try:
            if read() is not False:
                self._settle()
        except RemoteViolation:
            raise
        except Violation as violation:
            raise RemoteViolation(violation.rule, violation.detail, violation.request) from None
        except WireViolation as violation:
            raise RemoteViolation(violation.rule, violation.finding) from None

    def _go_on(self) -> None:
        self._prover.advance()
        self._read_data()

    def _read_control(self) -> None:
        while (message := self._control.next_message()) is not None:
            self._idle.completed += 1
            self._table.receive(message)
        self._read_data()

    def _read_data(self) -> bool:
        """Whether more came than bytes in the middle of a payload."""
        self._idle.completed += self._inbound.run()
        self._timers.data_held(self._inbound.held_for is not None)
        if "data" not in self._open and not self._inbound.expects_reply:
            self._inbound.ended(lost=False)
            return True
        return not self._inbound.is_inside

    def _settle(self) -> None:
        self.stirs.stir()
        self._released = False
        # First, since it asks little and much hangs on it: offers would take all the credit.
        self._withholding.advance()
        self._planner.advance()
        # Last: the other side asks again for that by itself.
        self._late.advance()

    # Events of the host

    def handle(self, event: Event) -> None:
        """Take a reply or a local event."""
        self.handle_all((event,))

    def handle_all(self, events: Sequence[Event]) -> None:
        """Take several in their order, and go on with reading and planning once."""
        if self._inbound.expects_reply or not all(map(is_about_bytes, events)):
            self._judge(lambda: self._dispatch_all(events))
            return
        for event in events:
            self._dispatch(event)

    def _dispatch_all(self, events: Sequence[Event]) -> None:
        for event in events:
            self._dispatch(event)
        self._read_data()

    def _dispatch(self, event: Event) -> None:
        match event:
            case LookedUp():
                self._looked_up(event)
            case EntriesRead() | PayloadRead() | PayloadWithdrawn() | StorageFailed():
                self._read_done(event)
            case Ingested():
                self._forgive()
                if (request := self._prover.ingested(event)) is not None:
                    self.wake(request)
            case IngestFailed():
                self._ingest_failed(event)
            case PayloadWritten():
                self._prover.written(event)
            case PayloadFinished():
                self._payload_finished(event)
            case LogChanged():
                self._log_changed(event)
            case ArrivalChanged():
                self._arrival_changed(event)
            case InterestsChanged():
                self.actor.leaving.interests_changed(event)
                self._planner.interests_changed(event)
            case NewestAsked():
                NewestQuestions(self.actor).ask(event.logs)
            case SourceChanged():
                if not self._planner.source_changed(event):
                    self._fetches.declined(event.log)

    def _looked_up(self, event: LookedUp) -> None:
        if not self._tickets.answered(event):
            self._inbound.looked_up(event)

    def _read_done(
        self, event: EntriesRead | PayloadRead | PayloadWithdrawn | StorageFailed
    ) -> None:
        request = self._by_ident.get(event.request)
        if request is None:
            return
        if isinstance(event, EntriesRead):
            self._outbound.entries_read(request, event)
            if request.outgoing.dry and request.active:
                self._planner.ran_dry(request)
        elif isinstance(event, PayloadRead):
            if event.data:
                self.stirs.stir_sending()
            else:
                self.stirs.stir()
            self._outbound.payload_read(request, event)
        elif isinstance(event, PayloadWithdrawn):
            self._outbound.payload_withdrawn(request, event)
        else:
            self._give_up(request, event.detail)

    def _ingest_failed(self, event: IngestFailed) -> None:
        # It may be over, and released. Where the links were ours and not the other side's, the
        # entry is right over there: no fault, but another history.
        sender = self._prover.sender_of(event.request)
        invalid = event.refusal is Refusal.INVALID
        if invalid and sender is not None and links_are_ours(sender, event.seq):
            event = replace(event, refusal=Refusal.FORKED)
        request = self._prover.failed(event)
        if request is None:
            return
        if event.refusal is Refusal.FORKED:
            self.discard(request)
            self.actor.cancel_for(request, CancelReason.NOT_WANTED)
            self._withholding.contradicted(request.log)
            if request.owner is None:
                self._planner.outcomes.contradicted(request, event.seq)
        else:
            no_room = event.refusal is Refusal.NO_ROOM
            self._give_up(request, f"entry {event.seq}: {event.detail}", no_room=no_room)

    def _forgive(self) -> None:
        """Something useful came."""
        self._idle.forgive()
        self._table.forgive()

    def _payload_finished(self, event: PayloadFinished) -> None:
        if event.verdict is Verdict.VALID:
            self._forgive()
        sink_request = self._prover.request_of(event.sink)
        failed = self._prover.finished(event)
        if failed is not None and event.verdict is Verdict.DROPPED:
            self.discard(failed)
            self.actor.cancel_for(failed, CancelReason.NOT_WANTED)
        elif failed is not None:
            detail = f"payload: {event.detail or event.verdict.value}"
            self._give_up(failed, detail, no_room=event.verdict is Verdict.NO_ROOM)
        elif sink_request is not None:
            self.wake(sink_request)

    def _give_up(self, request: Request, detail: str, *, no_room: bool = False) -> None:
        """We cannot go on with it, for a reason of ours; it may be over but for what it brought."""
        self.actor.give_up(request, detail)
        if request.owner is None:
            self._planner.outcomes.given_up(request, doubted(request), no_room=no_room)

    def _log_changed(self, event: LogChanged) -> None:
        # Cursors first: what goes out in requests that there are needs no proposal.
        for request in list(self._table.of_log(event.log)):
            request.log_end, request.log_fork = event.end, event.fork
            self._outbound.log_changed(request, event.newest)
            self.actor.keep_inside_log(request)
        self._late.log_changed(event.log)
        self._planner.log_changed(event)

    def _arrival_changed(self, event: ArrivalChanged) -> None:
        for request in self._table.of_log(event.log):
            self._outbound.arrival_changed(request, event.seq)
        self._planner.arrival_changed(event.log)

    # What the table tells

    def request_proposed(self, request: Request) -> None:
        self._by_ident[request.ident] = request
        # Before anything is looked up for it. A log in parts takes some requests, and each of them
        # is walked through whenever something of the log comes.
        theirs = sum(not other.ours for other in self._table.of_log(request.log))
        if theirs > self._config.requests_per_log_max:
            self.actor.cancel_for(request, CancelReason.NO_RESOURCES)
        else:
            self._planner.request_proposed(request)

    def request_confirmed(self, request: Request) -> None:
        self._timers.answered(request)
        self.actor.note_confirmed(request)
        self.actor.note_newest(request)
        # Whoever has asked: what a planner's probe is told is what withholding would ask next.
        self._withholding.shown_by_confirmation(request)
        if request.owner is None:
            self._planner.outcomes.confirmed(request)
        self.actor.keep_inside_log(request)
        self.wake(request)

    def request_adjusted(self, request: Request) -> None:
        if request.lowest_end() is not None:
            self._timers.became_finite(request)
        self.wake(request)

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        self._timers.answered(request)
        self._timers.over(request)
        if cancel.reason is not CancelReason.YOU_CANCELLED:
            self.actor.note_cancelled(request, cancel.reason, by_us=False)
        if cancel.entries:
            # Whoever has asked, and whatever is known of the log: a proof is one.
            self.actor.check_evidence(request.log, cancel.entries)
        self._withholding.shown_by_cancel(request, cancel)
        self._owner_of(request).cancelled(request, cancel)

    def request_lost(self, request: Request) -> None:
        self._forget(request)
        self._owner_of(request).lost(request)

    def request_released(self, request: Request) -> None:
        self._released = True
        self._forget(request)
        self._owner_of(request).released(request)

    def _owner_of(self, request: Request) -> Owner:
        return self._planner.outcomes if request.owner is None else request.owner

    def _forget(self, request: Request) -> None:
        self._by_ident.pop(request.ident, None)
        self._timers.answered(request)
        self._timers.over(request)
        self._fetches.over(request)

    def end_due(self, request: Request) -> None:
        self._outbound.end_due(request)

    def _complete(self, request: Request) -> None:
        self.actor.cancel_for(request, CancelReason.COMPLETE)

    def granted(self, units: int, *, proposals: int) -> None:
        self._idle.grant(units, proposals, self.now)

    def idle_work(self) -> None:
        self._idle.add(self.now)

    # What acting takes

    def discard(self, request: Request) -> None:
        self._inbound.discard(request)

    def wake(self, request: Request) -> None:
        self._outbound.wake(request)

    def fork_told(self, log: LogKey, fork: int) -> None:
        self._planner.fork_told(log, fork)

    # What the data channel tells

    def request_given_up(self, request: Request, detail: str) -> None:
        self._give_up(request, detail)

    def peer_holds(self, request: Request, seq: int) -> None:
        self.actor.note_peer_holds(request, seq)
        self._planner.peer_holds(request, seq)

    def payload_skipped(self, request: Request) -> None:
        self._planner.payload_skipped(request)

    def arriving(self, request: Request, data_bytes: int) -> None:
        request.progress_at = self.now
        self.actor.note_arriving(request, data_bytes)

    def cursor_moved(self, request: Request) -> None:
        request.progress_at = self.now
        self.wake(request)

    def new_ticket(self) -> int:
        return self._tickets.new()
