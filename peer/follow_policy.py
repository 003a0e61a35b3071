"""The policy of a node that keeps logs in step: one open request per log (point2point.md 10).

Every log that was authored here or is followed is proposed from where it stands, unless the other
side has proposed it already: the proactive side walks the logs upwards, the reactive one downwards,
so that they meet in the middle.

Where the author has forked the log, the earliest fork is looked for: entries whose links contradict
what is held are no proof, but the other side's version of what they link to is one. So ranges that
go back further and further are asked for, metadata only, until one agrees with ours.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial

from wire import Cancel, CancelReason, Eagerness, LogKey, Propose, decode_entry, lipmaa

from .answering import link_target
from .config import SessionConfig
from .events import InterestsChanged, LogChanged, LogView, SourceChanged
from .mending import Mender
from .policy import Actions, Policy, full_proposal, range_proposal
from .request import NEVER, Request
from .retries import Retries
from .sourcing import fetches


@dataclass(slots=True)
class _LogState:
    """What this session knows about its own proposals for a log."""

    looking: bool = False
    refused: bool = False
    """The other side does not want it, or will ask for it itself."""
    end_offered: bool = False
    retries: int = 0
    newest: int = 0
    """The newest entry heard of since the last look-up was asked for."""
    ask: tuple[int, int] | None = None
    """The entries to ask for next, metadata only, instead of the usual range."""
    asks: int = 0
    """How often that was done."""
    told_fork: int = NEVER
    """The earliest fork that this side or the other has told the other of."""
    listened: bool = False
    """The other side told to the end what it holds, while another session fetched the log."""
    last_view: LogView | None = None
    """What our proposal was made from, until it is answered."""


_ASKS_MAX = 48
"""More ranges than it takes to get from any seqnum back to 1, see `_ask_before`."""


class FollowPolicy(Policy):
    """Keeps every wanted log open in one request."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        super().__init__(actions, config, proactive=proactive)
        self._logs: dict[LogKey, _LogState] = {}
        self._queue: OrderedDict[LogKey, None] = OrderedDict()
        self._looking = 0
        self._retries = Retries()
        self._mender = Mender(actions)

    def interests_changed(self, event: InterestsChanged) -> None:
        super().interests_changed(event)
        offers = event.offers if self._proactive else tuple(reversed(event.offers))
        for log in offers:
            self._enqueue(log)

    def _enqueue(self, log: LogKey, *, first: bool = False) -> None:
        state = self._logs.get(log)
        if state is None:
            state = self._logs[log] = _LogState()
        if state.looking:
            return
        self._queue[log] = None
        if first:
            # It may have waited already, behind thousands that the other side does not want.
            self._queue.move_to_end(log, last=False)

    def _covered(self, log: LogKey) -> bool:
        """Whether some request will bring, or asks for, everything new of this log."""
        return any(map(_covers, self._actions.requests_of(log)))

    def advance(self) -> None:
        for log in self._retries.due(self._actions.now):
            self._enqueue(log)
        while self._queue and self._looking < self._actions.request_credit:
            log, _ = self._queue.popitem(last=False)
            state = self._logs[log]
            if state.ask is None and (state.refused or log in self._retries or self._covered(log)):
                continue
            state.looking = True
            state.newest = 0
            self._looking += 1
            named = () if state.ask is None or state.ask[0] == 1 else (lipmaa(state.ask[0]),)
            self._actions.look_up(log, named, None, partial(self._propose, state.ask))
        self._mender.advance(others_wait=bool(self._queue or self._looking))

    def next_deadline(self) -> float | None:
        return self._retries.next_at()

    def _propose(self, looked_for: tuple[int, int] | None, view: LogView) -> None:
        log = view.log
        state = self._logs[log]
        state.looking = False
        self._looking -= 1
        if state.ask != looked_for:
            # The view lacks the hash that this needs.
            self._enqueue(log, first=True)
            return
        if state.ask is None and (state.refused or self._covered(log)):
            return
        proposal = self._proposal(view, state)
        if proposal is None:
            return
        if self._actions.request_credit == 0:
            self._enqueue(log, first=True)
        elif self._actions.may_propose(log, proposal.start, proposal.end):
            if proposal.eagerness is Eagerness.ALL:
                if self._actions.claim(log):
                    state.listened = False
                elif state.listened:
                    return
                else:
                    proposal = replace(proposal, eagerness=Eagerness.NOTIFY)
            state.ask = None
            state.last_view = view
            request = self._actions.propose(proposal, view)
            request.outgoing.known = max(request.outgoing.known, state.newest)
            if proposal.start == view.fork and view.fork_proof is not None:
                # Only so can a proof be passed on to a side that does not ask.
                state.told_fork = view.fork
                proof = Cancel(request.number, CancelReason.FORKED, entries=view.fork_proof)
                self._actions.cancel(request, proof)

    def _proposal(self, view: LogView, state: _LogState) -> Propose | None:
        number = self._actions.next_number()
        if state.ask is not None:
            start, end = state.ask
            if start == 1 or lipmaa(start) in view.hashes:
                return range_proposal(number, view, start, end=end, eagerness=Eagerness.LIMITED)
            state.ask = None
            return None
        whole = view.tail_partial_bytes is None
        if view.fork is not None and view.height + 1 >= view.fork and whole:
            if view.fork >= state.told_fork or lipmaa(view.fork) not in (0, *view.hashes):
                return None
            return range_proposal(
                number, view, view.fork, end=view.fork, eagerness=Eagerness.NOTIFY
            )
        if view.end is not None and view.height >= view.end and whole:
            if state.end_offered:
                return None
            state.end_offered = True
            return range_proposal(number, view, view.end, end=view.end, eagerness=Eagerness.NOTIFY)
        if not self.wants(view.log):
            return None
        stop = view.end if view.fork is None else view.fork - 1
        return full_proposal(number, view, end=stop)

    # What became of requests

    def took_over(self, log: LogKey) -> None:
        self._enqueue(log, first=True)

    def request_proposed(self, request: Request) -> None:
        # A later proposal for the log: what was refused before may be proposed again (section 6).
        state = self._logs.get(request.log)
        if state is not None:
            state.refused = False
        super().request_proposed(request)

    def confirmed(self, request: Request, view: LogView) -> None:
        if self.wants(request.log) and fetches(request):
            self._mender.begin(view, view.height, tail=request.proposal.start > view.height)
        state = self._logs.get(request.log)
        if state is not None and state.ask is not None:
            self._enqueue(request.log)

    def request_confirmed(self, request: Request) -> None:
        state = self._logs.get(request.log)
        if state is None or self._mender.owns(request):
            return
        state.retries = 0
        view, state.last_view = state.last_view, None
        if not fetches(request):
            return
        if not self._actions.claim(request.log):
            # It was taken from us before there was an answer.
            self._actions.stop_fetching(request)
        elif view is not None and self.wants(request.log):
            self._mender.begin(view, view.height)

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        log, ours = request.log, request.ours
        if cancel.entries:
            self._actions.check_evidence(log, cancel.entries)
        state = self._logs.get(log)
        if state is not None and cancel.reason is CancelReason.FORKED:
            state.told_fork = min(state.told_fork, decode_entry(cancel.entries[0]).seq)
        if state is None or self._mender.owns(request):
            return
        match cancel.reason:
            case CancelReason.NOT_WANTED | CancelReason.PAYLOAD_MANDATORY:
                state.refused = state.refused or ours
            case CancelReason.NO_RESOURCES:
                if ours or request.confirmed:
                    self._retry_later(log, state)
            case CancelReason.HASH_MISMATCH:
                state.refused = True
                target = link_target(request.proposal)
                if ours and target is not None:
                    self._ask_before(log, state, target)
            case CancelReason.FORKED:
                state.refused = state.refused or ours
                self._ask_before(log, state, decode_entry(cancel.entries[0]).seq)
            case CancelReason.LOG_ENDED:
                if ours and cancel.seq is not None and 0 < cancel.seq < request.proposal.start:
                    self._ask(log, state, (cancel.seq, cancel.seq))
            case CancelReason.COMPLETE | CancelReason.YOU_CANCELLED:
                pass

    def request_released(self, request: Request) -> None:
        log = request.log
        if self._mender.owns(request):
            self._mender.forget(request)
            return
        state = self._logs.get(log)
        if state is not None and CancelReason.COMPLETE in (
            request.cancel_sent,
            request.cancel_received,
        ):
            # Both sides have its last entry, if it has one: that needs no offer any more.
            state.end_offered = True
            state.listened = request.our_interest.eagerness is Eagerness.NOTIFY
        if self.wants(log) and (state is not None or request.confirmed):
            self._enqueue(log)

    def request_lost(self, request: Request) -> None:
        # What the winner leaves uncovered is proposed when that is released.
        self._mender.forget(request)
        state = self._logs.get(request.log)
        if state is not None:
            state.end_offered = False

    def given_up(self, request: Request) -> None:
        state = self._logs.get(request.log)
        if not self._mender.given_up(request) and state is not None:
            self._retry_later(request.log, state)

    def contradicted(self, request: Request, seq: int) -> None:
        # Behind the start of what was asked for, the entry before agreed: nothing earlier is wrong.
        state = self._logs.get(request.log)
        if state is not None and seq <= request.proposal.start:
            self._ask_before(request.log, state, seq)

    def log_changed(self, event: LogChanged) -> None:
        log = event.log
        state = self._logs.get(log)
        if state is not None:
            state.newest = max(state.newest, event.newest)
            if event.fork is not None and event.fork < state.told_fork:
                state.refused = False
        if self.wants(log) and not self._actions.requests_of(log):
            self._enqueue(log)

    def source_changed(self, event: SourceChanged) -> bool:
        log = event.log
        requests = list(self._actions.requests_of(log))
        if not event.fetch:
            for request in filter(self._brings, requests):
                self._actions.stop_fetching(request)
            return True
        state = self._logs.get(log)
        if not self.wants(log) or (state is not None and state.refused):
            return False
        for request in filter(_covers, requests):
            if request.our_interest.eagerness is Eagerness.NOTIFY:
                # Nobody raises the eagerness of a request again (section 5).
                self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
        self._enqueue(log, first=True)
        return True

    def _brings(self, request: Request) -> bool:
        """Whether a request is how we fetch a log, and not for something that we lack besides."""
        bounded = not request.ours and request.proposal.end is not None
        everything = request.our_interest.eagerness is Eagerness.ALL
        return fetches(request) and everything and not bounded and not self._mender.owns(request)

    def _ask_before(self, log: LogKey, state: _LogState, seq: int) -> None:
        """Ask for the other side's version of what is before `seq`, further back each time."""
        if seq > 1:
            self._ask(log, state, (max(1, seq - 4**state.asks), seq - 1))

    def _ask(self, log: LogKey, state: _LogState, entries: tuple[int, int]) -> None:
        if state.asks < _ASKS_MAX:
            state.asks += 1
            state.ask = entries
            self._enqueue(log, first=True)

    def _retry_later(self, log: LogKey, state: _LogState) -> None:
        delay = min(
            self._config.retry_first_s * 2.0 ** min(state.retries, 16), self._config.retry_max_s
        )
        state.retries += 1
        self._retries.add(log, self._actions.now + delay)


def _covers(request: Request) -> bool:
    """Whether a request will bring, or tell of, everything new of its log."""
    return (
        request.cancel_sent is None
        and request.cancel_received is None
        and not request.proposal.sparse
        and not request.proposal.payloads_only
        and request.lowest_end() is None
    )
