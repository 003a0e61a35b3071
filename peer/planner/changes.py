"""Requests are fitted to what is wanted: narrowed, stopped or ended."""

from peer.protocol.request import Request
from wire import Cancel, CancelReason, Eagerness, LogKey

from .attempts import Kind, Outcome
from .changing import change, is_inside_unwanted
from .context import Context
from .peer_log import PeerLog
from .planning import AskKind
from .turns import Turns


class Changes:
    """Carries out what follows for open requests from what is wanted now."""

    def __init__(self, context: Context, turns: Turns) -> None:
        self._context = context
        self._actions = context.actions
        self._attempts = context.attempts
        self._logs = context.logs
        self._done = context.done
        self._turns = turns

    def wants_changed(self, log: LogKey, state: PeerLog) -> None:
        """Narrow or end the requests of a log, and plan it anew."""
        before, wants = state.wants, self._context.wants_of(log)
        state.wants = wants
        if wants != before:
            self._attempts.leaves_nothing(log, Kind.RANGE)
            state.asked = ()
            self._attempts.lift(log, Kind.PAYLOAD, Outcome.SKIPPED)
        newest = max(state.height, state.here, self._context.newest_of(log))
        for request in list(self._actions.requests_of(log)):
            unwanted = request.ours and not wants.is_wanted
            if unwanted or is_inside_unwanted(request, wants, newest):
                self.cancel(request)
            else:
                self.fit(request)
        self._turns.mark(log)

    def fit(self, request: Request) -> None:
        """Fit a request to what is wanted now."""
        log, listens = request.log, request.our_interest.eagerness is Eagerness.NOTIFY
        state = self._logs.get(log)
        ask = None if state is None else state.asks.get(request)
        of_payloads = ask is not None and ask.kind is AskKind.PAYLOADS
        forks = None if state is None else state.forks
        searches = forks is not None and forks.request is request
        if self._done is not None or not request.active or searches or of_payloads:
            return
        if listens and not self._actions.claim(log):
            return
        wants, newest = self._context.wants_of(log), self._context.newest_of(log)
        serve = self._context.interests.serve_held
        found = change(request, wants, newest, serve=serve)
        if found.cancel:
            self.cancel(request)
        elif found.stop_fetching:
            self._actions.stop_fetching(request)
        elif found.adjust is not None:
            self._actions.adjust(request, found.adjust)

    def cancel(self, request: Request) -> None:
        state = self._logs.get(request.log)
        if state is not None and self._context.interests.serve_held:
            state.leaves(request)
        self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
