"""Requests are fitted to what is wanted: narrowed, stopped or ended (point2point.md 5, 6).

Wishes change while requests run, and so does what a peer may read and write. What is to become of
one request is a formula (`change`, pure); it is carried out for all requests of a log (`Changes`),
and what the other side is left without by that is noted: it asked for it, and is to be offered it
later.

A wish that is narrower is an adjust where that can say it, and what is under way is kept. What it
cannot say takes a cancel 128 and a new proposal: a wider wish, since limits and ends only ever get
tighter and nobody leaves "notify only" in a request; a large payload that is not wanted any more;
and a next entry that is not, since no cursor jumps. A scope that is narrower is not an adjust: that
is not acknowledged, so that whatever was sent before it arrived would be stored. So those requests
end, and what still comes in them is read past.
"""

from msgspec import Struct

from peer.protocol.events import Interests
from peer.protocol.request import OPEN_END, Request
from peer.protocol.sequence import Sequence
from wire import U64_MAX, Adjust, Cancel, CancelReason, Eagerness, LogKey

from .asks import AskKind
from .peer_log import PeerLog
from .ranges import EVERYTHING, meet, range_with
from .rests import Kind, Outcome
from .shared import Shared
from .turns import Turns
from .wanting import ALL_OF_IT, Settings, Wants


class Change(Struct, frozen=True):
    """At most one of these: the adjust to send; a cancel 128; notifications only from now on."""

    adjust: Adjust | None = None
    cancel: bool = False
    stop_fetching: bool = False


KEEP = Change()
CANCEL = Change(cancel=True)


def change(request: Request, wants: Wants, newest: int, *, serve: bool) -> Change:
    """What to do with an active request for a range of entries.

    `newest`: the newest entry that is known of. `serve`: what is held is given out to a peer that
    asks for it, wanted or not.
    """
    # Paths, and payloads alone, were asked for as they are needed, and end by themselves.
    base = request.base
    if base is None or base.path is not None or base.per_entry == 1:
        return KEEP
    if wants.is_all and _asks_for_all(request):
        # As nearly all requests.
        return KEEP
    if request.ours and wants.is_sparse and _is_payload_of_path(request, base, wants, newest):
        return KEEP
    at, last = _ahead(request, base)
    newest = max(newest, at - 1)
    if request.our_interest.eagerness is Eagerness.NOTIFY:
        # What is fetched has requests of its own. Nobody leaves "notify only" (section 5): to get
        # what is followed from now on takes another request.
        follows = last == OPEN_END and meet(wants.followed(newest), ((at, last),))
        return CANCEL if follows else KEEP
    return _narrowed(request, wants, newest, (at, last), serve=serve)


def _asks_for_all(request: Request) -> bool:
    """Whether every payload of its entries is to come, as the proposal or confirmation has said."""
    interest = request.our_interest
    is_limited = interest.min_bytes > 0 or interest.max_bytes < U64_MAX
    return interest.eagerness is Eagerness.ALL and not is_limited


def _narrowed(
    request: Request, wants: Wants, newest: int, ahead: tuple[int, int], *, serve: bool
) -> Change:
    """What to do with one in which data comes. `ahead`: what of it is still to come."""
    at, last = ahead
    if wants.is_all:
        return _settle(request, ALL_OF_IT, OPEN_END, last)
    wanted = meet(wants.ranges(newest), ((at, last),))
    if not wanted:
        # In a request of theirs they get what they asked for all the same.
        serves = serve and not request.ours
        return Change(stop_fetching=True) if serves else CANCEL
    # No cursor jumps: what is not wanted and comes next would have to be sent first.
    if wanted[0][0] > at:
        return CANCEL
    alike = min(wanted[0][1], wants.alike_up_to(at, newest))
    return _settle(request, wants.settings(at, newest), alike, last)


def _is_payload_of_path(request: Request, base: Sequence, wants: Wants, newest: int) -> bool:
    """Whether a request is for the payload of one entry of the path that is wanted."""
    of_one = request.proposal.offset is not None and base.start == base.end
    return of_one and wants.wants_payload_of(base.start, newest)


def is_inside_unwanted(request: Request, wants: Wants, newest: int) -> bool:
    """Whether a large payload is on its way that is not wanted any more.

    Limits count for payloads that have not begun: to stop one takes a cancel.
    """
    entry = request.incoming.entry
    if request.incoming.sink is None or entry is None:
        return False
    if not wants.wants_payload_of(entry.seq, max(newest, entry.seq)):
        return True
    smallest, largest = wants.payload_limits
    fetched = range_with(wants.fetches, entry.seq) is not None
    return not (fetched or smallest <= entry.payload_bytes <= largest)


def _ahead(request: Request, base: Sequence) -> tuple[int, int]:
    """The entry at the other side's cursor, and the last one of the request."""
    end, position = request.lowest_end(), request.incoming.position
    at = max(base.start, base.piece(position).seq) if position < base.reach else base.start
    return at, OPEN_END if end is None else end


def _settle(request: Request, settings: Settings, wanted_last: int, last: int) -> Change:
    interest = request.our_interest
    if settings.eagerness is Eagerness.NOTIFY:
        return Change(stop_fetching=True)
    # Minimum and maximum only ever get tighter (section 5).
    if settings.min_bytes < interest.min_bytes or settings.max_bytes > interest.max_bytes:
        return CANCEL
    limited = settings.eagerness is Eagerness.LIMITED
    same = settings.eagerness is interest.eagerness and (
        not limited or settings.eager_bytes == interest.eager_bytes
    )
    adjust = Adjust(
        request.number,
        eagerness=None if same else settings.eagerness,
        eager_bytes=settings.eager_bytes if limited and not same else None,
        end=wanted_last if wanted_last < last else None,
        min_bytes=settings.min_bytes if settings.min_bytes > interest.min_bytes else None,
        max_bytes=settings.max_bytes if settings.max_bytes < interest.max_bytes else None,
    )
    return KEEP if adjust == Adjust(request.number) else Change(adjust=adjust)


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
        known.planned.wants = wants
        if wants != before:
            # What was skipped, and entries that were left to others, may be wanted for another
            # reason now, and whoever has changed a wish waits for them: these pauses begin anew.
            self._rests.lift_left(log, Kind.RANGE)
            known.asked = ()
            self._rests.lift(log, Kind.PAYLOAD, Outcome.SKIPPED)
        newest = max(known.planned.height, known.planned.heard, self._shared.newest_of(log))
        for request in list(self._actions.requests_of(log)):
            if request.owner is not None:
                # A question of withholding brings nothing, wanted or not. Ended from here it would
                # pass for silence, or for an answer, and own entries leave that were not compared.
                continue
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
        # What is compared is asked for whatever is wanted, and single payloads end by themselves.
        apart = ask is not None and ask.kind in (AskKind.COMPARISON, AskKind.PAYLOADS)
        if self._done is not None or not request.active or apart:
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
        if self._actions.may_tell(log):
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
        if self._shared.interests.may_take(log):
            # What comes is wanted, and asked for again where it stops.
            self._actions.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
        else:
            self._actions.end(request)
