"""The policy of a one-time sync: bring both sides to what they have now (point2point.md 10).

Per log: a sparse, open, notify-only proposal from entry 1 finds the other side's newest entry (its
confirmation carries the end). Then finite ranges bring what is wanted and missing here, and what
the other side may lack is offered to it. The sync is done when all of these have ended, nothing of
the other side is unanswered, and the other side has answered a ping without proposing more.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial

from peer.protocol.config import SessionConfig
from peer.protocol.events import InterestsChanged, LogChanged, LogView, SourceChanged
from peer.protocol.request import OPEN_END, Request
from wire import Cancel, CancelReason, Eagerness, LogKey

from .answering import Answer, is_offer, obstacle
from .coverage import carried, coming, completed
from .log_state import LogState
from .mending import Mender
from .planning import (
    PROBE,
    Ask,
    AskKind,
    lacking_hashes,
    look_up_for,
    mended,
    offers,
    plan,
    pool_of,
    proposal_of,
)
from .policy import Actions, Policy
from .ranges import Ranges, meet, minus, range_with, union
from .retries import Retries, earliest

_RETRIES_MAX = 8
"""How often a request that found no resources is tried again."""
_FAILURES_MAX = 3
"""How often either side may fail to keep what it got, and try again."""
_LOOKS = 6
"""So many times its slowest answer a side is given to say something, once all else is done."""
_PATIENCE = 10
"""That is at most so many times `sync_settle_s`."""


class _Stage(Enum):
    PROBE = auto()
    """Find out what the other side has."""
    MOVE = auto()
    """Bring what is missing, and offer what the other side may lack."""
    MEND = auto()
    """Ask for single payloads that are missing here of what both have."""
    DONE = auto()


@dataclass(slots=True)
class _LogSync:
    stage: _Stage = _Stage.PROBE
    busy: bool = False
    """A look-up is under way."""
    queued: bool = False
    known: LogState = field(default_factory=LogState)
    retries: int = 0
    runs_from: int = 1
    mend_anew: bool = False
    """A payload that came could not be kept."""
    tried_soon: bool = False
    """It was tried once whether it can be kept now, before the other side could be gone."""
    told_again: Ranges = ()
    """What the other side asked for although it was told of it, and was told once more."""
    again: bool = False
    """Something was learned since the last look-up that began at entry 1."""

    @property
    def theirs(self) -> int:
        return self.known.newest or 0

    def asked_in_vain(self, entries: Ranges) -> None:
        """The other side asks for entries that it cannot have in that way: tell what is held."""
        self.known.unserved = union(self.known.unserved, entries)
        # It may have been told before it wanted the log.
        anew = minus(meet(self.known.told, entries), self.told_again)
        self.known.told = minus(self.known.told, anew)
        self.told_again = union(self.told_again, anew)


class SyncPolicy(Policy):
    """Probes every log once, moves what is missing, and says when it is done."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        super().__init__(actions, config, proactive=proactive)
        self._logs: dict[LogKey, _LogSync] = {}
        self._queue: deque[LogKey] = deque()
        self._open = 0
        self._looking = 0
        self._retries = Retries()
        self._mender = Mender(actions, self._settling)
        self._serving: set[Request] = set()
        self._answers_due: set[Request] = set()
        """Proposals of the other side whose logs are being looked up."""
        self._mending: dict[LogKey, None] = {}
        self._started = False
        self._finished = False
        self._ping_sent = False
        """Whether a ping was sent after all that happened."""
        self._pong_at: float | None = None
        """When the other side answered that ping; None: it has not."""
        self._failures = self._own_failures = 0
        self._not_before = 0.0
        """Until then the other side may ask again for what it could not keep."""
        self._asked_at: dict[Request, float] = {}
        """When each proposal was made that is not answered."""
        self._slowest_answer_s = 0.0

    def interests_changed(self, event: InterestsChanged) -> None:
        super().interests_changed(event)
        self._started = True
        self._active()
        # Some proposals may have been declined before it was known what is wanted.
        for log in (*event.offers, *sorted(event.interests.fetches), *self.wanted_by_now()):
            self._include(log)

    def _include(self, log: LogKey) -> None:
        if log not in self._logs:
            self._logs[log] = _LogSync()
            self._open += 1
            self._enqueue(log)

    def _reopen(self, log: LogKey) -> None:
        """There is more to do for a log after all."""
        self._include(log)
        state = self._logs[log]
        state.again = True
        if state.stage is _Stage.DONE:
            self._open += 1
        if state.stage in (_Stage.DONE, _Stage.MEND):
            state.stage = _Stage.MOVE
            self._enqueue(log)

    def _enqueue(self, log: LogKey) -> None:
        state = self._logs[log]
        if not state.queued:
            state.queued = True
            self._queue.append(log)

    def newest_of(self, log: LogKey) -> int:
        state = self._logs.get(log)
        return 0 if state is None else state.theirs

    def _active(self, log: LogKey | None = None) -> None:
        """Something happened, to this log if it is about one.

        A peer goes on offering all that it has. What is neither wanted nor held is no reason to
        wait, unless more may come of it that is wanted and cannot be named from here.
        """
        interests = self._interests
        if log is not None and not (interests.awaits_unknown or interests.concerns(log)):
            return
        self._ping_sent = False
        self._pong_at = None

    def advance(self) -> None:
        now = self._actions.now
        for log in self._retries.due(now):
            self._enqueue(log)
        for log in self._settling.take_stored():
            self._active()
            if log not in self._retries:
                self._enqueue(log)
        while self._queue and self._looking < self._actions.request_credit:
            log = self._queue.popleft()
            state = self._logs[log]
            state.queued = False
            waits = state.busy or log in self._settling
            if not waits and state.stage is not _Stage.DONE:
                self._look(log, ())
        if self._mender.advance(others_wait=bool(self._queue or self._looking)):
            self._active()
        for log in [log for log in self._mending if not self._mender.is_mending(log)]:
            del self._mending[log]
            state = self._logs[log]
            waits = state.busy or state.queued or log in self._retries
            if state.mend_anew and not waits:
                self._enqueue(log)
            elif not waits:
                # Else the look-up tells whether something came to be missing meanwhile.
                self._done(log)
        settles_at = self._settles_at
        if settles_at is not None and now >= settles_at:
            self._finished = True
            self._actions.finished_sync(len(self._logs))

    def _look(self, log: LogKey, named: tuple[int, ...]) -> None:
        state = self._logs[log]
        state.busy = True
        state.known.stale = False
        state.again = state.again and state.runs_from > 1
        self._looking += 1
        wants, newest = self.wants_of(log), self.newest_of(log)
        self._actions.look_up(
            look_up_for(wants, log, named, newest=newest, runs_from=state.runs_from),
            partial(self._looked, frozenset(named)),
        )

    @property
    def _settles_at(self) -> float | None:
        """When this side is done, if nothing happens until then; None: it is not, or was before.

        What the other side was sent last has reached it once it answers a later ping; how long it
        then takes to say something is not a matter of how far away it is. It may have to look at
        some logs before it has something to say, each of which takes as long as an answer.
        """
        if self._pong_at is None or not self._quiet or self._finished:
            return None
        settle_s = self._config.sync_settle_s
        patience_s = min(_LOOKS * self._slowest_answer_s, _PATIENCE * settle_s)
        return max(self._pong_at + max(settle_s, patience_s), self._not_before)

    @property
    def _quiet(self) -> bool:
        return self._started and not (self._open or self._answers_due or self._serving)

    @property
    def wants_pong(self) -> bool:
        """Whether a ping's answer is the next thing to wait for."""
        return self._quiet and self._pong_at is None and not self._finished

    def ping_sent(self) -> None:
        """The other side was asked for an answer because of `wants_pong`."""
        self._ping_sent = True

    def pong_arrived(self) -> None:
        """The other side answered; that counts unless something happened after the ping."""
        if self.wants_pong and self._ping_sent:
            self._pong_at = self._actions.now

    def next_deadline(self) -> float | None:
        return earliest(self._retries.next_at(), self._settles_at)

    def _looked(self, named: frozenset[int], view: LogView) -> None:
        log = view.log
        state = self._logs[log]
        state.busy = False
        self._looking -= 1
        self._active()
        if state.known.stale:
            # Something has come since.
            self._enqueue(log)
            return
        asks = [PROBE]
        if state.stage is not _Stage.PROBE:
            asks = self._move(view, state)
        lacking = lacking_hashes(asks, view.hashes, named)
        if lacking:
            self._look(log, tuple(sorted({*lacking, *named})))
            return
        waits = False
        for ask in asks:
            waits = self._propose(view, state, ask) or waits
        if asks or waits or state.known.asks:
            state.runs_from = 1
        elif not view.runs_complete and view.runs:
            state.runs_from = view.runs[-1][1] + 1
            self._enqueue(log)
        elif state.again:
            state.runs_from = 1
            self._enqueue(log)
        elif not coming(each for each in self._actions.requests_of(log) if not each.ours):
            # Else what comes unasked is over first: what is missing then is asked for.
            self._mend(view, state)

    def _propose(self, view: LogView, state: _LogSync, ask: Ask) -> bool:
        """Make a proposal; True if it has to wait for something."""
        log, known = view.log, state.known
        requests = self._actions.requests_of(log)
        proposal = proposal_of(self._actions.next_number(), log, ask, view.hashes)
        if meet(pool_of(ask, view.hashes), known.peer(requests).coming):
            # A part of the pool is under way, and this log is looked at again once it has come.
            if not known.asks:
                self._retries.add(log, self._actions.now + self._config.sync_settle_s)
        elif self._actions.request_credit == 0:
            self._enqueue(log)
        elif not self._actions.may_propose(log, proposal.start, proposal.end):
            # An unanswered proposal of the other side is in the way; our answer comes first.
            self._retries.add(log, self._actions.now)
        else:
            if ask.kind is AskKind.OFFER:
                known.told = union(known.told, ((ask.start, ask.last),))
            if ask.offset is not None:
                known.inside |= {ask.start}
            request = self._actions.propose(proposal, view)
            known.asks[request] = ask
            self._asked_at[request] = self._actions.now
            return False
        return True

    def _move(self, view: LogView, state: _LogSync) -> list[Ask]:
        """What to bring now; and once all that has come, what to offer."""
        log, known, theirs = view.log, state.known, state.theirs
        requests = self._actions.requests_of(log)
        asks = []
        peer = known.peer(requests)
        if view.height in known.inside:
            view = replace(view, tail_partial_bytes=None)
        for ask in plan(self.wants_of(log), view, peer, runs_from=state.runs_from):
            if ask.kind in (AskKind.PROBE, AskKind.WATCH):
                continue
            if ask.start <= theirs < ask.last:
                asks.append(replace(ask, end=theirs, upper_info=theirs))
            elif ask.last <= theirs:
                asks.append(ask)
        if asks or any(ask.kind is not AskKind.OFFER for ask in known.asks.values()):
            return asks
        lacked = union(((theirs + 1, OPEN_END),), known.unserved)
        return offers(view, lacked, known.reachable(requests))

    def _mend(self, view: LogView, state: _LogSync) -> None:
        """Nothing is left to move; single payloads may be missing here."""
        log = view.log
        state.stage = _Stage.MEND
        state.runs_from = 1
        # What is being mended is over first: its own requests are what could not be kept.
        if state.mend_anew and not self._mender.is_mending(log):
            state.mend_anew = False
            self._mender.ask_again(log)
        wants = self.wants_of(log)
        common = meet(mended(wants, max(view.newest, state.theirs)), ((1, state.theirs),))
        self._mender.begin(view, common, wants.payload_limits, tail=True)
        if wants.fetches:
            self._mender.fetch(log, wants.fetches)
        if self._mender.is_mending(log):
            self._mending[log] = None
        else:
            self._done(log)

    def _done(self, log: LogKey) -> None:
        state = self._logs[log]
        if state.stage is _Stage.MEND:
            state.stage = _Stage.DONE
            self._open -= 1
        self._active()

    # What became of requests

    def request_proposed(self, request: Request) -> None:
        if self._interests.concerns(request.log):
            self._answers_due.add(request)
        super().request_proposed(request)

    def _answer(self, request: Request, view: LogView, before: list[Request]) -> None:
        log = request.log
        self._answers_due.discard(request)
        self._active(log)
        if request.answered or request.cancel_received is not None:
            return
        if self.wants(log) and self.takes_in(log):
            self._include(log)
        proposal = request.proposal
        is_open = proposal.end is None and proposal.offset is None and not proposal.sparse
        state = self._logs.get(log)
        asks_for_told = False
        if state is not None and is_offer(proposal):
            if state.known.heard(proposal):
                # It may hold more than it offers: the pools of that.
                self._reopen(log)
        elif state is not None and range_with(state.known.told, proposal.start) is not None:
            # It needs it otherwise than it was offered, or could not keep it.
            asks_for_told = True
            self._expect_another_try()
        contradiction = obstacle(proposal, view)
        if contradiction is not None and contradiction.reason is CancelReason.HASH_MISMATCH:
            # It has the proof now that the log is forked, and may tell us.
            self._expect_another_try()
        if state is not None and is_open and not asks_for_told and contradiction is None:
            # We probe and move this log ourselves, both ways.
            cancel = Cancel(request.number, CancelReason.NOT_WANTED)
            self._actions.cancel(request, cancel, paced=False)
            state.asked_in_vain(((proposal.start, OPEN_END),))
            self._reopen(log)
            return
        super()._answer(request, view, before)

    answers_bounded = True

    def answered(self, request: Request, view: LogView, answer: Answer) -> None:
        if request.active:
            self._serving.add(request)
        if meet(answer.unserved, view.runs):
            # Parts of it are held, also of a log that nobody here wants, or does not yet.
            self._include(request.log)
        state = self._logs.get(request.log)
        if answer.unserved and state is not None:
            state.asked_in_vain(answer.unserved)
        if answer.take_over or (answer.unserved and state is not None):
            self._reopen(request.log)

    def _note_answer(self, request: Request) -> None:
        asked_at = self._asked_at.pop(request, None)
        if asked_at is not None:
            self._slowest_answer_s = max(self._slowest_answer_s, self._actions.now - asked_at)

    def request_confirmed(self, request: Request) -> None:
        self._active()
        self._note_answer(request)
        state = self._logs.get(request.log)
        ask = None if state is None else state.known.asks.get(request)
        if state is not None and ask is not None and ask.kind is AskKind.PROBE and request.base:
            state.known.newest = max(state.theirs, request.base.end or 0)

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        self._active(request.log)
        self._note_answer(request)
        if cancel.entries:
            self._actions.check_evidence(
                request.log, cancel.entries, wanted=self.wants(request.log)
            )
        if cancel.reason is CancelReason.NO_RESOURCES and request.confirmed:
            self._expect_another_try()
        state = self._logs.get(request.log)
        ask = None if state is None else state.known.asks.get(request)
        if state is None or ask is None or request.confirmed:
            return
        retried = cancel.reason is CancelReason.NO_RESOURCES and ask.kind is not AskKind.PROBE
        if not retried or not self._try_again(request.log, state):
            state.known.refuse(request)

    def _expect_another_try(self) -> None:
        """The other side could not keep what we sent. It backs off as we do, and asks again."""
        if self._failures < _FAILURES_MAX:
            delay = self._config.retry_first_s * 2.0**self._failures
            self._failures += 1
            self._not_before = self._actions.now + delay + self._config.sync_settle_s

    def _try_again(self, log: LogKey, state: _LogSync) -> bool:
        """Back off and try; False if that was done often enough."""
        if state.retries >= _RETRIES_MAX:
            return False
        state.retries += 1
        self._retries.add(
            log, self._actions.now + self._config.retry_first_s * 2.0 ** (state.retries - 1)
        )
        return True

    def request_released(self, request: Request) -> None:
        self._active(request.log)
        self._serving.discard(request)
        self._asked_at.pop(request, None)
        self._settling.add(request)
        self._mender.note_release(request.log)
        if self._mender.owns(request):
            self._mender.forget(request)
            return
        log = request.log
        state = self._logs.get(log)
        if state is None:
            return
        state.known.stale = True
        ask = state.known.asks.pop(request, None)
        served = not request.ours and request.their_interest.eagerness is not Eagerness.NOTIFY
        if completed(request) and (served or ask is not None):
            state.known.told = union(state.known.told, carried(request))
        if ask is None:
            if request.cancel_sent is CancelReason.NO_RESOURCES and request.confirmed:
                self._bring_again(log, state)
            elif log not in self._retries:
                self._enqueue(log)
            return
        exhausted = CancelReason.NO_RESOURCES in (request.cancel_sent, request.cancel_received)
        if state.stage is _Stage.PROBE:
            state.stage = _Stage.MOVE
        elif exhausted and request.confirmed and not self._try_again(log, state):
            self._give_up_asking(state, request, ask)
        if log not in self._retries:
            self._enqueue(log)

    def _bring_again(self, log: LogKey, state: _LogSync) -> None:
        """What the other side came to bring could not be kept."""
        if not state.tried_soon:
            # It may not know, and would be gone before the first delay of all others is over.
            state.tried_soon = True
            self._retries.add(log, self._actions.now + self._config.keep_again_s)
            tries = True
        elif tries := self._own_failures < _FAILURES_MAX and self._try_again(log, state):
            self._own_failures += 1
        if tries:
            state.mend_anew = True
            self._open += state.stage is _Stage.DONE
            if state.stage in (_Stage.DONE, _Stage.MEND):
                state.stage = _Stage.MOVE

    def _give_up_asking(self, state: _LogSync, request: Request, ask: Ask) -> None:
        """It was begun often enough: what it asked for is not asked for any more."""
        state.known.asks[request] = ask
        state.known.refuse(request)
        del state.known.asks[request]

    def request_lost(self, request: Request) -> None:
        self._asked_at.pop(request, None)
        if self._mender.owns(request):
            self._mender.forget(request, lost=True)
            return
        state = self._logs[request.log]
        ask = state.known.asks.pop(request, None)
        if ask is not None and ask.kind is AskKind.OFFER:
            state.known.told = minus(state.known.told, ((ask.start, ask.last),))
        self._retries.add(request.log, self._actions.now)

    def given_up(self, request: Request) -> None:
        state = self._logs.get(request.log)
        was_over = request.cancel_sent is not CancelReason.NO_RESOURCES
        handled = self._mender.given_up(request)
        if state is not None and handled:
            # The other side's last word on it may have come before what was wrong with it.
            self._active()
            self._mending[request.log] = None
            if state.stage is _Stage.DONE:
                state.stage = _Stage.MEND
                self._open += 1
        elif state is not None and was_over:
            self._bring_again(request.log, state)

    def payload_skipped(self, request: Request) -> None:
        pass

    def arrival_changed(self, log: LogKey) -> None:
        pass

    def ran_dry(self, request: Request) -> None:
        """What is confirmed here is held."""

    def peer_holds(self, request: Request, seq: int) -> None:
        """The newest entry is asked for once."""

    def contradicted(self, request: Request, seq: int) -> None:  # noqa: ARG002 - of the interface
        # A one-time sync leaves forks to nodes that stay; what is proved is kept all the same.
        state = self._logs.get(request.log)
        if state is not None:
            state.known.refuse(request)

    def source_changed(self, event: SourceChanged) -> bool:  # noqa: ARG002 - of the interface
        """A one-time sync brings what the other side has, whoever else brings it too."""
        return False

    def log_changed(self, event: LogChanged) -> None:
        """What is appended during a one-time sync is the next one's."""
