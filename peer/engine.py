"""The session engine: two channels in, two channels out, no sockets, clock or disk.

It owns the request table (control rules), the inbound and outbound halves (data rules), and the
policy (what this node wants), and only passes things between them. Tests drive two of these against
each other with any interleaving of the four byte streams; `Session` puts one behind setup and
bymux.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from wire import (
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    DataDecoder,
    Eagerness,
    LogKey,
    Negotiated,
    Propose,
)
from wire import Violation as WireViolation

from .answering import Answer
from .apologies import Apologies
from .commands import CheckEvidence, Command, LookUp
from .config import SessionConfig
from .errors import RemoteViolation, Violation
from .events import (
    ArrivalChanged,
    EntriesRead,
    Event,
    Ingested,
    IngestFailed,
    InterestsChanged,
    LogChanged,
    LogView,
    LookedUp,
    PayloadFinished,
    PayloadOpened,
    PayloadRead,
    PayloadWithdrawn,
    PayloadWritten,
    Refusal,
    SourceChanged,
    StorageFailed,
    Verdict,
)
from .follow_policy import FollowPolicy
from .idle import IdleWork
from .inbound import Inbound
from .link_speed import Pull
from .links import links_are_ours
from .notices import (
    Arriving,
    NewestLearned,
    Notice,
    PeerHolds,
    RequestCancelled,
    RequestConfirmed,
    RequestGivenUp,
    SyncFinished,
)
from .outbound import Outbound
from .packing import Packer
from .proving import Prover
from .receiving import Receiver
from .request import Request
from .sourcing import Claim, Fetches, claim_all, confirmation, told_by
from .sync_policy import SyncPolicy
from .table import RequestTable
from .timers import Timers
from .tracing import Tracer

if TYPE_CHECKING:
    from .policy import Policy


class Engine:
    """One side of a session above its two channels.

    Every method takes the time from `now`, which the caller sets before. Methods that take what the
    other side sent, or verdicts on it, raise RemoteViolation; then the session is over.
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
    ) -> None:
        self._config = config
        self._commands: list[Command] = []
        self._notices: list[Notice] = []
        self._idle = IdleWork(config, now)
        self._tickets: dict[int, Callable[[LogView], None]] = {}
        self._next_ticket = 0
        self._by_ident: dict[int, Request] = {}
        self._data_ends = self._control_ends = False
        self._released = False
        """Whether a request was released since the policy had its turn."""
        self._control = ControlDecoder()
        self._table = RequestTable(proactive=proactive, config=config, listener=self, tracer=tracer)
        self._table.now = now
        self.claim = claim
        self._fetches = Fetches(self._table.of_log)
        self._prover = Prover(
            self._commands, self._notices, config, receive_greedily=negotiated.receive_greedily
        )
        self._timers = Timers(
            self._table, config, lambda request: self._cancel_for(request, CancelReason.COMPLETE)
        )
        self._decoder = DataDecoder(negotiated.decompression_window)
        self._inbound = Inbound(
            self._decoder,
            self._table,
            self._prover,
            Receiver(self._prover, config, self._table.all),
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
            self,
            tracer,
            send_greedily=negotiated.send_greedily,
        )
        policy = SyncPolicy if config.policy == "sync" else FollowPolicy
        self._policy: Policy = policy(self, config, proactive=proactive)
        self._table.open_credit()

    # Time

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
        self._judge(self._read_data)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        if self._inbound.paused:
            return self.now
        parts = (self._policy, self._timers, self._outbound)
        times = [part.next_deadline() for part in parts]
        return min((time for time in times if time is not None), default=None)

    # The two channels

    def receive_control(self, data: bytes) -> None:
        """Bytes of the control channel."""
        self._control.feed(data)
        self._judge(self._read_control)

    def receive_data(self, data: bytes) -> None:
        """Bytes of the data channel; `data_credit_to_release` says when they are done with."""
        self._inbound.feed(data)
        self._judge(self._read_data)

    def control_to_send(self) -> bytes:
        return self._table.take_bytes()

    def data_to_send(self, bytes_max: int) -> bytes:
        """At most `bytes_max` bytes, which count as sent."""
        data = self._outbound.take_bytes(bytes_max)
        if self._released:
            # Our packet 32 was the last of four messages: what is next may be due at once.
            self._settle()
        return data

    def data_pulled(self, pull: Pull) -> None:
        """How the transport takes what `data_to_send` gave: see `LinkSpeed`."""
        self._packer.pulled(self.now, pull)

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
        held = self._inbound.held_for is not None and not self._control_ends
        left = not self._data_ends and self._inbound.buffered > 0
        return self._inbound.drained and self._prover.idle and not held and not left

    def commands(self) -> list[Command]:
        """What the host has to do; taken once."""
        taken = self._commands[:]
        self._commands.clear()
        return taken

    def notices(self) -> list[Notice]:
        taken = [*self._notices, *self._fetches.take_ended()]
        self._notices.clear()
        return taken

    @property
    def requests(self) -> int:
        """Requests that are not released."""
        return len(self._table)

    def ended(self) -> None:
        """The connection is gone. Afterwards `commands` holds what is to be kept."""
        self._inbound.ended(lost=True)

    def data_ended(self) -> None:
        """The other side sends no more data, in good order: keep what came of the last piece."""
        self._data_ends = True
        self._judge(self._read_data)

    def control_ended(self) -> None:
        """The other side sends no more control messages: what has no answer will get none."""
        self._control_ends = True

    def _judge(self, read: Callable[[], None]) -> None:
        """Run something that judges the other side."""
        try:
            read()
            self._settle()
        except RemoteViolation:
            raise
        except Violation as violation:
            raise RemoteViolation(violation.rule, violation.detail, violation.request) from None
        except WireViolation as violation:
            raise RemoteViolation(violation.rule, violation.finding) from None

    def _read_control(self) -> None:
        while (message := self._control.next_message()) is not None:
            self._table.receive(message)
        if self._table.refused_too_often:
            raise Violation("too much idle work", "too many refused proposals in a row")
        self._read_data()

    def _read_data(self) -> None:
        self._inbound.run()
        self._timers.data_held(self._inbound.held_for is not None)
        if self._data_ends and not self._inbound.expects_reply:
            self._inbound.ended(lost=False)

    def _settle(self) -> None:
        self._released = False
        self._policy.advance()

    # Events of the host

    def handle(self, event: Event) -> None:
        """Take a reply or a local event."""
        self._judge(lambda: self._dispatch(event))

    def _dispatch(self, event: Event) -> None:
        match event:
            case LookedUp():
                self._looked_up(event)
            case EntriesRead() | PayloadRead() | PayloadWithdrawn() | StorageFailed():
                self._read_done(event)
            case Ingested():
                self._idle.forgive()
                if (request := self._prover.ingested(event)) is not None:
                    self._outbound.wake(request)
            case IngestFailed():
                self._ingest_failed(event)
            case PayloadOpened():
                pass
            case PayloadWritten():
                self._prover.written(event)
            case PayloadFinished():
                self._payload_finished(event)
            case LogChanged():
                self._log_changed(event)
            case ArrivalChanged():
                self._arrival_changed(event)
            case InterestsChanged():
                self._policy.interests_changed(event)
            case SourceChanged():
                if not self._policy.source_changed(event):
                    self._fetches.declined(event.log)
        self._read_data()

    def _looked_up(self, event: LookedUp) -> None:
        then = self._tickets.pop(event.ticket, None)
        if then is not None:
            then(event.view)
        else:
            self._inbound.looked_up(event)

    def _read_done(
        self, event: EntriesRead | PayloadRead | PayloadWithdrawn | StorageFailed
    ) -> None:
        request = self._by_ident.get(event.request)
        if request is None:
            return
        if isinstance(event, EntriesRead):
            self._outbound.entries_read(request, event)
        elif isinstance(event, PayloadRead):
            self._outbound.payload_read(request, event)
        elif isinstance(event, PayloadWithdrawn):
            self._outbound.payload_withdrawn(request, event)
        else:
            self._give_up(request, event.detail)

    def _ingest_failed(self, event: IngestFailed) -> None:
        sender = self._by_ident.get(event.request)
        invalid = event.refusal is Refusal.INVALID
        if invalid and sender is not None and links_are_ours(sender, event.seq):
            event = replace(event, refusal=Refusal.FORKED)
        request = self._prover.failed(event)
        if request is None:
            return
        if event.refusal is Refusal.FORKED:
            self._inbound.discard(request)
            self._cancel_for(request, CancelReason.NOT_WANTED)
            self._policy.contradicted(request, event.seq)
        else:
            self._give_up(request, f"entry {event.seq}: {event.detail}")

    def _payload_finished(self, event: PayloadFinished) -> None:
        if event.verdict is Verdict.VALID:
            self._idle.forgive()
        sink_request = self._prover.request_of(event.sink)
        failed = self._prover.finished(event)
        if failed is not None:
            self._give_up(failed, f"payload: {event.detail or event.verdict.value}")
        elif sink_request is not None:
            self._outbound.wake(sink_request)

    def _give_up(self, request: Request, detail: str) -> None:
        """We cannot go on with it, for a reason of ours."""
        if request.cancel_sent is None:
            self._inbound.discard(request)
            self._notices.append(RequestGivenUp(request.number, request.log, detail))
            self._cancel_for(request, CancelReason.NO_RESOURCES)
        self._policy.given_up(request)

    def _log_changed(self, event: LogChanged) -> None:
        for request in list(self._table.of_log(event.log)):
            request.log_end, request.log_forked = event.end, event.fork is not None
            self._outbound.log_changed(request, event.newest)
            self._cut_at_end(request)
            self._stop_at_fork(request)
        self._policy.log_changed(event)

    def _arrival_changed(self, event: ArrivalChanged) -> None:
        for request in self._table.of_log(event.log):
            self._outbound.arrival_changed(request, event.seq)

    def _stop_at_fork(self, request: Request) -> None:
        """A log turned out to be forked: end what reaches the fork, with the proof."""
        if not request.log_forked or not request.active:
            return

        def cancel(view: LogView) -> None:
            end = request.lowest_end()
            reaches = view.fork is not None and (end is None or end >= view.fork)
            if reaches and view.fork_proof is not None and request.cancel_sent is None:
                self._inbound.discard(request)
                reason = CancelReason.FORKED
                self.cancel(request, Cancel(request.number, reason, entries=view.fork_proof))

        self.look_up(LookUp(0, request.log), cancel)

    def _cut_at_end(self, request: Request) -> None:
        """An open range of a log that has ended is finite after all."""
        end = request.log_end
        if end is None or request.lowest_end() is not None or not request.active:
            return
        if end < request.proposal.start:
            self.cancel(request, Cancel(request.number, CancelReason.LOG_ENDED, seq=end))
        else:
            self._table.adjust(request, Adjust(request.number, end=end))
            self._timers.became_finite(request)
            self._outbound.wake(request)

    # What the table tells

    def request_proposed(self, request: Request) -> None:
        self._by_ident[request.ident] = request
        theirs = sum(not other.ours for other in self._table.of_log(request.log))
        if theirs > self._config.requests_per_log_max:
            self._cancel_for(request, CancelReason.NO_RESOURCES)
        else:
            self._policy.request_proposed(request)

    def request_confirmed(self, request: Request) -> None:
        self._timers.answered(request)
        self._note_confirmed(request)
        if request.proposal.sparse and request.base is not None and request.base.end is not None:
            self._notices.append(NewestLearned(request.log, request.base.end))
        self._policy.request_confirmed(request)
        self._cut_at_end(request)
        self._stop_at_fork(request)
        self._outbound.wake(request)

    def request_adjusted(self, request: Request) -> None:
        if request.lowest_end() is not None:
            self._timers.became_finite(request)
        self._outbound.wake(request)

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        self._timers.answered(request)
        self._timers.over(request)
        if cancel.reason is not CancelReason.YOU_CANCELLED:
            self._note_cancel(request, cancel.reason, by_us=False)
        self._policy.request_cancelled(request, cancel)

    def request_lost(self, request: Request) -> None:
        self._forget(request)
        self._policy.request_lost(request)

    def request_released(self, request: Request) -> None:
        self._released = True
        self._forget(request)
        self._policy.request_released(request)

    def _forget(self, request: Request) -> None:
        self._by_ident.pop(request.ident, None)
        self._timers.answered(request)
        self._timers.over(request)
        self._fetches.over(request)

    def end_due(self, request: Request) -> None:
        self._outbound.end_due(request)

    def idle_work(self) -> None:
        self._idle.add(self.now)

    def credit_arrived(self) -> None:
        """`_settle` uses it."""

    # What the data channel tells

    def request_given_up(self, request: Request, detail: str) -> None:
        self._give_up(request, detail)

    def peer_holds(self, request: Request, seq: int) -> None:
        held = request.outgoing.known
        if request.ours and request.proposal.offset is not None:
            # What we asked for begins in a payload that we lack.
            held = min(held, request.proposal.start - 1)
        self._notices.append(PeerHolds(request.log, seq, held))
        self._policy.peer_holds(request, seq)

    def payload_skipped(self, request: Request) -> None:
        self._policy.payload_skipped(request)

    def arriving(self, request: Request, data_bytes: int) -> None:
        incoming, base = request.incoming, request.base
        if base is None or incoming.discarding:
            return
        inside = incoming.sink is not None
        position = incoming.position if incoming.in_piece else incoming.position - 1
        newest = base.piece(position).seq if position >= 0 else base.start
        self._notices.append(Arriving(request.log, data_bytes, newest, inside))

    def cursor_moved(self, request: Request) -> None:
        request.progress_at = self.now
        self._outbound.wake(request)

    def new_ticket(self) -> int:
        self._next_ticket += 1
        return self._next_ticket

    # What the policy may do

    @property
    def request_credit(self) -> int:
        return self._table.credit

    def look_up(self, wanted: LookUp, then: Callable[[LogView], None]) -> None:
        ticket = self.new_ticket()
        self._tickets[ticket] = then
        self._commands.append(replace(wanted, ticket=ticket))

    def requests_of(self, log: LogKey) -> list[Request]:
        return self._table.of_log(log)

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        return self._table.may_propose(log, start, end)

    def next_number(self) -> int:
        return self._table.next_number()

    def propose(self, proposal: Propose, view: LogView) -> Request:
        request = self._table.propose(proposal)
        _note_view(request, view)
        self._by_ident[request.ident] = request
        self._timers.proposed(request)
        return request

    def answer(self, request: Request, view: LogView, decision: Answer) -> None:
        _note_view(request, view)
        if (told := told_by(request.proposal, view)) is not None:
            self._notices.append(told)
        if decision.confirm is not None:
            self._table.confirm(request, confirmation(request, decision.confirm, self.claim))
            self._note_confirmed(request)
            self._cut_at_end(request)
            self._stop_at_fork(request)
            self._outbound.wake(request)
        elif decision.cancel is not None:
            self.cancel(request, decision.cancel, paced=not decision.take_over)

    def adjust(self, request: Request, adjust: Adjust) -> None:
        self._table.adjust(request, adjust)
        if request.lowest_end() is not None:
            self._timers.became_finite(request)
        self._outbound.wake(request)

    def cancel(self, request: Request, cancel: Cancel, *, paced: bool = True) -> None:
        if request.cancel_sent is None:
            self._table.cancel(request, cancel, paced=paced)
            self._note_cancel(request, cancel.reason, by_us=True)

    def _cancel_for(self, request: Request, reason: CancelReason) -> None:
        self.cancel(request, Cancel(request.number, reason))

    def stop_fetching(self, request: Request) -> None:
        """Ask for notifications only. Inside a large payload that takes a cancel."""
        if request.incoming.sink is not None:
            self._inbound.discard(request)
            self._cancel_for(request, CancelReason.NOT_WANTED)
        elif request.active:
            self._table.adjust(request, Adjust(request.number, eagerness=Eagerness.NOTIFY))
            self._fetches.declined(request.log)

    def check_evidence(self, log: LogKey, entries: tuple[bytes, ...]) -> None:
        self._commands.append(CheckEvidence(log, entries))

    def finished_sync(self, logs: int) -> None:
        self._notices.append(SyncFinished(logs))

    @property
    def wants_pong(self) -> bool:
        """Whether a sync waits for a sign of life before it calls itself done."""
        return isinstance(self._policy, SyncPolicy) and self._policy.wants_pong and self.drained

    def pong_arrived(self) -> None:
        if isinstance(self._policy, SyncPolicy):
            self._policy.pong_arrived()
        self._settle()

    # Notices

    def _note_confirmed(self, request: Request) -> None:
        request.progress_at = self.now
        end = request.lowest_end()
        if end is not None:
            self._timers.became_finite(request)
        self._notices.append(
            RequestConfirmed(request.number, request.log, request.ours, request.proposal.start, end)
        )

    def _note_cancel(self, request: Request, reason: CancelReason, *, by_us: bool) -> None:
        self._timers.over(request)
        self._fetches.over(request)
        self._notices.append(RequestCancelled(request.number, request.log, reason, by_us))


def _note_view(request: Request, view: LogView) -> None:
    """Take over what a look-up says, unless something newer has been heard since."""
    request.outgoing.known = max(request.outgoing.known, view.newest)
    if request.log_end is None:
        request.log_end = view.end
