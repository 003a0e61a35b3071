"""What becomes of requests: it is noted in the ledger, or a log is planned anew."""

from peer.protocol.request import OPEN_END, Request
from wire import U64_MAX, Cancel, CancelReason, decode_entry

from .answering import goes_on, is_probe
from .attempts import Kind, Outcome
from .changes import Changes
from .context import Context
from .coverage import came_to_nothing, completed
from .payloads import is_unsure, unproved
from .peer_log import PeerLog, refused_all
from .planning import ALL_OF_IT, Ask, AskKind
from .ranges import Ranges, minus, union
from .sourcing import fetches
from .turns import Turns

REFUSALS_MAX = 32
"""Refused proposals for a log in a row, after which each further one waits longer and longer."""


class Outcomes:
    """Hears what becomes of each request."""

    def __init__(self, context: Context, turns: Turns, changes: Changes) -> None:
        self._context = context
        self._actions = context.actions
        self._attempts = context.attempts
        self._logs = context.logs
        self._moments = context.moments
        self._done = context.done
        self._turns = turns
        self._changes = changes

    def confirmed(self, request: Request) -> None:
        """The other side confirmed a proposal of ours."""
        log, now = request.log, self._actions.now
        self._context.happened()
        if self._done is not None:
            self._done.answered(request, now)
        state = self._logs.get(log)
        if state is None:
            return
        ask = state.asks.get(request)
        state.refusals, state.met = 0, True
        was_incomplete = request in state.incomplete
        state.incomplete.discard(request)
        if ask is None or ask.kind is AskKind.PAYLOADS:
            return
        if ask.kind is AskKind.PROBE and request.base is not None:
            state.told_newest(request.base.end or 0)
            self._turns.mark(log)
        if self._done is not None:
            return
        if ask.kind is AskKind.WATCH and not fetches(request):
            state.watches(request)
        if fetches(request) and request.proposal.end is None and not self._actions.claim(log):
            # It was taken from us before there was an answer.
            self._actions.stop_fetching(request)
        elif was_incomplete:
            self._turns.mark(log)
        if (request.proposal.lower_info or U64_MAX) < request.proposal.start:
            # What comes as part of a pool comes without its payload.
            self._turns.mark_soon(log)
        if self._context.wants_of(log) != state.wants or state.blocked:
            self._changes.wants_changed(log, state)
        else:
            self._changes.fit(request)

    def cancelled(self, request: Request, cancel: Cancel) -> None:
        """The other side cancelled a request."""
        log, now, done = request.log, self._actions.now, self._done
        self._context.happened(log)
        if done is not None:
            done.answered(request, now)
            if cancel.reason is CancelReason.NO_RESOURCES and request.confirmed:
                done.expect_another_try(now)
        if cancel.entries:
            self._actions.check_evidence(log, cancel.entries, wanted=self._context.wants(log))
        state = self._logs.get(log)
        if state is None:
            return
        if cancel.reason is CancelReason.FORKED:
            self._turns.forking.note_told(state, decode_entry(cancel.entries[0]).seq)
        match cancel.reason:
            case CancelReason.NOT_WANTED | CancelReason.PAYLOAD_MANDATORY:
                self._refused(request, state)
            case CancelReason.NO_RESOURCES:
                self._no_resources(request, state)
            case _ if done is None and state.kind_of(request) is not AskKind.PAYLOADS:
                self._turns.forking.cancelled(request, cancel, state)
            case _ if done is not None and request.ours and not request.confirmed:
                state.refuse(request, now)
            case _:
                pass

    def _refused(self, request: Request, state: PeerLog) -> None:
        log, now = request.log, self._actions.now
        if request.ours:
            state.refuse(request, now)
            if state.refusals > REFUSALS_MAX:
                self._attempts.rest(log, Kind.LOG, Outcome.EXHAUSTED, now)
        elif not (request.proposal.sparse or request.proposal.payloads_only):
            end = request.proposal.end
            withdrawn = ((request.proposal.start, OPEN_END if end is None else end),)
            self._attempts.rest(log, Kind.RANGE, Outcome.WITHDRAWN, now, withdrawn)

    def _no_resources(self, request: Request, state: PeerLog) -> None:
        ask, now = state.asks.get(request), self._actions.now
        if ask is not None:
            state.not_served(ask, now)
        alone = ask is not None and ask.kind in (AskKind.PROBE, AskKind.PAYLOADS, AskKind.OFFER)
        if not alone and (request.ours or request.confirmed):
            self._attempts.rest(request.log, Kind.LOG, Outcome.EXHAUSTED, now)

    def released(self, request: Request) -> None:
        """A request is over."""
        log, now = request.log, self._actions.now
        self._context.happened(log)
        self._turns.over(request)
        self._context.unheard.discard(request)
        if self._done is not None:
            self._done.released(request)
        state = self._logs.get(log)
        if state is None:
            return
        self._moments.add(request)
        if request.ours:
            self._attempts.proposed(log, request.created_at, now)
        was_all_there = request not in state.incomplete and not state.blocked
        ask, made_room = state.released(request, now), self._turns.room.released(request)
        if ask is not None and ask.kind is AskKind.PAYLOADS:
            self._payloads_released(request, state, ask)
            return
        unwanted = not self._context.wants(log) and not state.unserved and self._done is None
        gone = refused_all(request, ask) and not state.lacks
        # Where nothing was missing, the other side is known to have nothing more and nothing came
        # since, there is nothing else to ask for or to offer.
        known = max(request.outgoing.known, state.here, state.reach)
        nothing_else = was_all_there and known < request.proposal.start and not state.singly
        if unwanted or (gone and (self._turns.close(log) or nothing_else)):
            return
        if came_to_nothing(request) and not made_room:
            self._attempts.rest(log, Kind.LOG, Outcome.EXHAUSTED, now)
        if ask is not None and ask.kind is AskKind.RANGE and completed(request):
            before = request.created_at
            self._attempts.lift(log, Kind.PAYLOAD, Outcome.SKIPPED, before=before)
        if state.blocked or self._may_lead_to_more(request, ask, made_room=made_room):
            self._turns.mark(log)

    def _may_lead_to_more(self, request: Request, ask: Ask | None, *, made_room: bool) -> bool:
        """Whether there may be something to ask for or to offer now that a request is over."""
        if is_probe(request.proposal) and (request.confirmed or not request.ours):
            # What it told was planned when it was confirmed.
            return False
        if self._done is None:
            return (ask is not None and not made_room) or not self._context.covered(request.log)
        we_refused = request.cancel_sent is CancelReason.NOT_WANTED and not request.ours
        return request.confirmed or not (we_refused and goes_on(request.proposal))

    def _payloads_released(self, request: Request, state: PeerLog, ask: Ask) -> None:
        if left := unproved(request, ask):
            state.singly = union(state.singly, left)
            state.asked = minus(state.asked, left)
        self._turns.mark(request.log)

    def lost(self, request: Request) -> None:
        """A proposal of ours gave way to one of the other side.

        It is planned anew once the winner has our answer.
        """
        self._turns.over(request)
        if self._done is not None:
            self._done.answered(request, self._actions.now)
        state = self._logs.get(request.log)
        if state is not None:
            state.lost(request)

    def given_up(self, request: Request, unfit: int | None) -> None:
        """We cancelled a request because we could not take in what came.

        `unfit`: the entry whose payload does not fit, if the other side may hold another one.
        """
        log, now = request.log, self._actions.now
        self._context.happened()
        self._moments.drop(log)
        state = self._logs.get(log)
        if state is None:
            return
        ask = state.asks.get(request)
        state.asked = minus(state.asked, _payloads_of(request))
        doubted: Ranges = () if unfit is None else ((unfit, unfit),)
        if request.ours and request.proposal.offset:
            # It was joined from several sources and is wrong: once more, from 0.
            doubted = union(doubted, ((request.proposal.start, request.proposal.start),))
        if request.ours and request.proposal.end is not None and ask is None and is_unsure(request):
            asked = Ask(AskKind.PAYLOADS, request.proposal.start, request.proposal.end, ALL_OF_IT)
            doubted = union(doubted, unproved(request, asked))
        if doubted:
            state.singly = union(state.singly, doubted)
            state.asked = minus(state.asked, doubted)
            self._attempts.lift_part(log, Kind.PAYLOAD, doubted)
            self._turns.mark(log)
        alone = doubted and (ask is None or ask.kind is AskKind.PAYLOADS) and unfit is None
        if not (alone or is_unsure(request)):
            self._attempts.rest(log, Kind.LOG, Outcome.NOT_KEPT, now)

    def contradicted(self, request: Request, seq: int) -> None:
        """An entry `seq` with a valid signature does not fit what is held of its log."""
        self._moments.drop(request.log)
        state = self._logs.get(request.log)
        if state is None:
            return
        if self._done is None:
            self._turns.forking.contradicted(request, seq, state)
        else:
            # A one-time sync leaves forks to nodes that stay; what is proved is kept all the same.
            state.refuse(request, self._actions.now)


def _payloads_of(request: Request) -> Ranges:
    """The entries that are held here and whose payloads a request of ours is for."""
    proposal = request.proposal
    if proposal.payloads_only:
        return ((proposal.start, proposal.end or proposal.start),)
    return () if proposal.offset is None else ((proposal.start, proposal.start),)
