"""The policy of a node that keeps logs in step with what it wants of them (point2point.md 10).

Every log that was authored here or is followed is proposed from where it stands, unless the other
side has proposed it already: the proactive side walks the logs upwards, the reactive one downwards,
so that they meet in the middle. A log in parts takes several requests (planning.py); what to ask
for is planned anew whenever what is held, what is wanted or what is known of the peer has changed.

Where the author has forked the log, the earliest fork is looked for first (forking.py).
"""

import math
from dataclasses import replace
from functools import partial

from peer.protocol.config import SessionConfig
from peer.protocol.events import InterestsChanged, LogChanged, LogView, SourceChanged
from peer.protocol.request import Request
from wire import U64_MAX, Cancel, CancelReason, Eagerness, LogKey, decode_entry

from .agenda import Agenda
from .answering import Answer, goes_on
from .changing import change, is_inside_unwanted
from .coverage import came_to_nothing, completed, covers
from .forking import Forking
from .gaps import carry_out, due_cuts
from .lacking import Lacking
from .log_state import RANGES_MAX, REFUSALS_MAX, LogState, LogStates, refused_all
from .mending import Mender
from .planning import (
    Ask,
    AskKind,
    is_whole,
    lacked,
    lacking_hashes,
    last_possible,
    look_up_for,
    mended,
    metadata_of,
    named_for,
    offers,
    plan,
    pool_of,
    proposal_of,
    refused_gaps,
    untold,
)
from .policy import Actions, Policy
from .ranges import meet, minus, union
from .retries import earliest
from .room import Room
from .sourcing import brings, fetches
from .waiting_line import WaitingLine


