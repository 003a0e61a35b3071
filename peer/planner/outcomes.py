"""What becomes of requests: it is noted in the ledger, or a log is planned anew.

A request is judged when it is over, not while something of it is missing: what a look finds missing
may be on its way. Payloads alone are noted elsewhere too: with the packet 06 that skips one
(`Planner.payload_skipped`), and when a look finds what was asked for neither held nor coming
(`Decider._payloads_taken`). Each end says something else (point2point.md 6), and leads to at most
two things: a row in the ledger, so that the same plan is not made again at once, and a mark, where
the log may have something else to ask for or to offer.

    confirmed                it takes part; a probe has told the newest entry
    cancelled 128, 132       a row REFUSED, or WITHDRAWN if it was their own proposal
    cancelled 129            a row EXHAUSTED, for an offer alone or for the whole log; none for a
                             probe, nor for payloads: several are asked for one by one then
    cancelled 133, 134, 135  the histories differ, or the log ends: forking.py
    released                 after all four messages: complete, cut, or without anything moved
    lost                     it gave way to theirs (section 7), and never was
    given up, contradicted   what came could not be taken in, for a reason of ours or of theirs

Most requests end with nothing to do, and one that marks its log for nothing costs a look-up: a node
with 10,000 logs feels each. What is to be proposed is not decided here (proposals.py), nor are
requests of other owners (withholding.py, late.py), which the engine hands to them.
"""

from msgspec.structs import replace

from peer.protocol.request import OPEN_END, Request
from wire import Cancel, CancelReason, decode_entry

from .answer import goes_on, is_probe
from .asks import Ask, AskKind
from .coverage import came_to_nothing, completed
from .fitting import Changes
from .payloads import is_unsure, unproved
from .peer_log import PeerLog, refused_all
from .ranges import Ranges, minus, union
from .rests import Kind, Outcome
from .shared import Shared
from .sourcing import fetches
from .turns import Turns
from .wanting import ALL_OF_IT

REFUSALS_MAX = 32
"""Refused proposals for a log in a row, after which each further one waits longer and longer. A log
in parts is refused a few times before both know who holds what; who goes on refusing makes us look
and propose for nothing, as fast as messages go."""


