"""The policy of a one-time sync: bring both sides to what they have now (point2point.md 10).

Per log: a sparse, open, notify-only proposal from entry 1 finds the other side's newest entry (its
confirmation carries the end). Then one finite range brings what is missing here, or one finite
range takes there what is missing there. The sync is done when all of these have ended, nothing of
the other side is unanswered, and the other side has answered a ping without proposing more.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

from wire import Cancel, CancelReason, Eagerness, LogKey, Propose, lipmaa

from .config import SessionConfig
from .events import InterestsChanged, LogChanged, LogView, SourceChanged
from .mending import Mender
from .policy import Actions, Policy, full_proposal, range_proposal
from .request import Request
from .retries import Retries

_RETRIES_MAX = 8
"""How often a request that found no resources is tried again."""


class _Stage(Enum):
    PROBE = auto()
    """Find out what the other side has."""
    MOVE = auto()
    """Bring or take what is missing."""
    MEND = auto()
    """Ask for single payloads that are missing here below what both have."""
    DONE = auto()


@dataclass(slots=True)
class _LogState:
    stage: _Stage = _Stage.PROBE
    busy: bool = False
    """A look-up or a proposal of ours is under way."""
    theirs: int = 0
    retries: int = 0


class SyncPolicy(Policy):
    """Probes every log once, moves what is missing, and says when it is done."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        super().__init__(actions, config, proactive=proactive)
        self._logs: dict[LogKey, _LogState] = {}
        self._queue: deque[LogKey] = deque()
        self._open = 0
        self._looking = 0
        self._retries = Retries()
        self._mender = Mender(actions)
        self._serving: set[Request] = set()
        self._mending: dict[LogKey, None] = {}
        self._started = False
        self._finished = False
        self._last_activity = 0.0
        self._pong_after_activity = False

    def interests_changed(self, event: InterestsChanged) -> None:
        super().interests_changed(event)
        self._started = True
        self._active()
        for log in event.offers:
            self._include(log)

    def _include(self, log: LogKey) -> None:
        if log not in self._logs:
            self._logs[log] = _LogState()
            self._open += 1
            self._queue.append(log)

    def _active(self) -> None:
        self._last_activity = self._actions.now
        self._pong_after_activity = False

    def advance(self) -> None:
        now = self._actions.now
        self._queue.extend(self._retries.due(now))
        while self._queue and self._looking < self._actions.request_credit:
            log = self._queue.popleft()
            state = self._logs[log]
            if state.busy or state.stage is _Stage.DONE:
                continue
            state.busy = True
            self._looking += 1
            named = (lipmaa(state.theirs + 1),) if state.theirs > 0 else ()
            self._actions.look_up(log, named, None, self._propose)
        if self._mender.advance(others_wait=bool(self._queue or self._looking)):
            self._active()
            mended = [log for log in self._mending if not self._mender.is_mending(log)]
            for log in mended:
                del self._mending[log]
                self._done(log)
        settled = now >= self._last_activity + self._config.sync_settle_s
        if self._quiet and self._pong_after_activity and settled and not self._finished:
            self._finished = True
            self._actions.finished_sync(len(self._logs))

    @property
    def _quiet(self) -> bool:
        return self._started and self._open == 0 and not self._serving

    @property
    def wants_pong(self) -> bool:
        """Whether a ping's answer is the next thing to wait for."""
        return self._quiet and not self._pong_after_activity and not self._finished

    def pong_arrived(self) -> None:
        """The other side answered a ping that was sent while `wants_pong`."""
        if self._quiet:
            self._pong_after_activity = True

    def next_deadline(self) -> float | None:
        times = [self._retries.next_at()]
        if self._quiet and self._pong_after_activity and not self._finished:
            times.append(self._last_activity + self._config.sync_settle_s)
        return min((time for time in times if time is not None), default=None)

    def _propose(self, view: LogView) -> None:
        log = view.log
        state = self._logs[log]
        state.busy = False
        self._looking -= 1
        self._active()
        proposal = None
        if state.stage is _Stage.PROBE:
            proposal = self._probe(view)
        elif state.stage is _Stage.MOVE:
            proposal = self._move(view, state)
        if proposal is None:
            self._mend(view, state)
        elif self._actions.request_credit == 0:
            self._queue.appendleft(log)
        elif self._actions.may_propose(log, proposal.start, proposal.end):
            state.busy = True
            self._actions.propose(proposal, view)
        else:
            # An unanswered proposal of the other side is in the way; our answer comes first.
            self._retry(log, 0.0)

    def _probe(self, view: LogView) -> Propose:
        return range_proposal(
            self._actions.next_number(),
            view,
            1,
            end=None,
            eagerness=Eagerness.NOTIFY,
            sparse=True,
        )

    def _move(self, view: LogView, state: _LogState) -> Propose | None:
        number, theirs = self._actions.next_number(), state.theirs
        wanted = self.wants(view.log)
        stop = None if view.fork is None else view.fork - 1
        payload_missing = view.tail_partial_bytes is not None and theirs >= view.height
        if wanted and (theirs > view.height or payload_missing):
            end = theirs if stop is None else min(theirs, stop)
            if end > view.height or payload_missing:
                return full_proposal(number, view, end=end)
        if theirs < view.height and theirs + 1 <= view.height:
            return range_proposal(
                number, view, theirs + 1, end=view.height, eagerness=Eagerness.NOTIFY
            )
        return None

    def _mend(self, view: LogView, state: _LogState) -> None:
        """Nothing is left to move; single payloads may be missing here."""
        state.stage = _Stage.MEND
        common = min(view.height, state.theirs)
        if self.wants(view.log) and self._mender.begin(view, common):
            self._mending[view.log] = None
        else:
            self._done(view.log)

    def _done(self, log: LogKey) -> None:
        state = self._logs[log]
        if state.stage is not _Stage.DONE:
            state.stage = _Stage.DONE
            self._open -= 1
        self._active()

    def _next_stage(self, log: LogKey, theirs: int) -> None:
        state = self._logs[log]
        state.stage, state.theirs = _Stage.MOVE, theirs
        self._queue.append(log)

    def _retry(self, log: LogKey, delay: float) -> None:
        self._retries.add(log, self._actions.now + delay)

    # What became of requests

    def _answer(self, request: Request, view: LogView) -> None:
        self._active()
        if request.answered or request.cancel_received is not None:
            return
        if self.wants(request.log) and self.takes_in(request.log):
            self._include(request.log)
        proposal = request.proposal
        is_open = proposal.end is None and proposal.offset is None and not proposal.sparse
        if request.log in self._logs and is_open:
            # We probe and move this log ourselves, both ways.
            cancel = Cancel(request.number, CancelReason.NOT_WANTED)
            self._actions.cancel(request, cancel, paced=False)
            return
        super()._answer(request, view)

    answers_bounded = True

    def confirmed(self, request: Request, view: LogView) -> None:  # noqa: ARG002 - of the interface
        self._serving.add(request)

    def took_over(self, log: LogKey) -> None:
        self._include(log)

    def request_confirmed(self, request: Request) -> None:  # noqa: ARG002 - of the interface
        self._active()

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        self._active()
        log = request.log
        state = self._logs.get(log)
        if cancel.entries:
            self._actions.check_evidence(log, cancel.entries)
        if not request.ours or state is None or request.confirmed or self._mender.owns(request):
            return
        state.busy = False
        if state.stage is _Stage.PROBE and cancel.reason is CancelReason.NO_RESOURCES:
            self._next_stage(log, 0)
        elif cancel.reason is not CancelReason.NO_RESOURCES or not self._try_again(log, state):
            self._done(log)

    def _try_again(self, log: LogKey, state: _LogState) -> bool:
        """Back off and try; False if that was done often enough."""
        if state.retries >= _RETRIES_MAX:
            return False
        state.retries += 1
        state.busy = False
        self._retry(log, self._config.retry_first_s * 2.0 ** (state.retries - 1))
        return True

    def request_released(self, request: Request) -> None:
        self._active()
        self._serving.discard(request)
        if self._mender.owns(request):
            self._mender.forget(request)
            return
        if not request.ours or not request.confirmed or request.base is None:
            return
        log = request.log
        state = self._logs[log]
        state.busy = False
        if state.stage is _Stage.PROBE:
            self._next_stage(log, request.base.end or 0)
        elif CancelReason.NO_RESOURCES not in (
            request.cancel_sent,
            request.cancel_received,
        ) or not self._try_again(log, state):
            self._queue.append(log)
            state.stage = _Stage.MEND

    def request_lost(self, request: Request) -> None:
        if self._mender.owns(request):
            self._mender.forget(request)
            return
        self._logs[request.log].busy = False
        self._retry(request.log, 0.0)

    def given_up(self, request: Request) -> None:
        self._mender.given_up(request)

    def contradicted(self, request: Request, seq: int) -> None:
        """A one-time sync leaves forks to nodes that stay; what is proved is kept all the same."""

    def source_changed(self, event: SourceChanged) -> bool:  # noqa: ARG002 - of the interface
        """A one-time sync brings what the other side has, whoever else brings it too."""
        return False

    def log_changed(self, event: LogChanged) -> None:
        """What is appended during a one-time sync is the next one's."""
