"""The turns of logs: from a log that is to be planned to what is proposed for it.

Whatever happens to a log only *marks* it; what follows is found out when its turn comes. So many
things that happen at once lead to one look-up, and nothing is decided while requests change.

    marked ──► in line ──► looked up ──► decided ──► proposed
       ▲      (line.py)      │      (proposals.py)      │ no credit: in line again, first
       │                     │ marked meanwhile         │ a proposal of theirs is in the way:
       └─────────────────────┴──────────────────────────┘   blocked, until it is answered

Two things are scarce, and both belong to the other side or to the store. *Request credit* bounds
how many look-ups are under way, since what they find could not be proposed without it; a little of
it is kept for logs that have no request yet, and where there are more logs than requests they take
turns (line.py). *Look-ups* are what a peer could make us do without end: a log that is only offered
is looked up at a pace (offering.py), and one that changes somewhere else once a second at most.

A proof of a fork goes the same way (forking.py), last of a turn.

It is no place for what is wanted, refused or held: those are formulas (proposals.py) over a view,
what came since (progress.py), and the ledger (rests.py).
"""

from functools import partial

from msgspec.structs import replace

from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import LogKey

from .answer import is_probe
from .asks import (
    PROBE,
    Ask,
    AskKind,
    comparison_of,
    is_whole,
    lacking_hashes,
    last_possible,
    look_up_for,
    named_for,
    offer_of,
    pool_of,
)
from .forking import Forking
from .line import Room, WaitingLine
from .offering import Offering
from .peer_log import PeerLog
from .progress import Mark
from .proposals import Decider, Look
from .ranges import Ranges, meet, union
from .rests import Kind, Outcome
from .retries import earliest
from .shared import Shared

_CREDIT_LEFT_MIN = 8
"""Request credit that payloads leave for logs that have no request yet. A log may lack thousands of
payloads, each group of which takes a request; an eighth of what a peer gives at first is left."""

_WITHOUT_POOL = frozenset((AskKind.PAYLOADS, AskKind.PROOF))
"""Kinds of asks that bring no entries."""


def _is_in_the_way(request: Request) -> bool:
    """Whether an open proposal of the other side stops nearly all that could be proposed.

    Section 7 lets nothing that overlaps an unanswered one be proposed, and what it asks for and its
    answer say more of what to propose. A probe tells what it has to tell at once, and is over then.
    """
    if request.ours or request.proposal.end is not None or request.cancel_sent is not None:
        return False
    return not request.answered or is_probe(request.proposal)