class Outcomes:
    """Hears what becomes of each request."""

    def __init__(self, shared: Shared, turns: Turns, changes: Changes) -> None:
        self._shared = shared
        self._actions = shared.actions
        self._rests = shared.rests
        self._logs = shared.logs
        self._progress = shared.progress
        self._done = shared.done
        self._turns = turns
        self._changes = changes

    def confirmed(self, request: Request) -> None:
        """The other side confirmed a proposal of ours."""
        log, now = request.log, self._actions.now
        self._shared.happened()
        self._turns.offering.wanted()
        if self._done is not None:
            self._done.answered(request, now)
        known = self._logs.get(log)
        if known is None:
            return
        ask = known.asks.get(request)
        known.refusals, known.met = 0, True
        if ask is None:
            return
        was_incomplete = ask.incomplete
        if was_incomplete:
            known.asks[request] = replace(ask, incomplete=False)
        if ask.kind is AskKind.PAYLOADS:
            return
        if ask.kind is AskKind.PROBE and request.base is not None:
            known.told_newest(request.base.end or 0)
            self._turns.mark(log)
        # A sync fits no request that is in force, it listens to nobody, and it fetches whoever else
        # does.
        if self._done is None:
            self._takes_part(request, known, ask, was_incomplete=was_incomplete)

    def _takes_part(
        self, request: Request, known: PeerLog, ask: Ask, *, was_incomplete: bool
    ) -> None:
        """A request is in force from now on."""
        log = request.log
        if ask.kind is AskKind.WATCH and not fetches(request):
            known.watches(request)
        if fetches(request) and request.proposal.end is None and not self._actions.claim(log):
            # It was taken from us before there was an answer.
            self._actions.stop_fetching(request)
        elif was_incomplete:
            # Single payloads may be asked of it now (`PeerLog.may_hold_payloads`).
            self._turns.mark(log)
        # Nothing of ours is lowered before the confirmation (section 5): this is the first moment
        # to fit it to what is wanted by now.
        if self._shared.wants_of(log) != known.wants or known.blocked:
            self._changes.wants_changed(log, known)
        else:
            self._changes.fit(request)

    def cancelled(self, request: Request, cancel: Cancel) -> None:
        """The other side cancelled a request."""
        log, now, done = request.log, self._actions.now, self._done
        self._shared.happened(log)
        if done is not None:
            done.cancelled(request, cancel.reason, now)
        known = self._logs.get(log)
        if known is None:
            return
        if cancel.reason is CancelReason.FORKED:
            self._turns.forking.note_told(known, decode_entry(cancel.entries[0]).seq)
        match cancel.reason:
            case CancelReason.NOT_WANTED | CancelReason.PAYLOAD_MANDATORY:
                self._refused(request, known)
            case CancelReason.NO_RESOURCES:
                self._no_resources(request, known)
            case _ if done is None and known.kind_of(request) is not AskKind.PAYLOADS:
                self._turns.forking.cancelled(request, cancel, known)
            case _ if done is not None and request.ours and not request.confirmed:
                known.refuse(request, now)
            case _:
                pass

    def _refused(self, request: Request, known: PeerLog) -> None:
        log, now = request.log, self._actions.now
        if request.ours:
            known.refuse(request, now)
            if known.refusals > REFUSALS_MAX:
                self._rests.note(log, Kind.LOG, Outcome.EXHAUSTED, now)
        elif not (request.proposal.sparse or request.proposal.payloads_only):
            end = request.proposal.end
            withdrawn = ((request.proposal.start, OPEN_END if end is None else end),)
            self._rests.note(log, Kind.RANGE, Outcome.WITHDRAWN, now, withdrawn)

    def _no_resources(self, request: Request, known: PeerLog) -> None:
        ask, now = known.asks.get(request), self._actions.now
        if ask is not None:
            known.not_served(ask, now)
        alone = ask is not None and ask.kind in (AskKind.PROBE, AskKind.PAYLOADS, AskKind.OFFER)
        if not alone and (request.ours or request.confirmed):
            self._rests.note(request.log, Kind.LOG, Outcome.EXHAUSTED, now)

    def released(self, request: Request) -> None:
        """A request is over."""
        log, now = request.log, self._actions.now
        self._shared.happened(log)
        self._turns.over(request)
        self._shared.unheard.discard(request)
        if self._done is not None:
            self._done.released(request)
        known = self._logs.get(log)
        if known is None:
            return
        # First: what is planned from here on must not ask again for what is not stored yet.
        self._progress.add(request)
        if request.ours:
            self._rests.lift_by_our_proposal(log, request.created_at, now)
        ask, made_room = known.released(request, now), self._turns.made_room(request)
        if ask is not None and ask.kind is AskKind.PAYLOADS:
            self._payloads_released(request, known, ask)
            return
        if self._leads_to_nothing(request, known, ask):
            return
        # A peer that ends each request without a reason was asked again as fast as messages go. But
        # not where the request was ended from here, to make room for others.
        if came_to_nothing(request) and not made_room:
            self._rests.note(log, Kind.LOG, Outcome.EXHAUSTED, now)
        # It has come to hold more since it skipped payloads, and perhaps those. What it skipped in
        # this very request it did not.
        of_entries = ask is not None and ask.kind in (AskKind.RANGE, AskKind.COMPARISON)
        if of_entries and completed(request):
            before = request.created_at
            self._rests.lift(log, Kind.PAYLOAD, Outcome.SKIPPED, before=before)
        if known.blocked or self._may_lead_to_more(request, ask, made_room=made_room):
            self._turns.mark(log)

    def _leads_to_nothing(self, request: Request, known: PeerLog, ask: Ask | None) -> bool:
        """Whether a request that is over leaves a log of which nothing else is to be done.

        That is so of thousands of logs, and a look at each would find nothing to do.
        """
        if not self._shared.wants(request.log) and not known.unserved and self._done is None:
            return True
        if known.planned.lacks or not refused_all(request, ask):
            return False
        was_all_there = not known.blocked and (ask is None or not ask.incomplete)
        # Where nothing was missing, the other side is known to have nothing more and nothing came
        # since, there is nothing else to ask for or to offer.
        here = max(request.outgoing.known, known.planned.heard, known.reach)
        nothing_else = was_all_there and here < request.proposal.start and not known.singly
        return self._turns.close(request.log) or nothing_else

    def _may_lead_to_more(self, request: Request, ask: Ask | None, *, made_room: bool) -> bool:
        """Whether there may be something to ask for or to offer now that a request is over."""
        if is_probe(request.proposal) and (request.confirmed or not request.ours):
            # What it told was planned when it was confirmed.
            return False
        if self._done is None:
            # One of theirs that is over leaves a log covered by ours as it was.
            return (ask is not None and not made_room) or not self._shared.covered(request.log)
        # In a sync we refuse what asks for all that follows, to move the log ourselves: that was in
        # the plan already when we did.
        we_refused = request.cancel_sent is CancelReason.NOT_WANTED and not request.ours
        return request.confirmed or not (we_refused and goes_on(request.proposal))

    def _payloads_released(self, request: Request, known: PeerLog, ask: Ask) -> None:
        if left := unproved(request, ask):
            known.singly = union(known.singly, left)
            known.asked = minus(known.asked, left)
        self._turns.mark(request.log)

    def lost(self, request: Request) -> None:
        """A proposal of ours gave way to one of the other side.

        It is planned anew once the winner has our answer.
        """
        self._turns.over(request)
        if self._done is not None:
            self._done.answered(request, self._actions.now)
        known = self._logs.get(request.log)
        if known is not None:
            known.lost(request)

    def given_up(self, request: Request, unfit: int | None, *, no_room: bool = False) -> None:
        """We cancelled a request because we could not take in what came.

        `unfit`: the entry whose payload does not fit, if the other side may hold another one.
        `no_room`: for want of room, which will not be there soon.
        """
        log, now = request.log, self._actions.now
        self._shared.happened()
        # Else the log would wait for ever for that to be stored, and with it the end of a sync.
        self._progress.drop(log)
        known = self._logs.get(log)
        if known is None:
            return
        ask = known.asks.get(request)
        known.asked = minus(known.asked, _payloads_of(request))
        if no_room:
            # There is no doubt about what came, so that asking for it otherwise would not help.
            self._rests.note(log, Kind.LOG, Outcome.NO_ROOM, now)
            return
        if doubted := _doubted(request, ask, unfit):
            known.singly = union(known.singly, doubted)
            known.asked = minus(known.asked, doubted)
            self._rests.lift_part(log, Kind.PAYLOAD, doubted)
            self._turns.mark(log)
        elif ask is not None and _came_wrong_alone(request, ask):
            # Asked for by itself and from its first byte, and wrong all the same. In a greedy
            # direction nobody is to blame for the last piece; asked for at once, it would be sent
            # so again as fast as messages go.
            self._rests.note(log, Kind.PAYLOAD, Outcome.SKIPPED, now, ask.payloads)
            return
        alone = doubted and (ask is None or ask.kind is AskKind.PAYLOADS) and unfit is None
        # Not where the payload was wrong and the store is not to blame: the log goes on without it.
        if not (alone or is_unsure(request)):
            self._rests.note(log, Kind.LOG, Outcome.NOT_KEPT, now)

    def contradicted(self, request: Request, seq: int) -> None:
        """An entry `seq` with a valid signature does not fit what is held of its log."""
        self._progress.drop(request.log)
        known = self._logs.get(request.log)
        if known is None:
            return
        if self._done is None:
            self._turns.forking.contradicted(request, seq, known)
        else:
            # A one-time sync leaves forks to nodes that stay; what is proved is kept all the same.
            known.refuse(request, self._actions.now)


def _came_wrong_alone(request: Request, ask: Ask) -> bool:
    """Whether one payload was asked for, and was not the one that its entry names."""
    is_alone = ask.kind is AskKind.PAYLOADS and ask.offset is not None
    return is_alone and request.incoming.invalid is not None


def _doubted(request: Request, ask: Ask | None, unfit: int | None) -> Ranges:
    """The entries whose payloads are asked for one by one, after a request that was given up."""
    doubted: Ranges = () if unfit is None else ((unfit, unfit),)
    proposal = request.proposal
    if request.ours and proposal.offset:
        # It was joined from several sources and is wrong: once more, from 0.
        doubted = union(doubted, ((proposal.start, proposal.start),))
    if request.ours and proposal.end is not None and ask is None and is_unsure(request):
        asked = Ask(AskKind.PAYLOADS, proposal.start, proposal.end, ALL_OF_IT)
        doubted = union(doubted, unproved(request, asked))
    return doubted


def _payloads_of(request: Request) -> Ranges:
    """The entries that are held here and whose payloads a request of ours is for."""
    proposal = request.proposal
    if proposal.payloads_only:
        return ((proposal.start, proposal.end or proposal.start),)
    return () if proposal.offset is None else ((proposal.start, proposal.start),)
