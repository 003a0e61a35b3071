"""Requests are fitted to what is wanted: narrowed, stopped or ended.

Wishes change while requests run, and so does what a peer may read and write. What is to become of
one request is a formula (changing.py); here it is carried out, for all requests of a log, and what
the other side is left without by that is noted: it asked for it, and is to be offered it later.

A wish that is narrower is an adjust, and what is under way is kept. A scope that is narrower is
not: an adjust is not acknowledged, so that whatever was sent before it arrived would be stored. So
those requests end, and what still comes in them is read past.
"""

from peer.protocol.events import Interests
from peer.protocol.request import OPEN_END, Request
from wire import Cancel, CancelReason, Eagerness, LogKey

from .asks import AskKind
from .changing import change, is_inside_unwanted
from .peer_log import PeerLog
from .ranges import EVERYTHING
from .rests import Kind, Outcome
from .shared import Shared
from .turns import Turns


class Changes:
    """Carries out what follows for open requests from what is wanted now."""

    def __init__(self, shared: Shared, turns: Turns) -> None:
        self._shared = shared
        self._actions = shared.actions
        self._rests = shared.rests
        self._logs = shared.logs
        self._done = shared.done
        self._turns = turns

    def wants_changed(self, log: LogKey, known: PeerLog) -> None:
        """Narrow or end the requests of a log, and plan it anew."""
        before, wants = known.wants, self._shared.wants_of(log)
        known.wants = wants
        if wants != before:
            # What was skipped or left to others may be wanted for another reason now, and whoever
            # has changed a wish waits for it: the pauses begin anew.
            self._rests.lift_left(log, Kind.RANGE)
            known.asked = ()
            self._rests.lift(log, Kind.PAYLOAD, Outcome.SKIPPED)
        newest = max(known.height, known.here, self._shared.newest_of(log))
        for request in list(self._actions.requests_of(log)):
            listens = wants.listens and request.our_interest.eagerness is Eagerness.NOTIFY
            unwanted = request.ours and not (wants.is_wanted or listens)
            if unwanted or is_inside_unwanted(request, wants, newest):
                self.cancel(request)
            else:
                self.fit(request)
        self._turns.mark(log)

    def named(self, log: LogKey) -> None:
        """A log is asked for by name from now on, and what is has no quota: there is room."""
        if self._rests.has_no_room(log, self._actions.now):
            self._rests.lift(log, Kind.LOG, Outcome.NO_ROOM)
            self._turns.mark(log)

    def fit(self, request: Request) -> None:
        """Fit a request to what is wanted now."""
        log, listens = request.log, request.our_interest.eagerness is Eagerness.NOTIFY
        known = self._logs.get(log)
        ask = None if known is None else known.asks.get(request)
        of_payloads = ask is not None and ask.kind is AskKind.PAYLOADS
        forks = None if known is None else known.forks
        searches = forks is not None and forks.request is request
        # What looks for a fork is asked for whatever is wanted, and single payloads end by
        # themselves.
        if self._done is not None or not request.active or searches or of_payloads:
            return
        wants, newest = self._shared.wants_of(log), self._shared.newest_of(log)
        # Before `change`, which would end it to fetch: that is another session's to do.
        if listens and (wants.listens or not self._actions.claim(log)):
            return
        serve = self._shared.interests.serves(log)
        found = change(request, wants, newest, serve=serve)
        if found.cancel:
            self.cancel(request)
        elif found.stop_fetching:
            self._actions.stop_fetching(request)
        elif found.adjust is not None:
            self._actions.adjust(request, found.adjust)

    def cancel(self, request: Request) -> None:
        known = self._logs.get(request.log)
        if known is not None and self._shared.interests.serves(request.log):
            known.leaves(request)
        self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))

    # The scope of the other side

    def scope_changed(self, before: Interests) -> None:
        """End what is not covered any more, and tell what was asked for in vain and is by now."""
        for request in self._actions.uncovered():
            self._end(request, before)
        for log, first in self._shared.answers.kept_no_longer():
            self._shared.known_of(log).asks_in_vain(((first, OPEN_END),))
            self._turns.mark(log)

    def reading_changed(self, known: PeerLog) -> None:
        """The other side may read a log now, or no longer.

        Whatever it was told before, and asked for since, came to nothing: it is told once more of
        all that is held, which also frees it to ask again (point2point.md 6, 128).
        """
        log = known.log
        if self._shared.may_tell(log):
            self._rests.lift_told(log, EVERYTHING)
            known.asks_in_vain(EVERYTHING)
            self._shared.regained.add(log)
            self._actions.send_again(log)
        else:
            self._shared.regained.discard(log)
        self._turns.mark(log)

    def _end(self, request: Request, before: Interests) -> None:
        """What the other side has not got of it counts as asked for in vain."""
        log, known = request.log, self._logs.get(request.log)
        if known is None:
            if request.active and not request.ours:
                self._shared.answers.keep(request)
        elif before.serves(log):
            known.leaves(request)
            # It was told of that before, and asked for it, in a request that is over now: were it
            # not told again, it would wait for what it has asked for and never ask anew.
            self._rests.lift_told(log, EVERYTHING)
        if self._shared.interests.may_take(log):
            # What comes is wanted, and asked for again where it stops.
            self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
        else:
            self._actions.end(request)
