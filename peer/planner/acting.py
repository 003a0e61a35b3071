"""Carries out what is decided about requests, and what follows from it.

Who decides is the planner, a clock or the data channel; what follows is the same: the host is told,
clocks run, our cursor wakes, and no request reaches behind the end of its log or over a fork. All
of that has one way, so that nobody who cancels forgets what has to leave with it or may not: each
cancel passes `leaving`, and each request that is over is told to whoever counts.

There is one way to propose, `ask`: the proposal is made from what is asked for and the hashes of a
look-up, and if there is credit and section 7 allows it now, it leaves, under the name of its owner.
Who has asked: log by log the planner (turns.py), of own logs withholding (withholding.py), of what
has come since it was asked for late offers (late.py). Each decides for itself what to ask for, when
to look it up, how much credit it leaves to others, and what to do where it may not ask now.

It decides nothing, and keeps no rule of the protocol: the table raises for what is not allowed.
"""

from collections.abc import Callable
from typing import Protocol

from peer.protocol.commands import CheckEvidence, Command, LookUp
from peer.protocol.events import LogView
from peer.protocol.notices import (
    Arriving,
    Limit,
    LimitMet,
    NewestLearned,
    Notice,
    PeerHolds,
    RequestCancelled,
    RequestConfirmed,
    RequestGivenUp,
    SyncFinished,
)
from peer.protocol.request import Owner, Request
from peer.protocol.table import RequestTable
from peer.protocol.tickets import Tickets
from peer.protocol.timers import Timers
from wire import Adjust, Cancel, CancelReason, Eagerness, LogKey, Propose, decode_entry

from .answer import Answer
from .asks import Ask, proposal_of
from .leaving import Leaving
from .sourcing import Claim, Fetches, confirmation
from .withholding import Withholding


class ActorListener(Protocol):
    """Who has the two halves of the data channel."""

    def discard(self, request: Request) -> None:
        """Nothing more of it is taken in."""

    def wake(self, request: Request) -> None:
        """It may have something to send now."""

    def fork_told(self, log: LogKey, fork: int) -> None:
        """The proof of a fork leaves, with a cancel."""

    @property
    def is_behind(self) -> bool:
        """Whether data that came is not read before this host has done its part."""


