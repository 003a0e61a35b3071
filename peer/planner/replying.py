"""How a session answers what the other side proposes, with a look-up of its own for each.

Each proposal has to be answered, and at once: until it is, section 7 lets nothing that overlaps it
be proposed. So it waits neither for a log's turn nor for another session. What is said is a formula
(answer.py); here it is given what it needs, what a peer could make us do is bounded, and what was
said is remembered as far as it matters later:

- a log that nobody wanted when it was proposed (`_declined`): the other side keeps to our refusal,
  so that we have to ask once it is wanted;
- one that it may not read (`_kept`): it is told of it should it be allowed to.

Both are bounded by what is taken in from a peer, and the oldest are forgotten: a peer may name as
many logs as there are numbers.

Answering is the session's alone: a violation that is found there is that peer's.
"""

from functools import lru_cache
from typing import Protocol

from logstore import Subscription
from peer.protocol.buckets import LogBucket
from peer.protocol.commands import MISSING_NAMED, LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, LogView
from peer.protocol.notices import Limit
from peer.protocol.request import OPEN_END, Request
from wire import Cancel, CancelReason, Eagerness, LogKey

from .actions import Actions
from .answer import (
    Answer,
    answer,
    contradicts,
    is_late_offer,
    is_offer,
    link_target,
    obstacle,
    offered_payloads,
)
from .coverage import bodies
from .done import Done
from .payloads import NAMED_MAX
from .peer_log import PeerLog
from .progress import Mark, Progress
from .ranges import Ranges, minus, range_with, union
from .wanting import Wants


class AnswerListener(Protocol):
    """Who plans, and hears of answers."""

    def newest_of(self, log: LogKey) -> int: ...

    def not_taken_in(self, request: Request) -> None: ...

    def has_no_room(self, log: LogKey) -> bool: ...

    def answers_with(self, request: Request, view: LogView) -> Cancel | None: ...

    def answered(self, request: Request, view: LogView, answer: Answer, since: Mark) -> None: ...

    def payloads_answered(self, request: Request, left: Ranges) -> None: ...


_LISTENS = Wants(listens=True)
_WANTED_MAX = 1024
"""Twice the proposals that a peer may leave unanswered. It may name as many logs as there are
numbers."""


@lru_cache(maxsize=256)
def _wants_of(subscription: Subscription | None) -> Wants:
    """One for the thousands of logs that are wanted alike."""
    return Wants(subscription)


