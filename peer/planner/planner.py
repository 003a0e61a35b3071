"""The planner: what a session asks for and offers, log by log (point2point.md 10).

A log is planned when it is *dirty*: a wish, a request, a rest or the other side's word changed.
Then it gets a turn (turns.py): it is looked up, and what to propose is decided from that and from
what has come since (proposals.py). What comes in order in a request that covers a log makes nothing
dirty. What comes to nothing (outcomes.py) is noted in one ledger (rests.py), and rests.

Every log that was authored here or is followed is proposed from where it stands, unless the other
side has proposed it already: the proactive side walks the logs upwards, the reactive one downwards,
so that they meet in the middle. A one-time sync is the same with an end: it finds out what the
other side has now, brings that and offers what it has itself, and knows when it is done.
"""

from peer.protocol.buckets import LogBucket
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged, LogChanged, LogView, SourceChanged
from peer.protocol.request import NEVER, Request
from wire import Cancel, Eagerness, LogKey

from .actions import Actions
from .answer import Answer, goes_on, is_late_offer
from .asks import is_whole, last_possible, plan
from .coverage import coming, covers, takes
from .done import Done
from .fitting import Changes
from .outcomes import Outcomes
from .peer_log import PeerLog, PeerLogs
from .progress import Mark, Progress
from .ranges import Ranges, meet, minus
from .replying import Answers
from .rests import Kind, Outcome, Rests
from .retries import earliest
from .shared import Shared
from .sourcing import Readable, brings, fetches
from .turns import Turns