class Turns:
    """Logs that wait for their turn, and those whose turn it is."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._actions = shared.actions
        self._rests = shared.rests
        self._logs = shared.logs
        self._progress = shared.progress
        self._done = shared.done
        self._decider = Decider(
            shared.actions,
            shared.config,
            shared.rests,
            shared.progress,
            once=shared.done is not None,
        )
        self.line = WaitingLine()
        self.room = Room(shared.actions, shared.config)
        self.offering = Offering(once=shared.done is not None)
        self._offers_wait = False
        """Whether nothing is left in line but what is only offered, and that has to wait."""
        self.forking = Forking(shared, partial(self.mark, first=True))
        self._dirty: set[LogKey] = set()
        """Those in line that are looked up whatever requests are open."""
        self._looking: dict[LogKey, bool] = {}
        """Logs that are looked up now, and whether to look once more when that is answered."""
        self._credit_waits: dict[LogKey, None] = {}
        """Logs of which payloads wait for request credit."""
        self._ours: set[Request] = set()

    # In line

    def mark(self, log: LogKey, *, first: bool = False) -> None:
        """A log is to be planned anew.

        Nothing is kept of it until its turn comes: ten thousand logs that change while others have
        their turns would take 300 MB in fifty sessions.
        """
        if log in self._looking:
            # The answer that is under way may be older than what happened: one more look, and not
            # two at the same time, which would both ask for the same.
            self._looking[log] = True
            return
        self._dirty.add(log)
        self.line.push(log, first=first)

    def mark_soon(self, log: LogKey) -> None:
        """The same after the least time that is to be between two look-ups."""
        self._rests.look_at(log, self._actions.now + self._shared.config.look_again_s)

    @property
    def any_open(self) -> bool:
        """Whether anything waits, is looked up, or is asked of the other side."""
        return bool(self.line or self._looking or self._ours or self._credit_waits)

    def is_idle(self, log: LogKey) -> bool:
        """Whether neither a turn, nor the end of a rest, nor the store is waited for."""
        waits = log in self.line or log in self._looking or log in self._rests
        return not (waits or self._progress.is_settling(log))

    def over(self, request: Request) -> None:
        """A request of ours is over."""
        self._ours.discard(request)

    def made_room(self, request: Request) -> bool:
        """Whether a request that is over had to make room: its log stands behind all others now."""
        if not self.room.released(request):
            return False
        self.line.step_behind(request.log)
        return True

    def advance(self) -> None:
        """Take turns as long as there is request credit."""
        # With less than the reserve each of these would be looked up only to wait once more.
        waits = self._line_waits or bool(self._looking)
        while self._credit_waits and self._actions.request_credit > self._reserve(waits=waits):
            self.mark(self._credit_waits.popitem()[0])
        self._offers_wait = False
        # A look-up for which there is no credit would be made again when there is.
        while self.line and len(self._looking) < self._actions.request_credit:
            is_offer = self.line.next_is_offer
            if is_offer and not self.offering.may_offer(self._actions.now):
                self._offers_wait = True
                break
            log = self.line.pop()
            # One proposal for a log: the other side walks them from the other end (section 10), and
            # has named most of those that are left here by the time they come up.
            if log in self._dirty or not self._has_had_turn(log):
                if is_offer:
                    self.offering.offered()
                self._look(log, Look())
        if not self._dirty:
            # Empty, it has the size that it had for thousands of logs.
            self._dirty.clear()
        # Last: only what is left in line now has got no request for want of credit.
        if self.room.is_due(waits=bool(self.line or self._credit_waits)):
            waiting = self.line.count(self._needs_request) + len(self._credit_waits)
            self.room.make(waiting, self._logs.asks())

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        next_offer = self.offering.next_deadline() if self._offers_wait else None
        return earliest(self.room.next_deadline(), next_offer)

    def _has_had_turn(self, log: LogKey) -> bool:
        """Whether a log that is offered, and to which nothing happened, needs no turn now."""
        if self._logs.is_closed(log):
            # It was offered out of turn, when it changed, and refused: there is nothing to look at.
            return True
        known = self._logs.get(log)
        return (known is not None and known.spoken) or self._shared.covered(log)

    def _needs_request(self, log: LogKey) -> bool:
        """Whether it is known that a log in line needs a request: it has none that brings what is
        new, or lacks payloads that nobody has skipped of late."""
        if not self._shared.covered(log):
            return True
        known = self._logs.get(log)
        lacks = known is not None and (known.planned.lacks or bool(known.singly))
        return lacks and not self._rests.left_alone(log, Kind.PAYLOAD, self._actions.now)

    @property
    def _line_waits(self) -> bool:
        """Whether a log waits for credit. What is only offered may wait for its pace instead."""
        return bool(self.line) and not (self._offers_wait and self.line.next_is_offer)

    def _reserve(self, *, waits: bool) -> int:
        """Request credit that payloads leave to others, if any wait.

        Nothing where logs take turns: there would never be so much that payloads got any.
        """
        return _CREDIT_LEFT_MIN if waits and not self.room.is_short else 0

    # A log's turn

    def take(self, view: LogView, since: Mark) -> None:
        """It is the turn of a log of which nothing is held, as the look-up for an answer has shown.

        One for its turn would say the same: of thousands of logs that a new replica is offered each
        would be looked up twice.
        """
        log = view.log
        waits = log in self.line or log in self._looking
        if waits or len(self._looking) >= self._actions.request_credit:
            self.mark(log, first=True)
        else:
            self._look(log, Look(), (view, since))

    def _look(self, log: LogKey, look: Look, found: tuple[LogView, Mark] | None = None) -> None:
        """Look a log up, unless there is nothing to plan for it now. `found`: it was just now."""
        self._dirty.discard(log)
        if self._shared.interests.is_silent(log):
            return
        known = self._shared.known_of(log)
        if log in self._looking:
            self._looking[log] = True
            return
        if self._progress.is_settling(log):
            # What has come and is not stored would look as if it were missing, and come twice. It
            # is dirty again once all of that is stored.
            return
        if any(map(_is_in_the_way, self._actions.requests_of(log))):
            # It is dirty again once that is answered, or over.
            known.blocked = True
            return
        fork_range = self._fork_range(log, known)
        if fork_range is not None:
            # Before what rests: everything else that is asked for may be of the wrong history.
            metadata = named_for(comparison_of(fork_range))
            look = Look(look.named | {*metadata}, fork_range=fork_range)
        elif self._must_wait(log, known):
            return
        elif self._done is not None and known.newest is None:
            # What the other side has is asked first, and that needs no look at what is here. It is
            # one look-up less for each log, and most logs of a sync are in step.
            for ask in known.not_twice([PROBE], self._actions.requests_of(log), self._actions.now):
                self._propose(LogView(log), known, ask, {})
            return
        self._looking[log] = False
        known.blocked, known.planned.heard = False, 0
        wants, newest = self._shared.wants_of(log), self._shared.newest_of(log)
        if found is not None:
            view, since = found
            self._looked(look, since, newest, view)
            return
        wanted = look_up_for(
            wants,
            log,
            tuple(sorted(look.named)),
            newest=newest,
            runs_from=look.runs_from,
            missing_above=look.missing_above,
            missing_max=look.missing_max,
            leave_arriving=self._done is None,
        )
        since = self._progress.now(log)
        self._actions.look_up(wanted, partial(self._looked, look, since, newest))

    def _fork_range(self, log: LogKey, known: PeerLog) -> tuple[int, int] | None:
        """What is to be compared first of a log that may be forked, and may be taken in.

        The search began when it might; the other side's scope may have been narrowed since.
        """
        return known.fork_range if self._shared.wants(log) else None

    def _must_wait(self, log: LogKey, known: PeerLog) -> bool:
        """Whether nothing of a log is to be done before a rest ends: then it is dirty again."""
        if not self._rests.is_left_alone(log, Kind.LOG, self._actions.now):
            return False
        # Of a stranger's log in parts that everybody is offered, a look for each would find out
        # that nothing is to be asked of it yet.
        asks_payloads = (
            known.may_hold_payloads or self._done is not None or bool(known.wants.fetches)
        )
        lacks = known.planned.lacks and asks_payloads
        return not (known.unserved or lacks or known.singly)

    def _looked(self, look: Look, since: Mark, newest: int, view: LogView) -> None:
        log, known = view.log, self._logs[view.log]
        is_dirty = self._looking.pop(log)
        # A sync was not over while that was under way: what follows from it is still to come.
        self._shared.happened()
        if self._shared.interests.is_silent(log):
            # The other side is not to hear of it any more.
            return
        if is_dirty:
            self.mark(log)
        if self._fork_range(log, known) != look.fork_range or self._progress.is_settling(log):
            # The view lacks hashes that this needs, or what comes is not stored yet.
            self.mark(log, first=True)
            return
        known.planned.wants, known.planned.stop = self._shared.wants_of(log), last_possible(view)
        theirs = self._shared.newest_of(log)
        if theirs < newest:
            # The look-up was for the latest ones of a log that was taken to be longer.
            self.mark(log)
        further = None
        if look.fork_range is not None:
            asks = [comparison_of(look.fork_range)]
        elif self._rests.is_left_alone(log, Kind.LOG, self._actions.now):
            asks = self._decider.at_rest(view, known, theirs, look, since)
        else:
            decision = self._decider.decide(view, known, theirs, look, since)
            asks, further = decision.asks, decision.further
        asks = asks or self._told_again(view)
        needed = [*asks, *self.forking.to_tell(view, known)]
        lacking = lacking_hashes(needed, view.hashes, look.named)
        if lacking:
            # Which hashes a proposal names is known only now. Those named before are not asked for
            # again, so that a hash which the store does not have ends this.
            self._look(log, replace(look, named=look.named | {*lacking}))
            return
        if self._actions.request_credit == 0 and asks:
            self.mark(log, first=True)
            return
        self._propose_all(view, known, asks, since)
        # What is in line already begins there, with what has happened since.
        if not is_dirty:
            self._look_further(view, known, asks, further)

    def _told_again(self, view: LogView) -> list[Ask]:
        """The other side may read a log again, and a request that is open would bring it all.

        What it was refused meanwhile it asks for again once we propose something (section 6, 128).
        """
        if view.log not in self._shared.regained or not view.runs:
            return []
        last = view.runs[-1][1]
        return [offer_of(last, last)]

    def _look_further(
        self, view: LogView, known: PeerLog, asks: list[Ask], further: Look | None
    ) -> None:
        """In a log of many runs, or of which much is missing, one view does not tell of all."""
        log = view.log
        if further is not None:
            self._look(log, further)
        elif not (asks or view.runs_complete) and view.runs:
            self._look(log, Look(runs_from=view.runs[-1][1] + 1))
        elif not asks:
            wanted = self._done is None and self._shared.wants(log)
            if wanted and not self._actions.requests_of(log):
                self.forking.search(view, known)
            self.close(log)

    def close(self, log: LogKey) -> bool:
        """Nothing is to be done about a log until something happens to it, if that is so.

        Not while it waits for a turn, a rest or the store, nor while it has a request: each of them
        comes back to what is known of it.
        """
        return self.is_idle(log) and not self._actions.requests_of(log) and self._logs.close(log)

    # Proposals

    def _propose_all(self, view: LogView, known: PeerLog, asks: list[Ask], since: Mark) -> None:
        if self.room.is_short:
            # What goes on is ended to make room, and would have the log's only request again at its
            # next turn: what ends by itself would never be asked for.
            asks = sorted(asks, key=lambda ask: ask.end is None)
        for ask in asks:
            self._propose(view, known, ask, since)
        # Last: what was just asked for may bring a proof, or tell of it.
        for ask in self.forking.to_tell(view, known):
            self._propose(view, known, ask, since)

    def _propose(self, view: LogView, known: PeerLog, ask: Ask, since: Mark) -> None:
        log, now, actions = view.log, self._actions.now, self._actions
        if ask.kind is AskKind.PAYLOADS and not self._has_hash(ask, view):
            self._rests.note(log, Kind.PAYLOAD, Outcome.SKIPPED, now, ask.payloads)
            return
        part = () if ask.kind in _WITHOUT_POOL else self._pool_coming(ask, view, since)
        if part and not self._rests.left_long_enough(log, Kind.POOL, part, now):
            # It need not come twice.
            self.mark_soon(log)
            return
        of_payloads = ask.kind is AskKind.PAYLOADS
        leave = self._reserve(waits=self._line_waits) if of_payloads else 0
        request = actions.ask(log, ask, view, leave=leave)
        if request is not None and ask.kind is AskKind.PROOF:
            self.forking.tell(request, view)
        elif request is not None:
            self._proposed(view, known, request, ask)
        elif actions.request_credit > leave:
            known.blocked = True
        elif of_payloads:
            self._credit_waits[log] = None
        else:
            # A proof waits like any log: ahead of others it would take the credit of the search.
            self.mark(log, first=ask.kind is not AskKind.PROOF)

    def _pool_coming(self, ask: Ask, view: LogView, since: Mark) -> Ranges:
        """What of the pool that a proposal would ask for is coming."""
        pool = pool_of(ask, view.hashes)
        return meet(pool, self._progress.coming(view.log, since)) if pool else ()

    @staticmethod
    def _has_hash(ask: Ask, view: LogView) -> bool:
        """Whether the entry by whose hash a payload is asked for can be read."""
        return all(n in view.hashes for n in named_for(ask))

    def _proposed(self, view: LogView, known: PeerLog, request: Request, ask: Ask) -> None:
        """A proposal is on its way: what is noted of it now is not planned again."""
        now = self._actions.now
        if ask.kind is AskKind.OFFER:
            # Noted when it is made, and taken back if it is lost or finds no resources: noted when
            # it is answered, each look until then would offer the same again.
            self._rests.note_told(view.log, ((ask.start, ask.last),), now)
            if ask.last == view.end:
                known.both_have = max(known.both_have, ask.last)
        known.spoken = True
        known.asked = union(known.asked, ask.payloads)
        is_incomplete = not is_whole(view) or view.height < view.newest or view.fork is not None
        known.asks[request] = replace(ask, incomplete=True) if is_incomplete else ask
        # The view may be older than what was told here since: nobody tells it once more, and what
        # is new would not be sent in this request before the log changes again.
        request.outgoing.known = max(request.outgoing.known, known.planned.heard)
        if known.forks is not None:
            known.forks.entries = None
        self._shared.regained.discard(request.log)
        self._ours.add(request)
        self.line.step_forward(request.log)
        self._rests.lift_by_our_proposal(request.log, now, now)
        if self._done is not None:
            self._done.asked(request, now)