class Answers:
    """What this node wants, and what follows from that for proposals of the other side."""

    def __init__(
        self,
        actions: Actions,
        config: SessionConfig,
        new_logs: LogBucket,
        progress: Progress,
        listener: AnswerListener,
        *,
        bounded: bool,
    ) -> None:
        """`bounded`: open ranges are confirmed only up to what is held now."""
        self.interests = Interests()
        self._actions = actions
        self._config = config
        self._progress = progress
        self._listener = listener
        self._bounded = bounded
        self._new_logs = new_logs
        self._wanted: dict[LogKey, Wants] = {}
        """What is wanted of the logs that were asked about last: of one that is answered, or has
        its turn, that is asked six times, and of hundreds at once."""
        self._wanted_by = self.interests
        self._taken_in: set[LogKey] = set()
        """Logs for which there was room, and of which perhaps nothing is held yet."""
        self._declined: dict[LogKey, int] = {}
        """Logs that the other side proposed and that were not wanted, the latest ones last, and
        from which entry on it asked in vain for all that follows, 0: it did not."""
        self._kept: dict[LogKey, int] = {}
        """Logs that it asked for and may not read, the latest ones last, and the lowest entry."""

    # What is wanted

    def wants_of(self, log: LogKey) -> Wants:
        """What of a log is wanted."""
        if self._wanted_by is not self.interests:
            self._wanted_by, self._wanted = self.interests, {}
        if (known := self._wanted.get(log)) is not None:
            return known
        wants = self._wants_of(log)
        if self.interests.scope is None:
            # What a scope allows may follow from what happens meanwhile.
            self._wanted[log] = wants
            if len(self._wanted) > _WANTED_MAX:
                del self._wanted[next(iter(self._wanted))]
        return wants

    def _wants_of(self, log: LogKey) -> Wants:
        interests = self.interests
        if interests.scope is not None and not interests.may_take(log):
            return _LISTENS if interests.listens(log) else _wants_of(None)
        subscription = interests.subscription(log) if interests.follows(log) else None
        fetches = interests.fetches.get(log)
        return Wants(subscription, union(fetches)) if fetches else _wants_of(subscription)

    def takes_in(self, log: LogKey) -> bool:
        """Whether there is room for a log that this peer offers, among those it brought.

        What is held here already is no new one: who comes again offers all of it once more.
        """
        interests = self.interests
        if log in interests.logs or log in interests.own or log in self._taken_in:
            return True
        if interests.held is not None and log in interests.held:
            return True
        if not self._new_logs.take(self._actions.now):
            self._actions.met(Limit.OFFERED_LOGS)
            return False
        self._taken_in.add(log)
        return True

    # What was declined

    def wanted_by_now(self) -> list[LogKey]:
        """Logs that were proposed when nobody wanted them, and are wanted.

        The other side keeps to our refusal and does not propose them again (section 6).
        """
        return [log for log in self._declined if self.interests.wants(log)]

    def has_declined(self, log: LogKey) -> bool:
        """Whether the other side proposed a log that was not wanted."""
        return log in self._declined and not self.interests.is_silent(log)

    def no_longer_declined(self, log: LogKey) -> int:
        """A log is planned from now on: from which entry on it was asked for in vain, or 0."""
        return self._declined.pop(log, 0)

    def note_asked_from(self, log: LogKey, seq: int) -> None:
        """The other side asked in vain for all of a declined log from an entry on."""
        if log in self._declined:
            self._declined[log] = seq

    def _decline(self, log: LogKey) -> None:
        self._declined.pop(log, None)
        self._declined[log] = 0
        if len(self._declined) > self._config.offered_logs_max:
            del self._declined[next(iter(self._declined))]

    # What is kept from the other side

    def keep(self, request: Request) -> None:
        """It asks for a log that it may not read. It is told of it should it be allowed to."""
        proposal, log = request.proposal, request.log
        if is_offer(proposal) or is_late_offer(proposal):
            return
        lowest = self._kept.pop(log, proposal.start)
        self._kept[log] = min(lowest, proposal.start)
        if len(self._kept) > self._config.offered_logs_max:
            del self._kept[next(iter(self._kept))]

    def kept_no_longer(self) -> list[tuple[LogKey, int]]:
        """The logs that it asked for and may read by now, from which entry on; told once."""
        found = [each for each in self._kept.items() if self.interests.serves(each[0])]
        for log, _ in found:
            del self._kept[log]
        # What nothing was held of when it was asked for may have come while it could not be told.
        asked = [each for each in self._declined.items() if each[1]]
        found += [each for each in asked if self.interests.serves(each[0])]
        return found

    # Answers

    def propose(self, request: Request, done: Done | None) -> None:
        """The other side proposed something: look at the log, then answer.

        What is neither wanted nor held is refused from memory. Nothing else bounds what a peer can
        make us read: it may name as many logs as there are numbers.
        """
        log = request.log
        if not self.interests.wants(log):
            self._decline(log)
        if not self.interests.concerns(log):
            self._answer(request, {}, LogView(log))
            return
        # Of the entry that it links to most answers need the hash alone, and to read and check all
        # of it took more than a third of a look-up. Into a payload its size is needed.
        self._look(request, done, with_entry=request.proposal.offset is not None)

    def _look(self, request: Request, done: Done | None, *, with_entry: bool) -> None:
        log, proposal = request.log, request.proposal
        if done is not None:
            done.answers_due.add(request)
        target = link_target(proposal)
        wants = self.wants_of(log)
        smallest, largest = wants.payload_limits
        late = is_late_offer(proposal)
        inside = late or proposal.offset is not None
        wanted = LookUp(
            0,
            log,
            () if target is None else (target,),
            target if with_entry else None,
            missing_above=proposal.start - 1 if inside else 0,
            min_bytes=smallest,
            max_bytes=largest,
            any_size=wants.fetches if late else (),
            leave_arriving=late,
            runs_from=proposal.start,
            missing_max=NAMED_MAX if late else MISSING_NAMED,
            tail_hashes=False,
        )
        since = self._progress.now(log)

        def looked(view: LogView) -> None:
            if done is not None:
                done.answers_due.discard(request)
            if self.wants_of(log) != wants:
                # Of what nobody wanted a view names no payload as missing. Taken for an answer it
                # would say that nothing is, and the log would not be looked at again.
                self.propose(request, done)
                return
            if not with_entry and contradicts(proposal, view):
                # With the entry that shows it.
                self._look(request, done, with_entry=True)
                return
            self._answer(request, since, view)

        self._actions.look_up(wanted, looked)

    def _answer(self, request: Request, since: Mark, view: LogView) -> None:
        if request.answered or request.cancel_received is not None:
            return
        log = request.log
        if self.interests.is_silent(log):
            # Whatever a view says: it may be older than the scope.
            self.keep(request)
            self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
            return
        # What is held has its room already: it is not given up because of a limit for new ones.
        if self.wants_of(log).is_planned and not (self.takes_in(log) or view.newest):
            self._actions.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
            self._listener.not_taken_in(request)
            return
        brings = is_offer(request.proposal) or is_late_offer(request.proposal)
        if brings and self._listener.has_no_room(log):
            # Before it sends any of it: what it brought last was too much.
            self._actions.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
            return
        if is_late_offer(request.proposal):
            self._answer_late(request, since, view)
            return
        at_once = self._listener.answers_with(request, view)
        if at_once is not None:
            decision = Answer(
                cancel=at_once, take_over=True, unserved=((request.proposal.start, OPEN_END),)
            )
        else:
            decision = answer(
                request.proposal,
                view,
                self.wants_of(log),
                serve=self.interests.serves(log),
                newest=self._listener.newest_of(log),
                coming=self._progress.coming(log, since),
                bounded=self._bounded,
            )
        self._actions.answer(request, view, decision)
        self._listener.answered(request, view, decision, since)

    def _answer_late(self, request: Request, since: Mark, view: LogView) -> None:
        """Payloads came late to the other side, of which it tells once."""
        log, wants, newest = request.log, self.wants_of(request.log), view.newest
        coming = self._progress.payloads_coming(log, since)
        decision = answer(
            request.proposal,
            view,
            wants,
            serve=self.interests.serves(log),
            newest=newest,
            coming=coming,
        )
        self._actions.answer(request, view, decision)
        if request.active:
            lacking = offered_payloads(request.proposal, view, wants, newest, coming)
            if view.unnamed_above is not None:
                lacking = union(lacking, ((view.unnamed_above + 1, view.newest),))
            self._listener.payloads_answered(request, minus(lacking, bodies([request])))

    def of_sync(
        self, request: Request, view: LogView, done: Done, known: PeerLog | None
    ) -> Cancel | None:
        """What a one-time sync says to a proposal, whatever else could be said; None: nothing.

        We probe and move a log ourselves, both ways, unless the other side asks for what it was
        told that we hold.
        """
        proposal = request.proposal
        contradiction = obstacle(proposal, view)
        tells = self.interests.may_give(request.log)
        differs = contradiction is not None and contradiction.reason is CancelReason.HASH_MISMATCH
        if differs and tells:
            # It has the proof now that the log is forked, and may tell us.
            done.proof_sent(request.log, request.created_at)
        if known is None:
            return None
        told = known.rests.told(request.log)
        asks_for_told = (
            tells and not is_offer(proposal) and range_with(told, proposal.start) is not None
        )
        asks_again = asks_for_told and done.has_failed(proposal, is_forked=view.fork is not None)
        if asks_again and proposal.eagerness is not Eagerness.NOTIFY:
            # Who only listens may not take it from us, and asks for nothing more.
            done.expect_another_try(request.created_at)
        is_open = proposal.end is None and proposal.offset is None and not proposal.sparse
        if not is_open or asks_for_told or contradiction is not None:
            return None
        return Cancel(request.number, CancelReason.NOT_WANTED)