class FollowPolicy(Policy):
    """Keeps what is wanted of every log in requests."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        super().__init__(actions, config, proactive=proactive)
        self._logs = LogStates()
        self._line = WaitingLine()
        self._looking = 0
        self._agenda = Agenda(config, self._settling)
        self._mender = Mender(actions, self._settling, leave_arriving=True)
        self._lacking = Lacking(config.stalled_after_s)
        self._unheard: set[Request] = set()
        """Proposals of logs of which nothing was known; what they say counts once they are."""
        self._room = Room(actions, config)
        self._forking = Forking(actions, self._enqueue, self._covered, self.wants)

    def interests_changed(self, event: InterestsChanged) -> None:
        super().interests_changed(event)
        for log, closed in self._logs.closed():
            if self.wants_of(log) != closed.wants:
                self._logs.opened(log)
        for log, state in self._logs.items():
            if self.wants_of(log) != state.wants:
                self._wants_changed(log, state)
        self._line.offer(event.offers, backwards=not self._proactive)
        for log in (*event.interests.fetches, *self.wanted_by_now()):
            if self._logs.opened(log) is None:
                self._enqueue(log, look=True)
            self._declined.pop(log, None)

    def _state(self, log: LogKey) -> LogState:
        if (state := self._logs.opened(log)) is not None:
            return state
        return self._logs.add(log, self.wants_of(log), self._declined.pop(log, 0))

    def newest_of(self, log: LogKey) -> int:
        return 0 if (state := self._logs.get(log)) is None else min(state.newest or 0, state.stop)

    def _enqueue(self, log: LogKey, *, first: bool = False, look: bool = False) -> None:
        state = self._state(log)
        state.must_look = state.must_look or look
        if look:
            state.runs_from = 1
        if not state.looking:
            self._line.push(log, first=first, last=self._room.has_had_turn(log))

    def _covered(self, log: LogKey) -> bool:
        """Whether some request will bring, or asks for, everything new of this log."""
        return any(map(covers, self._actions.requests_of(log)))

    def advance(self) -> None:
        now = self._actions.now
        for log in self._agenda.due(now):
            self._enqueue(log, look=True)
        for log in self._lacking.due(now):
            self._try_again(log)
        while self._line and self._looking < self._actions.request_credit:
            self._look(self._line.pop(), ())
        others_wait = bool(self._line or self._looking)
        self._mender.advance(others_wait=others_wait and not self._room.is_short)
        if self._room.is_due(waits=bool(self._line or self._mender.waiting)):
            waiting = self._mender.waiting + self._line.count(lambda log: not self._covered(log))
            self._room.make(waiting, self._logs.asks())

    def next_deadline(self) -> float | None:
        at = self._agenda.next_at(), self._lacking.next_at()
        return earliest(*at, self._room.next_deadline())

    def _look(self, log: LogKey, named: tuple[int, ...]) -> None:
        """Look a log up, unless there is nothing to plan for it; `named`: hashes that it takes."""
        state = self._state(log)
        if state.looking:
            return
        if state.fork_range is not None:
            named = tuple(sorted({*named, *named_for(metadata_of(state.fork_range))}))
        elif self._agenda.holds_back(log) and (not state.unserved or log in self._settling):
            return
        if state.fork_range is None and not state.must_look and self._covered(log):
            return
        state.looking = True
        state.must_look = state.blocked = state.deferred = state.stale = False
        state.our_newest = 0
        self._looking += 1
        wants, newest = self.wants_of(log), self.newest_of(log)
        runs_from = state.runs_from
        self._actions.look_up(
            look_up_for(wants, log, named, newest=newest, runs_from=runs_from, leave_arriving=True),
            partial(self._looked, state.fork_range, runs_from, frozenset(named)),
        )

    def _looked(
        self,
        fork_range: tuple[int, int] | None,
        runs_from: int,
        named: frozenset[int],
        view: LogView,
    ) -> None:
        log, state = view.log, self._logs[view.log]
        state.looking, self._looking = False, self._looking - 1
        if state.must_look:  # asked for during the look-up
            self._enqueue(log)
        outdated = fork_range is None and (state.stale or log in self._settling)
        if state.fork_range != fork_range or outdated:
            # The view lacks hashes that this needs, or entries that have come since.
            self._enqueue(log, first=True, look=True)
            return
        if fork_range is not None:
            asks = [metadata_of(fork_range)]
        elif self._agenda.holds_back(log):
            # Nothing is to be asked for, but something to be offered.
            asks = offers(view, state.unserved, state.reachable(self._actions.requests_of(log)))
        else:
            asks = self._plan(view, state, runs_from)
        needed = [*asks, *self._forking.to_tell(view, state)]
        lacking = lacking_hashes(needed, view.hashes, named)
        if lacking:
            state.must_look = True
            self._look(log, tuple(sorted({*lacking, *named})))
        elif self._actions.request_credit == 0 and asks:
            self._enqueue(log, first=True, look=True)
        else:
            for ask in asks:
                self._propose(view, state, ask)
            self._forking.tell(view, state)
            self._look_behind(view, state, asks)
            if not asks:
                if self.wants(log) and not self._actions.requests_of(log):
                    self._forking.search(view, state)
                self._close(log)

    def _close(self, log: LogKey) -> bool:
        """Nothing is to be done about a log until something happens to it, if that is so."""
        return not (self._waits(log) or self._actions.requests_of(log)) and self._logs.close(log)

    def _waits(self, log: LogKey) -> bool:
        """Whether a log is to be looked at some time."""
        return any(log in each for each in (self._line, self._agenda, self._lacking))

    def _look_behind(self, view: LogView, state: LogState, asks: list[Ask]) -> None:
        """In a log of many runs, one view does not tell of all."""
        state.runs_from = 1
        if not (asks or view.runs_complete or state.must_look) and view.runs:
            self._enqueue(view.log, look=True)
            state.runs_from = view.runs[-1][1] + 1

    # What to propose

    def _plan(self, view: LogView, state: LogState, runs_from: int) -> list[Ask]:
        log = view.log
        wants = state.wants = self.wants_of(log)
        newest, state.stop, state.height = self.newest_of(log), last_possible(view), view.height
        if self.newest_of(log) < newest:
            # The look-up was for the latest ones of a log that was taken to be longer.
            self._enqueue(log, look=True)
        self._cut_at_gaps(view, state, runs_from)
        requests = self._actions.requests_of(log)
        peer = state.peer(requests)
        missing = lacked(wants, view, self.newest_of(log))
        state.lacks, missing = bool(missing), missing if state.met else ()
        refused = union(state.refused, state.lifted, state.withdrawn_ranges())
        path = max(peer.path_refused, state.path_lifted if state.path_lifted <= state.stop else 0)
        seen = replace(peer, refused=refused, path_refused=path, coming=())
        gaps = refused_gaps(wants, view, seen, runs_from=runs_from)
        alone = self._lacking.note(log, (*missing, *wants.fetches, *gaps), self._actions.now)
        state.awaits = view.some_arriving
        listening = view
        if view.height in state.inside or self._mender.has_begun(log, view.height):
            view = listening = replace(view, tail_partial_bytes=None)
        elif view.tail_arriving:
            view = replace(view, tail_partial_bytes=None)
        asks = self._unless_too_soon(log, state, plan(wants, view, peer, runs_from=runs_from))
        if any(ask.settings.eagerness is not Eagerness.NOTIFY for ask in asks):
            if self._actions.claim(log):
                state.listened_until = 0.0
            else:
                asks = self._leave_to_others(listening, state, asks, runs_from)
        if not self._mender.has_fetched(log, wants.fetches) and (alone or self._actions.claim(log)):
            self._mender.fetch(log, wants.fetches)
        if missing:
            inside = any(ask.offset is not None and ask.kind is AskKind.RANGE for ask in asks)
            tail = not inside and view.height not in state.inside
            self._mender.mend(view, wants, self.newest_of(log), alone=alone, tail=tail)
        if state.unserved:
            asks += offers(view, state.unserved, state.reachable(requests))
        if not asks and not any(map(covers, requests)):
            asks += state.introduction(view, requests)
        return state.not_twice(asks, requests)

    def _cut_at_gaps(self, view: LogView, state: LogState, runs_from: int) -> None:
        """End what stands before a gap that nobody has filled for a while."""
        log, config = view.log, self._config
        wanted = state.wants.ranges(max(view.newest, self.newest_of(log)))
        patience = (config.stalled_after_s, config.look_again_s)
        requests, now = list(self._actions.requests_of(log)), self._actions.now
        due, at = due_cuts(requests, view, runs_from, state.stands, wanted, patience, now)
        if at is not None:
            self._agenda.look_in(log, at - now, now)
        state.unserved = union(state.unserved, *(cut.unserved for _, cut in due))
        state.postpone(union(*(carry_out(*each, self._actions) for each in due)))

    def ran_dry(self, request: Request) -> None:
        self._enqueue(request.log, look=True)

    def _leave_to_others(
        self, view: LogView, state: LogState, asks: list[Ask], runs_from: int
    ) -> list[Ask]:
        """Another session fetches the log: listen, and bring only what it does not.

        Gaps that are as they were some time ago, and what is wanted once, are brought after all.
        """
        log, now = view.log, self._actions.now
        if state.reach > view.newest_whole:
            # Perhaps it said so before anybody here wanted the log.
            self._actions.note_holds(log, state.reach, view.newest_whole)
        gaps = untold(asks, view, state.wants)
        if gaps and state.stalled == gaps:
            return gaps
        if gaps:
            state.stalled = gaps
            self._agenda.look_in(log, self._config.stalled_after_s, now)
        peer = state.peer(self._actions.requests_of(log))
        if state.listened_until == math.inf or self._covered(log):
            return []
        watches = plan(state.wants, view, peer, runs_from=runs_from, may_fetch=False)
        return self._unless_too_soon(log, state, watches)

    def _unless_too_soon(self, log: LogKey, state: LogState, asks: list[Ask]) -> list[Ask]:
        """Without the one to be told what is new, if the other side ended that a moment ago."""
        now = self._actions.now
        if not now < state.listened_until < math.inf:
            return asks
        self._agenda.look_in(log, state.listened_until - now, now)
        return [ask for ask in asks if ask.kind is not AskKind.WATCH]

    def _try_again(self, log: LogKey) -> None:
        """Something may still be missing that this side was asked for, or another one."""
        state = self._logs.get(log)
        if self._mender.is_mending(log):
            self._lacking.wait(log, self._actions.now)
        elif state is not None:
            self._mender.ask_again(log)
            state.inside = frozenset()
            state.lift_heard()
            self._enqueue(log, look=True)

    def _propose(self, view: LogView, state: LogState, ask: Ask) -> None:
        log = view.log
        requests = self._actions.requests_of(log)
        proposal = proposal_of(self._actions.next_number(), log, ask, view.hashes)
        part = meet(pool_of(ask, view.hashes), state.peer(requests).coming)
        if part and state.may_defer(view, part, self._actions.now, self._config.stalled_after_s):
            # It need not come twice.
            state.deferred = True
            self._agenda.look_soon(log, self._actions.now)
        elif self._actions.request_credit == 0:
            self._enqueue(log, first=True, look=True)
        elif not self._actions.may_propose(log, proposal.start, proposal.end):
            state.blocked = True
        else:
            searches, state.fork_range = state.fork_range is not None, None
            state.spoken = True
            if ask.offset is not None and ask.kind is AskKind.RANGE:
                state.inside |= {ask.start}
            if ask.kind is AskKind.OFFER:
                state.told = union(state.told, ((ask.start, ask.last),))
                state.told_at = self._actions.now
                if ask.last == view.end:
                    state.both_have = max(state.both_have, ask.last)
            request = self._actions.propose(proposal, view)
            self._room.proposed(log)
            state.note_proposal(self._actions.now)
            request.outgoing.known = max(request.outgoing.known, state.our_newest)
            state.asks[request] = ask
            state.views[request] = view
            if searches:
                state.fork_request = request

    # What the other side proposed

    def request_proposed(self, request: Request) -> None:
        self._line.asked_for(request.log)
        state = self._logs.get(request.log)
        if state is None and self.wants(request.log):
            state = self._state(request.log)
        if state is not None:
            requests = self._actions.requests_of(request.log)
            has_news = state.heard(request.proposal, requests)
            if not request.proposal.payloads_only and request.proposal.offset is None:
                self._mender.heard(request.log)
                if has_news:
                    self._lacking.hurry(request.log, self._actions.now + self._config.look_again_s)
        else:
            self._unheard.add(request)
        super().request_proposed(request)

    def not_taken_in(self, request: Request) -> None:
        log = request.log
        if self._actions.requests_of(log) == [request] and not self._waits(log):
            self._logs.forget(log)

    def answered(self, request: Request, view: LogView, answer: Answer) -> None:
        log, requests = request.log, self._actions.requests_of(request.log)
        state = self._logs.get(log)
        if state is None and (self.wants(log) or (answer.unserved and view.runs)):
            state = self._state(log)
        if state is None:
            if answer.unserved and log in self._declined and goes_on(request.proposal):
                self._declined[log] = request.proposal.start
            return
        if request in self._unheard:
            state.heard(request.proposal, requests, late=True)
        if self._actions.now >= state.told_at + self._config.look_again_s:
            # It asks although it was told, so it may not have kept what it got.
            state.told = minus(state.told, meet(answer.unserved, state.unserved))
        state.unserved = union(state.unserved, answer.unserved)[-RANGES_MAX:]
        state.keeps_in_step(request.proposal, view, requests)
        look = bool(answer.unserved) or state.blocked
        if answer.take_over:
            self._enqueue(log, first=True, look=True)
        elif request.active:
            state.refusals, state.met = 0, True
            look = look or not is_whole(view) or request.proposal.offset is not None
            if state.fork_range is not None:
                self._enqueue(log)
            wants, runs_from = self.wants_of(log), request.proposal.start
            look = look or bool(plan(wants, view, state.peer(requests), runs_from=runs_from))
            look = look or bool(runs_from > 1 and view.height < view.newest)
        if look:
            self._enqueue(log, look=True)

    # What became of requests

    def request_confirmed(self, request: Request) -> None:
        log = request.log
        state = self._logs.get(log)
        if state is None or self._mender.owns(request):
            return
        state.refusals, state.met = 0, True
        view, ask = state.views.pop(request, None), state.asks.get(request)
        if ask is not None and ask.kind is AskKind.PROBE and request.base is not None:
            state.told_newest(request.base.end or 0)
            self._enqueue(log, look=True)
        if ask is not None and ask.kind is AskKind.WATCH and not fetches(request):
            state.watches(request)
        if fetches(request) and request.proposal.end is None and not self._actions.claim(log):
            # It was taken from us before there was an answer.
            self._actions.stop_fetching(request)
        elif view is not None and not is_whole(view):
            self._enqueue(log, look=True)
        if (request.proposal.lower_info or U64_MAX) < request.proposal.start:
            # What comes as part of a pool comes without its payload.
            self._agenda.look_soon(log, self._actions.now)
        if self.wants_of(log) != state.wants or (ask is not None and state.blocked):
            self._wants_changed(log, state)
        elif ask is not None:
            self._change(request)

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        log = request.log
        if cancel.entries:
            self._actions.check_evidence(log, cancel.entries, wanted=self.wants(log))
        state = self._logs.get(log)
        if state is not None and cancel.reason is CancelReason.FORKED:
            state.told_fork = min(state.told_fork, decode_entry(cancel.entries[0]).seq)
        if state is None or self._mender.owns(request):
            return
        match cancel.reason:
            case CancelReason.NOT_WANTED | CancelReason.PAYLOAD_MANDATORY:
                self._refused(request, state)
            case CancelReason.NO_RESOURCES:
                self._no_resources(request, state)
            case _:
                self._forking.cancelled(request, cancel, state)

    def _refused(self, request: Request, state: LogState) -> None:
        if request.ours:
            state.refuse(request)
            state.doubt_newest(request)
            if state.refusals > REFUSALS_MAX:
                self._pause(request.log, state)
        else:
            state.withdraw(request.proposal, self._actions.now)

    def _no_resources(self, request: Request, state: LogState) -> None:
        ask = state.asks.get(request)
        if ask is not None:
            state.not_served(ask)
        if (ask is None or ask.kind is not AskKind.PROBE) and (request.ours or request.confirmed):
            self._pause(request.log, state)

    def request_released(self, request: Request) -> None:
        log = request.log
        self._mender.note_release(request.log)
        self._unheard.discard(request)
        state = self._logs.get(log)
        if state is None:
            self._mender.forget(request)
            return
        self._settling.add(request)
        if request.ours:
            state.note_proposal(request.created_at)
        if self._mender.owns(request):
            self._mender.forget(request)
            return
        ask, made_room = state.released(request, self._actions.now), self._room.released(request)
        unwanted = not self.wants(log) and not state.unserved
        if unwanted or (refused_all(request, ask) and not state.lacks and self._close(log)):
            return
        state.stale = True
        if came_to_nothing(request) and not made_room:
            self._pause(log, state)
        if ask is not None and ask.kind is AskKind.RANGE and completed(request):
            self._mender.ask_again(log)
        self._enqueue(log, look=(ask is not None and not made_room) or state.blocked)

    def request_lost(self, request: Request) -> None:
        # It is planned anew once the winner has our answer.
        self._mender.forget(request, lost=True)
        state = self._logs.get(request.log)
        if state is not None:
            state.lost(request)

    def given_up(self, request: Request) -> None:
        self._settling.drop(request.log)
        state = self._logs.get(request.log)
        if not self._mender.given_up(request) and state is not None:
            if request.ours and request.proposal.offset:
                # It was joined from several sources and is wrong: once more, from 0.
                state.inside -= {request.proposal.start}
            self._pause(request.log, state, not_kept=True)

    def contradicted(self, request: Request, seq: int) -> None:
        self._settling.drop(request.log)
        state = self._logs.get(request.log)
        if state is not None:
            self._forking.contradicted(request, seq, state)

    # What changed

    def _wants_changed(self, log: LogKey, state: LogState) -> None:
        """Narrow or end the requests of a log, and plan it anew."""
        before, wants = state.wants, self.wants_of(log)
        state.wants, state.stalled = wants, None
        self._mender.keep_fetching(log, wants.fetches)
        newest = max(state.height, state.our_newest, self.newest_of(log))
        if wants.subscription != before.subscription:
            self._mender.wants_changed(log, mended(wants, newest), wants.payload_limits)
        for request in list(self._actions.requests_of(log)):
            unwanted = request.ours and not wants.is_wanted
            if unwanted or is_inside_unwanted(request, wants, newest):
                self._cancel(request)
            else:
                self._change(request)
        self._enqueue(log, look=True)

    def _change(self, request: Request) -> None:
        """Fit a request to what is wanted now."""
        log, listens = request.log, request.our_interest.eagerness is Eagerness.NOTIFY
        state = self._logs.get(log)
        searches = state is not None and request is state.fork_request
        if not request.active or searches or self._mender.owns(request):
            return
        if listens and not self._actions.claim(log):
            return
        wants, newest = self.wants_of(log), self.newest_of(log)
        found = change(request, wants, newest, serve=self._interests.serve_held)
        if found.cancel:
            self._cancel(request)
        elif found.stop_fetching:
            self._actions.stop_fetching(request)
        elif found.adjust is not None:
            self._actions.adjust(request, found.adjust)

    def _cancel(self, request: Request) -> None:
        state = self._logs.get(request.log)
        if state is not None and self._interests.serve_held:
            state.leaves(request)
        self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))

    def payload_skipped(self, request: Request) -> None:
        if self.wants(request.log):
            self._lacking.wait(request.log, self._actions.now)

    def arrival_changed(self, log: LogKey) -> None:
        state = self._logs.get(log)
        if state is not None and (state.awaits or self._mender.arrived(log)):
            self._agenda.look_soon(log, self._actions.now)

    def peer_holds(self, request: Request, seq: int) -> None:
        state = self._logs.get(request.log)
        if state is None or request.proposal.sparse:
            return
        state.newest = max(state.newest or 0, seq)
        if state.wants.is_sparse:
            self._agenda.look_soon(request.log, self._actions.now)

    def log_changed(self, event: LogChanged) -> None:
        log = event.log
        if event.fork is None and self._logs.is_closed(log):
            return
        # Who was asked for a log tells of its forks, wanted here or not, and of what it holds.
        state = self._state(log) if log in self._declined else self._logs.opened(log)
        self._lacking.came(log)
        if state is not None:
            state.retries = 0
            state.our_newest = max(state.our_newest, event.newest)
            if event.fork is not None and event.fork < state.told_fork:
                state.refused = ()
                self._enqueue(log, look=True)
            if state.deferred or state.unserved:
                self._agenda.look_soon(log, self._actions.now)
            elif event.height < event.newest and state.wants.followed(event.newest):
                # Whoever brings the log may have parts of it only, and this side what is between.
                self._agenda.look_in(log, self._config.stalled_after_s, self._actions.now)
        waits = state is None and (log in self._interests.logs or log in self._interests.own)
        if self.wants(log) and not waits and not self._actions.requests_of(log):
            self._enqueue(log)

    def source_changed(self, event: SourceChanged) -> bool:
        log = event.log
        requests = list(self._actions.requests_of(log))
        if not event.fetch:
            for request in requests:
                if self._mender.owns(request) or brings(request):
                    self._actions.stop_fetching(request)
            return True
        state, wants = self._logs.opened(log), self.wants_of(log)
        if not self.wants(log) or (state is not None and state.refuses(wants)):
            return False
        if state is not None:
            state.inside = frozenset()
            self._mender.ask_again(log)
        for request in filter(covers, requests):
            if request.our_interest.eagerness is Eagerness.NOTIFY and not wants.is_sparse:
                # Nobody raises the eagerness of a request again (section 5).
                self._cancel(request)
        self._enqueue(log, first=True, look=True)
        return True

    def _pause(self, log: LogKey, state: LogState, *, not_kept: bool = False) -> None:
        self._agenda.pause(log, state, self._actions.now, not_kept=not_kept)
