"""The policy of a node that keeps logs in step: one open request per log (point2point.md 10).

Every log that was authored here or is followed is proposed from where it stands, unless the other
side has proposed it already: the proactive side walks the logs upwards, the reactive one downwards,
so that they meet in the middle.
"""

from collections import deque
from dataclasses import dataclass

from wire import Cancel, CancelReason, Eagerness, LogKey, Propose, lipmaa

from .config import SessionConfig
from .events import InterestsChanged, LogChanged, LogView
from .policy import Actions, Policy, full_proposal, range_proposal
from .request import Request


@dataclass(slots=True)
class _LogState:
    """What this session knows about its own proposals for a log."""

    queued: bool = False
    looking: bool = False
    refused: bool = False
    """The other side does not want it, or will ask for it itself."""
    end_offered: bool = False
    retries: int = 0
    retry_at: float | None = None
    only: int | None = None
    """The one entry to ask for next, instead of the usual range."""


class FollowPolicy(Policy):
    """Keeps every wanted log open in one request."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        super().__init__(actions, config, proactive=proactive)
        self._logs: dict[LogKey, _LogState] = {}
        self._queue: deque[LogKey] = deque()
        self._looking = 0
        self._retrying: set[LogKey] = set()

    def interests_changed(self, event: InterestsChanged) -> None:
        super().interests_changed(event)
        offers = event.offers if self._proactive else tuple(reversed(event.offers))
        for log in offers:
            if self._state(log).queued or self._covered(log):
                continue
            self._enqueue(log)

    def _state(self, log: LogKey) -> _LogState:
        state = self._logs.get(log)
        if state is None:
            state = self._logs[log] = _LogState()
        return state

    def _enqueue(self, log: LogKey, *, first: bool = False) -> None:
        state = self._state(log)
        if state.queued or state.looking:
            return
        state.queued = True
        if first:
            self._queue.appendleft(log)
        else:
            self._queue.append(log)

    def _covered(self, log: LogKey) -> bool:
        """Whether some request will bring, or asks for, everything new of this log."""
        return any(
            request.cancel_sent is None
            and request.cancel_received is None
            and not request.proposal.sparse
            and request.lowest_end() is None
            for request in self._actions.requests_of(log)
        )

    def advance(self) -> None:
        now = self._actions.now
        for log in [log for log in self._retrying if (self._state(log).retry_at or 0) <= now]:
            self._retrying.discard(log)
            self._state(log).retry_at = None
            self._enqueue(log)
        while self._queue and self._looking < self._actions.request_credit:
            log = self._queue.popleft()
            state = self._state(log)
            state.queued = False
            if state.refused or state.retry_at is not None:
                continue
            if state.only is None and self._covered(log):
                continue
            state.looking = True
            self._looking += 1
            only = state.only
            named = () if only is None or only == 1 else (lipmaa(only),)
            self._actions.look_up(log, named, None, self._propose)

    def next_deadline(self) -> float | None:
        times = [self._logs[log].retry_at for log in self._retrying]
        return min((time for time in times if time is not None), default=None)

    def _propose(self, view: LogView) -> None:
        log = view.log
        state = self._state(log)
        state.looking = False
        self._looking -= 1
        if state.refused or (state.only is None and self._covered(log)):
            return
        proposal = self._proposal(view, state)
        if proposal is None:
            return
        if self._actions.request_credit == 0:
            self._enqueue(log, first=True)
        elif self._actions.may_propose(log, proposal.start, proposal.end):
            state.only = None
            self._actions.propose(proposal, view.newest)

    def _proposal(self, view: LogView, state: _LogState) -> Propose | None:
        number = self._actions.next_number()
        if state.only is not None:
            if view.height + 1 < state.only:
                state.only = None
                return None
            return range_proposal(
                number, view, state.only, end=state.only, eagerness=Eagerness.LIMITED
            )
        if view.fork is not None and view.height + 1 >= view.fork:
            return None
        if view.end is not None and view.height >= view.end and view.tail_partial_bytes is None:
            if state.end_offered:
                return None
            state.end_offered = True
            return range_proposal(number, view, view.end, end=view.end, eagerness=Eagerness.NOTIFY)
        if not self.wants(view.log):
            return None
        end = view.end if view.fork is None else view.fork - 1
        return full_proposal(number, view, end=end)

    # What became of requests

    def took_over(self, log: LogKey) -> None:
        self._state(log).refused = False
        self._enqueue(log, first=True)

    def request_proposed(self, request: Request) -> None:
        # A later proposal for the log: what was refused before may be proposed again (section 6).
        state = self._logs.get(request.log)
        if state is not None:
            state.refused = False
        super().request_proposed(request)

    def request_confirmed(self, request: Request) -> None:
        state = self._state(request.log)
        state.retries = 0

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        state = self._state(request.log)
        match cancel.reason:
            case CancelReason.NOT_WANTED | CancelReason.PAYLOAD_MANDATORY:
                state.refused = state.refused or request.ours
            case CancelReason.NO_RESOURCES:
                if request.ours or request.confirmed:
                    self._retry_later(request.log)
            case CancelReason.HASH_MISMATCH | CancelReason.FORKED:
                state.refused = True
                self._actions.check_evidence(request.log, cancel.entries)
            case CancelReason.LOG_ENDED:
                if cancel.seq is not None and cancel.seq > 0:
                    state.only = cancel.seq
                    self._enqueue(request.log, first=True)
            case CancelReason.COMPLETE | CancelReason.YOU_CANCELLED:
                pass

    def request_released(self, request: Request) -> None:
        if CancelReason.COMPLETE in (request.cancel_sent, request.cancel_received):
            # Both sides have its last entry, if it has one: that needs no offer any more.
            self._state(request.log).end_offered = True
        if request.confirmed and self.wants(request.log):
            self._enqueue(request.log)

    def request_lost(self, request: Request) -> None:
        # The winner starts no later than ours and is open like ours, or is finite and will be
        # released; in both cases what it leaves uncovered is proposed then.
        self._state(request.log).end_offered = False

    def given_up(self, request: Request) -> None:
        self._retry_later(request.log)

    def contradicted(self, log: LogKey, seq: int) -> None:
        state = self._state(log)
        state.refused = False
        state.only = seq - 1
        self._enqueue(log, first=True)

    def log_changed(self, event: LogChanged) -> None:
        if self.wants(event.log) and not self._actions.requests_of(event.log):
            self._enqueue(event.log)

    def _retry_later(self, log: LogKey) -> None:
        state = self._state(log)
        delay = min(
            self._config.retry_first_s * 2.0 ** min(state.retries, 16), self._config.retry_max_s
        )
        state.retries += 1
        state.retry_at = self._actions.now + delay
        self._retrying.add(log)