class Planner:
    """Keeps what is wanted of every log in requests, and answers those of the other side."""

    def __init__(
        self,
        actions: Actions,
        config: SessionConfig,
        new_logs: LogBucket,
        *,
        proactive: bool,
        once: bool = False,
    ) -> None:
        """`new_logs`: those that the other side may still bring; `once`: a one-time sync."""
        self._actions = actions
        self._config = config
        self._proactive = proactive
        self._progress = Progress(actions.requests_of)
        self._rests = Rests(config, once=once)
        self._logs = PeerLogs(self._rests)
        self._done = Done(config) if once else None
        self._answers = Answers(actions, config, new_logs, self._progress, self, bounded=once)
        self._shared = Shared(
            actions, config, self._rests, self._logs, self._progress, self._answers, self._done
        )
        self.reads = Readable(self._shared)
        self._turns = Turns(self._shared)
        self._changes = Changes(self._shared, self._turns)
        self.outcomes = Outcomes(self._shared, self._turns, self._changes)

    # What is wanted

    def interests_changed(self, event: InterestsChanged) -> None:
        """What this node wants is another matter now."""
        before, self._answers.interests = self._answers.interests, event.interests
        interests = event.interests
        is_scope_new = before.scope != interests.scope
        if is_scope_new:
            # Before all else: what may not be read or written any more ends at this moment.
            self._changes.scope_changed(before)
        if self._done is not None:
            self._done.started = True
        self._shared.happened()
        self._fit_logs(before, interests)
        offers = event.offers
        if interests.scope is not None:
            offers = tuple(log for log in offers if not interests.is_silent(log))
        self._turns.line.offer(offers, interests.names, backwards=not self._proactive)
        fetched = filter(interests.wants, sorted(interests.fetches))
        for log in (*fetched, *self._answers.wanted_by_now()):
            # What is known already was fitted above, and marked if that changes anything.
            if self._logs.opened(log, self._actions.now) is None:
                self._turns.mark(log)
        if self._done is not None:
            early, self._done.early = self._done.early, {}
            for request in early:
                self.request_proposed(request)

    def _fit_logs(self, before: Interests, interests: Interests) -> None:
        """What is open of each log is fitted to what is wanted, and may be given, now."""

        def reads_otherwise(log: LogKey) -> bool:
            is_scope_new = before.scope != interests.scope
            return is_scope_new and before.may_give(log) is not interests.may_give(log)

        # Of closed logs only those are opened that this changes anything for: there are thousands.
        for log, closed in self._logs.closed():
            if reads_otherwise(log) or self._shared.wants_of(log) != closed.wants:
                self._logs.opened(log, self._actions.now)
        for log, known in self._logs.items():
            if interests.names(log) and not before.names(log):
                self._changes.named(log)
            if self._shared.wants_of(log) != known.wants:
                self._changes.wants_changed(log, known)
            if reads_otherwise(log):
                self._changes.reading_changed(known)

    def newest_of(self, log: LogKey) -> int:
        """The newest entry that the other side has told of."""
        return self._shared.newest_of(log)

    def is_settling(self, log: LogKey) -> bool:
        """Whether something came in a request that is over, and is not stored."""
        return self._progress.is_settling(log)

    # What is next

    def advance(self) -> None:
        """Propose what can be proposed now; called after every input and when time has passed."""
        # First what is to be planned again, so that it is in line when turns are taken.
        for log in self._rests.due(self._actions.now):
            self._turns.mark(log)
        for log in self._progress.take_stored():
            self._shared.happened()
            self._turns.mark(log)
        self._turns.advance()
        if self._done is not None and self._ends_at() is not None:
            self._end(self._done)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came."""
        return earliest(self._rests.next_at(), self._turns.next_deadline(), self._ends_at())

    # When a one-time sync is over

    def _is_quiet(self, done: Done) -> bool:
        # What rests for ever has no end to wait for; what is not stored may come to be lacking.
        waits = self._rests.next_at() is not None or self._progress.any_settling
        serves = done.answers_due or done.serving
        return done.started and not (self._turns.any_open or waits or serves or done.finished)

    def _ends_at(self) -> float | None:
        done = self._done
        return None if done is None or not self._is_quiet(done) else done.at

    def _end(self, done: Done) -> None:
        at = self._ends_at()
        if at is not None and self._actions.now >= at:
            done.finished = True
            self._actions.finished_sync(done.logs)

    @property
    def wants_pong(self) -> bool:
        """Whether a ping's answer is the next thing that a sync waits for."""
        done = self._done
        return done is not None and self._is_quiet(done) and done.waits_for_pong

    def ping_sent(self) -> None:
        """The other side was asked for an answer because of `wants_pong`."""
        if self._done is not None:
            self._done.ping_sent()

    def pong_arrived(self) -> None:
        """The other side answered."""
        if self._done is not None and self.wants_pong:
            self._done.pong_arrived(self._actions.now)

    # What the other side proposes

    def request_proposed(self, request: Request) -> None:
        """The other side proposed something: look at the log, then answer."""
        log, now = request.log, self._actions.now
        if self._done is not None and not self._done.started:
            # What is said of it depends on what is wanted, and is said once.
            self._done.early[request] = None
            return
        if is_late_offer(request.proposal):
            # It tells of nothing that the other side holds but that.
            self._answers.propose(request, self._done)
            return
        # Wanted here or not: it ends a refusal of theirs, and may be the last proposal before the
        # log is wanted. What is kept of a closed log has no place for that.
        known = self._logs.opened(log, now)
        if self._shared.interests.is_silent(log):
            # Nothing is made of it, but what it told before a scope changed may matter once more:
            # what it refused may be asked for after a later proposal, and there may be no other.
            if known is not None:
                known.heard(request.proposal, self._actions.requests_of(log), now)
            self._answers.propose(request, self._done)
            return
        self._turns.line.asked_for(log)
        if known is None and self._shared.wants(log):
            known = self._shared.known_of(log)
        if known is None:
            self._shared.unheard.add(request)
        elif known.heard(request.proposal, self._actions.requests_of(log), now):
            self._rests.hurry(log, (Kind.PAYLOAD, Kind.RANGE), now + self._config.look_again_s)
        self._answers.propose(request, self._done)

    def not_taken_in(self, request: Request) -> None:
        """A log was offered for which there is no room."""
        log = request.log
        if self._actions.requests_of(log) == [request] and self._turns.is_idle(log):
            self._logs.forget(log)

    def has_no_room(self, log: LogKey) -> bool:
        """Whether there was no room here for a log a while ago."""
        return self._rests.has_no_room(log, self._actions.now)

    def answers_with(self, request: Request, view: LogView) -> Cancel | None:
        """What a one-time sync says to a proposal, whatever else could be said; None: nothing."""
        done = self._done
        if done is None:
            return None
        log = request.log
        self._shared.happened(log)
        if self._shared.wants(log):
            if self._logs.get(log) is None:
                self._turns.mark(log)
            self._hear_late(request, self._logs[log])
        return self._answers.of_sync(request, view, done, self._logs.get(log))

    def _hear_late(self, request: Request, known: PeerLog) -> None:
        if request in self._shared.unheard:
            self._shared.unheard.discard(request)
            requests = self._actions.requests_of(request.log)
            known.heard(request.proposal, requests, self._actions.now, late=True)

    def answered(self, request: Request, view: LogView, answer: Answer, since: Mark) -> None:
        """We answered a proposal of the other side. `since`: when the view was asked for."""
        log = request.log
        if self._done is not None and request.active:
            # It takes what is held here, and a sync that ended now would cut it off.
            self._done.serving.add(request)
        self._note_wanted(request, view)
        owed = _is_owed(answer, view)
        # A log that grows here may come to hold what was asked for; a sync waits for nothing.
        some_held = owed if self._done else bool(view.runs)
        known = self._known_of_asked(request, answer, some_held=some_held)
        if known is None:
            return
        # The log may be wanted only since it was proposed: what was said with that counts by now.
        self._hear_late(request, known)
        self._actions.note_holds(log, known.reach, view.newest_whole)
        known.planned.stop = last_possible(view)
        if answer.unserved:
            self._asked_in_vain(log, known, answer.unserved)
        known.keeps_in_step(request.proposal, view, self._actions.requests_of(log))
        if self._leads_to_more(request, view, answer, known, since, is_owed=owed):
            self._turns.mark(log)

    def _asked_in_vain(self, log: LogKey, known: PeerLog, unserved: Ranges) -> None:
        """The other side asks for entries that it cannot have in that way."""
        # Told or not, it asks again: it may not have kept what it got, or did not want the log when
        # it was told. Who asks for the first time may have sent that before our offer arrived. In a
        # sync there may be no second time.
        again = unserved if self._done else meet(unserved, known.unserved)
        self._rests.lift_told_again(log, again, self._actions.now)
        self._rests.lift_declined(log, unserved)
        known.asks_in_vain(unserved)

    def _leads_to_more(
        self,
        request: Request,
        view: LogView,
        answer: Answer,
        known: PeerLog,
        since: Mark,
        *,
        is_owed: bool,
    ) -> bool:
        """Whether a log is to be looked at behind an answer of ours."""
        log = request.log
        # Of a log that nobody here knew of nothing is asked yet. Where theirs brings all that is
        # new, what it leaves out is found below: a look at each of thousands in step finds nothing.
        is_covered = request.active and covers(request)
        is_new = not (is_covered or known.spoken) and self._shared.plans(log)
        look = (bool(answer.unserved) and is_owed) or is_new
        if answer.take_over:
            # It was refused so that we ask for what we need, and is not to propose that again
            # (section 6, 128): nothing of the log moves before we have, so it goes first.
            if self._done is None and view == LogView(log):
                self._turns.take(view, since)
                return False
            if not self._has_asked(request, view, known):
                self._turns.mark(log, first=True)
            return look
        if request.active:
            known.refusals, known.met = 0, True
            return look or self._lies_beside(request, view, known)
        # Until now its proposal was unanswered, and section 7 let ours not be made.
        return look or known.blocked

    def _known_of_asked(
        self, request: Request, answer: Answer, *, some_held: bool
    ) -> PeerLog | None:
        """What is known of a log that the other side has proposed, from now on if there is
        something to propose of it here, or to offer. `some_held`: of what it could not get."""
        log = request.log
        known = self._logs.get(log)
        if known is not None:
            return known
        if self._shared.plans(log) or (answer.unserved and some_held):
            return self._shared.known_of(log)
        # A peer may name as many logs as there are numbers: of one of which there is nothing here a
        # number is kept, of the latest ones, and no `PeerLog`.
        if answer.unserved and goes_on(request.proposal):
            self._answers.note_asked_from(log, request.proposal.start)
        return None

    def _lies_beside(self, request: Request, view: LogView, known: PeerLog) -> bool:
        """Whether something is to be asked for that a request in force does not bring.

        An open request that is confirmed brings all that is new, both ways. So thousands of logs in
        step are not looked at once more.
        """
        log, runs_from = request.log, request.proposal.start
        if not is_whole(view) or request.proposal.offset is not None:
            return True
        if known.fork_range is not None:
            return True
        owed = known.unserved or known.singly or log in self._shared.regained
        if known.blocked and owed:
            # Its turn came while this was unanswered, and for more than what may be asked for.
            return True
        known.blocked = False
        if self._brings_all(request, view):
            return False
        peer = known.peer(coming(self._actions.requests_of(log)), self._actions.now)
        if plan(self._shared.wants_of(log), view, peer, runs_from=runs_from):
            return True
        # The view begins where the proposal does: it tells of no gap before that.
        return runs_from > 1 and view.height < view.newest

    def _brings_all(self, request: Request, view: LogView) -> bool:
        """Whether a request in force brings all that can be wanted of a log that is held whole.

        So it is for nearly all of thousands in step, and a plan, which says the same, takes longer.
        """
        is_next = view.height == view.newest and request.proposal.start <= view.newest + 1
        is_all = is_next and self._shared.wants_of(request.log).is_all
        return is_all and takes(request) and covers(request)

    def _note_wanted(self, request: Request, view: LogView) -> None:
        """Who asks for what is held here wants such logs, and is offered others the faster.

        An offer begins behind what is held, so that whoever lacks some of that refuses it, and asks
        from where it ends itself: of such a log no proposal of ours is ever confirmed.
        """
        if request.active and request.proposal.start <= view.newest:
            self._turns.offering.wanted()

    def payloads_answered(self, request: Request, left: Ranges) -> None:
        """We confirmed an offer of payloads that came late. `left`: what it does not bring."""
        log = request.log
        if self._done is not None:
            self._done.serving.add(request)
        if left and self._logs.opened(log, self._actions.now) is not None:
            self._rests.lift_part(log, Kind.PAYLOAD, left)
            self._turns.mark(log)

    def _has_asked(self, request: Request, view: LogView, known: PeerLog) -> bool:
        """Whether a one-time sync has asked already for more than an open proposal tells of.

        A node that stays proposes every log that it has, while a sync asks for all of them.
        """
        told = request.proposal.start - 1
        is_known = told <= max(view.newest, known.newest or 0)
        return self._done is not None and known.spoken and goes_on(request.proposal) and is_known

    # What changed

    def payload_skipped(self, request: Request) -> None:
        """The other side passed a payload that it does not have."""
        base, position = request.base, request.incoming.position - 1
        given_up = request.cancel_sent is not None
        if base is None or position < 0 or given_up or not self._shared.wants(request.log):
            return
        seq = base.piece(position).seq
        now = self._actions.now
        self._rests.note(request.log, Kind.PAYLOAD, Outcome.SKIPPED, now, ((seq, seq),))

    def fork_told(self, log: LogKey, fork: int) -> None:
        """The other side is sent the proof of a fork, whichever request that ends.

        It is not told that again. Of a log that is not planned here nothing is noted.
        """
        if (known := self._logs.get(log)) is not None:
            self._turns.forking.note_told(known, fork)

    def ran_dry(self, request: Request) -> None:
        """An entry that is next to be sent is not held, although later ones are."""
        self._turns.mark(request.log)

    def arrival_changed(self, log: LogKey) -> None:
        """Some session of this host begins to receive a payload of a log, or does so no more."""
        known = self._logs.get(log)
        if known is not None and known.planned.awaits and self._done is None:
            self._turns.mark_soon(log)

    def peer_holds(self, request: Request, seq: int) -> None:
        """The other side notified of an entry that it holds and has not sent."""
        known = self._logs.get(request.log)
        if known is None or request.proposal.sparse or self._done is not None:
            return
        known.theirs.holds(seq)
        if known.wants.is_sparse:
            self._turns.mark_soon(request.log)

    def log_changed(self, event: LogChanged) -> None:
        """Something new of a log is held."""
        log, now = event.log, self._actions.now
        if self._done is not None or (event.fork is None and self._logs.is_closed(log)):
            # What is appended during a one-time sync is the next one's; and of a log that the other
            # side refuses altogether there is nothing to tell but a fork.
            return
        # Who was asked for a log tells of its forks, wanted here or not, and of what it holds.
        declined = self._answers.has_declined(log)
        known = self._shared.known_of(log) if declined else self._logs.opened(log, now)
        self._rests.lift_by_arrival(log, now)
        if known is not None:
            known.planned.heard = max(known.planned.heard, event.newest)
            told = known.forks.told if known.forks is not None else NEVER
            if event.fork is not None and event.fork < told:
                # What is missing before the fork may have been refused with what is behind it.
                self._rests.lift_refused(log, Kind.RANGE)
                self._turns.mark(log)
            if self._leads_to_a_look(event, known):
                # Not at once: a log that another session brings changes many times a second.
                self._turns.mark_soon(log)
            elif self._may_fill_in(event, known):
                # Whoever brings the log may have parts of it only, and this side what is between.
                self._rests.look_at(log, now + self._config.stalled_after_s)
        if self._shared.plans(log) and not self._actions.requests_of(log):
            # Ahead of those that are only offered, though it be one of them.
            self._turns.mark(log)

    def _leads_to_a_look(self, event: LogChanged, known: PeerLog) -> bool:
        """Whether there may be something to ask for or to offer since something is held."""
        # What is fetched once is brought whatever sizes an open request is for.
        if self._rests.is_left(known.log, Kind.POOL) or meet(
            known.wants.fetches, ((1, event.newest),)
        ):
            return True
        lacks = event.lacks and self._brings_pool(known.log)
        return lacks or self._may_be_offered(known, event.newest)

    def _may_be_offered(self, known: PeerLog, newest: int) -> bool:
        """Whether what the other side asked for in vain may be held now, and comes to it in no
        request in force.

        Of each log that a new replica gets its other side has asked for what follows, and it gets
        that in the request that brings the log: a look at each found nothing to offer.
        """
        asked = meet(known.unserved, ((1, newest),))
        requests = self._actions.requests_of(known.log)
        return bool(asked and minus(asked, known.reachable(requests, self._actions.now)))

    def _brings_pool(self, log: LogKey) -> bool:
        """Whether entries come as parts of a pool: they come without their payloads."""
        bases = (request.base for request in self._actions.requests_of(log))
        return any(base is not None and base.lower for base in bases)

    def _may_fill_in(self, event: LogChanged, known: PeerLog) -> bool:
        """Whether entries or payloads are missing that another session did not bring."""
        if not known.wants.followed(event.newest):
            return False
        smallest, largest = known.wants.payload_limits
        lacks = event.lacks and smallest <= largest
        listens = not any(map(fetches, self._actions.requests_of(event.log)))
        return event.height < event.newest or (lacks and listens)

    def source_changed(self, event: SourceChanged) -> bool:
        """This session is to fetch a log now, or to leave it to another one; False: it will not."""
        if self._done is not None:
            # A one-time sync brings what the other side has, whoever else brings it too.
            return False
        log, now = event.log, self._actions.now
        requests = list(self._actions.requests_of(log))
        if not event.fetch:
            for request in requests:
                if brings(request):
                    self._actions.stop_fetching(request)
            return True
        known, wants = self._logs.opened(log, now), self._shared.wants_of(log)
        if not self._shared.wants(log) or (known is not None and known.refuses(wants, now)):
            return False
        if known is not None:
            # Nobody else brings now what was left to the source before, or did not come from it.
            known.asked = ()
            self._rests.lift(log, Kind.PAYLOAD, Outcome.SKIPPED)
        for request in filter(covers, requests):
            if request.our_interest.eagerness is Eagerness.NOTIFY and not wants.is_sparse:
                # Nobody raises the eagerness of a request again (section 5).
                self._changes.cancel(request)
        self._turns.mark(log, first=True)
        return True


def _is_owed(answer: Answer, view: LogView) -> bool:
    """Whether what the other side cannot have as it asked may be held in another run.

    That is offered then. A view lists so many runs only: of a log of more of them it is found out
    by looking further.
    """
    return bool(meet(answer.unserved, view.runs)) or not view.runs_complete