class Actor:
    """What a planner can do in its session (`actions.Actions`), and what the engine does like it.

    `by_ident` are all requests of the session.
    """

    def __init__(
        self,
        table: RequestTable,
        by_ident: dict[int, Request],
        timers: Timers,
        tickets: Tickets,
        fetches: Fetches,
        commands: list[Command],
        notices: list[Notice],
        claim: Claim,
        listener: ActorListener,
        *,
        proactive: bool,
        silence_s: float,
    ) -> None:
        self.claim = claim
        self.leaving = Leaving(Withholding(self, proactive=proactive, silence_s=silence_s))
        self._table = table
        self._by_ident = by_ident
        self._timers = timers
        self._tickets = tickets
        self._fetches = fetches
        self._commands = commands
        self._notices = notices
        self._listener = listener

    @property
    def withholding(self) -> Withholding:
        return self.leaving.withholding

    @property
    def now(self) -> float:
        return self._table.now

    @property
    def is_behind(self) -> bool:
        return self._listener.is_behind

    @property
    def request_credit(self) -> int:
        return self._table.credit

    def look_up(self, wanted: LookUp, then: Callable[[LogView], None]) -> None:
        self._tickets.look_up(wanted, then)

    def requests_of(self, log: LogKey) -> list[Request]:
        return self._table.of_log(log)

    def uncovered(self) -> list[Request]:
        return [
            request
            for request in self._table.all()
            if not request.end_received
            and (request.ours or request.confirmed)
            and not self.leaving.is_covered(request)
        ]

    def may_tell(self, log: LogKey) -> bool:
        return self.leaving.may_tell(log)

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        return self._table.may_propose(log, start, end)

    def ask(
        self, log: LogKey, ask: Ask, view: LogView, owner: Owner | None = None, *, leave: int = 0
    ) -> Request | None:
        proposal = proposal_of(self._table.next_number(), log, ask, view.hashes)
        if self.request_credit <= leave or not self.may_propose(log, proposal.start, proposal.end):
            return None
        request = self.propose(proposal, view)
        request.owner = owner
        return request

    def propose(self, proposal: Propose, view: LogView) -> Request:
        """Send a proposal that was made from this view."""
        request = self._table.propose(proposal)
        _note_view(request, view)
        self._by_ident[request.ident] = request
        self._timers.proposed(request)
        return request

    def answer(self, request: Request, view: LogView, decision: Answer) -> None:
        _note_view(request, view)
        if decision.confirm is not None:
            self._table.confirm(request, confirmation(request, decision.confirm, self.claim))
            self.note_confirmed(request)
            self.keep_inside_log(request)
            self._listener.wake(request)
        elif decision.cancel is not None:
            self.cancel(request, decision.cancel, paced=not decision.take_over)

    def adjust(self, request: Request, adjust: Adjust) -> None:
        self._table.adjust(request, adjust)
        if request.lowest_end() is not None:
            self._timers.became_finite(request)
        self._listener.wake(request)

    def cancel(self, request: Request, cancel: Cancel, *, paced: bool = True) -> None:
        if request.cancel_sent is None:
            cancel = self.leaving.before_cancel(request, cancel)
            self._table.cancel(request, cancel, paced=paced)
            self.note_cancelled(request, cancel.reason, by_us=True)
            if cancel.reason is CancelReason.FORKED:
                self._listener.fork_told(request.log, decode_entry(cancel.entries[0]).seq)

    def cancel_for(self, request: Request, reason: CancelReason) -> None:
        """Cancel for a reason that says it all."""
        self.cancel(request, Cancel(request.number, reason))

    def give_up(self, request: Request, detail: str) -> None:
        """Take in no more of it, and cancel it for a reason of ours if it is not over."""
        self._listener.discard(request)
        self._notices.append(RequestGivenUp(request.number, request.log, detail))
        self.cancel_for(request, CancelReason.NO_RESOURCES)

    def stop_fetching(self, request: Request) -> None:
        """Ask for notifications only. Inside a large payload that takes a cancel.

        An open one of ours that has no answer is stopped when it is confirmed, since nothing can be
        lowered before (section 5; `Outcomes._takes_part`).
        """
        if request.incoming.sink is not None:
            self._listener.discard(request)
            self.cancel_for(request, CancelReason.NOT_WANTED)
        elif request.active:
            self._table.adjust(request, Adjust(request.number, eagerness=Eagerness.NOTIFY))
            self._fetches.declined(request.log)

    def end(self, request: Request) -> None:
        """Cancel it; what still comes for it is read past."""
        self._listener.discard(request)
        self.cancel_for(request, CancelReason.NOT_WANTED)

    def note_holds(self, log: LogKey, newest: int, held: int) -> None:
        if newest > held:
            self._notices.append(PeerHolds(log, newest, held))

    def waive_answer(self, request: Request) -> None:
        self._timers.answered(request)

    def send_again(self, log: LogKey) -> None:
        for request in self._table.of_log(log):
            self._listener.wake(request)

    def met(self, limit: Limit) -> None:
        self._notices.append(LimitMet(limit))

    def finished_sync(self, logs: int) -> None:
        self._notices.append(SyncFinished(logs))

    # What follows

    def check_evidence(self, log: LogKey, entries: tuple[bytes, ...]) -> None:
        """Have entries that may prove a fork checked and recorded, if the log is wanted or held."""
        self._commands.append(CheckEvidence(log, entries, self.leaving.interests.wants(log)))

    def keep_inside_log(self, request: Request) -> None:
        """The log may have ended, or turned out to be forked."""
        self._cut_at_end(request)
        self._stop_at_fork(request)

    def _cut_at_end(self, request: Request) -> None:
        """An open range of a log that has ended is finite after all."""
        end = request.log_end
        if end is None or request.lowest_end() is not None or not request.active:
            return
        if end < request.proposal.start:
            self.cancel(request, Cancel(request.number, CancelReason.LOG_ENDED, seq=end))
        else:
            self.adjust(request, Adjust(request.number, end=end))

    def _stop_at_fork(self, request: Request) -> None:
        """End what reaches the fork, with the proof."""
        fork, last = request.log_fork, request.lowest_end()
        if fork is None or not request.active or (last is not None and last < fork):
            return

        def cancel(view: LogView) -> None:
            end = request.lowest_end()
            reaches = view.fork is not None and (end is None or end >= view.fork)
            if reaches and view.fork_proof is not None and request.cancel_sent is None:
                self._listener.discard(request)
                reason = CancelReason.FORKED
                self.cancel(request, Cancel(request.number, reason, entries=view.fork_proof))

        # News of a fork name its entry alone: the proof has to be read.
        self.look_up(LookUp(0, request.log), cancel)

    def note_confirmed(self, request: Request) -> None:
        """Either side has confirmed."""
        self.withholding.active(request)
        request.progress_at = self.now
        end = request.lowest_end()
        if end is not None:
            self._timers.became_finite(request)
        self._notices.append(
            RequestConfirmed(request.number, request.log, request.ours, request.proposal.start, end)
        )

    def note_newest(self, request: Request) -> None:
        """The other side has confirmed a sparse request of ours, and so named its newest entry."""
        if request.proposal.sparse and request.base is not None and request.base.end is not None:
            self._notices.append(NewestLearned(request.log, request.base.end))

    def note_cancelled(self, request: Request, reason: CancelReason, *, by_us: bool) -> None:
        """Either side has cancelled."""
        self._timers.over(request)
        self._fetches.over(request)
        self._notices.append(
            RequestCancelled(request.number, request.log, reason, by_us, request.ours)
        )

    def note_peer_holds(self, request: Request, seq: int) -> None:
        """The other side has said, or shown, that it holds an entry."""
        held = request.outgoing.known
        if request.ours and request.proposal.offset is not None:
            # What we asked for begins in a payload that we lack.
            held = min(held, request.proposal.start - 1)
        self._notices.append(PeerHolds(request.log, seq, held))

    def note_arriving(self, request: Request, data_bytes: int) -> None:
        """Bytes of the data channel have come for it."""
        incoming, base = request.incoming, request.base
        if base is None or incoming.discarding:
            return
        inside = incoming.sink is not None
        position = incoming.position if incoming.in_piece else incoming.position - 1
        newest = base.piece(position).seq if position >= 0 else base.start
        self._notices.append(Arriving(request.log, data_bytes, newest, inside))


def _note_view(request: Request, view: LogView) -> None:
    """Take over what a look-up says, unless something newer has been heard since."""
    request.outgoing.known = max(request.outgoing.known, view.newest)
    if request.log_end is None:
        request.log_end = view.end
