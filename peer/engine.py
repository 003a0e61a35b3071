"""The session engine: two channels in, two channels out, no sockets, clock or disk.

It owns the request table (control rules), the inbound and outbound halves (data rules), and the
policy (what this node wants), and only passes things between them. Tests drive two of these against
each other with any interleaving of the four byte streams; `Session` puts one behind setup and
bymux.
"""

from collections.abc import Callable
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

from .answering import answer
from .commands import CheckEvidence, Command, LookUp
from .config import SessionConfig
from .errors import RemoteViolation, SessionTimeout, Violation
from .events import (
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
    PayloadWritten,
    Refusal,
    StorageFailed,
)
from .follow_policy import FollowPolicy
from .idle import IdleWork
from .inbound import Inbound
from .notices import (
    NewestLearned,
    Notice,
    RequestCancelled,
    RequestConfirmed,
    RequestGivenUp,
    SyncFinished,
)
from .outbound import Outbound
from .proving import Prover
from .receiving import Receiver
from .request import Request
from .sync_policy import SyncPolicy
from .table import RequestTable

if TYPE_CHECKING:
    from .policy import Policy


class Engine:
    """One side of a session above its two channels.

    Every method takes the time from `now`, which the caller sets before. Methods that take what the
    other side sent, or verdicts on it, raise RemoteViolation; then the session is over.
    """

    def __init__(
        self, negotiated: Negotiated, config: SessionConfig, *, proactive: bool, now: float
    ) -> None:
        self._config = config
        self._commands: list[Command] = []
        self._notices: list[Notice] = []
        self._idle = IdleWork(config, now)
        self._tickets: dict[int, Callable[[LogView], None]] = {}
        self._next_ticket = 0
        self._by_ident: dict[int, Request] = {}
        self._unanswered: dict[int, Request] = {}
        self._finite: dict[int, Request] = {}
        self._held_since: float | None = None
        self._credit_paced_at = now
        self._control = ControlDecoder()
        self._table = RequestTable(proactive=proactive, config=config, listener=self)
        self._table.now = now
        self._prover = Prover(
            self._commands, self._notices, config, receive_greedily=negotiated.receive_greedily
        )
        receiver = Receiver(self._prover, config, receive_greedily=negotiated.receive_greedily)
        decoder = DataDecoder(negotiated.decompression_window)
        self._inbound = Inbound(
            decoder, self._table, self._prover, receiver, self._commands, config, self
        )
        self._outbound = Outbound(self._table, self._commands, self._notices, config, self)
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
        now, config = self.now, self._config
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None and now - oldest.created_at >= config.unanswered_timeout_s:
            raise SessionTimeout(
                f"request {oldest.number} has no answer after {config.unanswered_timeout_s:.0f} s"
            )
        if self._held_since is not None and now - self._held_since >= config.held_data_timeout_s:
            raise SessionTimeout(
                "data for a request without an answer waits for more than"
                f" {config.held_data_timeout_s:.0f} s"
            )
        for request in list(self._finite.values()):
            if request.active and now - request.progress_at >= config.complete_timeout_s:
                self._complete_if_quiet(request)
        if self._table.credit_owed:
            units = int((now - self._credit_paced_at) * config.refused_credit_per_s)
            if units > 0:
                self._table.return_credit(units)
                self._credit_paced_at = now
        else:
            self._credit_paced_at = now
        self._settle()

    def _complete_if_quiet(self, request: Request) -> None:
        """Section 6: nobody sends in a finite request of ours, so we end it."""
        both_notify = (
            request.our_interest.eagerness is Eagerness.NOTIFY
            and request.their_interest.eagerness is Eagerness.NOTIFY
        )
        if both_notify:
            self.cancel(request, Cancel(request.number, CancelReason.COMPLETE))
        else:
            request.progress_at = self.now

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        config = self._config
        times = [self._policy.next_deadline()]
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None:
            times.append(oldest.created_at + config.unanswered_timeout_s)
        if self._held_since is not None:
            times.append(self._held_since + config.held_data_timeout_s)
        if self._table.credit_owed:
            times.append(self._credit_paced_at + 1 / config.refused_credit_per_s)
        if self._finite:
            earliest = min(request.progress_at for request in self._finite.values())
            times.append(earliest + config.complete_timeout_s)
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
        return self._outbound.take_bytes(bytes_max)

    @property
    def wants_to_send_data(self) -> bool:
        """Whether there may be data to send; `data_to_send` may still find none."""
        return self._outbound.wants_to_send

    def data_credit_to_release(self) -> int:
        """Bytes of the data channel that cost us nothing any more, since the last call."""
        return self._inbound.credit_to_release()

    @property
    def drained(self) -> bool:
        """Whether everything that came on the data channel is stored or thrown away."""
        return self._inbound.drained and self._inbound.buffered == 0 and self._prover.idle

    def commands(self) -> list[Command]:
        """What the host has to do; taken once."""
        taken = self._commands[:]
        self._commands.clear()
        return taken

    def notices(self) -> list[Notice]:
        taken = self._notices[:]
        self._notices.clear()
        return taken

    @property
    def requests(self) -> int:
        """Requests that are not released."""
        return len(self._table)

    def ended(self) -> None:
        """The connection is gone. Afterwards `commands` holds what is to be kept."""
        self._inbound.ended()

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
            raise RemoteViolation(violation.rule, violation.detail) from None

    def _read_control(self) -> None:
        while (message := self._control.next_message()) is not None:
            self._table.receive(message)
        if self._table.refused_too_often:
            raise Violation("too much idle work", "too many refused proposals in a row")
        self._read_data()

    def _read_data(self) -> None:
        self._inbound.run()
        held = self._inbound.held_for is not None
        if not held:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = self.now

    def _settle(self) -> None:
        self._policy.advance()

    # Events of the host

    def handle(self, event: Event) -> None:
        """Take a reply or a local event."""
        self._judge(lambda: self._dispatch(event))

    def _dispatch(self, event: Event) -> None:
        match event:
            case LookedUp():
                then = self._tickets.pop(event.ticket, None)
                if then is not None:
                    then(event.view)
                else:
                    self._inbound.looked_up(event)
            case EntriesRead() | PayloadRead() | StorageFailed():
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
            case InterestsChanged():
                self._policy.interests_changed(event)
        self._read_data()

    def _read_done(self, event: EntriesRead | PayloadRead | StorageFailed) -> None:
        request = self._by_ident.get(event.request)
        if request is None:
            return
        if isinstance(event, EntriesRead):
            self._outbound.entries_read(request, event)
        elif isinstance(event, PayloadRead):
            self._outbound.payload_read(request, event)
        else:
            self._give_up(request, event.detail)

    def _ingest_failed(self, event: IngestFailed) -> None:
        request = self._prover.failed(event)
        if request is None:
            return
        if event.refusal is Refusal.FORKED:
            self._inbound.discard(request)
            self.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
            self._policy.contradicted(request.log, event.seq)
        else:
            self._give_up(request, f"entry {event.seq}: {event.detail}")

    def _payload_finished(self, event: PayloadFinished) -> None:
        self._idle.forgive()
        sink_request = self._prover.request_of(event.sink)
        failed = self._prover.finished(event)
        if failed is not None:
            self._give_up(failed, f"payload: {event.detail or event.verdict.value}")
        elif sink_request is not None:
            self._outbound.wake(sink_request)

    def _give_up(self, request: Request, detail: str) -> None:
        """We cannot go on with it, for a reason of ours."""
        if request.cancel_sent is not None:
            return
        self._inbound.discard(request)
        self._notices.append(RequestGivenUp(request.number, request.log, detail))
        self.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
        self._policy.given_up(request)

    def _log_changed(self, event: LogChanged) -> None:
        for request in list(self._table.of_log(event.log)):
            if event.fork is not None and request.cancel_sent is None:
                self._stop_at_fork(request)
            elif request.active:
                self._outbound.log_changed(request, event.newest)
                self._cut_at_end(request, event.end)
        self._policy.log_changed(event)

    def _stop_at_fork(self, request: Request) -> None:
        """A log turned out to be forked: end what reaches the fork, with the proof."""
        if not request.answered:
            return

        def cancel(view: LogView) -> None:
            end = request.lowest_end()
            reaches = view.fork is not None and (end is None or end >= view.fork)
            if reaches and view.fork_proof is not None and request.cancel_sent is None:
                self._inbound.discard(request)
                reason = CancelReason.FORKED
                self.cancel(request, Cancel(request.number, reason, entries=view.fork_proof))

        self.look_up(request.log, (), None, cancel)

    def _cut_at_end(self, request: Request, end: int | None) -> None:
        """An open range of a log that has ended is finite after all."""
        if end is None or request.lowest_end() is not None or not request.active:
            return
        if end < request.proposal.start:
            self.cancel(request, Cancel(request.number, CancelReason.LOG_ENDED, seq=end))
        else:
            self._table.adjust(request, Adjust(request.number, end=end))
            self._outbound.wake(request)

    # What the table tells

    def request_proposed(self, request: Request) -> None:
        self._by_ident[request.ident] = request
        self._policy.request_proposed(request)

    def request_confirmed(self, request: Request) -> None:
        self._unanswered.pop(request.ident, None)
        self._note_confirmed(request)
        if request.proposal.sparse and request.base is not None and request.base.end is not None:
            self._notices.append(NewestLearned(request.log, request.base.end))
        self._policy.request_confirmed(request)
        self._outbound.wake(request)

    def request_adjusted(self, request: Request) -> None:
        self._outbound.wake(request)

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        self._unanswered.pop(request.ident, None)
        self._finite.pop(request.ident, None)
        if cancel.reason is not CancelReason.YOU_CANCELLED:
            self._note_cancel(request, cancel.reason, by_us=False)
        self._policy.request_cancelled(request, cancel)

    def request_lost(self, request: Request) -> None:
        self._forget(request)
        self._policy.request_lost(request)

    def request_released(self, request: Request) -> None:
        self._forget(request)
        self._policy.request_released(request)

    def _forget(self, request: Request) -> None:
        for index in (self._by_ident, self._unanswered, self._finite):
            index.pop(request.ident, None)

    def end_due(self, request: Request) -> None:
        self._outbound.end_due(request)

    def idle_work(self) -> None:
        self._idle.add(self.now)

    def credit_arrived(self) -> None:
        """`_settle` uses it."""

    # What the data channel tells

    def request_given_up(self, request: Request, detail: str) -> None:
        self._give_up(request, detail)

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

    def look_up(
        self,
        log: LogKey,
        hashes_of: tuple[int, ...],
        entry: int | None,
        then: Callable[[LogView], None],
    ) -> None:
        ticket = self.new_ticket()
        self._tickets[ticket] = then
        self._commands.append(LookUp(ticket, log, hashes_of, entry))

    def requests_of(self, log: LogKey) -> list[Request]:
        return self._table.of_log(log)

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        return self._table.may_propose(log, start, end)

    def next_number(self) -> int:
        return self._table.next_number()

    def propose(self, proposal: Propose, newest: int) -> Request:
        request = self._table.propose(proposal)
        request.outgoing.known = newest
        self._by_ident[request.ident] = request
        self._unanswered[request.ident] = request
        return request

    def answer(self, request: Request, view: LogView, *, wanted: bool, serve: bool) -> bool:
        """Answer by the common rules; True if we refused because we ask ourselves."""
        decision = answer(request.proposal, view, wanted=wanted, serve=serve)
        request.outgoing.known = view.newest
        if decision.confirm is not None:
            self._table.confirm(request, decision.confirm)
            self._note_confirmed(request)
            self._cut_at_end(request, view.end)
            self._outbound.wake(request)
        elif decision.cancel is not None:
            self.cancel(request, decision.cancel, paced=not decision.take_over)
        return decision.take_over

    def cancel(self, request: Request, cancel: Cancel, *, paced: bool = True) -> None:
        if request.cancel_sent is None:
            self._table.cancel(request, cancel, paced=paced)
            self._note_cancel(request, cancel.reason, by_us=True)

    def check_evidence(self, log: LogKey, entries: tuple[bytes, ...]) -> None:
        self._commands.append(CheckEvidence(log, entries))

    def finished_sync(self, logs: int) -> None:
        self._notices.append(SyncFinished(logs))

    @property
    def wants_pong(self) -> bool:
        """Whether a sync waits for a sign of life before it calls itself done."""
        return isinstance(self._policy, SyncPolicy) and self._policy.wants_pong

    def pong_arrived(self) -> None:
        if isinstance(self._policy, SyncPolicy):
            self._policy.pong_arrived()
        self._settle()

    # Notices

    def _note_confirmed(self, request: Request) -> None:
        request.progress_at = self.now
        end = request.lowest_end()
        if end is not None and request.ours:
            self._finite[request.ident] = request
        self._notices.append(
            RequestConfirmed(request.number, request.log, request.ours, request.proposal.start, end)
        )

    def _note_cancel(self, request: Request, reason: CancelReason, *, by_us: bool) -> None:
        self._finite.pop(request.ident, None)
        self._notices.append(RequestCancelled(request.number, request.log, reason, by_us))
